#!/usr/bin/env python3
"""Restarts inside the allocation of a real Slurm, on two nodes that are network namespaces: ranks die, a node is lost.

  slurm_hosts_test.py MPIRUN BIN_FOLDER [unittest arguments]     the module is skipped where Slurm or namespaces are missing
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

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent / "train")]
from slurm_cluster import SUBNET, NamespaceCluster, Unavailable, missing_programs, wait_for  # noqa: E402
from supervised import BIN, ENVIRONMENT, RECIPE, STEPS, is_worker  # noqa: E402

PROGRAM = str(pathlib.Path(BIN).resolve() / "automodel")
LIMIT = 150
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
# What a site's modules and environment would set: Open MPI's networks, one thread per rank.
PREAMBLE = f"""export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include={SUBNET}.0/24 AUTOMODEL_CALIBRATION=
"""
# Sums in another order differ in float32 by more than the limit after so many steps.
WORDS = ["--model.torch_dtype", "float64", "--step_scheduler.local_batch_size", "4"]


class InAnAllocation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if missing := missing_programs():
            raise unittest.SkipTest(f"no {', '.join(missing)} here (Debian: slurm-wlm, munge)")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.cluster = NamespaceCluster(cls.folder)
        try:
            cls.addClassCleanup(cls.cluster.stop)
            cls.cluster.start()
        except (Unavailable, TimeoutError) as problem:
            raise unittest.SkipTest(f"Slurm does not run here: {problem}") from problem

    def setUp(self):
        for name, _ in self.cluster.nodes:
            if "idle" not in self.cluster.run(["sinfo", "-h", "-p", "all", "-n", name, "-o", "%T"]).stdout:
                self.cluster.daemon("slurmd", name)
        wait_for(lambda: self.cluster.run(["sinfo", "-h", "-p", "all", "-o", "%T %D"]).stdout.split() == ["idle", "2"], 90, "the nodes")
        self.work = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (self.work / "r.yaml").write_text(RECIPE)
        (self.work / "preamble.sh").write_text(PREAMBLE)
        self.job = None
        self.addCleanup(self.end)

    def end(self):
        if self.job:
            self.cluster.run(["scancel", str(self.job)])
            wait_for(lambda: self.state() in (*ENDED, None), 60, "the end of the job")

    def script(self, *words):
        made = subprocess.run([PROGRAM, "slurm", "r.yaml", "--nodes", "2", "--ranks-per-node", "2", "--preamble", "preamble.sh", "--job-name",
                               "tiny", *words, *WORDS], cwd=self.work, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        return made.stdout

    def submit(self, *words):
        # Shortens the pause during which Slurm ends a requeued script.
        (self.work / "job.sh").write_text(self.script(*words).replace("sleep 60", "sleep 20"))
        self.job = self.cluster.submit(self.work, "job.sh")

    def state(self):
        return self.cluster.state(self.job).get("JobState")

    def rows(self):
        try:
            return [json.loads(line) for line in (self.work / "run" / "training.jsonl").read_text().splitlines()]
        except (OSError, ValueError):
            return []

    def events(self, name):
        path = self.work / "run" / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def output(self):
        return "".join(path.read_text(errors="replace") for path in sorted([*(self.work / "logs").glob("*"), *self.work.glob("*.log")]))

    def wait_for_step(self, step):
        begin = time.monotonic()
        while not (rows := self.rows()) or rows[-1]["step"] < step:
            if time.monotonic() - begin > LIMIT or self.state() in ENDED:
                daemons = "".join(f"--- {log}\n{log.read_text(errors='replace')[-1500:]}\n" for log in self.cluster.logs())
                self.fail(f"no step {step}:\n{self.output()[-6000:]}\n{daemons}")
            time.sleep(0.02)

    def finish(self):
        """Waits for the end of the job; returns its state and exit code."""
        wait_for(lambda: self.state() in ENDED, LIMIT, f"the end of the job, which has said\n{self.output()[-4000:]}\n")
        state = self.cluster.state(self.job)
        return state["JobState"], int(state["ExitCode"].split(":")[0])

    def workers(self, node):
        return [pid for pid in self.cluster.network.processes(self.cluster.nodes[node][0]) if is_worker(pid)]

    def quiet(self, *words):
        """Losses of the same run on this machine, undisturbed."""
        done = subprocess.run([PROGRAM, "train", "r.yaml", "--nproc-per-node", "4", "--checkpoint.checkpoint_dir", "quiet", *WORDS, *words], cwd=self.work,
                              env={**ENVIRONMENT, "AUTOMODEL_CALIBRATION": ""}, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line)["loss"] for line in (self.work / "quiet" / "training.jsonl").read_text().splitlines()]

    def close_to(self, wanted):
        rows = self.rows()
        self.assertEqual([row["step"] for row in rows], list(range(len(wanted))))
        for row, other in zip(rows, wanted, strict=True):
            self.assertLessEqual(abs(row["loss"] - other), 1e-6, row)

    def test_a_rank_dies_and_a_node_is_lost(self):
        wanted = self.quiet()
        self.submit("--max-restarts", "5", "--min-ranks", "2")
        self.assertIn("#SBATCH --no-kill\n", (self.work / "job.sh").read_text())
        self.wait_for_step(12)
        os.kill(self.workers(1)[0], signal.SIGKILL)
        self.wait_for_step(30)
        self.assertEqual([event["ranks"] for event in self.events("start")], [4, 4])
        self.cluster.lose(self.cluster.nodes[1][0])
        self.assertEqual(self.finish(), ("COMPLETED", 0), self.output()[-6000:])
        self.close_to(wanted)
        self.assertEqual([event["ranks"] for event in self.events("start")], [4, 4, 2])
        self.assertTrue(all("error[" in event["cause"] for event in self.events("restart")), self.events("restart"))
        self.assertIn(f"1 of 2 hosts answer ({self.cluster.nodes[0][0]}), with 2 of 4 ranks: continues with 2 ranks", self.output())

    def test_too_few_ranks_are_left(self):
        self.submit("--max-restarts", "5", "--min-ranks", "3")
        self.wait_for_step(8)
        self.cluster.lose(self.cluster.nodes[1][0])
        state, code = self.finish()
        self.assertEqual(state, "FAILED", self.output()[-4000:])
        self.assertNotIn(code, (0, 2))
        self.assertIn("error[too-few-ranks]: 1 of 2 hosts answer", self.output())

    def test_told_to_stop_it_saves_and_goes_on_from_the_queue(self):
        longer = ("--step_scheduler.max_steps", str(6 * STEPS))  # than a busy machine takes to pass the signal on
        wanted = self.quiet(*longer)
        self.submit("--max-restarts", "5", *longer)
        self.wait_for_step(12)
        self.cluster.run(["scancel", "--signal=USR1", str(self.job)])  # like the warning before the time limit
        self.assertEqual(self.finish(), ("COMPLETED", 0), self.output()[-4000:])
        self.assertEqual(self.cluster.state(self.job)["Restarts"], "1")
        self.close_to(wanted)
        self.assertEqual(self.events("restart"), [])

    def test_what_follows_from_the_recipe_is_not_tried_again(self):
        self.submit("--max-restarts", "5", "--optimizer.lr", "1e39", "--step_scheduler.ckpt_every_steps", "1")
        state, code = self.finish()
        self.assertEqual((state, code), ("FAILED", 11), self.output()[-4000:])
        self.assertEqual(self.events("restart"), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
