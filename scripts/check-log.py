#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads the request log of an example server as it grows, prints a table of each second, and
checks in the end that the limits of the configuration were kept, and used.

Nothing here comes from weir: the log says what the server saw (examples/service.h describes it),
the configuration is read by a YAML parser of its own, and the arithmetic is that of whole numbers.
"""

import argparse
import json
import sys
from collections import defaultdict

import yaml

from verdict import Verdict

SECOND = 10**9
SATURATED_MIN = 2 * SECOND  # shorter times with waiters are not judged
SETTLE = SECOND  # until the burst saved up before is used
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND,
         "d": 86400 * SECOND}


def amount(text):
    text = str(text)
    factor = {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1])
    return int(text[:-1]) * factor if factor else int(text)


def duration(text):
    number = text.rstrip("nsumhd")
    return int(number) * UNITS[text[len(number):]]


class Limit:
    """A limit of the configuration."""

    def __init__(self, spec):
        self.is_resource = spec["type"] == "resource"
        self.key = spec.get("key", "call_count")
        self.counts_tokens = spec["type"] == "rate"
        self.capacity = amount(spec["capacity"])
        if self.is_resource:
            return
        if spec["algorithm"] not in ("gcra", "token_bucket"):
            sys.exit(f"check-log: no check is known for {spec['algorithm']}")
        self.window = duration(spec["window"])
        self.burst = amount(spec.get("burst", spec["capacity"]))

    def describe(self):
        if self.is_resource:
            return f"{self.capacity} {self.key}"
        return f"{self.capacity * SECOND / self.window:g} {self.key}/s (burst {self.burst})"


class Grant:
    """A request from being granted to being released, as far as can be seen from outside."""

    def __init__(self, not_before, seen, tokens):
        self.not_before = not_before  # granted in [not_before, seen]
        self.seen = seen
        self.tokens = tokens
        self.used = tokens
        self.release = None  # released in [release, released]
        self.released = None


class Set:
    """What the log says of a set."""

    def __init__(self, name, spec):
        self.name = name
        self.limits = [Limit(limit) for limit in spec.get("limits", [])]
        self.grants = []  # in the order they were seen
        self.holding = {}  # by job: its grant
        self.waiting = {}  # by job: when it asked
        self.left = 0
        self.refused = 0
        self.saturated = []  # [from, to): at least one request waited
        self.clear_second()

    def clear_second(self):
        self.second = {"calls": 0, "tokens": 0, "refunded": 0, "refused": 0, "waits": [],
                       "held": len(self.holding), "waiting": len(self.waiting)}

    def on_event(self, now, event, job, number, since):
        second = self.second
        if event == "waiting":
            if not self.waiting:
                self.saturated.append([now, None])
            self.waiting[job] = since
        elif event == "started":
            second["calls"] += 1
            second["tokens"] += number
            second["waits"].append(now - self.waiting.get(job, since))
            grant = Grant(since, now, number)
            self.grants.append(grant)
            self.holding[job] = grant
        elif event in ("finished", "dropped"):
            grant = self.holding.pop(job)
            grant.used, grant.release, grant.released = number, since, now
            second["refunded"] += max(grant.tokens - number, 0)
        elif event == "left":
            self.left += 1
        elif event == "refused":
            self.refused += 1
            second["refused"] += 1
        if event != "waiting" and self.waiting.pop(job, None) is not None and not self.waiting:
            self.saturated[-1][1] = now
        second["held"] = max(second["held"], len(self.holding))
        second["waiting"] = max(second["waiting"], len(self.waiting))


# ---- the table ----

COLUMNS = " {:>3} {:<5}{:>9}{:>11}{:>10}{:>7}{:>9}{:>6}{:>10}{:>10}"


def print_head(sets):
    print("Seen from outside in each second, of the rate or number configured. A request that is\n"
          "granted still counts as waiting until the server has noticed.")
    for each in sets.values():
        print(f"  {each.name}: " + ", ".join(limit.describe() for limit in each.limits))
    print(COLUMNS.format("s", "set", "calls", "tokens", "refunded", "held", "waiting", "429",
                         "p50 wait", "p99 wait"))


def of_limit(each, number, is_the_one):
    """A number as a part of what the limit allows in a second, or at once."""
    for limit in filter(is_the_one, each.limits):
        allowed = limit.capacity if limit.is_resource else limit.capacity * SECOND / limit.window
        return f"{number}/{allowed:g}"
    return str(number)


def percentile(waits, percent):
    waits = sorted(waits)
    return f"{waits[(len(waits) - 1) * percent // 100] / 10**6:.1f} ms" if waits else "-"


def print_second(number, sets):
    for each in sets.values():
        s = each.second
        calls = of_limit(each, s["calls"], lambda l: not l.is_resource and not l.counts_tokens)
        tokens = of_limit(each, s["tokens"] - s["refunded"], lambda l: l.counts_tokens)
        held = of_limit(each, s["held"], lambda l: l.is_resource)
        print(COLUMNS.format(number, each.name, calls, tokens, s["refunded"], held, s["waiting"],
                             s["refused"], percentile(s["waits"], 50),
                             percentile(s["waits"], 99)), flush=True)
        each.clear_second()


def read_log(lines, sets):
    """Follows the log to its end. Returns the instant of the last line."""
    begin = now = None
    number = 1
    for line in lines:
        stamp, event, job, name, units, since = line.split()
        now = int(stamp)
        begin = begin or now
        while now >= begin + number * SECOND:
            print_second(number, sets)
            number += 1
        if name in sets:
            sets[name].on_event(now, event, int(job), int(units), int(since))
    if now is None:
        sys.exit("check-log: the log is empty")
    if any(each.second["calls"] for each in sets.values()):
        print_second(number, sets)
    return now


# ---- the checks ----

def amounts_of(limit, each):
    """What was granted of a limit, and what was refunded, each with its earliest and latest
    instant."""
    if not limit.counts_tokens:
        return [(g.not_before, g.seen, 1) for g in each.grants], []
    granted = [(g.not_before, g.seen, g.tokens) for g in each.grants]
    refunded = [(g.release, g.released, g.tokens - g.used) for g in each.grants
                if g.release is not None and g.used < g.tokens]
    return granted, refunded


def highest_burst(limit, granted, refunded):
    """The most that was granted in any [a, b] beyond the rate times b - a and beyond what was
    refunded in [a, b], times the window: all windows at once, in one pass.

    A window is as wide as the instants can have been apart: from the earliest at which its first
    grant can have come to the instant at which its last was seen.
    """
    earliest = [g[0] for g in granted]
    for i in range(len(earliest) - 2, -1, -1):
        earliest[i] = min(earliest[i], earliest[i + 1])
    begun = sorted((r[0], r[2]) for r in refunded)
    ended = sorted((r[1], r[2]) for r in refunded)
    total = refunded_by_end = refunded_before = 0
    lowest = highest = None
    i = j = 0
    for first, (_, seen, units) in zip(earliest, granted):
        while j < len(ended) and ended[j][0] < first:
            refunded_before += ended[j][1]
            j += 1
        before = (total - refunded_before) * limit.window - limit.capacity * first
        lowest = before if lowest is None else min(lowest, before)
        total += units
        while i < len(begun) and begun[i][0] <= seen:
            refunded_by_end += begun[i][1]
            i += 1
        burst = (total - refunded_by_end) * limit.window - limit.capacity * seen - lowest
        highest = burst if highest is None else max(highest, burst)
    return highest or 0


def check_rate(verdict, each, limit):
    granted, refunded = amounts_of(limit, each)
    highest = highest_burst(limit, granted, refunded)
    unsure = max((seen - earliest for earliest, seen, _ in granted), default=0)
    verdict.say(highest <= limit.burst * limit.window,
                f"{each.name}: {limit.key} never above the rate in any window of {len(granted)} "
                f"grants: at most {highest / limit.window:.3f} ahead of it, {limit.burst} allowed "
                f"(each grant seen within {unsure / 10**6:.1f} ms)")


def holdings(each, end):
    """Changes of the number held, in order; a release comes before a grant at the same instant."""
    changes = [(g.seen, 1) for g in each.grants]
    changes += [(g.release if g.release is not None else end, -1) for g in each.grants]
    return sorted(changes)


def check_resource(verdict, each, limit, end):
    held = most = 0
    for _, change in holdings(each, end):
        held += change
        most = max(most, held)
    verdict.say(most <= limit.capacity,
                f"{each.name}: {limit.key} held at most {most} of {limit.capacity}")


def use_of_rate(each, limit, start, stop):
    granted, refunded = amounts_of(limit, each)
    units = sum(n for _, seen, n in granted if start <= seen < stop)
    units -= sum(n for _, released, n in refunded if start <= released < stop)
    return units * limit.window / (limit.capacity * (stop - start))


def use_of_resource(each, limit, start, stop):
    held = area = 0
    last = start
    for at, change in holdings(each, stop):
        at = min(max(at, start), stop)
        area += held * (at - last)
        last = at
        held += change
    return area / (limit.capacity * (stop - start))


def check_saturated(verdict, each, end):
    """While a request waits, some limit must be used up. Returns the limits that were."""
    used_up = set()
    for start, stop in each.saturated:
        stop = end if stop is None else stop
        if stop - start < SATURATED_MIN:
            continue
        use = {limit.key: (use_of_resource if limit.is_resource else use_of_rate)
               (each, limit, start + SETTLE, stop) for limit in each.limits}
        best = max(use, key=use.get)
        verdict.say(use[best] >= 0.99,
                    f"{each.name}: with requests waiting for {(stop - start) / SECOND:.1f} s, "
                    f"{use[best]:.2%} of {best} was used")
        if use[best] >= 0.99:
            used_up.add(f"{each.name}.{best}")
    return used_up


def check_client(verdict, sets, path, clients):
    """The client's own count must be that of the log, but for answers it did not wait for."""
    count = defaultdict(int)
    with open(path, encoding="utf-8") as file:
        for line in file:
            _, name, number = line.split()
            count[name] += int(number)
    for each in sets.values():
        done = sum(g.release is not None for g in each.grants)
        verdict.say(count[each.name] <= done <= count[each.name] + clients,
                    f"{each.name}: the client counted {count[each.name]} answers, the log {done}")
    refused = sum(each.refused for each in sets.values())
    verdict.say(count["refused"] <= refused <= count["refused"] + clients,
                f"the client was refused {count['refused']} times, with a Retry-After; "
                f"the log says {refused}")
    verdict.say(count["others"] == 0, f"the client saw {count['others']} other answers or errors")


def check_stats(verdict, sets, path):
    """What weir counted itself must agree with what was seen."""
    with open(path, encoding="utf-8") as file:
        stats = {each["name"]: each for each in json.load(file)["sets"]}
    for each in sets.values():
        own = stats[each.name]
        fine = (own["held"] == own["waiting"] == own["missing_update"] == 0 and
                len(each.grants) <= own["granted"] <= len(each.grants) + each.left and
                own["refused_full"] + own["refused_max_wait"] == each.refused)
        verdict.say(fine, f"{each.name}: weir itself counts {own['granted']} granted, "
                    f"{own['refused_full'] + own['refused_max_wait']} refused, "
                    f"{own['held']} held and {own['waiting']} waiting in the end")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("log", help="- for standard input")
    parser.add_argument("--expect", nargs="*", default=[], metavar="SET.KEY",
                        help="limits that must have been used up")
    parser.add_argument("--client", help="what the client counted: lines `client NAME NUMBER`")
    parser.add_argument("--clients", type=int, default=0,
                        help="how many answers the client may have missed")
    parser.add_argument("--stats", help="what the server answered to GET /stats in the end")
    options = parser.parse_args()

    with open(options.config, encoding="utf-8") as file:
        sets = {name: Set(name, spec) for name, spec in yaml.safe_load(file)["sets"].items()}
    print_head(sets)
    with (sys.stdin if options.log == "-" else open(options.log, encoding="utf-8")) as lines:
        end = read_log(lines, sets)

    verdict = Verdict()
    used_up = set()
    for each in sets.values():
        for limit in each.limits:
            if limit.is_resource:
                check_resource(verdict, each, limit, end)
            else:
                check_rate(verdict, each, limit)
        used_up |= check_saturated(verdict, each, end)
    for name in options.expect:
        verdict.say(name in used_up, f"{name} was saturated for a while")
    if options.client:
        check_client(verdict, sets, options.client, options.clients)
    if options.stats:
        check_stats(verdict, sets, options.stats)
    sys.exit(1 if verdict.failed else 0)


if __name__ == "__main__":
    main()
