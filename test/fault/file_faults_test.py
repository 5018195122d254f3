#!/usr/bin/env python3
"""Every operation on files of a save, a resume and a deletion fails once: with EIO, with ENOSPC, or by death in it.

strace counts the operations of an undisturbed run, then makes one of them fail in each further run. What must hold: a run
that could not save says so (an error that names a file, exit code not 0), nothing crashes, and the same command without the
fault ends with the losses of the undisturbed run and a complete checkpoint.

  file_faults_test.py BIN_FOLDER save|resume [--every N] [--jobs N] [--only CALL]

--every: only each N-th operation of a kind (default 1: all). The result is printed as a table.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

RECIPE = """\
device: cpu
model: {config: {model_type: llama, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2,
  num_key_value_heads: 2, vocab_size: 32, max_position_embeddings: 8}}
dataset: {_target_: mock, vocab_size: 32, seq_length: 8, num_samples: 64}
logging: {progress: false, tensorboard: false}
optimizer: {lr: 1.0e-2}
step_scheduler: {global_batch_size: 2, local_batch_size: 1, max_steps: 3, ckpt_every_steps: 1, num_epochs: null}
checkpoint: {checkpoint_dir: run, max_recent_checkpoints: 1}
"""
CHANGES = ("openat", "mkdir", "write", "pwrite64", "fallocate", "ftruncate", "fsync", "fdatasync", "rename", "renameat",
           "renameat2", "unlink", "unlinkat", "rmdir", "symlink", "symlinkat", "link", "linkat")
READS = ("openat", "read", "pread64", "getdents64", "mmap")
LINE = re.compile(r"^(\d+) +(\w+)\((.*)$")
LIMIT = 60  # seconds; a run takes half of one
KILLED = -9


def command(*words):
    return [str(binaries / "automodel"), "train", "r.yaml", "--step_scheduler.max_steps", *words]


def environment():
    return dict(os.environ, AUTOMODEL_CALIBRATION="", OMP_NUM_THREADS="1")


def run(folder, words, strace=()):
    done = subprocess.run([*strace, *words], cwd=folder, env=environment(), capture_output=True, text=True, timeout=LIMIT)
    return done.returncode, done.stdout + done.stderr


def losses(folder):
    """By step; of steps that were trained twice, the last."""
    lines = (folder / "run/training.jsonl").read_text().splitlines()
    return {row["step"]: (row["loss"], row["grad_norm"]) for row in map(json.loads, lines) if "loss" in row}


def operations(folder, words, kinds):
    """[(syscall, how many-th of its thread, what it was)] of all operations on the run's folder."""
    trace = folder / "trace.txt"
    code, output = run(folder, words, ["strace", "-f", "-y", "-s", "60", "-o", str(trace), "-e", "trace=" + ",".join(kinds)])
    if code != 0:
        raise AssertionError(output)
    out, counts = [], collections.Counter()
    for line in trace.read_text(errors="replace").splitlines():
        found = LINE.match(line)
        if not found:
            continue
        thread, name, rest = found.groups()
        counts[thread, name] += 1
        arguments = rest.rsplit(") = ", 1)[0]
        if '"run' in arguments or f"{folder}/run" in arguments:
            out.append((name, counts[thread, name], line[:160]))
    trace.unlink()
    return out


def faulty(case):
    """One run with one fault, and the run after it. Returns (what happened, what is wrong or '')."""
    start, last, (name, count, line), fault, expected = case
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch).resolve()
        shutil.copytree(start, folder, dirs_exist_ok=True, symlinks=True)
        what = "signal=KILL" if fault == "kill" else f"error={fault}"
        tracer = ["strace", "-f", "-o", "/dev/null", "-e", f"inject={name}:{what}:when={count}", "-e", f"trace={name}"]
        try:
            code, output = run(folder, command(str(last)), tracer)
        except subprocess.TimeoutExpired:
            return "hung", f"{fault} at {line}: hung"
        lines = [each for each in output.splitlines() if each.strip()]
        if fault == "kill":
            happened = "killed" if code in (KILLED, 128 + 9) else "went on"
        elif code == 0:
            happened = "went on"
            if options.part == "resume" and "resume    run/" not in output:
                return "began anew", f"{fault} at {line}: the checkpoint was passed over\n{output}"
        else:
            happened = "said"
            if code < 0 or code >= 128:
                return "crashed", f"{fault} at {line}: exit code {code}\n{output}"
            if not any("error[" in each for each in lines):
                return "silent", f"{fault} at {line}: exit code {code}\n{output}"
        try:
            code, output = run(folder, command(str(last)))
        except subprocess.TimeoutExpired:
            return happened, f"{fault} at {line}: the run after it hung"
        if code != 0:
            return happened, f"{fault} at {line} ({happened}): the run after it ended with {code}\n{output}"
        if losses(folder) != expected:
            return happened, f"{fault} at {line} ({happened}): {losses(folder)}, not {expected}"
        verified = subprocess.run([binaries / "automodel", "checkpoint", "verify", "run"], cwd=folder, capture_output=True, text=True)
        if verified.returncode != 0:
            return happened, f"{fault} at {line} ({happened}): {verified.stdout}{verified.stderr}"
        return happened, ""


def main():
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch).resolve()
        start, whole = scratch / "start", scratch / "whole"
        start.mkdir()
        (start / "r.yaml").write_text(RECIPE)
        if options.part == "resume":  # from the checkpoint of two steps
            code, output = run(start, command("2"))
            if code != 0:
                raise AssertionError(output)
        shutil.copytree(start, whole, symlinks=True)
        found = operations(whole, command("3"), CHANGES if options.part == "save" else dict.fromkeys(CHANGES + READS))
        expected = losses(whole)
        cases, seen = [], collections.Counter()
        for operation in found:
            seen[operation[0]] += 1
            if (seen[operation[0]] - 1) % options.every == 0 and options.only in ("", operation[0]):
                cases += [(start, 3, operation, fault, expected) for fault in ("EIO", "ENOSPC", "kill")]
        wrong, table = [], collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for case, (happened, problem) in zip(cases, pool.map(faulty, cases)):
                table[case[2][0], case[3], happened] += 1
                if problem:
                    wrong.append(problem)
        print(f"{options.part}: {len(found)} operations, {len(cases)} faults, {len(wrong)} wrong")
        for (name, fault, happened), count in sorted(table.items()):
            print(f"  {name:10} {fault:7} {happened:8} {count}")
        for each in wrong:
            print("\n" + each)
        return 1 if wrong or not cases else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("part", choices=("save", "resume"))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="", help="one system call")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    binaries = options.binaries.resolve()
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode != 0:
        print("skipped: strace is missing, or may not trace here")
        sys.exit(77)
    sys.exit(main())
