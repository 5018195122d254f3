#!/usr/bin/env python3
"""Runs that start again by themselves: ranks are killed or stopped, the supervisor itself is killed, checkpoints vanish,
the recipe changes. What a run computes must not depend on any of that.

  restart_test.py MPIRUN BIN_FOLDER [unittest arguments]
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
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "comm"))
from jobs import ENVIRONMENT  # noqa: E402

LIMIT = 120  # seconds; a run that takes longer hangs
STEPS, EVERY = 60, 5

RECIPE = f"""\
seed: 1
device: cpu
model: {{config: {{model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, num_attention_heads: 4,
  num_key_value_heads: 2, vocab_size: 127, max_position_embeddings: 64}}, torch_dtype: float32}}
dataset: {{_target_: mock, vocab_size: 127, seq_length: 64, num_samples: 4096}}
logging: {{progress: false, tensorboard: false}}
optimizer: {{_target_: adamw, lr: 0.003}}
distributed: {{strategy: fsdp2}}
step_scheduler: {{global_batch_size: 16, local_batch_size: 8, max_steps: {STEPS}, num_epochs: null, ckpt_every_steps: {EVERY}}}
checkpoint: {{checkpoint_dir: run, max_recent_checkpoints: 3}}
dist_env: {{timeout_minutes: 0.05}}
"""


def processes_below(pid):
    """Of a process and all that it started."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(text.rsplit(")", 1)[1].split()[1])
    below, grown = {pid}, True
    while grown:
        grown = False
        for child, parent in parents.items():
            if parent in below and child not in below:
                below.add(child)
                grown = True
    return below


def is_worker(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("automodel-worke")
    except OSError:
        return False


def workers_below(pid):
    return sorted(each for each in processes_below(pid) if is_worker(each))


class RestartCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "r.yaml").write_text(RECIPE)
        self.job = None
        self.addCleanup(self.end)

    def end(self):
        if self.job and self.job.poll() is None:
            for pid in processes_below(self.job.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.job.communicate()

    def start(self, *words, launcher=(), environment=None):
        with open(self.folder / "errors", "w") as errors:
            self.job = subprocess.Popen([*launcher, str(pathlib.Path(BIN) / "automodel"), "train", "r.yaml", *words], cwd=self.folder,
                                        env={**ENVIRONMENT, **(environment or {})}, stdout=subprocess.DEVNULL, stderr=errors)

    def finish(self):
        code = self.job.wait(timeout=LIMIT)
        text = (self.folder / "errors").read_text()
        return code, [line for line in text.splitlines() if line.strip()]

    def rows(self):
        try:
            return [json.loads(line) for line in (self.folder / "run" / "training.jsonl").read_text().splitlines()]
        except (OSError, ValueError):
            return []

    def events(self, name):
        return [event for event in self.all_events() if event["event"] == name]

    def all_events(self):
        path = self.folder / "run" / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return list(map(json.loads, lines))

    def wait_for_step(self, step):
        begin = time.monotonic()
        while not (rows := self.rows()) or rows[-1]["step"] < step:
            self.assertIsNone(self.job.poll(), (self.folder / "errors").read_text())
            self.assertLess(time.monotonic() - begin, LIMIT)
            time.sleep(0.01)

    def losses(self):
        rows = self.rows()
        self.assertEqual([row["step"] for row in rows], list(range(STEPS)))
        return [row["loss"] for row in rows]

    def undisturbed(self):
        """What the run computes when nothing happens to it."""
        self.start("--nproc-per-node", "2", "--checkpoint.checkpoint_dir", "quiet")
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        return [json.loads(line)["loss"] for line in (self.folder / "quiet" / "training.jsonl").read_text().splitlines()]


class Restarts(RestartCase):
    def test_killed_and_stopped_ranks(self):
        wanted = self.undisturbed()
        self.start("--nproc-per-node", "2", "--max-restarts", "5")
        strokes = [(12, 1, signal.SIGKILL), (23, 0, signal.SIGKILL), (38, 1, signal.SIGSTOP)]
        for step, rank, number in strokes:
            self.wait_for_step(step)
            os.kill(workers_below(self.job.pid)[rank], number)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.assertEqual(self.losses(), wanted)
        restarts = self.events("restart")
        self.assertEqual(len(restarts), len(strokes), lines)
        # Only the hang has a report; mpirun may be ended for it from outside.
        self.assertTrue(all(event["exit_code"] in (12, 137) and event["cause"] for event in restarts), restarts)

    def test_a_starter_of_ones_own(self):
        self.start("--max-restarts", "2", "--start-with", f"{MPIRUN} --oversubscribe -np 2")
        self.wait_for_step(8)
        os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()
        self.assertEqual(len(self.events("restart")), 1)

    def test_one_rank_without_mpirun(self):
        self.start("--fault_tolerance.max_restarts", "1", "--step_scheduler.local_batch_size", "16")
        self.wait_for_step(8)
        os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()
        names = [event["event"] for event in self.all_events()]
        self.assertEqual([name for name in names if name not in ("saved", "deleted")], ["start", "restart", "start", "end"])
        self.assertGreaterEqual(names.count("saved"), STEPS // EVERY)

    def test_restarts_are_used_up(self):
        self.start("--nproc-per-node", "2", "--max-restarts", "1")
        for step in (8, 20):
            self.wait_for_step(step)
            os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
            time.sleep(0.5)
        code, lines = self.finish()
        self.assertEqual(code, 137, lines)
        self.assertTrue(any("error[restarts-used-up]" in line for line in lines), lines)
        self.assertIn("error[rank-killed]", lines[-1])
        self.assertEqual(len(self.events("gave-up")), 1)

    def test_a_signal_to_the_supervisor_is_no_reason_to_start_again(self):
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        self.wait_for_step(8)
        self.job.send_signal(signal.SIGTERM)
        code, lines = self.finish()
        self.assertEqual(code, 10, lines)
        self.assertEqual(self.events("restart"), [])

    def test_the_supervisor_is_killed(self):
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        self.wait_for_step(8)
        left = processes_below(self.job.pid) - {self.job.pid}
        self.job.kill()
        self.job.wait()
        begin = time.monotonic()
        while any(is_worker(pid) for pid in left):
            self.assertLess(time.monotonic() - begin, 30, "ranks outlive their supervisor")
            time.sleep(0.1)
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()


class Causes(RestartCase):
    def test_no_progress(self):
        worker = self.folder / "worker"
        worker.write_text("#!/bin/sh\necho 'error[internal]: always' >&2\nexit 70\n")
        worker.chmod(0o755)
        self.start("--max-restarts", "9", "--step_scheduler.local_batch_size", "16", environment={"AUTOMODEL_WORKER": str(worker)})
        code, lines = self.finish()
        self.assertEqual(code, 70, lines)
        self.assertEqual(sum(line == "error[internal]: always" for line in lines), 3)  # two attempts, and the last word
        self.assertTrue(any("error[no-progress]" in line for line in lines), lines)
        self.assertEqual(lines[-1], "error[internal]: always")

    def test_what_follows_from_the_recipe_is_not_tried_again(self):
        worker = self.folder / "worker"
        worker.write_text("#!/bin/sh\nexit 11\n")
        worker.chmod(0o755)
        self.start("--max-restarts", "9", "--step_scheduler.local_batch_size", "16", environment={"AUTOMODEL_WORKER": str(worker)})
        self.assertEqual(self.finish()[0], 11)
        self.assertFalse((self.folder / "run" / "events.jsonl").exists())

    def test_the_recipe_has_changed(self):
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        self.wait_for_step(8)
        (self.folder / "r.yaml").write_text(RECIPE.replace("lr: 0.003", "lr: 0.3"))
        os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 137, lines)
        self.assertTrue(any("error[changed-while-running]: the recipe 'r.yaml'" in line for line in lines), lines)

    def test_another_job_removes_what_latest_names(self):
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        self.wait_for_step(12)
        for pid in workers_below(self.job.pid):
            os.kill(pid, signal.SIGSTOP)
        latest = self.folder / "run" / os.readlink(self.folder / "run" / "LATEST")
        shutil.rmtree(latest)
        for pid in workers_below(self.job.pid):
            os.kill(pid, signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()

    def test_ranks_cannot_start_themselves(self):
        self.start("--max-restarts", "3", launcher=(MPIRUN, "--oversubscribe", "-np", "2"))
        code, lines = self.finish()
        self.assertEqual(code, 2, lines)
        self.assertTrue(any("--start-with" in line for line in lines), lines)


if __name__ == "__main__":
    MPIRUN, BIN = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
