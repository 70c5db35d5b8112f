#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The checker of the demo must see when a limit is exceeded, by however little, or left unused.

usage: test_check_log.py CHECK_LOG
"""

import os
import subprocess
import sys
import tempfile
import unittest

CHECK_LOG = sys.argv[1]

SECOND = 10**9
STEP = SECOND // 100  # of the calls below
BEGIN = 77 * SECOND + 1

CONFIG = """
version: 1
sets:
  us:
    limits:
      - { type: call, algorithm: gcra, capacity: 100, window: 1s, burst: 5 }
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 1k, window: 1s, burst: 50 }
      - { type: resource, key: connections, capacity: 3 }
pools:
  api: { sets: [us] }
"""


class Log:
    """A log in which 100 calls a second are used up for 4 seconds, while job 0 waits."""

    def __init__(self, step=STEP, tokens=10, used=10, work=2 * STEP, burst=5):
        self.lines = []
        self.add(BEGIN, "waiting", 0, 0, BEGIN)
        for i in range(400):
            at = BEGIN + max(0, i - burst + 1) * step
            end = at + work
            if i < burst - 2:
                end = at + i + 1  # the burst shares three connections
                at += i
            self.add(at, "started", i + 1, tokens, at)
            self.add(end, "finished", i + 1, used, end)
        self.add(BEGIN + (400 - burst) * step, "left", 0, 0, BEGIN)

    def add(self, now, event, job, amount, since):
        self.lines.append([now, event, job, "us", amount, since])

    def started(self, job):
        return next(line for line in self.lines if line[1:3] == ["started", job])

    def check(self, *options):
        with tempfile.TemporaryDirectory() as directory:
            config, log = os.path.join(directory, "config"), os.path.join(directory, "log")
            with open(config, "w", encoding="utf-8") as file:
                file.write(CONFIG)
            with open(log, "w", encoding="utf-8") as file:
                for line in sorted(self.lines, key=lambda line: line[0]):
                    print(*line, file=file)
            return subprocess.run([sys.executable, CHECK_LOG, config, log, *options],
                                  capture_output=True, text=True, timeout=60, check=False)


class CheckLogTest(unittest.TestCase):
    def failures(self, log, *options):
        result = log.check(*options)
        failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.returncode, 1 if failed else 0, result.stdout)
        return failed

    def assert_one_failure(self, text, log, *options):
        failed = self.failures(log, *options)
        self.assertEqual(len(failed), 1, failed)
        self.assertIn(text, failed[0])

    def test_limits_used_up_exactly(self):
        self.assertEqual(self.failures(Log(), "--expect", "us.call_count"), [])

    def test_a_nanosecond_early(self):
        log = Log()
        line = log.started(200)
        line[0] -= 1
        line[5] -= 1
        self.assertEqual(len(self.failures(log)), 2)  # calls and tokens

    def test_a_nanosecond_early_but_perhaps_seen_late(self):
        log = Log()
        log.started(1)[5] -= 1
        log.started(200)[0] -= 1
        log.started(200)[5] -= 1
        self.assertEqual(self.failures(log), [])

    def test_one_too_many(self):
        log = Log(tokens=9, used=9)
        at = BEGIN + 2 * SECOND
        log.add(at + 1, "started", 1000, 1, at)
        log.add(at + 2, "finished", 1000, 1, at + 1)
        self.assert_one_failure("call_count never above", log)

    def test_tokens_beyond_the_rate(self):
        self.assert_one_failure("tokens never above", Log(tokens=11, used=11))

    def test_refunded_tokens_may_be_used_again(self):
        log = Log(tokens=40, used=10, work=STEP // 2, burst=1)
        self.assertEqual(self.failures(log), [])

    def test_tokens_used_again_that_were_not_refunded(self):
        log = Log(tokens=40, used=11, work=STEP // 2, burst=1)
        self.assert_one_failure("tokens never above", log)

    def test_a_connection_too_many(self):
        self.assert_one_failure("connections held", Log(work=4 * STEP - 1))

    def test_little_use(self):
        log = Log(step=STEP + STEP // 50)
        self.assert_one_failure("with requests waiting", log)
        self.assert_one_failure("us.connections was saturated", Log(), "--expect", "us.connections")

    def test_the_client_disagrees(self):
        with tempfile.NamedTemporaryFile("w", suffix=".client") as file:
            file.write("client us 398\nclient refused 0\nclient us 1\n")
            file.flush()
            self.assertEqual(self.failures(Log(), "--client", file.name, "--clients", "1"), [])
            self.assert_one_failure("the client counted", Log(), "--client", file.name)
            file.write("client us 2\n")
            file.flush()
            self.assert_one_failure("the client counted", Log(), "--client", file.name,
                                    "--clients", "9")

    def test_weir_disagrees(self):
        stats = ('{"sets":[{"name":"us","held":0,"waiting":0,"missing_update":0,"granted":%d,'
                 '"refused_full":0,"refused_max_wait":0}]}')
        for granted, failed in ((399, 1), (400, 0), (401, 0), (402, 1)):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(stats % granted)
                file.flush()
                self.assertEqual(len(self.failures(Log(), "--stats", file.name)), failed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
