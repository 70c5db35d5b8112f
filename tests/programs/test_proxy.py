#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The proxy between clients and upstreams that are both played here: every byte arrives, limits are
kept, and a client or upstream that disappears, at any time, takes nothing along.

usage: test_proxy.py PROXY NO_URING CONFIGURATION

CONFIGURATION is the one that comes with the proxy. Exits with 77, which means skipped, if there is
no io_uring. WEIR_SEED repeats a run.
"""

import asyncio
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

UNAVAILABLE = 69
PATIENCE = 30  # seconds until something that must happen is taken not to happen

PROXY, NO_URING, CONFIGURATION = sys.argv[1:4]
SEED = int(os.environ.get("WEIR_SEED", time.time_ns() % 2**32))


def config(*upstreams, more="", sets=""):
    """A configuration: (name, port, connections, further fields of its `config`) for each."""
    lines = ["version: 1", "sets:"]
    for name, port, connections, *rest in upstreams:
        fields = "".join(f", {field}" for field in rest)
        lines += [f"  {name}:", f'    config: {{ address: "127.0.0.1:{port}"{fields} }}', more,
                  "    limits:",
                  f"      - {{ type: resource, key: connections, capacity: {connections} }}"]
    names = ", ".join(upstream[0] for upstream in upstreams)
    return "\n".join(lines + [sets, "pools:", f"  upstreams: {{ sets: [{names}] }}", ""])


def reset(writer):
    """Ends a connection at once, as a crash would."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


class Upstream:
    """Echoes whatever comes, and sees how many connections there are."""

    def __init__(self):
        self.open = self.most = self.total = self.bytes = 0
        self.arrivals = []  # (instant, bytes so far)
        self.reading = asyncio.Event()
        self.reading.set()
        self.answering = asyncio.Event()
        self.answering.set()
        self.crash_after = None  # bytes
        self.tasks = set()

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        self.open += 1
        self.total += 1
        self.most = max(self.most, self.open)
        try:
            await self.echo(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        self.open -= 1
        writer.close()
        self.tasks.discard(asyncio.current_task())

    async def echo(self, reader, writer):
        passed = 0
        while True:
            await self.reading.wait()
            data = await reader.read(65536)
            if not data:
                break
            passed += len(data)
            self.bytes += len(data)
            self.arrivals.append((time.monotonic(), len(data)))
            if self.crash_after is not None and passed >= self.crash_after:
                reset(writer)
                return
            writer.write(data)
            await writer.drain()
        await self.answering.wait()

    async def stop(self):
        self.server.close()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


class ProxyTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.random = random.Random(SEED)
        self.proxy = None

    async def upstreams(self, n):
        started = [await Upstream().start() for _ in range(n)]
        for upstream in started:
            self.addAsyncCleanup(upstream.stop)
        return started

    async def start(self, text, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            self.proxy = await asyncio.create_subprocess_exec(
                PROXY, *options, file.name, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            line = await self.proxy.stdout.readline()
        if not line:
            self.fail((await self.proxy.stderr.read()).decode())
        self.port = int(line.decode().rsplit(":", 1)[1])
        self.addAsyncCleanup(self.kill)

    async def kill(self):
        if self.proxy.returncode is None:
            self.proxy.kill()
            await self.proxy.wait()

    async def stop(self, errors=""):
        """Ends the proxy; with a sanitizer, that is when leaks are found. Returns its last words."""
        if self.proxy.returncode is None:
            self.proxy.send_signal(signal.SIGTERM)
        out, err = await asyncio.wait_for(self.proxy.communicate(), PATIENCE)
        self.assertRegex(err.decode(), f"\\A{errors}\\Z")
        self.assertEqual(self.proxy.returncode, 0)
        last = self.parse(out.decode().splitlines()[-1])
        for name, counts in last.items():
            if name != "status":
                self.assertEqual((counts["held"], counts["waiting"]), (0, 0), name)
                self.assertEqual(counts["granted"], counts["released"], name)
        return last

    @staticmethod
    def parse(line):
        """`status: relays 1, …; alpha: held 0, …` as {"status": {"relays": 1, …}, …}."""
        parts = (part.split(": ", 1) for part in line.split("; "))
        return {name: {key: int(n) for key, n in re.findall(r"([a-z ]+?) (\d+)(?:, |$)", text)}
                for name, text in parts}

    async def status(self):
        self.proxy.send_signal(signal.SIGUSR1)
        line = await asyncio.wait_for(self.proxy.stdout.readline(), PATIENCE)
        return self.parse(line.decode().strip())

    async def until(self, name, **counts):
        """Until the proxy says these things of a set, or of itself (`status`)."""
        deadline = time.monotonic() + PATIENCE
        while True:
            status = (await self.status())[name]
            if counts.items() <= status.items():
                return
            self.assertLess(time.monotonic(), deadline, f"{name} stays at {status}")
            await asyncio.sleep(0.01)

    async def connect(self, **options):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        self.addCleanup(writer.close)
        return reader, writer

    async def say(self, data=b"x"):
        """Connects and says something; returns once it is echoed, that is, once connected."""
        reader, writer = await self.connect()
        writer.write(data)
        self.assertEqual(await asyncio.wait_for(reader.readexactly(len(data)), PATIENCE), data)
        return reader, writer

    async def transfer(self, size):
        """There and back again; returns when every byte of it was."""
        data = self.random.randbytes(size)
        reader, writer = await self.connect()

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.ensure_future(send())
        back = await asyncio.wait_for(reader.read(-1), PATIENCE)
        await sending
        writer.close()
        self.assertEqual(len(back), size)
        self.assertEqual(back, data)

    async def is_reset(self, reader):
        """Whether the connection ends otherwise than in good order."""
        try:
            await asyncio.wait_for(reader.read(-1), PATIENCE)
        except ConnectionResetError:
            return True
        return False

    async def is_sent_away(self, data):
        """Whether a client that says this is refused; that can be before connect has returned."""
        try:
            reader, writer = await self.connect()
        except ConnectionResetError:
            return True
        writer.write(data)
        return await self.is_reset(reader)

    # -- what is moved --

    async def test_every_byte_arrives_and_connections_are_bounded(self):
        capacities = {"alpha": 3, "beta": 2, "gamma": 1}
        upstreams = dict(zip(capacities, await self.upstreams(3)))
        await self.start(config(*((name, upstreams[name].port, capacities[name])
                                  for name in capacities)))
        sizes = [self.random.choice((1, 100, 16384, 16385, 200000)) +
                 self.random.randrange(5000) for _ in range(90)]
        await asyncio.gather(*map(self.transfer, sizes))
        for name, upstream in upstreams.items():
            self.assertEqual(upstream.most, capacities[name], name)
            self.assertEqual(upstream.total, 30)  # round robin
        last = await self.stop()
        self.assertEqual(last["status"]["served"], 90)
        self.assertEqual(last["status"]["bytes up"], sum(sizes))
        self.assertEqual(last["status"]["bytes down"], sum(sizes))

    async def test_bytes_keep_to_their_rate(self):
        rate, burst = 400000, 10000
        (upstream,) = await self.upstreams(1)
        sets = ("  slow:\n    limits:\n      - { type: rate, key: bytes, algorithm: token_bucket, "
                f"capacity: {rate}, window: 1s, burst: {burst} }}")
        await self.start(config(("alpha", upstream.port, 4, "bytes: slow"), sets=sets))
        begin = time.monotonic()
        received = upstream.arrivals  # the other direction's are added to it

        async def transfer(size):
            reader, writer = await self.connect()
            writer.write(b"x" * size)
            writer.write_eof()
            while data := await asyncio.wait_for(reader.read(65536), PATIENCE):
                received.append((time.monotonic(), len(data)))
            writer.close()

        await asyncio.gather(*(transfer(40000) for _ in range(5)))
        total = 0
        for at, n in sorted(received):  # seen late makes the bound larger, never smaller
            total += n
            self.assertLessEqual(total, burst + rate * (at - begin))
        self.assertEqual(total, 5 * 40000 * 2)
        last = await self.stop()
        self.assertGreater(last["slow"]["waited"], 0)

    async def test_connections_keep_to_their_rate(self):
        (upstream,) = await self.upstreams(1)
        text = config(("alpha", upstream.port, 9)).replace(
            "    limits:\n", "    limits:\n      - { type: call, algorithm: gcra, capacity: 20, "
            "window: 1s, burst: 1 }\n")
        await self.start(text)
        begin = time.monotonic()
        await asyncio.gather(*(self.transfer(10) for _ in range(9)))
        for n, (at, _) in enumerate(sorted(upstream.arrivals)):
            self.assertGreaterEqual(at - begin, n / 20)
        self.assertEqual(upstream.total, 9)
        await self.stop()

    async def test_half_close_is_passed_on_both_ways(self):
        (upstream,) = await self.upstreams(1)
        upstream.answering.clear()
        await self.start(config(("alpha", upstream.port, 2)))
        reader, writer = await self.say(b"question")
        writer.write_eof()
        await asyncio.sleep(0.1)
        self.assertFalse(reader.at_eof())  # the answer is not complete yet
        upstream.answering.set()
        self.assertEqual(await asyncio.wait_for(reader.read(-1), PATIENCE), b"")
        await self.until("status", served=1, relays=0)
        await self.stop()

    async def test_a_client_may_say_all_before_it_is_connected(self):
        (upstream,) = await self.upstreams(1)
        await self.start(config(("alpha", upstream.port, 1)))
        _, holder = await self.say()
        reader, writer = await self.connect()
        writer.write(b"all of it")
        writer.write_eof()
        await self.until("alpha", held=1, waiting=1)
        holder.write_eof()
        self.assertEqual(await asyncio.wait_for(reader.read(-1), PATIENCE), b"all of it")
        await self.stop()

    async def test_the_sender_waits_for_a_slow_receiver(self):
        (upstream,) = await self.upstreams(1)
        upstream.reading.clear()
        await self.start(config(("alpha", upstream.port, 1)))
        reader, writer = await self.connect()
        before = self.resident()
        block = self.random.randbytes(1 << 20)
        sent = 0
        while sent < 200:
            writer.write(block)
            sent += 1
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except asyncio.TimeoutError:
                break
        self.assertLess(sent, 200)  # the kernel's buffers are full, and the proxy keeps nothing
        self.assertLess(self.resident() - before, 4 << 20)
        upstream.reading.set()
        writer.write_eof()
        back = await asyncio.wait_for(reader.read(-1), PATIENCE)
        self.assertEqual(back, block * sent)
        await self.stop()

    def resident(self):
        with open(f"/proc/{self.proxy.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    # -- clients and upstreams that go --

    async def test_clients_leave_while_they_wait(self):
        (upstream,) = await self.upstreams(1)
        await self.start(config(("alpha", upstream.port, 1)))
        _, holder = await self.say()
        _, silent = await self.connect()
        await self.until("alpha", held=1, waiting=1)
        silent.close()
        await self.until("alpha", held=1, waiting=0, canceled=1)
        _, speaker = await self.connect()
        speaker.write(b"something")
        await self.until("alpha", held=1, waiting=1)
        reset(speaker)
        await self.until("alpha", held=1, waiting=0, canceled=2)
        await self.until("status", gone=2)
        holder.write_eof()
        await self.until("alpha", held=0)
        self.assertEqual(upstream.total, 1)
        await self.stop()

    async def disturb(self, one, upstreams, connections, sets):
        """Many transfers, of which `one` plays each; afterwards every connection is to be had."""
        await self.start(config(*((f"u{i}", upstream.port, connections, "bytes: slow")
                                  for i, upstream in enumerate(upstreams)), sets=sets))
        fds = len(os.listdir(f"/proc/{self.proxy.pid}/fd"))
        await asyncio.gather(*(one() for _ in range(80)))
        for i in range(len(upstreams)):
            await self.until(f"u{i}", held=0, waiting=0)
        await self.until("slow", held=0, waiting=0)
        await self.until("status", relays=0)
        self.assertEqual(len(os.listdir(f"/proc/{self.proxy.pid}/fd")), fds)
        for upstream in upstreams:
            upstream.crash_after = None
        held = [await self.say() for _ in range(connections * len(upstreams))]
        for _, writer in held:
            writer.write_eof()

    SLOW = ("  slow:\n    limits:\n      - { type: rate, key: bytes, algorithm: gcra, "
            "capacity: 2M, window: 1s, burst: 8k }")

    async def test_clients_leave_under_way(self):
        async def one():
            await asyncio.sleep(self.random.random())
            reader, writer = await self.connect()
            for _ in range(self.random.randrange(4)):
                writer.write(self.random.randbytes(self.random.randrange(1, 40000)))
                await asyncio.sleep(self.random.random() / 20)
            if self.random.random() < 0.3:
                writer.close()
            else:
                reset(writer)

        await self.disturb(one, await self.upstreams(2), 3, self.SLOW)
        await self.stop()

    async def test_upstreams_crash_under_way(self):
        upstreams = await self.upstreams(2)
        truncated = []

        async def one():
            await asyncio.sleep(self.random.random() / 2)
            upstreams[self.random.randrange(2)].crash_after = self.random.randrange(30000)
            reader, writer = await self.connect()
            data = self.random.randbytes(20000)
            try:
                writer.write(data)
                await writer.drain()
                writer.write_eof()
                back = await asyncio.wait_for(reader.read(-1), PATIENCE)
                if back != data:
                    truncated.append(len(back))
            except OSError:
                pass  # a reset: the client knows
            writer.close()

        await self.disturb(one, upstreams, 3, self.SLOW)
        self.assertEqual(truncated, [])
        last = await self.stop()
        self.assertGreater(last["status"]["broken"], 0)

    # -- upstreams that cannot be reached --

    @staticmethod
    def closed_port():
        """A port that refuses."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    async def test_the_next_upstream_is_tried(self):
        (upstream,) = await self.upstreams(1)
        port = self.closed_port()
        await self.start(config(("dead", port, 2), ("alive", upstream.port, 2)))
        for _ in range(10):
            await self.transfer(1000)
        status = await self.status()
        self.assertEqual(status["status"]["served"], 10)
        self.assertEqual((status["dead"]["held"], status["dead"]["failed"]), (0, 10))
        await self.stop(f"(.*: dead at 127.0.0.1:{port}: Connection refused\n){{10}}")

    async def test_no_upstream_can_be_reached(self):
        await self.start(config(("dead", self.closed_port(), 1), ("mute", self.closed_port(), 1)))
        for _ in range(5):
            self.assertTrue(await self.is_sent_away(b"anybody?"))
        await self.until("status", refused=5, relays=0)
        last = await self.stop("(.*: Connection refused\n){10}")
        self.assertEqual(last["dead"]["failed"] + last["mute"]["failed"], 10)

    async def test_an_upstream_does_not_answer(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            port = listener.getsockname()[1]
            full = []
            while True:  # until its backlog is full; further connections hang
                full.append(socket.socket())
                full[-1].setblocking(False)
                full[-1].connect_ex(("127.0.0.1", port))
                await asyncio.sleep(0.05)
                if full[-1].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\x01":
                    break
            await self.start(config(("deaf", port, 1)), "--connect-ms", "400", "--idle-ms", "100")
            reader, writer = await self.connect()
            self.assertTrue(await self.is_reset(reader))
            await self.until("status", refused=1, broken=0)  # a client that connects is not idle
            _, writer = await self.connect()
            writer.write(b"x")
            await self.until("deaf", held=1)
            reset(writer)  # while it is being connected
            await self.until("deaf", held=0, waiting=0)
            await self.stop("(.*: deaf at .*: Connection timed out\n)+")
            for one in full:
                one.close()

    # -- clients without permission --

    async def test_refused_when_the_wait_queue_is_full_or_too_slow(self):
        (upstream,) = await self.upstreams(1)
        await self.start(config(("alpha", upstream.port, 1), more="    max_waiters: 1\n"
                                                                  "    timeout: 500ms"))
        _, holder = await self.say()
        first, _ = await self.connect()
        await self.until("alpha", waiting=1)
        self.assertTrue(await self.is_sent_away(b"one too many"))
        self.assertTrue(await self.is_reset(first))
        await self.until("status", refused=2, relays=1)
        holder.write_eof()
        last = await self.stop()
        self.assertEqual((last["alpha"]["refused"], last["alpha"]["timed out"]), (1, 1))

    async def test_idle_relays_end(self):
        (upstream,) = await self.upstreams(1)
        await self.start(config(("alpha", upstream.port, 1)), "--idle-ms", "300")
        reader, _ = await self.say()
        waiter, writer = await self.connect()  # waits longer than that, but not idly
        writer.write(b"y")
        self.assertTrue(await self.is_reset(reader))
        self.assertEqual(await asyncio.wait_for(waiter.readexactly(1), PATIENCE), b"y")
        self.assertTrue(await self.is_reset(waiter))
        await self.until("alpha", held=0)
        await self.stop()

    async def test_clients_are_bounded(self):
        (upstream,) = await self.upstreams(1)
        await self.start(config(("alpha", upstream.port, 9)), "--relays", "2")
        _, first = await self.say()
        await self.say()
        third, writer = await self.connect()
        writer.write(b"z")
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(third.read(1), 0.2)
        first.write_eof()
        self.assertEqual(await asyncio.wait_for(third.read(1), PATIENCE), b"z")
        await self.kill()

    # -- the end --

    async def test_what_is_under_way_at_sigterm_is_finished(self):
        (upstream,) = await self.upstreams(1)
        upstream.answering.clear()
        await self.start(config(("alpha", upstream.port, 1)))
        reader, writer = await self.say(b"begun")
        waiter, other = await self.connect()
        other.write(b"not begun")
        await self.until("alpha", held=1, waiting=1)
        self.proxy.send_signal(signal.SIGTERM)
        self.assertTrue(await self.is_reset(waiter))
        writer.write_eof()
        upstream.answering.set()
        self.assertEqual(await asyncio.wait_for(reader.read(-1), PATIENCE), b"")
        await asyncio.wait_for(self.proxy.wait(), PATIENCE)
        last = await self.stop()
        self.assertEqual((last["status"]["served"], last["status"]["refused"]), (1, 1))
        with self.assertRaises(ConnectionRefusedError):
            await self.connect()

    async def test_many_waiters_are_sent_away_at_once(self):
        (upstream,) = await self.upstreams(1)
        await self.start(config(("alpha", upstream.port, 1)))
        _, holder = await self.say()
        waiters = [(await self.connect())[0] for _ in range(150)]
        await self.until("alpha", held=1, waiting=150)
        self.proxy.send_signal(signal.SIGTERM)
        for waiter in waiters:
            self.assertTrue(await self.is_reset(waiter))
        holder.write_eof()
        self.assertEqual((await self.stop())["status"]["refused"], 150)

    async def cut(self, signals, *options):
        (upstream,) = await self.upstreams(1)
        await self.start(config(("alpha", upstream.port, 2)), *options)
        readers = [(await self.say())[0] for _ in range(2)]
        for number in signals:
            self.proxy.send_signal(number)
            await asyncio.sleep(0.1)
        for reader in readers:
            self.assertTrue(await self.is_reset(reader))
        await asyncio.wait_for(self.proxy.wait(), PATIENCE)
        self.assertEqual((await self.stop())["status"]["broken"], 2)

    async def test_not_longer_than_the_grace(self):
        await self.cut([signal.SIGTERM], "--grace-ms", "200")

    async def test_a_second_signal_ends_it(self):
        await self.cut([signal.SIGINT, signal.SIGTERM])

    # -- the command line --

    def run_proxy(self, status, pattern, *command):
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE,
                                check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertRegex(result.stderr, pattern)

    def complaint(self, pattern, text):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            self.run_proxy(78, pattern, PROXY, file.name)

    def test_complaints(self):
        good = config(("alpha", 1, 1, "bytes: slow"), sets=self.SLOW)
        self.complaint(r"\.yaml:7:\d+: ", good.replace("resource", "recourse"))
        self.complaint("there is no set or pool `upstreams`", good.replace("  upstreams:", "  others:"))
        self.complaint("set alpha: its config has no `address", good.replace("address", "adress"))
        self.complaint("set alpha: .*ervice", good.replace("127.0.0.1:1", "127.0.0.1:http"))
        self.complaint("set fast: No such file", good.replace("bytes: slow", "bytes: fast"))
        self.complaint("set slow: it has no rate of `bytes`", good.replace("key: bytes", "key: b"))
        self.complaint("set alpha: a rate goes into a set of its own",
                       good.replace("bytes: slow", "bytes: alpha").replace(
                           "type: resource, key: connections, capacity: 1",
                           "type: rate, key: bytes, algorithm: gcra, capacity: 1, window: 1s"))
        self.complaint("set alpha: a resource does not go with bytes",
                       good.replace("bytes: slow", "bytes: alpha"))
        for options in ([], ["--port", "x", "f"], ["--relays", "0", "f"], ["a", "b"]):
            self.run_proxy(64, "usage: ", PROXY, *options)

    async def test_its_own_configuration(self):
        with open(CONFIGURATION, encoding="utf-8") as file:
            await self.start(file.read())
        last = await self.stop()
        self.assertEqual(set(last), {"status", "alpha", "alpha-bytes", "beta", "beta-bytes",
                                     "gamma"})

    def test_without_io_uring(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(config(("alpha", 1, 1)))
            file.flush()
            self.run_proxy(UNAVAILABLE, r"io_uring cannot be used here \(Operation not permitted\)",
                           NO_URING, PROXY, file.name)


def io_uring_is_missing():
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(config(("alpha", 1, 1)))
        file.flush()
        proxy = subprocess.Popen([PROXY, file.name], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        proxy.stdout.readline()
        proxy.terminate()
        _, errors = proxy.communicate(timeout=PATIENCE)
    if proxy.returncode != UNAVAILABLE:
        return False
    print(f"SKIP: {errors}SKIP: NOTHING OF {PROXY} WAS TESTED", file=sys.stderr)
    return True


if __name__ == "__main__":
    if io_uring_is_missing():
        sys.exit(77)
    print(f"WEIR_SEED={SEED}", file=sys.stderr)
    unittest.main(argv=sys.argv[:1], verbosity=2)
