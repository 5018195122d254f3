#!/usr/bin/env python3
"""Lists the lines of a folder that no test runs: what nobody has looked at is where faults are silent.

  scripts/coverage.py --under lib/foreign --test foreign_test
  scripts/coverage.py --under lib/plan --under lib/estimate --test plan_test --test vision_test
  scripts/coverage.py --under lib/config                      all tests of the core (an hour)

Builds the core, without LibTorch, with gcc's counters in build/coverage (a quarter of an hour, the first time), runs the
tests there and prints file, line and text of what did not run, then the share of lines that did.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BUILD = SOURCE / "build" / "coverage"


def build(tests):
    flags = "--coverage -O0 -g0 -fprofile-update=atomic"
    subprocess.run(["cmake", "--preset", "core", "-B", BUILD, "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_FLAGS={flags}"],
                   cwd=SOURCE, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", *(tests or ["all"])], check=True, stdout=sys.stderr)


def run(tests):
    for counters in BUILD.rglob("*.gcda"):
        counters.unlink()
    for test in tests:
        print(f"{test}: exit {subprocess.run([BUILD / 'test' / test], stdout=subprocess.DEVNULL).returncode}", file=sys.stderr)
    if not tests:
        subprocess.run(["ctest", "-L", "core", "-j", str(os.cpu_count())], cwd=BUILD, stdout=sys.stderr)


def counted(folder):
    """Runs of each line, by file: a header is counted where it is included."""
    lines = collections.defaultdict(collections.Counter)
    for notes in (BUILD / folder).rglob("*.gcno"):
        # A source that no test ran has no counters, and all its lines count as 0.
        text = subprocess.run(["gcov", "--json-format", "--stdout", notes], cwd=BUILD, capture_output=True).stdout
        for document in map(json.loads, filter(None, text.splitlines())):
            for file in document["files"]:
                path = pathlib.Path(os.path.normpath(os.path.join(document["current_working_directory"], file["file"])))
                if path.is_relative_to(SOURCE / folder):
                    for line in file["lines"]:
                        lines[path][line["line_number"]] += line["count"]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--under", action="append", required=True, help="folder, such as lib/plan; may be repeated")
    parser.add_argument("--test", action="append", default=[], help="program to run; may be repeated (default: all of the core)")
    args = parser.parse_args()
    build(args.test)
    run(args.test)
    all_lines = ran = 0
    for folder in args.under:
        for path, counts in sorted(counted(folder).items()):
            text = path.read_text().splitlines()
            for number, count in sorted(counts.items()):
                all_lines += 1
                ran += count > 0
                if count == 0:
                    print(f"{path.relative_to(SOURCE)}:{number}: {text[number - 1]}")
    print(f"{ran} of {all_lines} lines ran ({100 * ran / max(1, all_lines):.1f} %)")


if __name__ == "__main__":
    main()
