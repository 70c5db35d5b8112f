# SPDX-License-Identifier: MIT
"""The decisions of the Redis library are those of the algorithm plugins, to the microsecond.

Arguments: the library, the program `histories`. Histories of operations come from that program with what
the plugins decide; they are repeated on a server, and each reply is compared. WEIR_SEED repeats a run,
WEIR_OPERATIONS makes it longer.
"""
import os
import pathlib
import random
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from effort import SEED, operations  # noqa: E402
from redis_server import Client, ReplyError, Server, read_library  # noqa: E402

OPERATIONS = operations(40000)
LEASE_US = 86400000000
BATCH = 400  # operations sent at once


class Repeater:
    """Sends the operations of histories, and compares the replies."""

    def __init__(self, client, run_id):
        self.client, self.run_id = client, run_id
        self.expected = []  # of each command sent: how to read the reply, what it must be, the operation
        self.set_number = self.node_number = self.clock = self.renewed = self.compared = 0
        self.definition, self.revision = "", 0
        self.earlier = []  # definitions of the set with lower revisions: nodes that have them go on
        self.random = random.Random(SEED)

    def node(self):
        return f"n{self.node_number}"

    def call(self, name, *arguments, as_text=None, line=""):
        text = self.definition
        if self.earlier and self.random.random() < 0.3:
            text = self.random.choice(self.earlier)
        self.client.send("FCALL", name, 1, f"set{self.set_number}", self.run_id, text, self.node(), *arguments)
        self.expected.append((as_text, line and f"{text}\n{self.definition}\n{line}"))

    def set_clock(self, clock):
        self.clock = int(clock)
        self.client.send("SET", "clock", clock)
        self.expected.append((None, ""))

    def open(self):
        self.node_number += 1
        self.renewed = self.clock
        self.call("weir_open", "", 0)

    def renew(self):
        self.renewed = self.clock
        self.call("weir_heartbeat", as_text=lambda reply: None)

    def repeat(self, line):
        words = line.split(":")[0].split()
        operation, rest = words[0], words[1:]
        if operation == "C":
            self.set_clock(rest[0])
            if self.definition and self.clock - self.renewed > LEASE_US // 4:
                self.renew()
        elif operation == "B":
            self.renew()
            self.set_clock(rest[0])
            self.renew()
        elif operation == "S":
            self.set_number += 1
            self.definition, self.revision = f"f{self.set_number}/-/0/{LEASE_US}/{rest[0]}", 0
            self.earlier = []
            self.open()
        elif operation == "D":
            self.revision += self.random.choice((1, 1, 1000))
            earlier, self.earlier = [*self.earlier, self.definition], []
            self.definition = f"f{self.set_number}.{self.revision}.5afe/-/0/{LEASE_US}/{rest[0]}"
            self.call("weir_pump")  # the change is made by whichever call comes first
            self.earlier = earlier
        elif operation == "R":
            self.call("weir_leave", as_text=lambda reply: None)
            self.open()
        else:
            self.repeat_decision(operation, rest, line)

    def repeat_decision(self, operation, rest, line):
        def status(reply):
            return " ".join(map(str, reply if reply[0] == 2 else reply[:1]))

        def reservation(reply):
            return status(reply) if reply[0] != 0 else f"0 {reply[2]}"

        def look(reply):
            return " ".join(f"{available} {one} {more} {full}" for available, _, one, more, full in reply[-1])

        if operation == "G":
            self.call("weir_acquire", "", *rest[:2], "try", -1, -1, *rest[2:], as_text=status, line=line)
        elif operation == "T":
            self.call("weir_take", *rest, as_text=status, line=line)
        elif operation == "V":
            self.call("weir_reserve", "", *rest, as_text=reservation, line=line)
        elif operation == "E":
            self.call("weir_release", *rest, as_text=status, line=line)
        elif operation == "W":
            self.call("weir_return", *rest, as_text=status, line=line)
        else:
            self.call("weir_snapshot", as_text=look, line=line)

    def compare(self):
        """Reads the replies to what was sent. Returns the first difference, or None."""
        self.client.flush()
        for as_text, line in self.expected:
            reply = self.client.read()
            if isinstance(reply, ReplyError) and as_text and not line:
                continue  # a session that has ended: what follows shows whether that is right
            if isinstance(reply, ReplyError):
                return f"{line or 'a call'}\n  server: {reply}"
            if line:
                self.compared += 1
                wanted, got = line.rsplit(": ", 1)[1], as_text(reply)
                if wanted != got:
                    return f"{line}\n  server: {got}"
        self.expected = []
        return None


def main():
    print(f"WEIR_SEED={SEED} WEIR_OPERATIONS={OPERATIONS}", flush=True)
    library, histories = sys.argv[1:3]
    server = Server()
    try:
        client = Client(server.path)
        client.call("FUNCTION", "LOAD", read_library(library, fake_clock=True, fake_identity=True))
        for name, value in (("clock", 1), ("identity", "one"), ("start", 0)):
            client.call("SET", name, value)
        repeater = Repeater(client, "one")
        with subprocess.Popen([histories, "--seed", str(SEED)], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "WEIR_OPERATIONS": str(OPERATIONS)}) as lines:
            for number, line in enumerate(lines.stdout):
                line = line.rstrip("\n")
                repeater.repeat(line)
                if number % BATCH == 0:
                    difference = repeater.compare()
                    if difference:
                        lines.kill()
                        sys.exit(difference)
            difference = repeater.compare()
            if difference:
                sys.exit(difference)
        if lines.returncode != 0:
            sys.exit(f"{histories}: status {lines.returncode}")
        print(f"{repeater.compared} decisions of {repeater.set_number} sets are equal")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
