# SPDX-License-Identifier: MIT
"""What the chaos runner (`cluster`) has written down of a run, read back: the requests of the nodes, and
each change of each set on each server.

The nodes' files are those of cluster_node.c. A server's changes are those of its append-only file, where
each call of a function is one transaction: so the state after each call is known to the byte.
"""
import mmap
import os
import re
import struct

BLOCK, TRY, DESCRIPTOR, QUEUE, TAKE, RESERVE = range(1, 7)
OPERATIONS = ["", "block", "try", "descriptor", "queue", "take", "reserve"]
UNUSED, ASKED, HELD, RELEASING, ENDED = range(5)
STATES = ["unused", "asked", "held", "releasing", "ended"]
RECORD = struct.Struct("<3Q3Q2Qq6Qq4Q")
LIMITS = ["slots", "seats", "tokens"]
SUBJECTS = 4
USERS = [f"user{i}" for i in range(SUBJECTS)]
SETS = ["api", "quota", *USERS, "leased", "foreign"]  # by the numbers that nodes give them
LIMITS_OF = [(0, 1, 2), (2,), *[(0,)] * SUBJECTS, (2,), (0, 2)]  # which of the limits each has, in this order
KEYS = {"weir:{api}": "api", "weir:{quota}": "quota", **{f"weir:{{users:{i}}}": name for i, name in enumerate(USERS)},
        "weir:{leased}": "leased", "weir:{foreign}": "foreign"}

# Numbers of a set's head, and of a ticket, from 0: see plugins/backends/redis/{state,sessions}.lua.
LAST, FENCE, GRACE, NEXT, WAITING, GRANTED, RELEASED, REAPED = 1, 3, 4, 7, 8, 13, 14, 15
HEAD_WORDS, TICKET_WORDS, IS_WAITING, IS_HELD = 19, 4, 1, 2


class Request:
    """A request of a node, as far as it came."""

    __slots__ = ("process", "thread", "number", "state", "operation", "set", "amounts", "timeout_ns", "asked_ns",
                 "result", "granted_ns", "known_ns", "fence", "held_ns", "used", "ended_ns", "end", "returned_ns", "rest")

    def __init__(self, process, thread, number, words):
        self.process, self.thread, self.number = process, thread, number
        (self.state, self.operation, self.set, self.timeout_ns, self.asked_ns, self.result, self.granted_ns, self.known_ns,
         self.fence, self.held_ns, self.used, self.ended_ns, self.end, self.returned_ns) = words[:3] + words[6:17]
        self.amounts = tuple(words[3:6])
        self.rest = tuple(words[17:])

    @property
    def is_granted(self):
        return self.state in (HELD, RELEASING) or self.state == ENDED and self.result == 0

    @property
    def left(self):
        """What it has after it returned a part."""
        return self.rest if self.returned_ns else self.amounts

    @property
    def has_fence(self):
        return self.is_granted and self.operation != TAKE and self.fence != 0

    def __str__(self):
        words = [f"{self.process} thread {self.thread} request {self.number}: {OPERATIONS[self.operation]}",
                 SETS[self.set], "/".join(map(str, self.amounts)), f"asked {self.asked_ns}",
                 f"timeout {self.timeout_ns}", STATES[self.state]]
        if self.is_granted:
            words += [f"granted {self.granted_ns}", f"known {self.known_ns}", f"fence {self.fence}",
                      f"held until {self.held_ns}", f"used {self.used}", f"end {self.end}"]
            words += [f"returned {self.returned_ns} but {'/'.join(map(str, self.left))}"] if self.returned_ns else []
        elif self.state == ENDED:
            words.append(f"result {self.result}")
        return " ".join(words + [f"ended {self.ended_ns}"])


def read_requests(prefix, process):
    """The requests of all threads of a process."""
    found = []
    directory, name = os.path.split(prefix)
    for file in sorted(os.listdir(directory)):
        match = re.fullmatch(re.escape(name) + r"\.(\d+)", file)
        if not match:
            continue
        with open(os.path.join(directory, file), "rb") as data:
            for number, words in enumerate(iter(lambda: data.read(RECORD.size), b"")):
                if len(words) < RECORD.size or words[0] == UNUSED:
                    break
                found.append(Request(process, int(match.group(1)), number, RECORD.unpack(words)))
    return found


def read_lateness(prefix):
    """When the process was woken late: an instant, and by how much, ns."""
    if not os.path.exists(prefix + ".late"):
        return []
    with open(prefix + ".late", "rb") as data:
        return [pair for pair in struct.iter_unpack("<2Q", data.read()) if pair[0]]


def read_commands(data):
    """The commands of an append-only file. The last one may be cut off by a crash."""
    at, end = 0, len(data)
    while at < end:
        stop = data.find(b"\r\n", at)
        if stop < 0:
            return
        if data[at:at + 1] == b"#":  # a note
            at = stop + 2
            continue
        words, at = [], stop + 2
        for _ in range(int(data[data.rfind(b"*", 0, stop) + 1:stop])):
            stop = data.find(b"\r\n", at)
            if stop < 0 or stop + 2 + int(data[at + 1:stop]) + 2 > end:
                return
            size = int(data[at + 1:stop])
            words.append(data[stop + 2:stop + 2 + size])
            at = stop + 2 + size + 2
        yield words


def read_transactions(data):
    """The commands that took effect together."""
    transaction = None
    for words in read_commands(data):
        name = words[0].upper()
        if name == b"MULTI":
            transaction = []
        elif name == b"EXEC":
            yield transaction or []
            transaction = None
        elif transaction is not None:
            transaction.append(words)
        else:
            yield [words]


def numbers_of(blob):
    return [int(n) for n in struct.unpack(f"<{len(blob) // 8}d", blob)]


class Dump:
    """A hash as a server hands it to another one: that of DUMP, of strings that are not compressed."""

    HASH = 4
    INTEGERS = {0: "<b", 1: "<h", 2: "<i"}

    def __init__(self, data):
        if data[0] != self.HASH:
            raise ValueError(f"a value of type {data[0]} and not a hash")
        self.data, self.at = data, 1
        self.fields = dict((self.string(), self.string()) for _ in range(self.length()[0]))

    def take(self, layout):
        [number] = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return number

    def length(self):
        """A length, and whether it is the kind of an integer instead."""
        first = self.take("B")
        if first >> 6 == 0:
            return first, False
        if first >> 6 == 1:
            return (first & 63) << 8 | self.take("B"), False
        if first >> 6 == 2:
            return self.take(">Q" if first & 1 else ">I"), False
        return first & 63, True

    def string(self):
        n, is_integer = self.length()
        if is_integer:
            return b"%d" % self.take(self.INTEGERS[n])
        self.at += n
        return bytes(self.data[self.at - n:self.at])


class Ticket:
    """What a session waits for or holds. The place is that in the wait queue."""

    __slots__ = ("session", "slot", "serial", "kind", "fence", "at", "amounts")

    def __init__(self, session, slot, numbers):
        self.session, self.slot = session, slot
        self.serial, self.kind, self.fence, self.at = numbers[:TICKET_WORDS]
        self.amounts = tuple(numbers[TICKET_WORDS:])

    @property
    def name(self):
        return (self.session, self.slot, self.serial)

    def __str__(self):
        what = f"held, fence {self.fence}" if self.kind == IS_HELD else f"waiting, place {self.fence}"
        return (f"session {self.session} slot {self.slot} serial {self.serial}: "
                f"{'/'.join(map(str, self.amounts))} {what}, since {self.at}")


class Definition:
    """What of a set's definition matters: the kinds of its limits, and where the head has what is held. Of limits that
    nodes decide it has what their text counts too much, and what it lacks."""

    def __init__(self, text):
        limits = text.split("/")[4:]
        self.session_us = int(text.split("/")[3])
        self.capacities = [int(limit.split(",")[1]) for limit in limits]
        is_counted = [limit.startswith("r") for limit in limits]
        self.is_foreign = [limit.startswith("x") for limit in limits]
        self.is_resource = [counted or foreign and limit.split(",")[2] == "1"
                            for counted, foreign, limit in zip(is_counted, self.is_foreign, limits)]
        first_others = is_counted.index(False) if False in is_counted else len(limits)
        # A resource has two numbers in the head: what waits for it, and what is held.
        self.held_words = [HEAD_WORDS + 2 * i + 1 for i in range(first_others)]
        # The first limit that nodes decide has three, if it is the first of all.
        self.balance_words = [HEAD_WORDS + 1, HEAD_WORDS + 2] if self.is_foreign[0] else []


def held_by_text(text, balances):
    """What is held of a resource of the algorithm aimd, the first limit of a set that nodes decide: its text begins with
    that. The server knows by how much this is too much, or too little."""
    return int.from_bytes(text[:8], "little") - balances[0] + balances[1]


class Commit:
    """The state of a set after a transaction, and what that has changed: tickets before and after. It has
    come from another server if it `has_moved`."""

    __slots__ = ("set", "number", "head", "definition", "tickets", "sessions", "changes", "has_moved",
                 "text")

    def __init__(self, state, number, changes, has_moved):
        self.set, self.number, self.changes, self.has_moved = state.set, number, changes, has_moved
        self.head, self.definition, self.tickets = state.head, state.definition, state.tickets
        self.sessions, self.text = state.sessions, state.text

    @property
    def now(self):
        return self.head[LAST]


class SetState:
    """A set on a server. Its tables are changed in place."""

    def __init__(self, name):
        self.set, self.head, self.definition = name, None, None
        self.tickets, self.sessions, self.text = {}, {}, b""

    def put(self, field, value, changes):
        """Takes a field; the value None: it is gone."""
        if field == "H":
            self.head = value and numbers_of(value)
        elif field == "D":
            self.definition = value and Definition(value.decode())
        elif field == "X":
            self.text = value or b""
        elif field[0] == "s":
            if value:
                self.sessions[field[1:]] = numbers_of(value)[0]
            else:
                self.sessions.pop(field[1:], None)
        elif field[0] == "t":
            session, _, slot = field[1:].rpartition(".")
            before = self.tickets.pop(field, None)
            after = Ticket(session, int(slot), numbers_of(value)) if value else None
            if after:
                self.tickets[field] = after
            changes.append((before, after))


class Server:
    """All sets on a server, as it runs through its append-only files."""

    def __init__(self, keys):
        self.keys, self.states, self.number = keys, {}, 0

    def restore(self, key, dump):
        self.states[key] = SetState(self.keys[key])
        for field, value in Dump(dump).fields.items():
            self.states[key].put(field.decode("latin-1"), value, [])

    def apply(self, words, changes):
        name = words[0].upper()
        if name in (b"RESTORE", b"RESTORE-ASKING") and words[1].decode("latin-1") in self.keys:
            self.restore(words[1].decode("latin-1"), words[3])
            changes[words[1].decode("latin-1")] = None
        elif name in (b"HSET", b"HMSET", b"HDEL", b"DEL", b"UNLINK") and words[1].decode("latin-1") in self.keys:
            key = words[1].decode("latin-1")
            state = self.states.setdefault(key, SetState(self.keys[key]))
            changed = changes.setdefault(key, [])
            if name in (b"HSET", b"HMSET"):
                for field, value in zip(words[2::2], words[3::2]):
                    state.put(field.decode("latin-1"), value, changed)
            elif name == b"HDEL":
                for field in words[2:]:
                    state.put(field.decode("latin-1"), None, changed)
            else:
                del self.states[key]
        elif name in (b"FLUSHALL", b"FLUSHDB"):
            self.states.clear()

    def commits(self, path):
        """Each commit of a file."""
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield from self.commits_of(data)

    def commits_of(self, data):
        for transaction in read_transactions(data):
            changes = {}
            for words in transaction:
                self.apply(words, changes)
            for key, changed in changes.items():
                state = self.states.get(key)
                if state and state.head and state.definition:
                    self.number += 1
                    yield Commit(state, self.number, changed or [], changed is None)


def append_only_files(directory):
    """The files of a server's directory, in order: (path, whether it is a base, not what happened)."""
    directory = os.path.join(directory, "appendonlydir")
    manifest = os.path.join(directory, "appendonly.aof.manifest")
    if not os.path.exists(manifest):
        return []
    with open(manifest, encoding="ascii") as file:
        found = re.findall(r"^file (\S+) seq (\d+) type ([bi])$", file.read(), re.M)
    found.sort(key=lambda line: (line[2] != "b", int(line[1])))
    return [(os.path.join(directory, name), kind == "b") for name, _, kind in found]
