#!/usr/bin/env python3
"""GPT-2 124M on the CPU with one rank: compares this program with llm.c's train_gpt2 and PyTorch, on the same tokens.

  bench/compare_gpt2.py --llmc CHECKOUT --python PYTHON_WITH_TORCH [--threads 2] [--rounds 2] [--steps 8] [--dtype float32|bfloat16]

Batches of 4 x 64 tokens, float32, AdamW (learning rate 1e-4, no weight decay), weights drawn from N(0, 0.02): the sizes and
the optimizer that are built into llm.c's program. CHECKOUT is a clone of llm.c in which `make train_gpt2` was run; without
it that row is left out. The programs alternate round by round; the medians of all steps after the first two are compared.
With --dtype bfloat16 this program computes in bfloat16, and PyTorch under autocast.
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from array import array

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH, LENGTH, VOCABULARY, PADDED, POSITIONS, LAYERS, HEADS, WIDTH = 4, 64, 50257, 50304, 1024, 12, 12, 768
WARM_UP = 2

RECIPE = f"""\
seed: 1
device: cpu
model: {{config: {{model_type: gpt2, vocab_size: {VOCABULARY}, n_positions: {POSITIONS}, n_embd: {WIDTH}, n_layer: {LAYERS}, n_head: {HEADS},
  resid_pdrop: 0.0, embd_pdrop: 0.0, attn_pdrop: 0.0}}}}
dataset: {{_target_: nanogpt_bin, file_pattern: tokens.bin, seq_len: {LENGTH}}}
step_scheduler: {{global_batch_size: {BATCH}, local_batch_size: {BATCH}, num_epochs: null}}
optimizer: {{_target_: adamw, lr: 1.0e-4, betas: [0.9, 0.999], weight_decay: 0.0}}
clip_grad_norm: null
distributed: {{strategy: ddp}}
checkpoint: {{enabled: false, checkpoint_dir: run}}
logging: {{tensorboard: false}}
"""


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llmc")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--automodel", default=str(ROOT / "build/release/bin/automodel"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--torch", metavar="FOLDER", help=argparse.SUPPRESS)  # set when this script runs itself with --python
    return parser.parse_args()


def write_tokens(path):
    """In llm.c's format, which this program reads too: a header of 256 words, then 16 bits per token."""
    header = array("i", [20240520, 1, 65536] + [0] * 253)
    draws = random.Random(3)
    path.write_bytes(header.tobytes() + array("H", (draws.randrange(VOCABULARY) for _ in range(header[2]))).tobytes())


def write_llmc_weights(path):
    """Drawing normals one by one is slow, so a block of them is repeated; timings do not depend on the values."""
    header = array("i", [20240326, 3, POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH, PADDED] + [0] * 248)
    draws = random.Random(5)
    block = array("f", (draws.gauss(0, 0.02) for _ in range(WIDTH * 64)))

    def drawn(file, count):
        while count > 0:
            file.write(block[:count].tobytes())
            count -= len(block)

    def constant(file, count, value):
        file.write(array("f", [value]).tobytes() * count)

    with open(path, "wb") as file:
        file.write(header.tobytes())
        drawn(file, PADDED * WIDTH)
        drawn(file, POSITIONS * WIDTH)
        for first, second in ((1, 1), (3, WIDTH), (1, WIDTH), (1, 1), (4, WIDTH), (1, 4 * WIDTH)):  # shape of a weight; (1, 1): a norm
            if (first, second) == (1, 1):
                constant(file, LAYERS * WIDTH, 1.0)
                constant(file, LAYERS * WIDTH, 0.0)
            else:
                drawn(file, LAYERS * first * WIDTH * second)
                constant(file, LAYERS * first * WIDTH, 0.0)
        constant(file, WIDTH, 1.0)
        constant(file, WIDTH, 0.0)


def run_llmc(args, folder):
    """llm.c's program runs 41 steps and generates text in between: it is stopped once there are enough steps."""
    data = folder / "dev/data/tinyshakespeare"
    if not data.exists():
        data.mkdir(parents=True)
        for name in ("train", "val"):
            (data / f"tiny_shakespeare_{name}.bin").symlink_to(folder / "tokens.bin")
        write_llmc_weights(folder / "gpt2_124M.bin")
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    program = str(pathlib.Path(args.llmc).resolve() / "train_gpt2")
    process = subprocess.Popen(["stdbuf", "-oL", program], cwd=folder, stdout=subprocess.PIPE, text=True, env=environment)
    steps, losses = [], []
    for line in process.stdout:
        if found := re.match(r"step \d+: train loss (\S+) \(took (\S+) ms\)", line):
            losses.append(float(found[1]))
            steps.append(float(found[2]))
        if len(steps) == args.steps + WARM_UP:
            break
    process.kill()
    process.wait()
    return steps, losses


def run_ours(args, folder):
    (folder / "recipe.yaml").write_text(RECIPE)
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "AUTOMODEL_CALIBRATION": ""}
    command = [args.automodel, "train", "recipe.yaml", "--step_scheduler.max_steps", str(args.steps + WARM_UP), "--model.torch_dtype", args.dtype]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (folder / "run/training.jsonl").read_text().splitlines()][-(args.steps + WARM_UP):]
    return [row["step_time"] * 1000 for row in rows], [row["loss"] for row in rows]


def run_torch(args, folder):
    command = [args.python, __file__, "--torch", str(folder), "--threads", str(args.threads), "--steps", str(args.steps), "--dtype", args.dtype]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return found["steps"], found["losses"]


def train_with_torch(args):
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(WIDTH, -1))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    tokens, positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
    blocks, norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
    parts = nn.ModuleList([tokens, positions, blocks, norm])
    for name, parameter in parts.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, 0, 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.0, fused=True)
    ids = torch.frombuffer(bytearray((pathlib.Path(args.torch) / "tokens.bin").read_bytes()), dtype=torch.uint16, offset=1024).long()
    places = torch.arange(LENGTH)
    steps, losses = [], []
    for step in range(args.steps + WARM_UP):
        begin = time.perf_counter()
        first = step * BATCH * LENGTH
        inputs = ids[first:first + BATCH * LENGTH].view(BATCH, LENGTH)
        labels = ids[first + 1:first + 1 + BATCH * LENGTH]
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16"):
            x = tokens(inputs) + positions(places)
            for block in blocks:
                x = block(x)
            logits = F.linear(norm(x), tokens.weight)
        loss = F.cross_entropy(logits.float().view(-1, VOCABULARY), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        steps.append((time.perf_counter() - begin) * 1000)
    print(json.dumps({"steps": steps, "losses": losses}))


def main():
    args = arguments()
    if args.torch:
        return train_with_torch(args)
    programs = {"automodel": run_ours, "PyTorch": run_torch}
    if args.llmc and args.dtype == "float32":
        programs["llm.c"] = run_llmc
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        write_tokens(folder / "tokens.bin")
        steps, first = {name: [] for name in programs}, {}
        for _ in range(args.rounds):
            for name, run in programs.items():
                times, losses = run(args, folder)
                if len(times) < args.steps + WARM_UP or abs(losses[0] - math.log(VOCABULARY)) > 0.7:
                    sys.exit(f"{name} did not train: {len(times)} steps, losses {losses}")
                steps[name] += times[WARM_UP:]
                first[name] = losses[0]
    print(f"GPT-2 124M, {BATCH} x {LENGTH} tokens, {args.dtype}, {args.threads} threads, medians of {args.rounds} alternating rounds of {args.steps} steps")
    print("| program | ms per step | this program's share | first loss |\n| --- | --- | --- | --- |")
    ours = statistics.median(steps["automodel"])
    for name, times in steps.items():
        mid = statistics.median(times)
        print(f"| {name} | {mid:.0f} | {ours / mid:.2f} | {first[name]:.3f} |")


if __name__ == "__main__":
    main()
