"""Hosts that are network namespaces of this machine, joined by a bridge. A command on one sees its own network, host name
and hosts file, and may have folders of its own mounted over others. Needs root and iproute2.
"""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess

SUBNET = "10.213.78"


class Unavailable(Exception):
    """Namespaces are not available here."""


class Namespaces:
    def __init__(self, folder, count):
        mark = f"amn{os.getpid() % 10000}"
        self.folder = pathlib.Path(folder)
        self.hosts = [f"{mark}{letter}" for letter in "abcdefgh"[:count]]
        self.addresses = [f"{SUBNET}.{number}" for number in range(1, count + 1)]
        self.switch, self.switch_address = f"{mark}s", f"{SUBNET}.254"
        self.mounts = {host: [] for host in self.hosts}

    def start(self):
        if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
            raise Unavailable("network namespaces need root, iproute2 and util-linux")
        made = subprocess.run(["ip", "netns", "add", self.switch], capture_output=True, text=True)
        if made.returncode != 0:
            raise Unavailable("network namespaces are not allowed here: " + made.stderr.strip())
        inside = ["ip", "-n", self.switch]
        commands = [[*inside, "link", "add", "br0", "type", "bridge"], [*inside, "addr", "add", f"{self.switch_address}/24", "dev", "br0"],
                    [*inside, "link", "set", "br0", "up"], [*inside, "link", "set", "lo", "up"]]
        for host, address in zip(self.hosts, self.addresses):
            there = ["ip", "-n", host]
            commands += [["ip", "netns", "add", host],
                         [*there, "link", "add", f"{host}0", "type", "veth", "peer", "name", f"{host}1", "netns", self.switch],
                         [*inside, "link", "set", f"{host}1", "master", "br0", "up"],
                         [*there, "addr", "add", f"{address}/24", "dev", f"{host}0"],
                         [*there, "link", "set", f"{host}0", "up"], [*there, "link", "set", "lo", "up"]]
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                self.stop()
                raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
        names = [*zip(self.addresses, self.hosts), (self.switch_address, self.switch)]
        (self.folder / "etc.hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in names))

    def mount(self, host, origin, target):
        """Commands on this host find `origin` at `target`, which must exist already."""
        self.mounts[host].append((origin, target))

    def on(self, host, words):
        """The command line that runs `words` on this host."""
        binds = [(self.folder / "etc.hosts", "/etc/hosts"), *self.mounts.get(host, [])]
        prepare = "".join(f"mount --bind {shlex.quote(str(origin))} {shlex.quote(str(target))} && " for origin, target in binds)
        return ["nsenter", f"--net=/run/netns/{host}", "unshare", "--uts", "--mount", "sh", "-c", f'{prepare}hostname {host} && exec "$@"',
                "sh", *map(str, words)]

    def launcher(self, agent, outside=()):
        """Options with which mpirun starts ranks on these hosts. Writes `agent`, which replaces ssh and refuses a host
        whose link is down. `outside`: words before each command, for an mpirun that itself runs on a host."""
        hosts = " ".join(f'{host}) exec {shlex.join([*outside, *self.on(host, [])])} sh -c "$*";;' for host in self.hosts)
        agent.write_text('#!/bin/bash\nwhile [[ "$1" == -* ]]; do shift; done\nhost=$1; shift\n'
                         f'ip -n "$host" link show "${{host}}0" | grep -q "state UP" || exit 255\ncase $host in {hosts} esac\nexit 255\n')
        agent.chmod(0o755)
        network = f"{SUBNET}.0/24"
        return ["--mca", "plm_rsh_agent", str(agent), "--mca", "plm", "rsh", "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include",
                network, "--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]

    def set_link(self, host, state):
        subprocess.run(["ip", "-n", host, "link", "set", f"{host}0", state], check=True)

    def processes(self, host):
        found = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout.split()
        return list(map(int, found))

    def stop(self):
        for host in [*self.hosts, self.switch]:
            for pid in self.processes(host):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
