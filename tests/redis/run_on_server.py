# SPDX-License-Identifier: MIT
"""Runs a program on a server of its own: run_on_server.py PROGRAM PLUGIN [ARGUMENT]...

PROGRAM gets the plugin, the server's socket, and the arguments. PID among them is the server's; CLUSTER is the URL of
a cluster of two masters.
"""
import os
import subprocess
import sys

from redis_cluster import Cluster
from redis_server import Server

server, cluster = Server(), None
words = {"PID": str(server.process.pid)}
try:
    if "CLUSTER" in sys.argv:
        cluster = Cluster(masters=2)
        words["CLUSTER"] = f"redis://127.0.0.1:{cluster.masters[0].port}"
    arguments = [words.get(word, word) for word in sys.argv[3:]]
    sys.exit(subprocess.run([sys.argv[1], os.path.abspath(sys.argv[2]), server.path, *arguments], check=False).returncode)
finally:
    server.stop()
    if cluster:
        cluster.stop()
