#!/usr/bin/env python3
"""How a job under mpirun ends when a rank fails, hangs, is stopped or is killed, or the network is lost.

  failure_test.py MPIRUN FAILING_JOB [unittest arguments]
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MPIRUN, PROGRAM = sys.argv[1:3]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


class Ended:
    """A finished job: its exit code, its lines on standard error and the seconds it took."""

    def __init__(self, code, errors, seconds):
        self.code, self.seconds = code, seconds
        self.lines = [line for line in errors.splitlines() if line.strip()]

    @property
    def last(self):
        return self.lines[-1] if self.lines else ""


def run(scenario, ranks, deadline=2.0, limit=60):
    begin = time.monotonic()
    done = subprocess.run([MPIRUN, "--oversubscribe", "-np", str(ranks), PROGRAM, scenario, str(deadline)],
                          env=ENVIRONMENT, capture_output=True, text=True, timeout=limit)
    return Ended(done.returncode, done.stderr, time.monotonic() - begin)


class Failures(unittest.TestCase):
    def test_a_job_that_ends_well_says_nothing(self):
        ended = run("ends-well", 4)
        self.assertEqual((ended.code, ended.lines), (0, []))

    def test_the_last_line_is_the_cause_on_the_rank_that_threw(self):
        ended = run("one-throws", 4)
        self.assertEqual(ended.code, 3)
        self.assertEqual(ended.last, "rank 2: error[does-not-fit]: the model of rank 2 does not fit")
        self.assertIn("    help: use more ranks", ended.lines)
        self.assertEqual(len(ended.lines), 3, ended.lines)

    def test_of_many_ranks_that_fail_at_once_only_one_speaks(self):
        for _ in range(5):
            ended = run("all-throw", 8)
            self.assertEqual(ended.code, 3)
            self.assertRegex(ended.last, r"^rank \d: error\[does-not-fit\]")
            self.assertEqual(len(ended.lines), 3, ended.lines)

    def test_a_defect_ends_with_code_70(self):
        ended = run("defect", 2)
        self.assertEqual(ended.code, 70)
        self.assertEqual(ended.last, "rank 1: error[internal]: impossible")

    def test_a_rank_that_computes_too_long_is_named_with_what_it_does(self):
        ended = run("computes", 2)
        self.assertEqual(ended.code, 12)
        self.assertRegex(ended.last, r"^rank 0: error\[hang\]: rank 0, step 3, action 2F3 \(2\.\d+ s\), waited 2\.\d+ s for rank 1 in "
                                     r"all_reduce of group 'dp': rank 1 \(host .*\) never came: step 3, action 1B2 \(2\.\d+ s\), "
                                     r"not waiting for anyone$")
        self.assertLess(ended.seconds, 8)

    def test_a_chain_of_waits_is_followed_to_its_end(self):
        ended = run("chain", 4)
        self.assertEqual(ended.code, 12)
        self.assertIn("rank 3 (host", ended.last)
        self.assertIn("never came: step 5, action 0F3", ended.last)
        text = "\n".join(ended.lines)
        self.assertRegex(text, r"waits for rank 3 in exchange \(receive, tag 7\) of group 'pp'")

    def test_ranks_that_wait_for_each_other_are_named(self):
        ended = run("cycle", 3)
        self.assertEqual(ended.code, 12)
        self.assertRegex(ended.last, r"ranks \d, \d and \d wait for each other$")

    def test_a_stopped_process_is_told_from_a_busy_one(self):
        ended = run("stopped", 2)
        self.assertEqual(ended.code, 12)
        self.assertRegex(ended.last, r"rank 1 .*does not answer: the process is stopped or its host overloaded$")

    def test_a_rank_that_does_not_join_a_group_is_named(self):
        ended = run("absent", 2)
        self.assertEqual(ended.code, 12)
        self.assertIn("for rank 1 in group creation of group 'dp': rank 1", ended.last)

    def test_a_killed_rank_ends_the_job_at_once(self):
        ended = run("killed", 4, deadline=600)
        self.assertNotEqual(ended.code, 0)
        self.assertLess(ended.seconds, 5)
        self.assertIn("signal 9", "\n".join(ended.lines))


class TwoHosts(unittest.TestCase):
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
            commands += [f"ip link set {link} netns {host}", f"{inside} addr add 10.213.77.{number}/24 dev {link}",
                         f"{inside} link set {link} up", f"{inside} link set lo up"]
            # What `ip netns exec` shows as /etc/hosts.
            folder = pathlib.Path("/etc/netns") / host
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
                f"10.213.77.{n} {name}\n" for n, name in enumerate(self.hosts, 1)))
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        self.folder = pathlib.Path(tempfile.mkdtemp())
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

    def start(self, scenario, deadline, *options):
        subnet = "10.213.77.0/24"
        command = (f"hostname {self.hosts[0]}; exec {MPIRUN} --mca plm rsh --mca plm_rsh_agent {self.agent} -H {self.hosts[0]}:1,{self.hosts[1]}:1 "
                   f"--mca btl_tcp_if_include {subnet} --mca oob_tcp_if_include {subnet} --mca pml ob1 --mca btl self,tcp "
                   f"{' '.join(options)} -np 2 {PROGRAM} {scenario} {deadline}")
        self.job = subprocess.Popen(["ip", "netns", "exec", self.hosts[0], "unshare", "--uts", "sh", "-c", command], env=ENVIRONMENT,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, limit):
        begin = time.monotonic()
        try:
            _, errors = self.job.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.job.kill()
            _, errors = self.job.communicate()
            self.fail(f"the job hangs; so far it said\n{errors}")
        return Ended(self.job.returncode, errors, time.monotonic() - begin)

    def lose_network(self):
        self.assertEqual(self.job.stdout.readline().strip(), "running")
        subprocess.run(["ip", "netns", "exec", self.hosts[0], "ip", "link", "set", self.links[0], "down"], check=True)

    def test_two_hosts_work(self):
        self.start("ends-well", 5)
        ended = self.end(60)
        self.assertEqual((ended.code, ended.lines), (0, []))

    def test_a_busy_rank_on_another_host_is_named_with_its_host(self):
        self.start("computes", 2)
        ended = self.end(60)
        self.assertEqual(ended.code, 12)
        self.assertIn(f"rank 1 (host {self.hosts[1]}) never came: step 3, action 1B2", ended.last)

    def test_a_host_that_cannot_be_reached_is_named(self):
        # mpirun does not end by itself then: it waits for the lost host, until what rank 0 left behind kills it.
        self.start("endless", 3)
        self.lose_network()
        ended = self.end(60)
        self.assertIn(ended.code, (12, -signal.SIGKILL))
        self.assertRegex(ended.last, r"^rank 0: error\[hang\]: .* in exchange .*: "
                                     rf"rank 1 \(host {self.hosts[1]}\) does not answer: host unreachable$")

    def test_a_lost_host_is_noticed_by_mpirun_where_it_looks_often(self):
        self.start("endless", 600, "--mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2")
        self.lose_network()
        ended = self.end(60)
        self.assertNotEqual(ended.code, 0)
        self.assertIn("ORTE has lost communication with a remote daemon.", ended.lines)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
