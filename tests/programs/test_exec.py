# SPDX-License-Identifier: MIT
"""weir exec as scripts see it: its command line, its exit codes, what the command inherits.

Argument: the command.
"""
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the parent of the test may ignore it
COMMAND = sys.argv[1]
PATIENCE = 60  # seconds that a busy machine may take for anything

CONFIG = """version: 1
sets:
  private:
    limits:
      - { type: resource, key: slots, capacity: 1 }
  narrow:
    backend: process
    max_waiters: 1
    limits:
      - { type: resource, key: slots, capacity: 1 }
  mixed:
    backend: process
    limits:
      - { type: call, algorithm: gcra, capacity: 5, window: 1h }
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 10, window: 1h }
      - { type: rate, key: tokens, algorithm: gcra, capacity: 20, window: 1h }
      - { type: resource, key: slots, capacity: 2 }
pools:
  either: { balancer: round_robin, sets: [mixed, narrow] }
"""

# What a process has got from its parent.
INHERITED = """
import os
status = open("/proc/self/status").read().splitlines()
print([line for line in status if line.startswith("Sig") and line[3:4] in "BI"])
print(sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if fd < 200))
print(sorted((k, v) for k, v in os.environ.items() if k != "_"))
print(os.getcwd(), os.nice(0), os.sched_getaffinity(0))
"""


class Exec(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()  # 0700
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def exec(self, *arguments, env=None, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([COMMAND, "exec", *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, env={**os.environ, "WEIR_PROCESS_DIR": self.directory,
                                              **(env or {})}, **options)

    def expect(self, code, *arguments, **options):
        done = self.exec(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    @contextlib.contextmanager
    def running(self, *arguments):
        """A command that is started behind weir exec, and killed in the end."""
        child = subprocess.Popen([COMMAND, "exec", *arguments], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={**os.environ, "WEIR_PROCESS_DIR": self.directory})
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    def on_terminal(self, *command, to_terminal=True, controls=True):
        """A command with its standard error on a terminal; the terminal."""
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)

        def prepare():
            os.setsid()
            if controls:
                fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 preexec_fn=prepare,
                                 stderr=theirs if to_terminal else subprocess.DEVNULL,
                                 env={**os.environ, "WEIR_PROCESS_DIR": self.directory})
        os.close(theirs)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child, ours

    def read_until(self, terminal, end):
        said = ""
        while not said.endswith(end):
            self.assertTrue(select.select([terminal], [], [], PATIENCE)[0], said)
            said += os.read(terminal, 4096).decode()
        return said

    def stat(self, name):
        done = subprocess.run([COMMAND, "stat", "--json", name], capture_output=True,
                              timeout=PATIENCE,
                              env={**os.environ, "WEIR_PROCESS_DIR": self.directory})
        sets = json.loads(done.stdout)["sets"]
        return sets[0] if sets else {"held": 0, "waiting": 0, "holders": [], "waiters": []}

    def until(self, name, **numbers):
        """Waits until the set is like this."""
        end = time.monotonic() + PATIENCE
        while True:
            got = self.stat(name)
            if all(len(got[key]) == number for key, number in numbers.items()):
                return got
            self.assertLess(time.monotonic(), end, got)
            time.sleep(0.01)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class Usage(Exec):
    def test_wrong_usage(self):
        name = ["-s", "x"]
        for arguments, words in (
                ([], "no set is given"), (name, "no command is given"), (name + ["--"], "no command is given"),
                (["--", "true"], "no set is given"), (["--bogus"] + name + ["true"], "bogus"),
                (["-s"], "requires an argument"),
                (name + ["--limit", "slots", "true"], "KEY:N"),
                (name + ["--limit", ":4", "true"], "KEY:N"),
                (name + ["--limit", "slots:", "true"], "whole number"),
                (name + ["--limit", "slots:0", "true"], "whole number"),
                (name + ["--limit", "slots:04", "true"], "whole number"),
                (name + ["--limit", "slots:-4", "true"], "whole number"),
                (name + ["--limit", "slots:99999999999999999999", "true"], "whole number"),
                (name + ["--limit", "calls:/60s", "true"], "whole number"),
                (name + ["--limit", "calls:100/60", "true"], "WINDOW"),
                (name + ["--limit", "calls:100/", "true"], "WINDOW"),
                (name + ["--limit", "calls:100/0s", "true"], "WINDOW"),
                (name + ["--limit", "calls:100/60s/", "true"], "ALGORITHM"),
                (name + ["--limit", "a:1"] * 65 + ["true"], "too many limits"),
                (name + ["-d", "d"] * 65 + ["true"], "too many plugin"),
                (name + ["-a", "slots", "true"], "KEY=N"),
                (name + ["-a", "=1", "true"], "KEY=N"),
                (name + ["-a", "slots=x", "true"], "whole number"),
                (name + ["-a", "slots=1", "-a", "slots=2", "true"], "two amounts of slots"),
                (name + ["--subject", "", "true"], "1 to 4096 bytes"),
                (name + ["-S", "x" * 4097, "true"], "1 to 4096 bytes"),
                (name + ["-l", "a:1", "-S", "x", "true"], "defined here"),
                (name + ["--limit", "slots:1K", "true"], "did you mean `1k`?"),
                (name + ["--limit", "calls:1/min", "true"], "did you mean `1m`?"),
                (name + ["-E", "256", "true"], "0 to 255"),
                (name + ["-E", "", "true"], "0 to 255"),
                (name + ["-E", "-1", "true"], "0 to 255"),
                (name + ["--exit-code", "1x", "true"], "0 to 255"),
                (name + ["--timeout", "5", "true"], "did you mean `5s`?"),
                (name + ["--max-wait", "soon", "true"], "duration")):
            out, err = self.expect(125, *arguments)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith("weir exec: "), err)
            self.assertIn(words, err)
            self.assertIn("`weir exec --help`", err)

    def test_subjects(self):
        path = self.write("weir.yaml", "version: 1\nsets:\n  clients:\n    backend: process\n"
                          "    subjects: { max: 10 }\n    limits:\n"
                          "      - { type: resource, key: slots, capacity: 1 }\n")
        clients = ["-f", path, "-s", "clients", "-w", "0s"]
        _, err = self.expect(125, *clients, "true")
        self.assertEqual(err, "weir exec: `clients` has limits per subject: name one (--subject)\n")
        with self.running("-f", path, "-s", "clients", "-S", "alice", "sleep", "1000"):
            self.until("clients", holders=1)
            self.expect(123, *clients, "-S", "alice", "true")
            self.expect(0, *clients, "--subject", "bob", "true")
            self.expect(123, *clients, "--subject=alice", "true")
        self.expect(0, *clients, "-S", "alice", "true")  # a killed command holds nothing

    def test_what_defines_the_set(self):
        path = self.write("weir.yaml", CONFIG)
        for arguments, env, words in (
                (["-s", "x", "true"], {"WEIR_CONFIG": ""}, ": cannot be read"),
                (["-f", path, "-s", "nobody", "true"], {}, "there is no set or pool `nobody`"),
                (["-f", path, "-s", "private", "true"], {}, "needs `backend: process`"),
                (["-s", "private", "true"], {"WEIR_CONFIG": path}, "needs `backend: process`"),
                (["-f", path + "x", "-s", "x", "true"], {}, "No such file"),
                (["-f", path, "-l", "a:1", "-s", "private", "true"], {}, "private"),
                (["-l", "a:1/1s/GCRA", "-s", "x", "true"], {}, "did you mean `gcra`?"),
                (["-l", "a:1/1s/nosuch", "-s", "x", "true"], {}, "nosuch")):
            _, err = self.expect(125, *arguments, env=env)
            self.assertIn(words, err)
        wrong = self.write("wrong.yaml", CONFIG.replace("capacity", "capcity"))
        _, err = self.expect(125, "-f", wrong, "-s", "private", "true")
        self.assertIn(f"{wrong}:5:", err)
        environment = {name: value for name, value in os.environ.items() if name != "WEIR_CONFIG"}
        done = subprocess.run([COMMAND, "exec", "-s", "x", "true"], env=environment, text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 125)
        self.assertIn("nothing defines `x`", done.stderr)

    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, "exec", "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 125)


SLOT = ("--limit", "slots:1", "--name", "one")
SLEEP = (*SLOT, "--", "sleep", "1000")


class Granted(Exec):
    def test_the_exit_status_is_that_of_the_command(self):
        for code in (0, 1, 7, 123, 255):
            self.expect(code, *SLOT, "--", "sh", "-c", f"exit {code}")
        self.expect(-signal.SIGUSR1, *SLOT, "--", "sh", "-c", "kill -USR1 $$")
        self.expect(0, *SLOT, "true")  # and all has come back each time
        out, err = self.expect(0, *SLOT, "echo", "-n", "--timeout")
        self.assertEqual((out, err), ("--timeout", ""))

    def test_input_and_output_are_the_command_s(self):
        out, _ = self.expect(0, *SLOT, "cat", input="through", stdin=None)
        self.assertEqual(out, "through")

    @contextlib.contextmanager
    def inheriting(self, *prefix):
        """A process that says what it has got."""
        def prepare():
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGALRM])

        with open(os.devnull) as other:
            child = subprocess.Popen([*prefix, sys.executable, "-c", INHERITED], text=True,
                                     preexec_fn=prepare, pass_fds=[other.fileno()],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     env={**os.environ, "WEIR_PROCESS_DIR": self.directory})
        yield child
        child.kill()
        child.communicate()

    def test_nothing_is_inherited_from_weir(self):
        with self.inheriting() as child:
            plain, _ = child.communicate(timeout=PATIENCE)
        self.assertIn("SigBlk", plain)
        with self.inheriting(COMMAND, "exec", *SLOT, "--") as child:
            self.assertEqual(child.communicate(timeout=PATIENCE)[0], plain)
        with self.running(*SLEEP) as holder:  # also for a command that had to wait
            self.until("one", holders=1)
            with self.inheriting(COMMAND, "exec", *SLOT, "--timeout", "1h", "--") as child:
                self.until("one", holders=1, waiters=1)
                holder.kill()
                self.assertEqual(child.communicate(timeout=PATIENCE)[0], plain)

    def test_closed_descriptors_stay_closed(self):
        done = subprocess.run(["sh", "-c", f'exec "$0" "$@" <&- 2>&-', COMMAND, "exec", *SLOT, "--",
                               "sh", "-c", "ls /proc/$$/fd"], capture_output=True, text=True,
                              env={**os.environ, "WEIR_PROCESS_DIR": self.directory})
        self.assertEqual(done.stdout.split(), ["1"])

    def test_the_command_is_the_holder(self):
        with self.running(*SLEEP) as child:
            self.until("one", holders=1)
            end = time.monotonic() + PATIENCE
            while True:
                got = self.stat("one")
                if got["holders"][0]["command"] == "sleep":
                    break
                self.assertLess(time.monotonic(), end)
            self.assertEqual(got["holders"][0]["process"], child.pid)
            self.assertEqual(got["holders"][0]["amounts"], {"slots": 1})
            child.kill()
            child.wait()
            self.assertEqual(self.stat("one")["holders"], [])
            self.expect(0, *SLOT, "--max-wait", "0s", "true")

    def test_a_nested_command_would_wait_for_ever(self):
        """The outer command waits for the inner one, which waits for what the outer one holds."""
        inner = (COMMAND, "exec", *SLOT, "--", "true")
        for nested in (inner, ("sh", "-c", '"$@"; exit $?', "sh", *inner), ("env", *inner)):
            _, err = self.expect(123, *SLOT, "--", *nested)
            self.assertIn("for ever", err)
            self.assertIn("`slots`", err)
        self.expect(0, *SLOT, "--max-wait", "0s", "true")

    def test_each_level_counts(self):
        two = ("--limit", "slots:2", "--name", "two")
        level = (COMMAND, "exec", *two, "--")
        self.expect(0, *two, "--", *level, "true")
        self.expect(123, *two, "--", *level, *level, "true")
        self.expect(123, *two, "--", *level, "sh", "-c", '"$@"; exit $?', "sh", *level, "true")

    def test_a_nested_command_goes_first(self):
        """Others wait, for more than there is before the outer command ends."""
        three = ("--limit", "slots:3", "--name", "three")
        nested = (COMMAND, "exec", *three, "--", "echo", "inner")
        script = 'read line; "$@"; read line'
        with self.running(*three, "--", "sh", "-c", script, "sh", *nested) as outer:
            self.until("three", holders=1)
            with self.running(*three, "-a", "slots=3", "--", "echo", "all") as other:
                self.until("three", holders=1, waiters=1)
                outer.stdin.write(b"\n")
                outer.stdin.flush()
                self.assertEqual(outer.stdout.readline(), b"inner\n")
                self.until("three", holders=1, waiters=1)
                outer.stdin.close()
                outer.stdin = None  # or communicate() would flush it
                out, _ = other.communicate(timeout=PATIENCE)
                self.assertEqual(out, b"all\n")

    def test_a_command_is_nested_in_what_it_holds_of_that_set(self):
        """Between the two that ask for one slot there is one that holds another set's."""
        inner = (COMMAND, "exec", *SLOT, "--", "true")
        other = (COMMAND, "exec", "--limit", "slots:1", "--name", "other", "--")
        self.expect(123, *SLOT, "--", *other, *inner)
        self.expect(0, "--limit", "slots:2", "--name", "big", "--", *other, *inner)

    def test_a_command_is_nested_in_what_its_subject_holds(self):
        path = self.write("weir.yaml", "version: 1\nsets:\n  clients:\n    backend: process\n"
                          "    subjects: { max: 10 }\n    limits:\n"
                          "      - { type: resource, key: slots, capacity: 1 }\n")
        alice = ("-f", path, "-s", "clients", "-S", "alice", "--")
        bob = ("-f", path, "-s", "clients", "-S", "bob", "--")
        self.expect(123, *alice, COMMAND, "exec", *bob, COMMAND, "exec", *alice, "true")
        self.expect(0, *alice, COMMAND, "exec", *bob, "true")

    def test_a_command_is_nested_in_a_set_of_its_pool(self):
        sets = "".join(f"  {name}: {{ backend: process, limits: "
                       "[ { type: resource, key: slots, capacity: 1 } ] }\n" for name in "ab")
        path = self.write("weir.yaml", "version: 1\nsets:\n" + sets +
                          "pools: { either: { balancer: round_robin, sets: [a, b] } }\n")
        one = ("-f", path, "-s", "either", "--")
        level = (COMMAND, "exec", *one)
        self.expect(123, *one, *level, *level, "true")

    def test_a_waiter_is_served_when_the_command_ends(self):
        with self.running(*SLEEP) as child:
            self.until("one", holders=1)
            with self.running(*SLOT, "--", "echo", "my turn") as waiter:
                line = self.until("one", holders=1, waiters=1)["waiters"]
                self.assertEqual(line[0]["process"], waiter.pid)
                self.assertEqual(line[0]["position"], 1)
                child.kill()
                out, _ = waiter.communicate(timeout=PATIENCE)
                self.assertEqual((out, waiter.returncode), (b"my turn\n", 0))

    def test_a_killed_command_leaves_the_wait_queue(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.running(*SLEEP), self.running(*SLEEP) as waiter:
                self.until("one", holders=1, waiters=1)
                waiter.send_signal(number)
                waiter.communicate(timeout=PATIENCE)
                self.assertEqual(waiter.returncode, -number)
                self.until("one", holders=1, waiters=0)

    def test_a_command_that_cannot_run_uses_nothing(self):
        limits = ("--limit", "calls:2/1h", "--limit", "slots:1", "--name", "both")
        plain = self.write("plain", "no program")
        for _ in range(3):
            _, err = self.expect(127, *limits, "--", "no-such-command")
            self.assertIn("no-such-command", err)
            self.expect(127, *limits, "--", "/nowhere/at/all")
            self.expect(126, *limits, "--", plain)
            self.expect(126, *limits, "--", self.directory)
        self.expect(0, *limits, "--max-wait", "0s", "true")
        self.expect(0, *limits, "--max-wait", "0s", "true")
        self.expect(123, *limits, "--max-wait", "0s", "true")

    def test_verbose(self):
        _, err = self.expect(0, *SLOT, "-v", "true")
        self.assertRegex(err, r"^weir exec: asking `one` for slots=1\n"
                              r"weir exec: granted by `one` after [0-9]+ ms\n$")


class Amounts(Exec):
    def held(self, *arguments):
        """The amounts that a command holds, by key."""
        with self.running(*arguments, "--", "sleep", "1000"):
            return self.until(arguments[arguments.index("-s") + 1], holders=1)["holders"][0][
                "amounts"]

    def test_one_of_each_key(self):
        path = self.write("weir.yaml", CONFIG)
        self.assertEqual(self.held("-f", path, "-s", "mixed"),
                         {"call_count": 1, "tokens": 1, "slots": 1})
        self.assertEqual(self.held("-f", path, "-s", "mixed", "-a", "tokens=7", "-a", "slots=0"),
                         {"call_count": 1, "tokens": 7})
        self.assertEqual([limit["available"] for limit in self.stat("mixed")["limits"]],
                         [3, 2, 12, 2])
        _, err = self.expect(125, "-f", path, "-s", "mixed", "-a", "token=1", "true")
        self.assertIn("`mixed` has no limit of the key `token`", err)

    def test_a_pool(self):
        path = self.write("weir.yaml", CONFIG)
        for _ in range(6):
            self.expect(0, "-f", path, "-s", "either", "-a", "tokens=1", "true")
        _, err = self.expect(125, "-f", path, "-s", "either", "-a", "token=1", "true")
        self.assertIn("no limit of the key `token`", err)

    def test_nothing_else_is_shared(self):
        path = self.write("weir.yaml", CONFIG)
        segments = lambda: sorted(name for name in os.listdir(self.directory) if "weir" in
                                  name.split(".")[-1])
        self.expect(0, "-f", path, "-l", "slots:1", "-s", "own", "true")
        self.assertEqual(segments(), ["own.weir"])
        self.expect(0, "-f", path, "-s", "narrow", "true")
        self.assertEqual(segments(), ["narrow.weir", "own.weir"])
        self.expect(0, "-f", path, "-s", "either", "true")
        self.assertEqual(segments(), ["mixed.weir", "narrow.weir", "own.weir"])
        self.expect(125, "-f", path, "-l", "slots:2", "-s", "narrow", "true")

    def test_definitions_must_agree(self):
        self.expect(0, "-l", "slots:4", "-s", "x", "true")
        _, err = self.expect(125, "-l", "slots:5", "-s", "x", "true")
        self.assertIn("`capacity` of limit 1 (`slots`) is 4 there, 5 here; define it alike, change "
                      "it there with `weir apply`, or remove it with `weir rm`", err)
        _, err = self.expect(125, "-l", "slots:4", "-l", "calls:1/s", "-s", "x", "true")
        self.assertIn("definition of the set: limit 2 (`calls`) is here only;", err)
        self.expect(0, "-l", "slots:4", "-s", "x", "true")

    def test_the_directory_is_made(self):
        made = os.path.join(self.directory, "a b")
        self.expect(0, "--process-dir", made, *SLOT, "true")
        self.assertEqual(os.stat(made).st_mode & 0o7777, 0o700)
        self.assertEqual(os.listdir(made), ["one.weir"])
        self.expect(0, "--process-dir", made + "//", *SLOT, "true")
        _, err = self.expect(125, "--process-dir", made + "/b/c", *SLOT, "true")
        self.assertEqual(err, f"weir exec: directory `{made}/b/c` cannot be made: No such file or "
                              "directory\n")
        link = os.path.join(self.directory, "link")
        os.symlink(os.path.join(self.directory, "elsewhere"), link)
        self.expect(125, "--process-dir", link, *SLOT, "true")
        self.assertEqual(os.listdir(self.directory), sorted(os.listdir(self.directory)))
        self.assertFalse(os.path.exists(link))
        _, err = self.expect(125, "--process-dir", "relative", *SLOT, "true")
        self.assertIn("not an absolute path", err)
        self.assertFalse(os.path.exists("relative"))

    def test_rates(self):
        for algorithm in ("", "/gcra", "/token_bucket", "/sliding_window", "/fixed_window"):
            limits = ("-l", "calls:3/1h" + algorithm, "-s", "x" + algorithm.replace("/", "-"))
            for _ in range(3):
                self.expect(0, *limits, "-w", "0s", "true")
            self.expect(123, *limits, "-w", "0s", "true")

    def test_a_unit_is_a_window(self):
        self.expect(0, "-l", "calls:3/h", "-s", "x", "true")
        self.expect(0, "-l", "calls:3/1h", "-s", "x", "true")  # the same set
        self.assertEqual(self.stat("x")["limits"][0]["available"], 1)


class Ahead(Exec):
    """What a process that waits says on a terminal."""
    def start(self, *arguments, **terminal):
        return self.on_terminal(COMMAND, "exec", *SLOT, *arguments, **terminal)

    def test_how_many_are_ahead(self):
        with self.running(*SLEEP) as first, self.running(*SLEEP) as second:
            self.until("one", holders=1, waiters=1)
            child, terminal = self.start("echo", "mine")
            line = "weir exec: waiting, {} ahead\r".format
            self.assertRegex(self.read_until(terminal, "\r"), f"^({line(1)})+$")  # again and again
            waiters = self.stat("one")["waiters"]
            (first if waiters[0]["process"] == second.pid else second).kill()
            self.assertRegex(self.read_until(terminal, "0 ahead\r"), f"^({line(1)})*({line(0)})+$")
            for other in (first, second):
                other.kill()
            # Erased before the command writes its own.
            self.assertRegex(self.read_until(terminal, " \r"), "^(weir[^\r]*\r)* {27}\r$")
            out, _ = child.communicate(timeout=PATIENCE)
            self.assertEqual((out, child.returncode), (b"mine\n", 0))

    def test_a_signal_erases_the_line(self):
        with self.running(*SLEEP):
            self.until("one", holders=1)
            for number, send in ((signal.SIGINT, lambda: os.write(terminal, b"\x03")),
                                 (signal.SIGTERM, lambda: child.terminate())):
                child, terminal = self.start("true")
                self.read_until(terminal, "0 ahead\r")
                send()
                self.read_until(terminal, " " * 27 + "\r")
                self.assertEqual(child.wait(timeout=PATIENCE), -number)
                self.until("one", holders=1, waiters=0)

    def test_an_ignored_signal_ends_nothing(self):
        with self.running(*SLEEP) as holder:
            self.until("one", holders=1)
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
            child, terminal = self.start("sh", "-c", "kill -INT $$; echo mine")
            signal.signal(signal.SIGINT, previous)
            self.read_until(terminal, "0 ahead\r")
            os.write(terminal, b"\x03")
            self.read_until(terminal, "\r")
            holder.kill()
            out, _ = child.communicate(timeout=PATIENCE)
            self.assertEqual((out, child.returncode), (b"mine\n", 0))

    def test_silence(self):
        child, terminal = self.start("-t", "1h", "echo", "mine")  # need not wait
        self.assertEqual((child.communicate(timeout=PATIENCE)[0], child.returncode), (b"mine\n", 0))
        with self.running(*SLEEP):
            self.until("one", holders=1)
            child, other = self.start("-t", "700ms", "true", to_terminal=False)
            self.assertEqual(child.wait(timeout=PATIENCE), 124)
            child, another = self.start("-t", "700ms", "true", controls=False)
            self.assertEqual(child.wait(timeout=PATIENCE), 124)
            for fd in (terminal, other, another):
                self.assertRaises(OSError, os.read, fd, 1)  # closed, and nothing was written


class Refused(Exec):
    def test_timeout(self):
        with self.running(*SLEEP):
            self.until("one", holders=1)
            for timeout in ("0s", "50ms"):
                out, err = self.expect(124, *SLOT, "--timeout", timeout, "true")
                self.assertEqual((out, err), ("", ""))
                out, err = self.expect(124, *SLOT, "-t", timeout, "--retry-after", "-v", "true")
                self.assertEqual(out, "unknown\n")
                self.assertIn("timed out (`slots`)", err)

    def test_max_wait(self):
        with self.running(*SLEEP):
            self.until("one", holders=1)
            for wait in ("0s", "50ms"):
                out, err = self.expect(123, *SLOT, "--max-wait", wait, "true")
                self.assertEqual((out, err), ("", ""))
                out, err = self.expect(123, *SLOT, "-w", wait, "-r", "-v", "true")
                self.assertEqual(out, "unknown\n")
                self.assertIn("refused", err)

    def test_exit_code(self):
        with self.running(*SLEEP):
            self.until("one", holders=1)
            for wait in (("-t", "0s"), ("-t", "10ms"), ("-w", "0s"), ("-w", "10ms")):
                self.expect(0, *SLOT, *wait, "-E", "0", "true")
                self.expect(75, *SLOT, *wait, "--exit-code", "75", "true")
            self.expect(123, *SLOT, "-a", "slots=2", "-E", "0", "true")  # can never be granted
            self.expect(125, *SLOT, "-a", "other=1", "-E", "0", "true")
        self.expect(7, *SLOT, "-t", "0s", "-E", "0", "sh", "-c", "exit 7")

    def test_when_to_come_back(self):
        rate = ("--limit", "calls:1/1h", "--name", "x")
        self.expect(0, *rate, "true")
        for option, code in (("--max-wait", 123), ("--timeout", 124)):
            for wait in ("0s", "10ms"):
                out, _ = self.expect(code, *rate, option, wait, "--retry-after", "true")
                self.assertRegex(out, r"^[0-9]+(\.[0-9]*[1-9])?\n$")
                self.assertTrue(3600 - 2 * PATIENCE < float(out) <= 3600, out)

    def test_never(self):
        out, err = self.expect(123, *SLOT, "-a", "slots=2", "-r", "true")
        self.assertEqual(out, "never\n")
        self.assertIn("more than can ever be granted (`slots`)", err)

    def test_a_full_line(self):
        narrow = ("-f", self.write("weir.yaml", CONFIG), "-s", "narrow", "--")
        with self.running(*narrow, "sleep", "1000"):
            self.until("narrow", holders=1)
            with self.running(*narrow, "sleep", "1000"):
                self.until("narrow", waiters=1)
                self.expect(123, *narrow, "true")

    def test_no_client_learns_when_to_come_back(self):
        self.expect(0, "--limit", "calls:1/1h", "--name", "x", "true")
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, "exec", "--limit", "calls:1/1h", "--name", "x", "-w",
                                   "0s", "-r", "true"], stdout=full, stderr=subprocess.PIPE,
                                  env={**os.environ, "WEIR_PROCESS_DIR": self.directory})
        self.assertEqual(done.returncode, 125)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
