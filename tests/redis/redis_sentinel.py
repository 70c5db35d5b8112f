# SPDX-License-Identifier: MIT
"""A Sentinel of the test's own: it watches one master, and lets a replica take over soon."""
import os

from redis_server import Server


class Sentinel(Server):
    """The process needs a file that it can write; `lines` are added to it."""

    master_name = "the-master"

    def __init__(self, port, master_port, *lines, down_ms=700):
        self.port, self.first_port, self.lines, self.down_ms = port, master_port, lines, down_ms
        super().__init__()

    def command(self):
        path = os.path.join(self.directory, "sentinel.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join([
                f"port {self.port}", "bind 127.0.0.1", f"unixsocket {self.path}", f"dir {self.directory}",
                f"logfile {self.directory}/log", "user default on nopass ~* &* +@all", *self.lines,
                f"sentinel monitor {self.master_name} 127.0.0.1 {self.first_port} 1",
                f"sentinel down-after-milliseconds {self.master_name} {self.down_ms}",
                f"sentinel failover-timeout {self.master_name} 3000", ""]))
        return ["redis-server", path, "--sentinel"]

    def master_port(self):
        return int(self.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.master_name)[1])
