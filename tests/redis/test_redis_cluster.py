# SPDX-License-Identifier: MIT
"""The plugin for Redis in a cluster of the test's own: keys on several masters, slots and keys that move, masters
that change with their replicas, and servers that send on to nowhere.

    test_redis_cluster.py PLUGIN CROWD WAITERS [NAME]...

The program CROWD fails by itself as soon as more is held than there is, or a fencing token does not grow; here is
checked what is left at the end. The program WAITERS has waiters that are granted in their order.
"""
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

from redis_certificates import make_certificates, need_openssl, tls_options
from redis_cluster import Cluster, eventually, free_ports
from redis_crowd import GRANTED, Crowd, Lateness, balanced, expect, finish, kept
from redis_server import PATIENCE, need_server

SEEDS = 2  # servers of the cluster that the URL names


WAITERS_KEY = "weir:{waiters}"


class World(Crowd):
    def __init__(self, capacity, replicas=0, **options):
        self.cluster = Cluster(3, replicas, **options)
        super().__init__(crowd_program, plugin, self.cluster, capacity)
        self.subjects = [self.cluster.subject_at(node) for node in self.cluster.masters]

    def crowd(self, slot, ms, threads=6, seeds=SEEDS, subjects=None):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.cluster.nodes[:seeds])
        return self.start(f"redis://{hosts}", slot, ms, *(self.subjects if subjects is None else subjects), threads=threads)

    def waiters(self, session_ms):
        """The program WAITERS, when all of them wait. It goes on when it reads a line."""
        url = f"redis://127.0.0.1:{self.cluster.masters[0].port}"
        process = subprocess.Popen([waiters_program, plugin, url, str(session_ms)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        expect(process.stdout.readline() == "ready\n", "the waiters do not wait")
        return process

    def states(self):
        for subject in self.subjects:
            key = f"weir:{{crowd:{subject}}}"
            yield self.quiet(lambda key=key: self.cluster.owner(key), key)

    def pushes(self):
        """How many messages the masters sent, and how many of these were refused."""
        lines = [line for node in self.cluster.masters for line in node.call("INFO", "commandstats").split("\r\n")
                 if line.startswith("cmdstat_rpush:")]
        fields = [dict(word.split("=") for word in line.split(":")[1].split(",")) for line in lines]
        return len(lines), sum(int(field["rejected_calls"]) + int(field["failed_calls"]) for field in fields)


def spread():
    """A set with subjects on three masters. One of them hears of the other two by the first one alone."""
    with World(2) as world:
        lateness = Lateness(world.cluster.nodes)
        processes = [world.crowd(0, 4000), world.crowd(1, 4000, seeds=1)]
        for process in processes:
            kept(finish(process), lateness)
        for state in world.states():
            balanced(state)
        expect(world.pushes() == (3, 0), f"an inbox lies on another server: {world.pushes()}")


def moving():
    """Three keys on three masters, one of which moves once: first its key, and then, after heartbeats, its slot."""
    with World(2) as world:
        lateness = Lateness(world.cluster.nodes)
        processes = [world.crowd(slot, 5000) for slot in range(2)]
        time.sleep(2)
        source, target = world.cluster.masters[:2]
        key = f"weir:{{crowd:{world.subjects[0]}}}"
        slot = world.cluster.slot(key)
        world.cluster.begin_migration(slot, source, target)
        world.cluster.move_keys(slot, source, target)
        time.sleep(0.7)
        world.cluster.end_migration(slot, source, target)
        for process in processes:
            kept(finish(process), lateness)
        expect(world.cluster.owner(key) is target, "the slot has not moved")
        for state in world.states():
            balanced(state)


def secure():
    """By TLS, with a user that may do no more than it has to, in all servers. A key moves, and its slot."""
    need_openssl()
    with tempfile.TemporaryDirectory() as directory:
        make_certificates(directory)
        with World(2, of_port=lambda port: ["--port", "0", "--tls-cluster", "yes", *tls_options(directory, port)]) as world:
            for node in world.cluster.nodes:
                node.call("ACL", "SETUSER", "weir", "on", ">secret", "~weir:*", "+fcall", "+function|load", "+blpop", "+hmget",
                          "+hget", "+hset", "+hdel", "+pexpire", "+persist", "+rpush", "+time", "+info", "+asking",
                          "+cluster|slots")
            os.environ["PASSWORD"] = "secret"
            lateness = Lateness(world.cluster.nodes)
            process = world.start(f"rediss://weir@127.0.0.1:{world.cluster.nodes[0].port}", 0, 5000,
                                  *world.subjects, password_env="PASSWORD", ca_file=os.path.join(directory, "ca.crt"))
            time.sleep(2)
            source, target = world.cluster.masters[:2]
            slot = world.cluster.slot(f"weir:{{crowd:{world.subjects[0]}}}")
            world.cluster.begin_migration(slot, source, target)
            world.cluster.move_keys(slot, source, target)
            time.sleep(0.7)
            world.cluster.end_migration(slot, source, target)
            kept(finish(process), lateness)
            for state in world.states():
                balanced(state)


def left():
    """Links to a master that has no key any more are taken down."""
    with World(2) as world:
        process = world.crowd(0, 60000, subjects=world.subjects[:1])
        source, target = world.cluster.masters[:2]
        slot = world.cluster.slot(f"weir:{{crowd:{world.subjects[0]}}}")

        def clients(node):
            return node.call("CLIENT", "LIST").count("fcall") + node.call("CLIENT", "LIST").count("blpop")

        eventually(lambda: clients(source) >= 2, "the first master is used")
        world.cluster.begin_migration(slot, source, target)
        world.cluster.end_migration(slot, source, target)
        eventually(lambda: clients(target) >= 2, "the second master is used")
        eventually(lambda: clients(source) == 0, "the first master is left")
        expect(process.poll() is None, "the process has ended")


def migrated():
    """All keys go round the masters, over and over, and are half on their way for a while: at first at the old
    place, then at the new one. No session is lost."""
    with World(2) as world:
        processes = [world.crowd(slot, 24000) for slot in range(2)]
        slots = [world.cluster.slot(f"weir:{{crowd:{subject}}}") for subject in world.subjects]
        places = [0, 1, 2]
        time.sleep(3)
        for step in range(6):
            at = step % 3
            source, target = (world.cluster.masters[place % 3] for place in (places[at], places[at] + 1))
            places[at] += 1
            world.cluster.begin_migration(slots[at], source, target)
            time.sleep(random.uniform(0, 1))
            world.cluster.move_keys(slots[at], source, target)
            time.sleep(random.uniform(0, 1.5))
            world.cluster.end_migration(slots[at], source, target)
            time.sleep(random.uniform(0, 0.5))
        for process in processes:
            counts = finish(process)
            expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        for state in world.states():
            balanced(state)


def waiters():
    """What is held stays held, and waiters keep their order, while a slot moves in which they wait, the key first;
    while it moves after they have been told; and when a replica takes over."""
    key = WAITERS_KEY
    with World(2, replicas=3) as world:
        cluster = world.cluster
        for step in range(3):
            process = world.waiters(2000)
            owner, slot = cluster.owner(key), cluster.slot(key)
            target = next(node for node in cluster.masters if node is not owner)
            if step < 2:
                cluster.begin_migration(slot, owner, target)
                cluster.move_keys(slot, owner, target)
            if step == 1:
                cluster.end_migration(slot, owner, target)
            if step == 2:
                cluster.replicas[cluster.masters.index(owner)].call("CLUSTER", "FAILOVER")
                eventually(lambda: cluster.owner(key) in cluster.replicas, "the replica takes over")
            process.communicate("go on\n", timeout=120)
            expect(process.returncode == 0, f"exit status {process.returncode}")
            if step == 0:
                cluster.end_migration(slot, owner, target)


def killed():
    """A master is killed, and its replica takes over: others go on meanwhile. A session that is long goes on there
    as well, after the heartbeat that misses the master, and before it ends: the set says which server changed it last."""
    with World(2, replicas=3) as world:
        cluster = world.cluster
        i = cluster.masters.index(cluster.owner(WAITERS_KEY))
        world.waiters(2 * PATIENCE * 1000)
        processes = [world.crowd(slot, 14000) for slot in range(2)]
        time.sleep(3)
        cluster.masters[i].kill()
        key, replica = f"weir:{{crowd:{world.subjects[i]}}}", cluster.replicas[i]
        eventually(lambda: cluster.owner(key) is replica, "the replica takes over")
        before = world.look_after_grace(replica, key)
        for process in processes:
            expect(finish(process)["granted"] > 0, "a process got nothing")
        after = list(world.states())
        expect(after[i][GRANTED] > before[GRANTED], f"nothing was granted by the replica: {before} {after[i]}")
        eventually(lambda: replica.call("HGET", WAITERS_KEY, "R") == replica.run_id(), "the long session goes on")


def changed():
    """A replica takes over from a master that runs on. No session is lost."""
    with World(2, replicas=1) as world:
        processes = [world.crowd(slot, 9000) for slot in range(2)]
        time.sleep(3)
        world.cluster.replicas[0].call("CLUSTER", "FAILOVER")
        key = f"weir:{{crowd:{world.subjects[0]}}}"
        eventually(lambda: world.cluster.owner(key) is world.cluster.replicas[0], "the replica takes over")
        for process in processes:
            counts = finish(process)
            expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        for state in world.states():
            balanced(state)


class FakeNode:
    """A server that says that it is one of a cluster, and has an error for each call."""

    def __init__(self, port, error):
        self.error, self.calls_n = error, 0
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.answer, args=(self.listener.accept()[0],), daemon=True).start()

    def answer(self, client):
        info = b"redis_version:7.0.15\r\nredis_mode:cluster\r\nrun_id:%040d\r\n" % 1
        try:
            for words in commands(client.makefile("rb")):
                if words[0] == b"INFO":
                    client.sendall(b"$%d\r\n%s\r\n" % (len(info), info))
                elif words[0] == b"FCALL" and words[2] == b"0":
                    client.sendall(b"-BADARG\r\n")
                elif words[0] == b"ASKING":
                    client.sendall(b"+OK\r\n")
                else:
                    self.calls_n += words[0] == b"FCALL"
                    client.sendall(b"-%s\r\n" % self.error().encode())
        except OSError:
            pass


def commands(file):
    """The commands that a client sends."""
    while line := file.readline():
        words = []
        for _ in range(int(line[1:])):
            words.append(file.read(int(file.readline()[1:]) + 2)[:-2])
        yield words


class Nowhere:
    """In place of servers that have to be stopped."""

    def stop(self):
        pass


def send_on(*errors):
    """Servers that send on, each by one of these: requests fail, and no server is called without end."""
    ports = free_ports(len(errors))
    nodes = [FakeNode(port, lambda error=error: error(ports)) for port, error in zip(ports, errors)]
    with Crowd(crowd_program, plugin, Nowhere(), 2) as crowd:
        counts = finish(crowd.start(f"redis://127.0.0.1:{ports[0]}", 0, 4000, threads=2))
        expect(counts["granted"] == 0 and counts["unreachable"] > 0, f"{counts}")
    calls_n = sum(node.calls_n for node in nodes)
    expect(calls_n < 400, f"{calls_n} calls in 4 s")
    expect(calls_n >= len(errors), "not all servers were asked")


def circle():
    """MOVED in a circle."""
    send_on(lambda ports: f"MOVED 1 127.0.0.1:{ports[1]}", lambda ports: f"MOVED 1 127.0.0.1:{ports[2]}",
            lambda ports: f"MOVED 1 :{ports[0]}")


def asked():
    """ASK to and fro."""
    send_on(lambda ports: f"ASK 1 127.0.0.1:{ports[1]}", lambda ports: f"ASK 1 127.0.0.1:{ports[0]}")


def nonsense():
    """Redirections that are none, to nowhere, or to themselves."""
    errors = ["MOVED", "MOVED 1", "MOVED 1 ", "MOVED x 127.0.0.1:1", "MOVED 16384 127.0.0.1:1", "MOVED 1 127.0.0.1:",
              "MOVED 1 127.0.0.1:0", "MOVED 1 127.0.0.1:99999", "MOVED 1 ?:7000", "MOVED 1 127.0.0.1",
              "MOVED 99999999999999999999 127.0.0.1:1", "MOVED 1 :", "MOVED 1 " + "a" * 300 + ":7000", "ASK", "ASK 1 :x",
              "TRYAGAIN", "CLUSTERDOWN Hash slot not served", "MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1"]
    send_on(lambda ports: random.choice([*errors, f"MOVED 1 127.0.0.1:{ports[0]}", f"ASK 1 :{ports[0]}"]))


SCENARIOS = [spread, moving, secure, left, waiters, migrated, killed, changed, circle, asked, nonsense]

need_server()
plugin, crowd_program, waiters_program = sys.argv[1:4]
seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
random.seed(seed)
print("seed", seed)
for each in SCENARIOS:
    if not sys.argv[4:] or each.__name__ in sys.argv[4:]:
        print(each.__name__, flush=True)
        began = time.monotonic()
        each()
        print(f"{each.__name__}: {time.monotonic() - began:.1f} s", flush=True)
