"""Plants faults in sources, one at a time, and runs the tests that should find them.

A fault is a source file, a text in it, and its replacement. White space does not count in the text, so that formatting
may change. The changed file is compiled by the build's own command and linked before the library with the original.
"""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile


def commands(build, target):
    out = subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout
    return [line for line in out.splitlines() if line]


def changed(command, source, new_source, output):
    """The compile command of `source`, for another file and object."""
    words = [word for word in shlex.split(command) if word != "ccache" and not word.endswith("/ccache")]
    old = words[words.index("-o") + 1]
    words = [new_source if word == source else output if word == old else word for word in words]
    return [word for i, word in enumerate(words) if word not in ("-MD", "-MT", "-MF") and (i == 0 or words[i - 1] not in ("-MT", "-MF"))]


def pattern(text):
    """Finds `text` however it is broken into lines."""
    tokens = re.findall(r"\w+|[^\w\s]", text)
    return re.compile(r"\s*".join(re.escape(token) for token in tokens))


def planted(original, text, replacement, name):
    found = list(pattern(text).finditer(original))
    if len(found) != 1:
        sys.exit(f"{name}: the text is in the file {len(found)} times")
    return original[: found[0].start()] + replacement + original[found[0].end() :]


class Program:
    """A test program of the build, to be linked with a changed source."""

    def __init__(self, source, build, target, like, like_target=None):
        """`like`: a source of `like_target` (the program itself if not given) that is not part of a unity build; all
        sources are compiled with its options."""
        self.build = build
        self.path = str(pathlib.Path(source, like))
        self.compile_line = next(line for line in commands(build, like_target or target) if self.path in shlex.split(line) and " -c " in line)
        link = next(part for part in commands(build, target)[-1].split("&&") if "-o" in shlex.split(part))
        self.link = shlex.split(link)

    def compile(self, file, output, include):
        subprocess.run([*changed(self.compile_line, self.path, file, output), "-w", "-O0", "-I", include], check=True, cwd=self.build)

    def relink(self, added, output):
        run = list(self.link)
        run[run.index("-o") + 1] = output
        # Of two definitions the linker takes the first.
        first = next(i for i, word in enumerate(run) if word.endswith(".o"))
        subprocess.run([*run[:first], added, *run[first:], "-Wl,--allow-multiple-definition"], check=True, cwd=self.build)


def run_all(source, faults, program_of):
    """`faults`: (file, key of a program, cases, text, replacement); `program_of(key)` is a Program. Returns an exit
    code: 1 if the tests missed a fault."""
    missed, programs = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        for number, (file, key, cases, text, replacement) in enumerate(faults):
            name = f"{pathlib.Path(file).name} {number}: {text.strip().splitlines()[0]!r}"
            original = pathlib.Path(source, file).read_text()
            copy, output, linked = (f"{temporary}/{each}" for each in ("changed.cpp", "changed.o", "program"))
            pathlib.Path(copy).write_text(planted(original, text, replacement, name))
            if key not in programs:
                programs[key] = program_of(key)
            programs[key].compile(copy, output, f"{source}/lib")
            programs[key].relink(output, linked)
            try:
                result = subprocess.run([linked, cases], capture_output=True, text=True, timeout=120)
                code, said = result.returncode, result.stdout + result.stderr
            except subprocess.TimeoutExpired:
                code, said = 1, "does not end"
            how = [line.strip() for line in said.splitlines() if "CHECK" in line or "REQUIRE" in line] or said.splitlines()[-1:]
            print(f"{'found ' if code != 0 else 'MISSED'} {name}: {how[0] if how and code != 0 else code}", flush=True)
            if code == 0 or "No test cases matched" in said:
                missed.append(name)
    print(f"{len(faults)} faults planted, {len(faults) - len(missed)} found")
    return 1 if missed else 0
