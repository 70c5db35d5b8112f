# SPDX-License-Identifier: MIT
"""The target of each figure, and its verdict."""

import re
from collections import namedtuple

# The metric of the figures with matching names must be at most `target`, and should be at most
# `stretch`. `slack` is a difference that does not matter.
Target = namedtuple("Target", "number bench pattern metric target stretch slack", defaults=(0,))

# From a release until the waiter's descriptor is readable: the time added to a bare one for a waiter
# that polls, which resolves a few hundred nanoseconds; and the worst ratio for a sleeping waiter.
READABLE = r"(acquisition fd|acquisition, attached|completion queue), looked at"
WOKEN = r"acquisition(, attached| fd), (poll|epoll)|completion queue, epoll, readable"

TARGETS = (
    Target(1, "costs", r"take, (rate|rate, refused|call)", "ratio", 1.3, 1.1),
    Target(2, "costs", r"acquire \+ (update \+ release, rate|release, call)", "ratio", 1.6, 1.3),
    Target(3, "costs", r"acquire \+ release, resource", "ratio", 1.3, 0.8),
    Target(4, "costs", r"acquire \+ release, 3 limits", "ratio", 0.9, 0.6),
    Target(5, "costs", r"two: take, (rate|call)", "ratio", 1.2, 0.7),
    Target(6, "wake", READABLE, "difference_ns", 500, 100, 50),
    Target(6, "wake", WOKEN, "ratio_p99", 1.15, None),
    Target(7, "wake", r"late: completion queue, epoll", "difference_ns", 2000, 500, 100),
    Target(7, "wake", r"late: acquisition fd, epoll", "difference_ns", 12000, 6000, 100),
    Target(8, "parked", r"memory, .*", "value", 128, 64),
    Target(8, "parked", r"descriptors, .*", "value", 8, None),
    Target(8, "parked", r"submit, (?!mean).*", "median_ns", 150, 60),
    Target(9, "process", r"(?!two: ).*, process", "ratio", 1.5, 1.1),
    Target(9, "process", r"two: .*, process", "ratio", 1.3, 1.1),
    Target(10, "redis", r"acquire|take", "ratio", 1.15, None),
    Target(10, "redis", r"slot, beside .*, in a row", "ratio", 0.67, None),
    Target(10, "redis", r"permit of a lease", "median_ns", 50, None),
    Target(11, "keyed", r"take, 100000 subjects(, shared)?", "ratio", 1.5, None),
    Target(12, "keyed", r"memory, most subjects(, recovered)?", "value", 32, None),
    Target(13, "keyed", r"take, most subjects, each new", "ratio", 1.4, None),
    Target(13, "keyed", r"take, most subjects, each new", "median_ns", 250, None),
    Target(14, "keyed", r"longest take of a new subject, with a page fault", "value", 100, None),
)

# Metrics that other programs add to: times. A ratio is of two times of one moment.
TIMES = ("difference_ns", "median_ns")

STRETCH, MET, MISSED, UNDECIDED = "stretch", "met", "missed", "undecided"


def targets_of(figure):
    """The targets of this figure, for metrics that it has."""
    return [target for target in TARGETS
            if target.bench == figure.bench and re.fullmatch(target.pattern, figure.name)
            and figure.get(target.metric)]


def verdict_of(figure, target):
    """Stretch, met, missed or undecided. Undecided: the target is within the precision of the value, or
    the value is a time of a busy machine."""
    series = figure.get(target.metric)
    if figure.disturbed and target.metric in TIMES:
        return UNDECIDED
    low, high = series.value - series.error, series.value + series.error
    if target.stretch is not None and high <= target.stretch:
        return STRETCH
    if high <= target.target:
        return MET
    return MISSED if low > target.target else UNDECIDED


def is_stable(figure):
    """True if more runs would hardly change the metrics with targets, or decide one of them."""
    return all(figure.get(target.metric).is_stable(target.slack) and
               verdict_of(figure, target) != UNDECIDED
               for target in targets_of(figure))
