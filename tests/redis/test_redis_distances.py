# SPDX-License-Identifier: MIT
"""A cluster of two masters, one of which is far away. A process decides limits of a set that has subjects on both: each
master's bound for the age of decisions follows from the decisions that it took itself, neither from those of the other one
nor from none. So the far one takes them at all, and the near one none that are old.

    test_redis_distances.py PLUGIN CROWD

Each master is behind a proxy, which sees the commits and their replies. What a bound has to be is computed from these.
"""
import collections
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
import cluster_proxy as proxy  # noqa: E402
from redis_cluster import Cluster  # noqa: E402
from redis_crowd import Crowd, balanced, expect, finish  # noqa: E402
from redis_server import need_server  # noqa: E402

FAR_S = 0.25  # of a reply; no call fails of that, and no session ends
LEAST_US, TIMES, SESSION_US = 20000, 4, 2000000
VERSION, AT, WITHIN = 8, 9, 10  # words of a commit, from FCALL on
TAKEN, CONFLICT = 0, 1


def values(frame):
    """What an array of texts and numbers has, one after the other; nested ones as well."""
    found, at = [], 0
    while at < len(frame):
        stop = frame.index(b"\r\n", at)
        kind, number, at = frame[at:at + 1], frame[at + 1:stop], stop + 2
        if kind == b"$" and int(number) >= 0:
            found.append(frame[at:at + int(number)])
            at += int(number) + 2
        elif kind != b"*":
            found.append(number)
    return found


def bound(us):
    return max(LEAST_US, min(TIMES * us, SESSION_US))


class Distance(proxy.Behavior):
    """Replies take so long. Sees to it that the bound of each commit is what its master's replies before it tell.

    With a seed some requests take long, too, and some links are cut before a reply.
    """

    def __init__(self, seconds, seed=None):
        super().__init__(seed)
        self.seconds, self.is_uneven, self.link = seconds, seed is not None, None
        self.sent = collections.defaultdict(collections.deque)
        self.taken = self.late = self.cuts = 0
        self.least, self.most, self.highest, self.wrong = LEAST_US, LEAST_US, LEAST_US, []

    def request(self, frame, pair):
        words = values(frame)
        is_commit = words[:2] == [b"FCALL", b"weir_commit"]
        if is_commit and pair is not self.link:  # the process may not have got the last replies of the link before
            self.least, self.most, self.link = LEAST_US, self.highest, pair
        self.sent[pair].append([int(word) for word in words[VERSION:WITHIN + 1]] if is_commit else None)
        if is_commit and not self.least <= int(words[WITHIN]) <= self.most:
            self.wrong.append((self.least, int(words[WITHIN]), self.most))
        is_slow = self.is_uneven and self.random.random() < 0.02
        return [(self.random.uniform(0.02, 0.06) if is_slow else 0, frame)]

    def reply(self, frame, pair):
        commit = self.sent[pair].popleft()
        told = values(frame) if frame.startswith(b"*") else []
        if self.is_uneven and self.random.random() < 0.002:
            self.cuts += 1
            return None
        if commit and len(told) >= 3 and pair is self.link:  # one without the time tells nothing
            self.learn(*commit, *map(int, told[:3]))
        return [(self.seconds, frame)]

    def learn(self, version, at, within, status, version_now, now):
        if status == TAKEN:
            self.taken += 1
            self.least = self.most = bound(now - at)
        elif status == CONFLICT and version_now == version and now - at > within:
            self.late += 1
            self.least = self.most = bound(within)
        self.highest = max(self.highest, self.most)


def distances():
    seed = int(os.environ.get("WEIR_SEED", time.time_ns()))
    print(f"WEIR_SEED={seed}")
    behaviors, proxies = [Distance(0, seed), Distance(FAR_S)], []

    def stand_before(port):
        proxies.append(proxy.Proxy(("127.0.0.1", port), behaviors[len(proxies)]))
        return "--cluster-announce-port", str(proxies[-1].port)

    Crowd.is_foreign = True
    cluster = Cluster(masters=2, of_port=stand_before)
    subjects = [cluster.subject_at(node) for node in cluster.masters]
    with Crowd(crowd_program, plugin, cluster, 2) as crowd:
        counts = finish(crowd.start(f"redis://127.0.0.1:{proxies[0].port}", 0, 8000, *subjects))
        for node, subject in zip(cluster.masters, subjects):
            balanced(crowd.quiet(lambda node=node: node, f"weir:{{crowd:{subject}}}"))
    for each, behavior in zip(proxies, behaviors):
        each.stop()
        print(f"replies in {behavior.seconds} s: {behavior.taken} commits taken, {behavior.late} too late, {behavior.cuts} links cut")
    near, far = behaviors
    expect(near.taken > 0 and far.taken > 0, f"a master has taken nothing: {counts}")
    expect(far.late > 0, "the far master has found no decision too old: the bound was not too small at first")
    for behavior in behaviors:
        expect(not behavior.wrong, f"replies in {behavior.seconds} s, bounds as they had to be at least, were, and at most: {behavior.wrong[:20]}")


need_server()
plugin, crowd_program = sys.argv[1:3]
distances()
