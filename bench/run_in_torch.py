#!/usr/bin/env python3
"""Runs tables of `automodel schedule` in PyTorch's _PipelineScheduleRuntime and compares gradients with one process.

For every generator that PyTorch's runtime can place, and for searched tables, on 2 and 4 ranks over gloo:

    python3 -m venv venv && venv/bin/pip install torch        # CPU wheels suffice
    venv/bin/python bench/run_in_torch.py build/release/bin/automodel

Prints one line per table with the largest difference of a gradient, relative to the largest gradient; exits with 1 if
one exceeds 1e-9 (float64) or a table does not run.
"""

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TORCH = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])
WIDTH = 16
BATCH = 2  # rows of a microbatch
# PyTorch 2.15 expects waits in complete tables.
LOWERED = "lowered-2.15" if TORCH >= (2, 15) else "lowered"
NAMED = [
    ("GPipe", 1), ("1F1B", 1), ("ZB-H1", 1), ("ZB-H2", 1), ("Interleaved1F1B", 2), ("LoopedBFS", 2),
    ("InterleavedZeroBubble", 2), ("MegatronInterleaved", 2), ("ZBVZeroBubble", 2), ("DualPipeV", 2), ("V-Half", 2),
    ("V-Min", 2),
]


def tables(program, folder, ranks, microbatches):
    """(label, file, format, stages per rank, style) of every table, exported by the program."""
    out = []

    def export(label, words, per_rank, style):
        for form in ("compute", LOWERED):
            path = folder / f"{label}-{ranks}-{form}.csv".replace(" ", "-")
            subprocess.run(
                [program, "schedule", *words, "--pp-size", str(ranks), "--microbatches", str(microbatches),
                 "--format", form, "-o", str(path)], check=True, stdout=subprocess.DEVNULL)
            out.append((f"{label}, {form}", str(path), form, per_rank, style))

    for name, per_rank in NAMED:
        style = "v" if name in ("ZBVZeroBubble", "DualPipeV", "V-Half", "V-Min") else "loop"
        export(name, [name], per_rank, style)
    for per_rank, style in ((1, "loop"), (2, "loop"), (2, "v")):
        export(f"search {style} x{per_rank}",
               ["search", "--stages-per-rank", str(per_rank), "--style", style], per_rank, style)
    return out


def module(stage):
    import torch

    torch.manual_seed(stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double()


def data(microbatches):
    import torch

    generator = torch.Generator().manual_seed(1)
    shape = (BATCH * microbatches, WIDTH)
    return (torch.randn(shape, generator=generator, dtype=torch.float64),
            torch.randn(shape, generator=generator, dtype=torch.float64))


def expected(stages, microbatches):
    """Gradients of one process: mean over microbatches of the mean loss."""
    import torch

    parts = [module(stage) for stage in range(stages)]
    inputs, targets = data(microbatches)
    for part_in, part_out in zip(inputs.chunk(microbatches), targets.chunk(microbatches)):
        (torch.nn.functional.mse_loss(torch.nn.Sequential(*parts)(part_in), part_out) / microbatches).backward()
    return [[p.grad for p in part.parameters()] for part in parts]


def without_messages_to_itself():
    """At its first step the runtime exchanges a value with each neighbouring stage, which gloo cannot do within one
    rank. Leaves those exchanges out, as PyTorch itself does for the steps of the table."""
    import torch.distributed as dist
    from torch.distributed.pipelining import stage as torch_stage

    base = torch_stage._PipelineStageBase
    original = getattr(base, "_get_init_p2p_neighbors_ops", None)
    if original is None:
        return

    def remote_only(self):
        return [op for op in original(self) if op.peer != dist.get_rank()]

    base._get_init_p2p_neighbors_ops = remote_only


def rank_of(stage, ranks, style):
    backwards = style == "v" and stage // ranks % 2 == 1
    return ranks - 1 - stage % ranks if backwards else stage % ranks


def run_rank(path, form, per_rank, style, microbatches):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    without_messages_to_itself()
    count = per_rank * ranks
    mine = [s for s in range(count) if rank_of(s, ranks, style) == rank]
    parts = {s: module(s) for s in mine}
    stages = [PipelineStage(parts[s], s, count, torch.device("cpu")) for s in mine]
    for stage in stages:
        stage.stage_index_to_group_rank = {s: rank_of(s, ranks, style) for s in range(count)}
    schedule = _PipelineScheduleRuntime(stages, n_microbatches=microbatches, loss_fn=torch.nn.functional.mse_loss)
    schedule._load_csv(path, format="compute_only" if form == "compute" else "compute_comms")
    inputs, targets = data(microbatches)
    schedule.step(*([inputs] if 0 in parts else []), **({"target": targets} if count - 1 in parts else {}))
    worst, largest = 0.0, 0.0
    for s, reference in enumerate(expected(count, microbatches)):
        for gradient in reference:
            largest = max(largest, gradient.abs().max().item())
        if s in parts:
            for parameter, gradient in zip(parts[s].parameters(), reference):
                worst = max(worst, (parameter.grad - gradient).abs().max().item())
    both = torch.tensor([worst / largest])
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"difference {both.item():.3g}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--rank-job", nargs=4, metavar=("FILE", "FORMAT", "STAGES_PER_RANK", "STYLE"),
                        help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.rank_job:
        path, form, per_rank, style = words.rank_job
        run_rank(path, form, int(per_rank), style, words.microbatches)
        return 0
    if not words.program:
        parser.error("give the automodel program")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        for ranks in words.ranks:
            for label, path, form, per_rank, style in tables(words.program, Path(name), ranks, words.microbatches):
                run = subprocess.run(
                    [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", __file__,
                     "--microbatches", str(words.microbatches), "--rank-job", path, form, str(per_rank), style],
                    capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
                found = [line for line in run.stdout.splitlines() if line.startswith("difference ")]
                ok = run.returncode == 0 and found and float(found[0].split()[1]) <= 1e-9
                failed += 0 if ok else 1
                last = run.stderr.strip().splitlines()[-1:] if run.returncode else []
                print(f"{ranks} ranks  {label:40} {found[0] if found else 'did not run'} {' '.join(last)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
