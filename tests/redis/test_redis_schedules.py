# SPDX-License-Identifier: MIT
"""Nodes on a Redis server that fail at random, and what must hold whatever happens.

Argument: the library. Each schedule is a random sequence of what nodes, inboxes, connections and servers may do:
requests, releases and cancellations, heartbeats and timers; replies that are lost and requests that arrive again
late; inboxes that vanish; nodes that pause, stop for good and come back; a failover to a replica that missed the
last writes, and a restart without data, on machines with other clocks. WEIR_SEED repeats a run, WEIR_OPERATIONS
makes it longer.

A node believes that it holds something until its own lease runs out, or it is told otherwise. What all nodes
believe to hold at one time is checked against the capacity; every grant against the rates; the order of grants
against that of the waiters; and the state on the server is added up.
"""
import collections
import pathlib
import random
import struct
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from effort import SEED, operations  # noqa: E402
from redis_nodes import GONE, GRANTED, REFUSED, START_US, WAITING, FakeServer, Node, definition, load  # noqa: E402
from redis_server import ReplyError, Server, read_library  # noqa: E402

LIBRARY = sys.argv.pop(1)
OPERATIONS = operations(20000)
SCHEDULE = 600  # operations of one schedule
LEASE_US, MARGIN_US, STEP_US = 10000000, 1000000, 1000000
HEAD_WORDS = 19
WAITERS, GRANTS, RELEASES, REAPED = 8, 13, 14, 15  # numbers of the head
SLOTS = 20

Ticket = collections.namedtuple("Ticket", "serial amounts deadline is_held")


class World:
    """The server, the true time, and what was granted."""

    def __init__(self, client, rng, key, text, capacity, wrong):
        self.client, self.rng, self.key, self.text, self.capacity = client, rng, key, text, capacity
        self.fake, self.wrong = FakeServer(client), wrong
        self.now, self.skew, self.epoch, self.saved = START_US, 0, 0, None
        self.grants = []  # true time, amount of the rates
        self.arrivals, self.deadlines, self.queue_grants, self.fences = {}, {}, [], {}
        self.names = 0

    def set_time(self, now):
        self.now = now
        self.fake.set(now + self.skew)

    def fail_over(self):
        """A replica takes over that knows the set as it was at some time, on a clock of its own."""
        if self.saved:
            self.client.call("RESTORE", self.key, 0, self.saved, "REPLACE")
            self.client.call("PERSIST", self.key)
        self.change_server(0)

    def restart_empty(self):
        self.client.call("DEL", self.key)
        self.change_server(self.now)

    def change_server(self, start):
        """Messages of the old server that were not read are gone with the connections to it."""
        for inbox in self.client.call("KEYS", "inbox:*"):
            self.client.call("DEL", inbox)
        self.epoch += 1
        self.saved = None
        self.skew = self.rng.randint(-LEASE_US // 3, LEASE_US // 3)
        self.fake.be(f"run{self.epoch}", start + self.skew)
        self.set_time(self.now)

    def save(self):
        self.saved = self.client.call("DUMP", self.key)
        self.saved = self.saved and self.saved.encode("latin-1")

    def note_grant(self, node, serial, fence):
        """A node has learned of a grant, perhaps not for the first time."""
        known = self.fences.setdefault(fence, (node.name, serial))
        if known != (node.name, serial):
            self.wrong(f"fence {fence} of {known} and of {(node.name, serial)}")
        place = self.arrivals.get((node.name, serial))
        if place is not None:
            self.queue_grants.append((self.epoch, fence, place))

    def check_order(self):
        last = (None, -1)
        for epoch, _, place in sorted(set(self.queue_grants)):
            if epoch == last[0] and place < last[1]:
                self.wrong(f"waiter {place} was granted after waiter {last[1]}")
            last = (epoch, place)


class SimulatedNode(Node):
    """A node of the world, with what it believes."""

    def __init__(self, world):
        world.names += 1
        super().__init__(world.client, world.fake.run, f"n{world.names}", world.text, world.key)
        self.world, self.rng = world, world.rng
        self.tickets, self.unknown, self.sent = {}, {}, []
        self.valid_until = 0  # true time
        self.paused_until, self.beat_at, self.timer, self.known = 0, 0, None, 0

    def held(self):
        """Units of the resource that the node believes to hold."""
        if self.world.now >= self.valid_until:
            return 0
        return sum(ticket.amounts[0] for ticket in self.tickets.values() if ticket.is_held)

    def lose_all(self):
        """The session is over: its name is never used again."""
        self.world.names += 1
        self.name = f"n{self.world.names}"
        self.inbox, self.serial, self.known = f"inbox:{self.name}", 0, 1
        self.tickets, self.unknown, self.sent, self.valid_until, self.timer = {}, {}, [], 0, None

    def call(self, name, *arguments):
        self.sent = (self.sent + [(self.run, name, arguments)])[-20:]
        return super().call(name, *arguments)

    def attempt(self, name, *arguments):
        """A call, with its errors handled. None: it failed."""
        sent = self.world.now
        try:
            reply = self.call(name, *arguments)
        except ReplyError as error:
            if error.code == "STALERUN":
                self.run = str(error).split()[1]
                self.assert_holds()
            elif error.code == "NOSESSION":
                self.lose_all()
            else:
                self.world.wrong(f"{name} {arguments}: {error}")
            return None
        if name in ("weir_open", "weir_heartbeat"):
            self.valid_until = sent + LEASE_US - MARGIN_US
        return reply

    def is_over(self):
        return self.world.now >= self.valid_until

    def assert_holds(self):
        if self.is_over():
            self.lose_all()
            return
        words = []
        for slot, ticket in self.tickets.items():
            if ticket.is_held:
                words += [slot, ticket.serial, self.fence_of[ticket.serial][0], self.fence_of[ticket.serial][1],
                          *ticket.amounts]
        reply = self.attempt("weir_assert", self.inbox, *words)
        if reply:
            self.valid_until = self.world.now + LEASE_US - MARGIN_US
            for slot, serial in zip(reply[1][::2], reply[1][1::2]):
                if slot in self.tickets and self.tickets[slot].serial == serial:
                    del self.tickets[slot]

    def learn(self, slot, serial, amounts, deadline, fence, at):
        self.fence_of[serial] = (fence, at)
        self.tickets[slot] = Ticket(serial, amounts, deadline, True)
        self.world.note_grant(self, serial, fence)

    @property
    def fence_of(self):
        return self.__dict__.setdefault("fences", collections.defaultdict(lambda: (0, 0)))

    def ask(self):
        if self.is_over():
            self.lose_all()
            self.attempt("weir_open", self.inbox, self.known)
            return
        slot = self.rng.randrange(SLOTS)
        if slot in self.tickets or slot in self.unknown:
            return
        amounts = [self.rng.randint(0, min(3, self.world.capacity)), self.rng.randint(0, 3), self.rng.randint(0, 3)]
        mode = self.rng.choice(("try", "wait"))
        timeout = self.rng.choice((-1, self.rng.randint(0, 2 * LEASE_US)))
        deadline = self.world.now + timeout if timeout >= 0 else None
        serial = self.next()
        self.send_request(slot, serial, amounts, mode, timeout, deadline)

    def send_request(self, slot, serial, amounts, mode, timeout, deadline):
        reply = self.attempt("weir_acquire", "", slot, serial, mode, timeout, -1, *amounts)
        if reply is None:
            return
        if reply[0] == WAITING:
            self.world.arrivals.setdefault((self.name, serial), len(self.world.arrivals))
            self.world.deadlines.setdefault((self.name, serial), (self.world.epoch, deadline))
        if self.rng.random() < 0.1:  # the reply is lost
            self.unknown[slot] = (serial, amounts, deadline)
        elif reply[0] == GRANTED:
            self.learn(slot, serial, amounts, deadline, reply[1], reply[2])
            if sum(amounts) > 0 and self.snapshot()[3] > 0:
                self.world.wrong(f"{self.name}, {serial}, has passed waiters")
        elif reply[0] == WAITING:
            self.tickets[slot] = Ticket(serial, amounts, deadline, False)
            self.timer = self.world.now + reply[1] if reply[1] >= 0 else None

    def resolve(self):
        """Finds out what became of a request with a lost reply."""
        if not self.unknown or self.is_over():
            return
        slot, (serial, amounts, deadline) = self.rng.choice(sorted(self.unknown.items()))
        reply = self.attempt("weir_cancel", slot, serial)
        if reply is None or slot not in self.unknown:
            return
        del self.unknown[slot]
        if reply[0] == GRANTED:
            self.learn(slot, serial, amounts, deadline, reply[1], reply[2])

    def end(self):
        """Releases or cancels something."""
        if not self.tickets or self.is_over():
            return
        slots = sorted(slot for slot, ticket in self.tickets.items() if ticket.is_held or self.rng.random() < 0.05)
        if not slots:
            return
        slot = self.rng.choice(slots)
        ticket = self.tickets[slot]
        if ticket.is_held:
            del self.tickets[slot]  # from now on it is not used any more
            self.attempt("weir_release", slot, ticket.serial, "end", "-", "-", "-")
        else:
            self.cancel_waiter(slot, ticket)

    def cancel_waiter(self, slot, ticket):
        reply = self.attempt("weir_cancel", slot, ticket.serial)
        if reply is None or self.tickets.get(slot) != ticket:
            return
        del self.tickets[slot]
        if reply[0] == GRANTED:
            self.learn(slot, ticket.serial, ticket.amounts, ticket.deadline, reply[1], reply[2])

    def read_inbox(self):
        if self.is_over():
            return
        for message in self.messages():
            words = message.split()
            if words[0] == "T":
                self.timer = self.world.now + int(words[1])
                continue
            slot, serial = int(words[1]), int(words[2])
            ticket = self.tickets.get(slot)
            if not ticket or ticket.serial != serial or ticket.is_held:
                continue
            if words[0] == "G":
                self.learn(slot, serial, ticket.amounts, ticket.deadline, int(words[3]), int(words[4]))
            else:
                del self.tickets[slot]

    def beat(self):
        if self.is_over():
            self.lose_all()
            self.attempt("weir_open", self.inbox, self.known)
            return
        reply = self.attempt("weir_heartbeat")
        if reply is None:
            return
        self.timer = self.world.now + reply[6] if reply[6] >= 0 else None
        held = [ticket.serial for ticket in self.tickets.values() if ticket.is_held]
        waits = [ticket.serial for ticket in self.tickets.values() if not ticket.is_held]
        if reply[2:6] != [len(held), sum(held) % 2**32, len(waits), sum(waits) % 2**32]:
            self.reconcile()

    def reconcile(self):
        cursor, on_server = 0, {}
        while cursor >= 0:
            reply = self.attempt("weir_list", cursor)
            if reply is None:
                return
            cursor = reply[0]
            on_server.update({(slot, serial): (kind, fence, at) for slot, serial, kind, fence, at in reply[1]})
        for slot, ticket in list(self.tickets.items()):
            kind, fence, at = on_server.pop((slot, ticket.serial), (GONE, 0, 0))
            if kind == GONE:
                del self.tickets[slot]
            elif kind == GRANTED and not ticket.is_held:
                self.learn(slot, ticket.serial, ticket.amounts, ticket.deadline, fence, at)
        for slot, serial in on_server:
            if slot not in self.unknown:
                self.attempt("weir_release", slot, serial, "end", "-", "-", "-")

    def keep_time(self):
        """What the node does when its clock says so, if it is not stopped."""
        if self.world.now >= self.beat_at:
            self.beat_at = self.world.now + LEASE_US // 4
            self.beat()
        for slot, ticket in list(self.tickets.items()):
            if not ticket.is_held and ticket.deadline is not None and ticket.deadline <= self.world.now:
                if not self.is_over():
                    self.cancel_waiter(slot, ticket)
        if self.timer is not None and self.timer <= self.world.now and not self.is_over():
            self.timer = None
            reply = self.attempt("weir_pump")
            if reply and reply[1] >= 0:
                self.timer = self.world.now + reply[1]

    def repeat_old(self):
        """Something that was sent before arrives again, on a connection that was believed to be dead."""
        if self.sent:
            run, name, arguments = self.rng.choice(self.sent)
            if name in ("weir_open", "weir_assert", "weir_take"):
                return
            try:
                self.client.call("FCALL", name, 1, self.key, run, self.text, self.name, *arguments)
            except ReplyError:
                pass


class Schedules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"WEIR_SEED={SEED} WEIR_OPERATIONS={OPERATIONS}", file=sys.stderr, flush=True)
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.client = load(cls.server, read_library(LIBRARY, fake_clock=True, fake_identity=True))
        cls.addClassCleanup(cls.client.close)

    def world(self, number, faults):
        rng = random.Random(f"{SEED} {number}")
        capacity, rate, window = rng.randint(1, 10), rng.randint(10, 300), rng.randint(10, 300)
        text = definition(f"r,{capacity}", f"g,{rate},{LEASE_US},{rng.randint(3, 20)},3,0,0,0,0",
                          f"s,{window},{LEASE_US},{window},{window},0,0,0,0",
                          flags="d", queue_max=50, lease_us=LEASE_US)
        self.client.call("FLUSHALL")
        world = World(self.client, rng, "set", text, capacity, lambda why: self.fail(f"schedule {number}: {why}"))
        world.fake.be("run0", 0)
        world.faults = faults
        return world

    def audit(self, world):
        """Adds up the state on the server."""
        whole = self.client.call("HGETALL", world.key)
        fields = {name: value.encode("latin-1") for name, value in zip(whole[::2], whole[1::2])}
        if not fields:
            return

        def numbers(value):
            return struct.unpack(f"<{len(value) // 8}d", value[:len(value) // 8 * 8])

        state = numbers(fields["H"])
        tickets = {name[1:]: numbers(value) for name, value in fields.items() if name[0] == "t"}
        sessions = {name[1:]: numbers(value) for name, value in fields.items() if name[0] == "s"}
        held = [ticket for ticket in tickets.values() if ticket[1] == 2]
        self.assertEqual(state[HEAD_WORDS + 1], sum(ticket[4] for ticket in held))
        self.assertEqual(state[WAITERS], sum(name[0] == "w" for name in fields))
        self.assertEqual(state[WAITERS], len(tickets) - len(held))
        self.assertEqual(state[GRANTS] - state[RELEASES] - state[REAPED], len(held))
        self.assertEqual(sorted(fields["S"].decode().split()), sorted(sessions))
        for name, session in sessions.items():
            own = [ticket for ticket_name, ticket in tickets.items() if ticket_name.split(".")[0] == name]
            serials = [[ticket[0] for ticket in own if ticket[1] == kind] for kind in (2, 1)]
            self.assertEqual(list(session[3:]), [n for part in serials for n in (len(part), sum(part))])

    def check_held(self, world, nodes):
        held = sum(node.held() for node in nodes)
        if held > world.capacity:
            world.wrong(f"{held} of {world.capacity} are held")

    def step(self, world, nodes):
        rng, node = world.rng, world.rng.choice(nodes)
        chance = rng.random()
        if chance < 0.30:
            world.set_time(world.now + rng.choice((0, 1, rng.randint(0, LEASE_US // 20),
                                                   rng.randint(0, LEASE_US // 6))))
        elif world.faults and chance < 0.33:
            self.fault(world, node)
        elif world.now >= node.paused_until:
            action = rng.choice((node.ask, node.ask, node.ask, node.ask, node.ask, node.end, node.end, node.end,
                                 node.read_inbox, node.read_inbox, node.resolve, node.repeat_old))
            action()
        for each in nodes:
            if world.now >= each.paused_until:
                each.keep_time()

    def fault(self, world, node):
        rng, chance = world.rng, world.rng.random()
        if chance < 0.2:
            node.paused_until = world.now + rng.randint(0, 2 * LEASE_US)
        elif chance < 0.4:
            node.lose_all()  # killed, and started again
            node.known = 0
        elif chance < 0.6:
            self.client.call("DEL", node.inbox)
        elif chance < 0.86:
            world.save()
        elif chance < 0.97:
            world.fail_over()
        else:
            world.restart_empty()

    def settle(self, world, nodes):
        """All nodes give up what they hold, and go on for some leases: no waiter is left."""
        for node in nodes:
            node.paused_until = 0
        for _ in range(40):
            world.set_time(world.now + LEASE_US // 8)
            for node in nodes:
                node.read_inbox()
                node.beat()
                node.keep_time()
                while node.unknown and not node.is_over():
                    before = len(node.unknown)
                    node.resolve()
                    if len(node.unknown) == before:
                        break
                for slot, ticket in list(node.tickets.items()):
                    if ticket.is_held and slot in node.tickets:
                        del node.tickets[slot]
                        node.attempt("weir_release", slot, ticket.serial, "end", "-", "-", "-")
        for node in nodes:
            if node.tickets:
                world.wrong(f"{node.name} still has {node.tickets}")

    def check_quiet(self, world):
        """After a lease without anything, nothing is held, and nothing waits."""
        world.set_time(world.now + LEASE_US)
        last = SimulatedNode(world)
        last.run = world.fake.run
        last.open()
        snapshot = last.snapshot()
        self.assertEqual(snapshot[-1][0][0], world.capacity)
        self.assertEqual((snapshot[3], snapshot[4]), (0, snapshot[5] + snapshot[6]))

    def run_schedule(self, number, faults):
        world = self.world(number, faults)
        nodes = [SimulatedNode(world) for _ in range(world.rng.randint(1, 5))]
        watch = Grants(world)
        for i in range(SCHEDULE):
            self.step(world, nodes)
            watch.look()
            self.check_held(world, nodes)
            if i % 20 == 0:
                self.audit(world)
        self.settle(world, nodes)
        self.audit(world)
        world.check_order()
        watch.check()
        self.check_quiet(world)
        return len(watch.seen)

    def test_nothing_is_granted_twice_whatever_fails(self):
        granted = sum(self.run_schedule(number, True) for number in range(max(1, OPERATIONS // SCHEDULE)))
        print(f"{granted} grants", file=sys.stderr)

    def test_all_is_granted_where_nothing_fails(self):
        granted = sum(self.run_schedule(-number, False) for number in range(1, max(2, OPERATIONS // SCHEDULE // 2)))
        print(f"{granted} grants", file=sys.stderr)


class Grants:
    """All grants, as the server makes them: the tickets that are held, seen after each step."""

    def __init__(self, world):
        self.world, self.seen, self.log = world, set(), []
        self.bucket = list(map(int, world.text.split("/")[5].split(",")[1:]))
        self.window = list(map(int, world.text.split("/")[6].split(",")[1:]))

    def look(self):
        whole = self.world.client.call("HGETALL", self.world.key)
        for name, value in zip(whole[::2], whole[1::2]):
            if name[0] != "t":
                continue
            ticket = struct.unpack(f"<{len(value) // 8}d", value.encode("latin-1"))
            grant = (name.split(".")[0], int(ticket[0]))
            if ticket[1] == 2 and grant not in self.seen:
                self.seen.add(grant)
                self.check_deadline((grant[0][1:], grant[1]))
                self.log.append((self.world.now, int(ticket[5]), int(ticket[6])))

    def check_deadline(self, ticket):
        """Clocks of other servers have other deadlines. A clock that was set back by a second stands still for it."""
        epoch, deadline = self.world.deadlines.get(ticket, (None, None))
        if epoch == self.world.epoch and deadline is not None and self.world.now >= deadline + STEP_US:
            self.world.wrong(f"{ticket} was granted at {self.world.now}, after {deadline}")

    def check(self):
        """Bounds in the true time. A grant is seen in the step that makes it."""
        capacity, window_us, burst = self.bucket[:3]
        excess = 0  # units beyond what the rate has brought, times window_us
        last = None
        for now, amount, _ in self.log:
            excess = max(0, excess - (capacity * (now - last) if last is not None else 0)) + amount * window_us
            last = now
            if excess > burst * window_us:
                self.world.wrong(f"{excess / window_us} units beyond the rate, of {burst}")
        limit, window_us = self.window[:2]
        recent = collections.deque()
        for now, _, amount in self.log:
            while recent and recent[0][0] <= now - window_us:
                recent.popleft()
            recent.append((now, amount))
            if sum(units for _, units in recent) > limit:
                self.world.wrong(f"{recent} in one window, of {limit}")


if __name__ == "__main__":
    unittest.main()
