# SPDX-License-Identifier: MIT
"""Very many commands behind four slots, half of them killed on the way, waiting or running.

Decided by what the commands wrote down: never more than four at once, in the order in which they
came; a command that is not killed finishes; in the end all four slots are there. Every interval that is looked
at lies within the time that its command held a slot, so that a slow machine cannot make it fail.

Arguments: the weir command, and the worker. WEIR_SEED repeats a run, WEIR_COMMANDS makes it longer.
"""
import heapq
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

COMMAND, WORKER = sys.argv[1:3]
SEED = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
COMMANDS = int(os.environ.get("WEIR_COMMANDS") or 100)
SLOTS = 4
PATIENCE = 120  # seconds that a busy machine may take for anything


class Killer(threading.Thread):
    """Kills children at instants."""
    def __init__(self):
        super().__init__(daemon=True)
        self.plan, self.changed, self.done = [], threading.Condition(), False
        self.killed = {}  # by pid: an instant at which it was still alive

    def kill_at(self, at, child):
        with self.changed:
            heapq.heappush(self.plan, (at, child.pid, child))
            self.changed.notify()

    def run(self):
        with self.changed:
            while not self.done or self.plan:
                now = time.monotonic()
                if not self.plan or self.plan[0][0] > now:
                    self.changed.wait(self.plan[0][0] - now if self.plan else None)
                    continue
                child = heapq.heappop(self.plan)[2]
                before = time.monotonic_ns()
                if child.poll() is None:
                    self.killed[child.pid] = before
                    child.kill()

    def finish(self):
        with self.changed:
            self.done = True
            self.changed.notify()
        self.join()


class Storm(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()  # 0700
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.log = os.path.join(self.directory, "log")
        open(self.log, "x").close()
        self.env = {**os.environ, "WEIR_PROCESS_DIR": self.directory}
        self.random = random.Random(SEED)
        self.children = []
        self.killer = Killer()
        self.killer.start()
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for child in self.children:
            child.kill()
            child.wait()

    def exec(self, *arguments):
        return subprocess.Popen([COMMAND, "exec", "--limit", f"slots:{SLOTS}", "--name", "t",
                                 *arguments], env=self.env, stdin=subprocess.DEVNULL)

    def start(self):
        child = self.exec("--", WORKER, self.log, "100")
        self.children.append(child)
        return child

    def stat(self):
        done = subprocess.run([COMMAND, "stat", "--json"], env=self.env, capture_output=True,
                              check=True)
        sets = json.loads(done.stdout)["sets"]
        return sets[0] if sets else {"holders": [], "waiters": []}

    def read_log(self):
        begun, ended = {}, {}
        with open(self.log, encoding="utf-8") as file:
            for line in file:
                what, pid, at = line.split()
                (begun if what == "begin" else ended)[int(pid)] = int(at)
        return begun, ended

    def until_known(self, child):
        """Waits until the child holds, or waits."""
        end = time.monotonic() + PATIENCE
        while True:
            self.assertIsNone(child.poll())
            self.assertLess(time.monotonic(), end)
            got = self.stat()
            if any(entry["process"] == child.pid for entry in got["holders"] + got["waiters"]):
                return got
            time.sleep(0.01)

    def kill_runners(self, pids):
        """The children that are to be killed while they run, if they do."""
        end = time.monotonic() + PATIENCE
        pending = {child.pid: child for child in self.children if child.pid in pids}
        while pending:
            self.assertLess(time.monotonic(), end)
            begun, _ = self.read_log()
            for pid, child in list(pending.items()):
                if pid in begun:
                    self.killer.kill_at(begun[pid] / 1e9 + self.random.uniform(0, 0.09), child)
                if pid in begun or child.poll() is not None:
                    del pending[pid]
            time.sleep(0.005)

    def finish(self):
        end = time.monotonic() + PATIENCE
        for child in self.children:
            child.wait(timeout=max(1, end - time.monotonic()))
        self.killer.finish()

    def check(self):
        begun, ended = self.read_log()
        killed = self.killer.killed
        for child in self.children:
            code = child.returncode
            self.assertTrue(code == 0 or code == -signal.SIGKILL and child.pid in killed, code)
            self.assertTrue(code != 0 or child.pid in ended)
        events = []
        for pid, at in begun.items():
            self.assertIn(pid, {child.pid for child in self.children})  # the same process
            events += [(at, 1), (ended.get(pid) or killed[pid], 0)]
        running = most = 0
        for _, is_begin in sorted(events):
            running += 1 if is_begin else -1
            most = max(most, running)
        self.assertEqual(running, 0)
        self.assertIn(most, range(2, SLOTS + 1))  # a busy machine may start them slowly

        got = self.stat()
        self.assertEqual((got["holders"], got["waiters"]), ([], []))
        self.assertEqual((got["held"], got["waiting"], got["users"]), (0, 0, 0))
        self.assertEqual(got["limits"][0]["available"], SLOTS)
        self.assertEqual(
            self.exec("-a", f"slots={SLOTS}", "--max-wait", "0s", "true").wait(PATIENCE), 0)
        self.assertEqual(subprocess.run([COMMAND, "rm", "t"], env=self.env).returncode, 0)
        self.assertEqual(sorted(os.listdir(self.directory)), ["log"])
        waiting = sum(pid not in begun for pid in killed)
        print(f"{len(begun)} began, {waiting} were killed before, {len(killed) - waiting} later",
              file=sys.stderr)

    def check_order(self):
        """
        A command that begins has a slot, and every earlier one had one by then. Of the living ones
        that had not begun, though, no more can have one than there are other slots.
        """
        begun, _ = self.read_log()
        for i, child in enumerate(self.children):
            at = begun.get(child.pid)
            if at is None:
                continue
            overtaken = [other.pid for other in self.children[:i]
                         if begun.get(other.pid, 1 << 63) > at
                         and self.killer.killed.get(other.pid, 1 << 63) > at]
            self.assertLess(len(overtaken), SLOTS)

    def test_few_descriptors(self):
        """A hundred and more wait for one slot, each with forty descriptors: none needs one for
        each of the others."""
        holder = self.exec("--", "sleep", "1000")
        self.children.append(holder)
        end = time.monotonic() + PATIENCE
        while not self.stat()["holders"]:
            self.assertLess(time.monotonic(), end)
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        waiting = [subprocess.Popen([COMMAND, "exec", "--limit", f"slots:{SLOTS}", "--name", "t",
                                     "-a", f"slots={SLOTS}", "--", "true"], env=self.env,
                                    stdin=subprocess.DEVNULL, preexec_fn=few)
                   for _ in range(120)]
        self.children += waiting
        while len(self.stat()["waiters"]) < len(waiting):
            self.assertEqual([], [child.returncode for child in waiting if child.poll()])
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        holder.kill()
        self.assertEqual({0}, {child.wait(PATIENCE) for child in waiting})
        self.killer.finish()

    def test_in_order(self):
        first = self.exec("-a", f"slots={SLOTS}", "--", "sleep", "1000")
        try:
            self.until_known(first)
            for _ in range(COMMANDS):
                got = self.until_known(self.start())
            self.assertEqual([entry["process"] for entry in got["waiters"]],
                             [child.pid for child in self.children])
        finally:
            first.kill()
            first.wait()
        doomed = self.random.sample(self.children, COMMANDS // 2)
        for child in doomed[::2]:
            self.killer.kill_at(time.monotonic() + self.random.uniform(0, 0.015 * COMMANDS), child)
        self.kill_runners({child.pid for child in doomed[1::2]})
        self.finish()
        self.check_order()
        self.check()

    def test_all_at_once(self):
        for _ in range(COMMANDS):
            child = self.start()
            if self.random.randrange(2) == 0:
                self.killer.kill_at(time.monotonic() + self.random.uniform(0, 1.5), child)
        self.finish()
        self.check()


if __name__ == "__main__":
    print(f"WEIR_SEED={SEED}", file=sys.stderr)
    unittest.main(argv=sys.argv[:1], verbosity=2)
