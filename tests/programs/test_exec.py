# SPDX-License-Identifier: MIT
"""weir exec as scripts see it: its command line, its exit codes, what the command inherits.

Argument: the command.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

COMMAND = sys.argv[1]

CONFIG = """version: 1
sets:
  private:
    limits:
      - { type: resource, key: slots, capacity: 1 }
"""


class Exec(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()  # 0700
        self.addCleanup(shutil.rmtree, self.directory)

    def exec(self, *arguments, env=None, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([COMMAND, "exec", *arguments], capture_output=True, timeout=60,
                              text=True, env={**os.environ, "WEIR_PROCESS_DIR": self.directory,
                                              **(env or {})}, **options)

    def expect(self, code, *arguments, **options):
        done = self.exec(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class Usage(Exec):
    def test_wrong_usage(self):
        name = ["-s", "x"]
        for arguments, words in (
                ([], "which set"), (name, "which command"), (name + ["--"], "which command"),
                (["--", "true"], "which set"), (["--bogus"] + name + ["true"], "bogus"),
                (["-s"], "requires an argument"),
                (name + ["--limit", "slots", "true"], "KEY:N"),
                (name + ["--limit", ":4", "true"], "KEY:N"),
                (name + ["--limit", "slots:", "true"], "whole number"),
                (name + ["--limit", "slots:0", "true"], "whole number"),
                (name + ["--limit", "slots:04", "true"], "whole number"),
                (name + ["--limit", "slots:-4", "true"], "whole number"),
                (name + ["--limit", "slots:99999999999999999999", "true"], "whole number"),
                (name + ["--limit", "calls:/60s", "true"], "whole number"),
                (name + ["--limit", "calls:100/60", "true"], "WINDOW"),
                (name + ["--limit", "calls:100/", "true"], "WINDOW"),
                (name + ["--limit", "calls:100/0s", "true"], "WINDOW"),
                (name + ["--limit", "calls:100/60s/", "true"], "ALGORITHM"),
                (name + ["--limit", "a:1"] * 65 + ["true"], "too many limits"),
                (name + ["-d", "d"] * 65 + ["true"], "too many plugin"),
                (name + ["-a", "slots", "true"], "KEY=N"),
                (name + ["-a", "=1", "true"], "KEY=N"),
                (name + ["-a", "slots=x", "true"], "whole number"),
                (name + ["-a", "slots=1", "-a", "slots=2", "true"], "two amounts of slots"),
                (name + ["--timeout", "5", "true"], "duration"),
                (name + ["--max-wait", "soon", "true"], "duration")):
            out, err = self.expect(125, *arguments)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith("weir exec: "), err)
            self.assertIn(words, err)
            self.assertIn("`weir exec --help`", err)

    def test_what_defines_the_set(self):
        path = self.write("weir.yaml", CONFIG)
        for arguments, env, words in (
                (["-s", "x", "true"], {"WEIR_CONFIG": ""}, ": cannot be read"),
                (["-f", path, "-s", "nobody", "true"], {}, "there is no set or pool `nobody`"),
                (["-f", path, "-s", "private", "true"], {}, "needs `backend: process`"),
                (["-s", "private", "true"], {"WEIR_CONFIG": path}, "needs `backend: process`"),
                (["-f", path + "x", "-s", "x", "true"], {}, "No such file"),
                (["-f", path, "-l", "a:1", "-s", "private", "true"], {}, "private"),
                (["-l", "a:1/1s/nosuch", "-s", "x", "true"], {}, "nosuch")):
            _, err = self.expect(125, *arguments, env=env)
            self.assertIn(words, err)
        wrong = self.write("wrong.yaml", CONFIG.replace("capacity", "capcity"))
        _, err = self.expect(125, "-f", wrong, "-s", "private", "true")
        self.assertIn(f"{wrong}:5:", err)
        environment = {name: value for name, value in os.environ.items() if name != "WEIR_CONFIG"}
        done = subprocess.run([COMMAND, "exec", "-s", "x", "true"], env=environment, text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 125)
        self.assertIn("nothing defines `x`", done.stderr)

    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, "exec", "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 125)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
