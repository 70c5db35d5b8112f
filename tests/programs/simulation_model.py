# SPDX-License-Identifier: MIT
"""An exact model of a set: rates as fractions, resources, one FIFO wait queue; at one instant what is due comes first,
then releases, then arrivals. It knows nothing of the library.
"""
import heapq
from fractions import Fraction

NEVER = 1 << 63


def ceiling(fraction):
    return -(-fraction.numerator // fraction.denominator)


class Bucket:
    """token_bucket and gcra: a bucket of `burst` units that fills at capacity / window."""

    def __init__(self, capacity, window, burst=None):
        self.rate, self.burst = Fraction(capacity, window), burst or capacity
        self.level, self.at = Fraction(self.burst), None

    def now(self, t):
        if self.at is None:
            return self.level
        return min(Fraction(self.burst), self.level + self.rate * (t - self.at))

    def possible(self, n):
        return n <= self.burst

    def ready(self, t, n):
        short = n - self.now(t)
        return t if short <= 0 else t + ceiling(short / self.rate)

    def take(self, t, n):
        self.level, self.at = self.now(t) - n, t

    def back(self, t, n):
        self.level, self.at = min(Fraction(self.burst), self.now(t) + n), t


class Window:
    """fixed_window: a window begins with its first use."""

    def __init__(self, capacity, window):
        self.capacity, self.window, self.start, self.used = capacity, window, None, 0

    def possible(self, n):
        return n <= self.capacity

    def ready(self, t, n):
        if self.start is None or t >= self.start + self.window or self.used + n <= self.capacity:
            return t
        return self.start + self.window

    def take(self, t, n):
        if self.start is None or t >= self.start + self.window:
            self.start, self.used = t, 0
        self.used += n


class Log:
    """sliding_window: no more than `capacity` in any window that ends now."""

    def __init__(self, capacity, window):
        self.capacity, self.window, self.grants = capacity, window, []

    def possible(self, n):
        return n <= self.capacity

    def ready(self, t, n):
        for at in [t] + [g + self.window for g, _ in self.grants if g + self.window > t]:
            if sum(m for g, m in self.grants if g + self.window > at) + n <= self.capacity:
                return at
        raise AssertionError

    def take(self, t, n):
        self.grants = [(g, m) for g, m in self.grants if g + self.window > t] + [(t, n)]


class Resource:
    def __init__(self, capacity):
        self.capacity, self.held = capacity, 0

    def possible(self, n):
        return n <= self.capacity

    def ready(self, t, n):
        return t if self.held + n <= self.capacity else NEVER

    def take(self, _t, n):
        self.held += n

    def release(self, n):
        self.held -= n


class Set:
    """Decides events (time, {key: amount}, {key: used}, hold) one by one."""

    def __init__(self, limits, timeout=NEVER, max_waiters=NEVER, waits=True):
        self.limits, self.timeout, self.max_waiters, self.waits = limits, timeout, max_waiters, waits
        self.queue, self.releases, self.decisions, self.granted_n = [], [], [], 0

    def amounts(self, event):
        return [(limit, event[1].get(key, 1)) for key, limit in self.limits if event[1].get(key, 1) > 0]

    def ready(self, t, event):
        """When it could be granted, if nothing else happens."""
        while True:
            at = max((limit.ready(t, n) for limit, n in self.amounts(event)), default=t)
            if at == t or at >= NEVER:
                return at
            t = at

    def grant(self, t, index, event, waited):
        for limit, n in self.amounts(event):
            limit.take(t, n)
        heapq.heappush(self.releases, (t + event[3], self.granted_n, event))
        self.granted_n += 1
        self.decisions[index] = ("granted_waited" if waited else "granted", t)

    def release(self):
        t, _, event = heapq.heappop(self.releases)
        for key, limit in self.limits:
            n = event[1].get(key, 1)
            if isinstance(limit, Resource):
                limit.release(n)
            elif hasattr(limit, "back") and event[2].get(key, n) < n:
                limit.back(t, n - event[2][key])
        return t

    def serve(self, t):
        while self.queue and self.ready(t, self.queue[0][1]) == t:
            index, event = self.queue.pop(0)
            self.grant(t, index, event, True)

    def next_due(self, t):
        due = min((event[0] + self.timeout for _, event in self.queue), default=NEVER)
        return min(due, self.ready(t, self.queue[0][1])) if self.queue else NEVER

    def move(self, now, end):
        while True:
            due, release = self.next_due(now), self.releases[0][0] if self.releases else NEVER
            at = min(due, release)
            if at > end or at >= NEVER:
                return
            now = max(now, at)
            if due > release:
                self.release()
            self.serve(now)
            for waiter in [w for w in self.queue if w[1][0] + self.timeout <= now]:
                self.queue.remove(waiter)
                self.decisions[waiter[0]] = ("timed_out", now)
            self.serve(now)

    def run(self, events):
        now = events[0][0]
        for index, event in enumerate(events):
            self.move(now, event[0])
            now = event[0]
            self.decisions.append(None)
            if not all(limit.possible(n) for limit, n in self.amounts(event)):
                self.decisions[index] = ("refused_impossible", now)
            elif not self.queue and self.ready(now, event) == now:
                self.grant(now, index, event, False)
            elif not self.waits:
                self.decisions[index] = ("refused_busy", now)
            elif len(self.queue) >= self.max_waiters:
                self.decisions[index] = ("refused_full", now)
            else:
                self.queue.append((index, event))
        self.move(now, NEVER)
        return self.decisions
