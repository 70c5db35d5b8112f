# SPDX-License-Identifier: MIT
"""What each figure is to reach, and whether it does."""

import re
from collections import namedtuple

# The metric of the figures whose names match is to be at most `target`, and would better be
# `stretch`. `slack` is what does not matter of it.
Target = namedtuple("Target", "number bench pattern metric target stretch slack", defaults=(0,))

# From a release until the waiter's descriptor is readable: how much later than a bare one that is
# when somebody awake looks, which a few hundred nanoseconds are to be seen in; and how late it may
# be at worst for who has to be woken.
READABLE = r"(acquisition fd|acquisition, attached|queue), looked at"
WOKEN = r"acquisition(, attached| fd), (poll|epoll)|queue, epoll, readable"

TARGETS = (
    Target(1, "costs", r"take, (rate|rate, refused|call)", "ratio", 1.3, 1.1),
    Target(2, "costs", r"acquire \+ (update \+ release, rate|release, call)", "ratio", 1.6, 1.3),
    Target(3, "costs", r"acquire \+ release, resource", "ratio", 1.3, 0.8),
    Target(4, "costs", r"acquire \+ release, 3 limits", "ratio", 0.9, 0.6),
    Target(5, "costs", r"two: take, (rate|call)", "ratio", 1.2, 0.7),
    Target(6, "wake", READABLE, "difference_ns", 500, 100, 50),
    Target(6, "wake", WOKEN, "ratio_p99", 1.15, None),
    Target(7, "wake", r"late: queue, epoll", "difference_ns", 2000, 500, 100),
    Target(7, "wake", r"late: acquisition fd, epoll", "difference_ns", 12000, 6000, 100),
    Target(8, "parked", r"memory, .*", "value", 128, 64),
    Target(8, "parked", r"descriptors, .*", "value", 8, None),
    Target(8, "parked", r"submit, (?!mean).*", "median_ns", 150, 60),
    Target(9, "process", r"(?!two: ).*, process", "ratio", 1.5, 1.1),
    Target(9, "process", r"two: .*, process", "ratio", 1.3, 1.1),
    Target(11, "keyed", r"take, 100000 keys(, shared)?", "ratio", 1.5, None),
    Target(12, "keyed", r"memory, most keys(, recovered)?", "value", 32, None),
)

# What others on the machine add to. A ratio is of two times of the same moment, and memory is none.
TIMES = ("difference_ns", "median_ns")

STRETCH, MET, MISSED, UNDECIDED = "stretch", "met", "missed", "undecided"


def targets_of(figure):
    """Those for this figure, of a metric that it has."""
    return [target for target in TARGETS
            if target.bench == figure.bench and re.fullmatch(target.pattern, figure.name)
            and figure.get(target.metric)]


def verdict_of(figure, target):
    """One of the words above. Undecided: it may as well lie on the other side of the target, or is
    a time of a busy machine."""
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
    """Whether more runs would hardly change what its targets are about, or decide one of them."""
    return all(figure.get(target.metric).is_stable(target.slack) and
               verdict_of(figure, target) != UNDECIDED
               for target in targets_of(figure))
