# SPDX-License-Identifier: MIT
"""`weir serve`, and the text of `weir stat`, as those that collect metrics see them.

usage: test_serve.py WEIR [prometheus]

promtool, if there is one, reads the text in both formats. With `prometheus` a server of Prometheus
scrapes it, and what it knows then is compared with what the clients of the sets have counted.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

COMMAND = os.path.abspath(sys.argv[1])
PATIENCE = 60
PROMTOOL = shutil.which("promtool")
PROMETHEUS = shutil.which("prometheus")
OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
SAMPLE = re.compile(r'^(\w+)\{(.*)\} (\S+)$')
CONFIG = """version: 1
process_dir: {directory}
sets:
  jobs:
    backend: process
    limits:
      - {{ type: rate, key: tokens, algorithm: token_bucket, capacity: 50, window: 1h }}
      - {{ type: resource, key: slots, capacity: 2 }}
  'od"d\\{{}}': {{ backend: process, limits: [ {{ type: call, algorithm: gcra, capacity: 5, window: 1h }} ] }}
  tenants: {{ backend: process, subjects: {{ max: 100 }}, limits: [ {{ type: resource, key: r, capacity: 1 }} ] }}
  adapts: {{ backend: process, limits: [ {{ type: resource, key: r, algorithm: aimd, capacity: 9 }} ] }}
"""


class Answer:
    def __init__(self, response):
        self.status, self.body = response.status, response.read().decode()
        self.type, self.allow = response.getheader("Content-Type"), response.getheader("Allow")
        self.length = response.getheader("Content-Length")


def samples(text):
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            assert (name, labels) not in found, line
            found[name, labels] = value
    return found


def promtool(*arguments, text=None):
    return subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True,
                          timeout=PATIENCE, check=False)


class Metrics(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="weir-", dir="/dev/shm")  # 0700
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.config = os.path.join(self.directory, "weir.yaml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(directory=self.directory))
        self.env = {key: value for key, value in os.environ.items()
                    if key not in ("WEIR_CONFIG", "WEIR_PROCESS_DIR")}

    def weir(self, *arguments, code=0):
        done = subprocess.run([COMMAND, *arguments], env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def request(self, name, *arguments, code=0):
        self.weir("exec", "-f", self.config, "-s", name, *arguments, "true", code=code)

    def use(self):
        """Uses the sets, and returns what was counted here."""
        for tokens in (1, 2, 3):
            self.request("jobs", "-a", f"tokens={tokens}")
        self.request("jobs", "-a", "tokens=50", "-w", "0s", code=123)
        self.request("jobs", "-a", "tokens=51", code=123)
        self.request('od"d\\{}')
        self.request("tenants", "-S", "alice")
        self.request("adapts")
        return {"weir_grants_total": 3, "weir_releases_total": 3, "weir_refunds_total": 0,
                'weir_refusals_total{reason="max_wait"}': 0, 'weir_refusals_total{reason="impossible"}': 1,
                'weir_refusals_total{reason="busy"}': 1, "weir_held": 0, "weir_waiting": 0,
                'weir_limit_granted_total{key="tokens"}': 6, 'weir_limit_granted_total{key="slots"}': 3,
                'weir_limit_refused_total{key="tokens"}': 2, 'weir_limit_available{key="slots"}': 2,
                'weir_limit_capacity{key="tokens"}': 50, "weir_wait_seconds_count": 0}

    def serve(self, *arguments, address="0", **kinds):
        server = subprocess.Popen([COMMAND, "serve", "-f", self.config, "--metrics", address, *arguments],
                                  env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kinds)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.port = self.port_of(server)
        return server

    def port_of(self, server):
        line = server.stdout.readline()
        if not line and "built without" in (error := server.stderr.read()):
            self.skipTest(error.strip())
        match = re.fullmatch(r"listening on http://(?:127\.0\.0\.1|\[::1\]):(\d+)/metrics\n", line)
        self.assertIsNotNone(match, line)
        return int(match[1])

    def ask(self, method="GET", path="/metrics", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE
        while not (result := condition()):
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)
        return result


class Text(Metrics):
    def test_both_formats(self):
        self.use()
        old, new = (self.weir("stat", "-f", self.config, option) for option in ("--prometheus", "--openmetrics"))
        self.assertEqual(samples(old), samples(new))
        self.assertTrue(new.endswith("\n# EOF\n"))
        self.assertIn(("weir_limit_reported", 'set="adapts",limit="0",type="resource",key="r",algorithm="aimd",'
                                           'gauge="limit"'), samples(new))

    @unittest.skipUnless(PROMTOOL, "there is no promtool")
    def test_promtool_reads_the_older_format(self):
        self.use()
        done = promtool("check", "metrics", text=self.weir("stat", "-f", self.config, "--prometheus"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(PROMTOOL, "there is no promtool")
    def test_promtool_reads_openmetrics(self):
        """It reads that only with times, to make a database of it."""
        self.use()
        text = self.weir("stat", "-f", self.config, "--openmetrics")
        timed = re.sub(r"(?m)^([^#\n].*)$", r"\1 1700000000", text)
        path = os.path.join(self.directory, "text")
        with open(path, "w", encoding="utf-8") as file:
            file.write(timed)
        done = promtool("tsdb", "create-blocks-from", "openmetrics", path, os.path.join(self.directory, "tsdb"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(int(done.stdout.splitlines()[1].split()[-2]), len(samples(text)))  # NUM SERIES

    @unittest.skipUnless(PROMTOOL, "there is no promtool")
    def test_promtool_would_complain(self):
        done = promtool("check", "metrics", text="# TYPE weir_x counter\nweir_x 1\n")
        self.assertNotEqual(done.returncode, 0)


class Serve(Metrics):
    def test_what_is_served_is_what_stat_writes(self):
        counted = self.use()
        self.serve()
        for accept, option, kind in ((OPEN, "--openmetrics", "application/openmetrics-text; version=1.0.0; "
                                                              "charset=utf-8"),
                                     ("*/*", "--prometheus", "text/plain; version=0.0.4; charset=utf-8")):
            answer = self.ask(Accept=accept)
            self.assertEqual((answer.status, answer.type), (200, kind))
            self.assertEqual(answer.body, self.weir("stat", "-f", self.config, option))
        found = samples(answer.body)
        for query, value in counted.items():
            name, condition = re.fullmatch(r"(\w+)(?:\{(.*)\})?", query).groups()
            values = [found[key] for key in found if key[0] == name and key[1].startswith('set="jobs"')
                      and (condition or "") in key[1]]
            self.assertEqual(values, [str(value)], query)

    def test_every_scrape_is_of_its_time(self):
        self.serve()
        self.assertEqual(samples(self.ask().body), {})
        for n in range(1, 4):
            self.request("jobs", "-a", "tokens=1")
            self.assertEqual(samples(self.ask().body)["weir_grants_total", 'set="jobs"'], str(n))

    def test_head_is_get_without_a_body(self):
        self.serve()
        get, head = self.ask(), self.ask("HEAD")
        self.assertEqual((head.status, head.type, head.length, head.body), (200, get.type, get.length, ""))

    def test_nothing_else_is_served(self):
        self.serve()
        for path in ("/", "/metrics/", "/metric", "/..", "//metrics"):
            self.assertEqual(self.ask(path=path).status, 404, path)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
            answer = self.ask(method, body="x" * 5000)
            self.assertEqual((answer.status, answer.allow), (405, "GET, HEAD"))
        self.assertEqual(self.ask(body="x" * 100000).status, 200)  # the body is dropped
        self.assertIn(self.ask(**{"X-Long": "x" * 100000}).status, (413, 414, 431))
        self.assertEqual(self.ask(path="/metrics?x=y").status, 200)

    def test_clients_are_bounded(self):
        self.serve()
        idle = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(16)]
        for client in idle:
            self.addCleanup(client.close)
            client.sendall(b"GET /metrics HTTP/1.1\r\n")  # and no more
        with socket.create_connection(("127.0.0.1", self.port)) as late:
            late.settimeout(2)
            try:
                late.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertEqual(late.recv(1), b"")
            except (TimeoutError, ConnectionError):
                pass  # it is not served, one way or the other
        idle.pop().close()
        self.until("another client is served", self.is_served)

    def is_served(self):
        try:
            return self.ask().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def test_a_signal_ends_it(self):
        for which in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            with socket.create_connection(("127.0.0.1", self.port)) as client:
                client.sendall(b"GET /me")
                server.send_signal(which)
                self.assertEqual(server.wait(PATIENCE), 0)
            self.assertEqual(server.stderr.read(), "")
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port))

    def test_a_directory_that_cannot_be_read(self):
        self.serve("--process-dir", os.path.join(self.directory, "weir.yaml"))
        answer = self.ask()
        self.assertEqual(answer.status, 503)
        self.assertIn("weir.yaml", answer.body)

    def test_a_damaged_set_is_named_once(self):
        server = self.serve()
        with open(os.path.join(self.directory, "bad.weir"), "wb") as file:
            file.write(b"x" * 4096)
        for _ in range(3):
            self.assertEqual(self.ask().status, 200)
        server.terminate()
        self.assertEqual(len([line for line in server.stderr.read().splitlines() if "bad" in line]), 1)

    def test_addresses(self):
        for address in ("", "x", "127.0.0.1", ":80", "65536", "127.0.0.1:", "[::1:80", "::1:80", "[::1]80", "[]:80",
                        "localhost:80", "127.0.0.1:-1", "1.2.3:80", "127.0.0.1:" + "0" * 6, "[" + "1" * 60 + "]:80"):
            done = subprocess.run([COMMAND, "serve", "--metrics", address], env=self.env, capture_output=True,
                                  text=True, timeout=PATIENCE, check=False)
            if "built without" in done.stderr:
                self.skipTest(done.stderr)
            self.assertEqual(done.returncode, 2, address)
            self.assertIn(f"`{address}` is no address", done.stderr)
        for arguments in ([], ["--metrics", "0", "x"], ["--metrics"]):
            self.weir("serve", *arguments, code=2)
        self.serve(address="127.0.0.1:0")
        self.assertEqual(self.ask().status, 200)
        self.weir("serve", "--metrics", str(self.port), code=3)  # is taken

    def test_a_socket_of_systemd(self):
        self.weir("serve", "--metrics", "systemd", code=3)
        path = os.path.join(self.directory, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified, socket.socket() as listener:
            notified.bind(path)
            notified.settimeout(PATIENCE)
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self.env.update(LISTEN_FDS="1", NOTIFY_SOCKET=path)
            server = subprocess.Popen(
                ["sh", "-c", f'LISTEN_PID=$$ exec "$0" "$@" 3<&{listener.fileno()}', COMMAND, "serve", "-f", self.config,
                 "--metrics", "systemd"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                pass_fds=[listener.fileno()])
            self.addCleanup(server.stdout.close)
            self.addCleanup(server.stderr.close)
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            self.port = self.port_of(server)
            self.assertEqual(self.port, listener.getsockname()[1])
            self.assertEqual(notified.recv(64), b"READY=1")
            self.assertEqual(self.ask().status, 200)


class Prometheus(Metrics):
    def start(self):
        """Starts a server that scrapes; another one, if its port was taken meanwhile."""
        path = os.path.join(self.directory, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("global: { scrape_interval: 1s }\nscrape_configs:\n  - job_name: weir\n"
                       f"    static_configs: [ {{ targets: ['127.0.0.1:{self.port}'] }} ]\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.api = free.getsockname()[1]
        server = subprocess.Popen(
            [PROMETHEUS, f"--config.file={path}", f"--storage.tsdb.path={self.directory}/tsdb",
             f"--web.listen-address=127.0.0.1:{self.api}", "--log.level=error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return server

    def query(self, query):
        connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=PATIENCE)
        try:
            connection.request("GET", "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
            response = connection.getresponse()
            text = response.read()
            return json.loads(text)["data"]["result"] if response.status == 200 else []  # it is not ready
        except OSError:
            return []  # it has not begun, or another one has the port
        finally:
            connection.close()

    def value(self, query):
        """The value of the set `jobs`, or None."""
        name, condition = re.fullmatch(r"(\w+)(?:\{(.*)\})?", query).groups()
        result = self.query(f'{name}{{set="jobs",{condition or ""}}}')
        return float(result[0]["value"][1]) if len(result) == 1 else None

    def test_it_knows_what_the_clients_have_counted(self):
        counted = self.use()
        self.serve()
        server = self.start()
        end = time.monotonic() + PATIENCE
        while self.value("weir_grants_total") is None:
            self.assertLess(time.monotonic(), end, "a scrape")
            if server.poll() is not None:
                server = self.start()
            time.sleep(0.1)
        self.assertEqual({query: self.value(query) for query in counted}, counted)
        for _ in range(4):
            self.request("jobs", "-a", "tokens=2")
        self.until("the next scrapes are seen", lambda: self.value("weir_grants_total") == counted["weir_grants_total"] + 4)
        self.assertEqual(self.value('weir_limit_granted_total{key="tokens"}'), 6 + 8)
        (target,) = self.query('up{job="weir"}')
        self.assertEqual(target["value"][1], "1")


if __name__ == "__main__":
    if sys.argv[2:] == ["prometheus"]:
        if not PROMETHEUS:
            print("there is no prometheus")
            sys.exit(77)
        unittest.main(argv=[sys.argv[0], "Prometheus"])
    unittest.main(argv=[sys.argv[0], "Text", "Serve"])
