#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The checks of the demo on Redis must see when a limit is exceeded, by however little, or left unused,
and when what a killed node held does not come back in time.

usage: test_demo_cluster.py DEMO_CLUSTER
"""

import contextlib
import importlib.util
import io
import pathlib
import sys
import unittest

PATH = sys.argv[1]
sys.path.insert(0, str(pathlib.Path(PATH).resolve().parent))  # of what it imports
SPEC = importlib.util.spec_from_file_location("demo_cluster", PATH)
demo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(demo)

SECOND = demo.SECOND
STEP = SECOND // 100
BEGIN = 77 * SECOND
KILLED = BEGIN + 4 * SECOND
END = BEGIN + 9 * SECOND
LIMITS = demo.Limits({
    "backends": {"main": {"session": "2s"}},
    "sets": {"jobs": {"limits": [{"capacity": 100, "window": "1s"}, {"capacity": 4}]}}})


class Node:
    def __init__(self, number):
        self.number, self.jobs, self.lost, self.killed = number, [], 0, None

    def add(self, at, length, asked=None):
        job = demo.Job(at if asked is None else asked, at)
        job.end = at + length
        self.jobs.append(job)


class Begin:
    begin = BEGIN


class Checks(unittest.TestCase):
    """100 starts a second, four slots at a time, and a node that is killed with two slots."""

    def setUp(self):
        self.nodes = [Node(1), Node(2)]
        self.nodes[1].killed = KILLED
        for i in range(400):
            self.nodes[i % 2].add(BEGIN + i * STEP, 4 * STEP if i < 396 else KILLED - BEGIN - i * STEP)
        self.back = KILLED + 2 * SECOND
        for i in range(300):
            self.nodes[0].add(self.back + i * STEP, 4 * STEP)

    def check(self):
        self.said = io.StringIO()
        verdict = demo.Verdict()
        with contextlib.redirect_stdout(self.said):
            demo.check(verdict, self.nodes, LIMITS, Begin, (KILLED, 2, self.back))
        return not verdict.failed

    def refuse(self, words):
        self.assertFalse(self.check())
        failed = [line for line in self.said.getvalue().splitlines() if line.startswith("FAILED")]
        self.assertTrue(any(words in line for line in failed), failed)

    def test_all_is_well(self):
        self.assertTrue(self.check(), self.said.getvalue())

    def test_a_start_too_many(self):
        self.nodes[0].add(BEGIN + 10 * STEP + 1, 0)
        self.refuse("101 starts within any 1 s")

    def test_a_start_that_was_asked_for_before(self):
        self.nodes[0].add(BEGIN + 10 * STEP + 1, 0, asked=BEGIN - 3 * SECOND)
        self.assertTrue(self.check(), self.said.getvalue())

    def test_a_slot_too_many(self):
        self.nodes[0].jobs[0].end += 4 * STEP
        self.refuse("5 slots held")

    def test_starts_left_unused(self):
        self.nodes[0].jobs = [job for i, job in enumerate(self.nodes[0].jobs) if i % 3 or job.seen >= KILLED - STEP]
        self.refuse("in the best window before the kill")

    def test_starts_left_unused_in_the_end(self):
        for job in self.nodes[0].jobs[-300::3]:
            self.nodes[0].jobs.remove(job)
        self.refuse("in the best window after the return")

    def test_slots_that_come_back_late(self):
        for job in self.nodes[0].jobs[200:]:
            job.asked += 2 * SECOND
            job.seen += 2 * SECOND
            job.end += 2 * SECOND
        self.back += 2 * SECOND
        self.refuse("held by others after 4.00 s")

    def test_a_lost_session(self):
        self.nodes[0].lost = 1
        self.refuse("lost 1 sessions")

    def test_when_all_slots_are_held(self):
        node = Node(1)
        for at, length in ((1, 9), (2, 9), (3, 1), (4, 2), (5, 9)):
            node.add(at, length)
        self.assertEqual(demo.first_above(node.jobs, 0, 2), 3)
        self.assertEqual(demo.first_above(node.jobs, 0, 3), 5)
        self.assertIsNone(demo.first_above(node.jobs, 0, 4))
        self.assertEqual(demo.most_held(node.jobs, 0, 4), 3)
        self.assertEqual(demo.most_held(node.jobs, 7, 9), 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
