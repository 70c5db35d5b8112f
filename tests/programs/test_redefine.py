# SPDX-License-Identifier: MIT
"""weir apply and weir set: definitions of sets that other processes use at the time.

Argument: the command.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND = sys.argv[1]
PATIENCE = 60  # seconds that a busy machine may take for anything

BOTH = """version: 1
sets:
  db:
    backend: process
    limits: [{ type: resource, key: slots, capacity: %d }]
  api:
    backend: process
    limits:
      - { type: resource, key: a.b, capacity: 2 }
      - { type: call, key: calls, algorithm: gcra, capacity: %d, window: 1h }
  own:
    limits: [{ type: resource, key: k, capacity: 1 }]
"""


class Redefine(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()  # 0700
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.children = []
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for child in self.children:
            child.kill()
            child.wait()

    def env(self):
        return {**os.environ, "WEIR_PROCESS_DIR": self.directory, "LC_ALL": "C.UTF-8"}

    def weir(self, *arguments):
        return subprocess.run([COMMAND, *arguments], capture_output=True, timeout=PATIENCE, text=True,
                              env=self.env(), stdin=subprocess.DEVNULL)

    def expect(self, code, *arguments):
        done = self.weir(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def write(self, text):
        path = os.path.join(self.directory, "file.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def make(self, slots=2, calls=100):
        """The sets are there, and not in use."""
        path = self.write(BOTH % (slots, calls))
        for name in "db", "api":
            self.expect(0, "exec", "-f", path, "-s", name, "--", "true")
        return path

    def limits(self, name):
        sets = json.loads(self.expect(0, "stat", "--json", name)[0])["sets"]
        return {limit["key"]: limit for limit in sets[0]["limits"]}

    def hold(self, name, path):
        child = subprocess.Popen([COMMAND, "exec", "-f", path, "-s", name, "--", "sleep", "1000"],
                                 env=self.env())
        self.children.append(child)

    def until(self, name, held, waiting):
        end = time.monotonic() + PATIENCE
        while True:
            sets = json.loads(self.weir("stat", "--json", name).stdout)["sets"]
            if (len(sets[0]["holders"]), len(sets[0]["waiters"])) == (held, waiting):
                return
            self.assertLess(time.monotonic(), end, sets)
            time.sleep(0.01)

    def test_each_subject_goes_on(self):
        text = """version: 1
sets:
  clients:
    backend: process
    subjects: { max: %d }
    limits: [{ type: resource, key: slots, capacity: %d }]
"""
        path = self.write(text % (100, 1))
        self.expect(0, "exec", "-f", path, "-s", "clients", "--subject", "b", "--", "true")
        waiting = [subprocess.Popen([COMMAND, "exec", "-f", path, "-s", "clients", "--subject", "a", "--", "sleep", "1000"],
                                    env=self.env()) for _ in range(3)]
        self.children += waiting
        self.until("clients", 1, 2)
        path = self.write(text % (100, 2))
        line = "clients: `capacity` of limit 1 (`slots`): 1 -> 2\n"
        self.assertEqual(self.expect(0, "apply", "--dry-run", path)[0], line)
        self.until("clients", 1, 2)
        self.assertEqual(self.expect(0, "apply", path)[0], line)
        self.until("clients", 2, 1)
        self.expect(0, "exec", "-f", path, "-s", "clients", "--subject", "b", "--", "true")
        self.expect(0, "set", "clients", "slots=3")
        self.until("clients", 3, 0)
        self.assertEqual(self.limits("clients")["slots"]["capacity"], 3)
        said = self.expect(1, "apply", "--dry-run", self.write(text % (101, 3)))[1]
        self.assertIn("its segment has room for 100", said)
        self.assertIn("weir rm", said)

    def test_limits_of_subjects_come_and_go(self):
        text = """version: 1
sets:
  clients:
    backend: process
    subjects: { max: 100 }
    limits: [%s]
"""
        rate = "{ type: call, key: calls, algorithm: %s, capacity: 5, window: 100h }"
        slots = "{ type: resource, key: slots, capacity: 1 }"
        gcra = rate % "gcra"
        path = self.write(text % gcra)
        for _ in range(2):
            self.expect(0, "exec", "-f", path, "-s", "clients", "--subject", "a", "--", "true")
        path = self.write(text % f"{slots}, {gcra}")
        self.expect(0, "apply", path)
        held = subprocess.Popen([COMMAND, "exec", "-f", path, "-s", "clients", "--subject", "a", "--", "sleep", "1000"],
                                env=self.env())
        self.children.append(held)
        self.until("clients", 1, 0)
        self.expect(0, "exec", "-f", path, "-s", "clients", "--subject", "b", "--", "true")
        path = self.write(text % gcra)
        self.expect(0, "apply", path)
        for _ in range(2):
            self.expect(0, "exec", "-f", path, "-s", "clients", "--subject", "a", "--", "true")
        self.expect(124, "exec", "-f", path, "-s", "clients", "--subject", "a", "--timeout", "10ms", "--", "true")
        path = self.write(text % (rate % "token_bucket"))
        self.assertIn("limit 1 (`calls`) begins anew", self.expect(0, "apply", path)[0])
        self.expect(0, "exec", "-f", path, "-s", "clients", "--subject", "a", "--", "true")

    def test_waiters_go_on(self):
        path = self.make(slots=1)
        for i in range(3):
            self.hold("db", path)
            self.until("db", 1, i)
        out, _ = self.expect(0, "set", "db", "slots=2")
        self.assertEqual(out, "db: `capacity` of limit 1 (`slots`): 1 -> 2\n")
        self.until("db", 2, 1)
        path = self.write(BOTH % (3, 100))
        self.expect(0, "apply", path)
        self.until("db", 3, 0)

    def test_all_sets_of_a_file(self):
        self.make()
        path = self.write(BOTH % (5, 7))
        out, _ = self.expect(0, "apply", "--dry-run", path)
        self.assertIn("db: `capacity` of limit 1 (`slots`): 2 -> 5\n", out)
        self.assertIn("api: `capacity` of limit 2 (`calls`): 100 -> 7\n", out)
        self.assertNotIn("own", out)
        self.assertEqual(self.limits("db")["slots"]["capacity"], 2)
        self.assertEqual(self.expect(0, "apply", path)[0], out)
        self.assertEqual(self.limits("db")["slots"]["capacity"], 5)
        self.assertEqual(self.limits("api")["calls"]["capacity"], 7)
        self.assertEqual(self.expect(0, "apply", path), ("", ""))

    def test_some_sets_of_a_file(self):
        self.make()
        path = self.write(BOTH % (5, 7))
        self.expect(0, "apply", path, "api")
        self.assertEqual(self.limits("db")["slots"]["capacity"], 2)
        self.assertEqual(self.limits("api")["calls"]["capacity"], 7)
        self.assertIn("no shared set `nobody`", self.expect(1, "apply", path, "nobody")[1])

    def test_one_that_cannot_change_stops_all(self):
        self.make()
        path = self.write((BOTH % (5, 7)).replace("api:\n", "api:\n    lifetime: users\n"))
        out, err = self.expect(1, "apply", path)
        self.assertIn("set `api`: it would have another lifetime", err)
        self.assertEqual(self.limits("db")["slots"]["capacity"], 2)
        self.assertIn("db:", out)

    def test_limits_come_and_go(self):
        self.make()
        more = "limits:\n      - { type: rate, key: tokens, algorithm: gcra, capacity: 9, window: 1h }\n"
        path = self.write((BOTH % (2, 9)).replace("type: call", "type: rate")
                          .replace("limits:\n", more))
        out, err = self.expect(0, "apply", path)
        self.assertIn("`tokens`", out)
        self.assertIn("limit 3 (`calls`) begins anew", out)
        self.assertEqual(list(self.limits("api")), ["tokens", "a.b", "calls"])
        path = self.write((BOTH % (2, 9)).replace("      - { type: resource, key: a.b, capacity: 2 }\n", ""))
        out, err = self.expect(0, "apply", path)
        self.assertIn("limit 1 (`tokens`) goes", out)
        self.assertIn("limit 1 (`calls`) begins anew", out)
        self.assertEqual(list(self.limits("api")), ["calls"])

    def test_another_algorithm(self):
        self.make()
        path = self.write((BOTH % (2, 100)).replace("algorithm: gcra", "algorithm: token_bucket"))
        out, _ = self.expect(0, "apply", path)
        self.assertIn("gcra -> token_bucket; limit 2 (`calls`) begins anew\n", out)
        self.assertEqual(self.expect(0, "apply", path), ("", ""))

    def test_a_file_that_is_wrong(self):
        self.make()
        path = self.write("version: 1\nsets: { db: { backend: process, limits: [ 1 ] } }\n")
        self.assertIn("file.yaml:2:", self.expect(1, "apply", path)[1])
        self.expect(1, "apply", os.path.join(self.directory, "missing.yaml"))
        self.expect(2, "apply")
        self.expect(2, "apply", "--file", path)
        self.assertEqual(self.limits("db")["slots"]["capacity"], 2)

    def test_settings(self):
        self.make()
        self.expect(0, "set", "api", "a.b=4", "calls.window=2h", "calls.capacity=50",
                    "calls.refund=false")
        limits = self.limits("api")
        self.assertEqual(limits["a.b"]["capacity"], 4)
        self.assertEqual(limits["calls"]["capacity"], 50)
        self.expect(0, "set", "api", "a.b.capacity=3")
        self.assertEqual(self.limits("api")["a.b"]["capacity"], 3)
        self.assertEqual(self.expect(0, "set", "api", "a.b=3"), ("", ""))
        out, _ = self.expect(0, "set", "-n", "api", "a.b=9")
        self.assertIn("3 -> 9", out)
        self.assertEqual(self.limits("api")["a.b"]["capacity"], 3)

    def test_settings_that_are_wrong(self):
        self.make()
        for change, why in (("slots", "is not LIMIT[.SETTING]=VALUE"),
                            ("=3", "is not LIMIT[.SETTING]=VALUE"),
                            ("slots=", "is not LIMIT[.SETTING]=VALUE"),
                            ("slots=3, x: 4", "a value is a number"),
                            ("slots=3 # x", "a value is a number"),
                            ("other=3", "no limit for `other`"),
                            ("slot.s=3", "no limit for `slot.s`"),
                            ("slots.=3", "is not the name of a setting"),
                            ("slots.a: 1, capacity=3", "is not the name of a setting"),
                            ("slots." + "x" * 100 + "=3", "`" + "x" * 60),
                            ("slots.key=b", "another limit"),
                            ("slots.type=call", "another limit"),
                            ("slots=none", "none")):
            with self.subTest(change=change):
                _, err = self.expect(1, "set", "db", change)
                self.assertIn(why, err)
        self.assertEqual(self.limits("db")["slots"]["capacity"], 2)
        self.expect(2, "set", "db")
        self.expect(2, "set")
        self.assertIn("no shared set `nobody`", self.expect(1, "set", "nobody", "k=1")[1])

    def test_a_key_of_two_limits(self):
        path = self.write("version: 1\nsets: { db: { backend: process, limits: ["
                          "{ type: resource, key: a, capacity: 1 }, "
                          "{ type: resource, key: slots, capacity: 4 }, "
                          "{ type: resource, key: slots, capacity: 2, shadow: true } ] } }\n")
        self.expect(0, "exec", "-f", path, "-s", "db", "--", "true")
        for change in "slots=3", "slots.capacity=3":
            _, err = self.expect(1, "set", "db", change)
            self.assertIn("limits 2 and 3 have the key `slots`; use `weir apply`", err)
        self.expect(0, "set", "db", "a=2")
        limits = json.loads(self.expect(0, "stat", "--json", "db")[0])["sets"][0]["limits"]
        self.assertEqual([limit["capacity"] for limit in limits], [2, 4, 2])

    def test_changes_at_one_time(self):
        """Each of two that change different limits of one set finds what the other has changed."""
        self.make()
        for i in range(10):
            both = [subprocess.Popen([COMMAND, "set", "api", change], env=self.env(),
                                     stdout=subprocess.DEVNULL)
                    for change in (f"a.b={10 + i}", f"calls={20 + i}")]
            for one in both:
                self.assertEqual(one.wait(PATIENCE), 0)
            limits = self.limits("api")
            self.assertEqual(limits["a.b"]["capacity"], 10 + i)
            self.assertEqual(limits["calls"]["capacity"], 20 + i)

    def test_later_processes(self):
        path = self.make()
        self.expect(0, "set", "db", "slots=3")
        _, err = self.expect(125, "exec", "-f", path, "-s", "db", "--", "true")
        self.assertIn("is 3 there, 2 here", err)
        self.assertIn("weir apply", err)
        self.expect(0, "apply", path)
        self.expect(0, "exec", "-f", path, "-s", "db", "--", "true")

    def test_where_sets_are(self):
        path = self.make()
        # No directory: no set of the file is there.
        self.expect(0, "apply", "--process-dir", os.path.join(self.directory, "missing"), path)
        self.assertIn("no shared set `db`", self.expect(
            1, "apply", "--process-dir", os.path.join(self.directory, "missing"), path, "db")[1])
        self.expect(3, "apply", "--process-dir", path, path)
        self.expect(3, "set", "--process-dir", path, "db", "slots=3")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
