# SPDX-License-Identifier: MIT
"""Runs a program on a server of its own: run_on_server.py PROGRAM PLUGIN [ARGUMENT]...

PROGRAM gets the plugin, the server's socket, and the arguments.
"""
import subprocess
import sys

from redis_server import Server

server = Server()
try:
    sys.exit(subprocess.run([*sys.argv[1:3], server.path, *sys.argv[3:]], check=False).returncode)
finally:
    server.stop()
