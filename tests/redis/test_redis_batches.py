# SPDX-License-Identifier: MIT
"""Units that nodes take in batches and use later: what is used keeps the limit of the definition.

Argument: the library. Nodes do their worst: they hoard batches and use all of them in the last microsecond, at
once, or at random; they return some. WEIR_SEED repeats a run, WEIR_OPERATIONS makes it longer.
"""
import collections
import pathlib
import random
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from effort import SEED, operations  # noqa: E402
from redis_nodes import GRANTED, START_US, FakeServer, Node, definition, load  # noqa: E402
from redis_server import Server, read_library  # noqa: E402

LIBRARY = sys.argv.pop(1)
OPERATIONS = operations(20000)
SCHEDULE = 400
FIRST_USE, CREATION, EPOCH = range(3)


class Batch:
    def __init__(self, units, begin, end):
        self.units, self.begin, self.end = units, begin, end


class Batches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"WEIR_SEED={SEED} WEIR_OPERATIONS={OPERATIONS}", file=sys.stderr, flush=True)
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.client = load(cls.server, read_library(LIBRARY, fake_clock=True, fake_identity=True))
        cls.addClassCleanup(cls.client.close)

    def run_schedule(self, rng, limit, delta):
        """The uses of all nodes: instants and units."""
        self.client.call("FLUSHALL")
        fake = FakeServer(self.client)
        node = Node(self.client, "one", "", definition(limit))
        batches, uses, wait = [], [], 0
        for operation in range(SCHEDULE):
            # The set is made by the first call, at START_US. Batches that end before the next instant are used
            # in their last microsecond, or not at all.
            steps = (0, 1, max(0, wait - 1), wait, rng.randint(0, delta), rng.randint(0, delta // 8))
            step = rng.choice(steps) if operation else 0
            for batch in [batch for batch in batches if batch.end <= fake.clock + step]:
                batches.remove(batch)
                if rng.random() < 0.9:
                    uses.append((batch.end - 1, batch.units))
            fake.advance(step)
            if batches and rng.random() < 0.2:
                self.spend(rng, node, fake.clock, batches, uses)
            reply = node.call("weir_batch", 0, rng.choice((1, rng.randint(1, 30), 1000)))
            if reply[0] == GRANTED:
                batches.append(Batch(reply[1], fake.clock, fake.clock + reply[2]))
            wait = reply[3] if reply[0] != GRANTED and reply[3] > 0 else 0
        return sorted(uses)

    def spend(self, rng, node, now, batches, uses):
        batch = batches.pop(rng.randrange(len(batches)))
        used = rng.choice((batch.units, 0, rng.randint(0, batch.units)))
        uses.append((now, used))
        if used < batch.units and rng.random() < 0.7:
            node.call("weir_unbatch", 0, batch.units - used, batch.begin)

    def each_schedule(self, name):
        for number in range(max(1, OPERATIONS // SCHEDULE // 6)):
            rng = random.Random(f"{SEED} {name} {number}")
            capacity, window = rng.randint(20, 1000), rng.choice((1000, 999983, 100000))
            yield rng, capacity, window, rng.randint(1, window // 4)

    def hoard(self, rng, limit, delta, align):
        """What is used at one instant, if all is hoarded that is there, and that comes until the first batch ends."""
        self.client.call("FLUSHALL")
        fake = FakeServer(self.client)
        node = Node(self.client, "one", "", definition(limit))
        node.call("weir_batch", 0, 1)
        fake.advance(10**9 + align - 10**9 % align - 1)  # all is there again, and a step comes in 1 us
        used, end = node.call("weir_batch", 0, 10**6)[1], fake.clock + delta - 1
        while True:
            more = node.call("weir_batch", 0, 1)
            if more[0] == GRANTED:
                used += more[1]
            elif fake.clock == end:
                return used
            else:
                fake.advance(min(rng.randint(1, 20 + delta // 50), max(1, more[3]), end - fake.clock))

    def test_hoarded_batches_and_what_came_since_are_a_burst(self):
        for rng, capacity, window, delta in self.each_schedule("hoard"):
            # Batches leave room for two units at least: of one, a part is lost between two microseconds.
            burst = capacity * delta // window + rng.randint(3, 50)
            limit = f"g,{capacity},{window},{burst},{burst},0,{delta},0,0"
            used = self.hoard(rng, limit, delta, 1)
            self.assertIn(used, (burst - 2, burst - 1, burst), limit)

    def test_hoarded_batches_and_the_steps_since_are_a_burst(self):
        for rng, capacity, _, _ in self.each_schedule("hoarded steps"):
            every, step = rng.randint(1, 1000), rng.randint(1, 10)
            delta = rng.choice((rng.randint(1, 5 * every), every * rng.randint(1, 3)))
            burst = step * (delta // every + 2) + rng.randint(1, capacity)
            used = self.hoard(rng, f"t,{step},{every},{burst},{burst},{every},{delta},0,0", delta, every)
            self.assertEqual(used, burst)

    def test_hoarded_batches_fill_a_sliding_window(self):
        for rng, capacity, window, delta in self.each_schedule("hoarded window"):
            segments = rng.choice((0, 0, 3))
            used = self.hoard(rng, f"s,{capacity},{window},{capacity},{capacity},{segments},{delta},0,0", delta, 1)
            self.assertEqual(used, capacity)

    def check_bucket(self, uses, capacity, window, burst):
        """In any [a, b] at most burst + rate · (b - a)."""
        beyond, last = 0, None
        for instant, units in uses:
            beyond = max(0, beyond - (capacity * (instant - last) if last is not None else 0)) + units * window
            last = instant
            self.assertLessEqual(beyond, burst * window)

    def test_a_bucket_is_not_exceeded(self):
        used = 0
        for rng, capacity, window, delta in self.each_schedule("bucket"):
            kind = rng.choice("tgl")
            burst = capacity if kind == "l" else capacity * delta // window + rng.randint(2, 50)
            uses = self.run_schedule(rng, f"{kind},{capacity},{window},{burst},{burst},0,{delta},0,0", delta)
            self.check_bucket(uses, capacity, window, burst)
            used += sum(units for _, units in uses)
        self.assertGreater(used, 0)

    def test_a_bucket_in_steps_is_not_exceeded(self):
        for rng, capacity, _, _ in self.each_schedule("steps"):
            every, step = rng.randint(1, 1000), rng.randint(1, 10)
            delta = rng.randint(1, 5 * every)
            burst = step * (delta // every + 1) + rng.randint(1, capacity)
            uses = self.run_schedule(rng, f"t,{step},{every},{burst},{burst},{every},{delta},0,0", delta)
            missing, last = 0, 0
            for instant, units in uses:
                steps = (instant - START_US) // every
                missing, last = max(0, missing - step * (steps - last)) + units, steps
                self.assertLessEqual(missing, burst)

    def test_a_sliding_window_is_not_exceeded(self):
        for rng, capacity, window, delta in self.each_schedule("sliding"):
            segments = rng.choice((0, 0, 1, 7))
            limit = f"s,{capacity},{window},{capacity},{capacity},{segments},{delta},0,0"
            uses = self.run_schedule(rng, limit, delta)
            recent, total = collections.deque(), 0
            for instant, units in uses:
                while recent and recent[0][0] <= instant - window:
                    total -= recent.popleft()[1]
                recent.append((instant, units))
                total += units
                self.assertLessEqual(total, capacity)

    def test_a_fixed_window_is_not_exceeded(self):
        for rng, capacity, window, delta in self.each_schedule("fixed"):
            anchor = rng.choice((CREATION, EPOCH))
            origin = START_US if anchor == CREATION else 0
            uses = self.run_schedule(rng, f"f,{capacity},{window},{capacity},{capacity},{anchor},{delta},0,0", delta)
            counts = collections.Counter()
            for instant, units in uses:
                counts[(instant - origin) // window] += units
            self.assertLessEqual(max(counts.values()), capacity)


if __name__ == "__main__":
    unittest.main()
