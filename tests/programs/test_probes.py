# SPDX-License-Identifier: MIT
"""The probes of the library as tools see them: their notes, and counts of bpftrace.

usage: test_probes.py LIBRARY PROBED SCRIPTS

PROBED is probed.c. bpftrace has to be permitted to attach; where it is not, `probed inside` alone tests that probes fire.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

LIBRARY, PROBED, SCRIPTS = (os.path.abspath(path) for path in sys.argv[1:4])
NAMES = ("request", "grant", "refusal", "wait", "release", "timeout", "cancel", "overheld")
READELF, BPFTRACE = shutil.which("readelf"), shutil.which("bpftrace")
ROUNDS = 5


def why_not():
    """Why bpftrace cannot attach to a function of a process here; None if it can."""
    if not BPFTRACE:
        return "there is no bpftrace"
    done = subprocess.run([BPFTRACE, "-e", f"uprobe:{BPFTRACE}:main {{ }} BEGIN {{ exit(); }}"], capture_output=True,
                          text=True, timeout=60, check=False)
    return None if done.returncode == 0 else "bpftrace may not attach: " + (done.stderr.strip() or "it says not why")


WHY_NOT = why_not()


@unittest.skipUnless(READELF, "there is no readelf")
class Notes(unittest.TestCase):
    def setUp(self):
        text = subprocess.run([READELF, "-n", LIBRARY], check=True, capture_output=True, text=True, timeout=60).stdout
        self.notes = re.findall(r"Provider: weir\s+Name: (\w+)\s+Location: (\w+), Base: (\w+), Semaphore: (\w+)\s+"
                                r"Arguments: (.*)", text)

    def test_each_probe_is_there_once(self):
        self.assertEqual(sorted(note[0] for note in self.notes), sorted(NAMES))

    def test_each_has_eight_arguments(self):
        for name, _, _, _, arguments in self.notes:
            sizes = [argument.split("@")[0] for argument in arguments.split()]
            self.assertEqual(len(sizes), 8, name)
            self.assertEqual(sizes[:2] + sizes[3:], ["8"] * 7, name)  # pointers and 64-bit numbers
            self.assertIn(sizes[2], ("8", "-8", "-4"), name)  # -4: a constant 0

    def test_all_have_one_semaphore(self):
        semaphores = {int(note[3], 16) for note in self.notes}
        self.assertEqual(len(semaphores), 1)
        self.assertNotIn(0, semaphores)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Attached(unittest.TestCase):
    """A process with known events, and a tool that attaches to it before they happen."""

    def setUp(self):
        self.process = subprocess.Popen([PROBED, "wait", str(ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.addCleanup(self.end)
        self.assertEqual(self.process.stdout.readline(), "ready\n")

    def end(self):
        self.process.kill()
        self.process.communicate()

    def run_attached(self, *script):
        """What the tool prints once it has attached, and what the process has counted by itself."""
        tool = subprocess.Popen([BPFTRACE, "-B", "line", "-p", str(self.process.pid), *script], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        try:
            before = iter(tool.stdout.readline, "")
            if not any(line == "attached\n" for line in before):
                self.fail("bpftrace ended before it had attached")
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            counts = dict(self.process.stdout.readline().split() for _ in NAMES)
            tool.send_signal(signal.SIGINT)
            text, _ = tool.communicate(timeout=60)
        finally:
            tool.kill()
            tool.communicate()
        return text, {name: int(count) for name, count in counts.items()}

    def test_counts_are_those_of_the_process(self):
        probes = " ".join(f"usdt:{LIBRARY}:weir:{name} {{ @{name} = count(); @sets[str(arg0)] = count(); }}" for name in NAMES)
        text, counts = self.run_attached("-e", probes + ' interval:s:1 { printf("attached\\n"); }')
        self.assertEqual(counts["request"], 9 * ROUNDS)
        self.assertEqual({name: int(count) for name, count in re.findall(r"@(\w+): (\d+)", text)}, counts)
        self.assertIn(f"@sets[probed]: {sum(counts.values())}\n", text)

    def run_script(self, name):
        with tempfile.TemporaryDirectory() as directory:
            script = pathlib.Path(directory) / name
            script.write_text((pathlib.Path(SCRIPTS) / name).read_text().replace(self.installed(name), LIBRARY)
                              + '\ninterval:s:1 { printf("attached\\n"); }\n')
            return self.run_attached(script)

    @staticmethod
    def installed(name):
        """The path of the library in a script."""
        return re.search(r"^usdt:(.*):weir:", (pathlib.Path(SCRIPTS) / name).read_text(), re.M)[1]

    def test_waits_are_in_the_histogram(self):
        text, counts = self.run_script("wait-histogram.bt")
        granted, others = (re.search(rf"@{name}\[probed\]:\s*\n((?:\[.*\n)+)", text) for name in ("granted_us", "not_granted_us"))
        count = lambda match: sum(int(n) for n in re.findall(r"\)\s+(\d+) \||\]\s+(\d+) \|", match[1]) for n in n if n)
        self.assertEqual(count(granted), ROUNDS)
        self.assertEqual(count(others), counts["timeout"] + counts["cancel"])

    def test_waits_are_put_down_to_holders(self):
        text, _ = self.run_script("blockers.bt")
        tid = self.process.pid  # of its only thread that calls
        self.assertIn(f"@waits[probed, {tid}, probed, {tid}]: {ROUNDS}\n", text)
        self.assertRegex(text, rf"@in_vain_us\[probed, {tid}, probed, {tid}\]: \d+\n")
        self.assertNotIn("@holder", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
