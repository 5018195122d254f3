#!/usr/bin/env python3
"""Two machines without Slurm and without a shared folder for programs and data, as docs/cluster.md sets them up:
two_hosts_test.py BUILD_FOLDER

The hosts are network namespaces. The archive, LibTorch and the data are in different folders on each; symbolic links at the
same path lead to them; recipe and checkpoints are shared. Skipped (77) if namespaces or Open MPI are missing.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent / "comm")]
from namespaces import Namespaces, Unavailable  # noqa: E402
from packed import RECIPE, libtorch, link_tree, pack  # noqa: E402

STEPS = 4
LIMIT = 300


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def lay_out(place, archive, torch, host, where, rows):
    """The files of this host, and the folder of links that has the same path on both hosts."""
    for folder in where.values():
        (place / host / folder).mkdir(parents=True)
    program, data = place / host / where["program"], place / host / where["data"]
    subprocess.run(["tar", "-xzf", archive, "-C", program, "--strip-components", "1"], check=True)
    link_tree(torch, place / host / where["torch"] / "torch")
    if (torch.parent / "nvidia").exists():
        link_tree(torch.parent / "nvidia", place / host / where["torch"] / "nvidia")
    (data / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"{i} + {i}?", "response": str(2 * i)}) + "\n" for i in range(rows)))
    links = place / host / "links"
    (links / "bin").mkdir(parents=True)
    # As docs/cluster.md gives it.
    start = links / "bin/automodel"
    start.write_text(f'#!/bin/sh\nAUTOMODEL_LIBTORCH={place / host / where["torch"] / "torch"} exec {program}/bin/automodel "$@"\n')
    start.chmod(0o755)
    (links / "data").symlink_to(data)
    return links


class Cluster:
    def __init__(self, place, network):
        self.place, self.network, self.here, self.work = place, network, place / "here", place / "work"
        # From outside, since the first host does not see the mounts of the second one.
        self.launcher = network.launcher(place / "ssh", ["nsenter", f"--mount=/proc/{os.getpid()}/ns/mnt"])
        (self.work / "hosts").write_text("".join(f"{host} slots=1\n" for host in network.hosts))

    def mpirun(self, *words):
        """Runs words on the first host, with the options for the replacement of ssh and for the network of this test."""
        command = ["mpirun", "--hostfile", "hosts", *self.launcher, *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.place), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMP_NUM_THREADS": "1", "AUTOMODEL_CALIBRATION": "", "LANG": "C.UTF-8"}
        return subprocess.run(self.network.on(self.network.hosts[0], command), cwd=self.work, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if shutil.which("mpirun") is None:
        skip("no mpirun here")
    place = pathlib.Path(tempfile.mkdtemp(prefix="two-hosts-"))
    network = Namespaces(place, 2)
    try:
        try:
            network.start()
        except Unavailable as problem:
            skip(problem)
        _, archive = pack(build, place / "packages")
        layouts = [{"program": "software/automodel", "torch": "libraries", "data": "disk1/corpus"}, {"program": "opt/am", "torch": "opt/lib/torch-2", "data": "scratch"}]
        here = place / "here"
        here.mkdir()
        for host, where in zip(network.hosts, layouts):
            network.mount(host, lay_out(place, archive, libtorch(build), host, where, 64), here)
        for host, other in (network.hosts, network.hosts[::-1]):
            # The files of the other host are hidden by an empty folder mounted over them.
            (place / f"nothing-{host}").mkdir()
            network.mount(host, place / f"nothing-{host}", place / other)
        (place / "work").mkdir()
        cluster = Cluster(place, network)
        recipe = RECIPE.replace("{_target_: mock, vocab_size: 64, seq_length: 16, num_samples: 64}",
                                "{_target_: jsonl, path: %s/data/rows.jsonl, tokenizer: bytes, cache: false}" % here).replace("vocab_size: 64", "vocab_size: 260")
        (cluster.work / "r.yaml").write_text(recipe)

        asked = cluster.mpirun("--map-by", "ppr:1:node", here / "bin/automodel", "doctor")
        assert asked.returncode == 0 and asked.stdout.count("automodel-worker starts with its libraries") == 2, asked.stdout
        trained = cluster.mpirun("-np", "2", "--map-by", "ppr:1:node", "--bind-to", "none", here / "bin/automodel", "train", "r.yaml")
        assert trained.returncode == 0 and f"step {STEPS - 1} |" in trained.stdout, trained.stdout
        assert (cluster.work / f"run/epoch_0_step_{STEPS - 1}/model").exists(), trained.stdout
        print("two hosts: doctor on both, trained")

        # A file that is missing only on the second host is reported with the rank.
        again = ["-np", "2", "--map-by", "ppr:1:node", here / "bin/automodel", "train", "r.yaml", "--checkpoint.resume", "never"]
        (place / network.hosts[1] / "scratch/rows.jsonl").rename(place / "rows.jsonl")
        missing = cluster.mpirun(*again)
        assert missing.returncode not in (0, 1) and "rank 1: " in missing.stdout and "rows.jsonl" in missing.stdout, missing.stdout
        (place / "rows.jsonl").rename(place / network.hosts[1] / "scratch/rows.jsonl")
        (place / network.hosts[1] / "opt/lib/torch-2/torch/lib/libtorch_cpu.so").unlink()
        without = cluster.mpirun(*again)
        assert without.returncode not in (0, 1) and "there is no LibTorch" in without.stdout, without.stdout
        asked = cluster.mpirun("--map-by", "ppr:1:node", here / "bin/automodel", "doctor")
        assert asked.returncode == 4, f"exit {asked.returncode}\n{asked.stdout}"
        print("data and LibTorch that one host lacks are named")
    finally:
        network.stop()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
