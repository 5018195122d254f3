#!/usr/bin/env python3
"""Runs this program and torch.distributed.pipelining side by side on the same model, and prints ratios.

  bench/compare_torch.py --harness torch_pp.py --python /path/to/python-with-torch [--hidden 256] [--dtype bfloat16] [--rounds 3]
      [--schedules 1F1B,...]

The harness trains a Llama-style model (same sizes, schedule, threads, optimizer; random tokens) and prints one JSON line.
With --dtype bfloat16 ours computes in bfloat16 with float32 master weights, PyTorch's under bfloat16 autocast
(torch_autocast.py). The programs alternate round by round, so that both see the same machine; the medians of step times are
compared. CPU time per step (user + system, all ranks) is printed too: it does not depend on what else is running.
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
    parser.add_argument("--harness", required=True)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--worker-dir", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--ffn", type=int, default=704)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
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


def main():
    args = arguments()
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
