#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs nodes that share a set on a Redis server of their own, kills one of them on the way, prints a
table of each second, and checks in the end that the limits were kept, and used.

Nothing that is counted here comes from weir: the nodes say when they begin and end a job, by the clock
of this machine (examples/cluster_node.c), and the configuration is read by a YAML parser of its own.
"""

import argparse
import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import yaml

from verdict import Verdict

SECOND = 10**9
UNITS = {"ms": 10**6, "s": SECOND}
NODES = 3
WORKERS = 3
KILL_AFTER = 5.5  # seconds from the first grant on
GO_ON = 5  # seconds after the slots of the killed node are back
PATIENCE = 60 * SECOND  # that a busy machine may take for anything
USED_MIN = 0.9
BACK_GRACE = SECOND  # beyond the session: until another node has noticed, on a machine that may be busy
SET = "jobs"
PR_SET_PDEATHSIG = 1


def now():
    return time.monotonic_ns()


def die(what):
    sys.exit(f"demo: {what}")


def duration(text):
    unit = text.lstrip("0123456789")
    return int(text[:-len(unit)]) * UNITS[unit]


def end_with_this():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Limits:
    """What the configuration says."""

    def __init__(self, config):
        backend, = config["backends"].values()
        starts, slots = config["sets"][SET]["limits"]
        self.session = duration(backend["session"])
        self.starts, self.window = starts["capacity"], duration(starts["window"])
        self.slots = slots["capacity"]


class Job:
    """A job as it was seen: its start was granted between `asked` and `seen`, and its slot was given
    back after `end`."""

    def __init__(self, asked, seen):
        self.asked, self.seen, self.end = asked, seen, None


class Node:
    """A node: its process, and its jobs."""

    def __init__(self, number, command):
        self.number = number
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=end_with_this)
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.rest = b""
        self.jobs, self.running = [], {}
        self.lost = 0
        self.killed = None  # when

    def read(self):
        """Reads what it has written. Returns False at the end."""
        try:
            data = os.read(self.output, 1 << 16)
        except BlockingIOError:
            return True
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.on_line(line.split())
        return bool(data)

    def on_line(self, words):
        stamp, event, worker = int(words[0]), words[1], words[2]
        if event == b"started":
            self.running[worker] = Job(int(words[3]), stamp)
            self.jobs.append(self.running[worker])
        elif event == b"finished":
            self.running.pop(worker).end = stamp
        else:
            self.lost += 1

    def stop(self):
        """Stops it, and reads all that it has written before."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        before = None
        while before != (len(self.jobs), len(self.running), self.rest):
            before = (len(self.jobs), len(self.running), self.rest)
            self.read()

    def kill(self):
        """Kills it while it is stopped. What it did ends here."""
        self.killed = now()
        self.process.kill()
        self.process.wait()
        for job in self.running.values():
            job.end = self.killed


def changes(jobs):
    """When slots were taken (1) and given back (-1); what happens at one instant is in favour."""
    found = [(job.seen, 1) for job in jobs]
    found += [(job.end, -1) for job in jobs if job.end is not None]
    return sorted(found)


def most_held(jobs, begin, end):
    """The most slots that were held at a time in [begin, end)."""
    held = most = before = 0
    for at, change in changes(jobs):
        if at >= end:
            break
        held += change
        if at < begin:
            before = held
        else:
            most = max(most, held)
    return max(most, before)


def first_above(jobs, begin, number):
    """When more than so many slots were held for the first time, or None."""
    held = 0
    for at, change in changes(jobs):
        held += change
        if at >= begin and held > number:
            return at
    return None


def started(jobs, begin, end):
    return sum(begin <= job.seen < end for job in jobs)


class Table:
    def __init__(self, nodes, limits):
        self.nodes, self.limits, self.begin, self.second = nodes, limits, None, 0

    def print_head(self):
        print("What the nodes say of each second. A start is noticed a moment after it was granted.\n")
        names = "".join(f"{f'node {node.number}':>16}" for node in self.nodes)
        print(f"        {names}{'all nodes':>18}")
        print(" second " + "  starts/s slots" * len(self.nodes) + "      starts/s slots")

    def cell(self, node, begin, end):
        if node.killed and node.killed < begin:
            return f"{'kill -9':>10}{'':>6}"
        return f"{started(node.jobs, begin, end):>10}{most_held(node.jobs, begin, end):>6}"

    def print_due(self, until):
        """Prints the seconds that are over."""
        while self.begin + (self.second + 1) * SECOND <= until:
            begin = self.begin + self.second * SECOND
            end = begin + SECOND
            everything = [job for node in self.nodes for job in node.jobs]
            cells = "".join(self.cell(node, begin, end) for node in self.nodes)
            starts = f"{started(everything, begin, end)}/{self.limits.starts}"
            slots = f"{most_held(everything, begin, end)}/{self.limits.slots}"
            self.second += 1
            print(f"{self.second:>7} {cells}{starts:>14}{slots:>6}", flush=True)


class Demo:
    def __init__(self, nodes, limits):
        self.nodes, self.limits = nodes, limits
        self.table = Table(nodes, limits)
        self.selector = selectors.DefaultSelector()
        for node in nodes:
            self.selector.register(node.output, selectors.EVENT_READ, node)

    def read_until(self, is_done, what):
        """Reads what the nodes write until something is so."""
        end = now() + PATIENCE
        while not is_done():
            if now() > end:
                die(f"{what}: not within {PATIENCE // SECOND} s")
            for key, _ in self.selector.select(0.02):
                if not key.data.read():
                    self.selector.unregister(key.fileobj)
                    if not key.data.killed:
                        die(f"node {key.data.number} has ended")
            if self.table.begin:
                self.table.print_due(now() - SECOND // 10)  # what is on its way may come late

    def survivors(self):
        return [job for node in self.nodes if not node.killed for job in node.jobs]

    def kill_one(self):
        """Kills the last node while it holds slots: two of them, if that comes about. Returns how many
        they were."""
        victim = self.nodes[-1]
        for attempt in range(1000):
            victim.stop()
            if len(victim.running) >= (2 if attempt < 100 else 1):
                victim.kill()
                print(f"node {victim.number} is killed by SIGKILL: it had {len(victim.running)} slots, and "
                      "is granted more for what it has in the wait queue", flush=True)
                return len(victim.running)
            victim.process.send_signal(signal.SIGCONT)
            resumed = now()
            self.read_until(lambda since=resumed: now() > since + SECOND // 50, "a moment")
        return die("the node never held a slot")

    def run(self):
        """Returns when one was killed, what it held, and when that was held by others."""
        self.read_until(lambda: any(node.jobs for node in self.nodes), "the first grant")
        self.table.begin = now()
        self.table.print_head()
        self.read_until(lambda: now() > self.table.begin + KILL_AFTER * SECOND, "some seconds")
        held = self.kill_one()
        killed = self.nodes[-1].killed

        def back():
            return first_above(self.survivors(), killed, self.limits.slots - 1)

        self.read_until(back, "all slots are held again")
        print(f"after {(back() - killed) / SECOND:.1f} s the other nodes hold all slots", flush=True)
        until = now() + GO_ON * SECOND
        self.read_until(lambda: now() > until, "some more seconds")
        return killed, held, back()

    def end(self):
        """Ends the nodes. Returns whether all went well."""
        fine = True
        for node in self.nodes[:-1]:
            node.process.terminate()
        for node in self.nodes[:-1]:
            fine = node.process.wait(PATIENCE // SECOND) == 0 and fine
            while node.read():
                pass
        return fine


def most_started(jobs, length):
    """The most jobs that certainly started within a time of this length: asked for after its begin,
    and seen before its end."""
    jobs = sorted(jobs, key=lambda job: job.seen)
    most = 0
    for i, first in enumerate(jobs):
        n = 0
        for job in jobs[i:]:
            if job.seen >= first.asked + length:
                break
            n += job.asked >= first.asked
        most = max(most, n)
    return most


def most_used(jobs, begin, end, limits):
    """The largest part of the limit that was used in a window. Not that of all the time: a machine that
    is busy with other things does not start more, and the limit is not to blame for it. Starts are noticed
    a moment late, some later than others, so that a window can seem to have more than all of them."""
    steps = range(int(begin), int(max(begin, end - limits.window)) + 1, int(limits.window) // 10)
    return min(1, max(started(jobs, at, at + limits.window) for at in steps) / limits.starts)


def check(verdict, nodes, limits, table, ending):
    killed, held, back = ending
    jobs = [job for node in nodes for job in node.jobs]
    for seconds in (1, 2, 5, 10):
        most = most_started(jobs, seconds * limits.window)
        allowed = seconds * limits.starts
        verdict.say(most <= allowed, f"at most {most} starts within any {seconds} s, of {allowed} allowed")
    most = most_held(jobs, 0, now())
    verdict.say(most <= limits.slots, f"at most {most} slots held at a time, of {limits.slots}")
    for begin, end, when in ((table.begin, killed, "before the kill"), (back, now_of(jobs), "after the return")):
        use = most_used(jobs, begin, end, limits)
        verdict.say(use >= USED_MIN, f"{use:.1%} of the starts were used in the best window {when}")
    took = back - killed
    verdict.say(took <= limits.session + BACK_GRACE,
                f"the {held} slots of the killed node were held by others after {took / SECOND:.2f} s: "
                f"the session is {limits.session / SECOND:g} s")
    for node in nodes:
        verdict.say(node.lost == 0 and node.jobs, f"node {node.number} did {len(node.jobs)} jobs, and lost "
                    f"{node.lost} sessions")


def now_of(jobs):
    """The instant of the last start."""
    return max(job.seen for job in jobs)


def start_server(directory):
    path = os.path.join(directory, "socket")
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", path, "--dir", directory, "--save", "",
         "--daemonize", "no", "--logfile", os.path.join(directory, "log")], preexec_fn=end_with_this)
    end = now() + PATIENCE
    while not os.path.exists(path):
        if server.poll() is not None or now() > end:
            die("redis-server does not start")
        time.sleep(0.01)
    return server, path


def run(arguments, directory):
    with open(arguments.config, encoding="utf-8") as file:
        config = yaml.safe_load(file)
    limits = Limits(config)
    server, path = start_server(directory)
    for backend in config["backends"].values():
        backend["url"] = f"unix://{path}"
    own = os.path.join(directory, "cluster.yaml")
    with open(own, "w", encoding="utf-8") as file:
        yaml.safe_dump(config, file)
    print(f"{NODES} nodes with {WORKERS} workers each share {limits.starts} starts per "
          f"{limits.window // SECOND} s and {limits.slots} slots, kept by a Redis server (process "
          f"{server.pid})")
    print(f"the set is new and the server is young: for a session ({limits.session / SECOND:g} s) nothing is "
          "granted", flush=True)
    nodes = [Node(i + 1, [arguments.node, own, SET, str(WORKERS)]) for i in range(NODES)]
    demo = Demo(nodes, limits)
    ending = demo.run()
    fine = demo.end()
    verdict = Verdict()
    print()
    check(verdict, nodes, limits, demo.table, ending)
    verdict.say(fine, "the other nodes ended in order")
    server.terminate()
    server.wait()
    return 1 if verdict.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("node", help="the program examples/cluster_node")
    parser.add_argument("config", help="examples/cluster.yaml; the demo sets the URL")
    arguments = parser.parse_args()
    if not shutil.which("redis-server"):
        print("there is no redis-server (Debian: redis-server)")
        sys.exit(77)
    directory = tempfile.mkdtemp()
    try:
        sys.exit(run(arguments, directory))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
