# SPDX-License-Identifier: MIT
"""The target of each figure, and its verdict."""

import re
from collections import namedtuple

# The metric of the figures with matching names must be at most `target`, and should be at most
# `stretch`; or at least, if `at_least`. `slack` is a difference that does not matter.
Target = namedtuple("Target", "number bench pattern metric target stretch slack at_least",
                    defaults=(None, 0, False))

# From a release until the waiter's descriptor is readable: the time added to a bare one for a waiter
# that polls, which resolves a few hundred nanoseconds; and the worst ratio for a sleeping waiter.
READABLE = r"(acquisition fd|acquisition, attached|completion queue), looked at"
WOKEN = r"acquisition(, attached| fd), (poll|epoll)|completion queue, epoll, readable"

TARGETS = (
    Target(1, "costs", r"take, (rate|call)", "ratio", 1.3, 1.1),
    Target(1, "costs", r"take, rate, refused", "ratio", 1.1),
    Target(1, "costs", r"take, rate, lease of 32", "median_ns", 5),
    Target(2, "costs", r"acquire \+ (update \+ release, rate|release, call)", "ratio", 1.6, 1.3),
    Target(3, "costs", r"acquire \+ release, resource", "ratio", 2, 1.3),
    Target(3, "peers_go", r"x/sync/semaphore: TryAcquire \+ Release", "ratio", 1, at_least=True),
    Target(4, "costs", r"acquire \+ release, 3 limits", "ratio", 0.6),
    Target(5, "costs", r"two: (take, (rate|call)|acquire \+ release, resource)", "ratio", 1, 0.7),
    Target(5, "costs", r"two, share: acquire \+ release, 3 limits", "value", 45, at_least=True),
    Target(5, "costs", r"two, single: acquire \+ release, 3 limits", "p99_ns", 2000, 1000, 50),
    Target(6, "wake", READABLE, "difference_ns", 500, 100, 50),
    Target(6, "wake", WOKEN, "ratio_p99", 1.15),
    Target(7, "wake", r"late: completion queue, epoll", "difference_ns", 2000, 500, 100),
    Target(7, "wake", r"late: acquisition fd, epoll", "difference_ns", 12000, 6000, 100),
    Target(8, "parked", r"memory, 1 limit", "value", 80, 64),
    Target(8, "parked", r"memory, (?!1 limit$).*", "value", 128, 64),
    Target(8, "parked", r"descriptors, .*", "value", 8),
    Target(8, "parked", r"submit, 1 limit", "median_ns", 80, 60),
    Target(8, "parked", r"submit, (?!mean|1 limit$).*", "median_ns", 150, 60),
    Target(8, "parked", r"release and grant, 1 limit", "median_ns", 90),
    Target(8, "parked", r"cancel of 1000000, timeouts", "median_ns", 250),
    Target(9, "process", r"(?!two: ).*, process", "ratio", 1.5, 1.1),
    Target(9, "process", r"two: acquire and release, process", "ratio", 1.1),
    Target(9, "process", r"two: (?!acquire and release).*, process", "ratio", 1.3, 1.1),
    Target(9, "process", r"release: (acquisition fd, poll|completion queue, epoll)", "difference_ns",
           2000, 1000, 100),
    Target(10, "redis", r"acquire|take", "ratio", 1.15),
    Target(10, "redis", r"slot, beside .*, in a row", "ratio", 0.67),
    Target(10, "redis", r"permit of a lease", "median_ns", 50),
    Target(11, "keyed", r"take, 100000 subjects(, shared)?", "ratio", 1.5),
    Target(12, "keyed", r"memory, most subjects(, recovered)?", "value", 32),
    Target(13, "keyed", r"take, most subjects, each new", "ratio", 1.4),
    Target(13, "keyed", r"take, most subjects, each new", "median_ns", 250),
    Target(14, "keyed", r"longest take of a new subject, with a page fault", "value", 100),
)

# Metrics that other programs add to: times. A ratio is of two times of one moment.
TIMES = ("difference_ns", "median_ns", "p99_ns")

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
    sign = -1 if target.at_least else 1
    best, worst = sign * series.value - series.error, sign * series.value + series.error
    if target.stretch is not None and worst <= sign * target.stretch:
        return STRETCH
    if worst <= sign * target.target:
        return MET
    return MISSED if best > sign * target.target else UNDECIDED


def is_stable(figure):
    """True if more runs would hardly change the metrics with targets, or decide one of them."""
    return all(figure.get(target.metric).is_stable(target.slack) and
               verdict_of(figure, target) != UNDECIDED
               for target in targets_of(figure))
