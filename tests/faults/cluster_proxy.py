# SPDX-License-Identifier: MIT
"""A proxy between nodes and a Redis server, which hands replies on as a test wants: late, torn, cut off,
or wrong; and requests again, after others that came later. It can lead to another server, and to none.
"""
import heapq
import random
import re
import selectors
import socket
import threading
import time

RECEIVED = 65536


def frame_end(data, at):
    """Where the value ends that begins there, or None if it is not all there."""
    stop = data.find(b"\r\n", at)
    if stop < 0:
        return None
    kind, end = data[at:at + 1], stop + 2
    if kind == b"$":
        size = int(data[at + 1:stop])
        end += size + 2 if size >= 0 else 0
        return end if end <= len(data) else None
    if kind == b"*":
        for _ in range(int(data[at + 1:stop])):
            end = frame_end(data, end)
            if end is None:
                return None
    return end


class Frames:
    """Whole values out of what is received in pieces."""

    def __init__(self):
        self.data = bytearray()

    def take(self, data):
        self.data += data
        found, at = [], 0
        while at < len(self.data):
            end = frame_end(self.data, at)
            if end is None:
                break
            found.append(bytes(self.data[at:end]))
            at = end
        del self.data[:at]
        return found


class Side:
    """What is to be sent on one socket: pieces that are due at some time, in their order."""

    def __init__(self, own):
        self.socket, self.pieces, self.last_due, self.frames = own, [], 0, Frames()
        own.setblocking(False)


class Pair:
    """A connection of a node, and the one to the server that belongs to it."""

    def __init__(self, client, server):
        self.client, self.server, self.requests, self.replies, self.ends = Side(client), Side(server), 0, 0, False


class Behavior:
    """What becomes of replies and requests: a list of (seconds to wait, bytes), or None: the link is cut
    after what was handed on before. As it is here: nothing."""
    frames = True  # it gets whole values of the protocol; else what was received together

    def __init__(self, seed=0):
        self.random, self.active = random.Random(seed), False
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def reply(self, frame, pair):
        return [(0, frame)]

    def request(self, frame, pair):
        return [(0, frame)]

    def last(self, frame):
        """What is still sent of a reply on which the link is cut."""
        return frame[:self.random.randrange(len(frame))]


def connect_to(target):
    if isinstance(target, str):
        link = socket.socket(socket.AF_UNIX)
        link.connect(target)
        return link
    link = socket.create_connection(target, timeout=1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


class Proxy:
    """Listens on a port of its own. All its connections are served by one thread."""

    def __init__(self, target, behavior=None):
        self.target, self.behavior = target, behavior or Behavior()  # target: (host, port), a path, None: refuse
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.selector, self.pairs, self.due, self.order = selectors.DefaultSelector(), set(), [], 0
        self.lock, self.stopped = threading.Lock(), False
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.wake_reader.setblocking(False)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.selector.register(self.wake_reader, selectors.EVENT_READ, None)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def lead_to(self, target):
        """Cuts all connections; new ones go there. None: they are refused."""
        with self.lock:
            self.target = target
            for pair in list(self.pairs):
                self.cut(pair)

    def stop(self):
        self.stopped = True
        self.wake_writer.send(b"x")
        self.thread.join()
        for pair in list(self.pairs):
            self.cut(pair)
        for each in (self.listener, self.wake_reader, self.wake_writer):
            each.close()
        self.selector.close()

    # ---- in the thread ----

    def serve(self):
        while not self.stopped:
            wait = min(0.5, max(0, self.due[0][0] - time.monotonic())) if self.due else 0.5
            events = self.selector.select(wait)
            with self.lock:
                self.serve_once(events)

    def serve_once(self, events):
        for key, mask in events:
            if key.fileobj is self.listener:
                self.accept()
            elif key.fileobj is self.wake_reader:
                self.wake_reader.recv(16)
            elif key.data in self.pairs:
                self.carry(key.data, key.fileobj, mask)
        now = time.monotonic()
        while self.due and self.due[0][0] <= now:
            pair, side = heapq.heappop(self.due)[2:]
            if pair in self.pairs:
                self.send(pair, side)

    def accept(self):
        try:
            client = self.listener.accept()[0]
        except OSError:
            return
        server = None
        try:
            if self.target:
                server = connect_to(self.target)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass
        if not server:
            client.close()
            return
        pair = Pair(client, server)
        self.pairs.add(pair)
        for side in (pair.client, pair.server):
            self.selector.register(side.socket, selectors.EVENT_READ, pair)

    def cut(self, pair):
        if pair not in self.pairs:
            return
        self.pairs.discard(pair)
        for side in (pair.client, pair.server):
            self.selector.unregister(side.socket)
            side.socket.close()

    def carry(self, pair, fileobj, mask):
        own = pair.client if fileobj is pair.client.socket else pair.server
        other = pair.server if own is pair.client else pair.client
        if mask & selectors.EVENT_WRITE:
            self.send(pair, own)
        if not mask & selectors.EVENT_READ or pair not in self.pairs:
            return
        try:
            data = own.socket.recv(RECEIVED)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.cut(pair)
            return
        for frame in own.frames.take(data) if self.behavior.frames else [data]:
            handed = (self.behavior.request if own is pair.client else self.behavior.reply)(frame, pair)
            if handed is None:
                other.pieces.append((other.last_due, self.behavior.last(frame)))
                pair.ends = True
                break
            for delay, piece in handed:
                other.last_due = max(other.last_due, time.monotonic() + delay)
                other.pieces.append((other.last_due, piece))
        self.send(pair, other)

    def send(self, pair, side):
        """Sends what is due; is called again for the rest."""
        pieces, now, blocked = side.pieces, time.monotonic(), False
        while pieces and pieces[0][0] <= now and not blocked:
            due, piece = pieces.pop(0)
            try:
                sent = side.socket.send(piece) if piece else 0
            except BlockingIOError:
                sent = 0
            except OSError:
                self.cut(pair)
                return
            blocked = sent < len(piece)
            if blocked:
                pieces.insert(0, (due, piece[sent:]))
        if pair.ends and not pieces and side is pair.client:
            self.cut(pair)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if blocked else 0)
        self.selector.modify(side.socket, events, pair)
        if pieces and not blocked:
            self.order += 1
            heapq.heappush(self.due, (pieces[0][0], self.order, pair, side))


# ---- behaviors ----

class Bytes(Behavior):
    """For a link that does not speak the protocol: of a replica."""
    frames = False


class Slow(Behavior):
    """Each reply takes some milliseconds; one in a hundred takes long, though less than a call may, and
    less than half a session: a heartbeat follows the reply to the one before, so two that are both later
    than that end a session."""

    def reply(self, frame, pair):
        if not self.active:
            return [(0, frame)]
        self.count("replies slowed")
        return [(self.random.uniform(0.2, 0.45) if self.random.random() < 0.01 else self.random.uniform(0, 0.012), frame)]


class Late(Behavior):
    """One reply in 200 comes so late that calls have failed, or that sessions have ended."""

    def __init__(self, seed, session):
        super().__init__(seed)
        self.session = session

    def reply(self, frame, pair):
        if not self.active or self.random.random() > 1 / 200:
            return [(0, frame)]
        self.count("late replies")
        return [(self.random.uniform(0.3, 2.5) * self.session, frame)]


class Torn(Behavior):
    """Replies come in pieces of some bytes."""

    def reply(self, frame, pair):
        if not self.active:
            return [(0, frame)]
        self.count("replies torn")
        pieces, at = [], 0
        while at < len(frame):
            size = self.random.randrange(1, 8)
            pieces.append((0.0001 * at, frame[at:at + size]))
            at += size
        return pieces


class Cut(Behavior):
    """One reply in 100 ends at some byte, and the link with it."""

    def reply(self, frame, pair):
        if not self.active or self.random.random() > 1 / 100:
            return [(0, frame)]
        self.count("links cut")
        return None


class Repeated(Behavior):
    """One request in ten arrives again, by another connection, at once or after others that are younger;
    and messages of inboxes come twice."""

    def __init__(self, seed, target):
        super().__init__(seed)
        self.target, self.later = target, []
        self.lock, self.stopped = threading.Condition(), False
        self.thread = threading.Thread(target=self.repeat, daemon=True)
        self.thread.start()

    def request(self, frame, pair):
        # What is taken for good, or ahead, is not repeated by a client, and has no name.
        has_name = b"\r\nFCALL\r\n" in frame[:20] and not re.search(rb"weir_(take|batch|unbatch)\b", frame[:40])
        if self.active and has_name and self.random.random() < 0.1:
            self.add(frame, "requests repeated")
        return [(0, frame)]

    def reply(self, frame, pair):
        if self.active and frame.startswith(b"*2\r\n$") and self.random.random() < 0.1:
            self.add(b"*3\r\n$5\r\nRPUSH\r\n" + frame[4:], "messages repeated")
        return [(0, frame)]

    def add(self, frame, what):
        self.count(what)
        with self.lock:
            delay = self.random.choice([0, 0.001, 0.01, self.random.uniform(0, 1.5)])
            heapq.heappush(self.later, (time.monotonic() + delay, frame))
            self.lock.notify()

    def receive(self, link):
        data = link.recv(RECEIVED)
        if not data:
            raise OSError("the server has closed the connection")
        return data

    def repeat(self):
        link, frames = None, Frames()
        while not self.stopped:
            with self.lock:
                now = time.monotonic()
                if not self.later or self.later[0][0] > now:
                    self.lock.wait(min(0.2, self.later[0][0] - now) if self.later else 0.2)
                    continue
                frame = heapq.heappop(self.later)[1]
            try:
                link = link or socket.create_connection(self.target, timeout=5)
                link.sendall(frame)
                while not frames.take(self.receive(link)):
                    pass
            except OSError:
                link, frames = None, Frames()
        if link:
            link.close()

    def stop(self):
        self.stopped = True
        self.thread.join()


HUGE = [b"$2147483647\r\n", b"*2147483647\r\n", b"*1000000\r\n", b"$-5\r\n", b"*-7\r\n", b"$99999999999999999999\r\n",
        b":99999999999999999999\r\n", b":-1\r\n", b"*1\r\n" * 40, b"*2\r\n" * 12, b"-\r\n", b"+\r\n", b"$0\r\n\r\n", b"*0\r\n",
        b"*-1\r\n", b"$-1\r\n", b"%3\r\n", b"\0\0\0\0", b"-STALERUN\r\n", b"-NOSESSION\r\n", b"-MISMATCH\r\n", b"-LOADING\r\n",
        b"-ERR Function not found\r\n", b"-MOVED 1 0.0.0.0:1\r\n", b"-ASK 99999999 x\r\n", b"*4\r\n:0\r\n:1\r\n:1\r\n:1\r\n",
        b"*2\r\n:1\r\n:9007199254740991\r\n", b"*1\r\n:3\r\n", b"*4\r\n:2\r\n:1\r\n:63\r\n:-9\r\n"]


class Wrong(Behavior):
    """One reply in 20 is wrong: other bytes, numbers or lengths, something huge or deep, one too many, none."""

    def reply(self, frame, pair):
        if not self.active or self.random.random() > 1 / 20:
            return [(0, frame)]
        self.count("replies wrong")
        change = self.random.choice([self.flip, self.change_number, self.replace, self.double, self.drop, self.cut_short,
                                     self.change_number])
        return [(0, change(frame))]

    def flip(self, frame):
        data = bytearray(frame)
        for _ in range(self.random.randrange(1, 4)):
            data[self.random.randrange(len(data))] = self.random.choice(b"*$:+-\r\n0129x\0\xff")
        return bytes(data)

    def change_number(self, frame):
        """Changes one of the numbers: a value, or a length."""
        places = list(re.finditer(rb"(?<=[:$*])\d+(?=\r)", frame))
        if not places:
            return self.flip(frame)
        place = self.random.choice(places)
        number = int(place.group())
        number = self.random.choice([0, 1, 2, 3, -1, number + 1, number - 1, 2**31, 2**53, 2**63 - 1, -2**63,
                                     self.random.getrandbits(20)])
        return frame[:place.start()] + str(number).encode() + frame[place.end():]

    def replace(self, frame):
        return self.random.choice(HUGE)

    def double(self, frame):
        return frame * 2

    def drop(self, frame):
        return b""

    def cut_short(self, frame):
        return frame[:self.random.randrange(len(frame))]
