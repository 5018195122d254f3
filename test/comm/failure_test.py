#!/usr/bin/env python3
"""How a job under mpirun ends when a rank fails, hangs, is stopped or is killed, or the network is lost.

  failure_test.py MPIRUN FAILING_JOB [unittest arguments]
"""
import signal
import sys
import unittest

from jobs import TwoHostsCase, run_job

MPIRUN, PROGRAM = sys.argv[1:3]


def run(scenario, ranks, deadline=2.0, limit=60):
    ended = run_job([MPIRUN, "--oversubscribe", "-np", str(ranks), PROGRAM, scenario, str(deadline)], limit)
    if ended is None:
        raise AssertionError(f"{scenario} hangs")
    return ended


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
        self.assertLess(ended.seconds, 30)

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
        self.assertLess(ended.seconds, 30)
        self.assertIn("signal 9", "\n".join(ended.lines))


class TwoHosts(TwoHostsCase):
    def begin(self, scenario, deadline, *options):
        self.start(MPIRUN, f"{PROGRAM} {scenario} {deadline}", *options)

    def test_two_hosts_work(self):
        self.begin("ends-well", 5)
        ended = self.end(60)
        self.assertEqual((ended.code, ended.lines), (0, []))

    def test_a_busy_rank_on_another_host_is_named_with_its_host(self):
        self.begin("computes", 2)
        ended = self.end(60)
        self.assertEqual(ended.code, 12)
        self.assertIn(f"rank 1 (host {self.hosts[1]}) never came: step 3, action 1B2", ended.last)

    def test_a_host_that_cannot_be_reached_is_named(self):
        # mpirun does not end by itself: it waits for the lost host until what rank 0 left behind kills it.
        self.begin("endless", 3)
        self.lose_network("running")
        ended = self.end(60)
        self.assertIn(ended.code, (12, -signal.SIGKILL))
        self.assertRegex(ended.last, r"^rank 0: error\[hang\]: .* in exchange .*: "
                                     rf"rank 1 \(host {self.hosts[1]}\) does not answer: host unreachable$")

    def test_a_lost_host_is_noticed_by_mpirun_where_it_looks_often(self):
        self.begin("endless", 600, "--mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2")
        self.lose_network("running")
        ended = self.end(60)
        self.assertNotEqual(ended.code, 0)
        self.assertIn("ORTE has lost communication with a remote daemon.", ended.lines)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
