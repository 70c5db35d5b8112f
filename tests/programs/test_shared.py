# SPDX-License-Identifier: MIT
"""weir stat, ls and rm: what they say of sets that processes share.

Argument: the command.
"""
import contextlib
import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
import unittest

COMMAND = sys.argv[1]
PATIENCE = 60  # seconds that a busy machine may take for anything

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABELS = r"\{(?:[a-zA-Z_][a-zA-Z0-9_]*=\"(?:[^\"\\\n]|\\[\"\\n])*\"(?:,|(?=\})))*\}"
SAMPLE = re.compile(rf"^({NAME})({LABELS})? (-?[0-9]+(?:\.[0-9]+)?|\+Inf|-Inf|NaN)$")


class Shared(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()  # 0700
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.children = []
        self.addCleanup(self.kill_all)

    def env(self):
        return {**os.environ, "WEIR_PROCESS_DIR": self.directory, "LC_ALL": "C.UTF-8",
                "TERM": "xterm"}

    def kill_all(self):
        for child in self.children:
            child.kill()
            child.wait()

    def weir(self, *arguments):
        return subprocess.run([COMMAND, *arguments], capture_output=True, timeout=PATIENCE,
                              text=True, env=self.env(), stdin=subprocess.DEVNULL)

    def expect(self, code, *arguments):
        done = self.weir(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def hold(self, name, *limits, stderr=None):
        """A process that holds, or waits for, 1 of each limit."""
        arguments = [word for limit in limits for word in ("-l", limit)]
        child = subprocess.Popen([COMMAND, "exec", *arguments, "-s", name, "--", "sleep", "1000"],
                                 env=self.env(), stderr=stderr, text=True)
        self.children.append(child)
        return child.pid

    def until(self, name, held, waiting):
        end = time.monotonic() + PATIENCE
        while True:
            done = self.weir("stat", "--json", name)
            sets = json.loads(done.stdout)["sets"]
            if sets and (len(sets[0]["holders"]), len(sets[0]["waiters"])) == (held, waiting) and \
                    all(holder["command"] == "sleep" for holder in sets[0]["holders"]):
                return sets[0]
            self.assertLess(time.monotonic(), end, done)
            time.sleep(0.01)

    def queue(self, name="t"):
        """Two hold and three wait, in this order."""
        pids = []
        for i in range(5):
            pids.append(self.hold(name, "slots:2", "calls:100/1h"))
            self.until(name, min(i + 1, 2), max(i - 1, 0))
        return pids


class Why(Shared):
    def test_a_resource(self):
        pids = self.queue()
        out, err = self.expect(0, "why", "t")
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)^set t  held by 2  waiting 3$")
        self.assertRegex(out, rf"(?m)^  next  pid {pids[2]} .*  slots=1  calls=1  sleep 1000$")
        self.assertIn("needs more of `slots` than is free, until it is released", out)
        self.assertEqual(re.findall(r"(?m)^    holds  pid (\d+) ", out), [str(pid) for pid in pids[:2]])
        self.assertNotIn(f"pid {pids[3]}", out)  # it is behind the first one
        (got,) = json.loads(self.expect(0, "why", "--json", "t")[0])["sets"]
        ((first,),) = (got["next"],)
        self.assertEqual((got["name"], got["held"], got["waiting"]), ("t", 2, 3))
        self.assertEqual((first["limiting"], first["retry_after_ns"]), ("slots", None))
        self.assertEqual([one["process"] for one in first["waiter"]], [pids[2]])
        self.assertEqual([one["process"] for one in first["holders"]], pids[:2])

    def test_time(self):
        self.hold("t", "calls:1/1h")
        self.until("t", 1, 0)
        self.hold("t", "calls:1/1h")
        self.until("t", 1, 1)
        out, _ = self.expect(0, "why", "t")
        self.assertRegex(out, "needs more of `calls` than there is: granted in (59m[0-9]+s|1h00m) at the earliest")
        (got,) = json.loads(self.expect(0, "why", "--json", "t")[0])["sets"]
        self.assertLessEqual(got["next"][0]["retry_after_ns"], 3600 * 10**9)
        self.assertGreater(got["next"][0]["retry_after_ns"], 0)
        self.assertEqual(got["next"][0]["holders"], [])  # none of them gives time back

    def test_nothing_waits(self):
        pid = self.hold("t", "slots:2")
        self.until("t", 1, 0)
        out, _ = self.expect(0, "why", "t")
        self.assertRegex(out, rf"(?m)^    holds  pid {pid} ")
        self.assertIn("waiting 0", out)
        self.assertEqual(json.loads(self.expect(0, "why", "-j", "t")[0])["sets"][0]["next"], [])

    def test_overheld(self):
        path = os.path.join(self.directory, "weir.yaml")
        with open(path, "w") as file:
            file.write("version: 1\nsets:\n  t:\n    backend: process\n    shares: { urgent: 2, other: 1 }\n    limits:\n"
                       "      - { type: resource, key: slots, capacity: 2, max_hold: 1ms }\n"
                       "      - { type: resource, key: others, capacity: 9 }\n")
        child = subprocess.Popen([COMMAND, "exec", "-f", path, "-s", "t", "--", "sleep", "1000"], env=self.env())
        self.children.append(child)
        self.until("t", 1, 0)
        time.sleep(0.01)
        out, _ = self.expect(0, "why", "t")
        self.assertRegex(out, r"(?m)^set t  held by 1  waiting 0  overheld 1$")
        self.assertRegex(out, rf"(?m)^    holds  pid {child.pid} .*  overheld: `slots` by ")
        (got,) = json.loads(self.expect(0, "why", "--json", "t")[0])["sets"]
        (holder,) = got["overheld"]
        self.assertEqual((holder["process"], holder["overheld"]), (child.pid, "slots"))
        self.assertGreater(holder["age_ns"], holder["overheld_ns"])
        out, _ = self.expect(0, "stat", "t")
        self.assertRegex(out, r"(?m)^  class  urgent  weight 2  waiting 0  held 0  granted 0\n"
                              r"  class  other  weight 1  waiting 0  held 1  granted 1$")
        (got,) = json.loads(self.expect(0, "stat", "--json", "t")[0])["sets"]
        counted = {"granted_waited": 0, "refused": 0, "timed_out": 0, "wait_ns_sum": 0}
        self.assertEqual(got["classes"], [
            {"name": "urgent", "weight": 2, "waiting": 0, "held": 0, "granted": 0, **counted},
            {"name": "other", "weight": 1, "waiting": 0, "held": 1, "granted": 1, **counted}])
        metrics = self.expect(0, "stat", "--prometheus", "t")[0]
        for name in "held", "grants_total":
            self.assertIn(f'weir_class_{name}{{set="t",class="other"}} 1', metrics)

    def test_wrong_usage(self):
        self.assertIn("no set is named", self.expect(2, "why")[1])
        self.assertIn("`nobody`: there is no such set", self.expect(1, "why", "nobody")[1])
        self.expect(2, "why", "--yaml", "t")


class Stat(Shared):
    def test_json(self):
        pids = self.queue()
        got = self.until("t", 2, 3)
        self.assertEqual([holder["process"] for holder in got["holders"]], pids[:2])
        self.assertEqual([waiter["process"] for waiter in got["waiters"]], pids[2:])
        self.assertEqual([waiter["position"] for waiter in got["waiters"]], [1, 2, 3])
        for entry in got["holders"] + got["waiters"]:
            self.assertEqual(entry["amounts"], {"slots": 1, "calls": 1})
            self.assertEqual(entry["thread"], entry["process"])
            self.assertLess(entry["age_ns"], 3 * PATIENCE * 10**9)
        ages = [waiter["age_ns"] for waiter in got["waiters"]]
        self.assertEqual(ages, sorted(ages, reverse=True))
        self.assertEqual((got["held"], got["waiting"], got["lifetime"]), (2, 3, "boot"))
        self.assertEqual(got["users"], 5)
        slots, calls = got["limits"]
        self.assertEqual((slots["type"], slots["key"], slots["algorithm"], slots["capacity"],
                          slots["held"], slots["available"]), ("resource", "slots", None, 2, 2, 0))
        self.assertEqual((calls["type"], calls["algorithm"], calls["available"]),
                         ("rate", "gcra", 98))
        self.assertEqual(calls["settings"]["window"], "1h")
        self.assertEqual(got["counters"]["granted"], 2)
        self.assertEqual(len(got["counters"]["wait_histogram"]), 32)

    def test_looking_changes_nothing(self):
        self.queue()
        before = self.until("t", 2, 3)
        for _ in range(20):
            self.expect(0, "stat")
        after = self.until("t", 2, 3)
        for key in ("limits", "counters", "held", "waiting", "users"):
            self.assertEqual(before[key], after[key])

    def test_for_people(self):
        pids = self.queue()
        self.hold("other", "slots:1")
        self.until("other", 1, 0)
        out, err = self.expect(0, "stat")
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)^set other ")
        self.assertRegex(out, r"(?m)^set t  lifetime boot  users 5$")
        self.assertRegex(out, r"(?m)^  resource  slots .* capacity 2 .*held 2  available 0$")
        self.assertRegex(out, rf"(?m)^  holds +pid {pids[0]} +[0-9.ms]+  slots=1  calls=1  sleep 1000$")
        self.assertRegex(out, rf"(?m)^  waits +3  pid {pids[4]} .*  slots=1  calls=1  sleep 1000$")
        out, _ = self.expect(0, "stat", "other")
        self.assertNotIn("set t", out)

    def test_what_is_shown(self):
        self.expect(0, "exec", "-l", "slots:1", "-s", "idle", "true")
        self.hold("busy", "slots:1")
        self.until("busy", 1, 0)
        self.queue("crowd")

        def names(*arguments):
            out, _ = self.expect(0, "stat", *arguments)
            return re.findall("(?m)^set ([a-z]+) ", out)

        self.assertEqual(names(), ["busy", "crowd", "idle"])
        self.assertEqual(names("--sort", "waiting"), ["crowd", "busy", "idle"])
        self.assertEqual(names("-s", "waiting", "--no-idle"), ["crowd", "busy"])
        self.assertEqual(names("-n", "-s", "name"), ["busy", "crowd"])
        self.assertEqual(names("--match", "d"), ["crowd", "idle"])
        self.assertEqual(names("-m", "d", "idle", "busy"), ["idle"])
        self.assertEqual(names("-m", "nothing"), [])
        out, _ = self.expect(0, "stat", "-n", "-s", "waiting", "--json")
        self.assertEqual([one["name"] for one in json.loads(out)["sets"]], ["crowd", "busy"])
        out, _ = self.expect(0, "stat", "-m", "row", "--prometheus")
        self.assertIn('weir_held{set="crowd"} 2', out)
        self.assertNotIn('set="busy"', out)
        _, err = self.expect(2, "stat", "--sort", "size")
        self.assertIn("`size`: sets are sorted by name or waiting", err)

    def until_there(self, key):
        """Waits until one holds, or waits, and all holders have become their commands."""
        end = time.monotonic() + PATIENCE
        while True:
            sets = json.loads(self.weir("stat", "--json", "t").stdout)["sets"]
            if sets and sets[0][key] and not any(one["command"] == "weir" for one in
                                                 sets[0]["holders"]):
                return sets[0]
            self.assertLess(time.monotonic(), end, sets)
            time.sleep(0.01)

    def test_command_lines(self):
        self.children.append(subprocess.Popen(
            [COMMAND, "exec", "-l", "slots:1", "-s", "t", "--", sys.executable, "-c",
             "import time\nprint('\033[2J'); time.sleep(1000)", "x" * 10000], env=self.env(),
            stdout=subprocess.DEVNULL))
        self.until_there("holders")
        self.children.append(subprocess.Popen(
            [COMMAND, "exec", "-l", "slots:1", "-s", "t", "-v", "--", "echo", "-s", "waits"],
            env=self.env(), stderr=subprocess.DEVNULL))
        found = self.until_there("waiters")
        texts = sorted(one["command_line"] for one in found["holders"] + found["waiters"])
        python = next(text for text in texts if text != "echo -s waits")
        self.assertIn("-c import time print('?[2J'); time.sleep(1000) xxx", python)
        self.assertEqual(len(python), 255)
        self.assertIn("echo -s waits", texts)  # not `weir exec`

    def stat_on_terminal(self, columns, **env):
        """What `weir stat` writes to a terminal of so many columns."""
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        subprocess.run([COMMAND, "stat"], stdout=theirs, check=True, timeout=PATIENCE,
                       env={**self.env(), **env})
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # all is read
            while True:
                said += os.read(ours, 4096)
        return said.decode().splitlines()

    def test_characters_of_two_columns(self):
        self.children.append(subprocess.Popen(
            [COMMAND, "exec", "-l", "slots:1", "-s", "t", "--", sys.executable, "-c",
             "import time; time.sleep(1000)", "漢字é" * 200], env=self.env()))
        self.until_there("holders")
        for columns in range(200, 208):
            for env in ({}, {"LC_ALL": "C"}):
                (line,) = [line for line in self.stat_on_terminal(columns, **env) if "漢" in line]
                width = sum(2 if unicodedata.east_asian_width(c) == "W" else 1 for c in line)
                self.assertIn(width, (columns - 1, columns))

    def test_prometheus(self):
        self.queue("a\"b\\c d")
        out, err = self.expect(0, "stat", "--prometheus")
        self.assertEqual(err, "")
        types, done, samples = {}, set(), {}
        current = None
        for line in out.splitlines():
            if line.startswith("# HELP "):
                current = line.split()[2]
                self.assertNotIn(current, done)  # all samples of a metric stand together
                done.add(current)
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                self.assertEqual(name, current)
                self.assertIn(kind, ("counter", "gauge", "histogram"))
                types[name] = kind
            else:
                match = SAMPLE.match(line)
                self.assertIsNotNone(match, line)
                name = match[1]
                if types[current] == "histogram":
                    name = re.sub("_(bucket|sum|count)$", "", name)
                self.assertEqual(name, current)
                self.assertNotIn((match[1], match[2]), samples)
                samples[match[1], match[2]] = match[3]
        for name, kind in types.items():
            self.assertEqual(kind == "counter", name.endswith("_total"))
        label = r'{set="a\"b\\c d"}'
        self.assertEqual(samples["weir_held", label], "2")
        self.assertEqual(samples["weir_waiting", label], "3")
        self.assertEqual(samples["weir_grants_total", label], "2")
        self.assertGreater(float(samples["weir_wait_queue_age_seconds", label]), 0)
        buckets = [int(value) for (name, _), value in samples.items()
                   if name == "weir_wait_seconds_bucket"]
        self.assertEqual(len(buckets), 32)
        self.assertEqual(buckets, sorted(buckets))

    def test_keys(self):
        config = os.path.join(self.directory, "weir.yaml")
        with open(config, "w") as file:
            file.write("version: 1\nsets:\n  clients:\n    backend: process\n"
                       "    subjects: { max: 100, memory: 1MiB, evict: none }\n    limits:\n"
                       "      - { type: resource, key: slots, capacity: 1 }\n")
        self.expect(0, "exec", "-f", config, "-s", "clients", "-S", "carol", "true")
        for i, subject in enumerate(["alice", "bob", "bob"]):
            self.children.append(subprocess.Popen(
                [COMMAND, "exec", "-f", config, "-s", "clients", "-S", subject, "sleep", "1000"],
                env=self.env()))
            got = self.until("clients", min(i + 1, 2), max(i - 1, 0))
        self.assertEqual([holder["process"] for holder in got["holders"] + got["waiters"]],
                         [child.pid for child in self.children])
        subjects = got["subjects"]
        self.assertIn(subjects["known"], (2, 3))  # carol is as good as new
        self.assertTrue(1 <= subjects["live"] <= subjects["known"])  # a request for bob waits
        self.assertEqual((subjects["max"], subjects["memory_max"], subjects["evict"]),
                         (100, 1 << 20, "none"))
        self.assertGreaterEqual(subjects["room"], 100)
        self.assertTrue(100 * 16 < subjects["memory"] <= 1 << 20)
        self.assertEqual((subjects["evicted"], subjects["refused"]), (0, 0))
        self.assertEqual(got["limits"][0]["available"], 1)  # for a new subject
        out, _ = self.expect(0, "stat", "clients")
        self.assertRegex(out, r"(?m)^  subjects  known [23]  live [123]  room 1[0-9]*  memory [0-9]+  "
                              r"forgotten [01]  evicted 0\s+refused 0$")
        out, _ = self.expect(0, "stat", "--prometheus")
        self.assertRegex(out, r'(?m)^weir_subjects{set="clients"} [23]$')
        self.assertRegex(out, r'(?m)^weir_subjects_live{set="clients"} [123]$')

    def test_the_plugins_of_a_configuration(self):
        plugin = next(path for directory in os.environ["WEIR_PLUGIN_PATH"].split(":")
                      if os.path.exists(path := os.path.join(directory, "gcra.so")))
        own = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, own, ignore_errors=True)
        shutil.copy(plugin, own)
        path = os.path.join(own, "weir.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"version: 1\nplugin_dirs: [{own}]\nprocess_dir: {self.directory}\n"
                       "sets: { t: { backend: process, limits: [ { type: call, algorithm: gcra, "
                       "capacity: 5, window: 1h } ] } }\n")
        bare = {**self.env(), "WEIR_PLUGIN_PATH": ""}
        del bare["WEIR_PROCESS_DIR"]

        def run(*arguments, **env):
            return subprocess.run([COMMAND, *arguments], capture_output=True, text=True,
                                  timeout=PATIENCE, env={**bare, **env}, stdin=subprocess.DEVNULL)

        self.assertEqual(run("exec", "-f", path, "-s", "t", "true").returncode, 0)
        for done in (run("stat", "-f", path, "--json"), run("stat", "--json", WEIR_CONFIG=path),
                     run("stat", "--json", "--process-dir", self.directory, WEIR_CONFIG=path),
                     run("stat", "--json", "--process-dir", self.directory, "-d", own)):
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            (found,) = json.loads(done.stdout)["sets"]
            self.assertEqual(found["limits"][0]["available"], 4)
        done = run("stat", "--process-dir", self.directory)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gcra", done.stderr)
        nowhere = os.path.join(own, "nowhere")
        self.assertEqual(run("stat", "-f", nowhere, "--process-dir", self.directory).returncode, 3)
        done = run("stat", "--process-dir", self.directory, "-d", own, WEIR_CONFIG=nowhere)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_not_there(self):
        out, err = self.expect(1, "stat", "--json", "nobody")
        self.assertEqual(json.loads(out), {"sets": []})
        self.assertIn("`nobody`: there is no such set", err)
        self.assertEqual(self.expect(0, "stat"), ("", ""))

    def test_what_is_in_the_way(self):
        with open(os.path.join(self.directory, "junk.weir"), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("junk")
        self.hold("t", "slots:1")
        self.until("t", 1, 0)
        out, err = self.expect(1, "stat", "--json")
        self.assertEqual([one["name"] for one in json.loads(out)["sets"]], ["t"])
        self.assertIn("`junk`: ", err)


class List(Shared):
    def test_states(self):
        self.assertEqual(self.expect(0, "ls"), ("", ""))
        pid = self.hold("a b", "slots:1")
        self.until("a b", 1, 0)
        self.expect(0, "exec", "-l", "slots:1", "-s", "idle", "true")
        with open(os.path.join(self.directory, "junk.weir"), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("junk")
        got = json.loads(self.expect(0, "ls", "--json")[0])["segments"]
        self.assertEqual([(one["name"], one["state"], one.get("users")) for one in got],
                         [("a b", "usable", 1), ("idle", "usable", 0), ("junk", "damaged", None)])
        self.assertEqual(got[0]["creator"], pid)
        self.assertEqual(got[0]["lifetime"], "boot")
        self.assertIn("slots", got[0]["definition"])
        self.assertTrue(os.path.exists(got[0]["path"]))
        self.assertTrue(got[2]["reason"])
        out, _ = self.expect(0, "ls")
        self.assertRegex(out, r"(?m)^usable +1 .* boot +[0-9]+  a b$")
        self.assertRegex(out, r"(?m)^damaged .*junk: ")
        self.assertEqual(self.expect(0, "ls", "--names")[0], "a b\nidle\njunk\n")

    def test_the_directory(self):
        os.chmod(self.directory, 0o750)
        _, err = self.expect(3, "ls")
        self.assertIn("mode 0750", err)
        _, err = self.expect(3, "ls", "--process-dir", "relative")
        self.assertIn("absolute", err)
        self.assertEqual(self.expect(0, "ls", "--process-dir", "/nowhere/at/all"), ("", ""))
        os.chmod(self.directory, 0o700)
        other = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, other, ignore_errors=True)
        self.expect(0, "exec", "--process-dir", other, "-l", "slots:1", "-s", "there", "true")
        self.assertEqual(self.expect(0, "ls", "-n")[0], "")
        self.assertEqual(self.expect(0, "ls", "-n", "--process-dir", other)[0], "there\n")
        config = os.path.join(other, "weir.yaml")
        with open(config, "w") as file:
            file.write(f"version: 1\nprocess_dir: {other}\n")
        self.assertEqual(self.expect(0, "ls", "-n", "-f", config)[0], "there\n")


class Remove(Shared):
    def test_removing(self):
        _, err = self.expect(1, "rm", "nobody")
        self.assertIn("nobody", err)
        pid = self.hold("t", "slots:1")
        self.until("t", 1, 0)
        self.expect(0, "exec", "-l", "slots:1", "-s", "idle", "true")
        _, err = self.expect(1, "rm", "t", "idle")
        self.assertIn("in use", err)
        self.assertIn(f"weir rm:   process {pid}: sleep 1000\n", err)
        self.assertEqual(self.expect(0, "ls", "-n")[0], "t\n")
        self.expect(123, "exec", "-l", "slots:1", "-s", "t", "-w", "0s", "true")
        self.assertEqual(self.expect(0, "rm", "-f", "t"), ("", ""))
        self.expect(0, "exec", "-l", "slots:7", "-s", "t", "-w", "0s", "true")  # anew
        self.expect(0, "rm", "t")
        self.assertEqual(os.listdir(self.directory), [])

    def test_what_cannot_be_read(self):
        wrong = os.path.join(self.directory, "weir.yaml")
        with open(wrong, "w") as file:
            file.write("version: 1\nsets: 3\n")
        for arguments, words in ((["--process-dir", "relative"], "absolute"),
                                 (["--process-dir", wrong], "not a directory"),
                                 (["--file", wrong + "x"], "No such file"), (["--file", wrong], ":2:7: ")):
            self.assertIn(words, self.expect(3, "rm", *arguments, "one", "two")[1])
            self.assertIn(words, self.expect(3, "ls", *arguments)[1])
        os.chmod(self.directory, 0o750)
        _, err = self.expect(3, "rm", "one", "two")
        self.assertEqual(err.count("mode 0750"), 1)
        os.chmod(self.directory, 0o700)
        self.expect(1, "rm", "--process-dir", "/nowhere/at/all", "one")  # no set is there

    def test_users_are_shown(self):
        for i in range(12):
            self.hold("t", "slots:11")
        self.until("t", 11, 1)
        _, err = self.expect(1, "rm", "t")
        shown = re.findall(r"(?m)^weir rm:   process ([0-9]+): sleep 1000$", err)
        self.assertEqual(len(set(shown)), 10)
        self.assertLessEqual(set(map(int, shown)), {child.pid for child in self.children})
        self.assertTrue(err.endswith("\nweir rm:   and 2 more\n"), err)

    def expect_nameless(self, name, pid, why):
        """A set of the name is there, and another that only this process knows."""
        got = json.loads(self.expect(0, "ls", "--json")[0])["segments"]
        self.assertEqual([(one["name"], one["state"]) for one in got],
                         [(name, "usable"), (name, "nameless")])
        self.assertRegex(self.expect(0, "ls")[0], rf"(?m)^nameless .* {name}: .* process {pid} ")
        self.assertEqual(self.expect(0, "ls", "--names")[0], name + "\n")
        for arguments in ((), (name,), ("--json",)):
            out, err = self.expect(1, "stat", *arguments)
            self.assertIn(name, out)
            self.assertIn(f"`{name}`: the segment of the set `{name}` has lost its name", err)
            self.assertIn(why, err)
            self.assertIn(f"process {pid} still uses it", err)

    def test_one_that_waits_for_a_removed_set_is_shown(self):
        self.hold("t", "slots:1")
        self.until("t", 1, 0)
        pid = self.hold("t", "slots:1", stderr=subprocess.PIPE)
        self.until("t", 1, 1)
        self.expect(0, "rm", "-f", "t")
        with self.children[-1].stderr as said:
            self.assertRegex(said.readline(), "^weir: set `t`: its segment was removed by force")
        self.expect(0, "exec", "-l", "slots:1", "-s", "t", "-w", "0s", "true")
        self.expect_nameless("t", pid, "it was removed by force")

    def test_one_that_waits_in_a_vanished_directory_is_shown(self):
        self.hold("t", "slots:1")
        self.until("t", 1, 0)
        pid = self.hold("t", "slots:1")
        self.until("t", 1, 1)
        shutil.rmtree(self.directory)
        self.assertIn("nameless", self.expect(0, "ls")[0])
        os.mkdir(self.directory, 0o700)
        self.expect(0, "exec", "-l", "slots:1", "-s", "t", "-w", "0s", "true")
        self.expect_nameless("t", pid, "its file was removed")

    def test_what_was_counted_is_forgotten(self):
        once = ("exec", "-l", "calls:1/1h", "-s", "t", "-w", "0s", "true")
        self.expect(0, *once)
        self.expect(123, *once)
        self.expect(0, "rm", "t")
        self.expect(0, *once)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
