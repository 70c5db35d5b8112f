# SPDX-License-Identifier: MIT
"""weir simulate: its decisions are those of an exact model, and those of a server that ran.

usage: test_simulate.py COMMAND [SERVER]

WEIR_SEED repeats a run.
"""
import csv
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

from simulation_model import Bucket, Log, Resource, Set, Window

COMMAND = os.path.abspath(sys.argv[1])
SERVER = sys.argv[2] if len(sys.argv) > 2 else None
SEED = int(os.environ.get("WEIR_SEED", random.SystemRandom().randrange(1 << 32)))
START = 1767225600 * 10**9  # 2026-01-01
MS, S = 10**6, 10**9

SIMPLE = """version: 1
sets:
  api:
    limits:
      - { type: call, algorithm: gcra, capacity: 100, window: 1s, burst: 10 }
"""


class Simulation(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def run_it(self, *arguments, text=None, status=0, **environment):
        done = subprocess.run([COMMAND, "simulate", *arguments], input=text, capture_output=True, text=True,
                              timeout=120, check=False, env={**os.environ, **environment})
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def report(self, *arguments, text=None):
        return json.loads(self.run_it(*arguments, "--json", text=text).stdout)

    def decisions(self, *arguments):
        """What --decisions writes, by the number of the event."""
        self.run_it(*arguments, "--decisions", self.path("decisions.csv"))
        with open(self.path("decisions.csv"), encoding="utf-8", newline="") as file:
            rows = {int(row["event"]): row for row in csv.DictReader(file)}
        return rows


class Classes(Simulation):
    """One unit in 10 ms, and requests that all come at once: their waits are known."""

    CONFIG = ("version: 1\nsets:\n  api:\n    %s\n    limits: [ { type: call, algorithm: gcra, capacity: 100, window: 1s, "
              "burst: 1 } ]\n")
    TRACE = "time,kind\n" + "".join(f"0.{i:06},{kind}\n" for i, kind in enumerate(["2", "2", "2", "1", "0", "0"]))

    def test_waits_of_each_class(self):
        config, trace = self.write("weir.yaml", self.CONFIG % "priorities: 3"), self.write("t.csv", self.TRACE)
        got = self.report("-f", config, "-F", "csv", "--class", "kind", trace)["candidates"][0]
        classes = {one["name"]: one for one in got["classes"]}
        self.assertEqual([(name, classes[name]["events"], classes[name]["granted"]) for name in "012"],
                         [("0", 2, 2), ("1", 1, 1), ("2", 3, 3)])
        # The first one came first; then classes 0, 0, 1, 2, 2.
        for name, slots in (("0", 2), ("1", 3), ("2", 5)):
            self.assertAlmostEqual(classes[name]["waits_ns"]["max"], slots * 10 * MS, delta=MS)
        out = self.run_it("-f", config, "-F", "csv", "--class", "kind", trace).stdout
        self.assertRegex(out, r"(?m)^0: wait max +[\d.]+ ?ms$")
        self.assertNotIn("classes", self.report("-f", config, "-F", "csv", trace)["candidates"][0])

    def test_unknown_class(self):
        config, trace = self.write("weir.yaml", self.CONFIG % "shares: { a: 1, b: 2 }"), self.write("t.csv", self.TRACE)
        done = self.run_it("-f", config, "-F", "csv", "--class", "kind", trace, status=3)
        self.assertIn("event 2: ", done.stderr)  # the first line has the names

    def test_a_name_that_is_too_long(self):
        config = self.write("weir.yaml", self.CONFIG % "priorities: 2")
        trace = self.write("t.csv", "time,kind\n1," + 32 * "x" + "\n2,\n")
        done = self.run_it("-f", config, "-F", "csv", "--class", "kind", "--json", trace)
        self.assertEqual(json.loads(done.stdout)["traffic"]["wrong_lines"], 1)


class Overtaking(Simulation):
    """A request that comes later and is decided earlier: the clock stops for it."""

    LIMIT = "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s }"

    def times(self, config, events, *options):
        """When each event is decided, in ms since the first."""
        trace = self.write("t.csv", "time,tokens,other,kind\n" +
                           "".join(f"{START // MS + at},{tokens},{other},{kind}\n" for at, tokens, other, kind in events))
        rows = self.decisions("-f", self.write("x.yaml", config), "-T", "time:ms", "-a", "tokens=tokens", *options, trace)
        self.assertEqual(len(rows), len(events))
        return [(int(rows[i + 2]["decided"]) - START) // MS for i in range(len(events))]

    def test_it_is_decided_at_its_time(self):
        events = [(0, 100, 1, 2), (1, 50, 0, 2), (2, 60, 0, 1), (3, 1, 1, 0), (900, 1, 0, 0)]
        head = "version: 1\nsets:\n  api:\n"
        limits = f"    limits: [ {self.LIMIT} ]\n"
        two = f"    limits: [ {self.LIMIT}, {self.LIMIT.replace('tokens', 'other')} ]\n"
        self.assertEqual(self.times(head + limits, events), [0, 500, 1100, 1110, 1120])
        self.assertEqual(self.times(head + "    fair: false\n" + limits, events), [0, 500, 1110, 1120, 900])
        self.assertEqual(self.times(head + "    priorities: 3\n" + limits, events, "--class", "kind")[3], 10)
        events = [(0, 100, 100, 2), (1, 50, 0, 2), (2, 60, 0, 1), (3, 0, 5, 0), (900, 1, 0, 0)]
        self.assertEqual(self.times(head + "    fair: per_limit\n" + two, events, "-a", "other=other")[3], 50)
        events = [(0, 100, 0, "a"), (0, 100, 0, "b"), (1, 50, 0, "a"), (2, 60, 0, "a"), (3, 1, 0, "b"), (900, 1, 0, "c")]
        self.assertEqual(self.times(head + "    subjects: { max: 9 }\n" + limits, events, "-S", "kind")[4], 10)

    def test_what_is_held_too_long_is_taken_back_at_its_time(self):
        config = self.write("x.yaml", """version: 1
sets: { api: { limits: [ { type: resource, key: c, capacity: 1, max_hold: 1s, max_hold_action: revoke } ] } }
""")
        trace = self.write("t.csv", "time,hold\n0,10\n5,10\n20,1\n")
        for mode in "wait", "try":
            options = "-f", config, "-H", "hold", "-m", mode, trace
            self.assertEqual([row["decision"] for row in self.decisions(*options).values()], 3 * ["granted"])
            limit = self.report(*options)["candidates"][0]["limits"][0]
            self.assertAlmostEqual(limit["used_thousandths"], 3000 // 21, delta=2)  # 3 times 1 s of 21
            self.assertEqual(limit["held_most"], 1)

    def test_each_is_decided_once(self):
        rng = random.Random(SEED)
        for settings in "priorities: 3", 'shares: { "0": 1, "1": 2, "2": 4 }', "fair: false", "priorities: 3\n    max_waiters: 9":
            at, events = 0, []
            for _ in range(1500):
                at += rng.choice([0, 1, 5, 10, 30])
                events.append((at, rng.randint(1, 3), 1, rng.randint(0, 2)))
            options = [] if "fair" in settings else ["--class", "kind"]
            config = f"version: 1\nsets:\n  api:\n    timeout: 100ms\n    {settings}\n    limits: [ {self.LIMIT} ]\n"
            self.times(config, events, *options)


class Exact(Simulation):
    """Event for event what an exact model decides."""

    def trace(self, rng, n, mean_ns, keys, hold_ns, ties=0.1):
        """Events, of which some arrive at one instant. Which of two equal deadlines ends first is not promised: so
        there are no such events where waits time out."""
        events, at = [], START
        for _ in range(n):
            at += 0 if rng.random() < ties else 1 + int(rng.expovariate(1 / mean_ns))
            amounts = {key: rng.randint(1, most) for key, most in keys.items()}
            used = {key: rng.randint(0, n) for key, n in amounts.items()}
            events.append((at, amounts, used, rng.randint(1, hold_ns)))
        return events

    def check(self, limits, model, events, *options, settings="", used=False):
        keys = sorted(events[0][1])
        config = self.write("x.yaml", "version: 1\nsets:\n  api:\n" + settings + "    limits:\n" +
                            "".join(f"      - {{ {limit} }}\n" for limit in limits))
        lines = ["time,hold," + ",".join(f"{key},{key}_used" for key in keys)]
        for at, amounts, uses, hold in events:
            lines.append(f"{at},{hold}," + ",".join(f"{amounts[k]},{uses[k]}" for k in keys))
        trace = self.write("x.csv", "\n".join(lines) + "\n")
        options = list(options) + [w for key in keys for w in ("-a", f"{key}={key}")]
        if used:
            options += [w for key in keys if key != "conns" for w in ("--used", f"{key}={key}_used")]
        rows = self.decisions("-f", config, "-T", "time:ns", "-H", "hold:ns", *options, trace)
        if not used:
            events = [(at, amounts, {}, hold) for at, amounts, _, hold in events]
        expected = model.run(events)
        self.assertEqual(len(rows), len(events))
        for i, decision in enumerate(expected):
            row = rows[i + 2]  # behind the header
            self.assertEqual((row["decision"], int(row["decided"])), decision or ("undecided", int(row["decided"])),
                             f"seed {SEED}, event {i} of {options}: {events[i]}")
        return [decision for decision, _ in filter(None, expected)]

    def test_buckets(self):
        rng = random.Random(SEED)
        for algorithm in "token_bucket", "gcra":
            events = self.trace(rng, 2000, 12 * MS, {"tokens": 30}, 1, ties=0)
            words = self.check([f"type: rate, key: tokens, algorithm: {algorithm}, capacity: 1000, window: 1s, burst: 100"],
                               Set([("tokens", Bucket(1000, S, 100))], timeout=300 * MS), events,
                               settings="    timeout: 300ms\n")
            self.assertGreater(words.count("granted_waited"), 100)
            self.assertGreater(words.count("timed_out"), 10)

    def test_windows(self):
        rng = random.Random(SEED)
        events = self.trace(rng, 1500, 10 * MS, {"tokens": 9}, 1)
        for algorithm, limit in ("fixed_window", Window(40, 100 * MS)), ("sliding_window", Log(40, 100 * MS)):
            self.check([f"type: rate, key: tokens, algorithm: {algorithm}, capacity: 40, window: 100ms"],
                       Set([("tokens", limit)], max_waiters=5), events, settings="    max_waiters: 5\n")

    def test_resource(self):
        events = self.trace(random.Random(SEED), 3000, 10 * MS, {"conns": 3}, 40 * MS, ties=0)
        words = self.check(["type: resource, key: conns, capacity: 5"],
                           Set([("conns", Resource(5))], timeout=60 * MS), events, settings="    timeout: 60ms\n")
        self.assertEqual({"granted", "granted_waited", "timed_out"}, set(words))

    def test_several_limits(self):
        events = self.trace(random.Random(SEED), 3000, 10 * MS, {"conns": 2, "tokens": 20}, 35 * MS)
        self.check(["type: resource, key: conns, capacity: 6",
                    "type: rate, key: tokens, algorithm: token_bucket, capacity: 1200, window: 1s, burst: 150",
                    "type: call, algorithm: gcra, capacity: 110, window: 1s, burst: 5"],
                   Set([("conns", Resource(6)), ("tokens", Bucket(1200, S, 150)), ("call_count", Bucket(110, S, 5))],
                       max_waiters=40), events, settings="    max_waiters: 40\n")

    def test_refunds(self):
        events = self.trace(random.Random(SEED), 2000, 10 * MS, {"tokens": 30}, 50 * MS)
        self.check(["type: rate, key: tokens, algorithm: token_bucket, capacity: 900, window: 1s, burst: 60"],
                   Set([("tokens", Bucket(900, S, 60))], max_waiters=20), events, settings="    max_waiters: 20\n",
                   used=True)

    def test_impossible_and_busy(self):
        events = self.trace(random.Random(SEED), 1000, 10 * MS, {"tokens": 60}, 1)
        words = self.check(["type: rate, key: tokens, algorithm: gcra, capacity: 1000, window: 1s, burst: 50"],
                           Set([("tokens", Bucket(1000, S, 50))], waits=False), events, "--mode", "try")
        self.assertEqual({"granted", "refused_busy", "refused_impossible"}, set(words))

    def test_generated_load(self):
        config = self.write("x.yaml", SIMPLE)
        rows = self.decisions("-f", config, "-L", "poisson:95/s:20s", "-L", "burst:20/3s:20s", "--seed", str(SEED))
        events = [(int(rows[i + 1]["time"]), {}, {}, 0) for i in range(len(rows))]
        expected = Set([("call_count", Bucket(100, S, 10))]).run(events)
        self.assertEqual([(rows[i + 1]["decision"], int(rows[i + 1]["decided"])) for i in range(len(rows))], expected,
                         f"seed {SEED}")


class Documentation(Simulation):
    def test_example(self):
        """The first example of docs/simulation.md prints what stands there, up to its ellipsis."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/simulation.md")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        config, command, output = re.search(r"```yaml\n(.*?)```\n\n    weir simulate (.*?)\n\n```text\n(.*?)…", text,
                                            re.S).groups()
        self.write("api.yaml", config)
        done = subprocess.run([COMMAND, "simulate", *command.split()], cwd=self.folder.name, capture_output=True,
                              text=True, timeout=120, check=True)
        self.assertEqual(done.stdout[:len(output)], output)


class Loads(Simulation):
    def test_rates(self):
        config = self.write("x.yaml", "version: 1\nsets: { api: {} }\n")

        def events(*loads):
            return self.report("-f", config, *[w for load in loads for w in ("-L", load)])["traffic"]["events"]

        self.assertEqual(events("even:50/s:10s"), 500)
        self.assertEqual(events("burst:50/s:10s"), 500)
        self.assertEqual(events("even:50/s:10s", "burst:3/2s:10s"), 515)
        n = events("poisson:500/s:100s")
        self.assertLess(abs(n - 50000), 5 * 50000**0.5)
        day = events("day:10/s:1d")
        self.assertTrue(0.55 * 864000 < day < 0.75 * 864000, day)

    def test_a_seed_repeats(self):
        config = self.write("x.yaml", SIMPLE)
        runs = [self.report("-f", config, "-L", "poisson:99/s:5s", "--seed", seed)["candidates"]
                for seed in ("7", "7", "8")]
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0], runs[2])

    def test_subjects_have_limits_of_their_own(self):
        config = self.write("x.yaml", SIMPLE.replace("    limits", "    subjects: { max: 1000 }\n    limits"))
        one = self.report("-f", config, "-L", "even:150/s:10s", "-S", "uniform:1", "-m", "try")
        many = self.report("-f", config, "-L", "even:150/s:10s", "-S", "uniform:100", "-m", "try")
        self.assertGreater(one["candidates"][0]["decisions"]["refused_busy"], 400)
        self.assertEqual(many["candidates"][0]["decisions"]["refused_busy"], 0)

    def test_decisions_are_those_of_the_first(self):
        config = self.write("x.yaml", SIMPLE.replace("api", '"a,b"'))
        other = self.write("y.yaml", SIMPLE.replace("api", '"a,b"').replace("100", "1"))
        alone = self.decisions("-f", config, "-L", "even:150/s:3s", "-m", "try")
        self.assertEqual(alone, self.decisions("-f", config, "-c", other, "-L", "even:150/s:3s", "-m", "try"))
        self.assertEqual({(r["set"], r["limit"]) for r in alone.values()}, {("a,b", ""), ("a,b", "call_count")})

    def test_a_pool_that_waits_in_all_its_sets(self):
        config = self.write("x.yaml", """version: 1
sets:
  a: { timeout: 1s, limits: [ { type: rate, key: n, algorithm: fixed_window, capacity: 1, window: 1s } ] }
  b: { timeout: 1s, limits: [ { type: rate, key: n, algorithm: fixed_window, capacity: 1, window: 3s } ] }
pools: { both: { sets: [a, b], wait: any } }
""")
        times = [0, 0, 100, 200, 1700, 1800, 4000]
        trace = self.write("x.csv", "time\n" + "".join(f"{START // MS + t}\n" for t in times))
        options = "-f", config, "-T", "time:ms", trace
        rows = sorted(self.decisions(*options).items())
        self.assertEqual([(row["decision"], (int(row["decided"]) - START) // MS) for _, row in rows],
                         [("granted", 0), ("granted", 0), ("granted_waited", 1000), ("timed_out", 1200),
                          ("granted_waited", 2000), ("timed_out", 2800), ("granted", 4000)])
        self.assertEqual({row["set"] for _, row in rows}, {"a", "b"})
        limits = self.report(*options)["candidates"][0]["limits"]
        self.assertEqual([limit["waited"] for limit in limits], [0, 0])  # they wait for no limit in particular

    def test_longer_than_the_timeline(self):
        config = self.write("x.yaml", SIMPLE)
        trace = self.write("x.csv", "time\n" + "".join(f"{i * 86400 * 30}\n" for i in range(1, 400)))
        report = self.report("-f", config, trace)["candidates"][0]
        self.assertEqual(sum(i["arrivals"] for i in report["intervals"]), 399)
        self.assertLessEqual(len(report["intervals"]), 512)


class Formats(Simulation):
    TIMES = [0, 0, 1, 1, 1, 2, 5]

    def setUp(self):
        super().setUp()
        self.config = self.write("x.yaml", """version: 1
sets: { api: { limits: [ { type: rate, key: bytes, algorithm: token_bucket, capacity: 100, window: 1s } ] } }
""")

    def same(self, *traces):
        """The decisions of traces, which must be alike but for the numbers of lines."""
        found = []
        for options, text in traces:
            rows = self.decisions("-f", self.config, *options, self.write("trace", text))
            found.append(sorted(((int(r["time"]), r["decision"], int(r["decided"])) for r in rows.values()),
                                key=lambda row: row[0::2]))
        for other in found[1:]:
            self.assertEqual(found[0], other)
        return found[0]

    def test_all_alike(self):
        clf = [time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(START // S + t)) for t in self.TIMES]
        there = [time.strftime("%d/%b/%Y:%H:%M:%S +0130", time.gmtime(START // S + t + 5400)) for t in self.TIMES]
        iso = [time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(START // S + t)) for t in self.TIMES]
        common = "".join(f'1.2.3.4 - bob [{t}] "GET /a HTTP/1.1" 200 60\n' for t in clf)
        combined = "".join(f'1.2.3.4 - - [{t}] "GET \\"a\\" b" 200 60 "-" "x [y]" 0.25\n' for t in there)
        lines = "".join(json.dumps({"a": [1, {"time": 3}], "at": {"time": t}, "n": 60, "s": 'q"\\'}) + "\n" for t in iso)
        seconds = "".join(json.dumps({"time": START // S + t, "bytes": 60}) + "\n" for t in self.TIMES)
        table = '"bytes",x,time\r\n' + "".join(f'60,"a,""b",{START // MS + 1000 * t}\r\n' for t in self.TIMES)
        rows = self.same((["-a", "bytes=bytes"], common), (["-a", "bytes=bytes"], combined),
                         (["-a", "bytes=n", "-T", "at.time"], lines), (["-F", "json", "-a", "bytes=bytes"], seconds),
                         (["-T", "time:ms", "-a", "bytes=bytes"], table))
        self.assertEqual([word for _, word, _ in rows],
                         ["granted", "granted_waited", "granted", "granted_waited", "granted_waited",
                          "granted_waited", "granted"])

    def test_order_and_ends(self):
        ordered = "time,hold\n" + "".join(f"{t},1\n" for t in range(10, 50))
        ends = [(t + 1 + (t % 3), 1 + (t % 3)) for t in range(10, 50)]
        late = "time,hold\n" + "".join(f"{t},{h}\n" for t, h in sorted(ends))
        rows = self.same(([], ordered), (["--ends", "-H", "hold"], late))
        self.assertEqual(len(rows), 40)
        report = self.report("-f", self.config, "--reorder", "1", self.write("x.csv", "time\n5\n9\n4\n"))
        self.assertEqual(report["traffic"]["moved"], 1)

    def test_order_within_the_window(self):
        """As a window that is sorted again for each event: events of one time keep their order, late ones are moved."""
        rng = random.Random(SEED)
        for size in 1, 2, 7, 100:
            times = [rng.randint(0, 60) + i // 10 * rng.choice([0, 3]) for i in range(700)]
            config = self.write("y.yaml", SIMPLE)
            trace = self.write("t.csv", "time\n" + "".join(f"{at}\n" for at in times))
            report = self.path("decisions.csv")
            self.run_it("-f", config, "-m", "try", "--reorder", str(size), "--decisions", report, trace)
            with open(report, encoding="utf-8", newline="") as file:
                found = [(int(row["event"]) - 2, int(row["time"]) // S) for row in csv.DictReader(file)]
            expected, window, last = [], [], 0
            for i in range(len(times) + size):
                if i < len(times):
                    window.append((max(times[i], last), i))
                if len(window) == size or (i >= len(times) and window):
                    last, event = min(window)
                    window.remove((last, event))
                    expected.append((event, last))
            self.assertEqual(found, expected, f"seed {SEED}, size {size}")

    def test_backward_logs_take_no_longer(self):
        config = self.write("y.yaml", SIMPLE)
        trace = self.write("t.csv", "time\n" + "".join(f"{200000 - i}\n" for i in range(200000)))
        began = time.monotonic()
        report = self.report("-f", config, "-m", "try", "--reorder", "30000", trace)
        self.assertLess(time.monotonic() - began, 10)  # a second or so; sorted one by one it was 60
        self.assertEqual(report["traffic"]["moved"], 170000)

    def test_times_beyond_the_clock(self):
        """What would end after 2189 does not end: nothing wraps around."""
        config = self.write("y.yaml", """version: 1
sets: { api: { limits: [ { type: resource, key: c, capacity: 1 } ] } }
""")
        trace = self.write("t.csv", "time,hold\n" + 4 * "6917529026,6917529026\n")
        report = self.report("-f", config, "-H", "hold", trace)["candidates"][0]
        self.assertEqual((report["decisions"]["granted"], report["decisions"]["undecided"]), (1, 3))

    def test_wrong_lines(self):
        text = "time,n\n1,60\nx,60\n2,-1\n3\n\n4,60\n" + "y" * 1100000 + "\n" + "5," + "0" * 3000000 + "\n5,60"
        done = self.run_it("-f", self.config, "-a", "bytes=n", "-", text=text)
        self.assertIn("<stdin>:3: missing or wrong: time", done.stderr)
        self.assertIn("<stdin>:4: missing or wrong: n", done.stderr)
        self.assertIn("<stdin>:5: the line is malformed", done.stderr)
        self.assertIn("<stdin>:8: the line is too long", done.stderr)
        self.assertIn("<stdin>:9: the line is too long", done.stderr)
        self.assertIn("3 events", done.stdout)
        self.assertIn("5 lines were not understood", done.stdout)
        self.run_it("-f", self.config, "-a", "bytes=n", "--strict", "-", text=text, status=1)
        done = self.run_it("-f", self.config, "-T", "when", "-", text="time\n1\n", status=1)
        self.assertIn("there is no field `when`", done.stderr)
        self.assertIn("no events", self.run_it("-f", self.config, "-", text="", status=1).stderr)

    def test_times_at_the_edges(self):
        right = ["0", "1.5", "1970-01-01T00:00:00Z", "2000-02-29 23:59:59,25+00", "6917529027", "1999-12-31T23:59:60Z"]
        wrong = ["-1", "1.", ".5", "1e9", "1999-02-29x", "2026-13-01T00:00:00Z", "2026-01-00T00:00:00Z",
                 "1969-12-31T23:59:59Z", "1970-01-01T00:00:00+01:00", "31/Foo/2026:00:00:00 +0000", "99999999999999",
                 "18446744073709551616", "2026-01-01T00:00:00Zx", "6917529028"]
        for text in right:
            report = self.report("-f", self.config, "-F", "csv", self.write("t.csv", f'time\n"{text}"\n'))
            self.assertEqual(report["traffic"]["events"], 1, text)
        for text in wrong:
            self.run_it("-f", self.config, "-F", "csv", self.write("t.csv", f'time\n"{text}"\n'), status=1)

    def test_changed_lines(self):
        """Lines in which bytes were changed at random do no harm: for runs with sanitizers."""
        rng = random.Random(SEED)
        seeds = {
            "combined": '1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET /a?b=\\"c HTTP/1.1" 200 60 "-" "agent" 0.2',
            "json": '{"time": "2026-01-01T00:00:00.5Z", "bytes": 60, "a": {"b": [1.5e3, true, "\\u00e9\\n"]}}',
            "csv": '"2026-01-01T00:00:00Z",60,"a ""b"", c"',
        }
        for kind, line in seeds.items():
            lines = [b"time,bytes,path"] if kind == "csv" else []
            for _ in range(3000):
                changed = bytearray(line.encode())
                for _ in range(rng.randint(1, 3)):
                    at = rng.randrange(len(changed))
                    changed[at:at + rng.randint(0, 2)] = bytes(rng.choice(b'"[]{},:\\ \x00\xff0-9eZ+')
                                                               for _ in range(rng.randint(0, 2)))
                lines.append(bytes(changed))
            with open(self.path("trace"), "wb") as file:
                file.write(b"\n".join(lines))
            path = "a.b" if kind == "json" else "path"
            done = subprocess.run([COMMAND, "simulate", "-f", self.config, "-F", kind, "-a", "bytes=bytes", "-m", "try",
                                   "--route", path if kind != "json" else "bytes", self.path("trace")],
                                  capture_output=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, (SEED, kind, done.stderr[-2000:]))


class Reports(Simulation):
    def test_two_are_compared(self):
        a = self.write("a.yaml", SIMPLE)
        b = self.write("b.yaml", SIMPLE.replace("capacity: 100", "capacity: 200"))
        done = self.run_it("-f", a, "--compare", b, "-L", "poisson:150/s:5s", "-m", "try")
        self.assertRegex(done.stdout, r"A +B\n")
        report = self.report("-f", a, "--compare", b, "-L", "poisson:150/s:5s", "-m", "try")
        alone = self.report("-f", b, "-L", "poisson:150/s:5s", "-m", "try")
        self.assertEqual(report["candidates"][1], alone["candidates"][0])
        refused = [c["decisions"]["refused_busy"] for c in report["candidates"]]
        self.assertGreater(refused[0], refused[1])

    def test_binding_limit_and_use(self):
        config = self.write("x.yaml", """version: 1
sets:
  api:
    limits:
      - { type: call, algorithm: gcra, capacity: 1000, window: 1s }
      - { type: resource, key: conns, capacity: 4 }
""")
        report = self.report("-f", config, "-L", "even:100/s:60s", "-H", "20ms")["candidates"][0]
        calls, conns = report["limits"]
        self.assertIsNone(report["binding"])
        self.assertAlmostEqual(calls["used_thousandths"], 100, delta=1)
        self.assertAlmostEqual(conns["used_thousandths"], 500, delta=1)
        self.assertEqual(conns["held_most"], 2)
        report = self.report("-f", config, "-L", "even:250/s:10s", "-H", "20ms", "-w", "100ms")["candidates"][0]
        self.assertEqual(report["binding"], 1)
        self.assertGreater(report["limits"][1]["waited"], 100)
        self.assertEqual(report["limits"][0]["waited"] + report["limits"][0]["refused"], 0)

    def test_units_that_a_limit_in_shadow_has_not_are_not_used(self):
        """What it would refuse it does not take: so it is used as if it were enforced, and the refused stayed away."""
        limits = """    limits:
      - { type: call, algorithm: fixed_window, capacity: 100, window: 1s%s }
      - { type: resource, key: conns, capacity: 4%s }
"""
        head = "version: 1\nsets:\n  api:\n"
        for config in (limits % (", shadow: true", ", shadow: true"), "    shadow: true\n" + limits % ("", ""),
                       limits % (", enforce: 0%", ", enforce: 0%")):
            one = self.write("x.yaml", head + config)
            report = self.report("-f", one, "-L", "even:400/s:10s", "-H", "20ms")["candidates"][0]
            calls, conns = report["limits"]
            self.assertEqual(report["decisions"]["granted"], 4000)
            self.assertEqual((calls["granted"], calls["would_refuse"] + conns["would_refuse"]), (1000, 3000))
            self.assertEqual(conns["granted"], 1000)  # all that are in shadow decide together
            self.assertAlmostEqual(calls["used_thousandths"], 1000, delta=3)  # it ends 20 ms after the last one
            # 100 in a second, each for 20 ms of the 1000, of 4
            self.assertAlmostEqual(conns["used_thousandths"], 100 * 20 // 4, delta=1)
            self.assertLessEqual(conns["held_most"], 4)
        one = self.write("x.yaml", head + limits % ("", ", shadow: true"))
        calls, conns = self.report("-f", one, "-L", "even:100/s:10s", "-H", "100ms")["candidates"][0]["limits"]
        self.assertEqual((calls["granted"], conns["granted"], conns["would_refuse"]), (1000, 400, 600))
        self.assertAlmostEqual(conns["used_thousandths"], 1000, delta=10)
        self.assertEqual(conns["held_most"], 4)
        # A part of the subjects is enforced: those with numbers below 50. The others take what is left.
        one = self.write("x.yaml", head + limits % (", enforce: 50%", ""))
        trace = self.write("t.csv", "time,who\n" + "".join(f"{i // 200}.{i % 200 * 5:03},{i % 97}\n" for i in range(2000)))
        calls = self.report("-f", one, "-F", "csv", "-S", "who", "-m", "try", trace)["candidates"][0]["limits"][0]
        self.assertLessEqual(calls["granted"], 1000)
        self.assertGreater(calls["granted"], 900)
        self.assertGreater(calls["would_refuse"], 100)

    def test_png_needs_its_converter(self):
        """Without it the file that is there stays, and else there is none."""
        config = self.write("a.yaml", "version: 1\nsets: { api: { limits: [ { type: resource, key: slots, capacity: 2 } ] } }\n")
        self.write("there.png", "a plot of yesterday")
        for name in "there.png", "none.png":
            done = self.run_it("-f", config, "-L", "even:10/s:1s", "--png", self.path(name), status=3, PATH=self.folder.name)
            self.assertIn("a PNG needs rsvg-convert", done.stderr)
        self.assertEqual(self.read("there.png"), "a plot of yesterday")
        self.assertFalse(os.path.exists(self.path("none.png")))

    def test_plot_is_xml(self):
        config = self.write("x.yaml", SIMPLE.replace("api", '"a<&>ä"'))
        self.run_it("-f", config, "--compare", config, "-L", "poisson:150/s:5s", "-w", "50ms", "--svg", self.path("x.svg"))
        text = " ".join(xml.etree.ElementTree.parse(self.path("x.svg")).getroot().itertext())
        self.assertIn("a<&>ä", text)
        self.assertNotRegex(self.read("x.svg"), r"nan|--\d|e\+")

    def test_suggestion_is_the_smallest(self):
        config = self.write("x.yaml", SIMPLE.replace(", burst: 10", ""))
        arguments = ["-L", "poisson:150/s:30s", "--seed", "3"]
        for limit, target in ("call_count", "p99<50ms"), ("api/call_count", "max<200ms,refused<1%"):
            found = self.report("-f", config, *arguments, "--suggest", limit, "--target", target)
            capacity = found["suggestion"]["capacity"]
            self.assertEqual(found["candidates"][0]["limits"][0]["capacity"], capacity)
            for tried, status in (capacity, 0), (capacity - 1, 1):
                edited = self.write("y.yaml", self.read("x.yaml").replace("capacity: 100", f"capacity: {tried}"))
                report = self.report("-f", edited, *arguments)["candidates"][0]
                rows = self.decisions("-f", edited, *arguments)
                waits = sorted(int(r["decided"]) - int(r["time"]) for r in rows.values())
                beyond = waits[-(-len(waits) * 99 // 100) - 1] >= 50 * MS if "p99" in target else waits[-1] >= 200 * MS
                self.assertEqual(beyond, bool(status), (tried, target, report["waits_ns"]))

    def test_suggestions_within_what_an_algorithm_can_do(self):
        """Capacities that the configuration cannot have do not meet a target, and are no complaint."""
        slow = "{ type: call, algorithm: gcra, capacity: 1, window: 1s }"
        config = self.write("x.yaml", f"""version: 1
sets: {{ api: {{ limits: [ {{ type: rate, key: t, algorithm: sliding_window, capacity: 5, window: 30d }}, {slow} ] }} }}
""")
        done = self.run_it("-f", config, "-L", "even:5/s:1s", "--suggest", "t", "--target", "max<1ms", status=1)
        self.assertIn("no capacity of api/t up to 4194293 meets the target", done.stdout)
        self.assertEqual(done.stderr, "")
        found = self.report("-f", config, "-L", "even:1/s:100s", "--suggest", "t", "--target", "max<1s")
        self.assertEqual(found["suggestion"]["capacity"], 100)
        config = self.write("x.yaml", """version: 1
sets: { api: { limits: [ { type: resource, key: c, algorithm: aimd, capacity: 64, floor: 40 } ] } }
""")
        found = self.report("-f", config, "-L", "even:30/s:10s", "--suggest", "c", "--target", "max<1s")
        self.assertEqual(found["suggestion"]["capacity"], 40)  # the floor
        config = self.write("x.yaml", """version: 1
sets: { api: { limits: [ { type: rate, key: t, algorithm: multi_window, per_second: 5 } ] } }
""")
        done = self.run_it("-f", config, "-L", "even:30/s:10s", "--suggest", "t", "--target", "max<1ms", status=1)
        self.assertIn("has no `capacity`", done.stderr)

    def test_sets_without_a_key_of_the_other_are_compared(self):
        a = self.write("a.yaml", """version: 1
sets: { api: { strict: true, limits: [ { type: rate, key: t, algorithm: token_bucket, capacity: 10, window: 1s } ] } }
""")
        b = self.write("b.yaml", """version: 1
sets:
  x: { strict: true, limits: [ { type: resource, key: c, capacity: 2 } ] }
  y: { strict: true, limits: [ { type: resource, key: c, capacity: 2 } ] }
pools: { p: { sets: [x, y] } }
""")
        arguments = "-L", "even:20/s:10s", "-m", "try", "-H", "10ms"
        for first, second in (a, b), (b, a):
            report = self.report("-f", first, "--compare", second, "-a", "t=2", "-a", "c=1", *arguments)
            granted = {c["file"][-6:]: c["decisions"]["granted"] for c in report["candidates"]}
            self.assertEqual(granted["b.yaml"], 200)
            self.assertLess(granted["a.yaml"], 60)
        self.assertIn("no limit has the key `z`", self.run_it("-f", a, "--compare", b, "-a", "z=2", *arguments, status=1).stderr)

    def test_one_instant_has_no_use(self):
        config = self.write("x.yaml", SIMPLE)
        done = self.run_it("-f", config, self.write("t.csv", "time\n5\n5\n"))
        self.assertRegex(done.stdout, r"call_count +call +100/1s +- +")
        self.assertIsNone(json.loads(self.run_it("-f", config, "--json", self.path("t.csv")).stdout)
                          ["candidates"][0]["limits"][0]["used_thousandths"])

    def test_refusals_miss_a_target_of_waits(self):
        config = self.write("x.yaml", SIMPLE.replace(", burst: 10", "").replace("limits", "max_wait: 10ms\n    limits"))
        found = self.report("-f", config, "-L", "even:300/s:10s", "--suggest", "call_count", "--target", "p90<1s")
        self.assertGreater(found["suggestion"]["capacity"], 100)

    def test_shared_sets_and_engines_stay_untouched(self):
        config = self.write("x.yaml", f"""version: 1
process_dir: {self.path('none')}
sets:
  api:
    backend: process
    lifetime: users
    limits: [ {{ type: resource, key: conns, capacity: 2 }} ]
""")
        os.mkdir(self.path("shared"), 0o700)
        os.environ["WEIR_PROCESS_DIR"] = self.path("shared")
        self.addCleanup(os.environ.pop, "WEIR_PROCESS_DIR")
        report = self.report("-f", config, "-L", "even:10/s:1s", "-H", "500ms", "-m", "try")["candidates"][0]
        self.assertEqual((report["decisions"]["granted"], report["decisions"]["refused_busy"]), (4, 6))
        self.assertFalse(os.path.exists(self.path("none")))
        self.assertEqual(os.listdir(self.path("shared")), [])

    @unittest.skipUnless(any(os.path.exists(os.path.join(path, "redis.so"))
                             for path in os.environ.get("WEIR_PLUGIN_PATH", "").split(":")), "there is no redis plugin")
    def test_an_engine_is_not_asked(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            config = self.write("x.yaml", f"""version: 1
backends:
  main: {{ type: redis, url: "redis://127.0.0.1:{listener.getsockname()[1]}" }}
sets:
  api:
    backend: main
    on_failure: closed
    limits:
      - {{ type: call, algorithm: gcra, capacity: 5, window: 1s }}
      - {{ type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s, lease: {{ for: 100ms }} }}
""")
            report = self.report("-f", config, "-L", "burst:20/s:1s", "-m", "try")["candidates"][0]
            listener.settimeout(0.1)
            self.assertRaises(TimeoutError, listener.accept)
        self.assertEqual((report["decisions"]["granted"], report["decisions"]["refused_busy"]), (5, 15))

    def test_wrong_usage(self):
        config = self.write("x.yaml", SIMPLE)
        for arguments in ([], ["-L", "poisson:1/s:1s", "trace"], ["-L", "poisson:1/s"], ["-L", "x:1/s:1s"],
                          ["-m", "later", "-"], ["-a", "bytes", "-"], ["--target", "p99<x", "-"],
                          ["--target", "p99<1s", "-L", "even:1/s:1s"], ["-L", "even:1/s:1s", "-H", "field"],
                          ["--reorder", "0", "-"], ["a", "b"], ["--suggest", "call_count", "--target", "p99<1s", "-"]):
            self.run_it("-f", config, *arguments, status=2)
        self.run_it("-f", config, "-L", "even:1/s:1s", "-H", "50000d", status=2)
        self.assertIn("no limit has the key `x`",
                      self.run_it("-f", config, "-L", "even:1/s:1s", "-a", "x=1", status=1).stderr)
        self.assertIn("there is no limit `x`", self.run_it("-f", config, "-L", "even:1/s:1s", "--suggest", "x",
                                                           "--target", "p99<1s", status=1).stderr)
        self.run_it("-f", self.path("none"), "-L", "even:1/s:1s", status=3)
        self.run_it("-f", config, self.path("none"), status=3)
        self.run_it("-f", self.write("y.yaml", "version: 2\n"), "-", text="", status=1)


SERVER_CONFIG = """version: 1
sets:
  us:
    timeout: 60ms
    max_waiters: 6
    limits:
      - { type: call, algorithm: gcra, capacity: 60, window: 1s, burst: 5 }
      - { type: resource, key: connections, capacity: 3 }
  eu:
    max_wait: 80ms
    limits:
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 600, window: 1s, burst: 60 }
      - { type: resource, key: connections, capacity: 4 }
pools:
  api: { balancer: round_robin, sets: [us, eu] }
"""


@unittest.skipIf(SERVER is None, "the example server is not built")
class Reproduction(Simulation):
    """What the server decided while it ran, with threads as clients, is decided again."""

    def client(self, port, rng, n):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(n):
            tokens = rng.randint(1, 20)
            connection.request("GET", "/", headers={"X-Tokens": str(tokens), "X-Used": str(rng.randint(0, tokens)),
                                                    "X-Service-Ms": str(rng.choice([0, 1, 5, 20, 60]))})
            connection.getresponse().read()
            time.sleep(rng.random() * 0.01)
        connection.close()

    def record(self, config):
        trace = self.path("trace.csv")
        server = subprocess.Popen([SERVER, "--trace", trace, config], stdout=subprocess.PIPE, text=True)
        port = int(re.search(r":(\d+)$", server.stdout.readline().strip()).group(1))
        threads = [threading.Thread(target=self.client, args=(port, random.Random(SEED + i), 30)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 0)
        server.stdout.close()
        return trace

    def test_event_for_event(self):
        config = self.write("server.yaml", SERVER_CONFIG)
        trace = self.record(config)
        with open(trace, encoding="utf-8", newline="") as file:
            recorded = list(csv.DictReader(file))
        rows = self.decisions("-f", config, "-T", "time:ns", "-a", "tokens=tokens", "--used", "tokens=used",
                              "-H", "hold:ns", trace)
        self.assertEqual(len(recorded), 16 * 30)
        self.assertEqual(len(rows), len(recorded))
        for i, live in enumerate(recorded):
            row = rows[i + 2]
            self.assertEqual((row["time"], row["decision"], row["set"]), (live["time"], live["decision"], live["set"]),
                             f"seed {SEED}, {live}")
            if live["decision"].startswith("granted"):
                self.assertEqual(row["decided"], live["decided"], f"seed {SEED}, {live}")
        words = {live["decision"] for live in recorded}
        for word in "granted", "granted_waited", "refused_max_wait", "timed_out":
            self.assertIn(word, words)


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main(argv=sys.argv[:1], verbosity=2)
