#!/usr/bin/env python3
"""Registers, shared memory and spills of the GPU kernels, from the ptxas output of a build with the preset cuda.

  scripts/kernel_registers.py BUILD_FOLDER [--check]     prints the table of docs/gpu.md, as Markdown

The exit code is 77 if there is no such build. With --check the exit code is 1 if a kernel spills registers or needs more
than LIMIT of them, so that too few warps fit on a multiprocessor with blocks of 256 threads.
"""
import collections
import pathlib
import re
import subprocess
import sys

LIMIT = 128  # two blocks of 256 threads fit: enough for the backward norm, which keeps its sums in registers

folder = pathlib.Path(sys.argv[1])
check = "--check" in sys.argv[2:]
outputs = sorted(folder.glob("nvcc/kernels/cuda/*.ptxas"))
if not outputs:
    print(f"no output of ptxas below {folder}: build the preset cuda first")
    sys.exit(77)

rows = collections.defaultdict(dict)  # (file, kernel) -> architecture -> (registers, shared, spilled)
for path in outputs:
    text = path.read_text()
    names = sorted(set(re.findall(r"Compiling entry function '(\w+)'", text)))
    plain = dict(zip(names, subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout.splitlines()))
    entry = r"Compiling entry function '(\w+)' for 'sm_(\d+)'(.*?)Used (\d+) registers(.*?)\n"
    for name, architecture, between, registers, rest in re.findall(entry, text, re.S):
        kernel = re.search(r"(\w+)(<|\()", plain[name].replace("(anonymous namespace)::", "").split("automodel::ops::cuda::", 1)[-1])
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill", between)))
        shared = re.search(r"(\d+) bytes smem", rest)
        key = (path.name.split(".")[0], kernel.group(1))
        before = rows[key].get(int(architecture), (0, 0, 0))
        now = (int(registers), int(shared.group(1)) if shared else 0, spilled)
        rows[key][int(architecture)] = tuple(map(max, before, now))

if not rows:
    sys.exit("ptxas named no kernel")
architectures = sorted({a for row in rows.values() for a in row})
print("| file | kernel | " + " | ".join(f"sm_{a}" for a in architectures) + " | shared, bytes | spilled, bytes |")
print("| --- | --- |" + " --- |" * (len(architectures) + 2))
bad = []
for (file, kernel), row in sorted(rows.items()):
    registers = [row[a][0] for a in architectures]
    shared, spilled = max(r[1] for r in row.values()), max(r[2] for r in row.values())
    print(f"| {file} | `{kernel}` | " + " | ".join(map(str, registers)) + f" | {shared} | {spilled} |")
    if spilled or max(registers) > LIMIT:
        bad.append(f"{file}: {kernel}: {max(registers)} registers, {spilled} bytes spilled")
if check and bad:
    sys.exit("\n".join(bad))
