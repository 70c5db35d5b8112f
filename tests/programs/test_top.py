# SPDX-License-Identifier: MIT
"""weir top on a terminal: what it shows of sets that processes share.

Argument: the command.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

from test_shared import COMMAND, PATIENCE, Shared


class Vt52:
    """A terminal that is simple enough to see what is on it."""
    def __init__(self, rows, columns):
        self.kept = ""
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0

    def clear(self, row, column, rows):
        for i in range(row, rows):
            for k in range(column if i == row else 0, self.columns):
                self.cells[i][k] = " "

    def escape(self, text):
        """What follows an escape; how many characters that were."""
        if text[0] == "Y":
            self.row = min(ord(text[1]) - 32, self.rows - 1)
            self.column = min(ord(text[2]) - 32, self.columns - 1)
            return 3
        if text[0] == "H":
            self.row = self.column = 0
        elif text[0] in "JK":
            self.clear(self.row, self.column, self.rows if text[0] == "J" else self.row + 1)
        elif text[0] in "ABCD":
            self.row = min(max(self.row + {"A": -1, "B": 1}.get(text[0], 0), 0), self.rows - 1)
            self.column = min(max(self.column + {"C": 1, "D": -1}.get(text[0], 0), 0),
                              self.columns - 1)
        elif text[0] == "I":
            self.row = max(self.row - 1, 0)
        return 1

    def write(self, text):
        text, at = self.kept + text, 0
        while at < len(text):
            if text[at] == "\x1b":
                if at + 4 > len(text):
                    break  # its end may be still to come
                at += 1 + self.escape(text[at + 1:])
                continue
            if text[at] == "\r":
                self.column = 0
            elif text[at] == "\n":
                self.row = min(self.row + 1, self.rows - 1)
            elif text[at] == "\b":
                self.column = max(self.column - 1, 0)
            elif text[at] >= " " and self.column < self.columns:
                self.cells[self.row][self.column] = text[at]
                self.column += 1
            at += 1
        self.kept = text[at:]

    def __str__(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)


class Top(Shared):
    def setUp(self):
        super().setUp()
        if "without ncurses" in self.weir("top").stderr:
            self.skipTest("built without ncurses")

    def many(self, name, n, *limits):
        """As many processes that hold or wait."""
        for _ in range(n):
            self.hold(name, *limits)

    def start(self, *arguments, rows=24, columns=80, **env):
        pid, self.terminal = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the parent of the test may ignore it
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(COMMAND, [COMMAND, "top", *arguments],
                      {**self.env(), "TERM": "vt52", **env})
        self.addCleanup(os.close, self.terminal)
        self.screen = Vt52(rows, columns)
        return pid

    def resize(self, rows, columns):
        """After this everything is drawn anew."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until_shown(self, pattern):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, str(self.screen), re.MULTILINE):
            self.assertLess(time.monotonic(), end, f"{pattern}\n{self.screen}")
            if select.select([self.terminal], [], [], 1)[0]:
                self.screen.write(os.read(self.terminal, 65536).decode(errors="replace"))

    def ended(self, pid):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if select.select([self.terminal], [], [], 0.1)[0]:
                    os.read(self.terminal, 65536)
            except OSError:
                pass
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return self.fail("weir top does not end")

    def test_it_shows_and_quits(self):
        pids = self.queue()
        self.hold("another", "slots:1")
        self.until("another", 1, 0)
        pid = self.start("--interval", "100ms")
        self.until_shown(r"^weir top  2 sets  every 0\.1s +j/k set  s sort  i idle  / match  p pause  q quit$")
        self.until_shown(r"^> another +1 +1 +0 +- ")
        os.write(self.terminal, b"j")
        self.until_shown(r"^> t +5 +2 +3 +[0-9.ms]+ +0\.0 +0\.0$")
        self.until_shown(r"^  slots +resource +\[#{10}\] 2/2 +0\.0/s$")
        self.until_shown(r"^  calls +gcra +\[#-{9}\] 2/100 per 1h +0\.0/s$")
        self.until_shown(rf"^ HOLD .*\n +{pids[0]} +[0-9.ms]+  slots=1 calls=1 +sleep 1000\n"
                         rf" +{pids[1]} .*\n WAIT .*\n +1 +{pids[2]} .*  sleep 1000\n"
                         rf" +2 +{pids[3]} .*\n +3 +{pids[4]} ")
        self.resize(30, 120)
        self.until_shown(r"^  slots +resource +\[#{30}\] 2/2 ")  # there is room for longer bars
        os.write(self.terminal, b"p")
        self.until_shown("every 0.1s  paused")
        os.write(self.terminal, b"kkk")
        self.until_shown(r"^> another ")
        os.write(self.terminal, b"jjxp")
        self.until_shown(r"^> t .*\n(.*\n)* HOLD")
        os.write(self.terminal, b"q")
        self.assertEqual(self.ended(pid), 0)

    def test_order_and_match(self):
        self.expect(0, "exec", "-l", "slots:1", "-s", "idle", "true")
        self.hold("busy", "slots:1")
        self.until("busy", 1, 0)
        self.queue("crowd")
        pid = self.start("-i", "50ms")
        self.until_shown(r"^weir top  3 sets  every")
        self.until_shown(r"^> busy .*\n  crowd .*\n  idle ")
        os.write(self.terminal, b"s")
        self.until_shown(r"^weir top  3 sets by waiting  every")
        self.until_shown(r"^  crowd .*\n> busy .*\n  idle ")  # the same set is selected
        os.write(self.terminal, b"i")
        self.until_shown(r"^weir top  2 of 3 sets by waiting  every")
        self.until_shown(r"^  crowd .*\n> busy .*\n\n  slots ")
        os.write(self.terminal, b"sip/cro\x7fo")
        self.until_shown(r"^weir top  match: cro_$")
        os.write(self.terminal, b"\n")
        self.until_shown(r"^weir top  1 set like `cro`  every 0.05s  paused")
        self.until_shown(r"^> crowd .*\n\n  slots ")
        os.write(self.terminal, b"/nowhere\n")
        self.until_shown(r"^weir top  0 sets like `nowhere` ")
        os.write(self.terminal, b"/x\x1b")
        self.until_shown(r"^weir top  3 sets  every")
        self.until_shown(r"^  busy .*\n> crowd .*\n  idle ")
        os.write(self.terminal, b"q")
        self.assertEqual(self.ended(pid), 0)

    def test_options(self):
        self.expect(0, "exec", "-l", "slots:1", "-s", "idle", "true")
        self.hold("busy", "slots:1")
        self.until("busy", 1, 0)
        self.queue("crowd")
        self.start("--sort", "waiting", "--no-idle")
        self.until_shown(r"^weir top  2 of 3 sets by waiting  every")
        self.until_shown(r"^> crowd .*\n  busy .*\n\n")
        self.start("-m", "us")
        self.until_shown(r"^weir top  1 set like `us`  every")
        self.until_shown(r"^> busy .*\n\n")

    def test_the_picture(self):
        """Ten sets with forty holders and waiters on 80 columns and 24 lines."""
        for i in range(9):
            self.many(f"set-of-machines-{i}", 3, "slots:2", f"requests:{1000 * (i + 1)}/h/sliding_window")
        self.many("convert-images-for-the-web", 13, "slots:4", "requests:250000/1000d/token_bucket")
        for i in range(9):
            self.until(f"set-of-machines-{i}", 2, 1)
        self.until("convert-images-for-the-web", 4, 9)
        self.start("--sort", "waiting")
        self.until_shown(r"^ WAIT (.*\n)* +and [0-9]+ more$")
        picture = str(self.screen)
        print(picture)
        lines = picture.split("\n")
        self.assertEqual(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertRegex(lines[0], r"^weir top  10 sets by waiting  every 1s  s sort .* q quit$")
        self.assertRegex(lines[2], r"^> convert-images-for-the-web +13 +4 +9 +[0-9.ms]+ +[0-9.-]+ +[0-9.-]+$")
        for i in range(9):
            self.assertRegex(picture, rf"(?m)^  set-of-machines-{i} +3 +2 +1 ")
        self.assertRegex(picture, r"(?m)^  slots +resource +\[#{10}\] 4/4 +")
        self.assertRegex(picture, r"(?m)^  requests +token_bucket +\[#-{9}\] 4/250k per 1000d +[-0-9.]+/s$")
        self.assertRegex(picture, r"(?m)^ HOLD +PID +SINCE  AMOUNTS +COMMAND$")
        shown = re.findall(r"(?m)^ +[0-9]* +[0-9]+ +[0-9.ms]+  slots=1 requests=1 +sleep 1000$", picture)
        hidden = re.findall(r"(?m)^ +and ([0-9]+) more$", picture)
        self.assertEqual(len(shown) + sum(map(int, hidden)), 13, picture)

    def test_every_size(self):
        self.queue()
        pid = self.start("--interval", "50ms", rows=3, columns=20)
        self.until_shown("^weir top  1 set")
        for rows, columns, pattern in ((1, 1, "^w"), (2, 200, "^weir top .*quit$"), (200, 2, "^we$"),
                                       (24, 80, "^ WAIT"), (5, 10, "^> t")):
            self.resize(rows, columns)
            self.until_shown(pattern)
        os.write(self.terminal, b"q")
        self.assertEqual(self.ended(pid), 0)

    def test_sets_come_and_go(self):
        pid = self.start("--interval", "50ms")
        self.until_shown("  0 sets")
        self.expect(0, "exec", "-l", "slots:1", "-s", "new", "true")
        self.until_shown("^> new ")
        self.expect(0, "rm", "-f", "new")
        self.until_shown("  0 sets")
        os.write(self.terminal, b"q")
        self.assertEqual(self.ended(pid), 0)

    def test_the_terminal_is_hung_up(self):
        pid = self.start("--interval", "50ms")
        self.until_shown("weir top")
        os.write(self.terminal, b"\x04")  # no end of file for a reader of keys
        os.kill(pid, signal.SIGHUP)
        self.assertEqual(self.ended(pid), -signal.SIGHUP)

    def test_no_terminal(self):
        _, err = self.expect(3, "top")
        self.assertIn("needs a terminal", err)
        pid = self.start(TERM="no-such-terminal")
        self.until_shown("is not known")
        self.assertEqual(self.ended(pid), 3)

    def test_a_directory_that_is_refused(self):
        os.chmod(self.directory, 0o755)
        pid = self.start()
        self.until_shown("mode 0755")
        self.assertEqual(self.ended(pid), 3)

    def test_wrong_usage(self):
        for interval in ("0s", "49ms", "2h", "1", "forever"):
            _, err = self.expect(2, "top", "-i", interval)
            self.assertIn("weir top --help", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
