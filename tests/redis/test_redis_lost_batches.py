# SPDX-License-Identifier: MIT
"""The replies of some batches of leased quota are lost with their links, after the server has granted them: what all
processes use keeps the bound all the same, and no process counts such units as its own.

    test_redis_lost_batches.py PLUGIN REMOTE_LEASES [MILLISECONDS]
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
import cluster_proxy as proxy  # noqa: E402
from redis_server import Server, need_server  # noqa: E402

PROCESSES, EVERY = 3, 6  # batch is lost, the first one as well
CALL = re.compile(rb"\*\d+\r\n\$5\r\nFCALL\r\n\$\d+\r\n(\w+)\r\n")
GRANTED = re.compile(rb"\*4\r\n:0\r\n:(\d+)\r\n")


class LostBatches(proxy.Behavior):
    """Some of the batches do not arrive: the link breaks instead."""

    def __init__(self):
        super().__init__()
        self.pending, self.last_units = collections.defaultdict(collections.deque), {}
        self.batches = self.arrived = self.lost = 0

    def request(self, frame, pair):
        call = CALL.match(frame)
        self.pending[pair].append(call and call.group(1) == b"weir_batch")
        return [(0, frame)]

    def reply(self, frame, pair):
        granted = GRANTED.match(frame) if self.pending[pair].popleft() else None
        units = int(granted.group(1)) if granted else 0
        if not units:
            return [(0, frame)]
        self.batches += 1
        if self.batches % EVERY == 1:
            self.count("links broken")
            self.lost += units
            return None
        self.arrived, self.last_units[pair] = self.arrived + units, units
        return [(0, frame)]

    def last(self, frame):
        return b""


need_server()
plugin, program, *milliseconds = sys.argv[1:]
server = Server("--port", "0")
link = None
try:
    behavior = LostBatches()
    link = proxy.Proxy(server.path, behavior)
    run = subprocess.run([program, os.path.abspath(plugin), f"redis://127.0.0.1:{link.port}", *(milliseconds or ["1000"]),
                          str(PROCESSES)], stdout=subprocess.PIPE, text=True, check=False)
    print(run.stdout, end="")
    if run.returncode:
        sys.exit(f"the processes have failed: {run.returncode}")
    taken = int(re.search(r"(\d+) taken ahead", run.stdout).group(1))
    breaks = behavior.counts.get("links broken", 0)
    print(f"{breaks} links broken with {behavior.lost} units; {behavior.arrived} units arrived, of which {taken} are counted")
    # What arrived last may have come when its process had closed its set.
    if not (taken <= behavior.arrived <= taken + sum(behavior.last_units.values())):
        sys.exit("the counters are not those of the batches that arrived")
    if not breaks:
        sys.exit("no link was broken")
finally:
    if link:
        link.stop()
    server.stop()
