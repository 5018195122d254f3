#!/usr/bin/env python3
"""Plants faults in the program, one at a time, and says which of them the tests find.

  scripts/mutate.py                                 the list, test/mutants.json
  scripts/mutate.py --subject resume                its faults of one subject
  scripts/mutate.py --check                         plants none: are the texts of the list in the sources
  scripts/mutate.py --sample 20 --seed 1 --under lib/optim --test optim_test
                                                    random ones: another operator, true for false, a statement left out

The program must be built. The sources stay as they are: the changed file, with what the unity build compiles beside it,
is compiled elsewhere by the build's own command and linked into each test program before the library with the original.
A test is a program of the build and its arguments; a fault is found if one of its tests fails or takes ten times as long
as without the fault. White space in the list's texts does not count, so that formatting may change.
"""
import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
LEAST_LIMIT = 60  # seconds
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "AUTOMODEL_CALIBRATION": ""}


@dataclasses.dataclass
class Mutant:
    file: str
    begin: int
    end: int
    after: str
    tests: list

    def name(self, original):
        line = original.count("\n", 0, self.begin) + 1
        before = " ".join(original[self.begin : self.end].split())
        return f"{self.file}:{line}: {before or '(nothing)'} -> {' '.join(self.after.split()) or '(nothing)'}"


def pattern(text):
    """Finds `text` however it is broken into lines."""
    tokens = re.findall(r"\w+|[^\w\s]", text)
    return re.compile(r"\s*".join(re.escape(token) for token in tokens))


def listed(path, subjects):
    out = []
    for item in json.loads(pathlib.Path(path).read_text()):
        if subjects and item["subject"] not in subjects:
            continue
        text = (SOURCE / item["file"]).read_text()
        found = list(pattern(item["before"]).finditer(text))
        if len(found) != 1:
            sys.exit(f"{item['file']}: {item['before']!r} is there {len(found)} times; mend {path}")
        out.append(Mutant(item["file"], found[0].start(), found[0].end(), item["after"], item["tests"]))
    return out


# What is replaced in a line, and by what.
OPERATORS = [(re.compile(before), after) for before, after in [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "), (r" && ", " || "), (r" \|\| ", " && "),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"std::min\(", "std::max("), (r"std::max\(", "std::min(")]]
STATEMENT = re.compile(r"^ +(?:[\w.\[\]]|->|::)+(?:\(.*\)| [-+*/|]?= .*);$")  # a call or an assignment in one line
NOT_CODE = re.compile(r'"(?:\\.|[^"\\])*"|//.*|^ *(?:#|template|using|static_assert|AUTOMODEL_CHECK).*')


def points(folders):
    """Everything that a random mutant may change."""
    for file in sorted(path for folder in folders for path in (SOURCE / folder).rglob("*.cpp")):
        name, at = str(file.relative_to(SOURCE)), 0
        for line in file.read_text().splitlines(keepends=True):
            code = NOT_CODE.sub(lambda found: " " * len(found[0]), line)
            for operator, after in OPERATORS:
                for found in operator.finditer(code):
                    yield name, at + found.start(), at + found.end(), after
            if STATEMENT.match(code.rstrip("\n")) and not code.lstrip().startswith("return"):
                yield name, at + len(line) - len(line.lstrip()), at + len(line.rstrip("\n")), ""
            at += len(line)


def sampled(count, seed, folders, tests):
    everything = list(points(folders))
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    print(f"{len(chosen)} of {len(everything)} points in {' '.join(folders)}, seed {seed}")
    return [Mutant(*point, tests) for point in sorted(chosen)]


class Build:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        if not (self.folder / "build.ninja").exists():
            sys.exit(f"{folder} is not a build folder of Ninja: cmake --preset release -DBUILD_TESTING=ON")
        self.commands_of, self.limits = {}, {}
        self.unity = {}  # of each source, the file that the unity build compiles in its stead
        for each in self.folder.glob("lib/**/Unity/unity_*.cxx"):
            for found in re.findall(r'#include "(.*)"', each.read_text()):
                self.unity[found] = str(each)

    def commands(self, program):
        if program not in self.commands_of:
            done = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", program], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr.strip())
            self.commands_of[program] = done.stdout.splitlines()
        return self.commands_of[program]

    def compile(self, mutant, temporary):
        """The object, and what the compiler says if it refuses the fault."""
        path, changed = str(SOURCE / mutant.file), temporary / pathlib.Path(mutant.file).name
        text = (SOURCE / mutant.file).read_text()
        changed.write_text(text[: mutant.begin] + mutant.after + text[mutant.end :])
        compiled = changed
        for test in mutant.tests:
            for source in (path, self.unity.get(path)):
                for line in self.commands(shlex.split(test)[0]):
                    words = shlex.split(line) if source and source in line and " -c " in line else []
                    if source not in words:
                        continue
                    if source != path:
                        compiled = temporary / "unity.cpp"
                        compiled.write_text(pathlib.Path(source).read_text().replace(f'"{path}"', f'"{changed}"'))
                    words = [word for word in words if word != "ccache" and not word.endswith("/ccache")]
                    words[words.index(source)] = str(compiled)
                    words[words.index("-o") + 1] = str(temporary / "changed.o")
                    for option in ("-MT", "-MF"):
                        words[words.index(option) : words.index(option) + 2] = []
                    words.remove("-MD")
                    # Beside the original, for headers of its own folder.
                    words += ["-w", "-O0", "-iquote", str((SOURCE / mutant.file).parent)]
                    done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
                    said = next((line for line in done.stderr.splitlines() if "error" in line), "")
                    return temporary / "changed.o" if done.returncode == 0 else None, said[-120:]
        sys.exit(f"{mutant.file} is in none of {', '.join(mutant.tests)}")

    def link(self, program, added, output):
        line = next(part for part in self.commands(program)[-1].split("&&") if "-o" in shlex.split(part))
        words = shlex.split(line)
        words[words.index("-o") + 1] = str(output)
        first = next(i for i, word in enumerate(words) if word.endswith(".o"))
        # Of two definitions the linker takes the first.
        done = subprocess.run([*words[:first], added, *words[first:], "-Wl,--allow-multiple-definition"],
                              cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{program} cannot be linked; is it built?\n{done.stderr[-2000:]}")

    def limit(self, test):
        """Seconds that a test may take, from a run of the program as built."""
        if test not in self.limits:
            program, *words = shlex.split(test)
            built = next((path for path in (self.folder / "test" / program, self.folder / "bin" / program) if path.exists()), None)
            if not built:
                sys.exit(f"build {program} first: cmake --build {self.folder} --target {program}")
            begin = time.monotonic()
            code, said = run([str(built), *words], 3600)
            if code != 0 or "No test cases matched" in said:
                sys.exit(f"{test}: fails without a fault\n{said[-2000:]}")
            self.limits[test] = max(LEAST_LIMIT, 10 * (time.monotonic() - begin))
        return self.limits[test]

    def killed(self, mutant, added, temporary):
        """What found the fault; None if nothing did."""
        for test in mutant.tests:
            program, *words = shlex.split(test)
            limit = self.limit(test)
            self.link(program, str(added), temporary / program)
            code, said = run([str(temporary / program), *words], limit)
            if code == 0:
                continue
            lines = [line.strip() for line in said.splitlines()]
            how = [line for line in lines if "CHECK" in line or "REQUIRE" in line or "error[" in line] or lines[-1:]
            return f"{test}: {how[0] if how else code}"[:160]
        return None


def run(words, limit):
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=limit, env=ENVIRONMENT)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return 1, "does not end"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(SOURCE / "build/release"), help="build folder")
    parser.add_argument("--list", default=str(SOURCE / "test/mutants.json"), help="file of targeted faults")
    parser.add_argument("--subject", action="append", help="only faults of this subject; may be repeated")
    parser.add_argument("--check", action="store_true", help="plant none: are the list's texts in the sources")
    parser.add_argument("--every", type=int, default=1, help="one of so many in the list")
    parser.add_argument("--sample", type=int, help="so many random faults instead of the list")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--under", action="append", help="folder of random faults; may be repeated")
    parser.add_argument("--test", action="append", help="test that should find random faults; may be repeated")
    arguments = parser.parse_args()
    if arguments.sample and not (arguments.under and arguments.test):
        parser.error("--sample needs --under and --test")
    if arguments.sample:
        mutants = sampled(arguments.sample, arguments.seed, arguments.under, arguments.test)
    else:
        mutants = listed(arguments.list, arguments.subject)[:: arguments.every]
    if arguments.check:
        return 0
    if not mutants:
        parser.error("no faults to plant")
    build, counts = Build(arguments.build), collections.Counter()
    for mutant in mutants:
        name = mutant.name((SOURCE / mutant.file).read_text())
        with tempfile.TemporaryDirectory() as folder:
            for part in (build.folder / "bin").glob("*.so"):  # which programs look for beside themselves
                (pathlib.Path(folder) / part.name).symlink_to(part)
            added, how = build.compile(mutant, pathlib.Path(folder))
            if added:
                how = build.killed(mutant, added, pathlib.Path(folder))
        verdict = "no compile" if not added else "killed" if how else "SURVIVED"
        counts[verdict] += 1
        print(f"{verdict:10} {name}" + (f"  [{how}]" if how else ""), flush=True)
    tried = counts["killed"] + counts["SURVIVED"]
    print(f"{counts['killed']} of {tried} faults found ({100 * counts['killed'] / max(1, tried):.0f} %), "
          f"{counts['no compile']} did not compile")
    # Random faults may change nothing that counts; listed ones do.
    return 1 if not arguments.sample and counts["killed"] < len(mutants) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
