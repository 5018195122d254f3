"""A real Slurm, for tests: controller, node daemons and munge; one node on loopback, or several in network namespaces."""
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "comm"))
from namespaces import SUBNET, Namespaces, Unavailable  # noqa: E402, F401

PROGRAMS = ["slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "squeue"]


def missing_programs():
    return [name for name in PROGRAMS if shutil.which(name) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.3)
    raise TimeoutError(f"{what} did not come up within {seconds} s")


class Cluster:
    """One controller and one node with two slots, in a folder of its own."""

    MORE = ""  # further lines of slurm.conf

    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "slurm.conf"
        self.environment = dict(os.environ, SLURM_CONF=str(self.config))
        self.daemons = {}
        host = socket.gethostname().split(".")[0]
        self.controller = (host, "127.0.0.1")
        self.nodes = [(host, "127.0.0.1")]

    def on(self, host, words):
        """The command line that runs `words` on a host."""
        return words

    def start(self):
        controller, node = free_ports(2)
        user = pwd.getpwuid(os.getuid()).pw_name
        run = self.folder
        for name in ("state", "log", *[f"{kind}.{host}" for kind in ("spool", "tmp") for host, _ in self.nodes]):
            (run / name).mkdir()
        key = run / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        munge = [shutil.which("munged"), "--foreground", "--force", f"--key-file={key}", f"--socket={run}/munge.socket",
                 f"--pid-file={run}/munged.pid", f"--log-file={run}/log/munged", f"--seed-file={run}/seed"]
        self.daemons["munged"] = subprocess.Popen(munge, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        names = ",".join(name for name, _ in self.nodes)
        self.config.write_text(f"""ClusterName=loopback
SlurmctldHost={self.controller[0]}({self.controller[1]})
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={run}/munge.socket,cred_expire=5
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool.%h
TmpFS={run}/tmp.%h
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd.%h.pid
SlurmctldLogFile={run}/log/slurmctld
SlurmdLogFile={run}/log/slurmd.%h
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=300
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{self.MORE}
{"".join(f"NodeName={name} NodeAddr={address} CPUs=2 State=UNKNOWN{chr(10)}" for name, address in self.nodes)}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes={names} MaxTime=INFINITE State=UP PriorityTier=2
""")
        wait_for(lambda: (run / "munge.socket").exists(), 20, "munged")
        self.daemon("slurmctld", self.controller[0])
        # A node that finds no controller retries only half a minute later.
        wait_for(lambda: "UP" in self.run(["scontrol", "ping"]).stdout, 30, "the controller")
        for name, _ in self.nodes:
            self.daemon("slurmd", name)
        wait_for(lambda: self.run(["sinfo", "-h", "-p", "all", "-o", "%T %D"]).stdout.split() == ["idle", str(len(self.nodes))], 60, "the nodes")

    def daemon(self, program, host):
        words = self.on(host, [shutil.which(program), "-D", "-f", str(self.config)])
        name = program if program == "slurmctld" else host
        if name in self.daemons:
            self.daemons[name].wait(timeout=10)  # it was killed
        with open(self.folder / "log" / f"{program}.{host}.out", "w") as log:
            self.daemons[name] = subprocess.Popen(words, stdout=log, stderr=log, env=self.environment)

    def run(self, words, **more):
        return subprocess.run(self.on(self.controller[0], words), env=self.environment, capture_output=True, text=True, timeout=60, **more)

    def submit(self, folder, script):
        sent = self.run(["sbatch", "--parsable", script], cwd=folder)
        assert sent.returncode == 0, sent.stderr
        return int(sent.stdout.split(";")[0])

    def state(self, job):
        out = self.run(["scontrol", "show", "job", str(job)]).stdout
        return dict(word.split("=", 1) for word in out.split() if "=" in word)

    def stop(self):
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # Steps and ranks of a job that is still running, which slurmd does not end.
        for pid in self.left_over():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def left_over(self):
        """Processes with this cluster's configuration in their environment."""
        mark = f"SLURM_CONF={self.config}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def logs(self):
        return [path for path in sorted((self.folder / "log").glob("*")) if path.is_file()]


class NamespaceCluster(Cluster):
    """Nodes in network namespaces of their own, and the controller in another. Raises `Unavailable` without them."""

    MORE = "SlurmdTimeout=10"

    def __init__(self, folder, count=2):
        super().__init__(folder)
        self.network = Namespaces(folder, count)
        self.nodes = list(zip(self.network.hosts, self.network.addresses))
        self.controller = (self.network.switch, self.network.switch_address)

    def on(self, host, words):
        return self.network.on(host, words)

    def start(self):
        self.network.start()
        super().start()

    def lose(self, host):
        """As if its power were cut: ends the daemon and all that runs there."""
        for pid in self.network.processes(host):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def stop(self):
        super().stop()
        self.network.stop()
