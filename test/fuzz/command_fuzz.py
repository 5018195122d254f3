#!/usr/bin/env python3
"""Random command lines: every command, its options and recipe keys with right and wrong values, broken and missing files.

  command_fuzz.py BIN_FOLDER ERRORS_PAGE [--commands N] [--seed S] [--jobs J] [--only NAME]

The grammar is the program's own: `--help` of each command, and the JSON Schema of recipes. Every command must end before its
deadline with a documented exit code and no signal; if it fails, it must name a cause whose id is in docs/errors.md.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

CODES = {0, 2, 3, 4, 10, 11, 12, 13}  # 70 means a defect of the program
DEADLINE = 120  # seconds; on a busy machine
MEMORY = 16 << 30  # of address space: LibTorch's libraries are 1 GiB

# How often each command is drawn; commands that compute are rare.
WEIGHTS = {"plan": 30, "config": 14, "data": 10, "slurm": 12, "checkpoint": 8, "report": 4, "schema": 2, "completion": 2, "tokenize": 4,
           "doctor": 1, "generate": 0.6, "verify": 0.2, "train": 1.2}
# Options that take seconds or start processes.
RARE = {"--calibrate", "--ranks", "--search", "--compare-schedules", "--nproc-per-node", "--start-with", "--max-restarts"}

RECIPE = """device: cpu
model: {config: {model_type: llama, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 2,
  num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 16}}
dataset: {_target_: mock, vocab_size: 67, seq_length: 8, num_samples: 64}
step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 2, num_epochs: null}
distributed: {strategy: ddp}
checkpoint: {checkpoint_dir: run}
dist_env: {timeout_minutes: 0.5}
"""
FILES = {
    "r.yaml": RECIPE, "pp.yaml": RECIPE.replace("strategy: ddp", "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}"),
    "rows.yaml": RECIPE.replace("{_target_: mock, vocab_size: 67, seq_length: 8, num_samples: 64}",
                                "{_target_: column_mapped, path: rows.jsonl, column_mapping: {question: q, answer: a}, tokenizer: bytes}"),
    "empty.yaml": "", "list.yaml": "- a\n- b\n", "broken.yaml": "model: {config: [\n", "bytes.yaml": "seed: \xff\x00\x01", "twice.yaml": RECIPE + "seed: 1\nseed: 2\n",
    "rows.jsonl": '{"q": "1 + 1", "a": "2"}\n{"q": "x", "a": 3}\n{broken\n', "notes.txt": "no recipe\n",
}
ODD = ["", " ", "-", "--", "---", "é", "\x01", "a" * 3000, "${HOME}", "${NOPE}", "${NOPE,2}", "null", "None", "{}", "[]", "[1, 2]", "{a: b", "!!", "*x", "&y",
       "/dev/null", "/dev/full", "/proc/no/such", ".", "..", "r.yaml", "%s%n", "nan", "-inf", "1e400", "true", "0", "-1", "=", "a=b", "#", "'", '"', "\udcff",
       "run", "run/LATEST", "rows.jsonl", "@", "1_000", "0x10", "١"]
NUMBERS = ["1", "1", "1", "2", "2", "2", "4", "4", "8", "3", "0", "-1", "7", "64", "1000", "99999999", "2147483648", "99999999999999999999", "1.5", "1e3", "two", ""]
TEXTS = ["x", "run", "out", "r.yaml", "rows.jsonl", "out.svg", "out.json", "new.yaml", "/proc/no/such", "float32", "bfloat16", "1:00:00", "80GiB", "cpu"]
PLACES = ["run", "run/epoch_0_step_1", "run/epoch_0_step_1/model", "nowhere", "out", "rows.jsonl", ".", "/proc/no/such"]
STARTERS = ["true", "false", "/no/such", "mpirun -np 2", "mpirun -np 2 --hostfile none", "srun", "srun -N2 -n4 -w n[1-", "env"]


def program_says(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    return done.stdout


def options_of(program, command):
    """(name, kind of value or "" for a flag) of its help; positionals have no dashes."""
    out = []
    for line in program_says(program, command, "--help").splitlines():
        found = re.match(r"^  (-[^ ]*|[A-Z]{3,}|[a-z]+(?:\|[a-z]+)+)(?: ([^ ]+))?( {2,}.*)?$", line)
        if found and not line.startswith("   "):
            for name in found.group(1).split(","):
                out.append((name, found.group(2) or ""))
    return [option for option in out if option[0] not in ("-h", "--help")]


def keys_of(schema):
    """(key, its schema) of every value in a JSON Schema."""
    out = []

    def walk(node, path):
        for name, each in node.get("properties", {}).items():
            out.append((".".join([*path, name]), each))
            walk(each, [*path, name])
        for each in [*node.get("anyOf", []), *node.get("oneOf", [])]:
            walk(each, path)
    walk(schema, [])
    return out


class Grammar:
    def __init__(self, program):
        text = program_says(program, "--help")
        part = text[text.index("Subcommands:"):text.index("Overrides change")]
        self.commands = {name: options_of(program, name) for name in re.findall(r"^  ([a-z]+) ", part, re.M)}
        self.keys = keys_of(json.loads(program_says(program, "schema")))
        assert len(self.commands) >= 10 and len(self.keys) >= 200, "the program's help or schema is not understood any more"

    def value(self, rng, kind, name=""):
        if rng.random() < 0.05:
            return rng.choice(ODD)
        if name in ("--nproc-per-node", "--nproc_per_node"):
            return rng.choice(["1", "2", "0", "x"])
        if name == "--max-restarts":
            return rng.choice(["0", "1", "-1"])
        if name == "--start-with":
            return rng.choice(STARTERS)
        if name == "--max-new-tokens":
            return rng.choice(["1", "4", "0", "x"])
        if "|" in kind:
            return rng.choice([*kind.split("|"), kind])
        if kind in ("N", "FLOAT", "COUNT", "NUMBER", "INT"):
            return rng.choice(NUMBERS)
        if kind in ("DIR", "RUN", "OUTPUT"):
            return rng.choice(PLACES)
        return rng.choice(TEXTS)

    def of_schema(self, rng, schema, depth=0):
        if rng.random() < 0.06:
            return rng.choice(ODD + NUMBERS)
        for form in ("anyOf", "oneOf"):
            if form in schema and depth < 4:
                return self.of_schema(rng, rng.choice(schema[form]), depth + 1)
        if "enum" in schema:
            return str(rng.choice(schema["enum"]))
        if "const" in schema:
            return str(schema["const"])
        kind = schema.get("type")
        if kind in ("integer", "number"):
            return rng.choice(NUMBERS)
        if kind == "boolean":
            return rng.choice(["true", "false"])
        if kind == "array":
            return "[" + ", ".join(self.of_schema(rng, schema.get("items", {}), depth + 1) for _ in range(rng.randrange(3))) + "]"
        if kind == "object":
            return rng.choice(["{}", "{a: 1}", "null"])
        return rng.choice(TEXTS)

    def override(self, rng):
        key, schema = rng.choice(self.keys)
        if rng.random() < 0.06:
            key = rng.choice([key + "x", key[1:], key + ".0", "." + key, key + ".", key.upper(), "a.b.c"])
        # Values that start processes or take time must stay small.
        if key.endswith(("max_steps", "num_epochs", "max_restarts", "timeout_minutes", "checkpoint_dir", "max_new_tokens")):
            return []
        value = self.of_schema(rng, schema)
        if key.endswith("seq_length") and len(value) > 6:
            value = "4096"  # `data` would print all of the rows
        form = rng.randrange(3)
        return [f"--{key}", value] if form == 0 else [f"--{key}={value}"] if form == 1 else [f"{key}={value}"]

    def command(self, rng, only):
        names = [only] if only else [name for name in self.commands if name in WEIGHTS]
        name = rng.choices(names, [WEIGHTS.get(each, 1) for each in names])[0]
        words = []
        for option, kind in self.commands[name]:
            if not option.startswith("-"):
                if "|" in option or option in ("ACTION", "SHELL"):
                    words.append(self.value(rng, option if "|" in option else kind or "ls|verify|export|bash|zsh|fish", option))
                elif option == "RECIPE":
                    words.append(rng.choice(list(FILES) + ["r.yaml"] * 20 + ["none.yaml", "folder.yaml"]))
                elif rng.random() < 0.9:
                    words.append(self.value(rng, "DIR"))
        takes_recipe = any(option == "RECIPE" for option, _ in self.commands[name])
        if name == "slurm" and rng.random() < 0.9:
            words += ["--nodes", rng.choice(["1", "1", "2", "4"])]
        given = [option for option in self.commands[name] if option[0].startswith("-") and (option[0] not in RARE or rng.random() < 0.04)]
        for option, kind in rng.sample(given, min(len(given), rng.choice([0, 0, 1, 1, 2, 3, 5]))):
            for _ in range(2 if rng.random() < 0.05 else 1):
                if not kind:
                    words.append(option)
                elif rng.random() < 0.03:
                    words.append(option)  # without its value
                elif rng.random() < 0.3:
                    words.append(f"{option}={self.value(rng, kind, option)}")
                else:
                    words += [option, self.value(rng, kind, option)]
        if takes_recipe:
            for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2])):
                words += self.override(rng)
        if rng.random() < 0.04:
            words.insert(rng.randrange(len(words) + 1), rng.choice(ODD))
        if rng.random() < 0.05:
            rng.shuffle(words)
        first = rng.choice([[name]] * 40 + [[], [name, name], [name + "x"], [name.upper()]])
        return [word for word in [*first, *words] if "\0" not in word]


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))


def complaint(words, code, out, err, ids):
    """What is wrong with the end of a command; empty if nothing is."""
    if code not in CODES:
        return f"exit code {code}"
    if code in (0, 10):
        return ""
    named = re.findall(r"error\[([a-z0-9-]+)\]", err)
    if "--json" in words and not named:
        try:
            named = [problem["id"] for problem in json.loads(out)["errors"]]
        except (ValueError, KeyError, TypeError):
            named = []
    if not named:
        return "no cause with an id"
    unknown = [each for each in named if each not in ids]
    return f"ids that docs/errors.md does not have: {', '.join(unknown)}" if unknown else ""


def shown(words):
    return " ".join(shlex.quote(word if len(word) < 80 else word[:60] + f"...({len(word)})") for word in words)


def one(program, grammar, template, ids, seed, number, only):
    rng = random.Random(f"{seed} {number}")
    words = grammar.command(rng, only)
    with tempfile.TemporaryDirectory(prefix="command") as name:
        folder = pathlib.Path(name) / "a" / "b"
        shutil.copytree(template, folder, symlinks=True)
        environment = {**os.environ, "HOME": name, "AUTOMODEL_CALIBRATION": "", "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "AUTOMODEL_MEMORY_DIR": name}
        encoded = [os.fsencode(word) for word in words]
        begin = time.monotonic()
        job = subprocess.Popen([program, *encoded], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=limits, start_new_session=True)
        try:
            out, err = job.communicate(b'"one"\n[1, 2]\n', timeout=DEADLINE)
            out, err = out.decode(errors="replace"), err.decode(errors="replace")
            wrong = complaint(words, job.returncode, out, err, ids)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, 9)
            out, err = (text.decode(errors="replace") for text in job.communicate())
            wrong = f"not done after {DEADLINE} s"
        return words, job.returncode, wrong, err, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("errors", type=pathlib.Path)
    parser.add_argument("--commands", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only")
    parser.add_argument("--first", type=int, default=0, help="number of the first command: its own says how to see one again")
    args = parser.parse_args()
    program = str(args.bin.resolve() / "automodel")
    ids = set(re.findall(r"^\| `([a-z0-9-]+)`", args.errors.read_text(), re.M))
    assert len(ids) > 50, "docs/errors.md is not understood any more"
    grammar = Grammar(program)
    with tempfile.TemporaryDirectory(prefix="commands") as name:
        template = pathlib.Path(name)
        for file, text in FILES.items():
            (template / file).write_bytes(text.encode("latin-1"))
        (template / "folder.yaml").mkdir()
        # A checkpoint for the commands that read one; there is none without the worker.
        subprocess.run([program, "train", "r.yaml"], cwd=template, capture_output=True, env={**os.environ, "AUTOMODEL_CALIBRATION": ""})
        codes, findings, slowest = {}, 0, (0.0, [])
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            numbers = range(args.first, args.first + args.commands)
            ended = pool.map(lambda number: (number, one(program, grammar, template, ids, args.seed, number, args.only)), numbers)
            for number, (words, code, wrong, err, seconds) in ended:
                codes[code] = codes.get(code, 0) + 1
                if seconds > slowest[0]:
                    slowest = (seconds, words)
                if wrong:
                    findings += 1
                    print(f"{number}: {wrong}: automodel {shown(words)}\n" + "".join(f"    {line}\n" for line in err.splitlines()[-6:]), end="", flush=True)
        counts = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items()))
        print(f"{args.commands} commands (seed {args.seed}), exit codes {counts}; slowest {slowest[0]:.1f} s: automodel {shown(slowest[1])}")
        print(f"{findings} findings")
        return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
