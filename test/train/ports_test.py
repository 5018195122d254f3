#!/usr/bin/env python3
"""On one host, everything that listens listens on the loopback interface: ranks, their monitors, and Open MPI.

Reads /proc while a run lasts: the listening sockets of the program and of everything that it started.

  ports_test.py BIN_FOLDER [unittest arguments]
"""
import ipaddress
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

RECIPE = """\
device: cpu
model: {{config: {{model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 4, vocab_size: 64, max_position_embeddings: 16}}}}
dataset: {{_target_: mock, vocab_size: 64, seq_length: 8, num_samples: 100000}}
logging: {{progress: false, tensorboard: false}}
step_scheduler: {{global_batch_size: 4, local_batch_size: 1, max_steps: 20000, num_epochs: null}}
checkpoint: {{enabled: {saves}, checkpoint_dir: {folder}/run}}
"""
LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp


def address_of(text):
    """Of /proc/net/tcp: 32-bit words in the machine's byte order (little-endian wherever this program runs)."""
    raw = bytes.fromhex(text)
    return ipaddress.ip_address(b"".join(raw[at:at + 4][::-1] for at in range(0, len(raw), 4)))


def listening():
    """{inode: (address, port)} of this network namespace."""
    out = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            words = line.split()
            address, port = words[1].split(":")
            if words[3] == LISTENS:
                out[words[9]] = (address_of(address), int(port, 16))
    return out


def family_of(process):
    """A process and its descendants: {pid: name}."""
    parents, names = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has ended
            continue
        pid = int(folder.name)
        names[pid] = text[text.index("(") + 1:text.rindex(")")]
        parents[pid] = int(text[text.rindex(")") + 1:].split()[1])
    out, grew = {process}, True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in out} - out
        out |= more
        grew = bool(more)
    return {pid: names.get(pid, "") for pid in out}


def sockets_of(pid):
    out = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            out.add(target[8:-1])
    return out


class Ports(unittest.TestCase):

    def listeners(self, *words, saves="false"):
        """{(name, address)} of all that listened before the run's tenth step."""
        with tempfile.TemporaryDirectory() as folder:
            recipe = pathlib.Path(folder) / "ports.yaml"
            recipe.write_text(RECIPE.format(folder=folder, saves=saves))
            environment = dict(os.environ, OMPI_MCA_rmaps_base_oversubscribe="1", AUTOMODEL_CALIBRATION="", OMP_NUM_THREADS="1",
                               LD_PRELOAD=self.preload)
            if not self.preload:
                del environment["LD_PRELOAD"]
            run = subprocess.Popen([binaries / "automodel", "train", recipe, *words], env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
            found, steps = set(), 0
            try:
                log = pathlib.Path(folder) / "run/training.jsonl"
                end = time.monotonic() + 120
                while steps < 10 and time.monotonic() < end and run.poll() is None:
                    sockets = listening()
                    for pid, name in family_of(run.pid).items():
                        found |= {(name, sockets[inode][0]) for inode in sockets_of(pid) if inode in sockets}
                    steps = len(log.read_text().splitlines()) if log.exists() else 0
                    time.sleep(0.02)
                environments = [
                    pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid, name in family_of(run.pid).items()
                    if name.startswith("automodel-worke")
                ]
                self.preloads = {each for words in environments for each in words if each.startswith(b"LD_PRELOAD=")}
            finally:
                run.terminate()
                output = run.communicate(timeout=60)[0]
            self.assertGreaterEqual(steps, 10, output)
        return found

    preload = ""

    def all_on_loopback(self, found):
        self.assertEqual(sorted({name for name, address in found if not address.is_loopback}), [], found)

    def test_one_rank_does_not_listen(self):
        self.assertEqual(self.listeners(), set())

    def test_ranks_and_mpirun_listen_on_the_loopback_interface(self):
        found = self.listeners("--nproc-per-node", "2", "--distributed.strategy", "ddp")
        self.all_on_loopback(found)
        # Otherwise nothing was looked at: mpirun always listens, and so do the ranks' monitors.
        self.assertLessEqual({"mpirun"}, {name for name, _ in found})
        self.assertTrue([name for name, _ in found if name.startswith("automodel-worke")], found)
        self.assertEqual(self.preloads, {b"LD_PRELOAD="})

    def test_supervised_ranks_too(self):
        found = self.listeners("--nproc-per-node", "2", "--max-restarts", "1", saves="true")
        self.all_on_loopback(found)
        self.assertLessEqual({"mpirun"}, {name for name, _ in found})

    def test_ranks_keep_what_the_user_preloads(self):
        self.preload = "libdl.so.2"
        self.all_on_loopback(self.listeners("--nproc-per-node", "2"))
        self.assertEqual(self.preloads, {b"LD_PRELOAD=libdl.so.2"})


if __name__ == "__main__":
    binaries = pathlib.Path(sys.argv.pop(1))
    unittest.main()
