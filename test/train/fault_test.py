#!/usr/bin/env python3
"""Training runs in which one rank stalls, is stopped, is killed or throws before a random action of every schedule, or
two hosts lose each other: each must end within the deadline and name the rank. Also orderly ends by signals.

  fault_test.py MPIRUN BIN_FOLDER FAILING_RUN [--faults N] [--seed N] [unittest arguments]

BIN_FOLDER holds automodel and automodel-worker. --faults 200 prints a table of what was injected and how long it took.
"""
import argparse
import collections
import json
import os
import pathlib
import pty
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "comm"))
from jobs import ENVIRONMENT, TwoHostsCase, run_job  # noqa: E402

DEADLINE = 3.0  # seconds, without start-up and the time until the report
LIMIT = 60  # a run that takes longer hangs

# Schedule and stages per rank.
SCHEDULES = [("1F1B", 1), ("GPipe", 1), ("Interleaved1F1B", 2), ("LoopedBFS", 2), ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2),
             ("DualPipeV", 2), ("MegatronInterleaved", 2)]
STRATEGIES = ["ddp", "fsdp2"]

RECIPE = """\
seed: 1
device: cpu
model: {config: {model_type: llama, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 8, num_attention_heads: 2,
  num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 16}, torch_dtype: float32}
dataset: {_target_: mock, vocab_size: 67, seq_length: 12, num_samples: 4096}
logging: {progress: false, tensorboard: false}
"""


def recipe(folder, schedule, per_rank, pp, dp, strategy, steps):
    text = RECIPE + f"""\
distributed: {{strategy: {strategy}, pp_size: {pp}, dp_size: {dp}, pipeline: {{pp_schedule: {schedule}, pp_microbatch_size: 1}}}}
model_parallel: {{virtual_pipeline_model_parallel_size: {per_rank}}}
step_scheduler: {{global_batch_size: {2 * pp * dp}, local_batch_size: {2 * pp}, max_steps: {steps}, num_epochs: null}}
checkpoint: {{enabled: false, checkpoint_dir: {folder}/run}}
dist_env: {{timeout_minutes: {DEADLINE / 60}}}
"""
    path = pathlib.Path(folder) / f"{schedule}_{pp}_{dp}_{strategy}_{steps}.yaml"
    path.write_text(text)
    return path


class Injection:
    """One run with one fault."""

    def __init__(self, folder, random, number):
        turn, place = divmod(number, len(SCHEDULES))
        self.schedule, self.per_rank = SCHEDULES[place]
        self.kind = list(EXPECTED)[(place + turn) % len(EXPECTED)]
        self.pp, self.dp = random.choice([(2, 1), (2, 1), (2, 2), (4, 1)])
        self.strategy = random.choice(STRATEGIES)
        self.rank = random.randrange(self.pp * self.dp)
        # Of three steps; the shortest row has 12 actions per step.
        self.action = random.randrange(36)
        self.recipe = recipe(folder, self.schedule, self.per_rank, self.pp, self.dp, self.strategy, 3)

    def __str__(self):
        return (f"{self.kind} of rank {self.rank} before action {self.action}: {self.schedule} pp {self.pp} dp {self.dp} {self.strategy}")

    def run(self):
        return run_job([ARGUMENTS.mpirun, "--oversubscribe", "-np", str(self.pp * self.dp), ARGUMENTS.failing_run,
                        f"{self.kind}:{self.rank}:{self.action}", str(self.recipe)], LIMIT)


def processes(pid, children):
    """The process, or those that it started."""
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split() if children else [pid]


def is_worker(pid):
    try:
        return pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name == "automodel-worker"
    except OSError:  # it has ended
        return False


def last_without_banner(ended):
    """The last line that is not a separator of mpirun's."""
    return next((line for line in reversed(ended.lines) if set(line) != {"-"}), "")


def hang(cause):
    return lambda injection, place: (12, rf"^rank \d: error\[hang\]: rank (?!{injection.rank},)\d, step \d, action .*, waited \d\.?\d* s for ranks? [\d, ]+ "
                                     rf"in .* of group '.*': rank {injection.rank} \(host .*\) " + cause.format(place=re.escape(place)), DEADLINE)


# What a fault must end with: exit code, last line, seconds on top of a run without a fault.
EXPECTED = {
    "stall": hang(r"never came: {place} \(.* s\), not waiting for anyone$"),
    "kill": lambda injection, place: (137, rf"process rank {injection.rank} .*signal 9 \(Killed\)", 0),
    "throw": lambda injection, place: (3, rf"^rank {injection.rank}: error\[does-not-fit\]: the model does not fit$", 0),
    "stop": hang(r"does not answer: the process is stopped or its host overloaded$"),
    "defect": lambda injection, place: (70, rf"^rank {injection.rank}: error\[internal\]: impossible$", 0),
    "segv": lambda injection, place: (139, rf"process rank {injection.rank} .*signal 11 \(Segmentation fault\)", 0),
}


class Faults(unittest.TestCase):
    def test_every_fault_ends_the_run_in_time_and_names_its_rank(self):
        chance = random.Random(ARGUMENTS.seed)
        seconds = collections.defaultdict(list)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(ARGUMENTS.faults):
                injection = Injection(folder, chance, number)
                with self.subTest(str(injection)):
                    ended = injection.run()
                    self.assertIsNotNone(ended, "the run hangs")
                    self.check(injection, ended)
                    seconds[injection.kind].append(ended.seconds)
                    print(f"{number + 1}: {injection}: {ended.seconds:.1f} s", flush=True)
        total = sum(len(times) for times in seconds.values())
        print(f"\n{total} of {ARGUMENTS.faults} faults ended as they must (seed {ARGUMENTS.seed}, deadline {DEADLINE} s)")
        for kind, times in seconds.items():
            print(f"  {kind:8} {len(times):4} runs, {min(times):5.1f} to {max(times):5.1f} s")

    def check(self, injection, ended):
        text = "\n".join(ended.lines)
        struck = re.search(r"^fault: (.*)$", ended.output, re.M)
        self.assertIsNotNone(struck, "the fault did not strike\n" + text)
        code, line, wait = EXPECTED[injection.kind](injection, struck[1])
        self.assertEqual(ended.code, code, text)
        self.assertRegex(last_without_banner(ended), line, text)
        self.assertLess(ended.seconds, wait + 50, text)  # start-up on a busy machine included


class WithoutFaults(unittest.TestCase):
    def test_the_same_runs_end_well_without_a_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            for schedule, per_rank in SCHEDULES[:2] if ARGUMENTS.faults < 100 else SCHEDULES:
                path = recipe(folder, schedule, per_rank, 2, 1, "ddp", 3)
                ended = run_job([ARGUMENTS.mpirun, "--oversubscribe", "-np", "2", ARGUMENTS.failing_run, "none:1:0", str(path)], LIMIT)
                self.assertEqual(ended.code, 0, ended.lines)
                self.assertGreaterEqual(int(re.search(r"actions: (\d+)", ended.output)[1]), 36)


class Signals(unittest.TestCase):
    """SIGTERM and SIGUSR1 end a run at the end of its step, with exit code 10."""

    def start(self, folder, ranks, *launcher):
        path = recipe(folder, "1F1B", 1, ranks, 1, "ddp", 1_000_000)
        command = [*launcher, str(pathlib.Path(ARGUMENTS.bin) / "automodel"), "train", str(path)]
        if not launcher and ranks > 1:
            command += ["--nproc-per-node", str(ranks)]
        self.job = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in self.job.stdout:
            if line.startswith("step 3 "):
                return
        self.fail("the run ended early:\n" + self.job.stderr.read())

    def finish(self, folder):
        begin = time.monotonic()
        try:
            output, errors = self.job.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.job.kill()
            self.fail("the run did not end")
        self.assertEqual(self.job.returncode, 10, output + errors)
        self.assertLess(time.monotonic() - begin, 10)
        stopped = re.search(r"^stopped by a signal after step (\d+)$", output, re.M)
        self.assertIsNotNone(stopped, output + errors)
        rows = [json.loads(line) for line in (pathlib.Path(folder) / "run" / "training.jsonl").read_text().splitlines()]
        self.assertEqual([row["step"] for row in rows], list(range(int(stopped[1]) + 1)))

    def check(self, number, ranks, *launcher):
        with tempfile.TemporaryDirectory() as folder:
            self.start(folder, ranks, *launcher)
            self.job.send_signal(number)
            self.finish(folder)

    def test_sigterm_ends_a_run_of_one_rank(self):
        self.check(signal.SIGTERM, 1)

    def test_sigusr1_ends_a_run_of_one_rank(self):
        self.check(signal.SIGUSR1, 1)

    def test_sigterm_ends_a_run_that_started_mpirun_itself(self):
        self.check(signal.SIGTERM, 2)

    def test_sigusr1_ends_a_run_that_started_mpirun_itself(self):
        self.check(signal.SIGUSR1, 2)

    def test_mpirun_passes_sigusr1_on(self):
        self.check(signal.SIGUSR1, 2, ARGUMENTS.mpirun, "--oversubscribe", "-np", "2")

    def check_ctrl_c(self, times, code, seconds):
        """Two ranks on a terminal, with steps of more than `seconds`: longer than the second that mpirun gives its ranks on
        Ctrl-C. As many sequences as this machine needs for that."""
        sequences = 4096
        while True:
            ended, waited, text, rows = self.interrupted(times, sequences)
            if rows[0]["step_time"] > seconds:
                self.assertEqual(ended, code, text)
                self.assertLess(waited, 30, text)
                return text, rows
            sequences *= 2
            self.assertLess(sequences, 65536, "no step was long enough")

    def interrupted(self, times, sequences):
        with tempfile.TemporaryDirectory() as folder:
            path = recipe(folder, "1F1B", 1, 2, 1, "ddp", 1_000_000)
            program = str(pathlib.Path(ARGUMENTS.bin) / "automodel")
            child, terminal = pty.fork()
            if child == 0:
                os.execve(program, [program, "train", str(path), "--nproc-per-node", "2", "--step_scheduler.global_batch_size", str(sequences),
                                    "--dataset.num_samples", "65536"], ENVIRONMENT)
            shown, typed, last = b"", 0, 0.0
            while True:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:  # the program has closed the terminal
                    break
                if not typed and b"step 0 |" in shown or 0 < typed < times and b"Ctrl-C again" in shown:
                    time.sleep(0.3)  # into the next step
                    os.write(terminal, b"\x03")
                    typed += 1
                    last = time.monotonic()
            _, status = os.waitpid(child, 0)
            text = shown.decode(errors="replace")
            rows = [json.loads(line) for line in (pathlib.Path(folder) / "run" / "training.jsonl").read_text().splitlines()]
            return os.waitstatus_to_exitcode(status), time.monotonic() - last, text, rows

    def test_ctrl_c_lets_the_ranks_of_a_terminal_finish_their_step(self):
        text, rows = self.check_ctrl_c(1, 10, 2.5)
        stopped = re.search(r"stopped by a signal after step (\d)", text)
        self.assertIsNotNone(stopped, text)
        self.assertIn(int(stopped[1]), (1, 2))  # ranks agree on the last step when a step begins
        self.assertEqual([row["step"] for row in rows], list(range(int(stopped[1]) + 1)))

    def test_a_second_ctrl_c_ends_them_at_once(self):
        text, rows = self.check_ctrl_c(2, 130, 4)
        self.assertNotIn("stopped by a signal", text)
        self.assertEqual([row["step"] for row in rows], [0])

    def check_start_up(self, number, ranks, *launcher):
        """Sends the signal when a rank's worker has just begun: it loads its libraries then, and knows no signal yet."""
        with tempfile.TemporaryDirectory() as folder:
            path = recipe(folder, "1F1B", 1, ranks, 1, "ddp", 1_000_000)
            command = [*launcher, str(pathlib.Path(ARGUMENTS.bin) / "automodel"), "train", str(path)]
            self.job = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            begin = time.monotonic()
            while sum(map(is_worker, processes(self.job.pid, children=bool(launcher)))) < ranks:
                self.assertLess(time.monotonic() - begin, 30, "no worker began")
                time.sleep(0.001)
            self.job.send_signal(number)
            self.finish(folder)

    def test_a_signal_while_a_run_starts_ends_it_after_its_first_step(self):
        self.check_start_up(signal.SIGTERM, 1)
        self.check_start_up(signal.SIGUSR1, 1)

    def test_a_signal_while_ranks_start_ends_them_after_their_first_step(self):
        self.check_start_up(signal.SIGUSR1, 2, ARGUMENTS.mpirun, "--oversubscribe", "-np", "2")

    def test_a_signal_while_mpirun_starts_ends_the_run(self):
        """mpirun alone loses a signal before its ranks run, or a rank is ended by it."""
        for number, delay in ((signal.SIGUSR1, 0), (signal.SIGTERM, 0.02), (signal.SIGUSR1, 0.05), (signal.SIGTERM, 0.1), (signal.SIGUSR1, 0.2)):
            with self.subTest(delay=delay), tempfile.TemporaryDirectory() as folder:
                path = recipe(folder, "1F1B", 1, 2, 1, "ddp", 1_000_000)
                command = [str(pathlib.Path(ARGUMENTS.bin) / "automodel"), "train", str(path), "--nproc-per-node", "2"]
                with open(os.devnull, "w") as null:
                    job = subprocess.Popen(command, env=ENVIRONMENT, stdout=null, stderr=null)
                while not subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True).stdout:
                    time.sleep(0.002)
                time.sleep(delay)
                job.send_signal(number)
                self.assertEqual(job.wait(timeout=30), 10)

    def test_a_signal_that_is_switched_off_ends_a_starting_run_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            path = recipe(folder, "1F1B", 1, 1, 1, "ddp", 1_000_000)
            command = [str(pathlib.Path(ARGUMENTS.bin) / "automodel"), "train", str(path), "--step_scheduler.preemption_signal", "null"]
            job = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(0.1)
            job.send_signal(signal.SIGTERM)
            job.communicate(timeout=30)
            self.assertEqual(job.returncode, -signal.SIGTERM)

    def test_a_signal_to_one_rank_stops_all(self):
        with tempfile.TemporaryDirectory() as folder:
            self.start(folder, 2, ARGUMENTS.mpirun, "--oversubscribe", "-np", "2")
            ranks = subprocess.run(["pgrep", "-P", str(self.job.pid)], capture_output=True, text=True).stdout.split()
            self.assertEqual(len(ranks), 2)
            os.kill(int(ranks[1]), signal.SIGTERM)
            self.finish(folder)


class TwoHosts(TwoHostsCase):
    def test_a_run_whose_hosts_lose_each_other_names_the_host(self):
        path = recipe(self.folder, "1F1B", 1, 2, 1, "ddp", 1_000_000)
        self.start(ARGUMENTS.mpirun, f"{ARGUMENTS.failing_run} none:1:40 {path}")
        self.lose_network("fault: step ")
        ended = self.end(LIMIT)
        self.assertIn(ended.code, (12, -signal.SIGKILL))
        self.assertRegex(ended.last, rf"^rank 0: error\[hang\]: rank 0, step \d+, action .*: rank 1 \(host {self.hosts[1]}\) does not answer: host unreachable$")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mpirun")
    parser.add_argument("bin")
    parser.add_argument("failing_run")
    parser.add_argument("--faults", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
