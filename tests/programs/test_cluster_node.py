# SPDX-License-Identifier: MIT
"""The example cluster_node: two nodes share slots, and end in order when they are told to.

Arguments: the program, the folder of the tests' Redis servers.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, sys.argv[2])
from redis_server import PATIENCE, Server, die_with_parent  # pylint: disable=wrong-import-position

PROGRAM = sys.argv[1]
SLOTS = 2
CONFIG = """
version: 1
backends: {{ main: {{ type: redis, url: "unix://{path}", session: 2s }} }}
sets:
  jobs: {{ backend: main, on_failure: wait, limits: [ {{ type: resource, key: slots, capacity: {slots} }} ] }}
"""


class ClusterNode(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.stop)
        self.config = os.path.join(self.server.directory, "cluster.yaml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(path=self.server.path, slots=SLOTS))

    def start(self, output):
        node = subprocess.Popen([PROGRAM, self.config, "jobs", "2"], stdout=output, preexec_fn=die_with_parent)
        self.addCleanup(node.wait)
        self.addCleanup(node.kill)
        return node

    def test_two_nodes(self):
        with tempfile.TemporaryFile() as first, tempfile.TemporaryFile() as second:
            nodes = [self.start(first), self.start(second)]
            end = time.monotonic() + PATIENCE
            while any(os.fstat(output.fileno()).st_size < 1000 for output in (first, second)):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            for node in nodes:
                node.send_signal(signal.SIGTERM)
                self.assertEqual(node.wait(PATIENCE), 0)
            lines = []
            for number, output in enumerate((first, second)):
                output.seek(0)
                lines += [(line.split(), number) for line in output.read().decode().splitlines()]
        held, running = 0, set()
        for words, node in sorted(lines, key=lambda line: (int(line[0][0]), line[0][1])):
            self.assertIn(words[1], ("started", "finished"))
            job = (node, words[2])
            if words[1] == "started":
                self.assertLess(int(words[3]), int(words[0]))
                self.assertNotIn(job, running)
                running.add(job)
            else:
                running.remove(job)
            held = max(held, len(running))
        self.assertEqual(held, SLOTS)
        self.assertEqual(running, set())

    def test_what_is_wrong(self):
        def run(*arguments):
            return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                                  check=False)

        self.assertEqual(run(self.config, "jobs", "0").returncode, 2)
        self.assertEqual(run(self.config).returncode, 2)
        for arguments in (("/nowhere", "jobs", "1"), (self.config, "others", "1")):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stderr[:14]), (1, "cluster_node: "))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
