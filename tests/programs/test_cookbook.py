#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cookbook: its code blocks are the files in examples/cookbook, word for word, and each program
prints what stands there. README.md shows its sample word for word, too.

usage: test_cookbook.py SOURCE_DIRECTORY WEIR NO_URING PROGRAM...
"""

import http.client
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, WEIR, NO_URING = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
PROGRAMS = {pathlib.Path(path).name: path for path in sys.argv[4:]}
FILES = SOURCE / "examples" / "cookbook"
DOCUMENTS = [SOURCE / "docs" / name for name in ("cookbook.md", "waiting.md")]
BLOCK = re.compile(r"^\[([\w.]+)\]\(\.\./examples/cookbook/\1\)[^\n]*\n\n```\w+\n(.*?)^```$", re.M | re.S)
PRINTS = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)
PATIENCE = 60


def blocks():
    """The text of each file, as the documents show it, and what its section says that it prints."""
    for document in DOCUMENTS:
        for section in re.split(r"^##+ ", document.read_text(encoding="utf-8"), flags=re.M):
            prints = PRINTS.search(section)
            for match in BLOCK.finditer(section):
                yield match[1], match[2], prints and prints[1]


def blocked_in(pid):
    """The system call in which a process waits, or None: it runs."""
    number = pathlib.Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[0]
    return int(number) if number.isdecimal() else None


def await_blocked(pid):
    while blocked_in(pid) is None:
        time.sleep(0.001)


class Cookbook(unittest.TestCase):
    """Programs run in a directory of shared sets of their own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="weir-", dir="/dev/shm")
        self.addCleanup(directory.cleanup)
        self.environment = dict(os.environ, WEIR_PROCESS_DIR=directory.name,
                                PATH=f"{WEIR.parent}:{os.environ['PATH']}")
        self.environment.pop("WEIR_CONFIG", None)

    def run_program(self, name, *command):
        """What it writes to the standard output, and to the other."""
        config = FILES / f"{name}.yaml"
        if config.exists():
            self.environment["WEIR_CONFIG"] = str(config)
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def prints(self, file):
        return next(prints for name, _, prints in blocks() if name == file)

    def check(self, name):
        if name not in PROGRAMS:
            self.skipTest("it was not built: its libraries are missing")
        output, errors = self.run_program(name, PROGRAMS[name])
        self.assertEqual(output, self.prints(f"{name}.c"))
        return errors

    def test_documents_show_the_files(self):
        shown = {name: text for name, text, _ in blocks()}
        files = {path.name: path.read_text(encoding="utf-8") for path in FILES.iterdir() if path.name != "meson.build"}
        self.assertEqual(sorted(shown), sorted(files))
        for name, text in files.items():
            self.assertEqual(shown[name], text, name)

    def test_readme_shows_its_files(self):
        readme = (SOURCE / "README.md").read_text(encoding="utf-8")
        for language in "c", "yaml":
            shown = re.search(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S)[1]
            self.assertEqual(shown, (SOURCE / "examples" / f"readme.{language}").read_text(encoding="utf-8"))

    def test_documents_say_what_each_prints(self):
        for name, _, prints in blocks():
            self.assertTrue(prints, name)

    def test_every_program_is_run(self):
        runs = {method.removeprefix("test_run_") for method in dir(self) if method.startswith("test_run_")}
        self.assertEqual(runs, {name.split(".")[0] for name, _, _ in blocks()})

    def test_run_tokens(self):
        self.assertEqual(self.check("tokens"), "")

    def test_run_pacing(self):
        self.assertEqual(self.check("pacing"), "")

    def test_run_regions(self):
        self.assertEqual(self.check("regions"), "")

    def test_run_tenants(self):
        self.assertEqual(self.check("tenants"), "")

    def test_run_ring_or_epoll(self):
        self.assertIn("completions come by ", self.check("ring_or_epoll"))

    def test_ring_or_epoll_without_io_uring(self):
        if "ring_or_epoll" not in PROGRAMS:
            self.skipTest("there is no liburing")
        output, errors = self.run_program("ring_or_epoll", NO_URING, PROGRAMS["ring_or_epoll"])
        self.assertEqual((output, errors), (self.prints("ring_or_epoll.c"), "completions come by epoll\n"))

    def test_run_one_instance(self):
        output, _ = self.run_program("one_instance", FILES / "one_instance.sh")
        self.assertEqual(output, self.prints("one_instance.sh"))

    def test_run_introduce(self):
        output, _ = self.run_program("introduce", FILES / "introduce.sh")
        self.assertEqual(output, self.prints("introduce.sh"))

    def test_run_four_at_a_time(self):
        output, _ = self.run_program("four_at_a_time", FILES / "four_at_a_time.sh")
        self.assertEqual(output, self.prints("four_at_a_time.sh"))

    def refuses(self, name, environment):
        done = subprocess.run([PROGRAMS[name]], env=environment, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        self.assertEqual(done.returncode, 1, name)
        self.assertTrue(done.stderr.startswith(f"{name}: "), done.stderr)

    def test_a_wrong_or_missing_configuration_is_told(self):
        for name in PROGRAMS:
            self.refuses(name, self.environment)
            self.refuses(name, dict(self.environment, WEIR_CONFIG=str(FILES / "meson.build")))

    def get(self, port):
        """The status of a request, its Retry-After, and what it says of the limit."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/")
        response = connection.getresponse()
        response.read()
        connection.close()
        return (response.status, response.getheader("Retry-After"), response.getheader("RateLimit-Policy"),
                response.getheader("RateLimit"))

    def test_run_too_many(self):
        self.environment["WEIR_CONFIG"] = str(FILES / "too_many.yaml")
        with subprocess.Popen([PROGRAMS["too_many"]], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as server:
            port = int(server.stdout.readline().removeprefix("port "))
            answers = [self.get(port) for _ in range(4)]
            server.send_signal(signal.SIGKILL)
        self.assertEqual("".join(f"{answer[0]}\n" for answer in answers), self.prints("too_many.c"))
        self.assertEqual([answer[1] for answer in answers[:3]], [None] * 3)
        self.assertIn(int(answers[3][1]), range(1, 1201))
        self.assertEqual({answer[2] for answer in answers}, {'"call_count";q=3;w=3600'})
        left = [re.fullmatch(r'"call_count";r=(\d);t=(\d+)', answer[3]) for answer in answers]
        self.assertEqual([int(match[1]) for match in left], [2, 1, 0, 0])
        self.assertIn(int(left[3][2]), range(1, int(answers[3][1]) + 1))

    def test_too_many_without_descriptors(self):
        """A server that cannot accept for the moment goes on when it can."""
        self.environment["WEIR_CONFIG"] = str(FILES / "too_many.yaml")
        with subprocess.Popen([PROGRAMS["too_many"]], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as server:
            port = int(server.stdout.readline().removeprefix("port "))
            await_blocked(server.pid)
            _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            accepting = blocked_in(server.pid)
            soft, _ = resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, hard))
            with socket.create_connection(("127.0.0.1", port)):
                while blocked_in(server.pid) in (accepting, None) and server.poll() is None:
                    time.sleep(0.001)  # until it waits for something else
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
            self.assertEqual(self.get(port)[0], 200)
            server.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
