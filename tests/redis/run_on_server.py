# SPDX-License-Identifier: MIT
"""Runs a program on a server of its own: run_on_server.py [--old LIBRARY] PROGRAM PLUGIN [ARGUMENT]...

With --old the server counts as one that has been there for long, and grants at once: LIBRARY is loaded so.
PROGRAM gets the plugin, the server's socket, and the arguments. PID among them is the server's; CLUSTER is the URL of
a cluster of two masters; TLS and CA are the server's URL with TLS, and the file with its authority; SENTINEL is the URL of
a Sentinel of another master.
"""
import os
import subprocess
import sys
import tempfile

from redis_certificates import make_certificates, need_openssl, tls_options
from redis_cluster import Cluster, free_ports
from redis_sentinel import Sentinel
from redis_server import Client, Server, read_library


def make_old(library):
    client = Client(server.path)
    run = next(line for line in client.call("INFO", "server").split("\r\n") if line.startswith("run_id:"))
    client.call("SET", "identity", run.removeprefix("run_id:"))
    client.call("SET", "start", 0)
    client.call("FUNCTION", "LOAD", read_library(library, fake_identity=True))
    client.close()


def secure_options(directory):
    """Options of a server with TLS; the certificates are made."""
    need_openssl()
    make_certificates(directory)
    port = free_ports(1)[0]
    words["TLS"], words["CA"] = f"rediss://127.0.0.1:{port}", os.path.join(directory, "ca.crt")
    return tls_options(directory, port)


def watch_master():
    """A master, and its Sentinel."""
    ports = free_ports(2)
    others.append(Server("--bind", "127.0.0.1", "--port", str(ports[0])))
    others.append(Sentinel(ports[1], ports[0]))
    words["SENTINEL"] = f"redis://127.0.0.1:{ports[1]}"


arguments = sys.argv[1:]
words, others, certificates = {}, [], tempfile.TemporaryDirectory()
server = Server(*secure_options(certificates.name) if "TLS" in arguments else ())
words["PID"] = str(server.process.pid)
try:
    if arguments[0] == "--old":
        make_old(arguments[1])
        del arguments[:2]
    if "CLUSTER" in arguments:
        others.append(Cluster(masters=2))
        words["CLUSTER"] = f"redis://127.0.0.1:{others[-1].masters[0].port}"
    if "SENTINEL" in arguments:
        watch_master()
    program, plugin = arguments[:2]
    arguments = [words.get(word, word) for word in arguments[2:]]
    sys.exit(subprocess.run([program, os.path.abspath(plugin), server.path, *arguments], check=False).returncode)
finally:
    server.stop()
    for other in others:
        other.stop()
    certificates.cleanup()
