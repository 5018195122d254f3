#!/usr/bin/env python3
"""Copies of the state in host memory: ranks are killed, copies are lost or damaged, hosts are left out. The results of a run
must not depend on any of that, nor on the copy that it resumes from.

  memory_copies_test.py MPIRUN BIN_FOLDER [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from supervised import BIN, ENVIRONMENT, LIMIT, RestartCase, TwoNames, workers_below  # noqa: E402


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

    def in_copies(self, folder, file, memory=None):
        """This file of every copy; a copy that was interrupted may lack it."""
        paths = [path for copy in self.copies(memory) if (path := copy / folder / file).exists()]
        self.assertTrue(paths)
        return paths

    def strike(self, damage):
        """Stops the ranks, does `damage` and kills them."""
        workers = workers_below(self.job.pid)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        damage()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)

    def goes_on_from(self, sources):
        """The step at which each restart resumed; checks that only unfinished steps were lost."""
        starts, restarts = self.events("start"), self.events("restart")
        self.assertEqual([event.get("resumed_source") for event in starts], [None, *sources], starts)
        for start, restart, source in zip(starts[1:], restarts, sources, strict=True):
            if source == "memory":
                self.assertEqual(start["step"] % self.EVERY, 0)
                # The copy of a step may still be in progress during the next steps.
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
        self.wait_for_step(29)  # a complete copy is newer than the checkpoint, and the next checkpoint is far away

        def tear():
            for path in self.in_copies("optim", "optim.safetensors"):
                os.truncate(path, path.stat().st_size // 2)

        self.strike(tear)
        self.wait_for_step(49)

        def flip():
            for path in self.in_copies("model", "model.safetensors"):
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
        self.assertIn("in memory cannot be used", warnings[0])

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
            self.assertEqual(code, 13, lines)
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
    copies, in_copies, goes_on_from = InMemory.copies, InMemory.in_copies, InMemory.goes_on_from

    def strike(self, hosts, damage):
        """Stops all processes on these hosts, does `damage` and kills them."""
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
            for path in self.in_copies("model", "model.safetensors", self.memory_of("nodea")):
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
