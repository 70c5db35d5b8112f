# SPDX-License-Identifier: MIT
"""A Redis Cluster of the test's own, on ports of the loopback interface that no program uses: masters, to which
slots and keys can be moved, and their replicas."""
import random
import socket
import time

from redis_server import PATIENCE, ReplyError, Server

SLOTS = 16384


def free_ports(n):
    """Ports that no program uses, apart from those of outgoing connections: one of these may come in between."""
    ports, probes = random.Random().sample(range(10000, 32000), 1000), []
    while len(probes) < n:
        probe = socket.socket()
        probes.append(probe)
        try:
            probe.bind(("127.0.0.1", ports.pop()))
        except OSError:
            probes.pop().close()
    found = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return found


def eventually(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"it never comes about: {what}")
        time.sleep(0.02)


class Node(Server):
    """A server of a cluster."""

    def __init__(self, port, bus_port, *options):
        self.port, self.bus_port = port, bus_port
        super().__init__("--cluster-enabled", "yes", "--bind", "127.0.0.1", "--port", str(port), "--cluster-port",
                         str(bus_port), "--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0",
                         "--repl-diskless-sync-delay", "0", *options)
        self.id = self.call("CLUSTER", "MYID")


class Cluster:
    """Nodes have these options, and those that `of_port` returns for their ports."""

    def __init__(self, masters=3, replicas=0, options=(), of_port=lambda port: ()):
        ports = free_ports(2 * (masters + replicas))
        self.nodes = []
        try:
            for i in range(masters + replicas):
                self.nodes.append(Node(*ports[2 * i:2 * i + 2], *options, *of_port(ports[2 * i])))
            self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]
            self.unite()
        except BaseException:
            self.stop()
            raise

    def unite(self):
        n = len(self.masters)
        for i, node in enumerate(self.masters):
            node.call("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // n, SLOTS * (i + 1) // n - 1)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        eventually(lambda: all(f"cluster_known_nodes:{len(self.nodes)}" in node.call("CLUSTER", "INFO")
                               for node in self.nodes), "all nodes know each other")
        for i, node in enumerate(self.replicas):
            node.call("CLUSTER", "REPLICATE", self.masters[i].id)
        eventually(self.is_well, "the cluster is well")

    def is_well(self):
        return (all("cluster_state:ok" in node.call("CLUSTER", "INFO") for node in self.nodes) and
                all("master_link_status:up" in node.call("INFO", "replication") for node in self.replicas))

    def stop(self):
        for node in self.nodes:
            node.stop()

    def owner(self, key):
        """The node that serves a key."""
        slot = self.slot(key)
        for node in self.nodes:
            if node.process.poll() is not None:
                continue
            for first, last, (_, port, *_), *_ in node.call("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(each for each in self.nodes if each.port == port)
        raise SystemExit(f"no node serves slot {slot}")

    def slot(self, key):
        return next(node for node in self.nodes if node.process.poll() is None).call("CLUSTER", "KEYSLOT", key)

    def subject_at(self, node, text="crowd"):
        """A subject of a set with a key that this node serves."""
        return next(name for name in map(str, range(10000)) if self.owner_fast(f"weir:{{{text}:{name}}}") is node)

    def owner_fast(self, key):
        return self.masters[self.slot(key) * len(self.masters) // SLOTS]

    def begin_migration(self, slot, source, target):
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def move_keys(self, slot, source, target):
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.call("MIGRATE", "127.0.0.1", target.port, "", 0, PATIENCE * 1000, "KEYS", *keys)

    def end_migration(self, slot, source, target):
        self.move_keys(slot, source, target)
        for node in (target, source, *self.masters):
            try:
                node.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)
            except ReplyError as error:  # a key has been made meanwhile
                self.move_keys(slot, source, target)
                if "keys" in str(error):
                    node.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)
