# SPDX-License-Identifier: MIT
"""The plugin for Redis under faults: processes that are killed or stopped, links that are cut, servers
that restart with and without their data, replies that are torn or damaged.

    test_redis_engine.py PLUGIN CROWD [NAME | foreign_NAME]...

The program CROWD is run against servers of the test's own. It fails by itself as soon as more is held
than there is, or a fencing token does not grow; here is checked what is left at the end.
"""
import os
import random
import re
import select
import signal
import socket
import sys
import tempfile
import threading
import time

from redis_certificates import make_certificates, need_openssl, tls_options
from redis_cluster import free_ports
from redis_crowd import KEY, Crowd, balanced, expect, finish
from redis_server import Client, PATIENCE, Server, need_server


class World(Crowd):
    """A server, and processes that use it."""

    def __init__(self, capacity, *options):
        self.server = Server(*options)
        super().__init__(crowd_program, plugin, self.server, capacity)

    def crowd(self, slot, ms, path=None, url=None, subject=None, **parameters):
        return self.start(url or f"unix://{path or self.server.path}", slot, ms, *([subject] if subject else []),
                          **parameters)

    def quiet(self, key=KEY):
        return super().quiet(lambda: self.server, key)


def clean():
    with World(3) as world:
        counts = finish(world.crowd(0, 5000))
        expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        balanced(world.quiet())


def alone():
    """One unit: fencing tokens grow."""
    with World(1) as world:
        processes = [world.crowd(slot, 5000) for slot in range(2)]
        for process in processes:
            expect(finish(process)["granted"] > 0, "a process got nothing")
        balanced(world.quiet())


def subjects():
    with World(2) as world:
        processes = [world.crowd(slot, 5000, subject="alice {} \t") for slot in range(2)]
        for process in processes:
            expect(finish(process)["granted"] > 0, "a process got nothing")
        balanced(world.quiet("weir:{crowd:alice {%7D \t}"))


def killed():
    """What a killed process held can be had again after a session."""
    with World(3) as world:
        survivor = world.crowd(0, 9000)
        for slot in range(1, 4):
            victim = world.crowd(slot, 60000)
            time.sleep(1)
            victim.kill()
            victim.wait()
            world.forget(slot)
        counts = finish(survivor)
        expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        balanced(world.quiet())


def stopped():
    """A process that was stopped for longer than its session learns that it lost what it held."""
    with World(2) as world:
        sleeper = world.crowd(0, 6000)
        time.sleep(1)
        sleeper.send_signal(signal.SIGSTOP)
        world.forget(0)
        other = finish(world.crowd(1, 4000))
        expect(other["granted"] > 0, "what the stopped process held was not had again")
        sleeper.kill()  # it would count what it held once more
        balanced(world.quiet())


def silent():
    """A server that says nothing for longer than a session: what was held is given up by then."""
    with World(2) as world:
        processes = [world.crowd(slot, 9000) for slot in range(2)]
        time.sleep(3)
        world.server.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        world.server.process.send_signal(signal.SIGCONT)
        counts = [finish(process) for process in processes]
        expect(all(each["granted"] > 0 and each["unreachable"] > 0 for each in counts), f"{counts}")
        balanced(world.quiet())


def cut():
    """Links that the server cuts, over and over: nothing is lost, nothing is granted twice."""
    with World(3) as world:
        processes, client = [world.crowd(slot, 4000) for slot in range(2)], Client(world.server.path)
        while any(process.poll() is None for process in processes):
            client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            time.sleep(random.uniform(0, 0.2))
        for process in processes:
            counts = finish(process)
            expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        balanced(world.quiet())


def flushed():
    """Functions that vanish are loaded again."""
    with World(3) as world:
        process, client = world.crowd(0, 4000), Client(world.server.path)
        while process.poll() is None:
            client.call("FUNCTION", "FLUSH")
            time.sleep(0.3)
        counts = finish(process)
        expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")


def restart(*options):
    with World(3, *options) as world:
        processes = [world.crowd(slot, 9000) for slot in range(2)]
        for _ in range(2):
            time.sleep(2.5)
            world.server.kill()
            world.server.start()
        for process in processes:
            expect(finish(process)["granted"] > 0, "a process got nothing")
        world.quiet()


def restarted():
    """With its data: at most the last writes are missing."""
    restart("--appendonly", "yes", "--appendfsync", "no")


def emptied():
    """Without its data: nodes assert what they hold."""
    restart()


class Proxy:
    """Stands between a process and the server, and hands replies on as the test wants."""

    def __init__(self, server, change):
        self.path, self.server, self.change, self.ends = server.path + ".proxy", server, change, False
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.ends:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.server.path)
            threading.Thread(target=self.carry, args=(client, server), daemon=True).start()

    def carry(self, client, server):
        try:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client:
                        server.sendall(data)
                    elif not self.change(data, client):
                        return
        except OSError:
            pass
        finally:
            client.close()
            server.close()


def await_client(client, command):
    """The id of a client of the server that has sent this command last."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = re.search(rf"^id=(\d+) .* cmd={command} ", client.call("CLIENT", "LIST"), re.MULTILINE)
        if found:
            return found[1]
        time.sleep(0.01)
    sys.exit(f"no client has sent {command}")


def hand_on(data, client):
    client.sendall(data)
    return True


def hand_on_late(data, client):
    """By three times what a decision may take on a link that is not slow."""
    time.sleep(0.06)
    client.sendall(data)
    return True


def hand_on_torn(data, client):
    for i in range(len(data)):
        client.sendall(data[i:i + 1])
    return True


def hand_on_cut(data, client):
    """One reply in 300 is cut at some byte, and the link with it."""
    if random.random() < 1 / 300:
        client.sendall(data[:random.randrange(len(data))])
        return False
    client.sendall(data)
    return True


def hand_on_nonsense(data, client):
    """One reply in 300 is one that no call has; then nothing more comes that fits."""
    client.sendall(b"*1\r\n:9\r\n" if random.random() < 1 / 300 else data)
    return True


def garble(data):
    data = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        data[random.randrange(len(data))] = random.choice(b"*$:+-\r\n09x\0\xff")
    return bytes(data)


def tls():
    """By TLS, with links that are cut; a server for which the certificate is not is refused."""
    need_openssl()
    with tempfile.TemporaryDirectory() as directory:
        make_certificates(directory)
        port, ca_file = free_ports(1)[0], os.path.join(directory, "ca.crt")
        with World(3, *tls_options(directory, port)) as world:
            right = world.crowd(0, 5000, url=f"rediss://127.0.0.1:{port}", ca_file=ca_file)
            wrong = world.crowd(1, 5000, url=f"rediss://localhost:{port}", ca_file=ca_file)
            client = Client(world.server.path)
            while right.poll() is None:
                time.sleep(0.5)
                client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            counts = finish(right)
            expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
            counts = finish(wrong)
            expect(counts["granted"] == 0 and counts["unreachable"] > 0, f"another host: {counts}")
            balanced(world.quiet())


def replaced():
    """The address leads to another server: the inbox is read there as well."""
    with World(3) as world:
        other = Server()
        try:
            proxy = Proxy(world.server, hand_on)
            process, clients = world.crowd(0, 60000, path=proxy.path), {each: Client(each.path) for each in (world.server, other)}
            await_client(clients[world.server], "blpop")
            proxy.server = other
            clients[world.server].call("CLIENT", "KILL", "ID", await_client(clients[world.server], "fcall"))
            await_client(clients[other], "blpop")
            process.kill()
            process.wait()
        finally:
            other.stop()


def slow():
    """A slow link: what is decided is older when it comes to the server, and is granted all the same."""
    with World(3) as world:
        counts = finish(world.crowd(0, 6000, path=Proxy(world.server, hand_on_late).path))
        expect(counts["granted"] > 0, f"{counts}")
        balanced(world.quiet())


def torn():
    with World(3) as world:
        counts = finish(world.crowd(0, 3000, path=Proxy(world.server, hand_on_torn).path))
        expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        balanced(world.quiet())


def broken_off():
    with World(3) as world:
        counts = finish(world.crowd(0, 4000, path=Proxy(world.server, hand_on_cut).path))
        expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        balanced(world.quiet())


def nonsense():
    """What was asked in vain is asked again."""
    with World(3) as world:
        counts = finish(world.crowd(0, 5000, path=Proxy(world.server, hand_on_nonsense).path))
        expect(counts["granted"] > 0 and counts["losses"] == 0, f"{counts}")
        balanced(world.quiet())


def garbage():
    """A server that says anything: the process does not crash. What it decides may be wrong."""
    with World(200) as world:
        def hand_on(data, client):
            client.sendall(garble(data) if random.random() < 1 / 20 else data)
            return True

        process = world.crowd(0, 4000, path=Proxy(world.server, hand_on).path)
        _, err = process.communicate(timeout=PATIENCE * 2)
        expect(process.returncode in (0, 1), f"exit status {process.returncode}\n{err}")
        expect("Sanitizer" not in err and "runtime error" not in err, err)


SCENARIOS = [clean, alone, subjects, killed, stopped, silent, cut, flushed, restarted, emptied, replaced, tls, slow, torn, broken_off, nonsense,
             garbage]

need_server()
plugin, crowd_program = sys.argv[1:3]
seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
random.seed(seed)
print("seed", seed)
names = sys.argv[3:] or [each.__name__ for each in SCENARIOS]
for each in SCENARIOS:
    for name in each.__name__, "foreign_" + each.__name__:
        if name in names:
            World.is_foreign = name != each.__name__
            print(name, flush=True)
            began = time.monotonic()
            each()
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
