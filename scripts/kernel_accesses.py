#!/usr/bin/env python3
"""Widths of the GPU kernels' accesses to global memory, from the machine code of a build with the preset cuda.

  scripts/kernel_accesses.py BUILD_FOLDER [--check]      prints a table, as Markdown

Needs cuobjdump and nvdisasm, of the toolkit or of the wheels nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm. The exit
code is 77 if they or the build are missing. With --check the exit code is 1 if a kernel whose template says packs of 16
bytes does not load and store 16 bytes at once, or if a kernel uses local memory (spilled registers, arrays indexed at run
time). Registers and shared memory: kernel_registers.py.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

ARCHITECTURE = "sm_90"
BYTES = {"float": 4, "double": 8, "__nv_bfloat16": 2}
# Kernels that choose packs of 16 bytes themselves, by the alignment of what they are given: loads, stores.
CHOOSE = {"adam_pieces": (True, True), "squares_of_pieces": (True, False)}
# Kernels of packs that only load or only store them.
ONE_WAY = {"statistics_of_row": (True, False), "cast_rows": (True, False), "largest_of_rows": (True, False),
           "largest_of_parts": (True, False)}


def tool(name):
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    homes += sorted(map(str, pathlib.Path.home().glob(".cache/automodel/libtorch-*/nvidia/cu13")))
    path = os.pathsep.join([*(f"{home}/bin" for home in homes if home), os.environ.get("PATH", "")])
    return shutil.which(name, path=path)


def code_of(path):
    """The instructions of each kernel in an object file, by demangled name."""
    cuobjdump, nvdisasm = tool("cuobjdump"), tool("nvdisasm")
    places = os.pathsep.join([str(pathlib.Path(nvdisasm).parent), os.environ.get("PATH", "")])
    text = subprocess.run([cuobjdump, "-sass", "-arch", ARCHITECTURE, str(path)], check=True, capture_output=True, text=True,
                          env={**os.environ, "PATH": places}).stdout
    parts = re.split(r"^\s*Function : (\S+)\n", text, flags=re.M)
    if len(parts) < 2:  # nothing for this architecture; c++filt without names would read standard input
        return {}
    names = subprocess.run(["c++filt", *parts[1::2]], check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(zip(names, parts[2::2]))


def widths(code, kind):
    """How often each width in bits is accessed: LDG or STG."""
    out = collections.Counter()
    for modifiers in re.findall(rf"\b{kind}((?:\.\w+)*)\s", code):
        bits = [int(word) for word in re.findall(r"\.(?:[US]?)(8|16|64|128)\b", modifiers)]
        out[bits[0] if bits else 32] += 1
    return out


def meant(name, arguments):
    """Whether loads and stores of 16 bytes are meant."""
    if name in CHOOSE:
        return CHOOSE[name]
    words = [word.strip() for word in arguments.split(",")]
    if len(words) > 1 and words[0] in BYTES and words[1].isdigit() and BYTES[words[0]] * int(words[1]) == 16:
        return ONE_WAY.get(name, (True, True))
    return (False, False)


def main():
    objects = sorted(pathlib.Path(sys.argv[1]).glob("nvcc/kernels/cuda/*.o"))
    if not objects or not tool("cuobjdump") or not tool("nvdisasm"):
        print("no build of the preset cuda, or no cuobjdump and nvdisasm")
        return 77
    rows, bad = collections.defaultdict(lambda: [0, 0, collections.Counter(), collections.Counter()]), []
    for path in objects:
        for full, code in code_of(path).items():
            match = re.search(r"(\w+)(?:<(.*)>)?\(", full.replace("(anonymous namespace)::", "").split("automodel::ops::cuda::", 1)[-1])
            name, arguments = match.group(1), match.group(2) or ""
            wide, loads, stores = meant(name, arguments), widths(code, "LDG"), widths(code, "STG")
            local = len(re.findall(r"\b(?:LDL|STL)\b", code))
            said = f"{path.name.split('.')[0]}: {name}<{arguments}>"
            if wide[0] and not loads[128]:
                bad.append(f"{said} loads no 16 bytes at once: {dict(loads)}")
            if wide[1] and not stores[128]:
                bad.append(f"{said} stores no 16 bytes at once: {dict(stores)}")
            if local:
                bad.append(f"{said} accesses local memory {local} times")
            row = rows[path.name.split(".")[0], name, "16 bytes" if any(wide) else "elements"]
            row[0] += 1
            row[1] += local
            row[2] += loads
            row[3] += stores
    if not rows:
        sys.exit("cuobjdump named no kernel")

    def shown(counts):
        return ", ".join(f"{bits // 8} B: {count}" for bits, count in sorted(counts.items(), reverse=True)) or "none"

    print("| file | kernel | meant | variants | loads | stores | local |\n| --- | --- | --- | --- | --- | --- | --- |")
    for (file, name, kind), (variants, local, loads, stores) in sorted(rows.items()):
        print(f"| {file} | `{name}` | {kind} | {variants} | {shown(loads)} | {shown(stores)} | {local} |")
    if "--check" in sys.argv[2:] and bad:
        sys.exit("\n".join(bad))
    return 0


sys.exit(main())
