# SPDX-License-Identifier: MIT
"""Processes of the program engine_crowd, which use one set together, and what is left of it at the end."""
import os
import subprocess
import tempfile
import threading
import time

from redis_cluster import eventually
from redis_server import PATIENCE, Client, ReplyError

KEY, DEFINITION = "weir:{crowd}", "0000000000000001/-/1048576/2000000/r,%d/g,1000000,1000000,1000000,1000000,0,0,1,0"
FOREIGN_DEFINITION = "0000000000000001/-/1048576/2000000/x,%d,1/x,1000000,0"
GRACE, WAITING, GRANTED, RELEASED, REAPED, LIMITS = 2, 3, 4, 5, 6, 10
LATE_MS = 400  # with less than that no timeout ends, and no session: these are of 1 s and 2 s


def expect(condition, message):
    if not condition:
        raise SystemExit(message)


class Lateness(threading.Thread):
    """Adds up how late servers answer: so much time the machine has not given to them, or to this process."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.clients, self.ms = [Client(server.path) for server in servers], 0
        self.start()

    def run(self):
        while True:
            began = time.monotonic()
            time.sleep(0.02)
            try:
                for client in self.clients:
                    client.call("PING")
            except OSError:  # they are stopped
                return
            late = time.monotonic() - began - 0.02
            self.ms += late * 1000 if late > 0.02 else 0


class Crowd:
    """The processes, a file that they share, and servers, which are stopped at the end."""

    is_foreign = False  # the processes decide, not the server

    def __init__(self, program, plugin, servers, capacity):
        self.program, self.plugin, self.servers, self.capacity, self.processes = program, plugin, servers, capacity, []
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(bytes(4096))
            self.shared = file.name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.servers.stop()
        os.unlink(self.shared)

    def start(self, url, slot, ms, *subjects, threads=4, **parameters):
        words = [self.program, self.plugin, url, self.shared, str(slot), str(threads), str(ms), str(self.capacity), *subjects]
        quiet = {} if os.environ.get("WEIR_TEST_SHOW") else {"WEIR_TEST_QUIET": "1"}
        if self.is_foreign:
            quiet["WEIR_TEST_FOREIGN"] = "1"
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **quiet, "WEIR_TEST_PARAMETERS":
                                        "".join(f"{name}={value} " for name, value in parameters.items())})
        self.processes.append(process)
        return process

    def forget(self, slot):
        """What a process held that was killed counts no more."""
        with open(self.shared, "r+b", buffering=0) as file:
            file.seek(slot)
            file.write(b"\0")

    def look(self, server, key):
        """What the set is like; None: it cannot be had now."""
        client = Client(server.path)
        try:
            definition = (FOREIGN_DEFINITION if self.is_foreign else DEFINITION) % self.capacity
            words = 1, key, server.run_id(), definition, ""
            client.call("FCALL", "weir_take", *words, 0, 0 if self.is_foreign else 1)  # reaps
            state = client.call("FCALL", "weir_snapshot", *words)
            if self.is_foreign:
                state[LIMITS][0][0] = self.capacity - self.held(client.call("FCALL", "weir_fetch", *words))
            return state
        except ReplyError:
            return None
        finally:
            client.close()

    @staticmethod
    def held(fetched):
        """What of the first limit is held, as the text counts it, and the server that and what tickets have."""
        text, (too_much, missing, *_) = fetched[5], fetched[6]
        held = int.from_bytes(text[:8].encode("latin-1"), "little")
        expect(held >= too_much, f"{fetched}")
        return held - too_much + missing

    def look_after_grace(self, server, key=KEY):
        """What the set is like when no node can assert any more what it held: grants are new from then on."""
        states = []
        eventually(lambda: states.append(self.look(server, key)) or states[-1] and states[-1][GRACE] == 0, "the grace ends")
        return states[-1]

    def quiet(self, find, key=KEY):
        """Waits until nothing is held. Returns what the set is like then; `find` returns its server."""
        end = time.monotonic() + PATIENCE
        state = None
        while time.monotonic() < end:
            state = self.look(find(), key)
            if state and state[LIMITS][0][0] == self.capacity and state[WAITING] == 0:
                return state
            time.sleep(0.1)
        raise SystemExit(f"something is still held, or waits: {state}")


def finish(process):
    """The counts that a process prints."""
    out, err = process.communicate(timeout=PATIENCE * 2)
    expect(process.returncode == 0, f"exit status {process.returncode}\n{err}")
    if os.environ.get("WEIR_TEST_SHOW"):
        print(out, err, sep="\n")
    words = out.split()
    return {word: int(number) for word, number in zip(words[::2], words[1::2])}


def kept(counts, lateness):
    """All went well: no call failed, and no session was lost, unless the machine was too busy."""
    expect(counts["granted"] > 0, f"{counts}")
    is_late = counts["late"] + lateness.ms > LATE_MS
    expect(is_late or counts["losses"] == 0 and counts["unreachable"] == 0 and counts["denied"] == 0, f"{counts}, servers late by {lateness.ms} ms")


def balanced(state):
    expect(state[GRANTED] == state[RELEASED] + state[REAPED],
           f"grants that neither were released nor ended with a session: {state}")
