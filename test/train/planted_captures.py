#!/usr/bin/env python3
"""Plants faults in the capture of microbatches, one at a time, and checks that captured_test finds each.

  planted_captures.py SOURCE_DIR BUILD_DIR

A fault is a source file, a text in it and its replacement. The changed file is compiled and linked by the
build's own commands, before the library with the original.
"""
import pathlib
import shlex
import subprocess
import sys
import tempfile

CAPTURED = "lib/pipeline/captured_microbatches.cpp"
# (file, cases of captured_test, text, replacement)
FAULTS = [
    # Data that is not copied into the captured tensors.
    (CAPTURED, "*bitwise identical", "    data.ids.copy_(other.ids);\n", ""),
    (CAPTURED, "*bitwise identical", "    data.labels.copy_(other.labels);\n", ""),
    (CAPTURED, "*bitwise identical", "    data.positions.copy_(other.positions);\n", ""),
    (CAPTURED, "*bitwise identical", "    loss_scale.fill_(options.loss_scale.value);\n", ""),
    (CAPTURED, "*bitwise identical", "    seed.fill_(options.seed.value);\n", ""),
    # Host values that are frozen at capture.
    (CAPTURED, "*bitwise identical", "ops::Factor(shape->loss_scale)", "options.loss_scale"),
    (CAPTURED, "*chunked loss*", "ops::Factor(shape->seed)", "options.seed"),
    (CAPTURED, "*bitwise identical", "stage_.backward(number, shape->seed);", "stage_.backward(number, at::empty({}, shape->seed.options()).fill_(options.seed.value));"),
    ("lib/ops/cross_entropy.cpp", "*bitwise identical", "scale.value, scale.address(), gradient", "scale.value * (scale.device.defined() ? *scale.address() : 1), nullptr, gradient"),
    ("lib/ops/cross_entropy.cpp", "dense models*", "    if (scale.device.defined()) soft.mul_(scale.device);\n", ""),
    ("lib/ops/factor.cpp", "*bitwise identical", "return device.defined() ? known * device.to(x.scalar_type()) : known;", "return known;"),
    # The first microbatch of a step overwrites gradients, the others accumulate.
    ("lib/pipeline/executor.cpp", "*bitwise identical", "each->sharding()->settle();", "{}"),
    ("lib/parallel/data/unit_storage.cpp", "*bitwise identical", "  ops::NoGraph guard;\n  zero_untouched();\n}", "}"),
    ("lib/parallel/data/unit_storage.cpp", "*bitwise identical", "  ops::NoGraph guard;\n  zero_untouched();\n}",
     "  for (auto* weight : unit_.weights) weight->parameter.fresh = false;\n}"),
    # Shapes, and microbatches that cannot be captured.
    (CAPTURED, "*microbatch shape*",
     "data.ids.sizes() == other.ids.sizes() && data.length == other.length &&\n           data.reach() == other.reach()", "true"),
    (CAPTURED, "packed*", "if (depends_on_host(data)) return nullptr;", "if (data.draw) return nullptr;"),
    # All microbatches return the loss of the last one.
    (CAPTURED, "*bitwise identical", "return shape->loss.clone();", "return shape->loss;"),
]


def commands(build, target):
    out = subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout
    return [line for line in out.splitlines() if line]


def changed(command, source, new_source, output):
    """The compile command of `source`, for another file and object."""
    words = [word for word in shlex.split(command) if word != "ccache" and not word.endswith("/ccache")]
    old = words[words.index("-o") + 1]
    words = [new_source if word == source else output if word == old else word for word in words]
    return [word for i, word in enumerate(words) if word not in ("-MD", "-MT", "-MF") and (i == 0 or words[i - 1] not in ("-MT", "-MF"))]


def main():
    source, build = sys.argv[1:3]
    lines = commands(build, "captured_test")
    path = str(pathlib.Path(source, CAPTURED))
    compile_line = next(line for line in lines if path in shlex.split(line) and " -c " in line)
    link = next(part for part in lines[-1].split("&&") if "-o" in shlex.split(part))
    link = shlex.split(link)
    missed = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, (file, cases, text, planted) in enumerate(FAULTS):
            original = pathlib.Path(source, file).read_text()
            name = f"{pathlib.Path(file).name} {number}: {text.strip().splitlines()[0]!r}"
            if original.count(text) != 1:
                sys.exit(f"{name}: the text is in the file {original.count(text)} times")
            copy, output, linked = (f"{temporary}/{each}" for each in ("changed.cpp", "changed.o", "program"))
            pathlib.Path(copy).write_text(original.replace(text, planted))
            subprocess.run([*changed(compile_line, path, copy, output), "-w", "-O0", "-I", f"{source}/lib"], check=True, cwd=build)
            run = list(link)
            run[run.index("-o") + 1] = linked
            # Of two definitions the linker takes the first.
            first = next(i for i, word in enumerate(run) if word.endswith(".o"))
            subprocess.run([*run[:first], output, *run[first:], "-Wl,--allow-multiple-definition"], check=True, cwd=build)
            try:
                result = subprocess.run([linked, cases], capture_output=True, text=True, timeout=120)
                code, said = result.returncode, result.stdout + result.stderr
            except subprocess.TimeoutExpired:
                code, said = 1, "does not end"
            how = [line.strip() for line in said.splitlines() if "CHECK" in line or "REQUIRE" in line] or said.splitlines()[-1:]
            print(f"{'found ' if code != 0 else 'MISSED'} {name}: {how[0] if how and code != 0 else code}", flush=True)
            if code == 0 or "No test cases matched" in said:
                missed.append(name)
    print(f"{len(FAULTS)} faults planted, {len(FAULTS) - len(missed)} found")
    return 1 if missed else 0


sys.exit(main())
