#!/usr/bin/env python3
"""Automatic checks of the house rules. Allowed dependencies are read from the CMake files, so that there is only one list.

  scripts/check_layers.py [ROOT]        prints one line per problem; exits with 1 if there are any
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
LIB = ROOT / "lib"
LONG_FILE = 800  # one idea a file; longer ones ask a question: a table or a test may be longer if a "// long:" line says why
FORBIDDEN_NAME = re.compile(r"(^|_)(util|utils|helper|helpers|common|misc|manager)(_|\.|$)")
HEAVY = re.compile(r"#include <(torch/torch\.h|torch/nn\.h|torch/all\.h|ATen/ATen\.h)>")
CORE = ["base", "config", "arch", "mesh", "schedule", "plan_values", "plan", "estimate", "foreign", "report", "studio", "launch", "metrics", "pictures", "tokenizer"]
# Runtime code that must depend on the plan, not on the recipe.
ENGINES = re.compile(r"lib/(ops|comm|model|parallel|pipeline|optim)/|lib/train/(runtime|trainer|loss_scale|microbatches|evaluate|snapshot|gather)\.")
RUNTIME_HEADERS = re.compile(r"#include <(ATen|c10|torch|mpi|nccl|cuda)")
TOP = {"CMakeLists.txt", "CMakePresets.json", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
       "NOTICE", "SECURITY.md", "app", "lib", "recipes", "scripts", "test",
       "third_party", "docs", "bench", "build", "runs", "compile_commands.json"}

problems = []
allowed = {}
for cmake in sorted(LIB.rglob("CMakeLists.txt")):
    for call in re.finditer(r"automodel_library\((\w+)(.*?)\n?\)", cmake.read_text(), re.S):
        allowed.setdefault(call.group(1), set()).update(re.findall(r"automodel::(\w+)", call.group(2)))


def closure(name, path=()):
    if name in path:
        sys.exit(f"cycle in DEPENDS: {' -> '.join((*path, name))}")
    reach = {name}
    for dependency in allowed.get(name, ()):
        reach |= closure(dependency, (*path, name))
    return reach


def library_of(source):
    """The library that a file in lib/ belongs to: parallel/data/x.h -> parallel_data if that exists, else parallel."""
    parts = source.relative_to(LIB).parts[:-1]
    for depth in range(len(parts), 0, -1):
        if "_".join(parts[:depth]) in allowed:
            return "_".join(parts[:depth])
    return parts[0] if parts else ""


for entry in ROOT.iterdir():
    if not entry.name.startswith(".") and entry.name not in TOP:
        problems.append(f"{entry.name}: not a name of the top level")

for source in sorted([*LIB.rglob("*.h"), *LIB.rglob("*.cpp"), *LIB.rglob("*.cu"), *(ROOT / "app").rglob("*.[ch]*")]):
    text = source.read_text()
    lines = text.splitlines()
    shown = source.relative_to(ROOT)
    in_lib = LIB in source.parents
    library = library_of(source) if in_lib else None
    if len(lines) > LONG_FILE and "// long:" not in text:
        problems.append(f"{shown}:{len(lines)}: longer than {LONG_FILE} lines without a '// long: why' line")
    if FORBIDDEN_NAME.search(source.name) or any(FORBIDDEN_NAME.search(part) for part in shown.parts[:-1]):
        problems.append(f"{shown}: name the concept, not a drawer")
    if source.suffix == ".h" and "#pragma once" not in text:
        problems.append(f"{shown}: no '#pragma once'")
    for number, line in enumerate(lines, 1):
        include = re.match(r'#include "([\w/]+)/[\w.]+"', line)
        if include and in_lib:
            folder = include.group(1)
            target = library_of(LIB / folder / "x.h")
            if not (LIB / folder).is_dir():
                problems.append(f"{shown}:{number}: no folder lib/{folder}")
            elif target in allowed and target not in closure(library):
                problems.append(f"{shown}:{number}: {library} may not include {target} (see DEPENDS)")
        if include and ENGINES.match(str(shown)) and include.group(1).split("/")[0] == "config":
            problems.append(f"{shown}:{number}: the engines take the plan and include no header of config/")
        if HEAVY.match(line):
            problems.append(f"{shown}:{number}: include narrowly (ATen/core/Tensor.h, ATen/ops/*.h)")
        if library in CORE and RUNTIME_HEADERS.match(line):
            problems.append(f"{shown}:{number}: the planning core includes neither LibTorch nor MPI nor CUDA")
        if re.match(r"\s*#\s*(ifdef|ifndef|if)\b", line) and "/cuda/" not in str(source):
            problems.append(f"{shown}:{number}: no conditional compilation outside ops/cuda; write an unavailable.cpp")
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            problems.append(f"{shown}:{number}: unfinished work")

for name in allowed:
    closure(name)
for name in CORE:
    for reached in closure(name) if name in allowed else ():
        if reached not in CORE:
            problems.append(f"lib/{name}: the planning core may not depend on {reached}")
print("\n".join(problems))
sys.exit(bool(problems))
