# SPDX-License-Identifier: MIT
"""The command on sets that a Redis server keeps: check --connect, stat, top, exec, hold and apply.

Arguments: the command, the folder of the tests' Redis servers.
"""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, sys.argv[2])
from redis_server import PATIENCE, Client, Server, die_with_parent  # pylint: disable=wrong-import-position

COMMAND = os.path.abspath(sys.argv[1])
CONFIG = """version: 1
process_dir: {directory}
backends:
  main: {{ type: redis, url: "{url}", session: {session}, timeout: {timeout}, prefix: "{prefix}" }}
sets:
  jobs:
    backend: main
    revision: {revision}
    limits:
      - {{ type: call, key: starts, algorithm: gcra, capacity: 1k, window: 1s }}
      - {{ type: resource, key: slots, capacity: {slots} }}
  tenants: {{ backend: main, subjects: {{ max: 100 }}, limits: [ {{ type: resource, key: slots, capacity: 1 }} ] }}
  local: {{ backend: process, limits: [ {{ type: {local}, key: slots, capacity: {slots} }} ] }}
  own: {{ limits: [ {{ type: resource, key: slots, capacity: 1 }} ] }}
pools:
  both: {{ sets: [jobs, local] }}
"""


def setUpModule():
    EngineSets.server = Server()
    unittest.addModuleCleanup(EngineSets.server.stop)


class EngineSets(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()  # 0700
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.config = self.write("weir.yaml")
        self.until(lambda: self.weir("exec", "-s", "jobs", "-w", "0s", "true").returncode == 0)  # no grace any more

    def write(self, name, url=None, slots=1, session="3s", timeout=None, prefix=None, revision=0, local="resource"):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(directory=self.directory, url=url or f"unix://{self.server.path}",
                                     session=session, timeout=timeout or ("500ms" if url else "10s"),
                                     prefix=prefix or f"weir{session}:", slots=slots, revision=revision,
                                     local=local))
        return path

    def until(self, is_so):
        end = time.monotonic() + PATIENCE
        while not is_so():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def arguments(self, part, *arguments, config=None):
        file = [config or self.config] if part == "check" else ["-f", config or self.config]
        return [COMMAND, part, *file, *arguments]

    def weir(self, part, *arguments, config=None):
        return subprocess.run(self.arguments(part, *arguments, config=config), capture_output=True, text=True,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)

    def expect(self, code, part, *arguments, config=None):
        done = self.weir(part, *arguments, config=config)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def start(self, *arguments, **options):
        child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, text=True, **options)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def state(self, name="jobs"):
        found, = json.loads(self.weir("stat", "--json", name).stdout)["sets"]
        return found

    def counts(self):
        found = self.state()
        return found["held"], found["waiting"]


class Check(EngineSets):
    def test_a_server_that_can_be_used(self):
        out, err = self.expect(0, "check", "--connect")
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)^set jobs  backend main$")
        self.assertRegex(out, r"(?m)^set tenants  backend main  subjects  max 100$")
        self.assertRegex(out, r"(?m)^backend main  redis  can be used: Redis [0-9.]+, with the functions of weir$")
        backends = json.loads(self.expect(0, "check", "--connect", "--json")[0])["backends"]
        self.assertEqual([(one["name"], one["type"], one["usable"]) for one in backends], [("main", "redis", True)])
        self.assertEqual(self.expect(0, "check", "--names")[0].split(), ["jobs", "tenants", "local", "both"])

    def test_a_server_that_is_away(self):
        config = self.write("away.yaml", "unix:///nowhere/at/all")
        out, err = self.expect(0, "check", config=config)  # asks no server
        self.assertNotIn("can be used", out + err)
        out, err = self.expect(1, "check", "--connect", config=config)
        self.assertIn("set jobs  backend main\n", out)
        self.assertIn(f"{config}: backend `main` cannot be used: cannot connect: No such file", err)
        backend, = json.loads(self.expect(1, "check", "--connect", "--json", config=config)[0])["backends"]
        self.assertFalse(backend["usable"])
        self.assertIn("No such file", backend["message"])

    def test_no_password_is_shown(self):
        os.environ["WEIR_TEST_PASSWORD"] = "hunter2"
        config = self.write("password.yaml")
        with open(config, encoding="utf-8") as file:
            text = file.read().replace("session:", "password_env: WEIR_TEST_PASSWORD, session:")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        out, err = self.expect(1, "check", "--connect", config=config)  # the server wants none
        self.assertIn("AUTH", err)
        self.assertNotIn("hunter2", out + err)


class Stat(EngineSets):
    def test_what_all_nodes_hold(self):
        before = self.state()["granted"]
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000"))
        self.until(lambda: self.counts() == (1, 0))
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000"))
        self.until(lambda: self.counts() == (1, 1))
        found = self.state()
        self.assertEqual((found["backend"], found["reachable"], found["granted"]), ("main", True, before + 1))
        self.assertEqual([(limit["key"], limit["held"]) for limit in found["limits"]], [("starts", 0), ("slots", 1)])
        self.assertEqual(found["limits"][1]["available"], 0)
        out, err = self.expect(0, "stat")
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)^set jobs  backend main$")
        self.assertRegex(out, r"(?m)^  resource  slots +capacity 1  held 1  available 0$")
        self.assertRegex(out, rf"(?m)^  granted {before + 1}  held 1  waiting 1$")
        self.assertRegex(out, r"(?m)^set tenants  backend main$")
        out, _ = self.expect(0, "stat", "--prometheus")
        self.assertIn('\nweir_held{set="jobs",backend="main"} 1\n', out)
        self.assertIn('\nweir_waiting{set="jobs",backend="main"} 1\n', out)
        self.assertIn(f'\nweir_grants_total{{set="jobs",backend="main"}} {before + 1}\n', out)
        self.assertIn('\nweir_reachable{set="jobs",backend="main"} 1\n', out)
        self.assertNotIn('weir_held{set="tenants"', out)

    def test_sets_of_both_kinds(self):
        self.expect(0, "exec", "-s", "local", "true")
        names = re.findall("(?m)^set ([a-z]+) ", self.expect(0, "stat")[0])
        self.assertEqual(names, ["jobs", "local", "tenants"])
        self.assertEqual(re.findall("(?m)^set ([a-z]+) ", self.expect(0, "stat", "-m", "o")[0]), ["jobs", "local"])
        out, err = self.expect(1, "stat", "jobs", "own")
        self.assertIn("set jobs ", out)
        self.assertIn("`own`: there is no such set", err)

    def test_a_server_that_is_away(self):
        self.expect(0, "exec", "-s", "local", "true")
        config = self.write("away.yaml", "unix:///nowhere/at/all")
        out, err = self.expect(1, "stat", config=config)
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)^set jobs  backend main\n.*\n  resource  slots +capacity 1\n"
                              r"  away: the engine cannot be asked$")
        self.assertRegex(out, r"(?m)^  resource  slots +capacity 1  held 0  available 1$")  # of `local`
        found = json.loads(self.expect(1, "stat", "--json", "jobs", config=config)[0])["sets"]
        self.assertEqual([(one["reachable"], one["held"], one["waiting"]) for one in found], [(False, None, None)])
        out, _ = self.expect(1, "stat", "--prometheus", config=config)
        self.assertIn('\nweir_reachable{set="jobs",backend="main"} 0\n', out)
        self.assertNotIn('weir_held{set="jobs"', out)

    def test_another_definition(self):
        out, _ = self.expect(1, "stat", "jobs", config=self.write("other.yaml", slots=2))
        self.assertIn("  away: the engine has another definition\n", out)

    def test_a_server_that_does_not_answer(self):
        config = self.write("short.yaml", timeout="500ms")
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            out, _ = self.expect(1, "stat", "jobs", config=config)
            self.assertIn("away: ", out)
            self.assertLess(time.monotonic() - begun, PATIENCE / 2)
        finally:
            self.server.process.send_signal(signal.SIGCONT)


class Top(EngineSets):
    def test_rows(self):
        for config, words in ((None, rb"jobs \(main\)"), (self.write("away.yaml", "unix:///nowhere"),
                                                          rb"the engine cannot be asked")):
            pid, terminal = os.forkpty()
            if pid == 0:
                os.environ["TERM"] = "xterm"
                os.execv(COMMAND, self.arguments("top", "-i", "50ms", config=config))
            shown, end = b"", time.monotonic() + PATIENCE
            while not re.search(words, shown):
                self.assertLess(time.monotonic(), end, shown)
                if select.select([terminal], [], [], 0.1)[0]:
                    shown += os.read(terminal, 65536)
            os.write(terminal, b"q")
            while True:
                try:
                    if not os.read(terminal, 65536):
                        break
                except OSError:  # it has ended
                    break
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            os.close(terminal)


class Run(EngineSets):
    def test_the_command_is_its_own(self):
        done = self.weir("exec", "-s", "jobs", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "out\n", "err\n"))
        done = self.weir("exec", "-s", "jobs", "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(done.returncode, -signal.SIGKILL)
        child = self.start(*self.arguments("exec", "-s", "jobs", "--", "sh", "-c", "echo $$; ls /proc/self/fd; exec sleep 1000"),
                           stdout=subprocess.PIPE)
        self.assertEqual(int(child.stdout.readline()), child.pid)
        self.assertEqual([child.stdout.readline().strip() for _ in range(4)], ["0", "1", "2", "3"])
        children = f"/proc/{child.pid}/task/{child.pid}/children"
        self.until(lambda: pathlib.Path(children).read_text("ascii") == "")  # the holder is none
        self.assertEqual(self.counts(), (1, 0))
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(PATIENCE), -signal.SIGTERM)
        self.until(lambda: self.counts() == (0, 0))

    def test_a_grant_ends_with_a_command_that_is_killed(self):
        child = self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000"))
        self.until(lambda: self.counts() == (1, 0))
        waiter = self.start(*self.arguments("exec", "-s", "jobs", "echo", "my turn"), stdout=subprocess.PIPE)
        self.until(lambda: self.counts() == (1, 1))
        child.kill()
        self.assertEqual(waiter.communicate(timeout=PATIENCE)[0], "my turn\n")
        self.assertEqual(waiter.returncode, 0)

    def test_a_waiter_that_is_killed_leaves_the_wait_queue(self):
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000"))
        self.until(lambda: self.counts() == (1, 0))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            waiter = self.start(*self.arguments("exec", "-s", "jobs", "true"))
            self.until(lambda: self.counts() == (1, 1))
            waiter.send_signal(number)
            self.assertEqual(waiter.wait(PATIENCE), -number)
            self.until(lambda: self.counts() == (1, 0))

    def test_refusals(self):
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000"))
        self.until(lambda: self.counts() == (1, 0))
        self.assertEqual(self.expect(123, "exec", "-s", "jobs", "-w", "0s", "-r", "true"), ("unknown\n", ""))
        self.assertEqual(self.expect(124, "exec", "-s", "jobs", "-t", "50ms", "true"), ("", ""))
        self.assertEqual(self.expect(9, "exec", "-s", "jobs", "-t", "50ms", "-E", "9", "true"), ("", ""))
        self.assertIn("more than can ever", self.expect(123, "exec", "-s", "jobs", "-a", "slots=2", "true")[1])
        self.assertIn("--subject", self.expect(125, "exec", "-s", "tenants", "true")[1])
        self.expect(0, "exec", "-s", "tenants", "-S", "alice", "true")
        self.assertIn("not shared by processes", self.expect(125, "exec", "-s", "own", "true")[1])
        _, err = self.expect(125, "exec", "-s", "jobs", "true", config=self.write("away.yaml", "unix:///nowhere"))
        self.assertIn("`jobs`: the engine that keeps it cannot be asked", err)
        _, err = self.expect(125, "exec", "-s", "jobs", "true", config=self.write("other.yaml", slots=2))
        self.assertIn("`jobs`: the engine that keeps it has another definition", err)
        self.assertEqual(self.counts(), (1, 0))

    def test_a_command_that_cannot_run(self):
        _, err = self.expect(127, "exec", "-s", "jobs", "no-such-command")
        self.assertIn("no-such-command: No such file", err)
        self.expect(126, "exec", "-s", "jobs", self.directory)
        self.until(lambda: self.counts() == (0, 0))

    def test_nested_commands_wait_like_others(self):
        inner = self.arguments("exec", "-s", "jobs", "-t", "50ms", "true")
        self.expect(124, "exec", "-s", "jobs", "--", *inner)

    def test_a_pool(self):
        """Each process begins at a set by its id: sooner or later both are in use."""
        def are_in_use():
            self.start(*self.arguments("exec", "-s", "both", "sleep", "1000"))
            return self.counts()[0] == 1 and len(self.state("local")["holders"]) == 1

        self.expect(0, "exec", "-s", "local", "true")
        self.until(are_in_use)

    def test_a_lost_session(self):
        config = self.write("short.yaml", session="200ms")
        child = self.start(*self.arguments("exec", "-s", "jobs", "--", "sh", "-c", "echo; exec sleep 1000", config=config),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), "\n")
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(child.stderr.readline(), "weir exec: `jobs`: the session has ended: the command goes on "
                             "without its grant\n")
        finally:
            self.server.process.send_signal(signal.SIGCONT)
        self.assertIsNone(child.poll())


    def test_a_configuration_that_can_be_read_once(self):
        text = pathlib.Path(self.config).read_text("utf-8")
        for name in ("/dev/stdin", "/dev/fd/0"):
            command = [COMMAND, "exec", "-f", name, "-s", "jobs", "--", "echo", "granted"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "granted\n", ""))
        with open(self.config, encoding="utf-8") as file:  # a descriptor that the holder does not keep
            done = subprocess.run([COMMAND, "exec", "-f", f"/dev/fd/{file.fileno()}", "-s", "jobs", "true"],
                                  pass_fds=[file.fileno()], timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0)
        done = subprocess.run([COMMAND, "exec", "-f", "/dev/stdin", "-s", "jobs", "true"], input="sets: [", text=True,
                              capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, "^/dev/stdin:1:")


class First(EngineSets):
    """The command in a pid namespace of its own, as in a container: with its first process all others are killed."""
    NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            done = subprocess.run([*cls.NAMESPACE, "sh", "-c", "echo $$"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise unittest.SkipTest("there is no unshare (Debian: util-linux)") from None
        if done.stdout != "1\n":
            raise unittest.SkipTest(f"a pid namespace is not permitted: {done.stderr.strip()}")

    def begin(self, *command, options=(), **streams):
        """The process that is the first one in there, and the one that waits for it."""
        outer = self.start(*self.NAMESPACE, *self.arguments("exec", "-s", "jobs", *options, "--", *command), **streams)
        return outer

    def first_of(self, outer):
        children = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        self.until(lambda: children.read_text("ascii").split())
        return int(children.read_text("ascii").split()[0])

    def test_what_it_holds_goes_back_before_all_is_killed(self):
        for script, status in (("exit 7", 7), ("kill -9 $$", 128 + signal.SIGKILL), ("sleep 1000 & exit 0", 0)):
            child = self.begin("sh", "-c", script)
            self.assertEqual(child.wait(PATIENCE), status)
            self.assertEqual(self.counts(), (0, 0))

    def test_the_command_is_a_child(self):
        child = self.begin("sh", "-c", "ls /proc/self/fd; cat; (true & true); sleep 0.1; cat /proc/[0-9]*/stat | grep -c ' Z '",
                           stdout=subprocess.PIPE)
        out = child.communicate(timeout=PATIENCE)[0]
        self.assertEqual((child.returncode, out), (1, "0\n1\n2\n3\n0\n"))

    def test_the_command_has_its_own_signal_mask(self):
        child = self.begin("grep", "SigBlk", "/proc/self/status", stdout=subprocess.PIPE)
        self.assertEqual(int(child.communicate(timeout=PATIENCE)[0].split()[1], 16), 0)

    def test_signals_are_passed_on(self):
        child = self.begin("sh", "-c", "trap 'exit 5' TERM; trap 'echo one' USR1; echo; while :; do sleep 0.01; done",
                           stdout=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), "\n")
        first = self.first_of(child)
        os.kill(first, signal.SIGUSR1)
        self.assertTrue(select.select([child.stdout], [], [], PATIENCE)[0])
        self.assertEqual(child.stdout.readline(), "one\n")
        os.kill(first, signal.SIGTERM)
        self.assertEqual(child.wait(PATIENCE), 5)
        self.assertEqual(self.counts(), (0, 0))

    def test_a_wait_is_ended_by_a_signal(self):
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000"))
        self.until(lambda: self.counts() == (1, 0))
        child = self.begin("true")
        self.until(lambda: self.counts() == (1, 1))
        os.kill(self.first_of(child), signal.SIGTERM)
        self.assertEqual(child.wait(PATIENCE), 128 + signal.SIGTERM)
        self.assertEqual(self.counts(), (1, 0))
        self.assertEqual(self.begin("true", options=("-t", "50ms")).wait(PATIENCE), 124)

    def test_a_command_that_cannot_run(self):
        child = self.begin("no-such-command", stderr=subprocess.PIPE)
        self.assertIn("no-such-command: No such file", child.communicate(timeout=PATIENCE)[1])
        self.assertEqual(child.returncode, 127)
        self.assertEqual(self.begin(self.directory, stderr=subprocess.DEVNULL).wait(PATIENCE), 126)
        self.assertEqual(self.counts(), (0, 0))

    def test_a_lost_session(self):
        self.config = self.write("short.yaml", session="200ms")
        end = os.path.join(self.directory, "end")
        child = self.begin("sh", "-c", f"echo; until [ -e {end} ]; do sleep 0.01; done; exit 4", stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), "\n")
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            self.assertTrue(select.select([child.stderr], [], [], PATIENCE)[0])
            self.assertEqual(child.stderr.readline(), "weir exec: `jobs`: the session has ended: the command goes on "
                             "without its grant\n")
        finally:
            self.server.process.send_signal(signal.SIGCONT)
        pathlib.Path(end).touch()
        self.assertEqual(child.wait(PATIENCE), 4)


class Apply(EngineSets):
    """A set of its own for each test: a revision stays on the server."""
    TENANTS = "tenants: each subject changes when a process with this configuration next asks for it\n"

    def setUp(self):
        super().setUp()
        self.prefix = f"apply-{self.id().rpartition('.')[2]}:"
        self.old = self.revise(1, 1)

    def revise(self, revision, slots, **options):
        return self.write(f"{revision}-{slots}.yaml", prefix=self.prefix, revision=revision, slots=slots, **options)

    def apply(self, code, config, *arguments):
        done = subprocess.run([COMMAND, "apply", config, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def make(self, *sets):
        for name in sets or ("jobs",):
            self.until(lambda name=name: self.weir("exec", "-s", name, "-w", "0s", "true", config=self.old).returncode == 0)

    def counts_of(self, config):
        found, = json.loads(self.weir("stat", "--json", "jobs", config=config).stdout)["sets"]
        return found["held"], found["waiting"]

    def definition(self):
        client = Client(self.server.path)
        try:
            return client.call("HGET", self.prefix + "{jobs}", "D")
        finally:
            client.close()

    def segment_limits(self):
        found, = json.loads(self.weir("stat", "--json", "local", config=self.old).stdout)["sets"]
        return [limit["capacity"] for limit in found["limits"]]

    def test_a_definition_changes_while_it_is_used(self):
        new = self.revise(2, 2)
        self.make()
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000", config=self.old))
        self.until(lambda: self.counts_of(self.old) == (1, 0))
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000", config=self.old))
        self.until(lambda: self.counts_of(self.old) == (1, 1))
        before = self.definition()
        change = "jobs: `revision`: 1 -> 2; `capacity` of limit 2 (`slots`): 1 -> 2\n"
        self.assertEqual(self.apply(0, new, "--dry-run"), (change + self.TENANTS, ""))
        self.assertEqual((self.definition(), self.counts_of(self.old)), (before, (1, 1)))
        self.assertEqual(self.apply(0, new, "jobs"), (change, ""))
        self.assertEqual(self.counts_of(self.old), (2, 0))
        self.assertEqual(self.apply(0, new), (self.TENANTS, ""))
        self.start(*self.arguments("exec", "-s", "jobs", "sleep", "1000", config=new))
        self.until(lambda: self.counts_of(new) == (2, 1))
        self.assertEqual(self.apply(0, self.revise(3, 3), "jobs")[0],
                         "jobs: `revision`: 2 -> 3; `capacity` of limit 2 (`slots`): 2 -> 3\n")
        self.assertEqual(self.counts_of(self.old), (3, 0))

    def test_an_earlier_library_of_functions_stays(self):
        """Other nodes use it."""
        self.make()
        client = Client(self.server.path)
        self.addCleanup(client.close)

        def code():
            library, = client.call("FUNCTION", "LIST", "WITHCODE")
            return library[library.index("library_code") + 1]

        newest = code()
        line = "register('weir_redefine', weir_redefine, 'allow-oom')"
        client.call("FUNCTION", "LOAD", "REPLACE", newest.replace(line, ""))
        self.addCleanup(client.call, "FUNCTION", "LOAD", "REPLACE", newest)
        earlier, before = code(), self.definition()
        self.assertNotEqual(earlier, newest)
        for arguments in ["--dry-run"], []:
            self.assertEqual(self.apply(1, self.revise(2, 2), *arguments, "jobs"),
                             ("", "weir apply: set `jobs`: backend `main`: the server has an earlier library of "
                                  "functions, without `weir_redefine`: load that of this version first\n"))
        self.assertEqual((code(), self.definition()), (earlier, before))

    def test_what_is_not_there(self):
        self.assertEqual(self.apply(0, self.old), (self.TENANTS, ""))
        self.assertIsNone(self.definition())
        out, err = self.apply(1, self.old, "jobs")
        self.assertEqual((out, err), ("", "weir apply: set `jobs`: backend `main` has no such set\n"))
        for name in "both", "nothing", "own", "local":  # a pool is no set
            self.assertEqual(self.apply(1, self.old, name)[1],
                             f"weir apply: set `{name}`: there is no shared set `{name}`\n")

    def test_what_cannot_be(self):
        self.make()
        before = self.definition()
        out, err = self.apply(1, self.revise(1, 2))
        self.assertEqual(err, "weir apply: set `jobs`: backend `main`: it is defined otherwise there, with the same "
                              "`revision`, 1: raise it, or rename the set\n")
        self.assertEqual(out, self.TENANTS)
        self.apply(0, self.revise(2, 2), "jobs")
        self.assertNotEqual(self.definition(), before)
        before = self.definition()
        for config in self.old, self.revise(1, 3):
            for option in (), ("-n",):
                self.assertIn("set `jobs`: backend `main`: `revision` is 2 now: raise it, also to go back to what was before",
                              self.apply(1, config, *option)[1])
        self.assertIn("`session` of the backend is another one", self.apply(1, self.revise(3, 2, session="4s"))[1])
        self.assertEqual(self.definition(), before)

    def test_a_refusal_of_one_set_changes_none(self):
        self.make("jobs", "local")
        before = self.definition()
        more = "".join(f"resource, key: k{i}, capacity: 1 }}, {{ type: " for i in range(5))
        out, err = self.apply(1, self.revise(2, 2, local=more + "resource"))
        self.assertIn("jobs: `revision`: 1 -> 2", out)
        self.assertRegex(err, r"\Aweir apply: set `local`: .*no room for limit")
        self.assertEqual(self.definition(), before)
        out, err = self.apply(1, self.revise(1, 2))  # now it is the engine's that cannot
        self.assertIn("local: `capacity` of limit 1 (`slots`): 1 -> 2", out)
        self.assertRegex(err, r"\Aweir apply: set `jobs`: .*same `revision`")
        self.assertEqual((self.definition(), self.segment_limits()), (before, [1]))
        out, err = self.apply(0, self.revise(2, 2))
        self.assertEqual((len(out.splitlines()), err), (3, ""))
        self.assertEqual(self.segment_limits(), [2])
        self.assertNotEqual(self.definition(), before)

    def test_a_server_that_is_away(self):
        self.make("local")
        out, err = self.apply(1, self.revise(2, 2, url="unix:///nowhere/at/all"))
        self.assertIn("local: `capacity`", out)
        self.assertEqual(err, "weir apply: set `jobs`: backend `main`: the server cannot be asked: "
                              "No such file or directory\n")
        self.assertEqual(self.segment_limits(), [1])

    def test_a_server_that_does_not_answer(self):
        with socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(self.directory, "silent")
            listener.bind(path)
            listener.listen()
            out, err = self.apply(1, self.revise(2, 2, url=f"unix://{path}"), "jobs")
        self.assertEqual((out, err), ("", "weir apply: set `jobs`: backend `main`: the server cannot be asked: "
                                          "Connection timed out\n"))


class Hold(EngineSets):
    def script(self, text):
        hold = " ".join(f"'{word}'" for word in self.arguments("hold", "--fd", "9", "-s", "jobs"))
        return self.start("sh", "-c", f"exec 9>/dev/null; {hold} || exit; {text}", stdout=subprocess.PIPE,
                          start_new_session=True)

    def test_the_rest_of_a_script(self):
        child = self.script("echo held; sleep 1000")
        self.assertEqual(child.stdout.readline(), "held\n")
        self.assertEqual(self.counts(), (1, 0))
        os.killpg(child.pid, signal.SIGKILL)
        self.until(lambda: self.counts() == (0, 0))

    def test_a_script_that_is_killed_while_it_waits(self):
        first = self.script("echo held; sleep 1000")
        self.assertEqual(first.stdout.readline(), "held\n")
        second = self.script("sleep 1000")
        self.until(lambda: self.counts() == (1, 1))
        os.killpg(second.pid, signal.SIGKILL)
        self.until(lambda: self.counts()[1] == 0)
        os.killpg(first.pid, signal.SIGKILL)
        self.until(lambda: self.counts() == (0, 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
