# SPDX-License-Identifier: MIT
"""The plugin for Redis with Sentinels: it finds the master by them, and the next one after that has been killed.

    test_redis_sentinel.py PLUGIN CROWD [NAME]...
"""
import os
import random
import socket
import sys
import threading
import time

from redis_cluster import eventually, free_ports
from redis_crowd import GRANTED, Crowd, Lateness, balanced, expect, finish, kept
from redis_sentinel import Sentinel
from redis_server import Server, need_server

SENTINEL_PASSWORD, PASSWORD = "for-sentinels", "for-servers"


class TcpServer(Server):
    """A server with a port, and a user that may do no more than the plugin has to."""

    def __init__(self, port, *options):
        self.port = port
        super().__init__("--bind", "127.0.0.1", "--port", str(port), "--repl-diskless-sync-delay", "0", *options)
        self.call("ACL", "SETUSER", "weir", "on", f">{PASSWORD}", "~weir:*", "+fcall", "+function|load", "+blpop", "+hmget",
                  "+hget", "+hset", "+hdel", "+pexpire", "+persist", "+rpush", "+time", "+info", "+role")


class Watched:
    """A master with its replica, and a Sentinel."""

    def __init__(self):
        self.ports = free_ports(4)
        self.servers = [TcpServer(self.ports[0])]
        self.servers.append(TcpServer(self.ports[1], "--replicaof", f"127.0.0.1 {self.ports[0]}"))
        eventually(lambda: "master_link_status:up" in self.servers[1].call("INFO", "replication"), "the replica is there")
        self.sentinel = Sentinel(self.ports[2], self.servers[0].port, f"user me on >{SENTINEL_PASSWORD} ~* &* +@all")
        self.hosts = f"127.0.0.1:{self.ports[3]},127.0.0.1:{self.ports[2]}"  # nothing listens at the first one

    def stop(self):
        for server in (*self.servers, self.sentinel):
            server.stop()

    def master(self):
        port = self.sentinel.master_port()
        return next(server for server in self.servers if server.port == port)


class World(Crowd):
    def __init__(self, capacity):
        self.watched = Watched()
        super().__init__(crowd_program, plugin, self.watched, capacity)
        self.password_file = os.path.join(self.watched.sentinel.directory, "password")
        with open(self.password_file, "w", encoding="ascii") as file:
            file.write(PASSWORD + "\n")

    def crowd(self, slot, ms, sentinel=Sentinel.master_name):
        return self.start(f"redis://weir@{self.watched.hosts}", slot, ms, sentinel=sentinel, sentinel_user="me",
                          sentinel_password_env="SENTINEL_PASSWORD", password_file=self.password_file)

    def check(self, processes):
        counts = [finish(process) for process in processes]
        expect(all(each["granted"] > 0 for each in counts), f"{counts}")
        return counts, self.quiet(self.watched.master)


def found():
    """The master is found by the second one of two Sentinels; under another name none is."""
    with World(2) as world:
        lateness = Lateness(world.watched.servers)
        right, wrong = world.crowd(0, 4000), world.crowd(1, 4000, sentinel="another")
        kept(finish(right), lateness)
        counts = finish(wrong)
        expect(counts["granted"] == 0 and counts["unreachable"] > 0, f"{counts}")
        balanced(world.quiet(world.watched.master))


def refused():
    """A wrong password for Sentinels is refused, and not logged."""
    os.environ["SENTINEL_PASSWORD"] = "not-this-one"
    with World(2) as world:
        process = world.crowd(0, 1000)
        counts = finish(process)
        expect(counts["granted"] == 0 and counts["denied"] > 0, f"{counts}")


class FakeSentinel:
    """It names the replica."""

    def __init__(self, port, master_port):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.reply = f"*2\r\n$9\r\n127.0.0.1\r\n${len(str(master_port))}\r\n{master_port}\r\n".encode()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.answer, args=(self.listener.accept()[0],), daemon=True).start()

    def answer(self, client):
        while data := client.recv(4096):
            client.sendall(b"+OK\r\n" if b"AUTH" in data else self.reply)


def replica():
    """A Sentinel that names a replica is not believed."""
    with World(2) as world:
        FakeSentinel(world.watched.ports[3], world.watched.servers[1].port)
        process = world.crowd(0, 1000)
        counts = finish(process)
        expect(counts["granted"] == 0 and counts["unreachable"] > 0, f"{counts}")
        stats = world.watched.servers[1].call("INFO", "commandstats")
        expect("cmdstat_role:" in stats and "cmdstat_fcall:" not in stats, "the replica was called")


def changed():
    """The Sentinel makes the replica the master while the first one runs on, and takes calls for a while. The
    processes ask the Sentinel now and then; no session is lost."""
    with World(2) as world:
        processes = [world.crowd(slot, 12000) for slot in range(2)]
        time.sleep(3)
        world.watched.sentinel.call("SENTINEL", "FAILOVER", Sentinel.master_name)
        eventually(lambda: world.watched.master() is world.watched.servers[1], "the replica takes over")
        before = world.look_after_grace(world.watched.servers[1])
        counts, after = world.check(processes)
        expect(after[GRANTED] > before[GRANTED], f"nothing was granted by the replica: {before} {after}")
        expect(all(each["losses"] == 0 for each in counts), f"{counts}")


def killed():
    """The master is killed: the Sentinel makes the replica the master. Nothing is granted twice."""
    with World(2) as world:
        processes = [world.crowd(slot, 14000) for slot in range(2)]
        time.sleep(3)
        world.watched.servers[0].kill()
        eventually(lambda: world.watched.master() is world.watched.servers[1], "the replica takes over")
        before = world.look_after_grace(world.watched.servers[1])
        _, after = world.check(processes)
        expect(after[GRANTED] > before[GRANTED], f"nothing was granted by the replica: {before} {after}")


SCENARIOS = [found, refused, replica, changed, killed]

need_server()
plugin, crowd_program = sys.argv[1:3]
seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
random.seed(seed)
print("seed", seed)
for each in SCENARIOS:
    if not sys.argv[3:] or each.__name__ in sys.argv[3:]:
        print(each.__name__, flush=True)
        os.environ["SENTINEL_PASSWORD"] = SENTINEL_PASSWORD
        began = time.monotonic()
        each()
        print(f"{each.__name__}: {time.monotonic() - began:.1f} s", flush=True)
