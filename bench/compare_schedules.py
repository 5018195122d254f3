#!/usr/bin/env python3
"""Step times of this program's schedules beside 1F1B's, on the model of bench/torch_pp.yaml.

  bench/compare_schedules.py [--schedules InterleavedZeroBubble,V-Half,searched,1F1B/together]
      [--base 1F1B] [--pp 2] [--hidden 256] [--dtype bfloat16] [--rounds 3]
      [--share 0.4]

All schedules alternate round by round, so that they see the same machine; for each schedule the medians of its rounds and of the ratios to
the same round's --base are printed, beside the ratio that the plan estimates and the largest memory of a rank. `/together` and
`/apart` after a name set merge_accumulation to true and false, for a recipe with several accumulation steps
(step_scheduler.global_batch_size=32). `searched:2GiB` has a memory limit. For a model
with a large vocabulary or uneven layers, override the recipe: model.config.vocab_size=32768
distributed.pipeline.layers_per_stage=[6,2].

With more ranks than cores, a rank that waits leaves its core to another rank, so that bubbles cost nothing and schedules cannot
be compared. --share gives every rank its own part of a core: the kernel's CPU bandwidth control stops a rank that has used a millisecond
of CPU time until 1/SHARE milliseconds are over, whatever the others do. Four ranks with a share of 0.4 then behave like four slow cores, on two.
Needs a writable cgroup hierarchy (root).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHUNKS = {"1F1B": 1, "GPipe": 1, "ZB-H1": 1, "ZB-H2": 1, "searched": None}  # stages per rank; the other schedules have 2
WARM_UP = 3  # steps
QUOTA_US = 1000  # the least that Linux takes; short beside an action (5 ms and more at these sizes), so that a rank's speed is even


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker-dir", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--schedules", default="InterleavedZeroBubble,ZBVZeroBubble")
    parser.add_argument("--base", default="1F1B")
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--ffn", type=int, help="default: 2.75 x hidden")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--share", type=float, help="part of a core that each rank may use")
    parser.add_argument("overrides", nargs="*", help="further overrides of the recipe")
    return parser.parse_args()


class Shares:
    """One cgroup per rank with a CPU quota; version 1 or 2, whichever is mounted."""

    def __init__(self, share, ranks):
        period = round(QUOTA_US / share)
        legacy = pathlib.Path("/sys/fs/cgroup/cpu")
        root = legacy if (legacy / "cgroup.procs").exists() else pathlib.Path("/sys/fs/cgroup")
        if root != legacy and "cpu" not in (root / "cgroup.subtree_control").read_text().split():
            (root / "cgroup.subtree_control").write_text("+cpu")
        self.folders = [root / f"automodel-bench-{os.getpid()}-{rank}" for rank in range(ranks)]
        for folder in self.folders:
            folder.mkdir()
            if root == legacy:
                (folder / "cpu.cfs_period_us").write_text(str(period))
                (folder / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
            else:
                (folder / "cpu.max").write_text(f"{QUOTA_US} {period}")

    def place(self, launcher):
        """Moves every worker below the process `launcher` into the cgroup of its rank, as soon as all have started."""
        deadline = time.time() + 20
        while time.time() < deadline:
            ranks = {}
            for process in descendants(launcher):
                rank = environment(process).get("OMPI_COMM_WORLD_RANK")
                if rank is not None:
                    ranks.setdefault(int(rank), []).append(process)
            if len(ranks) == len(self.folders):
                for rank, processes in ranks.items():
                    for process in processes:
                        (self.folders[rank] / "cgroup.procs").write_text(str(process))
                return
            time.sleep(0.01)
        raise SystemExit("the ranks did not start")

    def remove(self):
        for folder in self.folders:
            for _ in range(100):
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)  # its last process is still ending


def descendants(process):
    children = pathlib.Path(f"/proc/{process}/task/{process}/children")
    try:
        below = [int(each) for each in children.read_text().split()]
    except OSError:
        return []
    return below + [each for child in below for each in descendants(child)]


def environment(process):
    try:
        entries = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


def recipe(args, schedule, overrides):
    """The recipe and its overrides for SCHEDULE[:LIMIT][/together|/apart]."""
    schedule, _, merging = schedule.partition("/")
    name, _, limit = schedule.partition(":")
    words = [str(ROOT / "bench/torch_pp.yaml"), f"model.config.hidden_size={args.hidden}",
             f"model.config.intermediate_size={args.ffn or args.hidden * 11 // 4}", f"distributed.pp_size={args.pp}",
             f"model.torch_dtype={args.dtype}", f"distributed.pipeline.pp_schedule={name}"]
    if limit:
        words.append(f"distributed.pipeline.search.memory_limit={limit}")
    if merging:
        words.append(f"distributed.pipeline.merge_accumulation={'true' if merging == 'together' else 'false'}")
    chunks = CHUNKS.get(name, 2)
    return words + ([f"model_parallel.virtual_pipeline_model_parallel_size={chunks}"] if chunks else []) + list(overrides)


def plan(args, schedule, overrides):
    words = [f"{args.worker_dir}/automodel", "plan", *recipe(args, schedule, overrides), "--json"]
    planned = subprocess.run(words, capture_output=True, text=True)
    if planned.returncode != 0:
        raise SystemExit(f"{schedule}: {planned.stdout}{planned.stderr}")
    return json.loads(planned.stdout)


def start(args, schedule, folder, overrides=()):
    """Starts training bench/torch_pp.yaml with `schedule`, one thread per rank, for three steps more than are measured."""
    command = [f"{args.worker_dir}/automodel", "train", *recipe(args, schedule, overrides), "--nproc-per-node", str(args.pp),
               f"step_scheduler.max_steps={args.steps + WARM_UP}", f"checkpoint.checkpoint_dir={folder}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))


def records(folder):
    """The rows of training.jsonl, and the median step time in ms without the first steps."""
    rows = [json.loads(line) for line in open(folder / "training.jsonl")]
    return rows, statistics.median(row["step_time"] * 1000 for row in rows[WARM_UP:])


def run(args, schedule, shares):
    folder = ROOT / "runs/bench_schedules"
    process = start(args, schedule, folder, args.overrides)
    if shares:
        shares.place(process.pid)
    output = process.communicate()[0]
    if process.returncode != 0:
        raise SystemExit(output)
    rows, step = records(folder)
    return step, max(row["mem"] for row in rows)


def main():
    args = arguments()
    schedules = [args.base] + args.schedules.split(",")
    shares = Shares(args.share, args.pp) if args.share else None
    share = f", {args.share} of a core per rank" if args.share else ""
    print(f"{args.dtype}, hidden {args.hidden}, pp {args.pp}{share}; {args.rounds} alternating rounds of {args.steps} steps")
    estimated = {schedule: plan(args, schedule, args.overrides)["time"]["step"] for schedule in schedules}
    memory = dict.fromkeys(schedules, 0)
    try:
        rounds = []
        for _ in range(args.rounds):
            rounds.append({})
            for schedule in schedules:
                rounds[-1][schedule], used = run(args, schedule, shares)
                memory[schedule] = max(memory[schedule], used)
            print("  " + ", ".join(f"{schedule} {ms:.1f} ms" for schedule, ms in rounds[-1].items()), file=sys.stderr, flush=True)
    finally:
        if shares:
            shares.remove()
    print(f"| schedule | ms per step | of {args.base}'s | estimated | memory | rounds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for schedule in schedules:
        ratios = [each[schedule] / each[args.base] for each in rounds]
        print(f"| {schedule} | {statistics.median(each[schedule] for each in rounds):.1f} | {statistics.median(ratios):.3f} | "
              f"{estimated[schedule] / estimated[args.base]:.3f} | {memory[schedule]:.3g} | {', '.join(f'{ratio:.3f}' for ratio in sorted(ratios))} |")


if __name__ == "__main__":
    main()
