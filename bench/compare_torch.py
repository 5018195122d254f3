#!/usr/bin/env python3
"""Runs this program and torch.distributed.pipelining side by side on the same model, and prints ratios.

  bench/compare_torch.py --harness torch_pp.py --python /path/to/python-with-torch [--hidden 256] [--dtype bfloat16] [--rounds 3]
      [--schedules 1F1B,...]
  bench/compare_torch.py --one-rank --python /path/to/python-with-torch [--hidden 512] [--layers 8] [--rows 8] [--sequence 128] ...

The harness trains a Llama-style model (same sizes, schedule, threads, optimizer; random tokens) and prints one JSON line.
With --dtype bfloat16 ours computes in bfloat16 with float32 master weights, PyTorch's under bfloat16 autocast
(torch_autocast.py). The programs alternate round by round, so that both see the same machine; the medians of step times are
compared. With --one-rank both have one process with a thread per core and no pipeline, and PyTorch's is compiled by torch.compile
(torch_compiled.py); "of the tiles" is the step beside what its matmuls take at the rate that --rate names (GFLOP/s of all threads, as
gemm_bench prints it: 6 FLOPs per weight and token, attention's left out). CPU time per step (user + system, all ranks) is printed too: it does not depend on what else is running.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import time

import compare_schedules

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--harness", help="required without --one-rank")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--worker-dir", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--ffn", type=int, default=704)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--one-rank", action="store_true")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=8, help="sequences per step")
    parser.add_argument("--microbatch", type=int, help="sequences at a time (default: all)")
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--schedules", default="1F1B,Interleaved1F1B,InterleavedZeroBubble,ZBVZeroBubble,GPipe,LoopedBFS,DualPipeV")
    return parser.parse_args()


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_ours(args, schedule):
    folder = ROOT / "runs/bench"
    cpu, start = children_cpu(), time.time()
    process = compare_schedules.start(args, schedule, folder)
    first, lines = None, []
    for line in process.stdout:
        lines.append(line)
        if first is None and line.startswith("step 0 "):
            first = time.time() - start
    if process.wait() != 0:
        raise SystemExit("".join(lines[-20:]))
    rows, step = compare_schedules.records(folder)
    return {"step": step, "start": first, "memory": rows[-1]["mem"] * 1024, "loss": rows[-1]["loss"], "cpu": (children_cpu() - cpu) / len(rows)}


def run_torch(args, schedule):
    harness = str(ROOT / "bench/torch_autocast.py") if args.dtype == "bfloat16" else args.harness
    command = [args.python, harness, "--pp", str(args.pp), "--schedule", schedule, "--hidden", str(args.hidden), "--ffn", str(args.ffn), "--steps", str(args.steps)]
    if schedule not in compare_schedules.CHUNKS:
        command += ["--stages-per-rank", "2"]
    cpu = children_cpu()
    row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ, PP_HARNESS=args.harness)).stdout.splitlines()[-1])
    return {"step": row["step_ms"]["med"], "start": row["startup_s"], "memory": max(row["rss_mb"]), "loss": row["loss"], "cpu": (children_cpu() - cpu) / (args.steps + compare_schedules.WARM_UP)}


def one_rank(args):
    """Beside torch.compile: sizes, then a line for each round and the medians."""
    threads, microbatch, groups = len(os.sched_getaffinity(0)), args.microbatch or args.rows, max(1, args.heads // 2)
    folder = ROOT / "runs/bench"
    config = {"hidden_size": args.hidden, "intermediate_size": args.ffn, "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
              "num_key_value_heads": groups, "vocab_size": args.vocabulary, "max_position_embeddings": args.sequence}
    ours = [f"{args.worker_dir}/automodel", "train", str(ROOT / "bench/torch_pp.yaml"), *(f"model.config.{key}={value}" for key, value in config.items()),
            f"model.torch_dtype={args.dtype}", "distributed.pp_size=1", "distributed.pipeline=null", f"step_scheduler.global_batch_size={args.rows}",
            f"step_scheduler.local_batch_size={microbatch}", f"dataset.vocab_size={args.vocabulary}", f"dataset.seq_length={args.sequence}",
            f"step_scheduler.max_steps={args.steps + compare_schedules.WARM_UP}", f"checkpoint.checkpoint_dir={folder}"]
    torch = [args.python, str(ROOT / "bench/torch_compiled.py"), "--device", "cpu", "--type", args.dtype, "--untied", "--clip", "0", "--threads", str(threads),
             "--sizes", f"{args.hidden},{args.ffn},{args.layers},{args.heads},{groups},{args.vocabulary}", "--sequence", str(args.sequence),
             "--batch", str(args.rows), "--microbatch", str(microbatch), "--steps", str(args.steps), "--warmup", str(compare_schedules.WARM_UP)]
    times, theirs, firsts = [], [], []
    for _ in range(args.rounds):
        subprocess.run(ours, check=True, capture_output=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
        rows, step = compare_schedules.records(folder)
        times.append(step)
        firsts.append(rows[0]["step_time"] * 1000 / step)
        theirs.append(json.loads(subprocess.run(torch, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
    step, other = statistics.median(times), statistics.median(row["step_seconds"] for row in theirs) * 1000
    head = config["hidden_size"] // args.heads
    weights = args.layers * (args.hidden * head * 2 * (args.heads + groups) + 3 * args.hidden * args.ffn) + args.hidden * args.vocabulary
    tiles = f"{step / (6e-6 * weights * args.rows * args.sequence / args.rate):.2f}" if args.rate else ""
    print(f"| {args.dtype}, {args.hidden}, {args.rows} x {args.sequence} in {args.rows // microbatch} | {step:.0f} | {other:.0f} ({theirs[0]['how']}) | "
          f"{step / other:.2f} | {statistics.median(firsts):.2f} | {tiles} |")


def main():
    args = arguments()
    if args.one_rank:
        print("| type, hidden, rows | ours ms | torch.compile ms | ratio | first step, of the others | of the tiles |\n| --- | --- | --- | --- | --- | --- |")
        return one_rank(args)
    print(f"{args.dtype}, hidden {args.hidden}, ffn {args.ffn}, pp {args.pp}, one thread per rank, medians of {args.rounds} alternating rounds of {args.steps} steps")
    print(f"| schedule | ours ms | torch ms | ratio | first step s | torch s | memory MB | torch MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for schedule in args.schedules.split(","):
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(run_ours(args, schedule))
            theirs.append(run_torch(args, schedule))
        mid = lambda rows, key: statistics.median(row[key] for row in rows)
        print(f"| {schedule} | {mid(ours, 'step'):.0f} | {mid(theirs, 'step'):.0f} | {mid(ours, 'step') / mid(theirs, 'step'):.2f} | {mid(ours, 'start'):.2f} | "
              f"{mid(theirs, 'start'):.2f} | {mid(ours, 'memory'):.0f} | {mid(theirs, 'memory'):.0f} |", flush=True)


if __name__ == "__main__":
    main()
