# SPDX-License-Identifier: MIT
"""weir hold as shell scripts use it: a grant for the rest of the script, by a descriptor.

Arguments: the command, and a program that runs another one in a world without waiting for locks.
"""
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
import unittest

from test_exec import COMMAND, PATIENCE, SLEEP, SLOT, Exec

COMMAND = os.path.abspath(COMMAND)
NO_LOCK_WAIT = os.path.abspath(sys.argv[2])
HOLD = f"'{COMMAND}' hold --fd 9 --limit slots:1 --name one"


class Hold(Exec):
    def environment(self):
        return {**os.environ, "WEIR_PROCESS_DIR": self.directory}

    def script(self, text):
        """A script that has ended: its exit status, its output, its messages."""
        done = subprocess.run(["sh", "-c", text], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=PATIENCE, env=self.environment())
        return done.returncode, done.stdout, done.stderr

    @contextlib.contextmanager
    def running_script(self, text):
        """A script in a session of its own, all of which is killed in the end."""
        child = subprocess.Popen(["sh", "-c", text], stdin=subprocess.DEVNULL, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=self.environment(), start_new_session=True)
        try:
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()

    def free(self):
        """Nothing is held: at once, or as soon as the holder has seen the end of the descriptor."""
        self.until("one", holders=0, waiters=0)
        self.expect(0, *SLOT, "-w", "0s", "true")


class Granted(Hold):
    def test_the_rest_of_a_script(self):
        code, out, err = self.script(
            f"exec 9>/dev/null; {HOLD} || exit; '{COMMAND}' exec -l slots:1 -s one -w 0s true; "
            "echo $?; exit 7")
        self.assertEqual((code, out, err), (7, "123\n", ""))
        self.free()

    def test_a_script_that_is_killed(self):
        with self.running_script(f"exec 9>/dev/null; {HOLD}; echo held; read x; sleep 1000") as it:
            self.assertEqual(it.stdout.readline(), "held\n")
            (holder,) = self.until("one", holders=1)["holders"]
            self.assertNotEqual(holder["process"], it.pid)
            with self.running(*SLOT, "--", "echo", "my turn") as waiter:
                self.until("one", holders=1, waiters=1)
                os.killpg(it.pid, signal.SIGKILL)
                self.assertEqual(waiter.communicate(timeout=PATIENCE)[0], b"my turn\n")
        self.free()
        end = time.monotonic() + PATIENCE
        while os.path.exists(f"/proc/{holder['process']}"):  # and the holder does not stay
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def test_the_last_copy_counts(self):
        with self.running_script(f"exec 9>/dev/null; {HOLD}\n sleep 1000 & echo $!; exit") as it:
            sleeper = int(it.stdout.readline())
            self.assertEqual(it.wait(timeout=PATIENCE), 0)
            self.expect(123, *SLOT, "-w", "0s", "true")
            os.kill(sleeper, signal.SIGKILL)
            self.free()

    def test_closing_releases(self):
        with self.running_script(f"exec 9>/dev/null; {HOLD}\n sleep 1000 9>&- & echo $!; exit") as it:
            sleeper = int(it.stdout.readline())
            self.free()
            os.kill(sleeper, 0)
        with self.running_script(f"exec 9>/dev/null; {HOLD}; exec 9>&-; echo; sleep 1000") as it:
            it.stdout.readline()
            self.free()
            self.assertIsNone(it.poll())

    def test_any_file(self):
        path = self.write("file", "text")
        with self.running_script(f"exec 9>>{path}; {HOLD}; echo held; rm {path}; sleep 1000") as it:
            it.stdout.readline()
            self.expect(123, *SLOT, "-w", "0s", "true")
        self.free()

    def test_two_grants_of_one_descriptor(self):
        other = HOLD.replace("--name one", "--name two")
        with self.running_script(f"exec 9>/dev/null; {HOLD} && {other} && echo held; "
                                 "sleep 1000") as it:
            self.assertEqual(it.stdout.readline(), "held\n")
            self.assertEqual([len(self.stat(name)["holders"]) for name in ("one", "two")], [1, 1])
        self.free()
        self.until("two", holders=0)

    def test_the_holder_is_in_nothing_s_way(self):
        # No stream that the script or its parent reads to the end, no other descriptor, no directory.
        with self.running_script(f"cd {self.directory}; exec 9>/dev/null; exec 8>fifo.out; "
                                 f"out=$({HOLD} 2>&1); echo \"<$out>\"; sleep 1000") as it:
            self.assertEqual(it.stdout.readline(), "<>\n")
            (holder,) = self.until("one", holders=1)["holders"]
            holder = f"/proc/{holder['process']}"
            self.assertEqual(os.readlink(holder + "/cwd"), "/")
            links = [os.readlink(f"{holder}/fd/{fd}") for fd in os.listdir(holder + "/fd")]
            self.assertEqual([link for link in links if "fifo" in link or "pipe:" in link], [])

    def test_signals_of_the_script_are_not_the_holder_s(self):
        with self.running_script(f"trap : INT TERM HUP; exec 9>/dev/null; {HOLD}; echo held; "
                                 "while :; do sleep 1000; done") as it:
            it.stdout.readline()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.killpg(it.pid, number)
            self.expect(123, *SLOT, "-w", "20ms", "true")
        self.free()


class Refused(Hold):
    def test_exit_status(self):
        with self.running(*SLEEP):
            self.until("one", holders=1)
            for options, code, said in (("-t 0s", 124, ""), ("-t 10ms", 124, ""), ("-w 0s", 123, ""),
                                        ("-w 0s -r", 123, "unknown\n"), ("-t 0s -E 0", 0, ""),
                                        ("-w 5ms -E 75", 75, ""), ("-a slots=2 -r -E 0", 123, "never\n")):
                code_, out, _ = self.script(f"exec 9>/dev/null; {HOLD} {options}")
                self.assertEqual((code_, out), (code, said), options)
        self.free()

    def test_a_script_that_is_killed_while_it_waits(self):
        with self.running(*SLEEP):
            self.until("one", holders=1)
            with self.running_script(f"exec 9>/dev/null; {HOLD}; sleep 1000") as it:
                self.until("one", waiters=1)
                it.kill()  # the script alone
                it.wait()
                self.until("one", holders=1, waiters=0)

    def test_a_wait_that_is_killed(self):
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
            with self.running(*SLEEP):
                self.until("one", holders=1)
                with self.running_script(f"exec 9>/dev/null; {HOLD} & echo $!; wait $!; echo $?; "
                                         "sleep 1000") as it:
                    waiting = int(it.stdout.readline())
                    self.until("one", waiters=1)
                    os.kill(waiting, number)
                    self.assertEqual(int(it.stdout.readline()) - 128, number)
                    self.until("one", holders=1, waiters=0)

    def test_a_copy_of_a_standard_stream(self):
        path = self.write("file", "")
        for stream, opened in ((0, f"exec <>{path} 9>&0"), (1, f"exec >>{path} 9>&1"),
                               (2, f"exec 2>>{path} 9>&2")):
            code, _, err = self.script(f"{opened}; {HOLD}")
            with open(path, encoding="utf-8") as file:
                err += file.read()
            self.assertEqual(code, 125)
            self.assertIn(f"descriptor 9 is a copy of descriptor {stream},", err)
        for opened in (f"exec >>{path} 9>>{path}", "exec 9>/dev/null"):  # the file, opened anew
            self.assertEqual(self.script(f"{opened}; {HOLD}")[0], 0, opened)
            self.free()

    def test_a_descriptor_that_cannot_be_watched(self):
        unable = f"exec 9>/dev/null; '{NO_LOCK_WAIT}' {{}} {HOLD}".format
        with self.running(*SLEEP):
            self.until("one", holders=1)
            code, _, err = self.script(unable(errno.EIO))
            self.assertEqual(code, 125)
            self.assertIn("weir hold: descriptor 9 cannot be watched: Input/output error\n", err)
            for error in (errno.EINTR, errno.EAGAIN, errno.ENOLCK):  # may pass
                code, _, err = self.script(unable(error) + " -t 300ms")
                self.assertEqual((code, err), (124, ""))
        with self.running_script(unable(errno.EIO) + "; echo; sleep 1000") as it:
            it.stdout.readline()
            self.free()

    def test_an_interrupt_erases_the_line(self):
        with self.running(*SLEEP):
            self.until("one", holders=1)
            for _ in range(5):
                script, terminal = self.on_terminal("sh", "-c", f"exec 9>/dev/null; {HOLD}")
                self.read_until(terminal, "0 ahead\r")
                os.write(terminal, b"\x03")
                self.read_until(terminal, " " * 27 + "\r")
                self.assertEqual(script.wait(timeout=PATIENCE), -signal.SIGINT)
                self.until("one", holders=1, waiters=0)

    def test_wrong_usage(self):
        for command, words in (
                (HOLD, "descriptor 9 is not open: open it before"),
                (f"exec 9</dev/null; {HOLD}", "descriptor 9 is not open for writing"),
                (f"exec 9>/; {HOLD}", "irectory"),
                (f"true | {HOLD} 9>&0", "descriptor 9 is "),
                (f"echo x | ({HOLD}) 9>&1 | cat", "neither a file nor a device"),
                (f"exec 9>/dev/null; {HOLD} true", "takes no command, not true"),
                (f"exec 9>/dev/null; '{COMMAND}' hold -s x", "no descriptor is given"),
                (f"exec 9>/dev/null; '{COMMAND}' hold --fd 9", "no set is given"),
                (f"exec 9>/dev/null; '{COMMAND}' hold --fd 2 -s x", "from 3, not 2"),
                (f"exec 9>/dev/null; '{COMMAND}' hold --fd 9x -s x", "from 3, not 9x"),
                (f"exec 9>/dev/null; '{COMMAND}' hold --fd 99999999999999 -s x", "from 3, not 999"),
                (f"exec 9>/dev/null; '{COMMAND}' hold --bogus", "bogus")):
            _, out, err = self.script(command)
            self.assertEqual(out, "", command)
            self.assertIn(words, err, command)

    def test_a_full_disk(self):
        code, _, _ = self.script(f"'{COMMAND}' hold --help >/dev/full")
        self.assertEqual(code, 125)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
