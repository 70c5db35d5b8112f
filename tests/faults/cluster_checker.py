# SPDX-License-Identifier: MIT
"""The invariants of sets on a Redis server, checked in what the chaos runner (`cluster`) has written down.

Nodes are judged by CLOCK_MONOTONIC, which all processes of a machine share. What is said to be so of an
instant is so for certain: a unit counts as held from the instant of the grant to the last instant before
which the node had asked the library whether it still holds it. So no check needs luck with the machine.
Servers are judged by the state after each call.

The set `foreign` has limits that nodes decide. Its rate counts from the instant of the decision, which is nowhere
written down: it is before the commit, by as much as the node said that the server may take it, at most a session.
So of what is used within less than that of an instant nothing can be said, and of longer spans so much less. What a text
counts after its data was lost is less than what was granted, so the rate is not checked there at all. Of the
text the server's state shows what is held, as that stands at its beginning, and nothing of the rate.
"""
import bisect
import collections

from cluster_logs import (ENDED, FENCE, GRACE, GRANTED, HELD, IS_HELD, IS_WAITING, LIMITS, LIMITS_OF, NEXT, QUEUE, REAPED, RELEASED, RELEASING,
                          RESERVE, SETS, TAKE, TRY, USERS, Server, held_by_text)

MS, SECOND = 10**6, 10**9
CALL_TIMEOUT_NS = SECOND  # of the backend: a request that does not wait
PUMP_US = 64  # grants of one call follow each other by 1 us in their fences
PATIENCE_NS = 3 * SECOND  # beyond which a wait has not ended in time on a machine that ran
NOTICE_NS = 0  # after it goes on, for a process that was stopped to learn what it lost
EXCERPT = 12
CAPACITIES = {("api", "slots"): 4, ("api", "seats"): 7, **{(name, "slots"): 1 for name in USERS}, ("foreign", "slots"): 3}
OWNERDEAD, TIMED_OUT = -130, -110


class Violation(Exception):
    def __init__(self, invariant, message, events=()):
        super().__init__(message)
        self.invariant, self.events = invariant, [str(event) for event in events]

    def __str__(self):
        shown = self.events if len(self.events) <= EXCERPT else \
            [*self.events[:EXCERPT // 2], "…", *self.events[-EXCERPT // 2:]]
        return "\n    ".join([f"{self.invariant}: {self.args[0]}", *shown])


class Process:
    """A node: one life of it."""

    def __init__(self, name, killed_ns=None, stops=(), late=(), status=0):
        self.name, self.killed_ns, self.stops, self.late = name, killed_ns, list(stops), list(late)
        self.status = status  # its exit status; None: it did not end

    def lost_time(self, begin_ns, end_ns):
        """For how long of an interval it did not run, as far as is known."""
        stopped = sum(max(0, min(b, end_ns) - max(a, begin_ns)) for a, b in self.stops)
        return stopped + sum(late for at, late in self.late if begin_ns <= at <= end_ns + late)


class Run:
    """What is known of a run."""

    def __init__(self, requests=(), processes=(), histories=(), **known):
        self.requests, self.histories = list(requests), list(histories)
        self.processes = {process.name: process for process in processes}
        self.capacities = known.get("capacities", CAPACITIES)  # of resources, by set and limit
        self.rates = known.get("rates", {})  # of a set: units per us, burst
        self.session_ns = known.get("session_ns", SECOND)
        self.clock_ns = known.get("clock_ns", 0)  # the server's clock less CLOCK_MONOTONIC
        self.drift_ns = known.get("drift_ns", 0)  # by how much that may differ
        self.losses_expected = known.get("losses_expected", False)
        self.strays_expected = known.get("strays_expected", False)  # grants to requests that came too late
        self.faults_end_ns = known.get("faults_end_ns")
        self.trusts_replies = known.get("trusts_replies", True)
        self.snapshots = known.get("snapshots", {})  # of a set, at the end: weir_snapshot
        self.outages = known.get("outages", [])  # when the server was not there, ns
        self.late = known.get("late", [])  # when the server answered late, or the runner was woken late


def describe(invariant, message, events=()):
    return Violation(invariant, message, events)


# ---- by the nodes ----

def edges_of(request, index):
    """When a request has more, or less, of a limit: instants and units. Of units that it returned it is not
    known for certain how long they were held after it called for that."""
    amount, left, end_ns = request.amounts[index], request.left[index], request.held_ns
    if not amount or end_ns <= request.granted_ns:
        return []
    returned_ns = min(request.returned_ns or end_ns, end_ns)
    return [(request.granted_ns, amount, request), (returned_ns, left - amount, request), (end_ns, -left, request)]


def held_by_nodes(run):
    """At every instant the units that nodes hold of a resource are at most its capacity."""
    for (name, limit), capacity in run.capacities.items():
        number, index, edges = SETS.index(name), LIMITS.index(limit), []
        for request in run.requests:
            if request.set == number and request.has_fence:
                edges += edges_of(request, index)
        edges.sort(key=lambda edge: edge[:2])
        held, holders = 0, {}
        for at, units, request in edges:
            held += units
            if units > 0:
                holders[id(request)] = request
            elif at == request.held_ns:
                holders.pop(id(request), None)
            if held > capacity:
                yield describe("held", f"{name}: {held} of {capacity} {limit} are held at {at}", holders.values())
                break


class HeaviestWindow:
    """Units at instants, of which those up to now are known: the largest sum of them from any instant on,
    plus the rate at that instant. So `burst + rate * time` can be compared for all windows at once."""

    def __init__(self, instants, rate):
        self.size = 1 << max(1, (len(instants) - 1).bit_length())
        self.instants, self.rate = instants, rate
        self.sums, self.best = [0] * (2 * self.size), [float("-inf")] * (2 * self.size)

    def add(self, i, units):
        at = i + self.size
        self.sums[at] = units
        self.best[at] = self.rate * self.instants[i] + units
        at >>= 1
        while at:
            left, right = 2 * at, 2 * at + 1
            self.sums[at] = self.sums[left] + self.sums[right]
            self.best[at] = max(self.best[right], self.best[left] + self.sums[right])
            at >>= 1

    def top(self):
        return self.best[1]

    def begin_of_top(self):
        """The instant from which that sum is."""
        at, rest = 1, 0
        while at < self.size:
            left, right = 2 * at, 2 * at + 1
            if self.best[right] >= self.best[left] + self.sums[right]:
                at = right
            else:
                at, rest = left, rest + self.sums[right]
        return self.instants[at - self.size]


def interval_of(run, request):
    """Two instants between which it counts. What a node decided counts from before its commit."""
    begin_ns, end_ns = granted_between(run, request)
    return begin_ns - (run.session_ns if SETS[request.set] == "foreign" else 0), end_ns


def granted_between(run, request):
    """Two instants between which it was granted: by the fence, or by when it was asked and known. A reservation
    is told to be later than it is by no more than the call took."""
    if request.operation == RESERVE and request.fence:
        return request.granted_ns - (request.known_ns - request.asked_ns) - run.drift_ns, request.granted_ns + run.drift_ns
    if request.operation == TAKE or not request.fence:
        return request.asked_ns, request.known_ns
    at = request.fence * 1000 - run.clock_ns
    return at - PUMP_US * 1000 - run.drift_ns, at + run.drift_ns


def rates(run):
    """From any instant to any other one at most burst + rate * time is used of a rate."""
    for number, name in enumerate(SETS):
        if name not in run.rates:
            continue
        per_us, burst = run.rates[name]
        used = []
        for request in run.requests:
            units = request.used if request.state in (RELEASING, ENDED) else request.left[2]
            if request.set == number and request.is_granted and units:
                used.append((*interval_of(run, request), units, request))
        used.sort(key=lambda each: each[0])
        if not used:
            continue
        base = used[0][0]
        window = HeaviestWindow([(each[0] - base) / 1000 for each in used], per_us)
        for i in sorted(range(len(used)), key=lambda i: used[i][1]):
            window.add(i, used[i][2])
            end_us = (used[i][1] - base) / 1000
            if window.top() > burst + per_us * end_us + 1e-3:
                begin_ns, end_ns = window.begin_of_top() * 1000 + base, used[i][1]
                within = [each for each in used if each[0] >= begin_ns - 1 and each[1] <= end_ns]
                units = sum(each[2] for each in within)
                yield describe("rate", f"{name}: {units} units in {(end_ns - begin_ns) / 1000:.0f} us, more than {burst} + "
                               f"{per_us * (end_ns - begin_ns) / 1000:.2f}", [each[3] for each in within])
                break


def fences_of_nodes(run):
    """No fencing token is given twice, and what is asked for after a grant is known has a larger one."""
    for number, name in enumerate(SETS):
        granted = [request for request in run.requests if request.set == number and request.has_fence]
        owners = {}
        for request in granted:
            other = owners.setdefault(request.fence, request)
            if other is not request:
                yield describe("fences", f"{name}: {request.fence} is given twice", [other, request])
                return
        known, largest = collections.deque(sorted(granted, key=lambda request: request.known_ns)), None
        for request in sorted(granted, key=lambda request: request.asked_ns):
            while known and known[0].known_ns < request.asked_ns:
                each = known.popleft()
                largest = each if not largest or each.fence > largest.fence else largest
            if largest and request.fence < largest.fence:
                yield describe("fences", f"{name}: {request.fence} comes after {largest.fence}", [largest, request])
                return


def deadlines(run):
    """A request ends by its deadline, and at once if it does not wait."""
    for request in run.requests:
        if request.state not in (HELD, ENDED):
            continue
        process = run.processes[request.process]
        end_ns = request.known_ns if request.is_granted else request.ended_ns
        limit_ns = CALL_TIMEOUT_NS if request.operation in (TRY, TAKE, RESERVE) else request.timeout_ns
        if request.operation == QUEUE:  # after those that had the completion queue before
            limit_ns += 60 * SECOND
        late_ns = end_ns - request.asked_ns - limit_ns
        if late_ns > PATIENCE_NS + process.lost_time(request.asked_ns, end_ns):
            yield describe("deadline", f"ended {late_ns / SECOND:.3f} s after its deadline", [request])


def ends(run):
    """A process that is not killed ends by itself, without a failure, and so does each of its requests."""
    for process in run.processes.values():
        if process.killed_ns is None and process.status != 0:
            yield describe("ends", f"{process.name}: exit status {process.status}",
                           [request for request in run.requests
                            if request.process == process.name and request.state != ENDED])
    for request in run.requests:
        process = run.processes[request.process]
        if process.killed_ns is None and process.status == 0 and request.state != ENDED:
            yield describe("ends", "the request never ended", [request])


def notices(run):
    """What was held by a process that was stopped for longer than its session is not held any more, and
    the process is told so."""
    for request in run.requests:
        if not request.has_fence:
            continue
        for begin_ns, end_ns in run.processes[request.process].stops:
            if end_ns - begin_ns > run.session_ns and request.known_ns < begin_ns and \
                    request.held_ns > end_ns + NOTICE_NS:
                yield describe("noticed", f"held beyond a stop from {begin_ns} to {end_ns}", [request])
                return


def was_starved(run, processes, end_ns):
    """Whether the machine gave one of the processes, or the server, so little time that a session may have
    ended by that until `end_ns`: heartbeats are due four times in it."""
    begin_ns = end_ns - 2 * run.session_ns
    return any(sum(by for at, by in late if begin_ns <= at <= end_ns + by) > run.session_ns * 2 // 5
               for late in (*(process.late for process in processes), run.late))


def losses(run):
    """A session is lost by faults that last for longer than it, and by no others."""
    if run.losses_expected:
        return
    for request in run.requests:
        if (request.is_granted and request.end == OWNERDEAD
                and not was_starved(run, [run.processes[request.process]], request.ended_ns)):
            yield describe("losses", "the session was lost, and no fault explains that", [request])
            return


def progress(run):
    """After the last fault each node that is left is granted what it asks for."""
    if run.faults_end_ns is None:
        return
    last = collections.defaultdict(int)
    for request in run.requests:
        if request.is_granted:
            last[request.process] = max(last[request.process], request.known_ns)
    for process in run.processes.values():
        if process.killed_ns is None and last[process.name] < run.faults_end_ns:
            yield describe("progress", f"{process.name} got nothing after the last fault, at {run.faults_end_ns}",
                           [request for request in run.requests if request.process == process.name][-3:])


# ---- by the servers ----

class SetHistory:
    """What must hold from one commit of a set to the next."""

    def __init__(self, name, shared):
        self.name, self.shared = name, shared  # `shared`: the grants of all servers, by their fences
        self.fence, self.reaped, self.instant = 0, 0, 0

    def is_new(self, before, after):
        if not after or after.kind != IS_HELD or before and before.kind == IS_HELD and before.name == after.name:
            return False
        known = self.shared.get((self.name, after.fence))
        return not known or known.name != after.name  # else it is asserted after a loss of data

    def judge_grants(self, commit):
        new = []
        for before, after in commit.changes:
            if self.is_new(before, after):
                new.append((before, after))
        new.sort(key=lambda pair: pair[1].fence)
        for i, (before, after) in enumerate(new):
            yield from self.judge_fence(commit, after)
            yield from self.judge_order(commit, before, after, new[i + 1:])
        # What is asserted was granted before, by a server that may be looked at later here.
        granted = [after for _, after in new if after.at >= commit.now]
        for after in granted:
            yield from self.judge_instant(after)
        if granted and commit.now < commit.head[GRACE]:
            yield describe("grace", f"{self.name}: granted within a time of grace", granted)
        if new:
            yield from self.judge_capacity(commit)
        for _, after in commit.changes:
            if after and after.kind == IS_HELD:
                self.shared.setdefault((self.name, after.fence), after)

    def judge_fence(self, commit, ticket):
        other = self.shared.get((self.name, ticket.fence))
        if other:
            yield describe("fences", f"{self.name}: {ticket.fence} is given twice", [other, ticket])
        elif ticket.fence <= self.fence:
            yield describe("fences", f"{self.name}: {ticket.fence} comes after {self.fence}", [ticket])
        elif ticket.fence > commit.head[FENCE]:
            yield describe("fences", f"{self.name}: the head has {commit.head[FENCE]}", [ticket])
        self.fence = max(self.fence, ticket.fence)

    def judge_instant(self, ticket):
        """Nothing is granted before the instant of a reservation."""
        if ticket.at < self.instant:
            yield describe("instants", f"{self.name}: granted at {ticket.at}, before {self.instant}", [ticket])
        self.instant = max(self.instant, ticket.at)

    def judge_returns(self, commit):
        """What is held becomes less, and never more."""
        for before, after in commit.changes:
            if is_same_grant(before, after) and any(a > b for a, b in zip(after.amounts, before.amounts)):
                yield describe("returns", f"{self.name}: a ticket has grown", [before, after])

    def judge_order(self, commit, before, after, later):
        """Those that wait are granted in their order, and before all that come anew. `later`: what the commit
        grants after this one."""
        place = commit.head[NEXT] if is_newcomer(before, after) else before.fence
        waiting = [ticket for ticket in commit.tickets.values() if ticket.kind == IS_WAITING]
        waiting += [each for each, granted in later if not is_newcomer(each, granted)]
        ahead = [ticket for ticket in waiting if ticket.fence < place]
        if ahead:
            yield describe("order", f"{self.name}: granted before those that came first", [after, *ahead])

    def judge_capacity(self, commit):
        held = held_of(commit)
        for units, capacity, is_resource in zip(held, commit.definition.capacities, commit.definition.is_resource):
            if is_resource and units > capacity:
                yield describe("server held", f"{self.name}: {units} of {capacity} are held by the server's state",
                               [ticket for ticket in commit.tickets.values() if ticket.kind == IS_HELD])

    def judge_sums(self, commit):
        """What the head says is what tickets hold, in all limits: so each has all or nothing."""
        held, head = held_of(commit), commit.head
        for i, word in enumerate(commit.definition.held_words):
            if commit.definition.is_resource[i] and head[word] != held[i]:
                yield describe("all or nothing", f"{self.name}: the head has {head[word]} units of limit {i}, tickets have "
                               f"{held[i]}", commit.tickets.values())
        balances = [head[word] for word in commit.definition.balance_words]
        if balances and held_by_text(commit.text, balances) != held[0]:
            yield describe("all or nothing", f"{self.name}: the text has {held_by_text(commit.text, balances)} units, tickets have "
                           f"{held[0]}", commit.tickets.values())
        tickets = sum(ticket.kind == IS_HELD for ticket in commit.tickets.values())
        if head[GRANTED] != head[RELEASED] + head[REAPED] + tickets:
            yield describe("balance", f"{self.name}: {head[GRANTED]} granted, {head[RELEASED]} released, {head[REAPED]} reaped, "
                           f"{tickets} held", commit.tickets.values())

    def judge_sessions(self, commit):
        """A session that has ended is gone: so what is dead at the head of the wait queue blocks for no
        longer than a session."""
        for name, expiry in commit.sessions.items():
            if expiry <= commit.now:
                yield describe("sessions", f"{self.name}: session {name} ended at {expiry}, and is there at {commit.now}",
                               [ticket for ticket in commit.tickets.values() if ticket.session == name])

    def judge_places(self, commit):
        """Places in the wait queue are given in the order of arrival."""
        for before, after in commit.changes:
            if after and after.kind == IS_WAITING:
                if not before and after.fence != commit.head[NEXT] - 1:
                    yield describe("order", f"{self.name}: a waiter is not the last one, {commit.head[NEXT] - 1}", [after])

    def judge(self, commit):
        yield from self.judge_grants(commit)
        yield from self.judge_returns(commit)
        yield from self.judge_sums(commit)
        yield from self.judge_sessions(commit)
        yield from self.judge_places(commit)


def is_newcomer(before, after):
    return not before or before.kind != IS_WAITING or before.name != after.name


def is_same_grant(before, after):
    return before and after and before.kind == after.kind == IS_HELD and \
        (before.name, before.fence) == (after.name, after.fence)


def held_of(commit):
    held = [0] * len(commit.definition.capacities)
    for ticket in commit.tickets.values():
        if ticket.kind == IS_HELD:
            for i, units in enumerate(ticket.amounts):
                held[i] += units
    return held


class Servers:
    """What all servers have granted, and the violations in their states."""

    def __init__(self, run):
        self.granted, self.violations, self.commits, self.last_seen = {}, [], 0, {}
        self.recovered = {}  # grants that ended with their sessions: sets and fences, and when
        self.returned = {}  # what is left of grants: amounts by sets and fences
        for history in run.histories:
            sets, seen = {}, set()
            for commit, counts in history:
                state = sets.setdefault(commit.set, SetHistory(commit.set, self.granted))
                self.commits += 1
                self.note_recovered(state, commit)
                self.returned.update({(commit.set, after.fence): after.amounts for before, after in commit.changes
                                      if is_same_grant(before, after) and before.amounts != after.amounts})
                for name in commit.sessions:
                    self.last_seen[name] = commit.now
                if not counts:
                    self.adopt(state, commit)
                    continue
                for violation in state.judge(commit):
                    if violation.invariant not in seen:  # the first of each shows it
                        seen.add(violation.invariant)
                        violation.args = (f"{violation.args[0]} (commit {commit.number})",)
                        self.violations.append(violation)

    def note_recovered(self, state, commit):
        if commit.head[REAPED] > state.reaped:
            self.recovered.update({(commit.set, before.fence): commit.now for before, after in commit.changes
                                   if before and before.kind == IS_HELD and before.session not in commit.sessions})
        state.reaped = commit.head[REAPED]

    def adopt(self, state, commit):
        """What a server begins with, of its own before a restart or of another one."""
        for ticket in commit.tickets.values():
            if ticket.kind == IS_HELD:
                self.granted.setdefault((state.name, ticket.fence), ticket)
                state.instant = max(state.instant, ticket.at)
        state.fence = max(state.fence, commit.head[FENCE])


def amounts_of(request, amounts):
    """Those that a ticket has."""
    return tuple(amounts[i] for i in LIMITS_OF[request.set])


def servers_agree(run, servers):
    """What a node was granted a server has granted, and exactly what was asked for. A server that has taken it
    over knows what was left of it then."""
    for request in run.requests:
        if not request.has_fence:
            continue
        ticket = servers.granted.get((SETS[request.set], request.fence))
        if not ticket:
            yield describe("granted by a server", "no server has granted this", [request])
            return
        if ticket.amounts not in (amounts_of(request, request.amounts), amounts_of(request, request.left)):
            yield describe("all or nothing", "granted is not what was asked for", [request, ticket])
            return


def servers_return(run, servers):
    """What a server has taken back of a grant its holder has returned, and no more."""
    for request in run.requests:
        left = request.has_fence and servers.returned.get((SETS[request.set], request.fence))
        if left and left != amounts_of(request, request.left):
            yield describe("returns", f"{'/'.join(map(str, left))} is left on the server", [request])
            return


def dead_sessions(run, servers):
    """The session of a process that was killed ends within a session."""
    owners = {}
    for request in run.requests:
        if request.has_fence:
            ticket = servers.granted.get((SETS[request.set], request.fence))
            if ticket:
                owners[ticket.session] = run.processes[request.process]
    for session, process in owners.items():
        if process.killed_ns is None or session not in servers.last_seen:
            continue
        end_ns = servers.last_seen[session] * 1000 - run.clock_ns
        late_ns = end_ns - process.killed_ns - run.session_ns
        away_ns = sum(b - a for a, b in run.outages if b > process.killed_ns and a < end_ns)
        if late_ns > PATIENCE_NS + away_ns:
            yield describe("dead head", f"session {session} of {process.name}, killed at {process.killed_ns}, is there "
                           f"{late_ns / SECOND:.3f} s after it should have ended")


def quiet(run):
    """When all have left, nothing is held and nothing waits: grants = releases + reaped."""
    for name, snapshot in run.snapshots.items():
        waiting, granted, released, reaped, limits = (snapshot[i] for i in (3, 4, 5, 6, 10))
        if waiting or granted != released + reaped:
            yield describe("quiet", f"{name}: {waiting} wait, {granted} granted, {released} released, {reaped} reaped")
        for i, (available, waits, *_) in zip(LIMITS_OF[SETS.index(name)], limits):
            capacity = run.capacities.get((name, LIMITS[i]))
            if capacity and (available != capacity or waits):
                yield describe("quiet", f"{name}: {available} of {capacity} {LIMITS[i]} are available, {waits} wait")


def recovered(run, servers):
    """Servers take back what was granted to processes that died, or lost their sessions, and nothing else:
    what a program has released does not stay. When a process was starved, its releases and cancellations
    may have been on their way as its session ended."""
    if run.losses_expected or run.strays_expected:
        return
    def may_be_left(request):
        killed_ns = run.processes[request.process].killed_ns
        was_on_its_way = request.state != ENDED or killed_ns is not None and request.ended_ns > killed_ns - SECOND
        return killed_ns is not None and was_on_its_way or request.is_granted and request.end == OWNERDEAD
    left = [request for request in run.requests if may_be_left(request)]
    taken = [name for name, now in servers.recovered.items()
             if not was_starved(run, run.processes.values(), now * 1000 - run.clock_ns)]
    if len(taken) > len(left):
        yield describe("recovered", f"{len(taken)} grants were recovered, and at most {len(left)} were left", left)


OF_NODES = [held_by_nodes, rates, fences_of_nodes, notices, losses]
ALWAYS = [deadlines, ends, progress, quiet]
OF_BOTH = [servers_agree, servers_return, dead_sessions, recovered]
IN_STATES = ["fences of servers", "instants", "order", "grace", "server held", "returns", "all or nothing in states", "balance",
             "sessions"]


def check(run):
    """Returns the violations, and how many invariants were looked at. What nodes say counts as far as the
    replies that they got can be trusted."""
    servers = Servers(run)
    found = list(servers.violations)
    checks = [*ALWAYS, *(OF_NODES if run.trusts_replies else [])]
    for each in checks:
        found += each(run)
    if run.histories and run.trusts_replies:
        for each in OF_BOTH:
            found += each(run, servers)
        checks += OF_BOTH
    return found, len(checks) + (len(IN_STATES) if run.histories else 0), servers


def histories_of(keys, segments):
    """Commits of servers, each with whether it counts: [[(path, is_base)]], a list for each server."""
    return [history_of(Server(keys), segment) for segment in segments]


def history_of(server, segment):
    for path, is_base in segment:
        for commit in server.commits(path):
            yield commit, not is_base and not commit.has_moved
