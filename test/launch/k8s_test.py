#!/usr/bin/env python3
"""Checks what `automodel k8s` prints.

  k8s_test.py schemas AUTOMODEL SCHEMAS.json   the objects fit the schemas of their kinds; a field that Kubernetes does
                                               not know, or of another type, is found (77: no jsonschema or PyYAML)
  k8s_test.py scripts AUTOMODEL                run.sh of the ConfigMap trains two ranks under mpirun; SIGTERM, as for a pod
                                               that ends, has them save (exit code 10), and the same script goes on from
                                               there; so does stop.sh in a pod of a node
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP = 77

RECIPE = """device: cpu
model:
  config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
    num_key_value_heads: 2, vocab_size: 260, max_position_embeddings: 64}
distributed: {strategy: ddp, dp_size: 2}
dataset: {_target_: mock, vocab_size: 260, seq_length: 32}
step_scheduler: {global_batch_size: 8, local_batch_size: 4, max_steps: 1000000, num_epochs: null}
checkpoint: {checkpoint_dir: run}
logging: {tensorboard: false}
"""


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def printed(automodel, folder, *words, recipe=RECIPE, **environment):
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8", newline="")
    made = subprocess.run([automodel, "k8s", "recipe.yaml", *words], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, **environment})
    check(made.returncode == 0, made.stderr)
    return made.stdout


def schemas(automodel, path):
    try:
        import jsonschema
        import yaml
    except ImportError as error:
        print(f"skipped: {error}")
        return SKIP
    known = json.loads(pathlib.Path(path).read_text())
    known["ConfigMap"] = {"type": "object", "required": ["data"], "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 1 << 20}}}}

    def faults(document):
        return [error.message for error in jsonschema.Draft202012Validator(known[document["kind"]]).iter_errors(document)]

    # What some readers of YAML take for the end of a line or refuse, in the recipe and in run.sh: what follows it would
    # be YAML of its own. Words that are numbers or truth values for some.
    def hostile(folder, kind):
        odd = "\x85 \u2028 \u2029 \ufeff \u0080"
        comment = f"# a{odd}b\u2028injected: yes\u2028\n"
        overrides = ["--checkpoint.checkpoint_dir", f"r{odd}\x7f\u2028injected: yes\u2028\r"]
        text = printed(automodel, folder, "--nodes", "1", "--gpus-per-node", "2", "--kind", kind, "--namespace", "y",
                       "--volume", "0755=/data", "--volume", "a.b=/0b1", *overrides, recipe=comment + RECIPE,
                       HF_HOME="0b1")
        check(text.isascii(), "not in ASCII")
        files, *others = yaml.safe_load_all(text)
        check(set(files) == {"apiVersion", "kind", "metadata", "data"}, f"{set(files)}")
        check(files["data"]["recipe.yaml"] == comment + RECIPE, "the recipe is not what it was")
        check(f"'r{odd}\x7f\u2028injected: yes\u2028\r'" in files["data"]["run.sh"], files["data"]["run.sh"])
        for document in [files, *others]:
            check(not faults(document), f"{document['kind']}: {faults(document)}")
        # PyYAML reads the letter y, 0b1 and the like as text, or not, as it likes: see the quotes.
        for quoted in ('namespace: "y"', 'claimName: "0755"', 'value: "0b1"'):
            check(quoted in text, f"without quotes: {quoted}")

    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("mpijob", "trainjob", "jobset"):
            hostile(pathlib.Path(folder), kind)
            text = printed(automodel, pathlib.Path(folder), "--nodes", "2", "--gpus-per-node", "1", "--kind", kind,
                           "--volume", "no=/data", "--namespace", "123", "--max-restarts", "3", HF_HOME="/data/hf")
            for document in yaml.safe_load_all(text):
                check(not faults(document), f"{document['kind']}: {faults(document)}")
                check(document["metadata"]["namespace"] == "123", "the namespace is text")
                seen.add(document["kind"])
                if document["kind"] == "ConfigMap":
                    check(document["data"]["recipe.yaml"] == RECIPE, "the recipe is not what it was")
                    continue
                document["spec"]["unknown"] = 1
                check(faults(document), "the schema takes anything")
    check(seen == set(known), f"kinds {seen}")
    return 0


def wait_for(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"no {what} in {seconds} s")
        time.sleep(0.2)


def steps(folder):
    path = folder / "run" / "training.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


def scripts(automodel):
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun")
        return SKIP
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = printed(automodel, folder, "--nodes", "1", "--ranks-per-node", "2", "--volume", f"data={name}")
        # In a pod the ConfigMap's files are in /etc/automodel, and the operator's hostfile in /etc/mpi.
        (folder / "hostfile").write_text("localhost slots=2\n")
        lines = text.split("---")[0].splitlines()
        for file in ("run.sh", "stop.sh"):
            begin = lines.index(f"  {file}: |2+") + 1
            body = []
            for line in lines[begin:]:
                if line and not line.startswith("    "):
                    break
                body.append(line[4:])
            (folder / file).write_text("\n".join(body).replace("/etc/automodel", name)
                                       .replace("/etc/mpi/hostfile", f"{name}/hostfile")
                                       .replace("--bind-to core", "--bind-to none --oversubscribe") + "\n")
        environment = {**os.environ, "OMP_NUM_THREADS": "1",
                       "PATH": f"{pathlib.Path(automodel).parent}:{os.environ['PATH']}"}
        reached = 0
        for how in ("SIGTERM", "stop.sh"):
            with open(folder / "log", "a", encoding="utf-8") as log:
                run = subprocess.Popen(["bash", "run.sh"], cwd=folder, env=environment, stdout=log,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                wait_for(lambda: len(steps(folder)) > reached + 3, f"step after {reached} ({how})")
                if how == "SIGTERM":
                    run.send_signal(signal.SIGTERM)
                else:
                    # Only this test's ranks: on a shared machine others have some of the same name.
                    mine = f'[ "$(ps -o sid= -p "${{process#/proc/}}" | tr -d " ")" = {run.pid} ] || continue\n'
                    script = (folder / "stop.sh").read_text().replace("do\n    if", f"do\n    {mine}    if", 1)
                    check(mine in script, "the script changed")
                    subprocess.run(["sh", "-c", script], check=True, timeout=100)
                check(run.wait(timeout=100) == 10, f"{how}: exit code {run.returncode}\n{(folder / 'log').read_text()}")
            finally:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
            done = steps(folder)
            check(done == list(range(len(done))), f"steps are repeated or missing: {done}")
            check((folder / "run" / "LATEST").exists(), "no checkpoint")
            reached = len(done)
    return 0


if __name__ == "__main__":
    sys.exit(schemas(*sys.argv[2:]) if sys.argv[1] == "schemas" else scripts(*sys.argv[2:]))
