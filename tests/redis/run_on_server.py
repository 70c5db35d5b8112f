# SPDX-License-Identifier: MIT
"""Runs a program on a server of its own: run_on_server.py [--old LIBRARY] PROGRAM PLUGIN [ARGUMENT]...

With --old the server counts as one that has been there for long, and grants at once: LIBRARY is loaded so.
PROGRAM gets the plugin, the server's socket, and the arguments. PID among them is the server's; CLUSTER is the URL of
a cluster of two masters.
"""
import os
import subprocess
import sys

from redis_cluster import Cluster
from redis_server import Client, Server, read_library


def make_old(library):
    client = Client(server.path)
    run = next(line for line in client.call("INFO", "server").split("\r\n") if line.startswith("run_id:"))
    client.call("SET", "identity", run.removeprefix("run_id:"))
    client.call("SET", "start", 0)
    client.call("FUNCTION", "LOAD", read_library(library, fake_identity=True))
    client.close()


arguments = sys.argv[1:]
server, cluster = Server(), None
words = {"PID": str(server.process.pid)}
try:
    if arguments[0] == "--old":
        make_old(arguments[1])
        del arguments[:2]
    if "CLUSTER" in arguments:
        cluster = Cluster(masters=2)
        words["CLUSTER"] = f"redis://127.0.0.1:{cluster.masters[0].port}"
    program, plugin = arguments[:2]
    arguments = [words.get(word, word) for word in arguments[2:]]
    sys.exit(subprocess.run([program, os.path.abspath(plugin), server.path, *arguments], check=False).returncode)
finally:
    server.stop()
    if cluster:
        cluster.stop()
