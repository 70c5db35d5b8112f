# SPDX-License-Identifier: MIT
"""The calls of the Redis library: tickets, the wait queue, sessions, grace, batches, errors.

Argument: the library. The clock is set by hand, and so is what the server says that it is.
"""
import os
import random
import struct
import sys
import time
import unittest

from redis_cluster import eventually, free_ports
from redis_nodes import (BUSY, FULL, GONE, GRANTED, IN_GRACE, LEASE_US, RANGE, REFUSED, START_US, TOO_LONG,
                         WAITING, FakeServer, Node, bucket, definition, load, resource)
from redis_server import Client, ReplyError, Server, read_library

LIBRARY = sys.argv.pop(1)
SEED = int(os.environ.get("WEIR_SEED") or time.time_ns() % 2**32)
SECOND = 1000000


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"WEIR_SEED={SEED}", file=sys.stderr, flush=True)
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.client = load(cls.server, read_library(LIBRARY, fake_clock=True, fake_identity=True))
        cls.addClassCleanup(cls.client.close)

    def setUp(self):
        self.client.call("FLUSHALL")
        self.fake = FakeServer(self.client)

    def node(self, name, *limits, key="set", **options):
        node = Node(self.client, self.fake.run, name, definition(*limits, **options), key)
        node.open()
        return node

    def fails(self, code, call, *arguments, **options):
        with self.assertRaises(ReplyError) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.code, code, caught.exception)


class Tickets(Calls):
    def test_a_repeated_request_gets_what_became_of_it(self):
        a = self.node("a", resource(2))
        granted = a.acquire(0, 1)
        self.assertEqual(granted[0], GRANTED)
        self.assertEqual(a.acquire(0, 1, serial=1), granted)
        self.assertEqual(a.snapshot()[-1], [[1, 0, 0, -1, -1]])

    def test_a_repeated_release_gives_back_once(self):
        a = self.node("a", resource(3))
        for slot in range(3):
            a.acquire(slot, 1)
        self.assertEqual(a.release(0, 1, "-"), [GRANTED, -1])
        self.assertEqual(a.release(0, 1, "-"), [GONE, -1])
        self.assertEqual(a.snapshot()[-1], [[1, 0, 0, -1, -1]])

    def test_a_request_that_arrives_after_its_release_is_gone(self):
        a = self.node("a", resource(1))
        a.acquire(0, 1)
        a.release(0, 1, "-")
        self.assertEqual(a.acquire(0, 1, serial=1), [GONE])
        self.assertEqual(a.snapshot()[-1], [[1, 0, 0, 0, 0]])

    def test_a_request_that_arrives_after_its_cancellation_is_gone(self):
        a = self.node("a", resource(1))
        self.assertEqual(a.cancel(0, 1), [GONE, -1])
        self.assertEqual(a.acquire(0, 1, serial=1), [GONE])

    def test_a_request_that_is_overtaken_by_a_younger_one_is_gone(self):
        a = self.node("a", resource(5))
        self.assertEqual(a.acquire(0, 1, serial=2)[0], GRANTED)
        self.assertEqual(a.acquire(1, 1, serial=1), [GONE])

    def test_a_ticket_ends_the_one_before_in_its_slot(self):
        a = self.node("a", resource(5))
        a.acquire(0, 5)
        self.assertEqual(a.wait(1, 5)[0], WAITING)
        self.assertEqual(a.acquire(0, 1), [REFUSED, BUSY, 0, -1])
        self.assertEqual(a.wait(1, 1)[0], GRANTED)
        self.assertEqual(a.release(0, 1, "-"), [GONE, -1])
        self.assertEqual(a.heartbeat()[2:6], [1, 4, 0, 0])

    def test_a_refused_request_may_be_repeated(self):
        a, b = self.node("a", resource(1)), self.node("b", resource(1))
        b.acquire(0, 1)
        self.assertEqual(a.acquire(0, 1, serial=1), [REFUSED, BUSY, 0, -1])
        b.release(0, 1, "-")
        self.assertEqual(a.acquire(0, 1, serial=1)[0], GRANTED)

    def test_a_cancellation_says_that_the_ticket_was_granted(self):
        a = self.node("a", resource(1))
        granted = a.acquire(0, 1)
        self.assertEqual(a.cancel(0, 1), granted)
        self.assertEqual(a.release(0, 1, "0", how="undo"), [GRANTED, -1])

    def test_a_part_goes_back_once(self):
        a = self.node("a", resource(10), bucket(10, SECOND))
        a.acquire(0, 8, 8)
        for _ in range(2):
            self.assertEqual(a.call("weir_return", 0, 1, 3, 5), [GRANTED, -1])
            self.assertEqual([limit[0] for limit in a.snapshot()[-1]], [7, 5])
        self.fails("BADARG", a.call, "weir_return", 0, 1, 4, 5)
        a.release(0, 1, "-", "-")
        self.assertEqual([limit[0] for limit in a.snapshot()[-1]], [10, 5])

    def test_a_call_that_fails_on_the_way_leaves_nothing_to_the_next(self):
        a = self.node("a", resource(10), resource(5))
        a.acquire(0, 6, 5)
        self.fails("BADARG", a.call, "weir_return", 0, 1, 1, 6)  # the first limit was written down already
        self.assertEqual(a.call("weir_return", 0, 1, 6, 5), [GRANTED, -1])
        a.release(0, 1, "-", "-")
        self.assertEqual([limit[0] for limit in a.snapshot()[-1]], [10, 5])

    def test_an_undone_grant_is_refunded_whatever_the_definition_says(self):
        a = self.node("a", bucket(10, 60 * SECOND, refund=0))
        a.acquire(0, 8)
        a.acquire(1, 2)
        a.release(0, 1, 0)
        self.assertEqual(a.snapshot()[-1][0][0], 0)
        a.release(1, 2, 0, how="undo")
        self.assertEqual(a.snapshot()[-1][0][0], 2)

    def test_a_unit_of_a_shaper_that_leaves_now_is_not_refunded(self):
        a = self.node("a", f"l,2,{2 * SECOND},2,2,1,0,1,0")  # a unit leaves each second
        a.acquire(0, 2)
        self.fake.advance(SECOND)
        self.assertEqual(a.acquire(1, 1), [REFUSED, BUSY, 0, SECOND])
        a.release(0, 1, 0)
        self.assertEqual(a.acquire(1, 1), [REFUSED, BUSY, 0, SECOND])

    def test_what_is_impossible_is_refused_at_once(self):
        a = self.node("a", resource(3), bucket(5, SECOND))
        self.assertEqual(a.wait(0, 1, 6), [REFUSED, RANGE, 1, -1])
        self.assertEqual(a.wait(0, 4, 6), [REFUSED, RANGE, 0, -1])

    def test_fences_grow(self):
        a = self.node("a", resource(100))
        fences = [a.acquire(slot, 1)[1] for slot in range(10)]
        self.fake.advance(-10 * SECOND)
        fences += [a.acquire(slot, 1)[1] for slot in range(10, 20)]
        self.assertEqual(fences, sorted(set(fences)))
        self.assertGreaterEqual(fences[0], START_US)

    def test_a_take_needs_neither_session_nor_set(self):
        a = Node(self.client, "one", "", definition(bucket(5, SECOND)))
        self.assertEqual(a.take(5), [GRANTED, 0, START_US, START_US])
        self.assertEqual(a.take(1), [REFUSED, BUSY, 0, SECOND // 5])
        b = Node(self.client, "one", "", definition(resource(5)), key="held")
        self.fails("BADARG", b.take, 1)

    def test_a_request_that_names_an_inbox_opens_its_session(self):
        a = Node(self.client, "one", "a", definition(resource(1)))
        self.fails("NOSESSION", a.acquire, 0, 1)
        self.assertEqual(a.acquire(0, 1, inbox="in")[0], GRANTED)
        self.assertEqual(a.heartbeat()[2:4], [1, 2])

    def test_tickets_are_listed_in_parts(self):
        a = self.node("a", resource(120))
        for slot in range(0, 250, 2):
            a.wait(slot, 1)
        cursor, tickets = 0, []
        while cursor >= 0:
            cursor, part = a.call("weir_list", cursor)
            tickets += part
        self.assertEqual([ticket[:3] for ticket in tickets],
                         [[2 * i, i + 1, GRANTED if i < 120 else WAITING] for i in range(125)])


class Queue(Calls):
    def test_a_release_hands_over_in_order(self):
        a, b = self.node("a", resource(2)), self.node("b", resource(2))
        a.acquire(0, 2)
        self.assertEqual(b.wait(0, 1), [WAITING, -1])
        self.assertEqual(b.wait(1, 2), [WAITING, -1])
        self.assertEqual(b.wait(2, 1), [WAITING, -1])
        self.assertEqual(a.acquire(1, 1), [REFUSED, BUSY, 0, -1])
        a.release(0, 1, "-")
        messages = b.messages()
        self.assertEqual([message.split()[:3] for message in messages], [["G", "0", "1"]])
        self.assertEqual(a.acquire(1, 1)[0], REFUSED)  # the next one needs 2, and is not passed
        b.release(0, 1, "-")
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "1", "2"]])
        b.release(1, 2, "-")
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "2", "3"]])
        self.assertEqual(a.acquire(2, 1)[0], GRANTED)

    def test_newcomers_pass_where_the_definition_says_so(self):
        a, b = self.node("a", resource(2), flags="b"), self.node("b", resource(2), flags="b")
        a.acquire(0, 1)
        b.wait(0, 2)
        self.assertEqual(a.acquire(1, 1)[0], GRANTED)

    def test_only_the_node_of_the_head_keeps_a_timer(self):
        a, b = self.node("a", bucket(1, SECOND)), self.node("b", bucket(1, SECOND))
        a.take(1)
        self.assertEqual(a.wait(0, 1), [WAITING, SECOND])
        self.assertEqual(b.wait(0, 1), [WAITING, -1])
        self.assertEqual(a.messages() + b.messages(), [])
        self.fake.advance(SECOND)
        now = self.fake.clock
        self.assertEqual(a.call("weir_pump"), [now, -1])
        self.assertEqual([message.split()[:3] for message in a.messages()], [["G", "0", "1"]])
        self.assertEqual(b.messages(), [f"T {SECOND}"])
        self.assertEqual(a.call("weir_pump"), [now, -1])
        self.assertEqual(b.messages(), [])  # told once
        self.assertEqual(b.call("weir_pump"), [now, SECOND])
        self.fake.advance(SECOND)
        self.assertEqual(a.heartbeat()[6], -1)  # a heartbeat pumps
        self.assertEqual([message.split()[0] for message in b.messages()], ["G"])

    def test_a_timer_that_ran_out_is_set_again(self):
        a, b = self.node("a", bucket(1, SECOND)), self.node("b", bucket(1, SECOND))
        a.take(1)
        b.wait(0, 1)
        a.call("weir_pump")
        self.assertEqual(b.messages(), [])  # the node of the head heard of it in the reply
        self.client.call("DEL", b.inbox)
        self.fake.advance(SECOND)
        b.cancel(0, 1)
        self.assertEqual(b.wait(0, 1)[0], GRANTED)

    def test_canceling_the_head_looks_at_the_next_one(self):
        a, b = self.node("a", resource(2)), self.node("b", resource(2))
        a.acquire(0, 1)
        b.wait(0, 2)
        a.wait(1, 1)
        self.assertEqual(b.cancel(0, 1), [WAITING, -1])
        self.assertEqual([message.split()[:3] for message in a.messages()], [["G", "1", "2"]])

    def test_a_waiter_ends_at_its_timeout(self):
        a, b = self.node("a", resource(1)), self.node("b", resource(1))
        a.acquire(0, 1)
        b.wait(0, 1, timeout=SECOND // 2)
        b.wait(1, 1, max_wait=SECOND // 2)
        b.wait(2, 1)
        self.fake.advance(SECOND // 2)
        a.release(0, 1, "-")
        self.assertEqual([message.split()[:3] for message in b.messages()],
                         [["E", "0", "1"], ["E", "1", "2"], ["G", "2", "3"]])
        self.assertEqual(a.snapshot()[8], 2)

    def test_a_wait_that_would_last_too_long_is_refused(self):
        a = self.node("a", bucket(1, SECOND))
        a.take(1)
        self.assertEqual(a.wait(0, 1, max_wait=SECOND - 1), [REFUSED, TOO_LONG, 0, SECOND])
        self.assertEqual(a.wait(0, 1, max_wait=SECOND), [WAITING, SECOND])
        self.assertEqual(a.wait(1, 1, max_wait=2 * SECOND - 1), [REFUSED, TOO_LONG, 0, 2 * SECOND])
        self.assertEqual(a.acquire(1, 1), [REFUSED, BUSY, 0, 2 * SECOND])

    def test_the_wait_queue_has_a_bound(self):
        a = self.node("a", resource(1), queue_max=2)
        self.assertEqual([a.wait(slot, 1)[0] for slot in range(3)], [GRANTED, WAITING, WAITING])
        self.assertEqual(a.wait(3, 1), [REFUSED, FULL, 0, -1])

    def test_a_refusal_behind_waiters_names_the_limit_of_the_first(self):
        a = self.node("a", resource(1), resource(1), bucket(1, SECOND))
        a.acquire(0, 0, 1, 0)
        a.wait(1, 0, 1, 0)
        self.assertEqual(a.acquire(2, 1, 0, 0), [REFUSED, BUSY, 1, -1])  # nothing else is short
        a.acquire(2, 0, 0, 1)
        self.assertEqual(a.call("weir_reserve", "", 3, a.next(), -1, 0, 0, 1)[:3], [REFUSED, BUSY, 1])
        self.assertEqual(a.take(0, 0, 1)[:3], [REFUSED, BUSY, 1])
        a.wait(2, 0, 0, 1)
        self.assertEqual(a.acquire(3, 0, 0, 1), [REFUSED, BUSY, 2, SECOND])  # it is short itself, by then

    def test_a_refusal_behind_waiters_names_what_the_request_lacks_itself(self):
        a = self.node("a", resource(1), resource(1))
        a.acquire(0, 1, 1)
        a.wait(1, 1, 0)
        self.assertEqual(a.acquire(2, 0, 1), [REFUSED, BUSY, 1, -1])

    def test_a_request_of_zeros_is_granted_behind_a_queue(self):
        a = self.node("a", resource(1))
        a.acquire(0, 1)
        a.wait(1, 1)
        self.assertEqual(a.acquire(2, 0)[0], GRANTED)

    def test_many_waiters_are_granted_by_several_calls(self):
        a = self.node("a", resource(200), queue_max=200)
        a.acquire(0, 200)
        for slot in range(1, 201):
            a.wait(slot, 1)
        a.release(0, 1, "-")
        granted = 0
        for _ in range(4):
            granted += len(a.messages())
            a.call("weir_pump")
        self.assertEqual(granted, 200)

    def test_a_reservation_is_granted_as_of_its_time(self):
        a = self.node("a", bucket(1, SECOND))
        self.assertEqual(a.call("weir_reserve", "", 0, a.next(), -1, 1)[0], GRANTED)
        reply = a.call("weir_reserve", "", 1, a.next(), -1, 1)
        self.assertEqual([reply[0], reply[2], reply[3]], [GRANTED, START_US + SECOND, START_US])
        self.assertEqual(a.call("weir_reserve", "", 2, a.next(), SECOND, 1), [REFUSED, TOO_LONG, 0, 2 * SECOND])
        self.assertEqual(a.acquire(2, 1), [REFUSED, BUSY, 0, 2 * SECOND])
        self.fails("BADARG", self.node("b", resource(1), key="held").call, "weir_reserve", "", 0, 1, -1, 1)


class Sessions(Calls):
    def test_all_of_a_dead_node_ends_together(self):
        a, b = self.node("a", resource(3)), self.node("b", resource(3))
        a.acquire(0, 1)
        a.acquire(1, 2)
        a.wait(2, 3)
        b.wait(0, 3)
        for _ in range(3):
            self.fake.advance(LEASE_US // 4)
            b.heartbeat()
        self.assertEqual(b.messages(), [])
        self.fake.advance(LEASE_US // 4)
        self.assertEqual(b.heartbeat()[2:6], [1, 1, 0, 0])
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "0", "1"]])
        self.fails("NOSESSION", a.heartbeat)
        self.fails("NOSESSION", a.release, 0, 1, "-")
        self.assertEqual(b.snapshot()[4:8], [3, 0, 2, 1])

    def test_a_session_with_many_slots_ends_as_a_whole(self):
        a, b = self.node("a", resource(2000), queue_max=2000), self.node("b", resource(2000), queue_max=2000)
        for slot in range(1300):
            a.acquire(slot, 1)
        self.fake.advance(LEASE_US)
        b.open()
        self.assertEqual(b.snapshot()[-1][0][0], 2000)
        self.assertEqual(self.client.call("HLEN", "set"), 6)  # head, definition, run_id, names, and b's two

    def test_a_node_that_leaves_gives_everything_back(self):
        a, b = self.node("a", resource(1)), self.node("b", resource(1))
        a.acquire(0, 1)
        b.wait(0, 1)
        self.assertEqual(a.call("weir_leave"), [1, 0, "inbox:a"])
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "0", "1"]])

    def test_a_heartbeat_says_what_the_node_holds_and_waits_for(self):
        a = self.node("a", resource(2))
        a.acquire(0, 1)
        a.acquire(1, 1)
        a.wait(2, 1)
        self.assertEqual(a.heartbeat()[1:], [0, 2, 3, 1, 3, -1, 1])
        a.release(0, 1, "-")
        self.assertEqual(a.heartbeat()[1:], [0, 2, 5, 0, 0, -1, 1])

    def test_a_heartbeat_says_how_many_nodes_there_are(self):
        a, b = self.node("a", resource(2)), self.node("b", resource(2))
        self.assertEqual([a.heartbeat()[7], b.open()[7]], [2, 2])
        self.assertEqual(a.call("weir_assert", a.inbox)[0][7], 2)
        b.call("weir_leave")
        self.assertEqual(a.heartbeat()[7], 1)
        c = self.node("c", resource(2))
        self.fake.advance(LEASE_US - 1)
        self.assertEqual(a.heartbeat()[7], 2)
        self.fake.advance(1)
        self.assertEqual(a.heartbeat()[7], 1)  # without the one that is dead
        self.fails("NOSESSION", c.heartbeat)

    def test_a_lost_inbox_is_made_up_for_by_the_list(self):
        a, b = self.node("a", resource(1)), self.node("b", resource(1))
        a.acquire(0, 1)
        b.wait(0, 1)
        self.client.call("SET", b.inbox, "no list")
        granted = a.release(0, 1, "-")
        self.assertEqual(granted, [GRANTED, -1])
        self.assertEqual(b.heartbeat()[2:6], [1, 1, 0, 0])
        cursor, ((slot, serial, kind, fence, _),) = b.call("weir_list", 0)
        self.assertEqual((cursor, slot, serial, kind), (-1, 0, 1, GRANTED))
        self.assertGreaterEqual(fence, START_US)

    def test_an_inbox_does_not_outlive_its_node_by_much(self):
        a, b = self.node("a", resource(1)), self.node("b", resource(1))
        a.acquire(0, 1)
        b.wait(0, 1)
        a.release(0, 1, "-")
        self.assertTrue(0 < self.client.call("PTTL", b.inbox) <= 2 * LEASE_US // 1000 + 1)


class Grace(Calls):
    """Another server answers, or one without the data."""

    def be_another(self, run, *nodes):
        self.fake.be(run, 0)
        for node in nodes:
            node.run = run

    def hold(self, slot, serial, granted, *amounts):
        return [slot, serial, granted[1], granted[2], *amounts]

    def test_nothing_is_granted_until_nodes_have_asserted(self):
        a, b = self.node("a", resource(2)), self.node("b", resource(2))
        saved = self.client.call("HGETALL", "set")
        lost = a.acquire(0, 2)
        self.client.call("DEL", "set")
        self.client.call("HSET", "set", *[word.encode("latin-1") for word in saved])
        self.be_another("two", b)
        self.assertEqual(b.acquire(0, 1), [REFUSED, IN_GRACE, -1, LEASE_US])
        self.fails("STALERUN", a.heartbeat)
        a.run = "two"
        session, gone = a.call("weir_assert", a.inbox, *self.hold(0, 1, lost, 2))
        self.assertEqual((session[1:4], gone), ([LEASE_US, 1, 1], []))
        for _ in range(4):
            self.fake.advance(LEASE_US // 4)
            a.heartbeat()
            b.heartbeat()
        self.assertEqual(b.acquire(0, 1), [REFUSED, BUSY, 0, -1])
        a.release(0, 1, "-")
        regranted = b.acquire(0, 1)
        self.assertEqual(regranted[0], GRANTED)
        self.assertGreater(regranted[1], lost[1])

    def test_a_server_that_comes_back_sees_what_another_one_has_written(self):
        """It has left numbers to its next call, and its run_id; the copy of the other one says otherwise."""
        a = self.node("a", resource(2))
        self.be_another("two", a)
        a.call("weir_assert", a.inbox)
        self.fake.advance(LEASE_US // 4)
        a.heartbeat()
        copied = self.client.call("HGETALL", "set")
        self.be_another("one", a)
        a.call("weir_assert", a.inbox)
        for _ in range(5):
            self.fake.advance(LEASE_US // 4)
            a.heartbeat()
        self.assertEqual(a.acquire(0, 1)[0], GRANTED)
        self.client.call("DEL", "set")
        self.client.call("HSET", "set", *[word.encode("latin-1") for word in copied])
        self.assertEqual(a.acquire(1, 1)[:2], [REFUSED, IN_GRACE])

    def test_nothing_is_reserved_in_a_grace(self):
        a = self.node("a", bucket(5, SECOND))
        self.be_another("two", a)
        self.assertEqual(a.call("weir_reserve", "", 0, 1, -1, 1), [REFUSED, IN_GRACE, -1, LEASE_US])

    def test_what_is_asserted_was_drained_already(self):
        for flags, available in (("d", 0), ("-", 3)):
            self.client.call("DEL", "set")
            self.fake.be("one", 0)
            a = self.node("a", bucket(5, 3600 * SECOND), flags=flags)
            granted = a.acquire(0, 2)
            self.client.call("DEL", "set")
            self.be_another("two", a)
            a.call("weir_assert", a.inbox, *self.hold(0, 1, granted, 2))
            self.assertEqual(a.snapshot()[-1][0][0], available)
            for _ in range(24):
                self.fake.advance(LEASE_US)
                self.node("b", bucket(5, 3600 * SECOND), flags=flags)
            self.assertEqual(self.node("b", bucket(5, 3600 * SECOND), flags=flags).snapshot()[-1][0][0],
                             available + 1)

    def test_a_request_of_zeros_waits_for_the_end_of_a_grace(self):
        a = self.node("a", resource(1))
        self.be_another("two", a)
        self.assertEqual(a.acquire(0, 0), [REFUSED, IN_GRACE, -1, LEASE_US])  # its fence might be one that was lost

    def test_a_set_that_is_lost_begins_with_a_grace_after_a_restart(self):
        a = self.node("a", resource(1))
        granted = a.acquire(0, 1)
        self.client.call("DEL", "set")
        self.fake.be("two", self.fake.clock)
        b = self.node("b", resource(1))
        self.assertEqual(b.acquire(0, 1)[:2], [REFUSED, IN_GRACE])
        a.run = "two"
        self.assertEqual(a.call("weir_assert", a.inbox, *self.hold(0, 1, granted, 1))[1], [])
        self.fake.advance(LEASE_US // 2)
        a.heartbeat(), b.heartbeat()
        self.fake.advance(LEASE_US // 2)
        self.assertEqual(b.acquire(0, 1), [REFUSED, BUSY, 0, -1])

    def test_fences_grow_though_the_next_server_has_a_slow_clock(self):
        a = self.node("a", resource(2))
        granted = a.acquire(0, 1)
        self.client.call("DEL", "set")
        self.be_another("two", a)
        self.fake.advance(-3600 * SECOND)
        a.call("weir_assert", a.inbox, *self.hold(0, 1, granted, 1))
        for _ in range(4):
            self.fake.advance(LEASE_US // 4)
            a.heartbeat()
        self.assertGreater(a.acquire(1, 1)[1], granted[1])

    def test_servers_with_other_clocks_take_turns(self):
        """What the clock of one is ahead counts once as time, not at each turn."""
        a = self.node("a", bucket(10, 10 * SECOND))
        a.take(10)
        for turn in range(6):
            self.fake.advance(-2 * SECOND if turn % 2 == 0 else 2 * SECOND)
            self.be_another(f"turn{turn}", a)
            self.assertEqual(a.heartbeat()[0], START_US)
        self.assertEqual(a.snapshot()[-1][0][0], 0)

    def test_a_server_with_a_clock_that_is_ahead_ends_no_session(self):
        """Nodes could not renew theirs before: a waiter keeps its place, and a dead node ends with the grace."""
        a, b, dead = self.node("a", resource(1)), self.node("b", resource(1)), self.node("dead", resource(1))
        granted = a.acquire(0, 1)
        self.assertEqual(b.wait(0, 1)[0], WAITING)
        self.assertEqual(dead.wait(0, 1)[0], WAITING)
        self.fake.advance(2 * LEASE_US)
        self.be_another("two", a, b, dead)
        b.heartbeat()
        self.assertEqual(a.call("weir_assert", a.inbox, *self.hold(0, 1, granted, 1))[1], [])
        self.fake.advance(LEASE_US // 2)
        a.heartbeat(), b.heartbeat()
        self.fake.advance(LEASE_US // 2)
        self.assertEqual(a.release(0, 1, "-")[0], GRANTED)
        self.assertEqual([message[:5] for message in b.messages()], ["G 0 1"])
        self.fails("NOSESSION", dead.heartbeat)

    def test_a_set_that_a_node_knew_begins_with_a_grace(self):
        a = self.node("a", resource(1))
        self.client.call("DEL", "set")
        self.assertEqual(a.open(known=1)[1], LEASE_US)
        self.client.call("DEL", "set")
        self.assertEqual(a.open(known=0)[1], 0)
        self.client.call("DEL", "set")
        self.assertEqual(a.call("weir_assert", a.inbox)[0][1], LEASE_US)

    def test_what_is_asserted_too_late_is_lost(self):
        a, b = self.node("a", resource(2)), self.node("b", resource(2))
        granted = a.acquire(0, 1)
        self.client.call("DEL", "set")
        b.open(known=1)
        self.fake.advance(LEASE_US - 1)
        b.heartbeat()
        self.fake.advance(1)
        self.fails("NOSESSION", a.call, "weir_assert", a.inbox, *self.hold(0, 1, granted, 1))
        a.name = "a2"
        a.open()
        self.assertEqual(a.call("weir_assert", a.inbox, *self.hold(0, 1, granted, 1))[1], [0, 1])
        self.assertEqual(b.snapshot()[-1][0][0], 2)

    def test_an_assertion_replaces_what_the_slot_held_before(self):
        a = self.node("a", resource(5), bucket(5, 60 * SECOND))
        first = a.acquire(0, 1, 1)
        saved = self.client.call("HGETALL", "set")
        a.release(0, 1, "-", "-")
        second = a.acquire(0, 3, 3)
        self.client.call("HSET", "set", *[word.encode("latin-1") for word in saved])
        self.be_another("two", a)
        for _ in range(2):
            self.assertEqual(a.call("weir_assert", a.inbox, *self.hold(0, 2, second, 3, 3))[1], [])
            self.assertEqual([limit[0] for limit in a.snapshot()[-1]], [2, 1])
        self.assertEqual(a.call("weir_assert", a.inbox, *self.hold(0, 1, first, 1, 1))[1], [0, 1])
        self.assertEqual(a.heartbeat()[2:4], [1, 2])

    def test_a_grace_drains_rates_where_the_definition_says_so(self):
        limits = [bucket(5, SECOND), "s,5,1000000,5,5,0,0,0,0", "f,5,1000000,5,5,0,0,0,0", resource(1),
                  "l,5,1000000,5,5,1,0,0,0", "t,5,1000000,5,5,200000,0,0,0"]
        for flags, available in (("d", [0, 0, 0, 1, 0, 0]), ("-", [5, 5, 5, 1, 5, 5])):
            a = self.node("a", *limits, flags=flags, key=f"set{flags}")
            self.be_another(f"{flags[0] if flags != '-' else 'n'}ext", a)
            a.heartbeat()
            self.assertEqual([limit[0] for limit in a.snapshot()[-1]], available)
            self.fake.be("one", 0)

    def test_waiters_outlive_a_grace(self):
        a, b = self.node("a", resource(1)), self.node("b", resource(1))
        a.acquire(0, 1)
        b.wait(0, 1)
        self.be_another("two", a, b)
        a.release(0, 1, "-")
        self.assertEqual(b.messages(), [f"T {LEASE_US}"])
        for _ in range(4):
            self.fake.advance(LEASE_US // 4)
            a.heartbeat(), b.heartbeat()
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "0", "1"]])


class Takeover(unittest.TestCase):
    """A replica that has been up for long takes over from its master."""

    def setUp(self):
        self.library = read_library(LIBRARY, fake_clock=True, fake_identity=True)
        port = free_ports(1)[0]
        self.servers = [Server("--bind", "127.0.0.1", "--port", str(port), "--repl-diskless-sync-delay", "0")]
        self.addCleanup(lambda: [server.stop() for server in self.servers])
        self.clients = [load(self.servers[0], self.library)]
        self.fakes = [FakeServer(self.clients[0])]
        self.servers.append(Server("--replicaof", f"127.0.0.1 {port}"))
        self.clients.append(Client(self.servers[1].path))
        self.addCleanup(lambda: [client.close() for client in self.clients])

    def take_over(self):
        """The replica has all up to now, and lacks what is written after."""
        self.assertEqual(self.clients[0].call("WAIT", 1, 60000), 1)
        self.clients[1].call("REPLICAOF", "NO", "ONE")
        self.fakes.append(FakeServer(self.clients[1]))
        self.fakes[1].be("two", 0)

    def node(self, server, name, key):
        return Node(self.clients[server], self.fakes[server].run, name, definition(resource(1)), f"set:{key}")

    def test_a_set_that_the_replica_lacks_begins_with_a_grace(self):
        old = self.node(0, "a", "old")
        old.acquire(0, 1, inbox=old.inbox)
        self.take_over()
        lost = self.node(0, "a", "lost")
        granted = lost.acquire(0, 1, inbox=lost.inbox)
        self.assertEqual(granted[0], GRANTED)
        b = self.node(1, "b", "lost")
        self.assertEqual(b.acquire(0, 1, inbox=b.inbox), [REFUSED, IN_GRACE, -1, LEASE_US])
        lost.client, lost.run = self.clients[1], "two"
        self.assertEqual(lost.call("weir_assert", lost.inbox, 0, 1, *granted[1:3], 1)[1], [])
        self.fakes[1].advance(LEASE_US + SECOND - 1)
        late = self.node(1, "c", "late")
        self.assertEqual(late.acquire(0, 1, inbox=late.inbox)[:2], [REFUSED, IN_GRACE])
        self.fakes[1].advance(1)
        new = self.node(1, "c", "new")
        self.assertEqual(new.acquire(0, 1, inbox=new.inbox)[0], GRANTED)


class Batches(Calls):
    def test_the_burst_shrinks_by_what_flows_in_during_a_batch(self):
        a = self.node("a", bucket(100, SECOND, burst=50, delta=SECOND // 10))
        self.assertEqual(a.call("weir_batch", 0, 1000), [GRANTED, 40, SECOND // 10, START_US])
        self.assertEqual(a.call("weir_batch", 0, 10), [REFUSED, BUSY, 0, 5 * SECOND // 100])
        self.assertEqual(a.acquire(0, 41), [REFUSED, RANGE, 0, -1])

    def test_at_least_half_of_what_was_wanted_is_given(self):
        a = self.node("a", bucket(100, SECOND, burst=50, delta=SECOND // 10))
        a.call("weir_batch", 0, 40)
        self.fake.advance(SECOND // 10)
        self.assertEqual(a.call("weir_batch", 0, 21), [REFUSED, BUSY, 0, SECOND // 100])
        self.assertEqual(a.call("weir_batch", 0, 20)[:2], [GRANTED, 10])

    def test_a_batch_ends_with_a_fixed_window(self):
        a = self.node("a", f"f,10,{SECOND},10,10,1,{SECOND // 2},0,0")
        self.assertEqual(a.call("weir_batch", 0, 4)[1:3], [4, SECOND // 2])
        self.fake.advance(9 * SECOND // 10)
        self.assertEqual(a.call("weir_batch", 0, 4)[1:3], [4, SECOND // 10])

    def test_a_sliding_window_counts_a_batch_for_longer(self):
        a = self.node("a", f"s,10,{SECOND},10,10,0,{SECOND // 2},0,0")
        a.call("weir_batch", 0, 10)
        self.assertEqual(a.call("weir_batch", 0, 1), [REFUSED, BUSY, 0, 3 * SECOND // 2])

    def test_unused_units_go_back_less_what_has_flowed_in(self):
        a = self.node("a", bucket(100, SECOND, burst=50, delta=SECOND // 10))
        _, units, _, at = a.call("weir_batch", 0, 40)
        self.fake.advance(SECOND // 10)
        self.assertEqual(units, 40)
        self.assertEqual(a.call("weir_unbatch", 0, 20, at), [GRANTED])
        self.assertEqual(a.snapshot()[-1][0][0], 20)
        self.fails("BADARG", a.call, "weir_unbatch", 0, 41, at)

    def test_a_batch_does_not_pass_waiters(self):
        a = self.node("a", bucket(100, SECOND, burst=50, delta=SECOND // 10))
        a.take(40)
        a.wait(0, 40)
        self.fake.advance(SECOND // 10)
        self.assertEqual(a.call("weir_batch", 0, 1)[:3], [REFUSED, BUSY, 0])

    def test_a_definition_without_room_for_batches_is_refused(self):
        self.fails("BADDEF", self.node, "a", bucket(100, SECOND, burst=10, delta=SECOND // 10))
        self.fails("BADDEF", self.node, "a", f"l,100,{SECOND},100,100,1,1000,0,0")
        self.fails("BADARG", self.node("a", bucket(5, SECOND)).call, "weir_batch", 0, 1)


class Foreign(Calls):
    """Limits that nodes decide: their state is a text that is compared and set."""

    CONFLICT = 1

    def commit(self, node, version, text, *operations, at=None, within=1000, inbox="", keep=SECOND, missing=None):
        limits = node.text.count("/") - 3
        return node.call("weir_commit", inbox, version, at or self.fake.clock, within, keep, text,
                         *(missing or [0] * limits), *operations)

    def fetch(self, node):
        version, now, clock, grace, waiting, text, _ = node.call("weir_fetch")
        self.assertEqual((now, clock), (self.fake.clock, self.fake.clock))
        return version, grace, waiting, text

    def test_a_text_is_set_if_its_version_is_still_the_same(self):
        a, b = self.node("a", "x,5,0"), self.node("b", "x,5,0")
        self.assertEqual(self.fetch(a), (0, 0, 0, ""))
        reply = self.commit(a, 0, "one", "grant", 0, 1, 3, "take", 1)
        self.assertEqual(reply[:5], [GRANTED, 1, START_US, START_US, -1])
        self.assertEqual([fence > 0 for fence in reply[5]], [True, False])
        now = self.fake.clock
        self.assertEqual(self.commit(b, 0, "two", "take", 1), [self.CONFLICT, 1, now, now, -1, "one", [0, 0]])
        self.assertEqual(self.commit(b, 1, "two", "take", 1)[:2], [GRANTED, 2])
        self.assertEqual(self.fetch(a), (2, 0, 0, "two"))
        self.assertEqual(self.commit(a, 2, "a\0b\n\u00ff".encode("latin-1"), "end", 0, 1, 2)[:2], [GRANTED, 3])
        self.assertEqual(self.fetch(a)[3], "a\0b\n\u00ff")
        self.assertEqual(a.heartbeat()[2], 0)

    def test_what_the_server_decides_is_decided_with_it(self):
        a = self.node("a", "x,5,0", resource(2), bucket(3, SECOND))
        self.assertEqual(self.commit(a, 0, "one", "grant", 0, 1, 1, 1, 3)[0], GRANTED)
        self.assertEqual(self.commit(a, 1, "two", "grant", 1, 2, 1, 1, 0, "grant", 2, 3, 1, 1, 0),
                         [REFUSED, BUSY, 1, -1, 1])
        self.assertEqual(self.commit(a, 1, "two", "grant", 1, 2, 1, 1, 1), [REFUSED, BUSY, 2, SECOND // 3 + 1, 0])
        self.assertEqual(self.commit(a, 1, "two", "grant", 1, 2, 6, 0, 0), [REFUSED, RANGE, 0, -1, 0])
        self.assertEqual(self.commit(a, 1, "two", "end", 1, 2, 0, 0, 0), [GONE, 0])
        self.assertEqual(self.commit(a, 1, "two", "grant", 0, 1, 1, 1, 3), [GONE, 0])
        self.assertEqual(self.fetch(a), (1, 0, 0, "one"))
        self.assertEqual([limit[0] for limit in a.snapshot()[-1]], [0, 1, 0])
        self.assertEqual(self.commit(a, 1, "two", "end", 0, 1, 1, 1, 1, "grant", 0, 2, 1, 2, 2)[0], GRANTED)
        self.assertEqual([limit[0] for limit in a.snapshot()[-1]], [0, 0, 0])

    def test_a_commit_by_an_old_instant_is_decided_again(self):
        a = self.node("a", "x,5,0", bucket(3, SECOND))
        at = self.fake.clock
        self.fake.advance(1001)
        for operation in ("grant", 0, 1, 1, 1), ("take", 1, 1):
            self.assertEqual(self.commit(a, 0, "one", *operation, at=at),
                             [self.CONFLICT, 0, self.fake.clock, self.fake.clock, -1, "", [0, 0, 0, 0]])
        self.assertEqual(self.fetch(a), (0, 0, 0, ""))
        self.assertEqual(a.snapshot()[-1][1][0], 3)
        self.assertEqual(a.heartbeat()[2], 0)
        self.assertEqual(self.commit(a, 0, "one", "grant", 0, 1, 1, 1, at=at + 1)[:3], [GRANTED, 1, self.fake.clock])
        self.assertEqual(self.commit(a, 1, "two", "take", 1, 1, at=at, within=1001)[:2], [GRANTED, 2])
        self.assertEqual(self.commit(a, 2, "three", within=0)[:2], [GRANTED, 3])
        self.fails("BADARG", self.commit, a, 3, "four", within=-1)

    def test_a_commit_that_arrives_after_the_release_is_gone(self):
        a = self.node("a", "x,5,0")
        self.commit(a, 0, "one", "grant", 0, 1, 3)
        a.release(0, 1, "-")
        self.assertEqual(self.commit(a, 1, "two", "grant", 0, 1, 3), [GONE, 0])

    def test_a_slot_is_granted_again_after_its_last_release_was_lost(self):
        a = self.node("a", "x,5,1")
        self.commit(a, 0, "one", "grant", 0, 1, 3)
        self.assertEqual(self.commit(a, 1, "two", "grant", 0, 2, 1), [GONE, 0])
        self.assertEqual(a.cancel(0, 2), [GONE, -1])
        self.assertEqual(self.balances(a), [3, 0])
        version = self.fetch(a)[0]
        self.assertEqual(self.commit(a, version, "two", "grant", 0, 3, 1)[:2], [GRANTED, version + 1])
        self.assertEqual(self.commit(a, version + 1, "three", "end", 0, 3, 1)[:2], [GRANTED, version + 2])

    def test_a_late_cancellation_leaves_the_ticket_after_it(self):
        a = self.node("a", resource(2))
        a.acquire(0, 1, serial=2)
        self.assertEqual(a.cancel(0, 1), [GONE, -1])
        self.assertEqual(a.release(0, 2, "-")[0], GRANTED)

    def test_a_node_is_asked_again_after_the_head_was_held_up(self):
        a, b = self.node("a", "x,5,0", resource(1), flags="b"), self.node("b", "x,5,0", resource(1), flags="b")
        a.acquire(0, 0, 1)
        b.wait(0, 1, 1)
        for serial in (1, 2):
            a.release(0, serial, "-", "-")
            self.assertEqual(b.messages(), ["D"])
            self.assertEqual(a.acquire(0, 0, 1)[0], GRANTED)

    def test_a_request_that_nodes_decide_is_not_decided_here(self):
        a = self.node("a", "x,5,0", resource(1))
        self.fails("BADARG", a.acquire, 0, 1, 1)
        self.fails("BADARG", a.take, 1, 0)
        self.fails("BADARG", a.call, "weir_reserve", "", 0, 1, -1, 1, 0)
        self.fails("BADARG", self.commit, a, 0, "text", "take", 0, 1)
        self.fails("BADARG", self.commit, a, 0, "text", "takes", 1, 0)
        self.fails("BADARG", self.commit, a, 0, "text", "grant", 0, 1, 1)
        self.fails("BADARG", self.commit, a, 0, "text", "return", 0, 1, 1, 0, 1)
        self.assertEqual(self.commit(a, 0, "text", "take", 1, 0, at=self.fake.clock + 1)[:2], [self.CONFLICT, 0])
        self.fails("BADARG", self.commit, a, 0, "x" * (2**20 + 1), "take", 1, 0)
        self.assertEqual(a.acquire(0, 0, 1, serial=1)[0], GRANTED)
        self.assertEqual(a.release(0, 1, 0, 1)[0], GRANTED)
        self.assertEqual(self.fetch(a)[0], 0)

    def test_the_node_of_the_head_decides_for_it(self):
        a, b = self.node("a", "x,5,0", resource(1)), self.node("b", "x,5,0", resource(1))
        self.assertEqual(a.wait(0, 1, 1), [WAITING, 0])
        self.assertEqual(b.wait(0, 1, 1), [WAITING, -1])
        self.assertEqual(self.commit(b, 0, "b", "grant", 0, 1, 1, 1), [REFUSED, BUSY, -1, -1, 0])
        self.assertEqual(self.commit(b, 0, "b", "grant", 1, 2, 1, 0), [REFUSED, BUSY, -1, -1, 0])
        self.assertEqual(self.commit(b, 0, "b", "take", 1, 0), [REFUSED, BUSY, -1, -1, 0])
        self.fails("BADARG", self.commit, a, 0, "a", "grant", 0, 1, 2, 1)
        self.assertEqual(self.commit(a, 0, "a", "grant", 0, 1, 1, 1)[:5], [GRANTED, 1, START_US, START_US, -1])
        self.assertEqual(b.messages(), [])  # the resource is held
        a.release(0, 1, "-", "-")
        self.assertEqual(b.messages(), ["D"])
        a.call("weir_pump")
        self.assertEqual(b.messages(), [])  # asked once, until the state changes
        self.assertEqual(b.heartbeat()[6], 0)
        self.assertEqual(self.commit(a, 1, "aa")[:2], [GRANTED, 2])
        self.assertEqual(b.messages(), ["D"])
        self.assertEqual(self.commit(b, 2, "b", "grant", 0, 1, 1, 1)[:2], [GRANTED, 3])
        self.assertEqual(self.fetch(b), (3, 0, 0, "b"))

    def test_nothing_is_granted_in_a_grace(self):
        a = self.node("a", "x,5,0")
        self.commit(a, 0, "one", "grant", 0, 1, 1)
        self.fake.be("two", 0)
        a.run = "two"
        self.assertEqual(self.commit(a, 1, "two", "take", 1), [REFUSED, IN_GRACE, -1, LEASE_US, 0])
        self.assertEqual(self.commit(a, 1, "two", "end", 0, 1, 1, "grant", 0, 2, 1), [REFUSED, IN_GRACE, -1, LEASE_US, 1])
        self.assertEqual(self.commit(a, 1, "two", "end", 0, 1, 1)[:2], [GRANTED, 2])

    def balances(self, node):
        return node.call("weir_fetch")[6]

    def test_what_ends_without_the_algorithm_is_given_back_by_the_next_commit(self):
        a, b = self.node("a", "x,5,1", "x,5,0"), self.node("b", "x,5,1", "x,5,0")
        self.commit(a, 0, "one", "grant", 0, 1, 3, 1, "grant", 1, 2, 1, 1)
        self.assertEqual(self.balances(b), [0, 0, 0, 0])
        a.release(0, 1, "-", "-")
        self.assertEqual(self.fetch(b)[0], 2)  # what was known before is not decided by
        self.assertEqual(self.balances(b), [3, 0, 0, 0])
        a.call("weir_leave")
        self.assertEqual(self.balances(b), [4, 0, 0, 0])
        version = self.fetch(b)[0]
        self.assertEqual(self.commit(b, version - 1, "two", "take", 0, 1)[::6], [self.CONFLICT, [4, 0, 0, 0]])
        self.assertEqual(self.commit(b, version, "two", "take", 0, 1)[0], GRANTED)
        self.assertEqual(self.balances(b), [0, 0, 0, 0])

    def test_what_is_asserted_is_missing_in_the_text(self):
        a = self.node("a", "x,5,1")
        fence, at = self.commit(a, 0, "one", "grant", 0, 1, 3)[5][0], self.fake.clock
        self.client.call("DEL", "set")
        self.fake.be("two", 0)
        a.run = "two"
        a.call("weir_assert", a.inbox, 0, 1, fence, at, 3)
        self.assertEqual(self.balances(a), [0, 3])
        version = self.fetch(a)[0]
        self.assertEqual(self.commit(a, version, "two", "end", 0, 1, 3, missing=[0])[:2], [GRANTED, version + 1])
        self.assertEqual(self.balances(a), [0, 0])

    def test_a_part_is_returned_once(self):
        a = self.node("a", "x,5,1", resource(5))
        self.commit(a, 0, "one", "grant", 0, 1, 4, 3)
        self.assertEqual(self.commit(a, 1, "two", "return", 0, 1, 4, 3, 2, 1)[:2], [GRANTED, 2])
        self.assertEqual(self.commit(a, 2, "three", "return", 0, 1, 4, 3, 2, 1), [GONE, 0])
        self.assertEqual(a.snapshot()[-1][1][0], 4)
        self.fails("BADARG", self.commit, a, 2, "three", "return", 0, 1, 2, 1, 3, 1)
        self.assertEqual(self.balances(a), [0, 0, 0, 0])

    def test_an_undone_grant_is_refunded_by_the_limits_of_the_server(self):
        a = self.node("a", "x,5,0", bucket(10, 60 * SECOND, refund=0))
        self.commit(a, 0, "one", "grant", 0, 1, 1, 4, "grant", 1, 2, 1, 4)
        self.commit(a, 1, "two", "end", 0, 1, 0, 0)
        self.assertEqual(a.snapshot()[-1][1][0], 2)
        self.commit(a, 2, "three", "undo", 1, 2, 0, 0)
        self.assertEqual(a.snapshot()[-1][1][0], 6)

    def test_a_set_lasts_as_long_as_its_text(self):
        a = self.node("a", "x,5,0")
        self.commit(a, 0, "one", "take", 1, keep=1000 * SECOND)
        self.assertGreaterEqual(self.client.call("PTTL", "set"), 1000 * 1000)
        self.commit(a, 1, "two", "take", 1, keep=-1)
        self.assertEqual(self.client.call("PTTL", "set"), -1)

    def test_a_commit_opens_the_session_of_a_subject(self):
        a = Node(self.client, "one", "a", definition("x,5,0"))
        self.fails("NOSESSION", self.commit, a, 0, "one", "take", 1)
        self.assertEqual(self.commit(a, 0, "one", "grant", 0, 1, 1, inbox="in")[0], GRANTED)
        self.assertGreater(self.client.call("PTTL", "set"), 0)

    def test_many_nodes_share_an_algorithm_of_their_own(self):
        """Nodes decide by a text `instant`, before which nothing is granted: one unit each 10 us, no burst."""
        nodes = [self.node(f"n{i}", "x,1,0") for i in range(5)]
        rng, known, granted, asked = random.Random(SEED), {}, [], 0
        while asked < 3000:
            self.fake.advance(rng.randint(0, 6))
            node = rng.choice(nodes)
            version, text, at = known.get(node.name, (0, "", START_US))
            at = max(at, self.fake.clock - rng.randint(0, 3))  # what it knows of the time may be late, not early
            if at < int(text or 0):
                continue
            asked += 1
            reply = self.commit(node, version, str(at + 10), "take", 1, at=at)
            if reply[0] == GRANTED:
                granted.append(at)
                known[node.name] = (reply[1], str(at + 10), reply[2])
            else:
                known[node.name] = (reply[1], reply[5], reply[2])
        self.assertGreater(len(granted), 300)
        self.assertTrue(all(b - a >= 10 for a, b in zip(granted, granted[1:])))


class Revisions(Calls):
    def revised(self, name, revision, *limits, shape="5afe", **options):
        identity = f"f{revision}.{revision}.{shape}" if revision else "f"
        return self.node(name, *limits, fingerprint=identity, **options)

    def reads(self, node):
        return [limit[0] for limit in node.snapshot()[-1]]

    def fields(self):
        words = self.client.call("HGETALL", "set")
        return dict(zip(words[::2], words[1::2]))

    def test_what_is_held_and_waits_goes_on(self):
        a, b = self.node("a", resource(2)), self.node("b", resource(2))
        a.acquire(0, 2)
        for slot, amount in enumerate((1, 2, 1)):
            self.assertEqual(b.wait(slot, amount), [WAITING, -1])
        c = self.revised("c", 1, resource(4))  # opening its session is a call like others
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "0", "1"]])
        self.assertEqual(a.acquire(1, 1)[:2], [REFUSED, BUSY])
        self.assertEqual(b.acquire(3, 1, serial=9)[:2], [REFUSED, BUSY])  # 1 is free, and the head needs 2
        a.release(0, 1, "-")
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "1", "2"], ["G", "2", "3"]])
        self.assertEqual(self.reads(c), [0])

    def test_less_is_granted_once_enough_has_come_back(self):
        a = self.node("a", resource(4))
        for slot in range(4):
            a.acquire(slot, 1)
        b = self.revised("b", 1, resource(2))
        for slot in range(3):
            self.assertEqual((a, b)[slot % 2].acquire(5, 1, serial=10 + slot)[:2], [REFUSED, BUSY])
            a.release(slot, slot + 1, "-")
        self.assertEqual(b.acquire(5, 1)[0], GRANTED)
        self.assertEqual(a.acquire(5, 1, serial=20)[:2], [REFUSED, BUSY])

    def test_a_level_is_kept_and_cut(self):
        a = self.node("a", bucket(10, SECOND))
        a.take(4)
        self.assertEqual(self.reads(self.revised("b", 1, bucket(100, SECOND))), [6])
        self.assertEqual(self.reads(self.revised("c", 2, bucket(5, SECOND))), [5])
        self.assertEqual(a.take(6), [REFUSED, RANGE, 0, -1])
        self.assertEqual(a.take(5)[0], GRANTED)

    def test_a_shorter_window_counts_as_the_ring_of_the_plugin(self):
        a = self.node("a", "s,50,100,50,50,0,0,1,0")
        for step in range(20):
            self.fake.advance(min(step, 1))
            a.take(1)
        b = self.revised("b", 1, "s,50,10,50,50,0,0,1,0")
        self.assertEqual(self.reads(b), [30])  # ten entries have room: the eleven oldest count as the last of them
        self.fake.advance(1)
        self.assertEqual(self.reads(b), [41])

    def test_a_calendar_window_begins_with_its_first_grant(self):
        a = self.node("a", f"f,2,{1000 * SECOND},2,2,2,0,1,0")
        for _ in range(2):
            self.fake.advance(SECOND)
            a.take(1)
        b = self.revised("b", 1, f"f,2,{2 * SECOND},2,2,0,0,1,0")
        self.assertEqual(self.reads(b), [0])
        self.fake.advance(SECOND)
        self.assertEqual(self.reads(b), [2])

    def test_waiters_that_can_be_granted_no_more_end_at_the_head(self):
        a, b = self.node("a", resource(4)), self.node("b", resource(4))
        a.acquire(0, 4)
        for slot, amount in enumerate((3, 1, 4, 2)):
            b.wait(slot, amount)
        self.revised("c", 1, resource(2))
        self.assertEqual([message.split() for message in b.messages()], [["E", "0", "1", "3"]])
        self.assertEqual(b.heartbeat()[4], 3)
        a.release(0, 1, "-")
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "1", "2"], ["E", "2", "3"]])
        b.release(1, 2, "-")
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "3", "4"]])
        self.assertEqual(b.snapshot()[3], 0)

    def test_another_shape_is_a_mismatch(self):
        rate = f"t,10,{SECOND},10,10,0,0,1,0"
        for others in ((rate,), (rate, resource(9), resource(9)), (resource(9), rate),
                       (f"g,10,{SECOND},10,10,0,0,1,0", resource(9)),
                       (f"t,10,{SECOND},10,10,100000,0,1,0", resource(9)), (rate, "x,9,1")):
            for first, second in (((rate, resource(9)), others), (others, (rate, resource(9)))):
                self.client.call("FLUSHALL")
                self.setUp()
                self.revised("a", 1, *first)
                stored = self.fields()
                for revision in (0, 2, 2**31 - 1):
                    self.fails("MISMATCH", self.revised, "b", revision, *second)
                self.assertEqual(self.fields(), stored)

    def test_meters_and_shapers_are_of_two_shapes(self):
        self.revised("a", 1, f"l,10,{SECOND},10,10,0,0,1,0")
        self.fails("MISMATCH", self.revised, "b", 2, f"l,10,{SECOND},10,10,1,0,1,0")

    def test_all_else_that_must_be_alike_is_a_mismatch(self):
        self.revised("a", 3, resource(9))
        for revision, options in ((3, {}), (0, {"lease_us": LEASE_US + 1}), (4, {"lease_us": LEASE_US - 1}),
                                  (4, {"shape": "5aff"}), (2, {"shape": "5aff"})):
            self.fails("MISMATCH", self.revised, "b", revision, resource(8), **options)
        self.assertEqual(self.client.call("HGET", "set", "D"), definition(resource(9), fingerprint="f3.3.5afe"))
        self.revised("b", 4, resource(8), flags="bd", queue_max=7)

    def test_a_definition_that_is_none_is_refused(self):
        a = self.node("a", resource(1))
        for identity in ("f.0.a", "f.01.a", "f.1", "f.1.", "f..a", ".1.a", f"f.{2**31}.a", "f.1.a.b", "f.-1.a", "f.1.a-",
                         "f.1e3.a", "f.9999999999999999999.a", "f.nan.a", "f.0x1.a", "f. 1.a", "f.1.\0"):
            with self.subTest(identity):
                self.fails("BADDEF", self.node, "b", resource(1), fingerprint=identity)
        a.heartbeat()

    def test_a_damaged_definition_is_a_mismatch(self):
        a, b = self.node("a", resource(1)), Node(self.client, "one", "b", definition(resource(2), fingerprint="f.1.a"))
        for stored in ("", "f", "f.1.a/-/1/1000000/", "f.0.a/-/100/30000000/r,1", "\0" * 5000):
            self.client.call("HSET", "set", "D", stored)
            a.messages()  # of the cache nothing is left, as the next call fails
            self.client.call("FUNCTION", "LOAD", "REPLACE", read_library(LIBRARY, fake_clock=True, fake_identity=True))
            self.fails("MISMATCH", a.heartbeat)
            self.fails("MISMATCH", b.open)

    def test_calls_that_look_or_fail_change_no_definition(self):
        a = self.node("a", bucket(10, SECOND), resource(4))
        a.take(4, 0)
        a.acquire(0, 0, 1)
        before = self.fields()
        b = Node(self.client, "one", "a", definition(bucket(20, SECOND), resource(1), fingerprint="f.1.a"))
        self.assertEqual(b.snapshot(), a.snapshot())
        self.assertEqual(b.call("weir_fetch"), a.call("weir_fetch"))
        self.assertEqual(b.call("weir_list", 0), a.call("weir_list", 0))
        self.fails("BADARG", b.call, "weir_take", 1)
        self.fails("BADARG", b.call, "weir_acquire", "", 0, 2, "what", -1, -1, 1, 1)
        self.fails("BADARG", b.call, "weir_return", 0, 1, 0, 2)
        b.run = "two"
        self.fails("STALERUN", b.heartbeat)
        self.assertEqual(self.fields(), before)
        self.assertEqual(a.heartbeat()[2], 1)

    def test_a_call_without_a_session_changes_the_definition(self):
        self.node("a", bucket(10, SECOND))
        b = Node(self.client, "one", "b", definition(bucket(5, SECOND), fingerprint="f.1.a"))
        self.fails("NOSESSION", b.heartbeat)
        self.assertEqual(self.client.call("HGET", "set", "D"), b.text)

    def later(self, *limits, revision=1, name="", **options):
        """A node that has no session, with another definition."""
        return Node(self.client, "one", name, definition(*limits, fingerprint=f"f{revision}.{revision}.5afe", **options))

    def test_a_definition_changes_without_a_session(self):
        a, b = self.node("a", resource(2), bucket(10, SECOND)), self.node("b", resource(2), bucket(10, SECOND))
        a.acquire(0, 2, 4)
        for slot, amount in enumerate((1, 1, 2)):
            self.assertEqual(b.wait(slot, amount, 0)[0], WAITING)
        before, counts, names = self.fields(), a.snapshot()[3:8], self.client.call("HGET", "set", "S")
        c = self.later(resource(4), bucket(5, SECOND))
        self.assertEqual(c.call("weir_redefine", "check"), [a.text])
        self.assertEqual((self.fields(), b.messages()), (before, []))
        self.assertEqual(c.call("weir_redefine", "change"), [a.text])
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "0", "1"], ["G", "1", "2"]])
        self.assertEqual(self.client.call("HGET", "set", "S"), names)
        self.assertEqual(self.client.call("HGET", "set", "D"), c.text)
        self.assertEqual(c.snapshot()[3:8], [counts[0] - 2, counts[1] + 2, *counts[2:]])
        self.assertEqual(self.reads(c), [0, 5])
        after = self.fields()
        for how in "check", "change":
            self.assertEqual(c.call("weir_redefine", how), [c.text])
            self.assertEqual(a.call("weir_redefine", how), [c.text])  # it has the earlier one
        self.assertEqual(self.fields(), after)
        b.release(0, 1, "-", "-")
        self.assertEqual(b.messages(), [])  # 1 is free, and the head needs 2
        a.release(0, 1, "-", "-")
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "2", "3"]])

    def test_a_change_ends_sessions_that_are_over(self):
        a, b = self.node("a", resource(2)), self.node("b", resource(2))
        a.acquire(0, 2)
        self.fake.advance(LEASE_US // 2)
        b.heartbeat()
        b.wait(0, 1)
        self.fake.advance(LEASE_US // 2 + 1)
        self.assertEqual(self.later(resource(1)).call("weir_redefine", "change"), [a.text])
        self.assertEqual([message.split()[:3] for message in b.messages()], [["G", "0", "1"]])

    def test_a_change_is_of_a_set_that_is_there(self):
        for how in "check", "change":
            self.fails("NOSET", self.later(resource(1)).call, "weir_redefine", how)
        self.assertEqual(self.client.call("EXISTS", "set"), 0)

    def test_what_cannot_change_is_a_mismatch(self):
        a = self.revised("a", 3, resource(2))
        before = self.fields()
        for node in (self.later(resource(3), revision=3), self.later(bucket(1, SECOND), revision=4),
                     self.later(resource(3), revision=4, lease_us=LEASE_US + 1)):
            for how in "check", "change":
                with self.assertRaises(ReplyError) as caught:
                    node.call("weir_redefine", how)
                self.assertEqual(str(caught.exception), "MISMATCH " + a.text)
        later = self.later(resource(3), revision=4)
        self.fails("BADARG", later.call, "weir_redefine", "what")
        self.fails("BADARG", later.call, "weir_redefine")
        self.fails("BADARG", later.call, "weir_redefine", "change", 1)
        self.fails("BADDEF", Node(self.client, "one", "", "what").call, "weir_redefine", "change")
        later.run = "two"
        for how in "check", "change":
            self.fails("STALERUN", later.call, "weir_redefine", how)
        self.assertEqual(self.fields(), before)

    def test_nothing_is_granted_in_a_grace(self):
        a = self.node("a", resource(1))
        a.acquire(0, 1)
        a.wait(1, 1)
        self.fake.be("two", self.fake.clock)
        b = self.later(resource(2))
        b.run = "two"
        self.assertEqual(b.call("weir_redefine", "change"), [a.text])
        self.assertEqual([message.split()[0] for message in a.messages()], ["T"])
        self.assertEqual(b.snapshot()[2], LEASE_US)

    def test_revisions_that_alternate_decide_as_one(self):
        rng = random.Random(SEED)
        limits = [(bucket(n, SECOND), f"s,{n + 3},{SECOND},{n + 3},{n + 3},0,0,1,0", resource(n)) for n in (20, 9, 14)]
        for key in ("alone", "mixed"):
            self.node("a", *limits[0], key=key).take(7, 6, 0)
        texts = [definition(*limits[0]), definition(*limits[1], fingerprint="f.1.a"),
                 definition(*limits[2], fingerprint="f.2.a")]
        slots = {}
        for step in range(1500):
            self.fake.advance(rng.choice((0, 1, 1000, 50000)))
            latest = min(step // 500, 2)
            nodes = {key: Node(self.client, "one", "a", texts[latest], key=key) for key in ("alone", "mixed")}
            if step % 500:
                nodes["mixed"].text = texts[rng.randrange(latest + 1)]
            else:
                self.fake.advance(LEASE_US // 2)
                for key in nodes:
                    nodes[key].heartbeat()
            choice, amounts = rng.random(), [rng.randrange(4) for _ in range(3)]
            slot = rng.randrange(8)
            if choice < 0.2:
                replies = [node.snapshot() for node in nodes.values()]
            elif choice < 0.3:
                replies = [node.take(*amounts[:2], 0) for node in nodes.values()]
            elif choice < 0.5:
                replies = [node.release(slot, slots.get(slot, 1), *["-"] * 3) for node in nodes.values()]
            elif choice < 0.6:
                replies = [node.cancel(slot, slots.get(slot, 1)) for node in nodes.values()]
            else:
                slots[slot] = step + 1
                replies = [node.request("wait" if choice < 0.8 else "try", slot, *amounts, serial=step + 1)
                           for node in nodes.values()]
            self.assertEqual(replies[0], replies[1], f"step {step}")

    def test_batches_of_a_definition_that_had_them_are_refused_and_go_back(self):
        a = self.node("a", bucket(100, SECOND, delta=SECOND // 20), f"l,9,{SECOND},9,9,1,0,1,0")
        granted = a.call("weir_batch", 0, 60)
        self.assertEqual(granted[:3], [GRANTED, 60, SECOND // 20])
        b = self.revised("b", 1, bucket(50, SECOND), f"l,9,{SECOND},9,9,1,0,1,0")
        self.assertEqual(self.reads(b), [35, 9])  # 95 were possible
        self.assertEqual(a.call("weir_batch", 0, 10), [REFUSED, BUSY, 0, -1])
        self.fails("BADARG", b.call, "weir_batch", 0, 10)
        for node in (a, b):
            self.fails("BADARG", node.call, "weir_batch", 1, 1)
            self.fails("BADARG", node.call, "weir_unbatch", 1, 1, granted[3])
        self.assertEqual(a.call("weir_unbatch", 0, 10, granted[3]), [GRANTED])
        self.assertEqual(self.reads(b), [45, 9])
        self.assertEqual(b.call("weir_unbatch", 0, 60, granted[3]), [GRANTED])
        self.assertEqual(self.reads(b), [50, 9])

    def test_each_subject_changes_with_its_own_next_call(self):
        for key in ("one", "two"):
            Node(self.client, "one", "", definition(bucket(10, SECOND)), key=key).take(2)
        new = [Node(self.client, "one", "", definition(bucket(4, SECOND), fingerprint="f.1.a"), key=key)
               for key in ("one", "two")]
        self.assertEqual(new[0].take(4)[0], GRANTED)
        self.assertEqual([self.reads(node) for node in new], [[0], [8]])

    def test_a_set_lasts_as_long_as_its_new_definition(self):
        a = Node(self.client, "one", "", definition(bucket(10, SECOND)))
        a.take(10)
        before = self.client.call("PTTL", "set")
        Node(self.client, "one", "", definition(bucket(10, 1000 * SECOND), fingerprint="f.1.a")).take(0)
        self.assertGreater(self.client.call("PTTL", "set"), before + 1000000)

    def test_a_fence_is_used_up_by_a_change(self):
        a = self.node("a", resource(4))
        first = a.acquire(0, 1)[1]
        self.revised("b", 1, resource(5))
        self.assertGreater(a.acquire(1, 1)[1], first + 1)

    def test_what_nodes_decide_stays_as_it_is(self):
        a = self.revised("a", 1, "x,10,1", resource(2))
        a.call("weir_commit", "", 0, self.fake.clock, 1000, -1, "text", 0, 0, "grant", 0, 1, 3, 1)
        for revision, most, shape in ((2, 11, "5afe"), (2, 10, "5aff"), (0, 10, ""), (2, 9, "5afe")):
            self.fails("MISMATCH", self.revised, "b", revision, f"x,{most},1", resource(9), shape=shape)
        b = self.revised("b", 2, "x,10,1", resource(9))
        self.assertEqual(b.call("weir_fetch")[5], "text")
        self.assertEqual(self.reads(b)[1], 8)
        self.client.call("FLUSHALL")
        self.setUp()
        self.node("a", "x,10,1", resource(2))
        self.fails("MISMATCH", self.revised, "b", 1, "x,10,1", resource(9))

    def test_a_change_in_a_grace_drains_as_the_new_definition_says(self):
        a = self.node("a", bucket(10, SECOND), flags="d")
        self.fake.be("two", self.fake.clock)
        b = Node(self.client, "two", "b", definition(bucket(20, SECOND), flags="d", fingerprint="f.1.a"))
        b.open()
        self.assertEqual(self.reads(b), [0])
        a.run = "two"
        self.assertEqual(a.take(1)[:2], [REFUSED, IN_GRACE])

    def test_two_nodes_roll_over_and_keep_both_bounds(self):
        rng = random.Random(SEED + 1)
        old, new = definition(bucket(10, SECOND), resource(6)), definition(bucket(4, SECOND), resource(3), fingerprint="f.1.a")
        a, b = self.node("a", bucket(10, SECOND), resource(6)), None
        held, takes, changed, started = {}, [], None, []
        for step in range(1200):
            self.fake.advance(rng.choice((0, 1000, 40000)))
            if step == 400:
                b, changed = Node(self.client, "one", "b", new), self.fake.clock
                b.open()
            if step == 800:
                a.text = new  # it has reloaded
            if step % 100 == 0:
                for node in (a, b):
                    if node:
                        node.heartbeat()
            node = a if step < 400 or rng.random() < 0.5 else b
            if rng.random() < 0.4 and held:
                owner, slot, serial = rng.choice(list(held))
                owner.release(slot, serial, "-", "-")
                del held[owner, slot, serial]
            elif rng.random() < 0.4:
                amount = rng.randrange(1, 4)
                if node.take(amount, 0)[0] == GRANTED:
                    takes.append((self.fake.clock, amount))
            else:
                slot, amount = rng.randrange(40), rng.randrange(1, 3)
                if not any(owner is node and at == slot for owner, at, _ in held):
                    before = sum(held.values())
                    if node.acquire(slot, 0, amount)[0] == GRANTED:
                        held[node, slot, node.serial] = amount
                        self.assertLessEqual(before + amount, 6 if changed is None else 3)
                        started.append(step)
        for i, (begin, _) in enumerate(takes):
            used = 0
            for at, amount in takes[i:]:
                used += amount
                burst = 4 if changed is not None and begin >= changed else 10
                self.assertLessEqual(used * SECOND, burst * SECOND + burst * (at - begin))
        self.assertTrue(any(step > 800 for step in started) and takes[-1][0] > changed)


class State(Calls):
    def test_definitions_that_cannot_be_had_are_refused(self):
        wrong = ["", "f", "f/-/1/1000000/", "f/-/1/1000000/r,1/", "f/-/1/1000000/r,1,1", "f/-/1/1000000/x,1", "f/-/1/1000000/x,0,0", "f/-/1/1000000/x,1,1,1",
                 "f/-/1/10/r,1", "f/z/1/1000000/r,1", "f/-/1048577/1000000/r,1", "f/-/1/1000000/r,0",
                 f"f/-/1/1000000/r,{2**49 + 1}", "f/-/1/1000000/r,1.5", "f/-/1/1000000/r,-1",
                 f"f/-/1/1000000/g,1,{2**51 + 1},1,1,0,0,0,0", "f/-/1/1000000/g,1,0,1,1,0,0,0,0",
                 f"f/-/1/1000000/g,1,{2**51},2,2,0,0,0,0", "f/-/1/1000000/g,1,1,1,2,0,0,0,0",
                 "f/-/1/1000000/g,1,1,1,1,0,0,3,0", "f/-/1/1000000/l,1,1,1,1,2,0,0,0",
                 "f/-/1/1000000/l,1,1,1,1,0,0,0,1", "f/-/1/1000000/f,1,1,1,1,3,0,0,0",
                 "f/-/1/1000000/s,9,9,9,9,10,0,0,0", f"f/-/1/1000000/s,{2**20 + 1},{2**30},{2**20 + 1},1,0,0,0,0",
                 "f/-/1/1000000/t,3,1000,3,3,100,0,0,0", "f/-/1/1000000/g,1,1,1,1,0,0,0",
                 "f/-/1/1000000/g,1,1,2,1,,0,0,0,0", "f/-/1/1000000" + "/r,1" * 65, "f" * 4097 + "/-/1/1000000/r,1"]
        for text in wrong:
            with self.subTest(text):
                self.fails("BADDEF", Node(self.client, "one", "a", text).open)

    def test_another_definition_is_a_mismatch(self):
        self.node("a", resource(1))
        with self.assertRaises(ReplyError) as caught:
            self.node("b", resource(2))
        self.assertEqual(str(caught.exception), "MISMATCH " + definition(resource(1)))

    def test_a_key_of_another_type_is_left_alone(self):
        self.client.call("SET", "set", "text")
        self.fails("WRONGTYPE", self.node, "a", resource(1))
        self.assertEqual(self.client.call("GET", "set"), "text")

    def test_damaged_state_is_found_and_left_alone(self):
        a = self.node("a", resource(2), bucket(2, SECOND))
        a.acquire(0, 1, 1)
        a.acquire(1, 1, 1)
        a.wait(2, 1, 1)
        whole = self.client.call("HGETALL", "set")
        fields = {name: value.encode("latin-1") for name, value in zip(whole[::2], whole[1::2])}
        head = fields["H"]
        damaged = [("H", b""), ("H", head[:-1]), ("H", head + head[:8]), ("sa", b"x"), ("ta.0", b"12345678"),
                   ("ta.0", b""), ("w1", b"x")]
        for value in (-1.0, 0.5, float("nan"), 2.0**60):
            damaged += [("H", head[:8 * i] + struct.pack("<d", value) + head[8 * i + 8:])
                        for i in range(1, len(head) // 8)]
        for field, value in damaged:
            self.client.call("HSET", "set", field, value)
            before = sorted(self.client.call("HGETALL", "set"))
            self.fails("CORRUPT", a.release, 0, 1, "-", "-")
            self.assertEqual(sorted(self.client.call("HGETALL", "set")), before, field)
            self.client.call("HSET", "set", field, fields[field])
        self.assertEqual(a.release(0, 1, "-", "-")[0], GRANTED)

    def test_state_of_another_version_is_left_alone(self):
        a = self.node("a", resource(2))
        head = self.client.call("HGET", "set", "H").encode("latin-1")
        self.client.call("HSET", "set", "H", struct.pack("<d", 2) + head[8:])
        self.fails("FORMAT", a.heartbeat)

    def test_arguments_are_checked(self):
        a = self.node("a", resource(2))
        for arguments in (("x", 1, "try", -1, -1, 1), (0, 0, "try", -1, -1, 1), (0, 1, "tries", -1, -1, 1),
                          (0, 1, "try", -2, -1, 1), (0, 1, "try", -1, -1), (0, 1, "try", -1, -1, 1, 1),
                          (0, 1, "try", -1, -1, -1), (0, 1, "try", -1, -1, 0.5), (0, 1, "try", -1, -1, 2**53),
                          (2**20, 1, "try", -1, -1, 1), (0.5, 1, "try", -1, -1, 1), (0, 1, "try", "nan", -1, 1)):
            self.fails("BADARG", a.call, "weir_acquire", "", *arguments)
        self.fails("BADARG", Node(self.client, "one", "a b", a.text).open)
        self.fails("BADARG", Node(self.client, "one", "a" * 129, a.text).open)
        self.fails("BADARG", Node(self.client, "one", "", a.text).open)
        self.assertEqual(a.snapshot()[-1], [[2, 0, 0, 0, 0]])

    def test_a_snapshot_changes_nothing(self):
        a = self.node("a", "s,5,1000,5,5,0,0,0,0")
        a.take(5)
        self.fake.advance(2000)
        before = self.client.call("HGETALL", "set")
        self.assertEqual(self.client.call("FCALL_RO", "weir_snapshot", 1, "set", "one", a.text, "")[-1], [[5, 0, 0, 0, 0]])
        self.assertEqual(self.client.call("HGETALL", "set"), before)
        a.key = "none"
        self.fails("NOSET", a.snapshot)
        self.assertEqual(self.client.call("EXISTS", "none"), 0)

    def test_a_set_expires_once_it_has_recovered(self):
        for limit, expires in ((bucket(1, 30 * SECOND), True), ("s,1,30000000,1,1,0,0,0,0", True),
                               ("f,1,30000000,1,1,0,0,0,0", True), ("l,1,30000000,1,1,1,0,0,0", True),
                               (resource(1), True), ("f,1,30000000,1,1,1,0,0,0", False),
                               ("t,1,30000000,1,1,30000000,0,0,0", False), ("g,1,30000000,1,0,0,0,0,0", False)):
            a = self.node("a", limit, key=limit)
            kept = self.client.call("PTTL", limit)
            recovered = LEASE_US if limit.startswith("r") else 30 * SECOND
            self.assertEqual(kept == -1 if not expires else kept * 1000 >= recovered - SECOND, True, (limit, kept))
            a.call("weir_leave")

    def test_a_set_in_use_does_not_expire(self):
        a = self.node("a", bucket(1, 30 * SECOND))
        a.take(1)
        self.client.call("PEXPIRE", "set", 20000)
        self.fake.advance(29 * SECOND)
        a.open()
        self.assertGreater(self.client.call("PTTL", "set"), 30000)

    def test_pages_of_a_sliding_window_come_and_go(self):
        a = self.node("a", "s,200,1000,200,200,0,0,0,0")
        for slot in range(100):
            a.acquire(slot, 1)
            self.fake.advance(1)
        for slot in [*range(32, 64), *range(96, 100)]:  # the second page, and the end of the fourth
            a.release(slot, slot + 1, 0, how="undo")
        left = [slot for slot in range(100) if not (32 <= slot < 64 or slot >= 96)]
        self.assertEqual(a.snapshot()[-1][0][0], 200 - len(left))
        for n in (1, 31, 32, 33, len(left)):
            self.assertEqual(a.acquire(200, 200 - len(left) + n), [REFUSED, BUSY, 0, left[n - 1] + 900])
        self.assertEqual(a.take(1)[0], GRANTED)
        self.fake.advance(999)
        self.assertEqual(a.snapshot()[-1][0][0], 199)
        self.fake.advance(1)
        self.assertEqual(a.take(200)[0], GRANTED)
        self.assertEqual(sum(name.startswith("l") for name in self.client.call("HKEYS", "set")), 1)

    def test_a_wall_clock_that_catches_up_divides_an_instant(self):
        """A reservation in one calendar window is not refunded in the next, though it bears its first instant."""
        a = self.node("a", "f,10,1000,10,10,2,0,1,0", bucket(1, 7, refund=1))
        self.fake.advance(995)  # a window begins in 5 us
        a.take(0, 1)
        self.fake.advance(-5)  # the set's clock stands still
        reply = a.call("weir_reserve", "", 0, a.next(), -1, 3, 1)
        self.assertEqual(reply[2], START_US + 995 + 7)
        self.fake.advance(5 + 7)
        a.take(4, 0)
        self.assertEqual(a.snapshot()[-1][0][0], 6)
        a.release(0, 1, 0, 1)
        self.assertEqual(a.snapshot()[-1][0][0], 6)

    def test_the_clock_may_be_set_back(self):
        a = self.node("a", bucket(1, 10 * SECOND))
        a.take(1)
        self.fake.advance(5 * SECOND)
        a.open()
        self.fake.advance(-SECOND)  # by little: the time stands still
        self.assertEqual(a.acquire(0, 1), [REFUSED, BUSY, 0, 5 * SECOND])
        self.fake.advance(-3600 * SECOND)  # by much: it goes on
        a.open()
        self.fake.advance(2 * SECOND)
        self.assertEqual(a.acquire(0, 1), [REFUSED, BUSY, 0, 3 * SECOND])
        self.fake.advance(3600 * SECOND)  # and if it is set forward again, that counts
        self.assertEqual(Node(self.client, "one", "", a.text).take(1)[0], GRANTED)


if __name__ == "__main__":
    unittest.main()
