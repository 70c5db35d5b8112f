# SPDX-License-Identifier: MIT
"""Runs a program on a server of its own: run_on_server.py PROGRAM PLUGIN [ARGUMENT]...

PROGRAM gets the plugin, the server's socket, and the arguments; PID among them is the server's.
"""
import os
import subprocess
import sys

from redis_server import Server

server = Server()
try:
    arguments = [str(server.process.pid) if word == "PID" else word for word in sys.argv[3:]]
    sys.exit(subprocess.run([sys.argv[1], os.path.abspath(sys.argv[2]), server.path, *arguments], check=False).returncode)
finally:
    server.stop()
