#!/usr/bin/env python3
"""logging.command in whole runs: the program gets start, steps and end with and without --json; one that is missing is
an error before the run; one that dies, does not read, or leaves a process behind neither ends it nor holds it up.

  watcher_test.py AUTOMODEL
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

RECIPE = """device: cpu
model:
  config: {model_type: llama, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2,
    num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 64}
dataset: {_target_: mock, vocab_size: 67, seq_length: 8}
step_scheduler: {global_batch_size: 2, local_batch_size: 2, max_steps: 6}
checkpoint: {enabled: false, checkpoint_dir: run}
logging: {tensorboard: false}
"""


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def wait_for(condition, what, seconds=150):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"no {what} in {seconds} s")
        time.sleep(0.2)


def main(automodel):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "r.yaml").write_text(RECIPE)

        def program(file, text):
            (folder / file).write_text("#!/bin/sh\n" + text)
            (folder / file).chmod(0o755)

        def train(command, *words):
            return subprocess.run([automodel, "train", "r.yaml", "--logging.command", command, *words], cwd=folder,
                                  capture_output=True, text=True, timeout=120)

        program("keep.sh", "cat > \"$1\"\n")
        for words in ((), ("--json",)):
            run = train("./keep.sh seen", *words)
            check(run.returncode == 0, run.stderr)
            events = [json.loads(line) for line in (folder / "seen").read_text().splitlines()]
            names = [event["event"] for event in events]
            check(names[0] == "start" and names[-1] == "end" and names.count("step") == 6, f"events {names}")
            check(events[-1]["exit_code"] == 0, events[-1])
            check("step" in run.stdout, "no step is shown")
            if words:
                printed = [json.loads(line)["event"] for line in run.stdout.splitlines()]
                check(printed.count("end") == 1, f"printed {printed}")
        run = train("./absent.sh")
        check(run.returncode == 2 and "error[missing-file]" in run.stderr, run.stderr)
        check("absent.sh" in run.stderr and "step 0" not in run.stdout, run.stderr)
        run = train("false")
        check(run.returncode == 0 and "ended with exit code 1" in run.stderr, run.stderr)

        # What a watcher leaves behind holds the run's standard error open, which `train` here waits to see closed.
        for text in ("sleep 1000 &\nexec cat > /dev/null\n", "sleep 1000 &\nexit 1\n"):
            program("leaves.sh", text)
            check(train("./leaves.sh").returncode == 0, text)

        # A run that fails does not keep the other ranks for a watcher that does not end: that may take 30 s otherwise.
        program("deaf.sh", "exec sleep 1000\n")
        begin = time.monotonic()
        run = train("./deaf.sh", "--optimizer.lr", "1e38", "--clip_grad_norm.max_norm", "null")
        check(run.returncode == 11 and "is killed" in run.stderr, f"{run.returncode}\n{run.stderr}")
        check(time.monotonic() - begin < 25, "a failing run waits for its watcher")

        # A watcher that is not started again (after 31 s of pauses): each event is dropped, which is a warning now and
        # then, which is an event. The run goes on, and ends when it is told to.
        with open(folder / "log", "w+", encoding="utf-8") as log:
            run = subprocess.Popen([automodel, "train", "r.yaml", "--logging.command", "false",
                                    "--step_scheduler.max_steps", "100000000"], cwd=folder, stdout=subprocess.DEVNULL,
                                   stderr=log, start_new_session=True)
            try:
                for said in (r"is not started again", r"\d\d+ events were dropped"):
                    wait_for(lambda: re.search(said, (folder / "log").read_text()), said)
                run.send_signal(signal.SIGTERM)
                check(run.wait(timeout=60) == 10, (folder / "log").read_text())
            finally:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
