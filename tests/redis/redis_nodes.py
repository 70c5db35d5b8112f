# SPDX-License-Identifier: MIT
"""Nodes that use a set on a Redis server, as the tests see them: the calls of the protocol by name."""
from redis_server import Client

GRANTED, WAITING, REFUSED, GONE = range(4)
BUSY, RANGE, FULL, IN_GRACE, TOO_LONG = range(1, 6)
START_US = 1790000000000000
LEASE_US = 30000000


def definition(*limits, flags="-", queue_max=100, lease_us=LEASE_US, fingerprint="f"):
    return "/".join([fingerprint, flags, str(queue_max), str(lease_us), *limits])


def bucket(capacity, window_us, burst=None, delta=0, refund=1, charge=0, kind="g"):
    burst = burst or capacity
    return f"{kind},{capacity},{window_us},{burst},{burst},0,{delta},{refund},{charge}"


def resource(capacity):
    return f"r,{capacity}"


class FakeServer:
    """The clock and the identity that a library with these replaced goes by."""

    def __init__(self, client):
        self.client, self.clock, self.run = client, START_US, "one"
        self.set(START_US)
        self.be("one", 0)

    def set(self, clock):
        self.clock = clock
        self.client.call("SET", "clock", clock)

    def advance(self, us):
        self.set(self.clock + us)

    def be(self, run, start):
        """Another server answers from now on, started at this instant."""
        self.run = run
        self.client.call("SET", "identity", run)
        self.client.call("SET", "start", start)


class Node:
    """A node in one set: its session, and the serial numbers of its tickets."""

    def __init__(self, client, run, name, text, key="set"):
        self.client, self.run, self.name, self.text, self.key = client, run, name, text, key
        self.inbox, self.serial = f"inbox:{name}", 0

    def call(self, name, *arguments):
        return self.client.call("FCALL", name, 1, self.key, self.run, self.text, self.name, *arguments)

    def next(self):
        self.serial += 1
        return self.serial

    def open(self, known=0):
        return self.call("weir_open", self.inbox, known)

    def heartbeat(self):
        return self.call("weir_heartbeat")

    def request(self, mode, slot, *amounts, timeout=-1, max_wait=-1, serial=None, inbox=""):
        return self.call("weir_acquire", inbox, slot, serial or self.next(), mode, timeout, max_wait, *amounts)

    def acquire(self, slot, *amounts, **options):
        return self.request("try", slot, *amounts, **options)

    def wait(self, slot, *amounts, **options):
        return self.request("wait", slot, *amounts, **options)

    def take(self, *amounts):
        return self.call("weir_take", *amounts)

    def release(self, slot, serial, *used, how="end"):
        return self.call("weir_release", slot, serial, how, *used)

    def cancel(self, slot, serial):
        return self.call("weir_cancel", slot, serial)

    def snapshot(self):
        return self.call("weir_snapshot")

    def messages(self):
        """What is in the inbox, without the key; it is empty then."""
        found = []
        while True:
            message = self.client.call("LPOP", self.inbox)
            if message is None:
                return found
            text, _, key = message.rpartition(" ")
            if key != self.key:
                raise ValueError(f"a message of another set: {message}")
            found.append(text)


def load(server, library):
    """A client of the server, on which the library has been loaded."""
    client = Client(server.path)
    client.call("FUNCTION", "LOAD", "REPLACE", library)
    return client
