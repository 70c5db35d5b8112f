#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The paced sender: what comes out at the other end, in every mode, and however it ends.

usage: test_paced_sender.py SENDER NO_URING

The program holds the kernel's stamps against the instants that weir foresaw. Of that the test takes
what never depends on the machine: nothing early, nothing overtaken that was on time, nothing lost or
repeated, and counters that agree.
How late things were is printed. Exits with 77, which means skipped, if there is no io_uring.
"""

import re
import resource
import signal
import subprocess
import sys
import time
import unittest

UNAVAILABLE = 69
PATIENCE = 60  # seconds until something that must happen is taken not to happen

SENDER, NO_URING = sys.argv[1:3]


class Outcome:
    """What the program says in the end."""

    def __init__(self, text):
        def numbers(pattern):
            found = re.search(pattern, text, re.MULTILINE)
            return [int(n) for n in found.groups()] if found else None

        self.text = text
        (self.sent, self.failed, self.expired, self.canceled, self.refused, self.received,
         self.repeated, self.overtaken) = numbers(
            r"^sent (\d+), failed (\d+), expired (\d+), canceled (\d+), refused (\d+);"
            r" received (\d+), repeated (\d+), overtaken (\d+)$")
        self.granted, self.back, self.held, self.waiting = numbers(
            r"weir: granted (\d+), given back (\d+), held (\d+), waiting (\d+): agrees with")
        self.latest_us, self.early = numbers(r"max (\d+)\.\d us; early (\d+) ") or (0, 0)
        self.rate = numbers(r"packets at (\d+)/s")[0]
        self.alone = (numbers(r"(\d+) chains had ended before the program looked") or [None])[0]


def start(*options, **more):
    return subprocess.Popen([SENDER, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **more)


class PacedSenderTest(unittest.TestCase):
    def end(self, process, status=0):
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, errors), (status, ""), out)
        print(out, end="", file=sys.stderr)
        outcome = Outcome(out)
        self.assertEqual((outcome.early, outcome.repeated, outcome.failed), (0, 0, 0))
        if outcome.overtaken:  # only if it is late by more than the packets are apart
            self.assertGreaterEqual(outcome.latest_us + 1, 1000000 // outcome.rate)
        self.assertEqual(outcome.received, outcome.sent)
        self.assertEqual(outcome.granted - outcome.back, outcome.sent)
        self.assertEqual((outcome.held, outcome.waiting), (0, 0))
        return outcome

    def send(self, *options):
        return self.end(start(*options))

    # -- the pace --

    def pace(self, how, mode, ring):
        outcome = self.send("--how", how, "--mode", mode, "--ring", ring, "--count", "60")
        self.assertEqual((outcome.sent, outcome.granted), (60, 60))
        if mode != "wait":  # the receiver had everything, so every send was behind us
            self.assertGreaterEqual(outcome.alone, 59)

    def test_every_mode(self):
        for how in ("linked", "paced"):
            for mode in ("wait", "poll", "compute"):
                for ring in ("default", "single", "defer"):
                    if mode == "wait" or ring != "defer":
                        with self.subTest(how=how, mode=mode, ring=ring):
                            self.pace(how, mode, ring)

    def test_takes_as_long_as_the_rate_says(self):
        for how in ("linked", "paced"):
            begin = time.monotonic()
            self.send("--how", how, "--rate", "150", "--count", "31", "--burst", "1")
            self.assertGreaterEqual(time.monotonic() - begin, 30 / 150)

    def test_rates(self):
        for rate, count in (("3", 2), ("333", 100), ("7000", 300), ("100000", 2000)):
            for how in ("linked", "paced"):
                with self.subTest(how=how, rate=rate):
                    outcome = self.send("--how", how, "--rate", rate, "--count", str(count))
                    self.assertEqual(outcome.sent, count)

    # -- what is not sent --

    def test_nothing_after_the_deadline(self):
        for mode in ("wait", "poll", "compute"):
            with self.subTest(mode=mode):
                outcome = self.send("--how", "linked", "--mode", mode, "--rate", "100", "--count",
                                    "80", "--deadline-ms", "105")
                self.assertEqual(outcome.sent + outcome.expired, 80)
                self.assertGreater(outcome.expired, 0)

    def test_no_reservation_beyond_the_deadline(self):
        outcome = self.send("--how", "paced", "--rate", "100", "--count", "80", "--deadline-ms",
                            "105")
        self.assertEqual(outcome.sent + outcome.refused, 80)
        self.assertGreater(outcome.refused, 0)
        self.assertEqual(outcome.granted, outcome.sent)
        self.assertRegex(outcome.text, "refused: Resource temporarily unavailable; come back in")

    def test_no_more_than_fit_into_the_wait_queue(self):
        outcome = self.send("--how", "linked", "--rate", "50", "--count", "40", "--line", "7")
        self.assertEqual(outcome.sent + outcome.refused, 40)
        self.assertGreaterEqual(outcome.sent, 7)
        self.assertGreater(outcome.refused, 0)
        self.assertIn("refused: No buffer space available", outcome.text)

    def test_interrupted(self):
        for how in ("linked", "paced"):
            for mode in ("wait", "poll", "compute"):
                with self.subTest(how=how, mode=mode):
                    self.interrupt(signal.SIGINT, "--how", how, "--mode", mode)
        self.interrupt(signal.SIGTERM, "--ring", "defer")

    def interrupt(self, number, *options):
        sender = start("--rate", "20", "--count", "400", *options)
        time.sleep(0.4)
        self.assertIsNone(sender.poll())
        sender.send_signal(number)
        outcome = self.end(sender)
        self.assertEqual(outcome.sent + outcome.canceled, 400)
        self.assertGreater(outcome.canceled, 0)

    # -- what cannot be --

    def fail_with(self, status, pattern, *command, **more):
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE,
                                check=False, **more)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertRegex(result.stderr, pattern)

    def test_a_deferred_ring_moves_only_when_it_is_entered(self):
        for mode in ("poll", "compute"):
            self.fail_with(64, "DEFER_TASKRUN stands still unless it is entered", SENDER, "--ring",
                           "defer", "--mode", mode)

    def test_wrong_options(self):
        for options in (["--mode", "idle"], ["--rate", "0"], ["--count", "10001"], ["--rate", "1x"],
                        ["more"], ["--unknown"], ["--how", ""]):
            self.fail_with(64, "usage: |unknown|not a number", SENDER, *options)

    def test_too_few_descriptors(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        self.fail_with(71, "too few descriptors for that many packets", SENDER, "--how", "linked",
                       preexec_fn=few)
        paced = start("--how", "paced", "--count", "200", preexec_fn=few)  # it needs none
        self.assertEqual(self.end(paced).sent, 200)

    def test_without_io_uring(self):
        self.fail_with(UNAVAILABLE, r"io_uring cannot be used here \(Operation not permitted\)",
                       NO_URING, SENDER)


def io_uring_is_missing():
    result = subprocess.run([SENDER, "--count", "1"], capture_output=True, text=True,
                            timeout=PATIENCE, check=False)
    if result.returncode != UNAVAILABLE:
        return False
    print(f"SKIP: {result.stderr}SKIP: NOTHING OF {SENDER} WAS TESTED", file=sys.stderr)
    return True


if __name__ == "__main__":
    if io_uring_is_missing():
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
