#!/usr/bin/env python3
"""Many faults and their outcomes: prints tables for docs/reliability.md. A short sample runs in CI.

  soak.py BIN_FOLDER kills  [--faults N] [--seed N]   kill -9 of random ranks; each time the run resumes on another mesh
  soak.py BIN_FOLDER faults [--faults N] [--seed N] [--every SECONDS] [--steps N] [--batch N] [--hosts]
                                                      random faults in runs that start again by themselves;
                                                      --hosts: a rank on each of two hosts (network namespaces; needs
                                                      root), whose link is cut as well

Every run must end with the losses of an undisturbed run on one rank, and nothing may hang.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "comm"))
from jobs import ENVIRONMENT  # noqa: E402
from namespaces import Namespaces, Unavailable  # noqa: E402
from supervised import is_worker, processes_below, workers_below  # noqa: E402

LIMIT = 180  # seconds without a new step: the run hangs
# Double precision, since meshes sum in different orders and the losses must still agree. Adam's usual eps of 1e-8 would make
# large updates from gradients near zero, and differences in the last bit would grow tenfold every few steps; with 0.1 they
# do not grow for 2,500 steps, and both moments still have an effect.
TOLERANCE = 1e-6

RECIPE = """\
seed: 1
device: cpu
model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, num_attention_heads: 4,
  num_key_value_heads: 2, vocab_size: 128, max_position_embeddings: 64}, torch_dtype: float64}
dataset: {_target_: mock, vocab_size: 128, seq_length: 64, num_samples: 4096}
logging: {progress: false, tensorboard: false}
optimizer: {_target_: adamw, lr: 0.003, eps: 0.1}
step_scheduler: {local_batch_size: 4, num_epochs: null}
checkpoint: {checkpoint_dir: run, max_recent_checkpoints: 2}
dist_env: {timeout_minutes: 0.1}
fault_tolerance: {start_minutes: 1}
"""

# The number of ranks and the mesh as command-line words.
MESHES = [(1, ["--distributed", "{strategy: ddp}"]),
          (2, ["--distributed", "{strategy: ddp}"]),
          (2, ["--distributed", "{strategy: fsdp2}"]),
          (4, ["--distributed", "{strategy: fsdp2}"]),
          (2, ["--distributed", "{strategy: ddp, tp_size: 2}"]),
          (2, ["--distributed", "{strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}}"]),
          (4, ["--distributed", "{strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, pp_microbatch_size: 1}}",
               "--model_parallel.virtual_pipeline_model_parallel_size", "2"])]


class Soak:
    def __init__(self, binary, seed, steps, batch):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        (self.folder / "r.yaml").write_text(RECIPE)
        self.binary, self.chance, self.job, self.steps = binary, random.Random(seed), None, steps
        # Saves cost more than steps of this size: about one in fifteen steps, and several in a short run.
        self.words = ["--step_scheduler.max_steps", str(steps), "--step_scheduler.global_batch_size", str(batch), "--step_scheduler.ckpt_every_steps", str(min(15, max(3, steps // 13)))]
        self.environment, self.network = ENVIRONMENT, None

    def start(self, *words):
        command = [str(pathlib.Path(self.binary) / "automodel"), "train", "r.yaml", *self.words, *words]
        if self.network:
            command = self.network.on(self.network.hosts[0], command)
        with open(self.folder / "errors", "a") as errors:
            self.job = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL, stderr=errors)

    def prepare_faults(self):
        """The clock and disk faults of a running rank (fault_preload.c)."""
        library, self.page = self.folder / "faults.so", self.folder / "faults"
        source = pathlib.Path(__file__).resolve().parent / "fault_preload.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
        self.tell(0, 0)
        self.environment = {**ENVIRONMENT, "LD_PRELOAD": str(library), "SOAK_FAULTS": str(self.page)}

    def tell(self, clock_seconds, disk_milliseconds):
        with open(self.page, "r+b" if self.page.exists() else "wb") as page:
            page.write(struct.pack("=qq", clock_seconds, disk_milliseconds))

    def use_hosts(self):
        """The run's ranks are on two hosts from now on."""
        self.network = Namespaces(self.folder, 2)
        self.network.start()
        launcher = self.network.launcher(self.folder / "agent")
        (self.folder / "hosts").write_text("".join(f"{host} slots=1\n" for host in self.network.hosts))
        return ["--min-ranks", "1", "--start-with",
                f"mpirun {shlex.join(launcher)} --bind-to none -x LD_PRELOAD -x SOAK_FAULTS -np 2 --hostfile hosts"]

    def workers(self):
        if not self.network:
            return workers_below(self.job.pid)
        return sorted(pid for host in self.network.hosts for pid in self.network.processes(host) if is_worker(pid))

    def rows(self, name="run"):
        try:
            lines = (self.folder / name / "training.jsonl").read_text().splitlines()
        except OSError:
            return []
        rows = []
        for line in lines:
            try:
                rows.append(json.loads(line))
            except ValueError:
                pass  # incomplete or damaged
        return rows

    def last_step(self):
        rows = self.rows()
        return rows[-1]["step"] if rows else -1

    def wait(self, done):
        """Waits until done() or the end of the run; a run without progress hangs."""
        moved, seen = time.monotonic(), None
        while self.job.poll() is None and not done():
            now = self.last_step()
            if now != seen:
                moved, seen = time.monotonic(), now
            if time.monotonic() - moved > LIMIT:
                self.fail("the run hangs")
            time.sleep(0.01)

    def fail(self, why):
        text = (self.folder / "errors").read_text()
        if self.job and self.job.poll() is None:
            for pid in processes_below(self.job.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        sys.exit(f"{why} (files in {self.folder})\n{text[-4000:]}")

    def reference(self):
        self.start("--checkpoint.checkpoint_dir", "quiet")
        if self.job.wait(10 * LIMIT) != 0:
            self.fail("the undisturbed run failed")
        self.wanted = [row["loss"] for row in self.rows("quiet")]

    def check(self):
        rows = self.rows()
        if [row["step"] for row in rows] != list(range(self.steps)):
            self.fail(f"steps are missing: {[row['step'] for row in rows]}")
        worst = max(abs(row["loss"] - wanted) / wanted for row, wanted in zip(rows, self.wanted))
        if not worst <= TOLERANCE:
            self.fail(f"a loss is {worst:.1e} apart")
        shutil.rmtree(self.folder / "run")
        return worst

    def kill_worker(self, number):
        workers = self.workers()
        if workers:
            os.kill(self.chance.choice(workers), number)
        return bool(workers)


def kills(soak, faults):
    """Changes the mesh after each kill, until a run has all its steps."""
    done, runs, worst, meshes = 0, 0, 0.0, collections.Counter()
    while done < faults:
        while True:
            ranks, words = soak.chance.choice(MESHES)
            meshes[f"{ranks} ranks, {words[1]}"] += 1
            soak.start(*words, *(["--nproc-per-node", str(ranks)] if ranks > 1 else []))
            begin = soak.last_step()
            target = begin + soak.chance.randint(1, 8)
            soak.wait(lambda: soak.last_step() >= target and target < soak.steps - 1)
            if soak.job.poll() is None and soak.kill_worker(signal.SIGKILL):
                done += 1
            code = soak.job.wait(LIMIT)
            if code == 0:
                break
            if code not in (137, -9):
                soak.fail(f"exit code {code} after a kill")
        runs += 1
        worst = max(worst, soak.check())
        print(f"{done} kills, {runs} runs whole, losses at most {worst:.1e} apart", flush=True)
    print(f"\n| kills | runs | largest difference of a loss |\n| --- | --- | --- |\n| {done} | {runs} | {worst:.1e} |\n")
    for mesh, count in sorted(meshes.items()):
        print(f"    {count:4} x {mesh}")


def limit(kind, value):
    def strike(pid):
        resource.prlimit(pid, kind, (value, value))
    return strike


def storm(pid):
    for _ in range(200):
        os.kill(pid, signal.SIGWINCH)
        os.kill(pid, signal.SIGCONT)


def less_memory(pid):
    """Limits memory to the current usage, so that the next larger allocation fails."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0])
    limit(resource.RLIMIT_AS, pages * resource.getpagesize())(pid)


# The faults of a single rank, by name.
TO_A_RANK = {"kill": lambda pid: os.kill(pid, signal.SIGKILL),
             "stop": lambda pid: os.kill(pid, signal.SIGSTOP),
             "crash": lambda pid: os.kill(pid, signal.SIGSEGV),
             "full disk": limit(resource.RLIMIT_FSIZE, 1024),
             "memory limit": less_memory,
             "signal storm": storm}


def jump(soak):
    soak.tell(soak.chance.choice([-86400, -3600, 3600, 86400]), 0)


def slow_disk(soak):
    soak.tell(0, 400)
    time.sleep(5)
    soak.tell(0, 0)


def cut_link(soak):
    """Cuts the link for longer than a rank waits; the host is back for a later restart."""
    soak.network.set_link(soak.network.hosts[1], "down")
    time.sleep(20)
    soak.network.set_link(soak.network.hosts[1], "up")


# The faults of all ranks.
TO_ALL = {"clock jump": jump, "slow disk": slow_disk}


def faults(soak, count, every, hosts):
    soak.prepare_faults()
    start = soak.use_hosts() if hosts else []
    kinds = [*TO_A_RANK, *TO_ALL, *(["cut link"] if hosts else [])]
    deck = []  # faults to inject, so that all kinds occur equally often
    struck, meshes, restarts, runs, worst, begin = collections.Counter(), collections.Counter(), 0, 0, 0.0, time.monotonic()
    while sum(struck.values()) < count:
        ranks, words = (2, ["--distributed", "{strategy: fsdp2}"]) if hosts else soak.chance.choice(MESHES[1:])
        meshes[f"{ranks} ranks, {words[1]}"] += 1
        soak.start(*(start or ["--nproc-per-node", str(ranks)]), "--max-restarts", "1000", *words)
        struck_at, known = -1, []
        while soak.job.poll() is None:
            next_time = time.monotonic() + soak.chance.uniform(0.5, 1.5) * every
            # Behind the step of the last fault: a restart repeats steps, and two faults at one step end the run as one
            # that makes no progress.
            soak.wait(lambda: time.monotonic() > next_time and soak.last_step() > struck_at)
            workers = soak.workers() if soak.job.poll() is None else []
            if workers != known:  # a fault may act later than it was struck: a full disk at the next save
                struck_at, known = max(struck_at, soak.last_step()), workers
                continue
            if not workers or sum(struck.values()) >= count:
                continue
            if not deck:
                deck = soak.chance.sample(kinds, len(kinds))
            kind = deck.pop()
            struck_at = max(struck_at, soak.last_step())
            try:
                if kind in TO_A_RANK:
                    TO_A_RANK[kind](soak.chance.choice(workers))
                else:
                    {**TO_ALL, "cut link": cut_link}[kind](soak)
                struck[kind] += 1
            except (ProcessLookupError, PermissionError, FileNotFoundError):
                pass  # the process has just ended
        if soak.job.returncode != 0:
            soak.fail(f"the run ended with {soak.job.returncode}")
        path = soak.folder / "run" / "events.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        again = [event for event in events if event["event"] == "restart"]
        if any(not event["cause"] for event in again):
            soak.fail("a restart has no cause")
        restarts, runs, worst = restarts + len(again), runs + 1, max(worst, soak.check())
        print(f"{(time.monotonic() - begin) / 60:.0f} minutes: {sum(struck.values())} faults, {restarts} restarts, {runs} runs whole, "
              f"losses at most {worst:.1e} apart", flush=True)
    print("\n| fault | times |\n| --- | --- |")
    for kind, times in sorted(struck.items()):
        print(f"| {kind} | {times} |")
    print()
    for mesh, times in sorted(meshes.items()):
        print(f"    {times:4} x {mesh}")
    print(f"\n{restarts} restarts, each with its cause; {runs} runs, losses at most {worst:.1e} from the undisturbed run's")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("what", choices=["kills", "faults"])
    parser.add_argument("--faults", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hosts", action="store_true")
    arguments = parser.parse_args()
    soak = Soak(os.path.abspath(arguments.bin), arguments.seed, arguments.steps, arguments.batch)
    try:
        soak.reference()
        if arguments.what == "kills":
            kills(soak, arguments.faults)
        else:
            faults(soak, arguments.faults, arguments.every, arguments.hosts)
        shutil.rmtree(soak.folder)
    except Unavailable as problem:
        sys.exit(f"no two hosts: {problem}")
    finally:
        if soak.network:
            soak.network.stop()


if __name__ == "__main__":
    main()
