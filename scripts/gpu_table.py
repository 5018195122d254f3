#!/usr/bin/env python3
"""Times the recipes in recipes/gpu and prints a table: tokens/s, MFU, milliseconds by phase, memory versus the plan's.

  gpu_table.py AUTOMODEL RECIPES_FOLDER OUTPUT_FOLDER [--device cuda] [--steps 20] [--limit 420] [--tiny]
               [--torch bench/torch_compiled.py]

Metrics are kept in OUTPUT_FOLDER, the table in its table.md. With --torch the table also has the same Llama-3.2-1B under
torch.compile, if this python3 has torch. --tiny shrinks the models to a few thousand weights, to try this on a CPU. A model
that does not fit according to the plan is left out, with a note. A run that takes longer than --limit seconds is cut off,
and its row reports the steps so far. The exit code is 1 if a run failed or was cut off.

A GPU runs asynchronously: "forward and backward" is the time to launch the kernels, and the wait for the gradient norm,
which the host needs, is part of "gradients". Their sum is the GPU's time for both.
"""
import argparse
import importlib.util
import json
import pathlib
import re
import statistics
import subprocess
import sys

# Name, recipe, overrides on top of it.
ROWS = [("Llama-3.2-1B", "llama_1b", {}),
        ("the same in float8", "llama_1b", {"fp8.enabled": "true", "fp8.recipe_name": "rowwise_with_gw_hp"}),
        ("Llama-3.1-8B with adapters", "llama_8b_adapters", {}),
        ("Qwen3-30B-A3B's experts, 4 layers", "qwen3_experts", {})]
FLOAT8 = ("h100", "h200", "gh200", "b200", "gb200", "b300")  # profiles, or what theirs begin with, that multiply float8 in hardware
# Patterns for nvidia-smi's device names; the first match counts.
PROFILES = [("GB200", "gb200"), ("GH200", "gh200"), ("B300", "b300"), ("B200", "b200"), ("H200 NVL", "h200-nvl"), ("H200", "h200"),
            ("H100 PCIe", "h100-pcie"), ("H100", "h100"), ("A100.*80GB", "a100-80"), ("A100", "a100-40"), ("L40S", "l40s"),
            ("L4$", "l4"), ("A10$", "a10"), ("RTX 4090", "rtx4090"), ("RTX 3090", "rtx3090"), ("V100.*32GB", "v100-32")]
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 128}
TINY_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def profile():
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout
    except OSError:
        return None
    name = said.splitlines()[0].strip() if said.strip() else ""
    return next((known for pattern, known in PROFILES if re.search(pattern, name)), None)


def words_of(recipe, overrides, given):
    words = {**overrides, "device": given.device, "step_scheduler.max_steps": given.steps}
    if given.device == "cuda":
        if known := profile():
            words["hardware.profile"] = known
    if given.tiny:
        sizes = {**TINY, **(TINY_EXPERTS if "experts" in recipe else {})}
        config = {"model_type": "qwen3_moe" if "experts" in recipe else "llama", **sizes}
        words["model.config"] = json.dumps(config)
        words.update({"dataset.vocab_size": TINY["vocab_size"], "dataset.seq_length": 64})
    return [f"--{key}={value}" for key, value in words.items()]


def run(words, limit):
    """Like subprocess.run, but with return code 124 after a timeout."""
    try:
        return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=limit)
    except subprocess.TimeoutExpired as late:
        said = [out.decode(errors="replace") if isinstance(out, bytes) else out or "" for out in (late.stdout, late.stderr)]
        return subprocess.CompletedProcess(words, 124, *said)


def jsonl(path):
    """The complete lines of a file: the last line of a run that was cut off may be incomplete."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def median(rows, key):
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else None


def time_recipe(recipe, overrides, given):
    """The cells of a row, or the reason why there are none."""
    name = f"{recipe}_float8" if overrides else recipe
    path, output = given.recipes / f"{recipe}.yaml", given.output / name
    if overrides and given.device == "cuda" and not (profile() or "").startswith(FLOAT8):
        return "left out: this GPU has no float8 products, or is unknown"
    words = words_of(recipe, overrides, given)
    plan = run([given.automodel, "plan", path, "--require-fit", "--no-files", "--world-size", "1", *words], given.limit)
    if plan.returncode == 3:
        return "left out: " + next((line.strip() for line in plan.stderr.splitlines() if "error[" in line), "does not fit")
    done = run([given.automodel, "train", path, f"--checkpoint.checkpoint_dir={output}", *words], given.limit)
    (given.output / f"{name}.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        given.failed.append(name)
        if done.returncode != 124:
            return f"failed, exit code {done.returncode}: {next((line for line in said if 'error[' in line), said[-1] if said else '')}"
        if len(jsonl(output / "training.jsonl")) < 4:
            return f"cut off after {given.limit} s, before its fourth step"
    steps = jsonl(output / "training.jsonl")
    steps = steps[len(steps) // 4:]  # skip the warm-up
    phases = jsonl(output / "ranks.jsonl")[1:] or jsonl(output / "ranks.jsonl")
    cells = {"step": median(steps, "step_time"), "mfu": median(steps, "mfu"), "cut": done.returncode == 124}
    cells["tokens"] = median(steps, "num_tokens_per_step") / cells["step"]
    for phase in ("data", "compute", "gradients", "optimizer"):
        cells[phase] = median([{phase: row[phase][0]} for row in phases], phase)
    estimate = output / "estimate.json"
    if estimate.exists():
        told = json.loads(estimate.read_text())
        cells.update(memory=told["measured_tensor_bytes"], planned=told["predicted_tensor_bytes"], planned_step=told["predicted_step_seconds"])
    return cells


def time_torch(given):
    words = [sys.executable, given.torch, "--device", given.device, "--steps", str(given.steps)]
    if given.tiny:
        words += ["--tiny", "--sequence", "64", "--warmup", "1"]
    if given.device == "cpu":
        words.append("--eager")
    done = run(words, given.limit)
    (given.output / "torch.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        given.failed.append("torch")
        if done.returncode == 124:
            return f"cut off after {given.limit} s"
        return f"failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return {"step": told["step_seconds"], "tokens": told["tokens_per_second"], "memory": told["peak_bytes"], "how": told["how"]}


def shown(value, scale=1.0, form="{:.1f}"):
    return "-" if value is None else form.format(value * scale)


def line_of(name, cells):
    if isinstance(cells, str):
        return f"| {name} | {cells} |" + " |" * 9
    get = cells.get
    columns = [name + (", cut off" if get("cut") else ""), shown(get("tokens"), 1, "{:.0f}"), shown(get("mfu"), 100, "{:.1f} %"), shown(get("step"), 1e3), shown(get("data"), 1e3),
               shown(get("compute"), 1e3), shown(get("gradients"), 1e3), shown(get("optimizer"), 1e3), shown(get("planned_step"), 1e3),
               shown(get("memory"), 2**-30, "{:.2f}"), shown(get("planned"), 2**-30, "{:.2f}")]
    return "| " + " | ".join(columns) + " |"


def main():
    words = argparse.ArgumentParser()
    for name in ("automodel", "recipes", "output"):
        words.add_argument(name, type=pathlib.Path)
    words.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    words.add_argument("--steps", type=int, default=20)
    words.add_argument("--limit", type=int, default=420, help="seconds that a run may take")
    words.add_argument("--tiny", action="store_true")
    words.add_argument("--torch", type=pathlib.Path)
    given = words.parse_args()
    given.failed = []
    given.output.mkdir(parents=True, exist_ok=True)
    table = ["| run | tokens/s | MFU | ms a step | data | forward and backward | gradients | optimizer | planned step | GiB of tensors | planned |",
             "| --- |" + " --- |" * 10]
    print("\n".join(table), flush=True)

    def add(name, cells):
        table.append(line_of(name, cells))
        print(table[-1], flush=True)
        (given.output / "table.md").write_text("\n".join(table) + "\n")

    for name, recipe, overrides in ROWS:
        cells = time_recipe(recipe, overrides, given)
        add(name, cells)
        if recipe != "llama_1b" or overrides or given.torch is None:
            continue
        if importlib.util.find_spec("torch") is None:
            add("the same by PyTorch", "left out: this python3 has no torch")
            continue
        beside = time_torch(given)
        if isinstance(beside, dict):
            if isinstance(cells, dict) and cells.get("mfu"):
                beside["mfu"] = cells["mfu"] * beside["tokens"] / cells["tokens"]  # the same model and tokens
            add(f"the same by PyTorch ({beside['how']})", beside)
        else:
            add("the same by PyTorch", beside)
    if given.failed:
        sys.exit(f"failed: {', '.join(given.failed)}; their output is in {given.output}")


if __name__ == "__main__":
    main()
