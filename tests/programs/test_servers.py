#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An example server, seen from a client: what is granted, held back, refused and given back.

usage: test_servers.py SERVER [NO_URING]

With NO_URING (a program that takes io_uring away from another) it is also tested that the server
says so. Exits with 77, which means skipped, if the server finds no io_uring.
"""

import json
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

UNAVAILABLE = 69
PATIENCE = 30  # seconds until something that must happen is taken not to happen

SERVER = sys.argv[1]
NO_URING = sys.argv[2] if len(sys.argv) > 2 else None

ONE_AT_A_TIME = """
version: 1
sets:
  narrow:
    config: { region: here }
    max_waiters: 2
    limits:
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 1000, window: 1h }
      - { type: resource, key: connections, capacity: 1 }
pools:
  api: { sets: [narrow] }
"""

# The same, but for the set of its pool.
ONE_BESIDE = ONE_AT_A_TIME.replace("pools:", """\
  beside:
    limits:
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 1000, window: 1h }
      - { type: resource, key: connections, capacity: 1 }
pools:""").replace("sets: [narrow]", "sets: [beside]")

ONE_CALL_IN_TWO_SECONDS = """
version: 1
sets:
  api:
    max_wait: 500ms
    limits:
      - { type: call, algorithm: gcra, capacity: 1, window: 2s }
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s }
"""

ONE_CALL_IN_A_WHILE = """
version: 1
sets:
  api:
    limits:
      - { type: call, algorithm: gcra, capacity: 1, window: 300ms }
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s }
"""

SHORT_TIMEOUT = """
version: 1
sets:
  api:
    timeout: 200ms
    limits:
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s }
      - { type: resource, key: connections, capacity: 1 }
"""

SHORT_MAX_WAIT = SHORT_TIMEOUT.replace("timeout", "max_wait")


class Answer:
    def __init__(self, head, body):
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value
                        for name, value in (line.split(": ", 1) for line in lines[1:])}
        self.body = body


class Client:
    """A connection."""

    def __init__(self, port, receive_buffer=None):
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.bytes = b""
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise

    def send(self, *headers, path="/", method="GET"):
        lines = [f"{method} {path} HTTP/1.1", "Host: test", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        return self

    def answer(self):
        while b"\r\n\r\n" not in self.bytes:
            self.receive()
        head, rest = self.bytes.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        while len(rest) < length:
            self.receive()
            rest = self.bytes.split(b"\r\n\r\n", 1)[1]
        self.bytes = rest[length:]
        return Answer(head, rest[:length])

    def receive(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        self.bytes += data

    def is_closed(self):
        """Waits until the server closes the connection without a word."""
        try:
            return self.bytes == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class ServerTest(unittest.TestCase):
    def start(self, config, *options):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.log = os.path.join(directory.name, "log")
        self.file = os.path.join(directory.name, "api.yaml")
        with open(self.file, "w", encoding="utf-8") as out:
            out.write(config)
        self.server = subprocess.Popen([SERVER, "--log", self.log, *options, self.file],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.server.stdout.readline()
        if not line:
            self.fail(self.server.communicate(timeout=PATIENCE)[1])
        self.addCleanup(self.stop)
        self.port = int(line.rsplit(":", 1)[1])

    def stop(self, errors=""):
        """Ends the server, once; with a sanitizer, that is when leaks are found. What it says begins
        with `errors`, and is nothing if they are empty."""
        if self.server.stderr.closed:
            return
        if self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
        _, said = self.server.communicate(timeout=PATIENCE)
        self.assertEqual((self.server.returncode, said[:len(errors) or None]), (0, errors))

    def connect(self, **options):
        client = Client(self.port, **options)
        self.addCleanup(client.close)
        return client

    def stats(self):
        client = Client(self.port)
        answer = client.send(path="/stats?now").answer()
        client.close()
        self.assertEqual(answer.status, 200)
        return json.loads(answer.body)["sets"][0]

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it does not come about")
            time.sleep(0.005)

    def until_counts(self, **counts):
        self.until(lambda: counts.items() <= self.stats().items())

    def fds(self):
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def fds_at_rest(self):
        """After a request of our own, so that whatever is opened late is open."""
        self.stats()
        time.sleep(0.1)
        return self.fds()

    def events(self):
        """The log: (event, job) in order."""
        with open(self.log, encoding="utf-8") as lines:
            return [(line.split()[1], int(line.split()[2])) for line in lines]

    # -- what is admitted --

    def test_granted(self):
        self.start(ONE_AT_A_TIME)
        client = self.connect()
        for _ in range(3):
            answer = client.send("X-Tokens: 20", "X-Used: 12").answer()
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.headers["x-weir-set"], "narrow")
            self.assertEqual(answer.headers["x-region"], "here")
            self.assertEqual(answer.headers["connection"], "keep-alive")
            self.assertEqual(answer.body, b"12 of 20 tokens used\n")
        stats = self.stats()
        tokens, connections = stats["limits"]
        self.assertEqual((stats["granted"], stats["released"], stats["held"]), (3, 3, 0))
        self.assertEqual((stats["refunded"], stats["missing_update"]), (3, 0))
        self.assertEqual((tokens["granted"], tokens["refunded"]), (60, 24))
        self.assertIn(tokens["available"], (1000 - 36, 1000 - 35, 1000 - 34))
        self.assertEqual((connections["granted"], connections["held"]), (3, 0))

    def test_held_back_until_a_release(self):
        self.start(ONE_AT_A_TIME)
        first, second = self.connect(), self.connect()
        first.send("X-Service-Ms: 300")
        self.until_counts(held=1)
        second.send("X-Service-Ms: 0")
        self.until_counts(held=1, waiting=1)
        self.assertEqual(first.answer().status, 200)
        self.assertEqual(second.answer().status, 200)
        self.assertEqual(self.stats()["granted_waited"], 1)
        self.stop()
        jobs = [event for event in self.events() if event[0] != "refused"]
        (_, one), (_, two) = [event for event in jobs if event[0] == "started"]
        self.assertEqual(jobs, [("started", one), ("waiting", two), ("finished", one),
                                ("started", two), ("finished", two)])

    def test_held_back_until_an_instant(self):
        self.start(ONE_CALL_IN_A_WHILE)
        clients = [self.connect() for _ in range(4)]
        begin = time.monotonic()
        for client in clients:
            client.send()
        for client in clients:
            self.assertEqual(client.answer().status, 200)
        self.assertGreaterEqual(time.monotonic() - begin, 0.9)

    # -- what is refused --

    def test_429_when_the_wait_queue_is_full(self):
        self.start(ONE_AT_A_TIME)
        clients = [self.connect() for _ in range(3)]
        for n, client in enumerate(clients):
            client.send("X-Service-Ms: 400")
            self.until_counts(held=1, waiting=n)
        late = self.connect().send()
        answer = late.answer()
        self.assertEqual(answer.status, 429)
        self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
        self.assertEqual(answer.headers["x-weir-set"], "narrow")
        self.assertEqual([client.answer().status for client in clients], [200] * 3)
        self.assertEqual(late.send().answer().status, 200)  # the connection was kept

    def test_429_when_the_wait_would_be_too_long(self):
        self.start(ONE_CALL_IN_TWO_SECONDS)
        client = self.connect()
        begin = time.monotonic()
        self.assertEqual(client.send("X-Service-Ms: 0").answer().status, 200)
        answer = client.send().answer()
        passed = time.monotonic() - begin
        self.assertEqual(answer.status, 429)
        self.assertLessEqual(int(answer.headers["retry-after"]), 2)
        self.assertGreaterEqual(int(answer.headers["retry-after"]), math.ceil(2 - passed))
        self.assertIn(b"call_count", answer.body)
        self.assertEqual(answer.headers["ratelimit-policy"],
                         '"call_count";q=1;w=2, "tokens";q=100;qu="tokens";w=1')
        left = re.fullmatch(r'"call_count";r=0;t=(\d), "tokens";r=\d+(;t=\d)?', answer.headers["ratelimit"])
        self.assertLessEqual(int(left[1]), int(answer.headers["retry-after"]))

    def test_429_when_the_wait_has_become_too_long(self):
        self.start(SHORT_MAX_WAIT)
        self.connect().send("X-Service-Ms: 1500")
        self.until_counts(held=1)
        answer = self.connect().send().answer()
        self.assertEqual(answer.status, 429)
        self.assertIn("retry-after", answer.headers)
        self.until_counts(waiting=0, refused_max_wait=1)

    def test_503_after_the_timeout(self):
        self.start(SHORT_TIMEOUT)
        self.connect().send("X-Service-Ms: 1500")
        self.until_counts(held=1)
        client = self.connect()
        self.assertEqual(client.send().answer().status, 503)
        self.until_counts(waiting=0, timed_out=1)

    def test_400_for_more_than_can_ever_be_granted(self):
        self.start(ONE_AT_A_TIME)
        answer = self.connect().send("X-Tokens: 1001").answer()
        self.assertEqual(answer.status, 400)
        self.assertNotIn("retry-after", answer.headers)

    def test_a_granted_request_is_told_what_is_left(self):
        self.start(ONE_AT_A_TIME)
        answer = self.connect().send("X-Tokens: 300", "X-Service-Ms: 0").answer()
        self.assertEqual(answer.headers["ratelimit-policy"],
                         '"tokens";q=1000;qu="tokens";w=3600, "connections";q=1;qu="concurrent-requests"')
        self.assertRegex(answer.headers["ratelimit"], r'^"tokens";r=70\d;t=[1-4], "connections";r=0$')

    # -- clients that leave --

    def leave_while_waiting(self, leave):
        self.start(ONE_AT_A_TIME)
        holder, leaver, stayer = [self.connect() for _ in range(3)]
        holder.send("X-Service-Ms: 60000")
        self.until_counts(held=1)
        leaver.send()
        self.until_counts(waiting=1)
        stayer.send()
        self.until_counts(waiting=2)
        leave(leaver)
        self.until_counts(waiting=1, canceled=1)
        newcomer = self.connect().send()  # there is room in the wait queue again
        self.until_counts(waiting=2)
        leave(holder)  # and this gives the connection to the next
        self.assertEqual(stayer.answer().status, 200)
        self.assertEqual(newcomer.answer().status, 200)
        self.until_counts(held=0, waiting=0, missing_update=0)
        self.assertEqual(self.stats()["limits"][1]["held"], 0)
        self.stop()
        self.assertEqual([event for event, _ in self.events() if event in ("left", "dropped")],
                         ["left", "dropped"])

    def test_close_gives_place_and_resource_back(self):
        self.leave_while_waiting(Client.close)

    def test_reset_gives_place_and_resource_back(self):
        self.leave_while_waiting(Client.reset)

    def test_all_leave_at_once(self):
        self.start(ONE_AT_A_TIME.replace("max_waiters: 2", "max_waiters: 200"))
        for _ in range(5):
            clients = [self.connect().send("X-Service-Ms: 2") for _ in range(60)]
            self.assertEqual(clients[0].answer().status, 200)
            for client in clients:
                client.close()
            self.until_counts(held=0, waiting=0)
        stats = self.stats()
        self.assertEqual(stats["granted"], stats["released"])
        self.assertEqual(stats["missing_update"], 0)

    # -- requests in all shapes --

    def refused(self, status, request, *options):
        if not hasattr(self, "server"):
            self.start(ONE_AT_A_TIME, *options)
        client = self.connect()
        client.socket.sendall(request)
        answer = client.answer()
        self.assertEqual((answer.status, answer.headers["connection"]), (status, "close"), request)
        client.close()

    def test_malformed_requests(self):
        for request in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x01\x02\x03",
                        b"GET / HTTP/1.1\r\nHost: a\r\nX-Tokens: many\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: a\r\nX-Tokens: -1\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: a\r\nX-Tokens:\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: a\r\nX-Tokens: 99999999999999999999\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: a\r\nX-Service-Ms: 60001\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"):
            self.refused(400, request)
        self.refused(405, b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.refused(505, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n")
        self.assertEqual(self.stats()["granted"], 0)

    def test_too_large_requests(self):
        self.refused(431, b"GET / HTTP/1.1\r\nHost: a\r\nX-Much: " + b"x" * 20000 + b"\r\n\r\n")
        self.refused(431, b"GET / HTTP/1.1\r\n" + b"Host: a\r\n" * 33 + b"\r\n")
        self.refused(431, b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        self.refused(413, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" +
                     b"x" * 100000)
        self.assertEqual(self.stats()["granted"], 0)

    def test_pipelined_requests(self):
        self.start(ONE_AT_A_TIME)
        client = self.connect()
        one = "GET / HTTP/1.1\r\nHost: a\r\nX-Service-Ms: 1\r\nX-Tokens: {}\r\n\r\n"
        client.socket.sendall("".join(one.format(n) for n in range(1, 11)).encode())
        for n in range(1, 11):
            self.assertEqual(client.answer().body, f"{n} of {n} tokens used\n".encode())

    def test_requests_in_pieces(self):
        self.start(ONE_AT_A_TIME)
        client = self.connect()
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bodies = (b"Content-Length: 5\r\n\r\nhello",
                  b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        for body in bodies:
            for byte in b"POST /x?y HTTP/1.1\r\nHost: a\r\nX-Tokens: 37\r\n" + body:
                client.socket.sendall(bytes([byte]))
                time.sleep(0.0005)
            self.assertEqual(client.answer().body, b"37 of 37 tokens used\n")

    def test_connection_is_closed_on_demand(self):
        self.start(ONE_AT_A_TIME)
        client = self.connect().send("Connection: close")
        self.assertEqual(client.answer().headers["connection"], "close")
        self.assertTrue(client.is_closed())
        client = self.connect()
        client.socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
        self.assertEqual(client.answer().status, 200)
        self.assertTrue(client.is_closed())

    # -- bounds --

    def test_slow_clients_are_closed(self):
        self.start(ONE_AT_A_TIME, "--idle-ms", "200")
        silent, slow, never_closing = [self.connect() for _ in range(3)]
        slow.socket.sendall(b"GET / HTTP/1.1\r\nHo")
        never_closing.send("Connection: close").answer()
        self.assertTrue(silent.is_closed())
        self.assertTrue(slow.is_closed())
        self.assertTrue(never_closing.is_closed())
        waiter = self.connect().send("X-Service-Ms: 500")  # but a client with work under way is not idle
        self.assertEqual(waiter.answer().status, 200)
        self.assertTrue(waiter.is_closed())

    def send_much(self, client, n):
        """Asks for more than fits into the socket's buffers, and reads none of it."""
        request = b"GET /stats HTTP/1.1\r\nHost: a\r\n\r\n"

        def send():
            try:
                client.socket.sendall(request * n)
            except OSError:
                pass  # the server gave up

        sender = threading.Thread(target=send)
        sender.start()
        self.addCleanup(sender.join)
        time.sleep(0.3)

    def test_answers_wait_for_a_slow_reader(self):
        self.start(ONE_AT_A_TIME)
        client = self.connect(receive_buffer=4096)
        self.send_much(client, 10000)
        self.assertEqual(self.connect().send().answer().status, 200)  # others are served meanwhile
        for _ in range(10000):
            answer = client.answer()
            self.assertEqual(answer.status, 200)
            json.loads(answer.body)

    def test_a_client_that_does_not_read_is_closed(self):
        self.start(ONE_AT_A_TIME, "--idle-ms", "400")
        base = self.fds_at_rest()
        client = self.connect(receive_buffer=4096)
        self.send_much(client, 50000)
        self.assertGreater(self.fds(), base)
        self.until(lambda: self.fds() <= base)

    def test_connections_are_bounded(self):
        self.start(ONE_AT_A_TIME, "--connections", "2")
        first, second, third = [self.connect() for _ in range(3)]
        self.assertEqual(first.send().answer().status, 200)
        self.assertEqual(second.send().answer().status, 200)
        third.send()
        third.socket.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            third.answer()
        third.socket.settimeout(PATIENCE)
        first.close()
        self.assertEqual(third.answer().status, 200)

    def test_no_descriptor_is_leaked(self):
        self.start(ONE_AT_A_TIME)

        def exercise():
            clients = [self.connect() for _ in range(4)]
            for n, client in enumerate(clients[:3]):
                client.send("X-Service-Ms: 30" if n else "X-Service-Ms: 300")  # until all wait
                self.until_counts(waiting=n) if n < 2 else None
            self.until_counts(waiting=2)
            self.assertEqual(clients[3].send().answer().status, 429)
            clients[1].reset()
            self.assertEqual(clients[0].answer().status, 200)
            self.assertEqual(clients[2].answer().status, 200)
            for client in clients:
                client.close()
            self.until_counts(held=0, waiting=0)

        self.connect().send().answer()
        exercise()  # starts what is started lazily
        base = self.fds_at_rest()
        for _ in range(5):
            exercise()
        self.until(lambda: self.fds() <= base)

    # -- the end --

    def shut_down(self, number):
        self.start(ONE_AT_A_TIME)
        served, waiting, idle = [self.connect() for _ in range(3)]
        self.assertEqual(idle.send().answer().status, 200)
        served.send("X-Service-Ms: 500")
        self.until_counts(held=1)
        waiting.send()
        self.until_counts(waiting=1)
        self.server.send_signal(number)
        self.assertTrue(idle.is_closed())
        self.assertTrue(waiting.is_closed())
        self.assertEqual(served.answer().status, 200)  # what has begun is finished
        self.assertTrue(served.is_closed())
        self.stop()
        self.assertEqual([event for event, _ in self.events()][-2:], ["left", "finished"])
        with self.assertRaises(ConnectionRefusedError):
            self.connect()

    def test_sigterm(self):
        self.shut_down(signal.SIGTERM)

    def test_sigint(self):
        self.shut_down(signal.SIGINT)

    # -- another configuration while it runs --

    def write(self, config):
        """As editors do: another file, which is renamed."""
        with open(self.file + ".new", "w", encoding="utf-8") as out:
            out.write(config)
        os.rename(self.file + ".new", self.file)

    def test_the_file_is_read_when_it_changes(self):
        self.start(ONE_AT_A_TIME)
        first, second = self.connect(), self.connect()
        first.send("X-Service-Ms: 1000")
        self.until_counts(held=1)
        second.send()
        self.until_counts(waiting=1)
        self.write(ONE_AT_A_TIME.replace("capacity: 1", "capacity: 2"))
        self.assertEqual(self.server.stdout.readline(), f"changed to {self.file}\n")
        self.assertEqual(second.answer().status, 200)  # the waiter was granted by the new definition
        self.assertEqual(first.answer().status, 200)
        self.stop()  # which writes what is left of the log
        self.assertEqual([event for event, _ in self.events() if event == "finished"], ["finished"] * 2)

    def test_a_pool_gets_another_set(self):
        self.start(ONE_AT_A_TIME)
        first, second, third = self.connect(), self.connect(), self.connect()
        first.send("X-Service-Ms: 2000")
        self.until_counts(held=1)
        second.send()
        self.until_counts(waiting=1)
        self.write(ONE_BESIDE)
        self.server.send_signal(signal.SIGHUP)
        self.assertEqual(self.server.stdout.readline(), f"changed to {self.file}\n")
        answers = [third.send().answer(), first.answer(), second.answer()]
        self.assertEqual([answer.status for answer in answers], [200] * 3)
        self.assertEqual([answer.headers["x-weir-set"] for answer in answers],
                         ["beside", "narrow", "narrow"])  # the second one where it waited
        self.stop()
        self.assertEqual([event for event, _ in self.events() if event == "finished"], ["finished"] * 3)

    def test_sighup(self):
        self.start(ONE_AT_A_TIME)
        self.server.send_signal(signal.SIGHUP)
        self.assertEqual(self.server.stdout.readline(), f"changed to {self.file}\n")
        self.assertEqual(self.connect().send().answer().status, 200)

    def test_a_wrong_file_changes_nothing(self):
        self.start(ONE_AT_A_TIME)
        self.write("version: 1\nsets: { api: { limits: [ { type: resource, key: n, capacity: none } ] } }\n")
        self.assertEqual(self.server.stdout.readline(), f"unchanged by {self.file}\n")
        self.assertEqual(self.connect().send().answer().status, 200)
        self.stop(errors=f"{self.file}:2:")

    # -- the command line --

    def run_server(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)

    def test_complaints(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("version: 1\nsets:\n  api:\n    limits:\n      - { type: rat }\n")
            file.flush()
            result = self.run_server(SERVER, file.name)
            self.assertEqual(result.returncode, 78)
            self.assertIn(f"{file.name}:5:17: ", result.stderr)
        self.assertEqual(self.run_server(SERVER).returncode, 64)
        self.assertEqual(self.run_server(SERVER, "--port", "x", "f").returncode, 64)
        self.assertNotEqual(self.run_server(SERVER, "/nonexistent.yaml").returncode, 0)

    @unittest.skipIf(NO_URING is None, "needs no io_uring anyway")
    def test_without_io_uring(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(ONE_AT_A_TIME)
            file.flush()
            result = self.run_server(NO_URING, SERVER, file.name)
        self.assertEqual(result.returncode, UNAVAILABLE)
        self.assertIn("io_uring cannot be used here (Operation not permitted)", result.stderr)


def io_uring_is_missing():
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(ONE_AT_A_TIME)
        file.flush()
        server = subprocess.Popen([SERVER, file.name], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        server.stdout.readline()
        server.terminate()
        _, errors = server.communicate(timeout=PATIENCE)
    if server.returncode != UNAVAILABLE:
        return False
    print(f"SKIP: {errors}SKIP: NOTHING OF {SERVER} WAS TESTED", file=sys.stderr)
    return True


if __name__ == "__main__":
    if NO_URING is not None and io_uring_is_missing():
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
