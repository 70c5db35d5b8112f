# SPDX-License-Identifier: MIT
"""bench/run over all benchmarks, each for a moment: what it prints, its lines of JSON, its plots.
How fast anything is, and how quiet the machine, is not this test's business.

Arguments: bench/run, the build directory, and the names of the benchmarks that are built there."""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

RUN, BUILD = (pathlib.Path(argument) for argument in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, str(RUN.parent))

from report import peers, programs, targets  # noqa: E402

TIME = ("min_ns", "median_ns", "p99_ns", "max_ns")
ABOUT = ("machine", "processors", "kernel", "compiler", "commit", "time", "noisy")
ALONE = len(os.sched_getaffinity(0)) == 1


class RunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.output = pathlib.Path(cls.directory.name) / "made" / "by it"
        cls.done = subprocess.run(
            [sys.executable, RUN, "--build", BUILD, "--output", cls.output, "--short"],
            capture_output=True, text=True, check=False)
        if cls.done.returncode not in (0, 3):
            raise AssertionError(f"status {cls.done.returncode}\n{cls.done.stdout}{cls.done.stderr}")
        cls.lines = [json.loads(text) for text in
                     (cls.output / "results.jsonl").read_text().splitlines()]

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def of(self, bench):
        return [line for line in self.lines if line["bench"] == bench]

    def test_no_benchmark_is_forgotten(self):
        self.assertEqual(set(programs.BENCHMARKS), set(sys.argv[3:]))

    def test_each_benchmark_has_lines_a_table_and_a_plot(self):
        for bench in programs.BENCHMARKS:
            self.assertTrue(self.of(bench), bench)
            self.assertRegex(self.done.stdout, rf"(?m)^{bench}: .*: 2 runs$")
            self.assertTrue((self.output / f"{bench}.svg").exists(), bench)

    def test_a_line_says_what_was_measured_and_where(self):
        for line in self.lines:
            with self.subTest(name=line["name"]):
                self.assertLessEqual({"bench", "name", "runs", *ABOUT}, line.keys())
                self.assertEqual(line["runs"], 2)
                if "value" in line:
                    self.assertTrue(line["unit"])
                    continue
                times = [line[key] for key in TIME]
                self.assertGreater(times[0], 0)
                self.assertEqual(times, sorted(times))

    def test_a_ratio_has_its_baseline_and_lies_within_its_rounds(self):
        names = {(line["bench"], line["name"]) for line in self.lines}
        ratios = [line for line in self.lines if "ratio" in line]
        self.assertGreater(len(ratios), 10)
        for line in ratios:
            with self.subTest(name=line["name"]):
                self.assertIn((line["bench"], line["baseline"]), names)
                self.assertGreater(line["ratio"], 0)
                self.assertLessEqual(line["ratio_low"], line["ratio_high"])
                self.assertGreaterEqual(line["ratio_error"], 0)

    def test_each_target_has_figures(self):
        for target in targets.TARGETS:
            if ALONE and target.pattern.startswith("two"):
                continue
            if target.bench not in programs.BENCHMARKS or "1000000" in target.pattern:
                continue  # peers are not asked for here, and a short run is of fewer
            with self.subTest(target=target):
                found = [judged for line in self.of(target.bench)
                         for judged in line.get("targets", [])
                         if (judged["number"], judged["metric"], judged["target"]) ==
                         (target.number, target.metric, target.target)]
                self.assertTrue(found)
                self.assertLessEqual({judged["verdict"] for judged in found}, {
                    targets.STRETCH, targets.MET, targets.MISSED, targets.UNDECIDED})

    def test_noise_is_told_and_decides_the_status(self):
        told = re.findall(r"^noisy: (\w+): ", self.done.stdout, re.M)
        self.assertEqual(self.done.returncode, 3 if told else 0)
        self.assertEqual({line["bench"] for line in self.lines if line["noisy"]}, set(told))
        for line in self.lines:
            if any(judged["verdict"] == targets.UNDECIDED for judged in line.get("targets", [])):
                self.assertTrue(line["noisy"], line["name"])

    def test_plots_are_well_formed_and_complete(self):
        svg = "{http://www.w3.org/2000/svg}"
        for bench in programs.BENCHMARKS:
            tree = ElementTree.parse(self.output / f"{bench}.svg").getroot()
            width, height = float(tree.get("width")), float(tree.get("height"))
            words = {"".join(text.itertext()) for text in tree.iter(svg + "text")}
            for line in self.of(bench):
                self.assertIn(line["name"], words)
            for element in tree.iter():
                numbers = {key: float(element.get(key, 0)) for key in
                           ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy")}
                for key, number in numbers.items():
                    self.assertLessEqual(0, number)
                    self.assertLessEqual(number, height if "y" in key else width)
            self.assertNotRegex((self.output / f"{bench}.svg").read_text(), r"nan|inf\b|None")

    def test_what_a_benchmark_sums_up_is_what_its_rounds_say(self):
        figures, _skipped = programs.run(
            BUILD, "costs", ["--rounds", "5", "--samples", "2", "--only", "take"])
        self.assertIn("take, rate", figures)
        self.assertIn("raw: clock + CAS", figures)  # its baseline, though it was not asked for
        self.assertNotIn("acquire + release, resource", figures)
        for figure in figures.values():
            for metric, rounds in figure.get("each", {}).items():
                with self.subTest(name=figure["name"], metric=metric):
                    self.assertEqual(len(rounds), 5)
                    middle = statistics.median_low(rounds)
                    self.assertAlmostEqual(figure[metric], middle, delta=0.06 + abs(middle) / 1e4)
            if "ratio" in figure:
                base = figures[figure["baseline"]]["each"]["median_ns"]
                for own, other, ratio in zip(figure["each"]["median_ns"], base,
                                             figure["each"]["ratio"]):
                    self.assertAlmostEqual(own / other, ratio, delta=ratio / 1000)

    def test_peers(self):
        installed = [ecosystem for ecosystem in peers.ECOSYSTEMS
                     if not peers.missing_packages(ecosystem)]
        output = pathlib.Path(self.directory.name) / "peers"
        done = subprocess.run(
            [sys.executable, RUN, "--build", BUILD, "--output", output, "--short", "--peers"],
            capture_output=True, text=True, check=False)
        if not installed:
            self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
            self.skipTest(done.stdout)
        self.assertIn(done.returncode, (0, 3), done.stdout + done.stderr)
        lines = [json.loads(text) for text in (output / "results.jsonl").read_text().splitlines()]
        for ecosystem in installed:
            bench = f"peers_{ecosystem.name}"
            compared = {line["name"]: line["baseline"] for line in lines
                        if line["bench"] == bench and "ratio" in line}
            with self.subTest(ecosystem=ecosystem.name):
                self.assertEqual(compared, {
                    name: own for name, own in peers.same_figures(ecosystem).items()
                    if not (ALONE and name.startswith("two"))})
                ElementTree.parse(output / f"{bench}.svg")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
