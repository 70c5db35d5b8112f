# SPDX-License-Identifier: MIT
"""Sets of a process's own, as the command sees them: `publish: true`.

usage: test_publish.py WEIR PUBLISHING

PUBLISHING is publishing.c. The last tests are processes that say anything at all.
"""

import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import test_top
from test_serve import samples
from test_shared import COMMAND, PATIENCE, Shared

PUBLISHING = sys.argv[2]
CONFIG = """version: 1
{publish}
sets:
  api:
    limits:
      - {{ type: resource, key: slots, capacity: 2 }}
      - {{ type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1h }}
  tenants: {{ subjects: {{ max: 10 }}, limits: [ {{ type: call, algorithm: gcra, capacity: 6, window: 6s }} ] }}
  limit: {{ limits: [ {{ type: resource, key: r, algorithm: aimd, capacity: 9 }} ] }}
"""
# Both slots of `api` are held, for longer than that soon.
CLASSED = """version: 1
{publish}
sets:
  api:
    shares: {{ gold: 3, other: 1 }}
    limits:
      - {{ type: resource, key: slots, capacity: 2, max_hold: 1ms }}
      - {{ type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1h }}
"""
SEED = int(os.environ.get("WEIR_SEED") or time.time_ns() % 10**9)
VARIANTS = int(os.environ.get("WEIR_VARIANTS") or 60)


class Publishing(Shared):
    def config(self, publish="publish: true", text=CONFIG):
        path = os.path.join(self.directory, "weir.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.format(publish=publish))
        return path

    def publish(self, *arguments, publish="publish: true", text=CONFIG, **env):
        """Starts a process that is ready."""
        child = subprocess.Popen([PUBLISHING, self.config(publish, text), *arguments], env={**self.env(), **env},
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        child.forked = int(child.stdout.readline()) if "fork" in arguments else None
        self.assertEqual(child.stdout.readline(), "ready\n")
        return child

    def sockets(self):
        return sorted(name for name in os.listdir(self.directory) if ".sock" in name)

    def sets(self, *names, code=0):
        return json.loads(self.expect(code, "stat", "--json", *names)[0])["sets"]


class Stat(Publishing):
    def test_sets_of_two_processes(self):
        a, b = sorted((self.publish(), self.publish()), key=lambda child: child.pid)
        found = self.sets()
        self.assertEqual([(one["name"], one["process"]) for one in found],
                         [(name, pid) for name in ("api", "limit", "tenants") for pid in (a.pid, b.pid)])
        one = found[0]
        self.assertEqual((one["backend"], one["instance"], one["command"]),
                         ("thread", 1, os.path.basename(PUBLISHING)))
        self.assertTrue(one["command_line"].startswith(PUBLISHING))
        self.assertNotIn("users", one)
        self.assertNotIn("lifetime", one)
        self.assertEqual((one["held"], one["waiting"]), (1, 1))
        slots, tokens = one["limits"]
        self.assertEqual((slots["key"], slots["available"], slots["held"], slots["settings"]),
                         ("slots", 0, 2, {"capacity": "2"}))
        self.assertEqual((tokens["algorithm"], tokens["granted"], tokens["available"], tokens["settings"]["window"]),
                         ("token_bucket", 5, 95, "1h"))
        self.assertEqual((one["counters"]["granted"], one["counters"]["refused_busy"]), (1, 0))
        holder, = one["holders"]
        self.assertEqual((holder["process"], holder["amounts"]), (a.pid, {"slots": 2, "tokens": 5}))
        waiter, = one["waiters"]
        self.assertEqual((waiter["position"], waiter["amounts"]), (1, {"slots": 1}))
        self.assertEqual(found[2]["limits"][0]["gauges"].keys(), {"limit", "held"} & found[2]["limits"][0]["gauges"].keys())
        self.assertEqual(found[4]["subjects"]["evict"], "oldest")
        self.assertEqual([one["name"] for one in self.sets("api")], ["api", "api"])
        self.assertEqual([one["name"] for one in self.sets("--no-idle")], ["api", "api"])
        self.assertEqual(len(self.sets("-m", "ena")), 2)
        self.assertEqual(self.expect(1, "stat", "none")[1], "weir stat: `none`: there is no such set\n")
        b.stdin.close()
        self.assertEqual(b.wait(PATIENCE), 0)
        self.assertEqual({one["process"] for one in self.sets()}, {a.pid})

    def test_text(self):
        child = self.publish()
        out, err = self.expect(0, "stat", "api")
        self.assertEqual(err, "")
        self.assertRegex(out, rf"(?m)\Aset api  backend thread  pid {child.pid}\n  process  {re.escape(PUBLISHING)} ")
        self.assertRegex(out, r"(?m)^  resource  slots             capacity 2  held 2  available 0$")
        self.assertRegex(out, rf"(?m)^  holds       pid {child.pid} .*  slots=2  tokens=5  {re.escape(PUBLISHING)}")
        self.assertRegex(out, rf"(?m)^  waits    1  pid {child.pid} .*  slots=1  {re.escape(PUBLISHING)}")

    def test_what_it_waits_for(self):
        child = self.publish()
        out, err = self.expect(0, "why", "api")
        self.assertEqual(err, "")
        self.assertRegex(out, rf"(?m)^set api  pid {child.pid}  held by 1  waiting 1$")
        self.assertIn("needs more of `slots` than is free, until it is released", out)
        (got,) = json.loads(self.expect(0, "why", "--json", "api")[0])["sets"]
        self.assertEqual((got["process"], got["next"][0]["limiting"]), (child.pid, "slots"))

    def test_what_is_held_too_long(self):
        child = self.publish(text=CLASSED)
        time.sleep(0.005)
        out, _ = self.expect(0, "why", "api")
        self.assertRegex(out, rf"(?m)^set api  pid {child.pid}  held by 1  waiting 1  overheld 1$")
        self.assertRegex(out, rf"(?m)^    holds  pid {child.pid} .*  overheld: `slots` by ")
        (got,) = json.loads(self.expect(0, "why", "--json", "api")[0])["sets"]
        (holder,) = got["overheld"]
        self.assertEqual((holder["process"], holder["overheld"]), (child.pid, "slots"))
        self.assertGreater(holder["age_ns"], holder["overheld_ns"])

    def test_classes(self):
        child = self.publish(text=CLASSED)
        out, _ = self.expect(0, "stat", "api")
        self.assertRegex(out, r"(?m)^  class  gold  weight 3  waiting 0  held 0  granted 0\n"
                              r"  class  other  weight 1  waiting 1  held 1  granted 1$")
        (got,) = self.sets("api")
        self.assertEqual([(one["name"], one["weight"], one["waiting"], one["held"], one["granted"]) for one in got["classes"]],
                         [("gold", 3, 0, 0, 0), ("other", 1, 1, 1, 1)])
        found = samples(self.expect(0, "stat", "--openmetrics")[0])
        labels = f'set="api",backend="thread",pid="{child.pid}",number="1",class="other"'
        self.assertEqual([found[f"weir_class_{name}", labels] for name in ("waiting", "held", "grants_total", "refusals_total")],
                         ["1", "1", "1", "0"])

    def test_metrics(self):
        a, b = self.publish(), self.publish()
        self.hold("jobs", "slots:1")
        self.until("jobs", 1, 0)
        for kind in ("--prometheus", "--openmetrics"):
            found = samples(self.expect(0, "stat", kind)[0])  # no sample is there twice
            for pid in (a.pid, b.pid):
                labels = f'set="api",backend="thread",pid="{pid}",number="1"'
                self.assertEqual(found["weir_grants_total", labels], "1")
                self.assertEqual(found["weir_waiting", labels], "1")
                self.assertGreater(float(found["weir_wait_queue_age_seconds", labels]), 0)
                self.assertNotIn(("weir_users", labels), found)
            self.assertEqual(found["weir_grants_total", 'set="jobs"'], "1")

    def test_a_server_of_metrics(self):
        child = self.publish()
        server = subprocess.Popen([COMMAND, "serve", "--metrics", "0"], env=self.env(), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.children.append(server)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        line = server.stdout.readline()
        if not line and "without libmicrohttpd" in server.stderr.read():
            self.skipTest("built without libmicrohttpd")
        port = int(re.search(r":(\d+)/metrics", line).group(1))
        for _ in range(2):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            client.request("GET", "/metrics")
            found = samples(client.getresponse().read().decode())
            client.close()
            self.assertEqual(found["weir_grants_total", f'set="api",backend="thread",pid="{child.pid}",number="1"'], "1")

    def test_the_environment(self):
        self.publish(publish="")
        self.assertEqual(self.sockets(), [])
        self.publish(publish="publish: false", WEIR_PUBLISH="1")
        self.assertEqual(self.sockets(), [])
        self.publish(publish="", WEIR_PUBLISH="1")
        self.assertEqual(len(self.sockets()), 1)
        self.assertEqual(len(self.sets("api")), 1)

    def test_the_command_publishes_nothing(self):
        config = self.config()
        os.environ["WEIR_PUBLISH"] = "1"
        self.addCleanup(os.environ.pop, "WEIR_PUBLISH")
        self.hold("t", "slots:1")
        self.until("t", 1, 0)
        self.hold("t", "slots:1")
        self.until("t", 1, 1)  # it waits, as the command that it is
        self.assertEqual(self.sockets(), [])
        self.assertEqual(len(self.sets()), 1)
        self.expect(0, "check", config)
        self.assertEqual(self.sockets(), [])


class Top(Publishing, test_top.Top):
    """Only the test below: those that are inherited run where they are defined."""
    def test_two_processes(self):
        a, b = sorted((self.publish(), self.publish()), key=lambda child: child.pid)
        pid = self.start("--interval", "100ms")
        self.until_shown(rf"^> api \(pid {a.pid}\) +- +1 +1 +[0-9.ms]+ +0\.0 +0\.0$")
        self.until_shown(rf"^  api \(pid {b.pid}\) +- +1 +1 ")
        self.until_shown(rf"^ HOLD .*\n +{a.pid} +[0-9.ms]+  slots=2 tokens=5 ")
        os.write(self.terminal, b"j")
        self.until_shown(rf"^> api \(pid {b.pid}\) ")
        self.until_shown(rf"^ HOLD .*\n +{b.pid} ")
        os.write(self.terminal, b"q")
        self.assertEqual(self.ended(pid), 0)


for inherited in [name for name in dir(test_top.Top) if name.startswith("test_")]:
    setattr(Top, inherited, None)


class Deaths(Publishing):
    def test_a_process_that_is_killed(self):
        child, other = self.publish(), self.publish()
        self.assertEqual(len(self.sockets()), 2)
        child.kill()
        child.wait()
        self.assertEqual(len(self.sockets()), 2)
        self.assertEqual({one["process"] for one in self.sets()}, {other.pid})
        self.assertEqual(len(self.sockets()), 1)

    def test_one_that_publishes_later_sweeps(self):
        child = self.publish()
        child.kill()
        child.wait()
        self.publish()
        self.assertEqual(len(self.sockets()), 1)

    def test_a_process_that_is_stopped(self):
        child, other = self.publish(), self.publish()
        child.send_signal(signal.SIGSTOP)
        out, err = self.expect(1, "stat", "--json", "api")
        self.assertEqual([one["process"] for one in json.loads(out)["sets"]], [other.pid])
        self.assertEqual(err, f"weir stat: the sets that process {child.pid} publishes: it does not answer, "
                              "as if it were stopped\n")
        child.send_signal(signal.SIGCONT)
        end = time.monotonic() + PATIENCE
        while self.weir("stat").returncode != 0:
            self.assertLess(time.monotonic(), end)
        self.assertEqual({one["process"] for one in self.sets()}, {child.pid, other.pid})

    def test_a_child_of_the_killed_has_its_socket(self):
        child = self.publish("fork")
        self.assertEqual({one["process"] for one in self.sets()}, {child.pid})
        child.kill()
        child.wait()
        self.assertEqual(self.sets(), [])
        self.assertEqual(self.sockets(), [])
        os.kill(child.forked, 0)  # the forked one is there, and has the socket
        child.stdin.close()

    def test_many_readers(self):
        """Those that wait in the queue of the socket, and read nothing, are passed."""
        child = self.publish()
        idle = [self.connect(os.path.join(self.directory, self.sockets()[0])) for _ in range(40)]
        end = time.monotonic() + PATIENCE
        while self.weir("stat").returncode != 0:
            self.assertLess(time.monotonic(), end)
        self.assertEqual({one["process"] for one in self.sets()}, {child.pid})
        for one in idle:
            one.close()
        child.stdin.close()
        self.assertEqual(child.wait(PATIENCE), 0)

    def connect(self, path):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        self.addCleanup(client.close)
        return client


END = struct.pack("=II", 0, 0)
HEAD = struct.pack("=8sII", b"weir set", 1, 1)


def item(kind, data):
    return struct.pack("=II", kind, len(data)) + data + bytes(-len(data) % 8)


def a_set(name=b"s", *, info=b"\0" * 56, stats=b"\0" * 700):
    return item(1, name) + item(2, info) + item(3, stats)


def a_limit(kind=3, *, key=b"k"):
    return item(6, struct.pack("=Q", kind) + bytes(88)) + item(7, key)


def a_class(name):
    return item(15, name + bytes(32 - len(name)) + bytes(64))


class Hostile(Publishing):
    """Processes that say what no library says: the command goes on, and says which process it was."""
    def say(self, text, pause=0.0, ends=True):
        """A process, which is this one, that says that to each that asks."""
        path = os.path.join(self.directory, f"{os.getpid()}.9.{random.getrandbits(64):016x}.sock")
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()

        def serve():
            try:
                while True:
                    client, _ = server.accept()
                    with client:
                        for piece in ([text] if pause == 0 else [text[i:i + 1] for i in range(len(text))]):
                            client.sendall(piece)
                            time.sleep(pause)
                        while not ends and client.recv(1):
                            pass
            except OSError:
                if server.fileno() >= 0:
                    serve()  # the client has had enough

        threading.Thread(target=serve, daemon=True).start()

        def stop():
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            os.unlink(path)
        return stop

    def refused(self, text, why, **options):
        stop = self.say(text, **options)
        done = self.weir("stat", "--json")
        stop()
        out, err = done.stdout, done.stderr
        self.assertEqual(done.returncode, 1, out + err)
        self.assertEqual(json.loads(out)["sets"], [])
        self.assertEqual(err, f"weir stat: the sets that process {os.getpid()} publishes: {why}\n")

    def accepted(self, text):
        stop = self.say(text)
        done = [self.weir("stat", "--json"), self.weir("stat"), self.weir("stat", "--prometheus")]
        stop()
        self.assertEqual([one.returncode for one in done], [0, 0, 0], done)
        return json.loads(done[0].stdout)["sets"]

    def test_what_is_no_answer(self):
        order = "what it says is not whole, or not in order"
        for text in (b"", HEAD, HEAD[:9], HEAD + a_set(), HEAD + a_set()[:90]):
            with self.subTest(text[:400]):
                self.refused(text, "its answer ends before it is whole: it has ended, or there is too much to tell in a second")
        for text in (b"weir sex" + HEAD[8:] + END,
                     HEAD + item(2, bytes(56)) + END,                  # no set has begun
                     HEAD + a_set(b"n" * 256) + END, HEAD + a_set() + a_limit(key=b"k" * 256) + END,
                     HEAD + a_set(b"a\1") + a_set(b"a\2") + END,       # one name, once both are shown
                     HEAD + a_set() + a_limit() + (item(11, bytes(32)) + item(12, b"n")) * 2 + END,
                     HEAD + item(1, b"s") + END, HEAD + item(1, b"") + END,
                     HEAD + a_set(stats=bytes(200)) + END, HEAD + a_set(info=bytes(39)) + END,
                     HEAD + a_set() + item(7, b"k") + END,            # no limit has
                     HEAD + a_set() + item(6, struct.pack("=Q", 3) + bytes(88)) + END,  # without a key
                     HEAD + a_set() + a_limit(4) + END, HEAD + a_set() + a_limit(0) + END, HEAD + a_set() + a_limit(1 << 31) + END,
                     HEAD + a_set() + a_limit() * 65 + END,
                     HEAD + a_set() + a_limit() + item(9, b"name") + END,
                     HEAD + a_set() + a_limit() + item(10, b"value") + END,
                     HEAD + a_set() + a_limit() + (item(9, b"name") + item(10, b"value")) * 65 + END,
                     HEAD + a_set() + a_limit() + item(11, bytes(32)) + END,
                     HEAD + a_set() + a_limit() + item(12, b"name") + END,
                     HEAD + a_set() + a_limit() + (item(11, bytes(32)) + item(12, b"n")) * 99 + END,
                     HEAD + a_set() + item(4, bytes(100)) + END,      # subjects that are evicted in no way
                     HEAD + a_set() + item(13, bytes(31)) + END, HEAD + a_set() + item(13, bytes(64)) * 1001 + END,
                     HEAD + a_set() + item(13, struct.pack("=QQIIIIQQII", 1, 1, 1, 2, 1, 1, 0, 0, 0, 0)) + END,
                     HEAD + a_set() + item(13, bytes(64)) + a_limit() + END,
                     HEAD + a_set() + a_limit() + item(13, bytes(64)) + item(7, b"other") + END,
                     HEAD + a_set() + a_limit() + item(13, bytes(64)) + item(9, b"n") + item(10, b"v") + END,
                     HEAD + a_set() + item(14, bytes(8)) + END,
                     HEAD + a_set() + a_class(b"x") * 2 + END,        # one name
                     HEAD + a_set() + a_class(b"x\1") + a_class(b"x\2") + END,
                     HEAD + a_set() + a_class(b"") + END, HEAD + a_set() + a_class(b"x" * 32) + END,
                     HEAD + a_set() + item(15, b"x" + bytes(94)) + END,
                     HEAD + a_set() + b"".join(a_class(b"%d" % i) for i in range(9)) + END,
                     HEAD + struct.pack("=II", 1, 1 << 20), HEAD + struct.pack("=II", 1, 0xffffffff) + bytes(99)):
            with self.subTest(text[:400]):
                self.refused(text, order)

    def test_another_version(self):
        self.refused(struct.pack("=8sII", b"weir set", 2, 1) + END,
                     "its library is of a release that this one does not understand")

    def test_no_end(self):
        self.refused(HEAD + a_set(), "it does not answer, as if it were stopped", ends=False)
        self.refused(HEAD + item(99, bytes(5000)) * 9, "it does not answer, as if it were stopped", pause=0.001)
        stop = self.say(HEAD + item(99, bytes(65536)) * 600 + END)
        done = self.weir("stat", "--json")
        stop()
        self.assertEqual((done.returncode, json.loads(done.stdout)["sets"]), (1, []))
        self.assertRegex(done.stderr, "it says too much|it does not answer")  # as fast as it was

    def test_too_many(self):
        self.refused(HEAD + b"".join(a_set(b"%d" % i, info=bytes(40), stats=bytes(256)) for i in range(16385)) + END, "it says too much, or all together do")

    def test_two_instances_of_a_number(self):
        """As two copies of the library in one process have: each series of metrics is there once."""
        stops = [self.say(HEAD + a_set() + END) for _ in range(2)]
        found = samples(self.expect(0, "stat", "--prometheus")[0])
        for stop in stops:
            stop()
        for number in ("9", "10"):
            self.assertIn(("weir_grants_total", f'set="s",backend="thread",pid="{os.getpid()}",number="{number}"'), found)

    def test_items_of_a_later_release(self):
        found = self.accepted(HEAD + a_set(info=bytes(500), stats=bytes(5000)) + item(77, b"later") +
                              a_limit() + item(13, bytes(400)) + item(14, bytes(8)) + END + b"and more")
        self.assertEqual([one["name"] for one in found], ["s"])
        self.assertEqual(found[0]["holders"][0]["process"], os.getpid())

    def test_items_of_an_earlier_release(self):
        (found,) = self.accepted(HEAD + a_set(info=bytes(40), stats=struct.pack("=QQ", 256, 7) + bytes(240)) + END)
        self.assertEqual((found["counters"]["granted"], found["counters"]["hold_ns_max"]), (7, 0))

    def test_a_text_of_control_characters(self):
        for name, shown in ((b"a\x1b[2Jb", "a?[2Jb"), (b"a\nb", "a?b"), (b"a\0b", "a?b"), (b"\xff\xfe", "??"),
                            ("\u202ex".encode(), "???x"), (b"n" * 255, "n" * 255)):
            (found,) = self.accepted(HEAD + a_set(name) + a_limit(key=name) + item(9, name) + item(10, name) + END)
            self.assertEqual((found["name"], found["limits"][0]["key"], found["limits"][0]["settings"]),
                             (shown, shown, {shown: shown}))
        (found,) = self.accepted(HEAD + a_set() + a_limit() + item(9, b"n") + item(10, b"v" * 9000) + END)
        self.assertEqual(found["limits"][0]["settings"], {"n": "v" * 4096})
        (found,) = self.accepted(HEAD + a_set() + a_limit() + item(9, b"n") + item(10, b"") + END)
        self.assertEqual(found["limits"][0]["settings"], {"n": ""})

    def test_what_is_told_of_other_processes(self):
        """Whatever it says, a process can tell of itself alone."""
        holder = struct.pack("=QQIIIIQQII", 1, 1, 1, 0, 1, 0, 2**64 - 1, 2**64 - 1, 1, 0xffffffff)
        (found,) = self.accepted(HEAD + a_set() + a_limit() + item(13, holder) + item(14, b"\xff" * 512) + END)
        self.assertEqual(found["holders"][0]["process"], os.getpid())

    def test_limits_that_are_held_too_long(self):
        """Numbers of limits that there are, and of others; what waits holds nothing."""
        for waiting, limit, shown in ((0, 1, "k"), (0, 2, None), (0, 2**64 - 1, None), (1, 1, None), (0, 0, None)):
            holder = struct.pack("=QQIIIIQQIIQQ", 1, 1, 1, waiting, 1, 0, 9, 0, 0, 0, limit, 5)
            (found,) = self.accepted(HEAD + a_set() + a_limit() + item(13, holder) + END)
            self.assertEqual([one.get("overheld") for one in found["holders"] + found["waiters"]], [shown])

    def test_classes(self):
        (found,) = self.accepted(HEAD + a_set() + a_class(b"a\x1bb") + item(15, b"y" + bytes(500)) + END)
        self.assertEqual([one["name"] for one in found["classes"]], ["a?b", "y"])

    def test_anything(self):
        """What a real process says, with some bytes changed, left out, or put in twice."""
        print("WEIR_SEED", SEED)
        chance = random.Random(SEED)
        self.publish(text=chance.choice([CONFIG, CLASSED]))
        client = socket.socket(socket.AF_UNIX)
        client.connect(os.path.join(self.directory, self.sockets()[0]))
        with client.makefile("rb") as file:
            real = file.read()
        client.close()
        self.kill_all()
        self.assertIn(len({one["name"] for one in self.accepted(real)}), (1, 3))
        for i in range(VARIANTS):
            text = bytearray(real)
            for _ in range(chance.randint(1, 20)):
                at = chance.randrange(len(text))
                kind = chance.randrange(4)
                if kind == 0:
                    text[at] = chance.choice([0, 1, 0x7f, 0xff, chance.randrange(256)])
                elif kind == 1:
                    del text[at:at + chance.randint(1, 64)]
                elif kind == 2:
                    text[at:at] = text[at:at + chance.randint(1, 1024)]
                else:  # an item's size or kind
                    text[at & ~7:(at & ~7) + 4] = struct.pack("=I", chance.choice([0, 1, 7, 14, 15, 99, 65535, 2**32 - 1]))
            stop = self.say(bytes(text))
            done = self.weir(*chance.choice([("stat",), ("stat", "--json"), ("stat", "--prometheus"), ("stat", "--openmetrics"),
                                              ("why", "api"), ("why", "--json", "api")]))
            stop()
            self.assertIn(done.returncode, (0, 1), f"variant {i} of seed {SEED}: {done}")

    def test_sockets_that_refuse(self):
        """Names that are those of sockets, and what is behind them."""
        for name in ("1.1.0123456789abcdef.sock", "99999999999999999999.1.00.sock", "1.sock", "x.sock"):
            with open(os.path.join(self.directory, name), "w", encoding="utf-8"):
                pass
        os.mkdir(os.path.join(self.directory, "1.2.0123456789abcdef.sock"))
        os.symlink("/nowhere", os.path.join(self.directory, "1.3.0123456789abcdef.sock"))
        self.publish()
        self.assertIn(self.weir("stat").returncode, (0, 1))


if __name__ == "__main__":
    sys.argv[1:] = []
    unittest.main()
