#!/usr/bin/env python3
"""Every symbol of this program that its CUDA half uses is exported by the programs that load it (lib/cuda_half/exports.txt).
The linker cannot tell, and loading it needs NVIDIA's libraries, which many machines that build it do not have.

  symbols_test.py PLUGIN PROGRAM...
"""
import pathlib
import subprocess
import sys


def symbols(file, which):
    said = subprocess.run(["nm", "-D", f"--{which}-only", file], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines() if "9automodel" in line}


plugin, *programs = sys.argv[1:]
if not pathlib.Path(plugin).exists():
    print("skipped: there is no", plugin)
    sys.exit(77)
needed = symbols(plugin, "undefined")
assert needed, "the CUDA half needs nothing of the program: is this its file?"
failed = False
for program in programs:
    for name in sorted(needed - symbols(program, "defined")):
        failed = True
        print(f"{program} does not export {subprocess.run(['c++filt', name], capture_output=True, text=True).stdout.strip()}")
print(f"{len(needed)} symbols, {len(programs)} programs")
sys.exit(failed)
