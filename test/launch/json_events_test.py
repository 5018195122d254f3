#!/usr/bin/env python3
"""automodel train --json, from outside: what is printed to standard output, and that nothing else is.

  json_events_test.py MPIRUN BIN_FOLDER EVENTS_PAGE [unittest arguments]
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "comm"), str(HERE.parent / "train")]
from jobs import ENVIRONMENT  # noqa: E402
from supervised import LIMIT, RECIPE, STEPS, processes_below, workers_below  # noqa: E402

VALIDATED = RECIPE + """\
validation_dataset: {_target_: mock, vocab_size: 127, seq_length: 64, num_samples: 32}
"""
ONE = ("--step_scheduler.local_batch_size", "16")
TWO = ("--nproc-per-node", "2")


def documented():
    """Names of events, with the fields that docs/events.md gives in code font."""
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \|(.*)\|$", pathlib.Path(PAGE).read_text(), re.M)
    return {name: set(re.findall(r"`([a-z_]+)`", fields)) for name, fields in rows}


class JsonEvents(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "r.yaml").write_text(VALIDATED)
        self.job = None
        self.addCleanup(self.stop)

    def stop(self):
        if self.job and self.job.poll() is None:
            for pid in processes_below(self.job.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.job.wait()

    def start(self, *words, launcher=(), environment=None):
        with open(self.folder / "errors", "w") as errors:
            self.job = subprocess.Popen([*launcher, str(pathlib.Path(BIN) / "automodel"), "train", "r.yaml", "--json", *words],
                                        cwd=self.folder, env={**ENVIRONMENT, **(environment or {})}, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.addCleanup(self.job.stdout.close)
        self.seen = []
        self.reader = threading.Thread(target=lambda: self.seen.extend(self.job.stdout), daemon=True)
        self.reader.start()

    def wait_for(self, event, step=0):
        begin = time.monotonic()
        while not any(f'"event": "{event}"' in line and json.loads(line).get("step", 0) >= step for line in list(self.seen)):
            self.assertIsNone(self.job.poll(), (self.folder / "errors").read_text())
            self.assertLess(time.monotonic() - begin, LIMIT)
            time.sleep(0.01)

    def finish(self):
        """Exit code and events; each line is an event, and docs/events.md documents it and its fields."""
        code = self.job.wait(timeout=LIMIT)
        self.reader.join(timeout=LIMIT)
        events = [json.loads(line) for line in self.seen]
        table = documented()
        for event in events:
            self.assertIn(event["event"], table)
            self.assertEqual(set(event) - {"event", "timestamp", "step", "message"} - table[event["event"]]
                             - (table["skip"] if event["event"] == "rollback" else set())
                             - (table["restart"] if event["event"] == "gave-up" else set()), set(), event)
        return code, events

    def rows(self, name):
        return list(map(json.loads, (self.folder / "run" / name).read_text().splitlines()))

    def names(self, events):
        return [event["event"] for event in events]

    def test_a_quiet_run(self):
        self.start(*TWO, "--checkpoint.max_recent_checkpoints", "2", "--step_scheduler.val_every_steps", "20")
        code, events = self.finish()
        self.assertEqual(code, 0)
        self.assertEqual(events[0]["event"], "start")
        self.assertEqual((events[0]["step"], events[0]["end_step"], events[0]["ranks"]), (0, STEPS, 2))
        self.assertEqual(json.loads(events[0]["recipe"])["step_scheduler"]["max_steps"], STEPS)
        self.assertEqual({key: events[-1].get(key) for key in ("event", "exit_code", "cause")},
                         {"event": "end", "exit_code": 0, "cause": None})
        for name, file, extra in (("step", "training.jsonl", {}), ("validation", "validation.jsonl", {"name": "default"}),
                                  ("ranks", "ranks.jsonl", {})):
            self.assertEqual([event for event in events if event["event"] == name],
                             [{"event": name, **extra, **row} for row in self.rows(file)])
        self.assertEqual(len(self.rows("training.jsonl")), STEPS)
        saved = [event for event in events if event["event"] == "saved"]
        self.assertEqual(len(saved), STEPS // 5)
        self.assertEqual(saved[-1]["step"], STEPS - 1)
        self.assertTrue((self.folder / saved[-1]["path"] / "manifest.json").exists())
        gone = {event["path"] for event in events if event["event"] == "deleted"}
        self.assertGreaterEqual(len(gone), STEPS // 5 - 3)  # two are kept, and the one with the lowest loss
        self.assertEqual({event["path"] for event in saved if not (self.folder / event["path"]).exists()}, gone)
        # The file has the same events, except those with files of their own.
        kept = [event for event in events if event["event"] not in ("step", "validation", "ranks")]
        self.assertEqual(self.names(kept), self.names(self.rows("events.jsonl")))
        self.assertIn("step 0 | epoch 0 | loss", (self.folder / "errors").read_text())

    def test_a_killed_rank_and_a_restart(self):
        self.start(*TWO, "--max-restarts", "2")
        self.wait_for("step", 12)
        os.kill(workers_below(self.job.pid)[1], signal.SIGKILL)
        code, events = self.finish()
        self.assertEqual(code, 0)
        around = [event for event in events if event["event"] in ("start", "restart", "end")]
        self.assertEqual(self.names(around), ["start", "restart", "start", "end"])
        self.assertEqual(around[1]["exit_code"], 137)
        self.assertTrue(around[1]["cause"])
        steps = [event["step"] for event in events if event["event"] == "step"]
        self.assertEqual(sorted(set(steps)), list(range(STEPS)))

    def test_copies_in_memory(self):
        memory = {"AUTOMODEL_MEMORY_DIR": str(self.folder / "memory")}
        (self.folder / "memory").mkdir()
        words = (*TWO, "--max-restarts", "2", "--checkpoint.memory_every_steps", "4", "--step_scheduler.ckpt_every_steps", "1000")
        self.start(*words, environment=memory)
        self.wait_for("copied")
        self.wait_for("step", 12)
        os.kill(workers_below(self.job.pid)[1], signal.SIGKILL)
        code, events = self.finish()
        self.assertEqual(code, 0)
        starts = [event for event in events if event["event"] == "start"]
        self.assertEqual([event.get("resumed_source") for event in starts], [None, "memory"])
        copied = [event for event in events if event["event"] == "copied"]
        self.assertEqual(len(copied), 2)  # once per start
        for event in copied:
            self.assertEqual(set(event) - {"event", "timestamp", "step", "message"}, documented()["copied"])

    def test_every_event_of_the_sources_is_on_the_page(self):
        text = "".join(path.read_text() for folder in ("lib", "app") for path in (HERE.parents[1] / folder).rglob("*.cpp"))
        said = set(re.findall(r'\.event = "([a-z-]+)"', text))
        self.assertGreaterEqual(len(said), 9)
        self.assertEqual(said - set(documented()), set())
        self.assertEqual({name for name in documented() if f'"{name}"' not in text}, set())

    def test_the_cause_of_a_failure_is_in_the_end(self):
        self.start(*TWO)
        self.wait_for("step", 8)
        os.kill(workers_below(self.job.pid)[0], signal.SIGKILL)
        code, events = self.finish()
        self.assertEqual(code, 137)
        self.assertEqual((events[-1]["event"], events[-1]["exit_code"]), ("end", 137))
        self.assertIn("error[rank-killed]", events[-1]["cause"])
        self.assertNotIn("gave-up", self.names(events))

    def test_a_signal(self):
        self.start(*ONE)
        self.wait_for("step", 8)
        self.job.send_signal(signal.SIGTERM)
        code, events = self.finish()
        self.assertEqual(code, 10)
        self.assertEqual((events[-1]["event"], events[-1]["exit_code"]), ("end", 10))

    def test_a_launcher_of_ones_own(self):
        self.start(launcher=(MPIRUN, "--oversubscribe", "-np", "2"))
        code, events = self.finish()
        self.assertEqual(code, 0)
        self.assertEqual(self.names(events)[0], "start")
        self.assertEqual((events[-1]["event"], events[-1]["exit_code"]), ("end", 0))
        self.assertEqual(self.names(events).count("step"), STEPS)

    def test_rank_0_says_why_it_ends(self):
        self.start("--optimizer.lr", "1e30", *ONE, launcher=(MPIRUN, "-np", "1"))
        code, events = self.finish()
        self.assertEqual(code, 11)
        self.assertEqual((events[-1]["event"], events[-1]["exit_code"]), ("end", 11))
        self.assertIn("error[non-finite]", events[-1]["cause"])

    def test_skipped_steps(self):
        self.start("--optimizer.lr", "1e30", *ONE, "--fault_tolerance.on_non_finite", "skip", "--fault_tolerance.max_bad_steps", "3")
        code, events = self.finish()
        self.assertEqual(code, 11)
        skipped = [event for event in events if event["event"] == "skip"]
        self.assertGreaterEqual(len(skipped), 1)
        self.assertEqual({event["reason"] for event in skipped}, {"non-finite"})
        self.assertEqual(len(skipped[0]["samples"].split()), 16)

    def test_a_recipe_that_is_refused(self):
        self.start("--optimizer.lr", "fast")
        code = self.job.wait(timeout=LIMIT)
        self.reader.join(timeout=LIMIT)
        self.assertEqual(code, 2)
        self.assertEqual(len(self.seen), 1)
        self.assertEqual(json.loads(self.seen[0])["errors"][0]["id"], "bad-type")

    def test_a_reader_that_goes_away(self):
        self.start(*ONE)
        self.wait_for("step", 2)
        # The reading thread holds the pipe, so it is replaced underneath it.
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, self.job.stdout.fileno())
        os.close(devnull)
        self.assertEqual(self.job.wait(timeout=LIMIT), 0)
        self.assertEqual(len(self.rows("training.jsonl")), STEPS)


if __name__ == "__main__":
    MPIRUN, BIN, PAGE = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
