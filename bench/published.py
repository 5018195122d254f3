#!/usr/bin/env python3
"""Plans published training runs and compares the plans with what was published.

  published.py AUTOMODEL [--markdown FILE] [--only WORD] [--as-written] [--rows fitted|held-out] [--summary] [--search]

Runs and recipes: test/golden/published/runs.jsonl (its README describes the rows). Each recipe is planned with the
software stack, dispatcher and network of the run (hardware.stack, hardware.dispatcher, hardware.network_bandwidth); with
--as-written without these, as somebody would who knows only the recipe. `rate` is planned / published tokens per second:
above 1 the plan is faster than the run was. Memory is compared as the run counted it: tensors (peak allocated), with
what the allocator holds beyond them (peak reserved), or with the context too (nvidia-smi).

Constants of the cost model were fitted on one half of the rows: those where the first byte of the SHA-256 of the id is
even. Nothing was ever fitted on the others.

With --search, `plan --search` looks for a faster way to run NeMo's rows (those of dgxc) on the same number of GPUs.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

RUNS = pathlib.Path(__file__).resolve().parent.parent / "test/golden/published/runs.jsonl"
KEYS = ("stack", "dispatcher", "network_bandwidth")
CONTEXT = 1.5 * 2**30  # of a GPU, as lib/estimate/hardware.cpp has it: no allocator counts it


def fitted(name):
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def read_runs():
    return [json.loads(line) for line in RUNS.read_text().splitlines()]


def recipe_of(run, as_written=False):
    """The complete recipe as JSON, which is also YAML."""
    out = json.loads(json.dumps(run["recipe"]))
    out["device"] = "cuda"
    out["dataset"] = {"_target_": "mock", "vocab_size": 32000, "seq_length": run["seq"]}
    out["optimizer"] = {"_target_": "adamw", "lr": 1e-4}
    out["checkpoint"] = {"enabled": False}
    out["step_scheduler"].update(max_steps=10, num_epochs=None)
    if not as_written:
        out["hardware"].update({key: run[key] for key in KEYS if key in run})
        if "gpu" in run:
            out["hardware"]["profile"] = run["gpu"]
            out["hardware"].pop("peak_tflops", None)
    return out


def plan(automodel, run, as_written=False, more=()):
    """The plan (or search result) as JSON, or the errors."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(recipe_of(run, as_written), file)
        file.flush()
        done = subprocess.run([automodel, "plan", file.name, "--world-size", str(run["world"]), "--json", *more],
                              capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"errors": [{"message": done.stderr.strip()}]}


def share(values, part):
    """The quantile `part` of the values, interpolated linearly."""
    values = sorted(values)
    if not values:
        return float("nan")
    at = part * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def bytes_of(made, kind):
    """What the plan has for memory that was counted as `kind` says."""
    rank = made["memory"][made["fit"]["heaviest_pp_rank"]]
    shares = rank["phases"][rank["peak_phase"]]
    if kind == "peak allocated":
        return shares["total"] - shares["framework"]
    return shares["total"] - (CONTEXT if kind == "peak reserved" else 0)


def measure(automodel, run, as_written):
    made = plan(automodel, run, as_written)
    out = {"id": run["id"], "run": run, "fitted": fitted(run["id"])}
    if "time" not in made:
        problems = made.get("errors") or [{"message": "no estimate"}]
        out["refused"] = problems[0]["message"]
        return out
    out["step"] = made["time"]["step"]
    if not run.get("oom"):
        out["rate"] = run["step_s"] / made["time"]["step"]
    out["memory"] = made["fit"]["peak"] / 2**30
    if "memory_gib" in run:
        out["memory_ratio"] = bytes_of(made, run["memory_kind"]) / 2**30 / run["memory_gib"]
    out["verdict"] = made["fit"]["verdict"]
    return out


def groups(rows):
    """Groups rows: fully specified bfloat16 runs (dense, MoE), FP8, and runs that are not fully specified."""
    def kind(row):
        run = row["run"]
        if run.get("oom"):
            return None
        if "flag" in run:
            return "not fully specified"
        if run["precision"] != "bf16":
            return "FP8"
        return "MoE" if run["moe"] else "dense"
    return [(name, [row for row in rows if kind(row) == name]) for name in ("dense", "MoE", "FP8", "not fully specified")]


def summary(rows):
    out = [["rows", "half", "runs", "planned", "median error", "90th percentile", "median rate", "ran, \"does not fit\"",
            "ran out of memory, called so"]]
    for half, wanted in (("fitted", True), ("held out", False), ("both", None)):
        part = [row for row in rows if wanted is None or row["fitted"] == wanted]
        for name, members in groups(part):
            done = [row for row in members if "rate" in row]
            errors = [abs(row["rate"] - 1) for row in done]
            unfit = sum(row["verdict"] == "does not fit" for row in done)
            out.append([name, half, len(members), len(done), f"{100 * share(errors, 0.5):.1f} %",
                        f"{100 * share(errors, 0.9):.1f} %", f"{share([row['rate'] for row in done], 0.5):.2f}",
                        f"{unfit} of {len(done)}", "-"])
        ran = [row for row in part if not row["run"].get("oom") and "rate" in row]
        failed = [row for row in part if row["run"].get("oom") and "verdict" in row]
        out.append(["all", half, len(part), len(ran) + len(failed), "", "", "",
                    f"{sum(row['verdict'] == 'does not fit' for row in ran)} of {len(ran)}",
                    f"{sum(row['verdict'] == 'does not fit' for row in failed)} of {len(failed)}"])
    return out


def memory_summary(rows):
    """Planned / published memory of the rows that have it, by how it was counted."""
    out = [["memory", "half", "runs", "median planned / published", "median error", "90th percentile"]]
    known = [row for row in rows if "memory_ratio" in row]
    for kind in sorted({row["run"]["memory_kind"] for row in known}) + [None]:
        for half, wanted in (("fitted", True), ("held out", False), ("both", None)):
            part = [row["memory_ratio"] for row in known
                    if kind in (None, row["run"]["memory_kind"]) and wanted in (None, row["fitted"])]
            errors = [abs(ratio - 1) for ratio in part]
            if part:
                out.append([kind or "all", half, len(part), f"{share(part, 0.5):.2f}", f"{100 * share(errors, 0.5):.1f} %",
                            f"{100 * share(errors, 0.9):.1f} %"])
    return out


def table(rows):
    out = [["run", "half", "GPUs", "published s", "planned s", "rate", "memory GiB", "verdict", "published GiB",
            "planned / published"]]
    for row in sorted(rows, key=lambda row: (not row["fitted"], row["id"])):
        run = row["run"]
        known = f"{run['memory_gib']:.1f} ({run['memory_kind']})" if "memory_gib" in run else ""
        half = "fitted" if row["fitted"] else "held out"
        if "verdict" in row:
            published = "out of memory" if run.get("oom") else f"{run['step_s']:.3f}"
            out.append([row["id"], half, run["world"], published, f"{row['step']:.3f}", f"{row['rate']:.2f}" if "rate" in row else "",
                        f"{row['memory']:.1f}", row["verdict"], known,
                        f"{row['memory_ratio']:.2f}" if "memory_ratio" in row else ""])
        else:
            out.append([row["id"], half, run["world"], f"{run.get('step_s', 0):.3f}", "refused", "", "", row["refused"][:60], known, ""])
    return out


def searched(automodel, runs):
    """Compares the recipe's own configuration with the best one found."""
    def way(found):
        sizes = " ".join(f"{axis} {size}" for axis, size in found["sizes"].items() if size > 1)
        return f"{sizes}, {found['schedule']}, microbatch {found['microbatch']}, recompute {found['recompute']}"
    out = [["run", "GPUs", "published way", "planned s", "best that is found", "planned s", "why the published one takes longer"]]
    for run in runs:
        found = plan(automodel, run, more=("--search",))
        own, best = found.get("recipe"), (found.get("best") or [None])[0]
        if own is None or best is None:
            out.append([run["id"], run["world"], "", "", "nothing", "", ""])
            continue
        out.append([run["id"], run["world"], way(own), f"{own['step']:.3f}", way(best), f"{best['step']:.3f}", found["why"]])
    return out


def schedules(automodel, runs):
    """The searched schedule beside the best named one in no more memory; and the runs in which it is slower."""
    out = [["run", "pp", "searched s", "GiB", "best named in that memory", "s", "searched / named"]]
    slower = []
    for run in runs:
        listed = plan(automodel, run, more=("--compare-schedules",)).get("schedules", [])
        found = [row for row in listed if row["ok"]]
        own = min((row for row in found if row["schedule"] == "searched"), key=lambda row: row["step_seconds"], default=None)
        if own is None:
            slower.append(f"{run['id']}: no searched schedule")
            continue
        best = min((row for row in found if row["schedule"] != "searched" and row["peak_bytes"] <= own["peak_bytes"] + 1),
                   key=lambda row: row["step_seconds"], default=own)
        ratio = own["step_seconds"] / best["step_seconds"]
        out.append([run["id"], run["recipe"]["distributed"]["pp_size"], f"{own['step_seconds']:.4f}",
                    f"{own['peak_bytes'] / 2**30:.1f}", f"{best['schedule']}, {best['stages_per_rank']} stages per rank",
                    f"{best['step_seconds']:.4f}", f"{ratio:.4f}"])
        if ratio > 1 + 1e-9:
            slower.append(f"{run['id']}: {ratio:.6f} times {best['schedule']}")
    return out, slower


def text(cells):
    widths = [max(len(str(row[i])) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def markdown(cells):
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + " --- |" * len(cells[0])] + lines[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("automodel")
    parser.add_argument("--markdown", help="write the summary into this file, between its marks")
    parser.add_argument("--only", default="", help="rows whose id contains this")
    parser.add_argument("--as-written", action="store_true", help="recipes without the keys that say which stack ran")
    parser.add_argument("--rows", choices=["fitted", "held-out"], help="one half")
    parser.add_argument("--search", action="store_true", help="what plan --search finds for NeMo's rows")
    parser.add_argument("--schedules", action="store_true",
                        help="only the searched schedule beside the named ones, for runs with pipelines; fails if it is slower")
    parser.add_argument("--summary", action="store_true", help="no table of the rows")
    arguments = parser.parse_args()
    runs = [run for run in read_runs() if arguments.only in run["id"]]
    if arguments.rows:
        runs = [run for run in runs if fitted(run["id"]) == (arguments.rows == "fitted")]
    if arguments.schedules:
        cells, slower = schedules(arguments.automodel, [run for run in runs if run["recipe"]["distributed"].get("pp_size", 1) > 1])
        print(text(cells) + f"\n{len(cells) - 1} runs, searched slower in {len(slower)}")
        sys.exit("\n".join(slower) or 0)
    rows = [measure(arguments.automodel, run, arguments.as_written) for run in runs]
    if not arguments.summary:
        print(text(table(rows)) + "\n")
    print(text(summary(rows)) + "\n\n" + text(memory_summary(rows)))
    nemo = searched(arguments.automodel, [run for run in runs if run["id"].startswith("dgxc-")]) if arguments.search else []
    if nemo:
        print("\n" + text(nemo))
    if arguments.markdown:
        path = pathlib.Path(arguments.markdown)
        begin, end = "<!-- published: begin -->\n", "<!-- published: end -->\n"
        head, rest = path.read_text().split(begin)
        tail = rest.split(end)[1]
        path.write_text(head + begin + markdown(summary(rows)) + "\n\n" + markdown(memory_summary(rows)) + "\n" + end + tail)


if __name__ == "__main__":
    main()
