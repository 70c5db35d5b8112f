# SPDX-License-Identifier: MIT
"""A figure over several runs of a benchmark, each of which goes in rounds.

What differs between rounds is mostly what else happens on the machine. What differs between runs
is also where things came to lie in memory and on which processors, which stays as it is for a run:
so how sure a figure is, is judged by the medians of the runs."""

import math
import statistics

# Student's t for 95 %, both sides, by degrees of freedom.
T95 = (math.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)
STABLE = 0.05  # of itself


def error_of(medians):
    """The precision of the mean of these runs: half of a confidence interval of 95 %."""
    if len(medians) < 2:
        return math.inf
    t95 = T95[min(len(medians), len(T95)) - 1]
    return t95 * statistics.stdev(medians) / math.sqrt(len(medians))


def quartiles(values):
    """The ends of the middle half of all rounds."""
    if len(values) < 2:
        return values[0], values[0]
    low, _median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


class Series:
    """One metric of one figure: a list of rounds for each run."""

    def __init__(self, runs):
        self.runs = [rounds for rounds in runs if rounds]
        self.medians = [statistics.median(rounds) for rounds in self.runs]
        self.value = statistics.median(self.medians)
        self.error = error_of(self.medians)
        self.low, self.high = quartiles([value for rounds in self.runs for value in rounds])

    def is_stable(self, slack=0):
        """True if a further run would hardly change it. `slack`: a change that does not matter."""
        return self.error <= max(STABLE * abs(self.value), slack)


class Figure:
    """One figure over all runs of a benchmark."""

    def __init__(self, lines):
        first = lines[0]
        self.bench, self.name = first["bench"], first["name"]
        self.baseline = first.get("baseline")
        self.unit = first.get("unit", "ns")
        self.runs = len(lines)
        self.rounds = sum(line.get("rounds", 1) for line in lines)
        self.spread = statistics.median(line.get("spread", 0) for line in lines)
        self.low_ns = min(line["min_ns"] for line in lines) if self.is_time(first) else None
        self.high_ns = max(line["max_ns"] for line in lines) if self.is_time(first) else None
        self.series = self.read_series(lines)
        self.disturbed = False  # the machine was busy with others meanwhile
        self.beside = None  # the same figure of another build

    @staticmethod
    def is_time(line):
        return "median_ns" in line

    @staticmethod
    def read_series(lines):
        if "value" in lines[0]:
            return {"value": Series([[line["value"]] for line in lines])}
        metrics = [metric for metric in lines[0]["each"] if all(
            line["each"].get(metric) for line in lines)]
        return {metric: Series([line["each"][metric] for line in lines]) for metric in metrics}

    def get(self, metric):
        """A series, or None."""
        return self.series.get(metric)


def combine(runs):
    """Figures in the order of the first run: those that every run has."""
    return [Figure([run[name] for run in runs]) for name in runs[0]
            if all(name in run for run in runs)]


def put_beside(figures, others):
    """Gives each figure the one of another build that has its name and its unit."""
    known = {(other.name, other.unit): other for other in others}
    for figure in figures:
        figure.beside = known.get((figure.name, figure.unit))
