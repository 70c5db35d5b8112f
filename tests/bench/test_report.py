# SPDX-License-Identifier: MIT
"""The arithmetic of bench/run: when a figure is stable, what its verdict is, when a machine is too
noisy; and what is drawn and written of it. Argument: bench/run."""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from xml.etree import ElementTree

RUN = pathlib.Path(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, str(RUN.parent))

from report import machine, peers, plot, programs, series, table, targets  # noqa: E402


def line(name, runs_rounds, bench="costs", **more):
    """A line as a benchmark prints it, with these ratios round by round."""
    return {"bench": bench, "name": name, "min_ns": 9.0, "median_ns": 10.0, "p99_ns": 20.0,
            "max_ns": 30.0, "spread": 0.01, "rounds": len(runs_rounds), "baseline": "raw",
            "ratio": 1.0, "ratio_p99": 1.0, "ratio_spread": 0.01, "difference_ns": 1.0,
            "each": {"median_ns": [10.0 * ratio for ratio in runs_rounds],
                     "p99_ns": [20.0 * ratio for ratio in runs_rounds], "ratio": runs_rounds,
                     "ratio_p99": runs_rounds,
                     "difference_ns": [10.0 * ratio - 10.0 for ratio in runs_rounds]}} | more


def raw(spread=0.01):
    return {"bench": "costs", "name": "raw", "min_ns": 9.0, "median_ns": 10.0, "p99_ns": 20.0,
            "max_ns": 30.0, "spread": spread, "rounds": 2,
            "each": {"median_ns": [10.0, 10.0], "p99_ns": [20.0, 20.0]}}


def figure(name, *runs, **more):
    return series.Figure([line(name, rounds, **more) for rounds in runs])


def value(name, *values, unit="bytes each", bench="parked"):
    return series.Figure([{"bench": bench, "name": name, "value": v, "unit": unit}
                          for v in values])


class SeriesTest(unittest.TestCase):
    def test_the_value_is_the_median_of_the_runs_medians(self):
        # The median of all rounds would be 1: the long run does not outvote the others.
        made = series.Series([[1, 1, 1, 1, 1, 1, 1], [5, 6, 7], [8]])
        self.assertEqual(made.value, 6)
        self.assertEqual(made.medians, [1, 6, 8])

    def test_the_whiskers_are_the_middle_half_of_all_rounds(self):
        made = series.Series([[1, 2, 3], [4, 5]])
        self.assertEqual((made.low, made.high), (2, 4))

    def test_one_round_has_no_spread_and_one_run_no_certainty(self):
        made = series.Series([[3]])
        self.assertEqual((made.value, made.low, made.high, made.error), (3, 3, 3, math.inf))
        self.assertFalse(made.is_stable())

    def test_the_error_is_that_of_student(self):
        self.assertAlmostEqual(series.error_of([1, 2, 3]), 4.30 / math.sqrt(3))
        self.assertAlmostEqual(series.error_of([1, 3]), 12.71)
        self.assertEqual(series.error_of([2, 2, 2, 2]), 0)
        many = [1, 2] * 10  # beyond the table
        self.assertAlmostEqual(series.error_of(many), 2.14 * 0.51298918 / math.sqrt(20), places=6)

    def test_more_runs_make_sure(self):
        runs = [[1.0], [1.1], [1.05]]
        self.assertGreater(series.Series(runs).error, series.Series(runs * 3).error)

    def test_stable_is_within_a_twentieth_or_the_slack(self):
        self.assertTrue(series.Series([[100], [101], [102]]).is_stable())
        self.assertFalse(series.Series([[100], [105], [102]]).is_stable())
        near_nothing = series.Series([[-1], [0], [1]])
        self.assertFalse(near_nothing.is_stable())
        self.assertTrue(near_nothing.is_stable(slack=3))
        self.assertFalse(near_nothing.is_stable(slack=2))

    def test_figures_that_a_run_lacks_are_left_out(self):
        runs = [{"a": line("a", [1.0]), "b": line("b", [1.0])}, {"b": line("b", [2.0])}]
        self.assertEqual([made.name for made in series.combine(runs)], ["b"])

    def test_a_figure_tells_extremes_and_counts_of_all_runs(self):
        made = series.Figure([line("a", [1.0, 1.0]), line("a", [1.0], min_ns=5.0, max_ns=99.0)])
        self.assertEqual((made.low_ns, made.high_ns, made.runs, made.rounds), (5, 99, 2, 3))


class TargetTest(unittest.TestCase):
    target = targets.Target(1, "costs", "x", "ratio", 1.3, 1.1)

    def verdict(self, *medians, target=target):
        return targets.verdict_of(figure("x", *([median] for median in medians)), target)

    def test_verdicts(self):
        self.assertEqual(self.verdict(1.05, 1.05, 1.05), targets.STRETCH)
        self.assertEqual(self.verdict(1.1, 1.1), targets.STRETCH)
        self.assertEqual(self.verdict(1.11, 1.11), targets.MET)
        self.assertEqual(self.verdict(1.3, 1.3), targets.MET)
        self.assertEqual(self.verdict(1.31, 1.31), targets.MISSED)

    def test_a_verdict_has_to_be_sure(self):
        self.assertEqual(self.verdict(1.2), targets.UNDECIDED)
        self.assertEqual(self.verdict(9.0), targets.UNDECIDED)
        self.assertEqual(self.verdict(1.2, 1.3, 1.25), targets.UNDECIDED)
        self.assertEqual(self.verdict(1.35, 1.45, 1.40), targets.UNDECIDED)
        self.assertEqual(self.verdict(1.08, 1.09, 1.10), targets.MET)  # not surely the stretch

    def test_a_time_of_a_busy_machine_decides_nothing_but_a_ratio_does(self):
        made = figure("x", [1.0], [1.0], [1.0])
        time = targets.Target(8, "costs", "x", "median_ns", 150, 60)
        self.assertEqual(targets.verdict_of(made, time), targets.STRETCH)
        made.disturbed = True
        self.assertEqual(targets.verdict_of(made, time), targets.UNDECIDED)
        self.assertEqual(targets.verdict_of(made, self.target), targets.STRETCH)

    def test_a_target_may_have_no_stretch(self):
        target = targets.Target(1, "costs", "x", "ratio", 1.3)
        self.assertEqual(self.verdict(0.1, 0.1, target=target), targets.MET)

    def test_a_target_may_be_a_least_value(self):
        target = targets.Target(5, "costs", "x", "ratio", 45, 49, at_least=True)
        for runs, verdict in (((50, 50), targets.STRETCH), ((49, 49), targets.STRETCH),
                              ((48, 48), targets.MET), ((45, 45), targets.MET),
                              ((44, 44), targets.MISSED), ((44, 46), targets.UNDECIDED),
                              ((44, 44.01, 44), targets.MISSED)):
            with self.subTest(runs=runs):
                self.assertEqual(self.verdict(*runs, target=target), verdict)

    def numbers(self, made):
        return [(target.number, target.metric, target.target) for target in
                targets.targets_of(made)]

    def test_each_figure_finds_its_targets(self):
        for bench, name, expected in (
                ("costs", "take, rate", [(1, "ratio", 1.3)]),
                ("costs", "take, rate, refused", [(1, "ratio", 1.1)]),
                ("costs", "take, rate, lease of 32", [(1, "median_ns", 5)]),
                ("costs", "acquire + release, call", [(2, "ratio", 1.6)]),
                ("costs", "acquire + update + release, rate", [(2, "ratio", 1.6)]),
                ("costs", "acquire + release, resource", [(3, "ratio", 2)]),
                ("costs", "acquire + release, 3 limits", [(4, "ratio", 0.6)]),
                ("costs", "two: take, rate", [(5, "ratio", 1)]),
                ("costs", "two: acquire + release, resource", [(5, "ratio", 1)]),
                ("costs", "two: acquire + release, call", []),
                ("costs", "two, single: take, rate", []),
                ("costs", "two, single: acquire + release, 3 limits", [(5, "p99_ns", 2000)]),
                ("wake", "completion queue, looked at", [(6, "difference_ns", 500)]),
                ("wake", "acquisition, attached, looked at", [(6, "difference_ns", 500)]),
                ("wake", "completion queue, epoll, readable", [(6, "ratio_p99", 1.15)]),
                ("wake", "acquisition fd, poll", [(6, "ratio_p99", 1.15)]),
                ("wake", "completion queue, epoll", []),
                ("wake", "late: completion queue, epoll", [(7, "difference_ns", 2000)]),
                ("wake", "late: acquisition fd, epoll", [(7, "difference_ns", 12000)]),
                ("parked", "submit, 1 limit", [(8, "median_ns", 80)]),
                ("parked", "submit, 1 limit, timeouts", [(8, "median_ns", 150)]),
                ("parked", "submit, 3 limits", [(8, "median_ns", 150)]),
                ("parked", "submit, mean of all, 3 limits", []),
                ("process", "take, process", [(9, "ratio", 1.5)]),
                ("process", "two: take, process", [(9, "ratio", 1.3)]),
                ("process", "two: acquire and release, process", [(9, "ratio", 1.1)]),
                ("process", "release: acquisition fd, poll", [(9, "difference_ns", 2000)]),
                ("process", "release: blocked", [])):
            with self.subTest(name=name):
                self.assertEqual(self.numbers(figure(name, [1.0], bench=bench)), expected)
        self.assertEqual(self.numbers(value("memory, 1 limit", 99)), [(8, "value", 80)])
        self.assertEqual(self.numbers(value("memory, 3 limits", 99)), [(8, "value", 128)])

    def test_a_baseline_has_no_ratio_and_so_no_target(self):
        made = series.Figure([raw() | {"name": "take, rate"}])
        self.assertEqual(targets.targets_of(made), [])

    def test_measuring_goes_on_until_stable_and_decided(self):
        self.assertTrue(targets.is_stable(figure("take, rate", [1.0], [1.01], [1.0])))
        self.assertFalse(targets.is_stable(figure("take, rate", [1.0], [1.2], [1.1])))
        self.assertFalse(targets.is_stable(figure("take, rate", [1.29], [1.31], [1.30])))
        self.assertTrue(targets.is_stable(figure("without a target", [1.0], [9.0])))


class MachineTest(unittest.TestCase):
    def test_a_quiet_machine(self):
        self.assertEqual(machine.disturbances(busy=10, own=9.9, stolen=0, whole=20), [])

    def test_own_time_may_be_more_than_the_kernel_has_counted(self):
        self.assertEqual(machine.disturbances(busy=10, own=10.2, stolen=0, whole=20), [])

    def test_others(self):
        found = machine.disturbances(busy=12, own=10, stolen=0, whole=20)
        self.assertEqual(len(found), 1)
        self.assertIn("10%", found[0])

    def test_the_host(self):
        found = machine.disturbances(busy=10, own=10, stolen=1, whole=20)
        self.assertEqual(len(found), 1)
        self.assertIn("5%", found[0])

    def test_the_kernels_account(self):
        tick = os.sysconf("SC_CLK_TCK")
        numbers = [1, 2, 3, 100, 200, 4, 5, 6, 70, 80]  # guests are within user and nice
        text = "cpu  " + " ".join(str(n * tick) for n in numbers) + "\ncpu0 1\ncpu1 1\nintr 7\n"
        ticks = machine.Ticks(text)
        self.assertEqual((ticks.busy, ticks.stolen, ticks.processors), (15, 6, 2))

    def test_a_watch_knows_own_work_from_others(self):
        watch = machine.Watch()
        subprocess.run([sys.executable, "-c", "sum(range(1000000))"], check=True)
        ticks, own, _now = watch.now()
        self.assertGreater(own, watch.begin[1])
        self.assertGreaterEqual(ticks.busy, watch.begin[0].busy)

    def test_unoptimized(self):
        self.assertTrue(machine.is_optimized({"compiler": "gcc 12 -O3"}))
        self.assertFalse(machine.is_optimized({"compiler": "gcc 12 -O0"}))
        self.assertFalse(machine.is_optimized({"compiler": "gcc 12"}))

    def test_the_compiler_of_a_build(self):
        with tempfile.TemporaryDirectory() as directory:
            build = pathlib.Path(directory)
            self.assertEqual(machine.compiler(build), "unknown")
            (build / "compile_commands.json").write_text(json.dumps([
                {"file": "other.c", "command": "cc -O0"},
                {"file": "../core/api/acquire.c", "command": "ccache nocc -g -O2 -Ithere"}]))
            self.assertEqual(machine.compiler(build), "nocc -O2")


class TableTest(unittest.TestCase):
    def test_a_row_has_figure_target_and_verdict(self):
        text = table.table_of([figure("take, rate", [1.0, 1.1, 1.2], [1.1, 1.1, 1.1])])
        self.assertIn("1.10 ±0 [1.10 1.10]", text)
        self.assertIn("#1 ratio 1.10 ±0 <= 1.3 (1.1) stretch", text)

    def test_a_second_target_has_a_line_of_its_own(self):
        both = (targets.Target(6, "wake", "x", "difference_ns", 500, 100),
                targets.Target(6, "wake", "x", "ratio_p99", 1.15, None))
        made = figure("x", [1.2, 1.2], [1.2, 1.2], bench="wake")
        with unittest.mock.patch.object(targets, "TARGETS", both):
            lines = table.table_of([made]).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("#6 added 0.002 ±0 us <= 0.5 (0.1) stretch", lines[1].replace("0.00200", "0.002"))
        self.assertIn("#6 p99 ratio 1.20 ±0 <= 1.15 missed", lines[2])

    def test_of_a_single_run_no_certainty_is_claimed(self):
        self.assertNotIn("±", table.table_of([figure("take, rate", [1.0, 1.1])]))

    def test_a_least_value_is_shown_as_one(self):
        made = value("two, share: acquire + release, 3 limits", 48, 48, unit="% by the slower",
                     bench="costs")
        self.assertIn("#5 48.0 ±0 >= 45 met", table.table_of([made]))
        self.assertTrue(table.line_of(made, {})["targets"][0]["at_least"])

    def test_another_build_has_columns_of_its_own(self):
        figures = [figure("take, rate", [1.0], [1.0]), value("memory, x", 99, 99),
                   figure("new", [2.0], [2.0]), value("changed", 1, 1)]
        others = [figure("take, rate", [1.5], [1.5], min_ns=7.0), value("memory, x", 130, 130),
                  value("changed", 1, 1, unit="other"), figure("old", [1.0], [1.0])]
        series.put_beside(figures, others)
        heading, take, memory, new, changed = table.table_of(figures).splitlines()
        self.assertEqual(heading.index("its min") + len("its min"), take.index("7.0") + len("7.0"))
        self.assertRegex(take, r"^take, rate .* 1.00 ±0 \[1.00 1.00\] +7.0 +15.0 +30.0  1.50 +#1 ratio")
        self.assertEqual(take.index("#1"), heading.index("target"))
        self.assertRegex(memory, r"^memory, x +99.0 +bytes each +130 +#8 ")
        self.assertTrue(new.endswith("2.00 ±0 [2.00 2.00]"))  # the other build has none
        self.assertTrue(changed.endswith("bytes each"))  # what has another unit is another figure
        line_of_take = table.line_of(figures[0], {})
        self.assertEqual(line_of_take["beside"]["ratio"], 1.5)
        self.assertNotIn("targets", line_of_take["beside"])
        self.assertNotIn("beside", table.line_of(figures[2], {}))

    def test_without_another_build_there_are_no_columns_for_it(self):
        self.assertNotIn("its min", table.table_of([figure("take, rate", [1.0], [1.0])]))

    def test_numbers_have_three_digits(self):
        for given, written in ((1.0, "1.00"), (0.9, "0.900"), (123.4, "123"), (999.6, "1000"),
                               (12345.6, "12346"), (0, "0"), (-0.5, "-0.500")):
            self.assertEqual(table.number(given), written)

    def test_loud_baselines(self):
        own = figure("ours", [1.0])
        self.assertEqual(table.loud_baselines([series.Figure([raw(0.09)]), own]), [])
        self.assertEqual(table.loud_baselines([series.Figure([raw(0.5)]), own]), ["`raw` (50%)"])
        self.assertEqual(table.loud_baselines([series.Figure([raw(0.5)])]), [])

    def test_undecided(self):
        figures = [figure("take, rate", [1.0], [2.0]), figure("take, call", [1.0], [1.0]),
                   figure("free", [1.0], [2.0])]
        self.assertEqual(table.undecided(figures), ["take, rate"])

    def test_a_line(self):
        made = table.line_of(figure("take, rate", [1.0, 1.1], [1.2, 1.1]), {"commit": "c"})
        self.assertEqual(json.loads(json.dumps(made)), made)
        self.assertEqual((made["runs"], made["rounds"], made["commit"]), (2, 4, "c"))
        self.assertEqual(made["targets"], [{"number": 1, "metric": "ratio", "target": 1.3,
                                            "stretch": 1.1, "at_least": False,
                                            "verdict": "undecided"}])
        one_run = table.line_of(figure("take, rate", [1.0]), {})
        self.assertIsNone(json.loads(json.dumps(one_run))["ratio_error"])
        self.assertEqual(table.line_of(value("memory, x", 1.5), {})["value"], 1.5)


class PlotTest(unittest.TestCase):
    svg = "{http://www.w3.org/2000/svg}"

    def draw(self, figures, **more):
        return ElementTree.fromstring(plot.plot("a < b", "c & d", figures, **more))

    def texts(self, tree):
        return ["".join(text.itertext()) for text in tree.iter(self.svg + "text")]

    def test_steps_are_1_2_or_5(self):
        for given, step in ((0.9, 1), (1, 1), (1.1, 2), (2.1, 5), (5.1, 10), (0.03, 0.05), (70, 100)):
            self.assertAlmostEqual(plot.nice_step(given), step)

    def test_an_axis_holds_what_is_drawn_on_it(self):
        axis = plot.Linear(0.5, 7.3)
        self.assertEqual(axis.at(0), plot.NAMES)
        self.assertLessEqual(axis.at(7.3), plot.NAMES + plot.SPAN)
        self.assertGreater(axis.at(7.3), plot.NAMES + plot.SPAN / 2)
        self.assertEqual(axis.at(1e9), plot.NAMES + plot.SPAN)
        below = plot.Linear(-3, 10)
        self.assertLess(below.at(-3), below.at(0))
        logarithmic = plot.Logarithmic(3, 3000)
        self.assertAlmostEqual(logarithmic.at(100) - logarithmic.at(10),
                               logarithmic.at(1000) - logarithmic.at(100))

    def test_a_bar_is_as_long_as_its_ratio(self):
        tree = self.draw([figure("take, rate", [1.0], [1.0]), figure("take, call", [2.0], [2.0])])
        bars = [rect for rect in tree.iter(self.svg + "rect")
                if rect.get("fill") in plot.COLORS.values()]
        one, two = (float(bar.get("width")) for bar in bars)
        self.assertAlmostEqual(two, 2 * one, places=0)
        self.assertEqual([bar.get("fill") for bar in bars],
                         [plot.COLORS[targets.STRETCH], plot.COLORS[targets.MISSED]])

    def test_the_target_stands_where_a_bar_of_that_length_would_end(self):
        tree = self.draw([figure("take, rate", [1.3], [1.3])])
        bar = next(rect for rect in tree.iter(self.svg + "rect")
                   if rect.get("fill") == plot.COLORS[targets.MET])
        ticks = [line for line in tree.iter(self.svg + "line") if line.get("stroke-width") == "2.2"]
        self.assertEqual(len(ticks), 1)
        self.assertAlmostEqual(float(ticks[0].get("x1")),
                               float(bar.get("x")) + float(bar.get("width")), places=0)

    def test_what_is_far_off_is_cut_and_says_so(self):
        tree = self.draw([figure("take, rate", [1.0], [1.0]), figure("take, call", [1.0], [1.0]),
                          figure("acquire + release, resource", [99.0], [99.0])])
        cuts = [line for line in tree.iter(self.svg + "line") if line.get("stroke") == "white"]
        self.assertEqual(len(cuts), 2)
        self.assertIn("99.0 of 2: missed", self.texts(tree))

    def test_a_long_name_is_made_to_fit(self):
        tree = self.draw([figure("w" * 60, [1.0], [1.0]), figure("short", [1.0], [1.0])])
        for text in tree.iter(self.svg + "text"):
            if text.text in ("w" * 60, "short"):
                size = float(text.get("style").removeprefix("font-size: ").removesuffix("px"))
                self.assertEqual(size < plot.LETTER, text.text != "short")
                self.assertLess(size * len(text.text), plot.LETTER * (plot.NAME_LETTERS + 1))

    def test_names_and_warnings_are_text(self):
        tree = self.draw([figure("<b> & \"x\"", [1.0], [1.0])], warning="loud & <noisy>")
        self.assertIn("<b> & \"x\"", self.texts(tree))
        self.assertIn("loud & <noisy>", self.texts(tree))
        self.assertIn("a < b", self.texts(tree))

    def test_times_have_their_units(self):
        for given, written in ((5.04, "5.04 ns"), (1500, "1.5 µs"), (2e6, "2 ms"), (3e9, "3 s")):
            self.assertEqual(plot.time(given), written)


GO, RUST, CPP = peers.ECOSYSTEMS


class PeersTest(unittest.TestCase):
    def test_the_ratio_is_that_of_one_round(self):
        for ecosystem in peers.ECOSYSTEMS:
            same = peers.same_figures(ecosystem)
            ours = {name: line(name, [1.0], median_ns=30.0, p99_ns=90.0) for name in same.values()}
            theirs = {name: raw() | {"name": name, "median_ns": 60.0, "p99_ns": 60.0} for name in same}
            merged = peers.merge(ecosystem, ours, theirs)
            with self.subTest(ecosystem=ecosystem.name):
                self.assertEqual(merged.keys(), ours.keys() | theirs.keys())
                for name, own in same.items():
                    made = series.Figure([merged[name]] * 2)
                    self.assertEqual((made.get("ratio").value, made.get("ratio_p99").value,
                                      made.get("difference_ns").value), (2, 60 / 90, 30))
                    self.assertEqual((made.bench, made.baseline), (f"peers_{ecosystem.name}", own))
                    self.assertIsNone(series.Figure([merged[own]]).get("ratio"))

    def test_a_figure_that_either_lacks_is_not_compared(self):
        ours, theirs = {"take, call": raw() | {"name": "take, call"}}, {
            name: raw() | {"name": name} for name in ("x/time/rate: Allow", "of no figure of weir")}
        self.assertEqual(list(peers.merge(GO, ours, theirs)), ["take, call", "x/time/rate: Allow"])
        self.assertEqual(peers.merge(GO, ours, {}), {})
        self.assertEqual(peers.merge(GO, {}, theirs), {})

    def test_an_ecosystem_is_one_entry(self):
        names = [name for ecosystem in peers.ECOSYSTEMS for name in peers.same_figures(ecosystem)]
        self.assertEqual(len(names), len(set(names)))
        sources = {path.name for path in (RUN.parent / "peers").iterdir()}
        self.assertEqual(sources, {ecosystem.source for ecosystem in peers.ECOSYSTEMS})

    def test_a_command_of_several_words(self):
        with unittest.mock.patch.dict(os.environ, {"CXX": "ccache g++ -m64", "GO": ""}):
            self.assertEqual(peers.command_of("CXX", "g++"), ["ccache", "g++", "-m64"])
            self.assertEqual(peers.command_of("GO", "go"), ["go"])


# A compiler, of any language: says what it was told, and makes a program that prints `lines`.
COMPILER = """#!/bin/sh
echo "$0 $*" >> {log}
env >> {log}
program=$PWD/target/release/peers
while [ $# -gt 0 ]; do
    [ "$1" != -o ] || program=$2
    shift
done
mkdir -p "${{program%/*}}"
echo '#!/bin/sh
cat {lines}' > "$program"
chmod +x "$program"
"""


class PeersCommandTest(unittest.TestCase):
    """bench/run --peers with compilers, sources and benchmarks that are but scripts."""

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.place = pathlib.Path(made.name)
        self.log = self.place / "log"
        self.log.touch()
        self.environment = {"GOPATH": str(self.place / "gopath"), "CRATES": str(self.place / "crates"),
                            "CARGO_TARGET_DIR": "/nonexistent", "RUSTFLAGS": "--wrong",
                            "HOME": str(self.place / "home")}
        for path in ("golang.org/x/time/rate", "golang.org/x/sync/semaphore", "github.com/juju/ratelimit"):
            (self.place / "gopath/src" / path).mkdir(parents=True)
        (self.place / "crates/tokio-1.24.2").mkdir(parents=True)
        for variable, ecosystem in (("GO", GO), ("CARGO", RUST), ("CXX", CPP)):
            lines = self.place / f"{ecosystem.name}.json"
            self.write_lines(lines, peers.same_figures(ecosystem))
            self.environment[variable] = self.script(
                ecosystem.name, COMPILER.format(log=self.log, lines=lines))
        ours = self.place / "ours.json"
        self.write_lines(ours, {name for ecosystem in peers.ECOSYSTEMS
                                for name in peers.same_figures(ecosystem).values()})
        self.script("build/bench/costs", f"#!/bin/sh\necho costs >> {self.log}\ncat {ours} > $2\n")

    def write_lines(self, path, names):
        path.write_text("".join(json.dumps(raw() | {"name": name}) + "\n" for name in names))

    def script(self, name, text):
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def run_it(self, **environment):
        return subprocess.run(
            [sys.executable, RUN, "--build", self.place / "build", "--peers", "--short"],
            capture_output=True, text=True, env=os.environ | self.environment | environment, check=False)

    def compared(self):
        """The baselines of all figures with a ratio, by ecosystem."""
        found = {}
        path = self.place / "build/results/results.jsonl"
        for text in path.read_text().splitlines() if path.exists() else []:
            made = json.loads(text)
            if "ratio" in made:
                found.setdefault(made["bench"], {})[made["name"]] = made["baseline"]
        return found

    def expect(self, *ecosystems):
        self.assertEqual(self.compared(), {f"peers_{ecosystem.name}": peers.same_figures(ecosystem)
                                           for ecosystem in ecosystems})

    def test_each_ecosystem_in_turns_with_weir(self):
        done = self.run_it()
        self.assertIn(done.returncode, (0, 3), done.stdout + done.stderr)
        self.expect(GO, RUST, CPP)
        self.assertNotIn("skipped", done.stdout)
        self.assertEqual(self.log.read_text().count("costs\n"), 2 * len(peers.ECOSYSTEMS))
        for ecosystem in peers.ECOSYSTEMS:
            self.assertRegex(done.stdout, rf"(?m)^peers_{ecosystem.name}: .*: 2 runs$")
            ElementTree.parse(self.place / f"build/results/peers_{ecosystem.name}.svg")

    def test_nothing_is_fetched_and_no_home_is_used(self):
        self.run_it()
        told = self.log.read_text()
        self.assertRegex(told, r"(?m)/rust build --offline ")
        self.assertNotRegex(told, r"(?m)^(CARGO_TARGET_DIR|RUSTFLAGS)=")
        homes = re.findall(r"(?m)^CARGO_HOME=(.*)$", told)
        self.assertEqual(len(homes), 1)
        self.assertIn("weir-peers-", homes[0])
        self.assertFalse(pathlib.Path(homes[0]).exists())
        self.assertRegex(told, r"(?m)^GO111MODULE=off$")
        self.assertRegex(told, r"(?m)^GOENV=off$")
        self.assertFalse((self.place / "home").exists())

    def test_one_that_is_not_installed_is_named_and_the_others_are_measured(self):
        (self.place / "crates/tokio-1.24.2").rmdir()
        done = self.run_it()
        self.assertIn(done.returncode, (0, 3), done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^peers_rust: skipped: please install librust-tokio-dev$")
        self.expect(GO, CPP)

    def test_none_is_installed(self):
        done = self.run_it(GO="/nonexistent/go", CARGO="/nonexistent/cargo", CXX="/nonexistent/g++",
                           GOPATH="/nonexistent", CRATES="/nonexistent")
        self.assertEqual(done.returncode, 77, done.stderr)
        for ecosystem in peers.ECOSYSTEMS:
            self.assertIn(f"peers_{ecosystem.name}: skipped: please install "
                          f"{' '.join(ecosystem.packages)}\n", done.stdout)
        self.expect()
        self.assertEqual(self.log.read_text(), "")

    def test_one_that_does_not_compile(self):
        wrong = self.script("wrong", "#!/bin/sh\necho 'main: no such thing' >&2\nexit 2\n")
        done = self.run_it(CXX=wrong)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bench/peers/main.cc does not compile:\nmain: no such thing", done.stderr)
        self.expect()
        self.assertNotIn("costs\n", self.log.read_text())

    def test_one_that_does_the_wrong_thing(self):
        for wrong, why in (("echo not so >&2; exit 1", "main.cc: status 1\nnot so"),
                           ("exit 0", "main.cc: there are no figures"),
                           ("echo nonsense", "is no figure: nonsense")):
            (self.place / "wrong.sh").write_text(wrong)
            compiler = COMPILER.format(log=self.log, lines="/dev/null").replace(
                "cat /dev/null", f". {self.place}/wrong.sh")
            done = self.run_it(CXX=self.script("wrong", compiler))
            with self.subTest(wrong=wrong):
                self.assertEqual(done.returncode, 1)
                self.assertIn(why, done.stderr)


class CommandTest(unittest.TestCase):
    def run_it(self, *arguments, **environment):
        return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True,
                              env=os.environ | environment, check=False)

    def test_a_wrong_command_line(self):
        for wrong in (["no-such-benchmark"], ["--seconds", "0"], ["--runs", "0"], ["--seconds", "x"]):
            with self.subTest(wrong=wrong):
                self.assertEqual(self.run_it(*wrong).returncode, 2)

    def test_a_build_without_the_benchmark(self):
        with tempfile.TemporaryDirectory() as directory:
            done = self.run_it("--build", directory, "costs")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ninja -C", done.stderr)
        self.assertIn("bench/costs", done.stderr)

    def test_a_benchmark_that_fails_or_says_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "bench" / "costs"
            program.parent.mkdir()
            for script, why in (("echo it went wrong; exit 1", "it went wrong"),
                                ("exit 0", "no figures"),
                                ("echo nonsense > $2", "no figure")):
                program.write_text(f"#!/bin/sh\n{script}\n")
                program.chmod(0o755)
                done = self.run_it("--build", directory, "--short", "costs")
                with self.subTest(script=script):
                    self.assertEqual(done.returncode, 1)
                    self.assertIn(why, done.stderr)

    def test_another_build_is_measured_in_turns(self):
        with tempfile.TemporaryDirectory() as directory:
            place = pathlib.Path(directory)
            (place / "line").write_text(json.dumps(line("take, rate", [1.0])) + "\n")
            for build in ("this", "that"):
                program = place / build / "bench" / "costs"
                program.parent.mkdir(parents=True)
                program.write_text(f"#!/bin/sh\necho {build} >> {place}/log\ncat {place}/line > $2\n")
                program.chmod(0o755)
            done = self.run_it("--build", str(place / "this"), "--beside", str(place / "that"),
                               "--short", "costs")
            lines = (place / "this/results/results.jsonl").read_text().splitlines()
            self.assertEqual((place / "log").read_text().split(), ["this", "that"] * 2)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        self.assertRegex(done.stdout, r"(?m)^beside: commit: ")
        self.assertEqual(json.loads(lines[0])["beside"]["ratio"], 1.0)

    def test_the_sources_of_a_build(self):
        with tempfile.TemporaryDirectory() as directory:
            build = pathlib.Path(directory)
            self.assertEqual(programs.source_of(build), programs.SOURCE)
            (build / "meson-info").mkdir()
            for text, source in (('{"directories": {"source": "/there"}}', pathlib.Path("/there")),
                                 ("nonsense", programs.SOURCE), ("[]", programs.SOURCE)):
                (build / "meson-info" / "meson-info.json").write_text(text)
                self.assertEqual(programs.source_of(build), source)
            self.assertEqual(machine.commit(build), machine.commit(programs.SOURCE))

    def test_a_benchmark_that_cannot_run_here(self):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "bench" / "redis"
            program.parent.mkdir()
            program.write_text("#!/bin/sh\necho 'skipped: redis: there is no server'\n")
            program.chmod(0o755)
            done = self.run_it("--build", directory, "--short", "redis")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("skipped: redis: there is no server", done.stdout)

    def test_lines(self):
        self.assertEqual(programs.read_lines('{"name": "a"}\n{"name": "b"}\n').keys(), {"a", "b"})
        self.assertEqual(programs.read_lines(""), {})
        for wrong in ("x", '{"nam": 1}', "[1]", "1"):
            with self.subTest(wrong=wrong), self.assertRaises(programs.Failure):
                programs.read_lines(wrong)

    def test_what_was_skipped(self):
        self.assertEqual(programs.read_skipped("x\nskipped: a: no b\ny: skipped: c\n"), ["a: no b"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
