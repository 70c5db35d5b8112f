# SPDX-License-Identifier: MIT
"""A Redis server of the test's own, and a client that speaks to it: no more than the tests need.

The server listens on a socket in a temporary directory, keeps nothing on disk unless asked to, and is
killed by its process id. Without redis-server the test is skipped: exit status 77.
"""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PR_SET_PDEATHSIG = 1
PATIENCE = 60  # seconds that a busy machine may take for anything
CLOCK = """  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
"""
FAKE_CLOCK = """  return tonumber(redis.call('GET', 'clock'))
"""
IDENTITY = """local function server_identity()
"""
FAKE_IDENTITY = """local function server_identity()
  local fake = redis.call('GET', 'identity')
  if fake then
    return fake, tonumber(redis.call('GET', 'start'))
  end
"""


def die_with_parent():
    """A test that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def need_server():
    if not shutil.which("redis-server"):
        print("there is no redis-server (Debian: redis-server)")
        sys.exit(77)


def read_library(path, fake_clock=False, fake_identity=False):
    """The library, with the functions that read the clock and the server's identity replaced."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for wanted, real, fake in ((fake_clock, CLOCK, FAKE_CLOCK), (fake_identity, IDENTITY, FAKE_IDENTITY)):
        if wanted:
            if text.count(real) != 1:
                sys.exit("the library reads the clock, or the server's identity, in another way")
            text = text.replace(real, fake)
    return text


class ReplyError(Exception):
    """An error reply; its first word is the code."""

    @property
    def code(self):
        return str(self).split(" ", 1)[0]


class Client:
    def __init__(self, path=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE)
        self.input = self.socket.makefile("rb", 1 << 16)
        self.output = []
        if path:
            self.connect(path)

    def connect(self, path):
        self.socket.connect(path)

    def close(self):
        self.input.close()
        self.socket.close()

    def send(self, *words):
        """Adds a command to those that flush() sends."""
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        self.output.append(b"".join(parts))

    def flush(self):
        self.socket.sendall(b"".join(self.output))
        self.output = []

    def read(self):
        """The next reply. An error reply is returned, not raised."""
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return ReplyError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.input.read(int(rest) + 2)[:-2].decode("latin-1")
        return None if rest == b"-1" else [self.read() for _ in range(int(rest))]

    def call(self, *words):
        self.send(*words)
        self.flush()
        reply = self.read()
        if isinstance(reply, ReplyError):
            raise reply
        return reply


class Server:
    def __init__(self, *options):
        need_server()
        self.directory = tempfile.mkdtemp()
        self.options = options
        self.path = os.path.join(self.directory, "socket")
        self.process = None
        self.start()

    def command(self):
        return ["redis-server", "--port", "0", "--unixsocket", self.path, "--dir", self.directory, "--save", "",
                "--daemonize", "no", "--logfile", os.path.join(self.directory, "log"), *self.options]

    def start(self):
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        preexec_fn=die_with_parent)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.answers():
                return
            time.sleep(0.01)
        self.stop()
        sys.exit("redis-server does not answer")

    def answers(self):
        if not os.path.exists(self.path):
            return False
        client = Client()
        try:
            client.connect(self.path)
            return client.call("PING") == "PONG"
        except (OSError, ReplyError):
            return False
        finally:
            client.close()

    def call(self, *words):
        client = Client(self.path)
        try:
            return client.call(*words)
        finally:
            client.close()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory)

    def run_id(self):
        info = self.call("INFO", "server")
        return next(line.split(":")[1] for line in info.split("\r\n") if line.startswith("run_id:"))
