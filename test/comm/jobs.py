"""Jobs under mpirun, on this host or on two hosts made of network namespaces, and how they ended."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
SUBNET = "10.213.77"


class Ended:
    """A finished job: its exit code, its lines and the seconds it took."""

    def __init__(self, code, output, errors, seconds):
        self.code, self.output, self.seconds = code, output, seconds
        self.lines = [line for line in errors.splitlines() if line.strip()]

    @property
    def last(self):
        return self.lines[-1] if self.lines else ""


def run_job(command, limit):
    """Ended, or None for a job that was still running after `limit` seconds (it is killed)."""
    begin = time.monotonic()
    job = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, errors = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        return None
    return Ended(job.returncode, output, errors, time.monotonic() - begin)


class TwoHostsCase(unittest.TestCase):
    """Two network namespaces joined by a veth pair stand for two hosts (needs root and iproute2)."""

    def setUp(self):
        self.hosts = [f"amt{os.getpid() % 10000}{side}" for side in "ab"]
        self.links = [f"{host}0" for host in self.hosts]
        if os.geteuid() != 0 or shutil.which("ip") is None:
            self.skipTest("network namespaces need root and iproute2")
        made = subprocess.run(["ip", "netns", "add", self.hosts[0]], capture_output=True, text=True)
        if made.returncode != 0:
            self.skipTest("network namespaces are not allowed here: " + made.stderr.strip())
        self.addCleanup(self.clean)
        commands = [f"ip netns add {self.hosts[1]}", f"ip link add {self.links[0]} type veth peer name {self.links[1]}"]
        for number, (host, link) in enumerate(zip(self.hosts, self.links), 1):
            inside = f"ip netns exec {host} ip"
            commands += [f"ip link set {link} netns {host}", f"{inside} addr add {SUBNET}.{number}/24 dev {link}",
                         f"{inside} link set {link} up", f"{inside} link set lo up"]
            # What `ip netns exec` shows as /etc/hosts.
            folder = pathlib.Path("/etc/netns") / host
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
                f"{SUBNET}.{n} {name}\n" for n, name in enumerate(self.hosts, 1)))
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        # Files, since processes left on the lost host would keep pipes open.
        self.output, self.errors = self.folder / "output", self.folder / "errors"
        self.agent = self.folder / "agent"
        self.agent.write_text('#!/bin/sh\nhost=$1; shift; exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n')
        self.agent.chmod(0o755)

    def clean(self):
        for host in self.hosts:
            left = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout.split()
            for process in left:
                os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
            shutil.rmtree(pathlib.Path("/etc/netns") / host, ignore_errors=True)
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, mpirun, program, *options):
        """A rank on each host; `program` is a command line."""
        command = (f"hostname {self.hosts[0]}; exec {mpirun} --mca plm rsh --mca plm_rsh_agent {self.agent} -H {self.hosts[0]}:1,{self.hosts[1]}:1 "
                   f"--mca btl_tcp_if_include {SUBNET}.0/24 --mca oob_tcp_if_include {SUBNET}.0/24 --mca pml ob1 --mca btl self,tcp "
                   f"{' '.join(options)} -np 2 {program}")
        with self.output.open("w") as output, self.errors.open("w") as errors:
            self.job = subprocess.Popen(["ip", "netns", "exec", self.hosts[0], "unshare", "--uts", "sh", "-c", command], env=ENVIRONMENT,
                                        stdout=output, stderr=errors)

    def end(self, limit):
        begin = time.monotonic()
        try:
            self.job.wait(limit)
        except subprocess.TimeoutExpired:
            self.job.kill()
            self.fail(f"the job hangs; so far it said\n{self.errors.read_text()}")
        return Ended(self.job.returncode, self.output.read_text(), self.errors.read_text(), time.monotonic() - begin)

    def lose_network(self, when):
        """Cuts the link once the job has printed `when`."""
        while when not in self.output.read_text():
            if self.job.poll() is not None:
                self.fail("the job ended before the network was cut:\n" + self.errors.read_text())
            time.sleep(0.05)
        subprocess.run(["ip", "netns", "exec", self.hosts[0], "ip", "link", "set", self.links[0], "down"], check=True)
