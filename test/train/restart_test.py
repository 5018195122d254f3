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


class TwoNames(RestartCase):
    """Two hosts of two ranks, which are this machine under two names: mpirun's ssh is a script that runs the command here,
    and refuses where the host is down."""

    def setUp(self):
        super().setUp()
        (self.folder / "hosts").write_text("nodea slots=2\nnodeb slots=2\n")
        agent = self.folder / "agent"
        agent.write_text(f"""#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
host=$1; shift
[ -e {self.folder}/down.$host ] && exit 255
export {self.MARK}={self.folder}/$host
export AUTOMODEL_MEMORY_DIR={self.folder}/memory.$host
mkdir -p $AUTOMODEL_MEMORY_DIR
exec bash -c "$*"
""")
        agent.chmod(0o755)
        # Not shared memory: hosts of one name have segments of one name, and overwrite each other's.
        self.starter = (f"{MPIRUN} --mca plm_rsh_agent {agent} --mca plm_rsh_no_tree_spawn 1 --mca orte_keep_fqdn_hostnames 1 "
                        f"--mca pml ob1 --mca btl self,tcp --bind-to none -np 4 --hostfile hosts")

    MARK = "RESTART_TEST_HOST"

    def processes_on(self, host):
        """mpirun's daemons leave their parents: what such a host runs is known by its environment."""
        mark = f"{self.MARK}={self.folder}/{host}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def lose(self, host):
        """All that runs there dies; nothing starts there until it is back."""
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


class FewerRanks(TwoNames):
    def test_a_host_is_lost_and_comes_back(self):
        wanted = self.whole()
        self.start("--start-with", self.starter, "--max-restarts", "5", "--min-ranks", "2", *self.WORDS)
        self.wait_for_step(12)
        self.lose("nodeb")
        self.wait_for_step(30)
        self.assertEqual([event["ranks"] for event in self.events("start")], [4, 2])
        (self.folder / "down.nodeb").unlink()
        self.kill([pid for pid in self.processes_on("nodea") if is_worker(pid)][:1])
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.close_to(wanted)
        self.assertEqual([event["ranks"] for event in self.events("start")], [4, 2, 4])
        self.assertEqual([event["ranks"] for event in self.events("restart")], [2, 4])
        text = "\n".join(lines)
        self.assertIn("1 of 2 hosts answer (nodea), with 2 of 4 ranks: goes on with 2 ranks, distributed.dp_size=2; the global batch "
                      "of 16 sequences stays", text)

    def test_too_few_are_left(self):
        self.start("--start-with", self.starter, "--max-restarts", "5", "--min-ranks", "3", *self.WORDS)
        self.wait_for_step(8)
        self.lose("nodeb")
        code, lines = self.finish()
        self.assertNotIn(code, (0, 2), lines)
        self.assertTrue(any("error[too-few-ranks]: 1 of 2 hosts answer (nodea), with 2 of 4 ranks; --min-ranks asks for 3" in line
                            for line in lines), lines)
        self.assertEqual(len(self.events("gave-up")), 1)

    def test_two_hosts_at_once(self):
        for words, said, help_line in (((), "error[no-progress]", "more restarts would end as these did"),
                                       (("--min-ranks", "2"), "error[too-few-ranks]: 0 of 2 hosts answer (none), with 0 of 4 ranks",
                                        "bring hosts back")):
            self.start("--start-with", self.starter, "--max-restarts", "5", *words, *self.WORDS)
            self.wait_for_step(8)
            for host in ("nodea", "nodeb"):
                (self.folder / f"down.{host}").write_text("")
            self.kill(self.processes_on("nodea") + self.processes_on("nodeb"))
            code, lines = self.finish()
            self.assertNotIn(code, (0, 2), lines)
            self.assertTrue(any(said in line for line in lines), lines)
            self.assertTrue(any(help_line in line for line in lines), lines)
            self.assertIn("error[host-lost]", lines[-1])
            for host in ("nodea", "nodeb"):
                (self.folder / f"down.{host}").unlink()
            shutil.rmtree(self.folder / "run")

    def test_hosts_are_needed(self):
        for least, words, said in ((2, ("--nproc-per-node", "2", "--max-restarts", "1"), "no hosts are named"),
                                   (2, ("--start-with", self.starter), "add --max-restarts"),
                                   (5, ("--start-with", self.starter, "--max-restarts", "1"), "more than the 4 ranks")):
            self.start("--min-ranks", str(least), *words, *self.WORDS)
            code, lines = self.finish()
            self.assertEqual(code, 2, lines)
            self.assertIn(said, "\n".join(lines))


class InMemory(RestartCase):
    """Copies in the memory of the host, which is a folder here."""

    EVERY = 4
    WORDS = ("--checkpoint.memory_every_steps", str(EVERY), "--step_scheduler.ckpt_every_steps", "1000")

    def setUp(self):
        super().setUp()
        self.memory = self.folder / "memory"
        self.memory.mkdir()
        self.environment = {"AUTOMODEL_MEMORY_DIR": str(self.memory)}

    def copies(self, memory=None):
        return sorted((memory or self.memory).glob("automodel-*/epoch_*"), key=lambda path: int(path.name.split("_")[-1]))

    def strike(self, damage):
        """Ranks are held, `damage` is done, and they die."""
        workers = workers_below(self.job.pid)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        damage()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)

    def goes_on_from(self, sources):
        """Where each start after the first went on, and that copies cost no more steps than were under way."""
        starts, restarts = self.events("start"), self.events("restart")
        self.assertEqual([event.get("resumed_source") for event in starts], [None, *sources], starts)
        for start, restart, source in zip(starts[1:], restarts, sources, strict=True):
            if source == "memory":
                self.assertEqual(start["step"] % self.EVERY, 0)
                # The copy of a step may be under way while the next ones run.
                self.assertGreater(start["step"], restart["step"] - 2 * self.EVERY)
                self.assertIn("automodel-", start["resumed_from"])

    def test_killed_ranks(self):
        wanted = self.undisturbed()
        self.start("--nproc-per-node", "2", "--max-restarts", "3", *self.WORDS, environment=self.environment)
        for step, rank in ((13, 1), (30, 0)):
            self.wait_for_step(step)
            self.assertEqual([path.stat().st_mode & 0o777 for path in self.memory.iterdir()], [0o700])
            os.kill(workers_below(self.job.pid)[rank], signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.assertEqual(self.losses(), wanted)
        self.goes_on_from(["memory", "memory"])
        self.assertEqual(len(self.events("copied")), 3)
        self.assertEqual(list(self.memory.iterdir()), [])

    def test_one_rank_and_adapters(self):
        for words in ((), ("--peft.dim", "4")):
            quiet = ("--checkpoint.checkpoint_dir", "quiet", "--step_scheduler.local_batch_size", "16", *words)
            self.start(*quiet)
            self.assertEqual(self.finish()[0], 0)
            wanted = [json.loads(line)["loss"] for line in (self.folder / "quiet" / "training.jsonl").read_text().splitlines()]
            self.start("--max-restarts", "1", "--step_scheduler.local_batch_size", "16", *words, *self.WORDS,
                       environment=self.environment)
            self.wait_for_step(13)
            os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
            code, lines = self.finish()
            self.assertEqual(code, 0, lines)
            self.assertEqual(self.losses(), wanted)
            self.goes_on_from(["memory"])
            shutil.rmtree(self.folder / "run")
            shutil.rmtree(self.folder / "quiet")

    def test_a_torn_copy_is_not_used(self):
        wanted = self.undisturbed()
        words = (*self.WORDS[:2], "--step_scheduler.ckpt_every_steps", "20")
        self.start("--nproc-per-node", "2", "--max-restarts", "3", *words, environment=self.environment)
        self.wait_for_step(29)  # a copy is whole that is newer than the checkpoint, and the next checkpoint is far

        def tear():
            for copy in self.copies():
                path = copy / "optim" / "optim.safetensors"
                os.truncate(path, path.stat().st_size // 2)

        self.strike(tear)
        self.wait_for_step(49)

        def flip():
            for copy in self.copies():
                path = copy / "model" / "model.safetensors"
                content = bytearray(path.read_bytes())
                content[-3] ^= 0x10
                path.write_bytes(content)

        self.strike(flip)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.assertEqual(self.losses(), wanted)
        self.goes_on_from(["disk", "disk"])
        warnings = [event["message"] for event in self.events("warning") if event.get("id") == "memory-copy"]
        self.assertEqual(len(warnings), 2, warnings)
        self.assertIn("in memory is of no use", warnings[0])

    def test_a_run_that_begins_anew_takes_no_copy_of_the_one_before(self):
        self.start("--nproc-per-node", "2", *self.WORDS, environment=self.environment)
        self.wait_for_step(13)
        self.strike(lambda: None)
        self.assertNotEqual(self.finish()[0], 0)
        self.assertTrue(self.copies())
        shutil.rmtree(self.folder / "run")
        self.start("--nproc-per-node", "2", *self.WORDS, environment=self.environment)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()
        self.goes_on_from([])

    def test_no_room(self):
        for folder, said in ((self.folder / "nowhere", "error[no-memory-folder]"), (self.small(), "error[memory-copies-too-large]")):
            environment = {"AUTOMODEL_MEMORY_DIR": str(folder)}
            self.start("--nproc-per-node", "2", *self.WORDS, environment=environment)
            code, lines = self.finish()
            self.assertEqual(code, 4, lines)
            self.assertIn(said, lines[-1])
            plan = subprocess.run([str(pathlib.Path(BIN) / "automodel"), "plan", "r.yaml", *self.WORDS], cwd=self.folder,
                                  env={**ENVIRONMENT, **environment}, capture_output=True, text=True)
            self.assertIn(said, plan.stdout + plan.stderr)

    def small(self):
        small = self.folder / "small"
        small.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], capture_output=True, text=True)
        if made.returncode != 0:
            self.skipTest("a small file system needs root: " + made.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", str(small)])
        return small


class InTwoMemories(TwoNames):
    """The same on two hosts, each of which keeps the other's copies."""

    EVERY = InMemory.EVERY
    KEYS = (*InMemory.WORDS[:2], "--step_scheduler.ckpt_every_steps", "25", *TwoNames.WORDS)
    copies, goes_on_from = InMemory.copies, InMemory.goes_on_from

    def strike(self, hosts, damage):
        """All that runs on these hosts is held, `damage` is done, and it dies."""
        pids = sum(map(self.processes_on, hosts), [])
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        damage()
        restarts = len(self.events("restart"))
        self.kill(pids)
        begin = time.monotonic()
        while len(self.events("restart")) == restarts:
            self.assertLess(time.monotonic() - begin, LIMIT)
            time.sleep(0.05)

    def memory_of(self, host):
        return self.folder / f"memory.{host}"

    def test_memories_are_lost(self):
        wanted = self.whole()
        self.start("--start-with", self.starter, "--max-restarts", "5", *self.KEYS)
        for step, hosts in [(12, ("nodeb",)), (33, ("nodea",)), (38, ("nodea", "nodeb"))]:
            self.wait_for_step(step)
            self.strike(hosts, lambda: [shutil.rmtree(self.memory_of(host)) for host in hosts])
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.close_to(wanted, 1e-12)
        self.goes_on_from(["memory", "memory", "disk"])
        for host in ("nodea", "nodeb"):
            self.assertEqual(list(self.memory_of(host).iterdir()), [])

    def test_a_torn_part_comes_from_the_other_host(self):
        wanted = self.whole()
        self.start("--start-with", self.starter, "--max-restarts", "5", *self.KEYS)
        self.wait_for_step(12)

        def tear():
            for copy in self.copies(self.memory_of("nodea")):
                path = copy / "model" / "model.safetensors"
                os.truncate(path, path.stat().st_size // 2)

        self.strike(("nodea",), tear)
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.close_to(wanted, 1e-12)
        self.goes_on_from(["memory"])

    def test_fewer_ranks_go_on_from_what_one_host_keeps(self):
        wanted = self.whole()
        self.start("--start-with", self.starter, "--max-restarts", "5", "--min-ranks", "2", *self.KEYS)
        self.wait_for_step(12)
        self.lose("nodeb")
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.close_to(wanted, 1e-12)
        self.assertEqual([event["ranks"] for event in self.events("start")], [4, 2])
        self.goes_on_from(["memory"])


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

    def test_weights_that_are_not_finite_are_not_saved(self):
        for words in (("--optimizer.lr", "1e39"), ("--optimizer.lr", "1e6", "--model.torch_dtype", "float16")):
            self.start(*words, "--step_scheduler.ckpt_every_steps", "1", "--step_scheduler.local_batch_size", "16")
            code, lines = self.finish()
            self.assertEqual(code, 11, lines)
            # The first steps of float16 may only lower the loss scale.
            self.assertRegex(lines[-1], r"error\[non-finite-weights\]: step \d+ is not saved: model\.\S+ has a value")
            step = int(lines[-1].split("step ")[1].split()[0])
            self.assertEqual(len(list((self.folder / "run").glob("epoch_*"))), min(step, 3))
            shutil.rmtree(self.folder / "run")

    def test_the_recipe_has_changed(self):
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        self.wait_for_step(8)
        (self.folder / "r.yaml").write_text(RECIPE.replace("lr: 0.003", "lr: 0.3"))
        os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 137, lines)
        self.assertTrue(any("error[changed-while-running]: the recipe 'r.yaml'" in line for line in lines), lines)

    def test_the_program_has_changed(self):
        worker = self.folder / "worker"
        worker.write_text(f'#!/bin/sh\nexec "{BIN}/automodel-worker" "$@"\n')
        worker.chmod(0o755)
        self.start("--nproc-per-node", "2", "--max-restarts", "3", environment={"AUTOMODEL_WORKER": str(worker)})
        self.wait_for_step(8)
        worker.write_text(worker.read_text() + "# another version\n")
        os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 137, lines)
        self.assertTrue(any("error[changed-while-running]: the program" in line for line in lines), lines)
        self.assertTrue(any("start it by hand, if the change is meant" in line for line in lines), lines)

    def test_the_checkpoint_folder_was_on_the_lost_host(self):
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        self.wait_for_step(12)
        for pid in workers_below(self.job.pid):
            os.kill(pid, signal.SIGSTOP)
        (self.folder / "run").rename(self.folder / "elsewhere")
        for pid in workers_below(self.job.pid):
            os.kill(pid, signal.SIGKILL)
        code, lines = self.finish()
        self.assertEqual(code, 137, lines)
        self.assertTrue(any("error[checkpoints-gone]: the folder of checkpoints 'run' is not there any more" in line for line in lines),
                        lines)
        self.assertTrue(any("bring it back" in line for line in lines), lines)
        # It is back, and the same command goes on.
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / "elsewhere").rename(self.folder / "run")
        self.start("--nproc-per-node", "2", "--max-restarts", "3")
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()
        self.assertFalse((self.folder / "run" / ".supervised").exists())

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
