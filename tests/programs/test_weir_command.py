# SPDX-License-Identifier: MIT
"""The weir command as scripts see it: exit codes, complaints at their places, valid JSON.

Arguments: the command, the directory of the broken plugin files of the unit tests, the engine of the
tests, and the directory of files that do harm when they are loaded.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

COMMAND, BROKEN, ENGINE, BAD = sys.argv[1:5]

PLAIN = """version: 1
sets:
  east:
    timeout: 30s
    max_waiters: 9
    config: { region: us-east-1 }
    limits:
      - { type: call, algorithm: gcra, capacity: 100, window: 60s }
      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 90k, window: 60s, burst: 7 }
      - { type: resource, key: connections, capacity: 10 }
  plain: {}
pools:
  both: { balancer: round_robin, sets: [east, plain] }
"""

FIVE_MISTAKES = """version: 1
sets:
  one:
    timeout: 30
    limits:
      - { type: call, algorithm: gcro, capacity: 100, window: 60s }
      - { type: rate, key: tokens, algorithm: token_bucket, capacty: 9, capacity: 9, window: 1s }
      - { type: resource, key: connections, capacity: 0 }
pools:
  p: { balancer: round_robin, sets: [two] }
"""
FIVE_PLACES = [
    (4, 14, "timeout"),
    (6, 34, "gcra"),  # what would be right
    (7, 61, "capacity"),
    (8, 55, "capacity"),
    (10, 38, "two"),
]

UNLIKELY = """version: 1
sets:
  one:
    limits: [ { type: resource, key: r, capacity: 3 }, { type: resource, key: r, capacity: 4 } ]
  nothing: {}
  slow:
    timeout: 5s
    max_wait: 6s
    limits: [ { type: call, algorithm: gcra, capacity: 10, window: 1s, burst: 10k } ]
pools:
  p: { sets: [one, slow] }
"""
UNLIKELY_PLACES = ["4:56", "5:3", "8:15", "9:79"]

FINE = """version: 1
sets:
  one:
    timeout: 6s
    max_wait: 5s
    limits: [ { type: call, algorithm: gcra, capacity: 10, window: 1s, burst: 99 } ]
pools:
  p: { sets: [one] }
"""


def messages(err):
    """The lines of the standard error that are no excerpts."""
    return [line for line in err.splitlines() if line[6:9] != " | "]


def weir(*arguments, text=None, env=None, **options):
    return subprocess.run([COMMAND, *arguments], input=text, capture_output=True, timeout=60,
                          env={**os.environ, **(env or {})}, **options)


class Directory(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def expect(self, done, code):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout.decode(), done.stderr.decode()


class Usage(Directory):
    def test_version_and_help(self):
        out, err = self.expect(weir("--version"), 0)
        self.assertRegex(out, r"^weir [0-9]+\.[0-9]+\.[0-9]+\n$")
        self.assertEqual(err, "")
        out, _ = self.expect(weir("--help"), 0)
        for part in ("check", "exec", "ls", "plugins", "rm", "stat", "top", "why"):
            self.assertIn(f"\n  weir {part} ", out)
            for option in ("-h", "--help"):
                part_help, err = self.expect(weir(part, option), 0)
                self.assertIn(f"weir {part}", part_help.splitlines()[0] + part_help.splitlines()[1])
                self.assertEqual(err, "")

    def test_wrong_usage(self):
        for arguments in ([], ["chek", "a"], ["--nonsense"], ["-j", "check", "x"], ["-"]):
            out, err = self.expect(weir(*arguments), 2)
            self.assertEqual(out, "")
            self.assertIn("`weir --help`", err)
        for arguments in (["check"], ["check", "-c", "x", "y"],
                          ["check"] + ["-d", "d"] * 65 + ["x"], ["plugins"] + ["d"] * 65,
                          ["plugins", "-d"]):
            out, err = self.expect(weir(*arguments), 2)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith(f"weir {arguments[0]}: "), err)
            self.assertIn(f"`weir {arguments[0]} --help`", err)

    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"cannot write", done.stderr)

    def test_closed_descriptors(self):
        for closed, code in ((">&-", 3), ("2>&-", 0), ("<&-", 0), (">&- 2>&-", 3)):
            done = subprocess.run(["sh", "-c", f'exec "$0" --version {closed}', COMMAND],
                                  capture_output=True)
            self.assertEqual(done.returncode, code, closed)
        done = subprocess.run(["sh", "-c", 'exec "$0" check - <&-', COMMAND], capture_output=True)
        self.assertEqual(done.returncode, 3)


class Check(Directory):
    def test_good_file(self):
        path = self.write("weir.yaml", PLAIN)
        out, err = self.expect(weir("check", path), 0)
        self.assertEqual(messages(err), [path + ":11:3: warning: set `plain` has no limits: it "
                                         "grants everything"])
        self.assertTrue(out.startswith(path + ": 2 sets, 1 pool\n"), out)
        for words in (["call", "call_count", "gcra", "capacity", "100", "window", "60s"],
                      ["rate", "tokens", "token_bucket", "90k", "60s", "burst", "7"],
                      ["resource", "connections", "capacity", "10"],
                      ["set", "east", "timeout", "30s", "max_waiters", "9"],
                      ["pool", "both", "round_robin:"], ["set", "plain:", "no", "limits"]):
            self.assertTrue(any(all(word in line.split() for word in words)
                                for line in out.splitlines()), (words, out))

    def test_backend(self):
        path = self.write("weir.yaml", "version: 1\nsets:\n  stays: { backend: process }\n"
                          "  goes: { backend: process, lifetime: users, strict: true }\n")
        out, err = self.expect(weir("check", path), 0)
        self.assertEqual(len(messages(err)), 2)
        self.assertIn("set stays: no limits  backend process  lifetime boot\n", out)
        self.assertIn("set goes: no limits  backend process  lifetime users  strict\n", out)
        out, _ = self.expect(weir("check", "--json", path), 0)
        self.assertEqual([(one["backend"], one["lifetime"]) for one in json.loads(out)["sets"]],
                         [("process", "boot"), ("process", "users")])

    def test_subjects(self):
        limits = "limits: [ { type: resource, key: slots, capacity: 2 } ]"
        path = self.write("weir.yaml", "version: 1\nsets:\n"
                          "  each: { subjects: { max: 10k }, " + limits + " }\n"
                          "  few: { subjects: { max: 1M, memory: 64KiB, evict: none }, " + limits
                          + " }\n  all: { " + limits + " }\n")
        out, err = self.expect(weir("check", path), 0)
        self.assertEqual(err, "")
        self.assertIn("set each  subjects  max 10k  evict oldest\n", out)
        self.assertIn("set few  subjects  max 1M  memory 64KiB  evict none\n", out)
        self.assertIn("set all\n", out)
        out, _ = self.expect(weir("check", "--json", path), 0)
        self.assertEqual([one.get("subjects") for one in json.loads(out)["sets"]],
                         [{"max": 10000, "evict": "oldest"},
                          {"max": 1000000, "memory": 65536, "evict": "none"}, None])

    def test_classes(self):
        limits = "limits: [ { type: resource, key: slots, capacity: 2, max_hold: 30s, max_hold_action: revoke } ]"
        path = self.write("weir.yaml", "version: 1\nsets:\n"
                          "  urgency: { priorities: 3, " + limits + " }\n"
                          "  parts: { shares: { web: 3, batch: 1 }, " + limits + " }\n")
        out, err = self.expect(weir("check", path), 0)
        self.assertEqual(err, "")
        self.assertIn("set urgency  priorities 0 1 2\n", out)
        self.assertIn("set parts  shares web: 3 batch: 1\n", out)
        self.assertIn("max_hold 30s  max_hold_action revoke\n", out)
        out, _ = self.expect(weir("check", "--json", path), 0)
        self.assertEqual([one["classes"] for one in json.loads(out)["sets"]],
                         [[{"name": "0"}, {"name": "1"}, {"name": "2"}],
                          [{"name": "web", "weight": 3}, {"name": "batch", "weight": 1}]])

    def test_good_file_as_json(self):
        out, err = self.expect(weir("check", "--json", self.write("weir.yaml", PLAIN)), 0)
        self.assertEqual(err, "")
        got = json.loads(out)
        self.assertIs(got["ok"], True)
        self.assertEqual(got["complaints"], [])
        self.assertEqual(got["sets"], [
            {"name": "east", "backend": "thread", "timeout_ns": 30 * 10**9, "max_waiters": 9,
             "strict": False, "fair": True, "per_limit": False, "clock": "monotonic",
             "hold_histogram": False, "limits": [
                {"type": "call", "key": "call_count", "algorithm": "gcra", "capacity": 100,
                 "settings": {"capacity": "100", "window": "60s"}},
                {"type": "rate", "key": "tokens", "algorithm": "token_bucket", "capacity": 7,
                 "settings": {"capacity": "90k", "window": "60s", "burst": "7"}},
                {"type": "resource", "key": "connections", "algorithm": None, "capacity": 10,
                 "settings": {"capacity": "10"}}]},
            {"name": "plain", "backend": "thread", "strict": False, "fair": True, "per_limit": False,
             "clock": "monotonic", "hold_histogram": False, "limits": []}])
        self.assertEqual(got["pools"], [{"name": "both", "balancer": "round_robin", "try": "one",
                                         "wait": "picked", "sets": ["east", "plain"]}])

    def test_five_mistakes(self):
        path = self.write("wrong.yaml", FIVE_MISTAKES)
        out, err = self.expect(weir("check", path), 1)
        self.assertEqual(out, "")
        lines = err.splitlines()
        self.assertEqual(len(lines), 15, err)
        for at, (row, column, word) in enumerate(FIVE_PLACES):
            line, excerpt, caret = lines[3 * at:3 * at + 3]
            self.assertTrue(line.startswith(f"{path}:{row}:{column}: "), line)
            self.assertIn(word, line)
            whole = FIVE_MISTAKES.splitlines()[row - 1]
            self.assertEqual((excerpt[:9], caret[:9]), (f"{row:6} | ", "       | "))
            self.assertIn(excerpt[9:].strip("…"), whole)
            self.assertEqual(caret[9:].strip(" "), "^")
            self.assertEqual(excerpt[len(caret) - 1:].strip("…"),
                             whole[column - 1:][:len(excerpt[len(caret) - 1:].strip("…"))])

    def test_five_mistakes_as_json(self):
        path = self.write("wrong.yaml", FIVE_MISTAKES)
        out, err = self.expect(weir("check", "--json", path), 1)
        self.assertEqual(err, "")
        got = json.loads(out)
        self.assertIs(got["ok"], False)
        self.assertNotIn("sets", got)
        self.assertEqual([(c["file"], c["line"], c["column"]) for c in got["complaints"]],
                         [(path, row, column) for row, column, _ in FIVE_PLACES])

    def test_json_escapes_whatever_a_file_says(self):
        strange = 'a"b\\c\td\u00e4\u2028\U0001f600'
        text = f'version: 1\n{json.dumps(strange, ensure_ascii=False)}: 1\n'
        out, _ = self.expect(weir("check", "--json", self.write(strange, text)), 1)
        got = json.loads(out)
        self.assertEqual(got["file"], os.path.join(self.directory, strange))
        self.assertEqual(len(got["complaints"]), 1)
        for name in (b"\xff\xfe", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"):
            out, _ = self.expect(weir("check", "--json", os.fsencode(self.directory) + b"/" + name),
                                 3)
            self.assertIn("\ufffd", json.loads(out)["file"])

    def test_standard_input(self):
        out, _ = self.expect(weir("check", "-", text=PLAIN.encode()), 0)
        self.assertTrue(out.startswith("<stdin>: 2 sets"), out)
        _, err = self.expect(weir("check", "-", text=FIVE_MISTAKES.encode()), 1)
        self.assertTrue(err.startswith("<stdin>:4:14: "), err)
        _, err = self.expect(weir("check", "-", text=b"version: 1\nsets:\n  \0a: {}\n"), 1)
        self.assertTrue(err.startswith("<stdin>:3:3: "), err)
        _, err = self.expect(weir("check", "-", text="# één\n# größe\0\n".encode()), 1)
        self.assertTrue(err.startswith("<stdin>:2:8: "), err)
        self.assertEqual(err.splitlines()[1:], ["     2 | # größe?", "       |        ^"])
        large = PLAIN.encode() + b"# padding\n" * 30000  # more than one buffer
        self.expect(weir("check", "-", text=large), 0)
        self.expect(weir("check", "-", text=b"#" * (17 << 20)), 3)

    def test_several_files(self):
        good, bad = self.write("good.yaml", PLAIN), self.write("bad.yaml", FIVE_MISTAKES)
        out, err = self.expect(weir("check", good, bad, "--", good), 1)
        self.assertEqual(out.count(f"{good}: 2 sets, 1 pool\n"), 2)
        complaints = [line for line in messages(err) if "warning" not in line]
        self.assertEqual(len(complaints), 5)
        self.assertTrue(all(line.startswith(bad + ":") for line in complaints), err)
        out, err = self.expect(weir("check", bad, os.path.join(self.directory, "none"), good), 3)
        self.assertIn(f"{good}: 2 sets, 1 pool\n", out)
        out, _ = self.expect(weir("check", "--json", good, bad), 1)
        decoder, objects = json.JSONDecoder(), []
        while out.strip():
            found, end = decoder.raw_decode(out.lstrip())
            objects.append(found)
            out = out.lstrip()[end:]
        self.assertEqual([(found["file"], found["ok"]) for found in objects],
                         [(good, True), (bad, False)])

    def test_the_file_of_the_environment(self):
        good, bad = self.write("good.yaml", PLAIN), self.write("bad.yaml", FIVE_MISTAKES)
        out, _ = self.expect(weir("check", env={"WEIR_CONFIG": good}), 0)
        self.assertIn(f"{good}: 2 sets, 1 pool\n", out)
        _, err = self.expect(weir("check", env={"WEIR_CONFIG": bad}), 1)
        self.assertTrue(err.startswith(bad + ":"), err)
        out, _ = self.expect(weir("check", good, env={"WEIR_CONFIG": bad}), 0)
        self.assertIn(f"{good}: 2 sets, 1 pool\n", out)

    def test_names(self):
        shared = "{ backend: process, limits: [ { type: resource, key: k, capacity: 1 } ] }"
        path = self.write("weir.yaml", f"version: 1\nsets: {{ \"a b\": {shared}, c: {shared}, "
                          "own: {} }\npools: { both: { sets: [\"a b\", c] }, "
                          "mixed: { sets: [c, own] } }\n")
        out, _ = self.expect(weir("check", "--names", path), 0)
        self.assertEqual(out, "a b\nc\nboth\n")
        out, _ = self.expect(weir("check", "-n", self.write("bad.yaml", FIVE_MISTAKES)), 1)
        self.assertEqual(out, "")

    def test_very_many_complaints(self):
        lines = "".join(f"  s{i}: {{ timeout: 3 }}\n" for i in range(1234))
        path = self.write("weir.yaml", "version: 1\nsets:\n" + lines)
        more = f"{path}: 234 more complaints are not shown"
        _, err = self.expect(weir("check", path), 1)
        self.assertEqual(len(messages(err)), 1001)
        self.assertEqual(err.splitlines()[-1], more)
        out, err = self.expect(weir("check", "--json", path), 1)
        self.assertEqual((len(json.loads(out)["complaints"]), json.loads(out)["not_shown"], err),
                         (1000, 234, ""))
        _, err = self.expect(weir("check", self.write("few.yaml", FIVE_MISTAKES)), 1)
        self.assertNotIn("not shown", err)
        out, _ = self.expect(weir("check", "--json", os.path.join(self.directory, "few.yaml")), 1)
        self.assertEqual(json.loads(out)["not_shown"], 0)
        _, err = self.expect(weir("exec", "-f", path, "-s", "s1", "true"), 125)
        self.assertEqual(err.splitlines()[-1], more)
        path = self.write("fields.yaml", "version: 1\nsets: {}\n" + "".join(
            f"field{i}: 1\n" for i in range(1234)))
        _, err = self.expect(weir("plugins", "-c", path), 1)
        self.assertEqual(err.splitlines()[-1], f"{path}: 234 more complaints are not shown")

    def test_warnings(self):
        path = self.write("weir.yaml", UNLIKELY)
        out, err = self.expect(weir("check", path), 0)
        self.assertTrue(out.startswith(path + ": 3 sets, 1 pool\n"), out)
        self.assertEqual([line.split(" ", 2)[:2] for line in messages(err)],
                         [[f"{path}:{place}:", "warning:"] for place in UNLIKELY_PLACES])
        for options, code in ((["--strict"], 1), (["-s", "-j"], 1), (["-j"], 0), (["-s", "-n"], 1),
                              (["-n"], 0)):
            self.expect(weir("check", *options, path), code)
        self.assertEqual(weir("check", "-n", path).stderr, b"")
        got = json.loads(weir("check", "--json", path).stdout)
        self.assertEqual([f"{one['line']}:{one['column']}" for one in got["warnings"]],
                         UNLIKELY_PLACES)
        self.assertEqual((got["complaints"], got["ok"], len(got["sets"])), ([], True, 3))
        self.expect(weir("check", "--strict", self.write("fine.yaml", FINE)), 0)
        bad = self.write("bad.yaml", FIVE_MISTAKES)
        self.assertNotIn("warning", self.expect(weir("check", "-s", bad), 1)[1])
        self.assertEqual(json.loads(weir("check", "-j", bad).stdout)["warnings"], [])

    def test_warnings_of_a_program(self):
        path = self.write("weir.yaml", UNLIKELY)
        _, err = self.expect(weir("exec", "-f", path, "-s", "nothing", "true",
                                  env={"WEIR_LOG": "info"}), 125)
        self.assertIn(f"weir: info: {path}:5:3: set `nothing` has no limits", err)
        _, err = self.expect(weir("exec", "-f", path, "-s", "nothing", "true"), 125)
        self.assertNotIn("no limits", err)

    def test_excerpts(self):
        def excerpt(text, code=1):
            path = self.write("weir.yaml", text)
            return self.expect(weir("check", path), code)[1].splitlines()[1:3]

        long = "version: 1\nsets: { a: { config: { x: " + "y" * 200 + " }, timeout: 3, lifetime: "
        self.assertEqual(excerpt(long + "9" * 100 + " } }\n"),
                         ["     2 | …" + "y" * 35 + " }, timeout: 3, lifetime: 99999999…",
                          "       |  " + " " * 48 + "^"])
        self.assertEqual(excerpt("version: 1\nsets:\n  a: { timeout: 3 }\r\n"),
                         ["     3 |   a: { timeout: 3 }", "       | " + " " * 16 + "^"])
        self.assertEqual(excerpt("version: 1\nsets:\n  é\u200b: { timeout:\t3 }"),
                         ["     3 |   é\u200b: { timeout:\t3 }", "       | " + " " * 15 + "\t^"])
        self.assertEqual(excerpt("version: 1\nsets:\n  流量e\u0301: { timeout: 3 }"),
                         ["     3 |   流量e\u0301: { timeout: 3 }", "       | " + " " * 20 + "^"])
        self.assertEqual(excerpt("version: 1\nsets: { a: { config: { x: " + "量" * 99 + " }, timeout: 3 } }"),
                         ["     2 | …" + "量" * 17 + " }, timeout: 3 } }", "       |  " + " " * 47 + "^"])
        self.assertEqual(excerpt("version: 1\nsets: { a: 3, b: { config: { x: " + "量" * 99 + " } } }"),
                         ["     2 | sets: { a: 3, b: { config: { x: " + "量" * 18 + "…",
                          "       | " + " " * 11 + "^"])
        bidi = "\u202e\u2066x\u2069\u200f"
        path = self.write("weir.yaml", "version: 1\nsets:\n  " + bidi + ": { timeout: 3 }\n" + bidi + ": 1")
        _, err = self.expect(weir("check", path), 1)
        self.assertEqual(err.splitlines()[1:3], ["     3 |   ??x??: { timeout: 3 }",
                                                 "       | " + " " * 20 + "^"])
        self.assertEqual(set(err) & set(bidi), {"x"})
        self.assertEqual(excerpt("version: 1\nsets:\n  é\u0085: { timeout:\t3 }"),
                         ["     3 |   é?: { timeout:\t3 }", "       |   ^"])
        fifo = os.path.join(self.directory, "fifo")
        os.mkfifo(fifo)  # it cannot be read twice
        writer = subprocess.Popen(["sh", "-c", 'printf "version: 2\\n" >"$0"', fifo])
        done = weir("check", fifo)
        self.assertEqual((writer.wait(), done.returncode, len(done.stderr.splitlines())), (0, 1, 1))

    def test_unreadable(self):
        for path in (os.path.join(self.directory, "nowhere"), self.directory):
            out, err = self.expect(weir("check", path), 3)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith(path + ": "), err)
            out, _ = self.expect(weir("check", "--json", path), 3)
            self.assertIs(json.loads(out)["ok"], False)

    def test_refused_plugin(self):
        shutil.copy(os.path.join(BROKEN, "no_take.so"), self.directory)
        path = self.write("weir.yaml", PLAIN.replace("gcra", "no_take"))
        _, err = self.expect(weir("check", "-d", self.directory, path), 1)
        self.assertTrue(err.startswith(path + ":8:"), err)
        self.assertIn("its operation `take` is missing", err)


ALGORITHMS = ("aimd", "calendar", "fixed_window", "gcra", "gradient2", "leaky_bucket", "multi_window",
              "sliding_window", "token_bucket", "vegas")
BALANCERS = ("failover", "hash", "least_loaded", "power_of_two", "random", "round_robin", "soonest",
             "weighted")
PLUGINS_N = len(ALGORITHMS) + len(BALANCERS)


class Plugins(Directory):
    def test_what_is_built(self):
        out, err = self.expect(weir("plugins"), 0)
        self.assertEqual(err, "")
        for name in ALGORITHMS:
            self.assertRegex(out, rf"(?m)^  algorithm {name} ")
        for name in BALANCERS:
            self.assertRegex(out, rf"(?m)^  balancer {name} ")
        self.assertRegex(out, r"(?m)^    capacity +amount from 1, required$")
        self.assertRegex(out, r"(?m)^    mode +choice meter\|shaper, default meter$")
        built_in = out.count("<built in>/")  # of a command that was linked with the static library
        self.assertIn(built_in, (0, PLUGINS_N))
        self.assertRegex(out, rf"(?m)^{PLUGINS_N + built_in} plugins, 0 refused$")

    def test_json(self):
        out, _ = self.expect(weir("plugins", "--json"), 0)
        plugins = {plugin["name"]: plugin for plugin in json.loads(out)["plugins"]}
        self.assertEqual(len(plugins), PLUGINS_N)
        gcra = plugins["gcra"]
        self.assertEqual(gcra["kind"], "algorithm")
        self.assertEqual(gcra["types"], ["rate", "call"])
        self.assertRegex(gcra["state_id"], "^[0-9a-f]{16}$")
        self.assertTrue(gcra["path"].endswith("/gcra.so"))
        window = next(p for p in gcra["parameters"] if p["name"] == "window")
        self.assertEqual((window["type"], window["required"], window["min"], window["default"]),
                         ("duration", True, 1, None))
        mode = next(p for p in plugins["leaky_bucket"]["parameters"] if p["name"] == "mode")
        self.assertEqual((mode["choices"], mode["default"]), (["meter", "shaper"], "meter"))
        self.assertEqual(plugins["random"]["kind"], "balancer")

    def test_two_plugins_of_one_name(self):
        """Processes share no set if their plugins differ in nothing but what their states are."""
        path = {}
        for which in ("1", "2"):
            directory = os.path.join(self.directory, which)
            os.mkdir(directory)
            shutil.copy(os.path.join(BROKEN, f"name_same_{which}.so"), directory)
            path[which] = self.write(f"{which}.yaml", f"""version: 1
plugin_dirs: [{directory}]
process_dir: {self.directory}
sets: {{ s: {{ backend: process, limits: [ {{ type: rate, key: k, algorithm: acme.same }} ] }} }}
""")
        for which in ("1", "2", "1"):
            done = weir("exec", "-f", path[which], "-s", "s", "--", "true")
            if which == "1":
                self.expect(done, 0)
            else:
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(b", with other plugins of these names (segment `", done.stderr)

    def test_files_that_do_harm(self):
        """What a file does when it is loaded does not keep the others from being listed."""
        for name in ("crashes", "ends", "hangs", "prints"):
            shutil.copy(os.path.join(BAD, f"{name}.so"), self.directory)
        shutil.copy(os.path.join(BROKEN, "good.so"), os.path.join(self.directory, "zzz.so"))
        # a busy machine, and the report of a sanitizer about the crash, take some of this
        out, err = self.expect(weir("plugins", "--json", "--timeout", "6s", self.directory,
                                    env={"WEIR_PLUGIN_PATH": ""}), 1)
        entries = json.loads(out)["plugins"]
        said = {os.path.basename(entry["path"]): entry.get("refusal") for entry in entries}
        self.assertRegex(said["crashes.so"], " is refused: it (crashes when it is loaded|ends the)")
        self.assertIn(" is refused: it ends the process that loads it, with status 0", said["ends.so"])
        self.assertIn(" is refused: it hangs: it is not loaded in time", said["hangs.so"])
        self.assertIn(" is refused: plugin 1: its description is missing", said["prints.so"])
        self.assertIsNone(said["zzz.so"])
        self.assertIn("printed", err)

    def test_hidden_plugins(self):
        """A file that takes the place of a plugin of the project is said, by both commands."""
        first, second = (os.path.join(self.directory, name) for name in ("first", "second"))
        for directory, which in ((first, "1"), (second, "2")):
            os.mkdir(directory)
            shutil.copy(os.path.join(BROKEN, f"name_same_{which}.so"), f"{directory}/acme.same.so")
        path = self.write("weir.yaml", f"""version: 1
plugin_dirs: [{first}, {second}]
sets:
  s: {{ limits: [ {{ type: rate, key: a, algorithm: acme.same }}, {{ type: rate, key: b, algorithm: acme.same }} ] }}
""")
        hidden = {"path": f"{second}/acme.same.so", "kind": "algorithm", "name": "acme.same",
                  "by": f"{first}/acme.same.so"}
        out, _ = self.expect(weir("plugins", "-c", path), 0)
        self.assertIn(f"    hides another algorithm `acme.same`, that of {hidden['path']}\n", out)
        out, _ = self.expect(weir("plugins", "--json", "-c", path), 0)
        self.assertEqual(json.loads(out)["hidden"], [hidden])
        _, err = self.expect(weir("check", path), 0)
        self.assertEqual(messages(err), [
            f"{path}:4:51: warning: the algorithm `acme.same` is that of {hidden['by']}, which hides "
            f"another one, that of {hidden['path']}"])
        shutil.copy(f"{second}/acme.same.so", first)  # the same plugin twice hides nothing
        out, _ = self.expect(weir("plugins", "-c", path), 0)
        self.assertNotIn("hides", out)
        _, err = self.expect(weir("check", path), 0)
        self.assertEqual(err, "")

    def test_a_backend(self):
        """Texts have no default that could be shown."""
        shutil.copy(ENGINE, self.directory)
        out, _ = self.expect(weir("plugins", self.directory), 0)
        self.assertRegex(out, r"(?m)^  backend engine 1: an engine of the tests$")
        self.assertRegex(out, r"(?m)^    control +text, required$")
        self.assertRegex(out, r"(?m)^    note +text$")
        out, _ = self.expect(weir("plugins", "--json", self.directory), 0)
        engine = json.loads(out)["plugins"][0]
        self.assertEqual((engine["kind"], engine["parameters"][1]["type"],
                          engine["parameters"][1]["default"]), ("backend", "text", None))

    def test_refused_files(self):
        out, err = self.expect(weir("plugins", BROKEN), 1)
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)/duplicate.so` is refused: plugin `duplicate`: there are two")
        out, _ = self.expect(weir("plugins", "--json", BROKEN), 1)
        entries = json.loads(out)["plugins"]
        refused = [entry for entry in entries if "refusal" in entry]
        good = [entry for entry in entries if entry["path"].endswith("/good_pair.so")]
        self.assertGreater(len(refused), 50)
        self.assertEqual({os.path.basename(entry["path"]) for entry in refused if entry["skipped"]},
                         {f"newer_{what}.so" for what in ("kind", "flags", "algorithm_flags",
                          "balancer_flags", "parameter_flags", "parameter_type", "gauge_flags",
                          "gauge_type")})
        self.assertEqual([entry["name"] for entry in good], ["good_pair", "hidden_inside"])
        for entry in refused:
            self.assertTrue(entry["path"].startswith(BROKEN))

    def test_plugins_that_need_a_newer_weir(self):
        """One that cannot be used is said; it is no error that it is there."""
        shutil.copy(os.path.join(BROKEN, "newer_flags.so"), self.directory)
        out, _ = self.expect(weir("plugins", self.directory, env={"WEIR_PLUGIN_PATH": ""}), 0)
        self.assertRegex(out, r"(?m)^  plugin `newer_flags` of file .* needs a newer weir: "
                              r"its flags 0x80000000 are unknown here$")
        self.assertRegex(out, r"(?m)^  algorithm hidden_inside 1: ")
        self.assertRegex(out, r", 0 refused, 1 skipped$")

    def test_directories_of_a_configuration(self):
        shutil.copy(os.path.join(BROKEN, "good.so"), self.directory)
        path = self.write("weir.yaml", f"version: 1\nplugin_dirs: [{self.directory}]\n")
        empty = {"WEIR_PLUGIN_PATH": ""}
        out, _ = self.expect(weir("plugins", "-c", path, env=empty), 0)
        self.assertRegex(out, r"(?m)^  algorithm good 2.1: grants everything$")
        out, _ = self.expect(weir("plugins", env={**empty, "WEIR_CONFIG": path}), 0)
        self.assertRegex(out, r"(?m)^  algorithm good 2.1")
        out, _ = self.expect(weir("plugins", self.directory, env=empty), 0)
        self.assertRegex(out, r"(?m)^  algorithm good 2.1")
        wrong = self.write("wrong.yaml", "version: 1\nplugin_dirs: [relative]\n")
        _, err = self.expect(weir("plugins", "-c", wrong), 1)
        self.assertTrue(err.startswith(wrong + ":2:"), err)
        nowhere = os.path.join(self.directory, "nowhere")
        _, err = self.expect(weir("plugins", "-c", nowhere), 3)
        self.assertEqual(err, f"weir plugins: {nowhere}: cannot be read: No such file or directory\n")
        out, _ = self.expect(weir("plugins", "/nowhere/at/all"), 1)
        self.assertIn("plugin directory `/nowhere/at/all` cannot be read", out)

    def test_writable_by_others(self):
        shutil.copy(os.path.join(BROKEN, "good.so"), self.directory)
        os.chmod(self.directory, 0o775)
        out, _ = self.expect(weir("plugins", self.directory), 1)
        self.assertIn("its directory can be written by others (mode 0775)", out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
