# SPDX-License-Identifier: MIT
"""The checker of the chaos runner is not blind: each invariant is violated once in logs that are made up, and
is found; what is found in logs without a violation is nothing."""
import os
import struct
import tempfile
import unittest

import cluster_checker as checker
import cluster_logs as logs
from cluster_logs import BLOCK, ENDED, HELD, RELEASING, RESERVE, SETS, TAKE, TRY

MS, SECOND = 10**6, 10**9
T0 = 1000 * SECOND  # of CLOCK_MONOTONIC
CLOCK = 1790000000 * SECOND  # the server's, at the instant 0 of that
DEFINITION = b"0000/d/100/1000000/r,4/r,7/g,400,1000000,20,20,0,0,2,0"
LIMIT_WORDS = 2 + 2 + 4
FOREIGN_DEFINITION = b"0000/d/100/1000000/x,3,1/x,40,0"
LEASED, FOREIGN = SETS.index("leased"), SETS.index("foreign")


def us_of(ns):
    return (CLOCK + ns) // 1000


def request(asked_ns, amounts=(1, 0, 0), **fields):
    """A request that was granted 1 ms later, held for 10 ms and released."""
    granted_ns = fields.pop("granted_ns", asked_ns + MS)
    words = {"state": ENDED, "operation": BLOCK, "set": 0, "timeout_ns": 5 * SECOND, "asked_ns": asked_ns, "result": 0,
             "granted_ns": granted_ns, "known_ns": granted_ns + 1000, "fence": us_of(granted_ns), "held_ns": granted_ns + 10 * MS,
             "used": amounts[2], "ended_ns": granted_ns + 11 * MS, "end": 0, "process": "a"}
    words.update(fields)
    made = logs.Request(words["process"], 0, 0, (0, 0, 0, *amounts, *[0] * 14))
    for name, value in words.items():
        setattr(made, name, value)
    return made


class Model:
    """An append-only file of a server with the set `api`, written transaction by transaction."""

    key, definition = b"weir:{api}", DEFINITION

    def __init__(self, now=us_of(T0)):
        self.file, self.now, self.grace = bytearray(), now, 0
        self.fence = self.granted = self.released = self.reaped = 0
        self.next, self.tickets, self.sessions, self.pending = 1, {}, {}, [(b"D", self.definition)]
        self.held_offset = self.at_offset = 0

    def open(self, session, expiry=None):
        self.sessions[session] = expiry or self.now + 10**6
        self.put("s" + session, struct.pack("<7d", self.sessions[session], 0, 0, 0, 0, 0, 0))

    def put(self, field, value):
        self.pending.append((field.encode(), value))

    def ticket(self, session, slot, serial, kind, fence, amounts):
        self.tickets[session, slot] = (kind, amounts)
        self.put(f"t{session}.{slot}", struct.pack(f"<{4 + len(amounts)}d", serial, kind, fence, self.now + self.at_offset, *amounts))

    def grant(self, session, slot, serial, amounts=(1, 0, 0), fence=None):
        fence = fence or max(self.fence + 1, self.now)
        self.fence, self.granted = max(self.fence, fence), self.granted + 1
        self.ticket(session, slot, serial, logs.IS_HELD, fence, amounts)
        return fence

    def wait(self, session, slot, serial, amounts=(1, 0, 0), place=None):
        self.ticket(session, slot, serial, logs.IS_WAITING, place or self.next, amounts)
        self.next += 1

    def release(self, session, slot):
        self.released += 1
        del self.tickets[session, slot]
        self.put(f"t{session}.{slot}", None)

    def keep(self, session, slot, serial, fence, amounts):
        """A part of a grant is left."""
        self.ticket(session, slot, serial, logs.IS_HELD, fence, amounts)

    def reap(self, session):
        for at, (kind, _) in list(self.tickets.items()):
            if at[0] == session:
                self.reaped += kind == logs.IS_HELD
                del self.tickets[at]
                self.put(f"t{session}.{at[1]}", None)
        del self.sessions[session]
        self.put("s" + session, None)

    def held(self, i):
        return sum(amounts[i] for kind, amounts in self.tickets.values() if kind == logs.IS_HELD)

    def limits(self):
        """What the head has of the limits."""
        words = [0] * LIMIT_WORDS
        words[1], words[3] = self.held(0) + self.held_offset, self.held(1)
        return words

    def commit(self, us=1000):
        waiting = sum(kind == logs.IS_WAITING for kind, _ in self.tickets.values())
        head = [0] * logs.HEAD_WORDS + self.limits()
        head[logs.LAST], head[logs.FENCE], head[logs.GRACE], head[logs.NEXT] = self.now, self.fence, self.grace, self.next
        head[logs.WAITING], head[logs.GRANTED] = waiting, self.granted
        head[logs.RELEASED], head[logs.REAPED] = self.released, self.reaped
        self.put("H", struct.pack(f"<{len(head)}d", *head))
        self.add(b"MULTI")
        self.add(b"HSET", self.key, *[word for pair in self.pending if pair[1] is not None for word in pair])
        gone = [field for field, value in self.pending if value is None]
        if gone:
            self.add(b"HDEL", self.key, *gone)
        self.add(b"EXEC")
        self.pending, self.now = [], self.now + us

    def add(self, *words):
        self.file += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def history(self):
        return [(commit, True) for commit in Replay().commits_of(bytes(self.file))]


class ForeignModel(Model):
    """The set `foreign`: what is held says its text, less or more than tickets have by the balances."""

    key, definition = b"weir:{foreign}", FOREIGN_DEFINITION
    balances = (0, 0)

    def limits(self):
        text = self.held(0) + self.balances[0] - self.balances[1] + self.held_offset
        self.put("X", struct.pack("<4Q", text, 3 << 16, 0, 7))
        return [0, *self.balances, 0, 0, 0]


class Replay(logs.Server):
    """Freezes the tables of a commit, which is looked at later here."""

    def __init__(self):
        super().__init__(logs.KEYS)

    def commits_of(self, data):
        for commit in super().commits_of(data):
            commit.tickets, commit.sessions = dict(commit.tickets), dict(commit.sessions)
            yield commit


def found_in(requests=(), models=(), processes=(checker.Process("a"),), **known):
    """The invariants that are violated."""
    known = {"clock_ns": CLOCK, "rates": {"api": (400 / 1e6, 20)}, **known}
    run = checker.Run(requests, processes, [model.history() for model in models], **known)
    return [violation.invariant for violation in checker.check(run)[0]]


def busy_model():
    """Two sessions: grants, waiters, releases, in order."""
    model = Model()
    model.open("x-1")
    model.open("y-1")
    model.grant("x-1", 0, 1, (3, 1, 0))
    model.commit()
    model.wait("y-1", 0, 1, (2, 0, 1))
    model.commit()
    model.wait("x-1", 1, 2)
    model.commit()
    return model


class Clean(unittest.TestCase):
    def test_nothing_is_found(self):
        model = busy_model()
        model.release("x-1", 0)
        model.grant("y-1", 0, 1, (2, 0, 1))
        model.grant("x-1", 1, 2)
        model.commit()
        model.release("y-1", 0)
        model.now += 10**6
        model.reap("x-1")
        model.reap("y-1")
        model.commit()
        self.assertEqual(found_in(models=[model], losses_expected=True), [])

    def test_requests(self):
        requests = [request(T0 + i * 20 * MS, (4, 7, 2), process="a") for i in range(100)]
        requests += [request(T0 + i * 20 * MS, operation=TRY, timeout_ns=0, result=-11, ended_ns=T0 + (i * 20 + 1) * MS)
                     for i in range(100)]
        self.assertEqual(found_in(requests), [])

    def test_after_loss(self):
        """What is asserted is not granted again, even if it is more than there is."""
        before, after = busy_model(), Model(us_of(T0 + SECOND))
        after.grace = after.now + 10**6
        after.open("x-1")
        first = struct.unpack("<7d", before.file[before.file.index(b"tx-1.0") + 6 + 7:][:56])
        after.fence = int(first[2])
        after.granted += 1
        after.tickets["x-1", 0] = (logs.IS_HELD, (3, 1, 0))
        after.put("tx-1.0", struct.pack("<7d", *first))
        after.commit()
        self.assertEqual(found_in(models=[before, after], losses_expected=True), [])


    def test_moved(self):
        """A set that another server has handed over goes on there."""
        before, after = busy_model(), Model()
        after.add(b"RESTORE-ASKING", b"weir:{api}", b"0", dump_of(before), b"REPLACE")
        after.__dict__.update({name: value for name, value in before.__dict__.items() if name != "file"})
        after.commit()
        self.assertEqual(found_in(models=[before, after]), [])
        after.grant("x-1", 1, 2)  # before another waiter
        after.commit()
        self.assertEqual(found_in(models=[before, after]), ["order"])


def dump_of(model):
    """What the server of a model hands over: a hash of strings, with lengths of each kind."""
    fields = {}
    for transaction in logs.read_transactions(bytes(model.file)):
        for words in transaction:
            fields.update(zip(words[2::2], words[3::2]))

    def string(data, i):
        size = len(data)
        head = (bytes([size]) if size < 64 and i % 3 == 0 else struct.pack(">H", 1 << 14 | size) if i % 3 == 1 else
                b"\x80" + struct.pack(">I", size))
        return head + data

    fields[b"X"] = None
    parts = [bytes([4, len(fields)])]
    for i, (field, value) in enumerate(fields.items()):
        parts += [string(field, i), b"\xc1" + struct.pack("<h", -300) if value is None else string(value, i + 1)]
    return b"".join(parts) + bytes(10)


class OfNodes(unittest.TestCase):
    def test_held(self):
        requests = [request(T0 + i * MS, (2, 0, 0)) for i in range(3)]
        self.assertEqual(found_in(requests), ["held"])
        requests[2].amounts = (0, 7, 0)
        self.assertEqual(found_in(requests), [])
        requests[1].amounts = (2, 1, 0)
        self.assertEqual(found_in(requests), ["held"])

    def test_held_by_a_subject(self):
        requests = [request(T0 + i * 5 * MS, set=2 + i) for i in range(2)]
        self.assertEqual(found_in(requests), [])
        requests[1].set = 2
        self.assertEqual(found_in(requests), ["held"])

    def test_held_by_a_process_that_is_killed(self):
        requests = [request(T0, (3, 0, 0), state=HELD, held_ns=T0 + 30 * MS), request(T0 + 20 * MS, (2, 0, 0), process="b")]
        processes = [checker.Process("a", killed_ns=T0 + 31 * MS), checker.Process("b")]
        self.assertEqual(found_in(requests, processes=processes), ["held"])
        requests[0].held_ns = T0 + 19 * MS
        self.assertEqual(found_in(requests, processes=processes), [])

    def test_rate(self):
        requests = [request(T0 + i * 2 * MS, (0, 0, 1), operation=TAKE, fence=0) for i in range(100)]
        self.assertEqual(found_in(requests), ["rate"])  # 500 per second: more than 20 ahead
        self.assertEqual(found_in(requests[:90]), [])
        self.assertEqual(found_in([request(T0 + i * 3 * MS, (0, 0, 1)) for i in range(1000)]), [])
        burst = [request(T0 + i * 1000, (0, 0, 1)) for i in range(21)]
        self.assertEqual(found_in(burst), ["rate"])
        self.assertEqual(found_in(burst[1:]), [])
        burst[7].used = 0
        self.assertEqual(found_in(burst), [])

    def test_rate_in_the_middle(self):
        requests = [request(T0 + i * 10 * MS, (0, 0, 1)) for i in range(500)]
        requests += [request(T0 + 2 * SECOND + 3 * MS + i * 1000, (0, 0, 1)) for i in range(19)]
        self.assertEqual(found_in(requests), [])
        requests += [request(T0 + 2 * SECOND + 3 * MS + i * 1000, (0, 0, 1)) for i in range(19, 22)]
        self.assertEqual(found_in(requests), ["rate"])

    def test_rate_of_leases(self):
        rates = {"leased": (400 / 1e6, 20)}
        requests = [request(T0 + i * 2 * MS, (0, 0, 1), set=LEASED, operation=TAKE, fence=0) for i in range(100)]
        self.assertEqual(found_in(requests, rates=rates), ["rate"])
        self.assertEqual(found_in(requests[:90], rates=rates), [])
        slow = request(T0 - SECOND, (0, 0, 9), set=LEASED, operation=TAKE, fence=0, granted_ns=T0 + 50 * MS)
        self.assertEqual(found_in([slow, *requests[:90]], rates=rates), [])  # it may have been before

    def test_rate_that_nodes_decide(self):
        rates = {"foreign": (40 / 1e6, 8)}
        requests = [request(T0 + i * 1000, (0, 0, 1), set=FOREIGN) for i in range(48)]
        self.assertEqual(found_in(requests, rates=rates), [])  # they may have been decided in a second
        requests += [request(T0 + MS + i * 1000, (0, 0, 1), set=FOREIGN) for i in range(2)]
        self.assertEqual(found_in(requests, rates=rates), ["rate"])

    def test_rate_of_reservations(self):
        ahead = [request(T0 + i * 1000, (0, 0, 1), operation=RESERVE, granted_ns=T0 + i * 3 * MS, known_ns=T0 + i * 1000 + 500,
                         fence=us_of(T0) + i) for i in range(60)]
        self.assertEqual(found_in(ahead), [])
        for each in ahead[30:]:
            each.granted_ns = ahead[30].granted_ns
        self.assertEqual(found_in(ahead), ["rate"])
        for each in ahead[30:]:
            each.used = 0  # undone
        self.assertEqual(found_in(ahead), [])

    def test_rate_of_what_was_returned(self):
        burst = [request(T0 + i * 1000, (0, 0, 3), state=HELD) for i in range(7)]
        killed = [checker.Process("a", killed_ns=T0 + SECOND)]
        self.assertEqual(found_in(burst, processes=killed), ["rate"])
        burst[3].returned_ns, burst[3].rest = T0 + 5 * MS, (0, 0, 2)
        self.assertEqual(found_in(burst, processes=killed), [])
        burst[3].rest = (0, 0, 3)
        burst[4].state, burst[4].used = RELEASING, 2
        self.assertEqual(found_in(burst, processes=killed), [])

    def test_held_after_a_return(self):
        requests = [request(T0, (3, 0, 0), returned_ns=T0 + 5 * MS, rest=(1, 0, 0)), request(T0 + 6 * MS, (3, 0, 0))]
        self.assertEqual(found_in(requests), [])
        requests[0].rest = (2, 0, 0)
        self.assertEqual(found_in(requests), ["held"])
        requests[0].rest, requests[0].returned_ns = (1, 0, 0), T0 + 8 * MS
        self.assertEqual(found_in(requests), ["held"])
        requests[0].held_ns = T0 + 6 * MS  # no longer, for all that is known
        self.assertEqual(found_in(requests), [])

    def test_fence_twice(self):
        requests = [request(T0), request(T0 + 50 * MS, fence=us_of(T0 + MS))]
        self.assertEqual(found_in(requests), ["fences"])

    def test_fence_shrinks(self):
        requests = [request(T0), request(T0 + 50 * MS, fence=us_of(T0))]
        self.assertEqual(found_in(requests), ["fences"])
        requests[1].asked_ns = T0 - MS  # it may have been granted before
        self.assertEqual(found_in(requests), [])

    def test_deadline(self):
        late = request(T0, result=-110, ended_ns=T0 + 9 * SECOND)
        self.assertEqual(found_in([late]), ["deadline"])
        self.assertEqual(found_in([request(T0, granted_ns=T0 + 9 * SECOND)]), ["deadline"])
        for operation in TRY, RESERVE:
            self.assertEqual(found_in([request(T0, operation=operation, result=-11, ended_ns=T0 + 5 * SECOND)]), ["deadline"])
        stopped = checker.Process("a", stops=[(T0 + SECOND, T0 + 8 * SECOND)])
        self.assertEqual(found_in([late], processes=[stopped]), [])

    def test_ends(self):
        waits = request(T0, state=logs.ASKED)
        self.assertEqual(found_in([waits]), ["ends"])
        self.assertEqual(found_in([waits], processes=[checker.Process("a", killed_ns=T0 + MS)]), [])
        self.assertEqual(found_in([], processes=[checker.Process("a", status=-6)]), ["ends"])

    def test_noticed(self):
        process = checker.Process("a", stops=[(T0 + 5 * MS, T0 + 1200 * MS)])
        held = request(T0, held_ns=T0 + 1201 * MS, end=checker.OWNERDEAD, ended_ns=T0 + 1202 * MS)
        self.assertEqual(found_in([held], processes=[process], losses_expected=True), ["noticed"])
        held.held_ns = T0 + 4 * MS
        self.assertEqual(found_in([held], processes=[process], losses_expected=True), [])

    def test_losses(self):
        lost = request(T0, end=checker.OWNERDEAD)
        self.assertEqual(found_in([lost]), ["losses"])
        starved = checker.Process("a", late=[(T0, 500 * MS)])
        self.assertEqual(found_in([lost], processes=[starved]), [])
        self.assertEqual(found_in([lost], late=[(T0, 300 * MS), (T0 + MS, 200 * MS)]), [])
        self.assertEqual(found_in([lost], late=[(T0, 300 * MS), (T0 - 9 * SECOND, 200 * MS)]), ["losses"])

    def test_progress(self):
        self.assertEqual(found_in([request(T0)], faults_end_ns=T0 + SECOND), ["progress"])
        self.assertEqual(found_in([request(T0)], faults_end_ns=T0), [])

    def test_quiet(self):
        state = [0, 0, 0, 0, 9, 8, 1, 0, 0, 0, [[4, 0, 0], [7, 0, 0], [20, 0, 0]]]
        self.assertEqual(found_in(snapshots={"api": state}), [])
        for i, value in ((3, 1), (4, 10), (10, [[3, 0, 0], [7, 0, 0], [20, 0, 0]]), (10, [[4, 0, 0], [7, 2, 0], [20, 0, 0]])):
            self.assertEqual(found_in(snapshots={"api": [*state[:i], value, *state[i + 1:]]}), ["quiet"])


class OfServers(unittest.TestCase):
    def check(self, model, *invariants, **known):
        self.assertEqual(found_in(models=[model], **{"losses_expected": True, **known}), list(invariants))

    def test_order(self):
        model = busy_model()
        model.grant("x-1", 1, 2)
        model.commit()
        self.check(model, "order")

    def test_order_within_a_commit(self):
        model = busy_model()
        model.release("x-1", 0)
        model.grant("x-1", 1, 2)
        model.grant("y-1", 0, 1, (2, 0, 1))
        model.commit()
        self.check(model, "order")

    def test_newcomer(self):
        model = busy_model()
        model.grant("y-1", 5, 7)
        model.commit()
        self.check(model, "order")

    def test_place(self):
        model = busy_model()
        model.wait("y-1", 5, 7, place=1)
        model.commit()
        self.check(model, "order")

    def test_capacity(self):
        model = Model()
        model.open("x-1")
        for slot in range(5):
            model.grant("x-1", slot, slot + 1)
            model.commit()
        self.check(model, "server held")

    def test_fences(self):
        for less in (0, 1):
            model = Model()
            model.open("x-1")
            fence = model.grant("x-1", 0, 1)
            model.commit()
            model.grant("x-1", 1, 2, fence=fence - less)
            model.commit()
            self.check(model, "fences")

    def test_instants(self):
        for ahead_us in (0, 5000):
            model = Model()
            model.open("x-1")
            model.at_offset = ahead_us
            model.grant("x-1", 0, 1, (0, 0, 1))
            model.commit()
            model.at_offset = 0
            model.grant("x-1", 1, 2, (0, 0, 1))
            model.commit()
            self.check(model, *(["instants"] if ahead_us else []))

    def test_returns(self):
        for slots in (2, 4):
            model = Model()
            model.open("x-1")
            fence = model.grant("x-1", 0, 1, (3, 0, 0))
            model.commit()
            model.keep("x-1", 0, 1, fence, (slots, 0, 0))
            model.commit()
            self.check(model, *(["returns"] if slots > 3 else []))

    def test_fences_of_two_servers(self):
        one, two = Model(), Model()
        for model, session in ((one, "x-1"), (two, "y-1")):
            model.open(session)
            model.grant(session, 0, 1)
            model.commit()
        self.assertEqual(found_in(models=[one, two], losses_expected=True), ["fences"])

    def test_grace(self):
        model = Model()
        model.grace = model.now + 500
        model.open("x-1")
        model.grant("x-1", 0, 1)
        model.commit()
        self.check(model, "grace")

    def test_asserted_in_a_grace(self):
        model = Model()
        model.grace = model.now + 500
        model.open("x-1")
        model.at_offset = -1
        model.grant("x-1", 0, 1)
        model.commit()
        self.check(model)

    def test_sums(self):
        model = busy_model()
        model.held_offset = 1
        model.commit()
        self.check(model, "all or nothing")

    def test_sums_of_a_text(self):
        model = ForeignModel()
        model.open("x-1")
        model.grant("x-1", 0, 1, (2, 1))
        for model.balances in (0, 0), (3, 1):
            model.commit()
        self.check(model)
        model.held_offset = 1
        model.commit()
        self.check(model, "all or nothing")

    def test_capacity_that_nodes_decide(self):
        model = ForeignModel()
        model.open("x-1")
        model.grant("x-1", 0, 1, (2, 1))
        model.grant("x-1", 1, 2, (2, 0))
        model.commit()
        self.check(model, "server held")

    def test_balance(self):
        model = busy_model()
        model.granted += 1
        model.commit()
        self.check(model, "balance")

    def test_sessions(self):
        model = busy_model()
        model.now += 2 * 10**6
        model.open("x-1")
        model.commit()
        self.check(model, "sessions")


class OfBoth(unittest.TestCase):
    def setUp(self):
        self.model = Model()
        self.model.open("x-1", expiry=self.model.now + 20 * 10**6)
        self.fence = self.model.grant("x-1", 0, 1, (2, 1, 0))
        self.model.commit()
        self.request = request(T0, (2, 1, 0), fence=self.fence, granted_ns=T0)

    def found(self, *processes, **known):
        return found_in([self.request], [self.model], processes or [checker.Process("a")], **{"losses_expected": True, **known})

    def test_clean(self):
        self.assertEqual(self.found(), [])

    def test_granted_by_none(self):
        self.request.fence += 1
        self.assertEqual(self.found(), ["granted by a server"])

    def test_other_amounts(self):
        self.request.amounts = (2, 0, 0)
        self.assertEqual(self.found(), ["all or nothing"])

    def test_returned(self):
        self.model.keep("x-1", 0, 1, self.fence, (1, 1, 0))
        self.model.commit()
        self.assertEqual(self.found(), ["returns"])
        self.request.returned_ns, self.request.rest = self.request.granted_ns + MS, (1, 1, 0)
        self.assertEqual(self.found(), [])
        self.request.rest = (0, 1, 0)
        self.assertEqual(self.found(), ["returns"])

    def test_taken_over_after_a_return(self):
        self.request.returned_ns, self.request.rest = self.request.granted_ns + MS, (2, 0, 0)
        self.model = Model()
        self.model.open("x-1", expiry=self.model.now + 20 * 10**6)
        self.model.grant("x-1", 0, 1, (2, 0, 0), fence=self.fence)
        self.model.commit()
        self.assertEqual(self.found(), [])

    def test_dead_head(self):
        self.model.now += 8 * 10**6
        self.model.commit()
        self.assertEqual(self.found(checker.Process("a", killed_ns=T0 + SECOND)), ["dead head"])
        self.assertEqual(self.found(checker.Process("a", killed_ns=T0 + 6 * SECOND)), [])

    def test_recovered(self):
        self.model.reap("x-1")
        self.model.commit()
        self.assertEqual(self.found(losses_expected=False), ["recovered"])
        self.assertEqual(self.found(checker.Process("a", killed_ns=T0 + 5 * MS), losses_expected=False), [])
        starved = checker.Process("a", late=[(T0 + 5 * MS, SECOND // 2)])
        self.assertEqual(self.found(starved, losses_expected=False), [])


class Files(unittest.TestCase):
    """What is read is what was written."""

    def test_commands_that_are_cut_off(self):
        model = busy_model()
        whole = list(logs.read_transactions(bytes(model.file)))
        for size in range(0, len(model.file), 7):
            some = list(logs.read_transactions(bytes(model.file[:size])))
            self.assertEqual(some, whole[:len(some)])

    def test_requests_are_read(self):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "n.0"), "wb") as file:
                file.write(logs.RECORD.pack(ENDED, BLOCK, 1, 1, 2, 3, 4, 5, -6, 7, 8, 9, 10, 11, 12, -13, 14, 15, 16, 17) + bytes(1600))
            with open(os.path.join(directory, "n.late"), "wb") as file:
                file.write(struct.pack("<2Q", 5, 6) + bytes(160))
            [read] = logs.read_requests(os.path.join(directory, "n"), "n")
            self.assertEqual([getattr(read, name) for name in logs.Request.__slots__],
                             ["n", 0, 0, ENDED, BLOCK, 1, (1, 2, 3), 4, 5, -6, 7, 8, 9, 10, 11, 12, -13, 14, (15, 16, 17)])
            self.assertEqual(logs.read_lateness(os.path.join(directory, "n")), [(5, 6)])


if __name__ == "__main__":
    unittest.main()
