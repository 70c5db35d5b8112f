# SPDX-License-Identifier: MIT
"""The Redis library on real servers, by their own clocks: they are killed and started again, a replica takes over
that missed the last grants, functions vanish, an inbox wakes a node, and a user may do no more than it has to.

Argument: the library.
"""
import sys
import time
import unittest

from redis_cluster import Cluster
from redis_nodes import BUSY, GRANTED, IN_GRACE, REFUSED, WAITING, Node, bucket, definition, load, resource
from redis_server import PATIENCE, Client, ReplyError, Server, need_server, read_library

LIBRARY = read_library(sys.argv.pop(1))
LEASE_US = 3000000
SHORT_LEASE_US = 10000  # where no session is needed


class Servers(unittest.TestCase):
    def server(self, *options):
        server = Server(*options)
        self.addCleanup(server.stop)
        return server

    def client(self, server):
        client = load(server, LIBRARY)
        self.addCleanup(client.close)
        return client

    def node(self, server, name, *limits, lease_us=LEASE_US):
        return Node(self.client(server), server.run_id(), name, definition(*limits, lease_us=lease_us))

    def go_to(self, server, *nodes):
        """The nodes have noticed that their server is gone."""
        for node in nodes:
            node.client, node.run = self.client(server), server.run_id()

    def check_grace(self, holder, holds, other):
        """Nothing is granted to the other node until the holder has released."""
        words = [word for slot, serial, granted, *amounts in holds
                 for word in (slot, serial, granted[1], granted[2], *amounts)]
        self.assertEqual(other.acquire(0, 1)[:2], [REFUSED, IN_GRACE])
        self.assertEqual(holder.call("weir_assert", holder.inbox, *words)[1], [])
        reply = other.acquire(0, 1)
        while reply[:2] == [REFUSED, IN_GRACE]:
            time.sleep(0.05)
            holder.heartbeat()
            other.heartbeat()
            reply = other.acquire(0, 1)
        self.assertEqual(reply, [REFUSED, BUSY, 0, -1])
        slot, serial, granted = holds[0][:3]
        holder.release(slot, serial, "-")
        reply = other.acquire(0, 1)
        self.assertEqual(reply[0], GRANTED)
        self.assertGreater(reply[1], granted[1])

    def test_a_restart_without_data_grants_nothing_twice(self):
        server = self.server()
        a, b = self.node(server, "a", resource(1)), self.node(server, "b", resource(1))
        a.open(), b.open()
        self.assertEqual(a.acquire(0, 1)[:2], [REFUSED, IN_GRACE])  # the server has only just been started
        granted = self.eventually(lambda: a.acquire(1, 1), a, b)
        server.kill()
        server.start()
        self.go_to(server, a, b)
        b.open(known=0)
        self.check_grace(a, [(1, a.serial, granted, 1)], b)

    def eventually(self, request, *nodes):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            reply = request()
            if reply[0] == GRANTED:
                return reply
            for node in nodes:
                node.heartbeat()
            time.sleep(0.05)
        self.fail("it is never granted")

    def test_a_replica_that_missed_grants_grants_nothing_twice(self):
        master = self.server()
        a, b = self.node(master, "a", resource(2)), self.node(master, "b", resource(2))
        a.open(), b.open()
        first = self.eventually(lambda: a.acquire(0, 1), a, b)
        serial = a.serial
        replica = self.server()
        client = Client(replica.path)
        self.addCleanup(client.close)
        # The replica is cut off: it has the set as it was before the second grant.
        copied = b.client.call("DUMP", "set").encode("latin-1")
        lost = a.acquire(1, 1)
        self.assertEqual(lost[0], GRANTED)
        client.call("RESTORE", "set", 0, copied)
        master.kill()
        self.go_to(replica, a, b)
        self.check_grace(a, [(1, a.serial, lost, 1), (0, serial, first, 1)], b)

    def test_a_restart_with_data_keeps_it(self):
        server = self.server("--appendonly", "yes", "--appendfsync", "always")
        a, b = self.node(server, "a", resource(1)), self.node(server, "b", resource(1))
        a.open(), b.open()
        granted = self.eventually(lambda: a.acquire(0, 1), a, b)
        server.kill()
        server.start()
        with self.assertRaises(ReplyError) as caught:
            Node(self.client(server), a.run, "a", a.text).heartbeat()
        self.assertEqual(str(caught.exception), f"STALERUN {server.run_id()}")
        self.go_to(server, a, b)
        self.assertEqual(a.heartbeat()[2:4], [1, a.serial])
        self.check_grace(a, [(0, a.serial, granted, 1)], b)

    def test_functions_that_vanish_are_loaded_again(self):
        server = self.server()
        a = self.node(server, "", bucket(1000, 1000000), lease_us=3600 * 1000000)
        a.take(1)
        a.client.call("FUNCTION", "FLUSH")
        with self.assertRaises(ReplyError) as caught:
            a.take(1)
        self.assertEqual(str(caught.exception), "ERR Function not found")
        a.client.call("FUNCTION", "LOAD", LIBRARY)
        self.assertEqual(a.take(1)[0], REFUSED)  # still in its grace
        with self.assertRaises(ReplyError):
            a.client.call("FUNCTION", "LOAD", LIBRARY)

    def test_a_grant_wakes_the_node_that_waits_for_its_inbox(self):
        server = self.server()
        a, b = self.node(server, "a", resource(1)), self.node(server, "b", resource(1))
        a.open(), b.open()
        self.eventually(lambda: a.acquire(0, 1), a, b)
        self.assertEqual(b.wait(0, 1)[0], WAITING)
        b.client.send("BLPOP", b.inbox, PATIENCE)
        b.client.flush()
        a.release(0, a.serial, "-")
        _, message = b.client.read()
        self.assertRegex(message, r"^G 0 1 \d+ \d+ set$")

    def test_time_passes_by_the_clock_of_the_server(self):
        server = self.server()
        a = self.node(server, "", bucket(1, 1000), lease_us=SHORT_LEASE_US)
        self.eventually(lambda: a.take(1))
        begin = time.monotonic()
        for _ in range(100):
            self.eventually_soon(a)
        self.assertGreaterEqual(time.monotonic() - begin, 0.099)

    def eventually_soon(self, node):
        while node.take(1)[0] != GRANTED:
            pass

    def test_a_cluster_serves_a_set_with_inboxes_in_other_slots(self):
        cluster = Cluster(masters=2)
        self.addCleanup(cluster.stop)
        key, far = (f"weir:{{{name}}}" for name in self.names_of(cluster))
        here = cluster.masters[0]
        self.client(cluster.masters[1])
        a, b, c = (self.node(here, name, resource(1)) for name in "abc")
        for node in (a, b, c):
            node.key, node.inbox = key, f"weir:inbox:{node.name}"
        b.inbox = next(name for name in (f"weir:inbox:b:{{{i}}}" for i in range(1000)) if cluster.owner_fast(name) is here)
        c.inbox = far
        for node in (a, b, c):
            node.open()
        self.eventually(lambda: a.acquire(0, 1), a, b, c)
        b.wait(0, 1)
        c.wait(0, 1)
        a.release(0, a.serial, "-")
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "0", "1"]])
        b.release(0, 1, "-")  # a push to another server is refused, and the heartbeat makes up for it
        self.assertEqual(c.heartbeat()[2:4], [1, 1])
        c.wait(1, 1)
        c.inbox = b.inbox + ":c"
        c.call("weir_assert", c.inbox)
        c.release(0, 1, "-")
        self.assertEqual([message.split()[:3] for message in c.messages()], [["G", "1", "2"]])

    @staticmethod
    def names_of(cluster):
        """A name for each master, which serves its key."""
        for node in cluster.masters:
            yield next(name for name in map(str, range(1000)) if cluster.owner_fast(f"weir:{{{name}}}") is node)

    def test_a_user_needs_no_more_than_the_protocol_says(self):
        server = self.server()
        a, b = self.node(server, "a", resource(1)), self.node(server, "b", resource(1))
        a.client.call("ACL", "SETUSER", "limited", "on", ">secret", "~set", "~inbox:*", "+fcall", "+hmget", "+hget",
                      "+hset", "+hdel", "+pexpire", "+persist", "+rpush", "+time", "+info")
        for node in (a, b):
            node.client.call("AUTH", "limited", "secret")
            node.open()
        self.eventually(lambda: a.acquire(0, 1), a, b)
        b.wait(0, 1)
        self.assertEqual(a.release(0, a.serial, "-")[0], GRANTED)
        self.assertEqual(b.heartbeat()[2], 1)
        other = self.node(server, "", bucket(1000, 1000000))
        self.assertEqual(other.client.call("LLEN", b.inbox), 1)


if __name__ == "__main__":
    need_server()
    unittest.main()
