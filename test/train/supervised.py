"""Supervised runs for tests, on this machine or on two hosts that are this machine under two names: how they are started and
what they leave behind.

  TEST.py MPIRUN BIN_FOLDER [unittest arguments]
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

MPIRUN, BIN = (sys.argv[1:3] + ["", ""])[:2]
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
fault_tolerance: {{start_minutes: 0.5}}
dist_env: {{timeout_minutes: 0.05}}
"""


def processes_below(pid):
    """Of a process and all its descendants."""
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
        try:
            code = self.job.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.fail(f"still running after {LIMIT} s:\n" + (self.folder / "errors").read_text() + self.where_it_stands())
        text = (self.folder / "errors").read_text()
        return code, [line for line in text.splitlines() if line.strip()]

    def where_it_stands(self):
        """The state of a run that hangs: events, last step, processes and what they wait for, stacks if gdb is there."""
        rows = self.rows()
        told = [f"events {[event['event'] for event in self.all_events()]}", f"last row {rows[-1] if rows else None}"]
        for pid in sorted(processes_below(self.job.pid) | set(self.others())):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200]
                waits = sorted((task / "wchan").read_text() for task in pathlib.Path(f"/proc/{pid}/task").iterdir())
            except OSError:
                continue
            told.append(f"{pid} {words} waits in {waits}")
            if is_worker(pid) and shutil.which("gdb"):
                stacks = subprocess.run(["gdb", "-batch", "-p", str(pid), "-ex", "thread apply all bt 12"], capture_output=True,
                                        text=True, stdin=subprocess.DEVNULL)
                told += [line for line in stacks.stdout.splitlines() if line.startswith(("#", "Thread"))]
        return "\n".join(told)

    def others(self):
        """Processes of the run that are not its descendants."""
        return []

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
        """The results of the run without faults."""
        self.start("--nproc-per-node", "2", "--checkpoint.checkpoint_dir", "quiet")
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        return [json.loads(line)["loss"] for line in (self.folder / "quiet" / "training.jsonl").read_text().splitlines()]


class TwoNames(RestartCase):
    """Two hosts of two ranks, which are this machine under two names: mpirun's ssh is a script that runs the command here,
    and refuses if the host is down."""

    def setUp(self):
        super().setUp()
        (self.folder / "hosts").write_text("nodea slots=2\nnodeb slots=2\n")
        agent = self.folder / "agent"
        agent.write_text(f"""#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
host=$1; shift
[ -e {self.folder}/down.$host ] && exit 255
[ -e {self.folder}/silent.$host ] && exit 0
export {self.MARK}={self.folder}/$host
export AUTOMODEL_MEMORY_DIR={self.folder}/memory.$host
export TMPDIR={self.folder}/tmp.$host  # otherwise two mpirun daemons share a folder, and one may fail to start
mkdir -p $AUTOMODEL_MEMORY_DIR $TMPDIR
exec bash -c "$*"
""")
        agent.chmod(0o755)
        # No shared memory: segment names depend on the host name, so both hosts would overwrite each other's segments.
        self.starter = (f"{MPIRUN} --mca plm_rsh_agent {agent} --mca plm_rsh_no_tree_spawn 1 --mca orte_keep_fqdn_hostnames 1 "
                        f"--mca pml ob1 --mca btl self,tcp --bind-to none -np 4 --hostfile hosts")

    MARK = "RESTART_TEST_HOST"

    def processes_on(self, host):
        """mpirun's daemons leave their parents, so the processes of a host are recognized by their environment."""
        mark = f"{self.MARK}={self.folder}/{host}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def others(self):
        return self.processes_on("nodea") + self.processes_on("nodeb")

    def lose(self, host):
        """Kills all processes on the host; nothing starts there until it is back."""
        (self.folder / f"down.{host}").write_text("")
        self.kill(self.processes_on(host))

    def kill(self, pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end(self):
        super().end()
        for host in ("nodea", "nodeb"):
            self.kill(self.processes_on(host))

    def close_to(self, wanted, limit=1e-6):
        for step, (mine, other) in enumerate(zip(self.losses(), wanted, strict=True)):
            self.assertLessEqual(abs(mine - other), limit, f"step {step}")

    def whole(self):
        self.start("--start-with", self.starter, "--checkpoint.checkpoint_dir", "quiet", *self.WORDS)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        return [json.loads(line)["loss"] for line in (self.folder / "quiet" / "training.jsonl").read_text().splitlines()]

    # Sums in another order differ in float32 by more than the limit after so many steps.
    WORDS = ("--model.torch_dtype", "float64", "--step_scheduler.local_batch_size", "4")
