#!/usr/bin/env python3
"""Runs that start again by themselves: ranks are killed or stopped, the supervisor itself is killed, checkpoints vanish,
the recipe changes. The results of a run must not depend on any of that.

  restart_test.py MPIRUN BIN_FOLDER [unittest arguments]
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from supervised import (BIN, EVERY, MPIRUN, RECIPE, STEPS, RestartCase, TwoNames, is_worker, processes_below,  # noqa: E402
                        workers_below)


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
        # Only a hang leaves a report; mpirun may have been killed from outside because of it.
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
        # One rank waits for nobody: each start warns that start_minutes has no effect.
        self.assertEqual([name for name in names if name not in ("saved", "deleted")],
                         ["start", "warning", "restart", "start", "warning", "end"])
        self.assertTrue(all("start_minutes" in str(event) for event in self.events("warning")))
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
        self.assertIn("1 of 2 hosts answer (nodea), with 2 of 4 ranks: continues with 2 ranks, distributed.dp_size=2; the global batch "
                      "stays at 16 sequences", text)

    def test_too_few_are_left(self):
        self.start("--start-with", self.starter, "--max-restarts", "5", "--min-ranks", "3", *self.WORDS)
        self.wait_for_step(8)
        self.lose("nodeb")
        code, lines = self.finish()
        self.assertNotIn(code, (0, 2), lines)
        self.assertTrue(any("error[too-few-ranks]: 1 of 2 hosts answer (nodea), with 2 of 4 ranks; --min-ranks requires 3" in line
                            for line in lines), lines)
        self.assertEqual(len(self.events("gave-up")), 1)

    def test_two_hosts_at_once(self):
        for words, said, help_line in (((), "error[no-progress]", "more restarts would fail as these did"),
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
                                   (2, ("--start-with", self.starter), "add '--max-restarts N'"),
                                   (5, ("--start-with", self.starter, "--max-restarts", "1"), "more than the 4 ranks")):
            self.start("--min-ranks", str(least), *words, *self.WORDS)
            code, lines = self.finish()
            self.assertEqual(code, 2, lines)
            self.assertIn(said, "\n".join(lines))


    def test_a_host_that_never_starts_its_ranks(self):
        """mpirun itself would wait forever for its daemon on that host."""
        self.start("--start-with", self.starter, "--max-restarts", "1", "--min-ranks", "2", "--fault_tolerance.start_minutes", "0.25", *self.WORDS)
        (self.folder / "silent.nodeb").write_text("")
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()
        self.assertEqual([event["ranks"] for event in self.events("restart")], [2])
        self.assertTrue(any("has not started all ranks within 15 s" in line and "error[no-start]" in line for line in lines), lines)
        shutil.rmtree(self.folder / "run")
        self.start("--start-with", self.starter, "--fault_tolerance.start_minutes", "0.25", *self.WORDS)
        code, lines = self.finish()
        self.assertEqual(code, 4, lines)
        self.assertTrue(lines[-1].startswith("error[no-start]") or any(line.startswith("error[no-start]") for line in lines[-3:]), lines)


class Causes(RestartCase):
    def test_a_rank_that_stops_before_the_ranks_meet(self):
        """Without restarts too: mpirun and the other rank would wait for it forever."""
        worker = self.folder / "worker"
        worker.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && kill -STOP $$\nexec {BIN}/automodel-worker "$@"\n')
        worker.chmod(0o755)
        self.start("--nproc-per-node", "2", "--fault_tolerance.start_minutes", "0.1", environment={"AUTOMODEL_WORKER": str(worker)})
        code, lines = self.finish()
        self.assertEqual(code, 4, lines)
        self.assertIn("error[no-start]: mpirun has not started all ranks within 6 s", "\n".join(lines))

    def test_a_rank_that_stops_after_everything_is_done(self):
        """In MPI_Finalize, where the other rank and mpirun would wait for it forever."""
        source, library = self.folder / "stop.c", self.folder / "stop.so"
        source.write_text('#include <signal.h>\n#include <stdlib.h>\n#include <string.h>\nint PMPI_Finalize(void);\nint MPI_Finalize(void) '
                          '{ if (!strcmp(getenv("OMPI_COMM_WORLD_RANK"), "1")) raise(SIGSTOP); return PMPI_Finalize(); }\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        worker = self.folder / "worker"
        worker.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {BIN}/automodel-worker "$@"\n')
        worker.chmod(0o755)
        self.start("--nproc-per-node", "2", "--max-restarts", "3", environment={"AUTOMODEL_WORKER": str(worker)})
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()
        self.assertIn("a rank that had nothing left to do has not exited within 30 s, and is killed", lines)
        self.assertEqual(self.events("restart"), [])
        self.assertEqual([pid for pid in processes_below(os.getpid()) if is_worker(pid)], [])

    def test_a_parent_that_ignores_the_end_of_its_children(self):
        """The kernel then says nothing about theirs either, unless they ask for it."""
        self.start("--nproc-per-node", "2", launcher=[sys.executable, "-c", "import os, signal, sys; signal.signal(signal.SIGCHLD, "
                                                      "signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"])
        code, lines = self.finish()
        self.assertEqual(code, 0, lines)
        self.losses()

    def test_ranks_of_one_host_listen_on_the_loopback_interface_only(self):
        """mpirun itself has a port on every interface, which no setting of Open MPI 4 moves (SECURITY.md)."""
        self.start("--nproc-per-node", "2", "--step_scheduler.max_steps", "100000")
        self.wait_for_step(5)
        sockets = set()
        for pid in workers_below(self.job.pid):
            for handle in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    sockets.add(os.readlink(handle))
                except OSError:
                    continue
        listeners = []
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    listeners.append(words[1])
        self.assertTrue(listeners)
        loopback = ("0100007F:", "00000000000000000000000001000000:", "0000000000000000FFFF00000100007F:")
        self.assertEqual([each for each in listeners if not each.startswith(loopback)], [])

    def test_no_progress(self):
        worker = self.folder / "worker"
        worker.write_text("#!/bin/sh\necho 'error[internal]: always' >&2\nexit 70\n")
        worker.chmod(0o755)
        self.start("--max-restarts", "9", "--step_scheduler.local_batch_size", "16", environment={"AUTOMODEL_WORKER": str(worker)})
        code, lines = self.finish()
        self.assertEqual(code, 70, lines)
        self.assertEqual(sum(line == "error[internal]: always" for line in lines), 3)  # two attempts, and the final message
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
        self.assertTrue(any("error[checkpoints-gone]: the checkpoint folder 'run' no longer exists" in line for line in lines),
                        lines)
        self.assertTrue(any("bring it back" in line for line in lines), lines)
        # The host is back, and the same command resumes the run.
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
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
