# SPDX-License-Identifier: MIT
"""The dashboard that scripts/dashboard makes of the list of metrics.

usage: test_dashboard.py DASHBOARD WEIR
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

DASHBOARD, COMMAND = sys.argv[1], os.path.abspath(sys.argv[2])
PROMTOOL = shutil.which("promtool")


def make(command):
    return subprocess.run([sys.executable, DASHBOARD, command], capture_output=True, text=True, timeout=60, check=False)


class Dashboard(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)
        self.list = subprocess.run([COMMAND, "stat", "--openmetrics", "--process-dir", self.directory], check=True,
                                   capture_output=True, text=True, timeout=60).stdout

    def expressions(self):
        done = make(COMMAND)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [target["expr"] for panel in json.loads(done.stdout)["panels"] for target in panel.get("targets", [])]

    def test_every_expression_names_a_metric_of_the_list(self):
        known = set()
        for name, kind in re.findall(r"# TYPE (\w+) (\w+)", self.list):
            known |= {"counter": {name + "_total"}, "gauge": {name},
                      "histogram": {name + "_bucket", name + "_sum", name + "_count"}}[kind]
        expressions = self.expressions()
        self.assertGreater(len(expressions), 30)
        for expression in expressions:
            names = set(re.findall(r"weir_\w+", expression))
            self.assertTrue(names and names <= known, expression)

    @unittest.skipUnless(PROMTOOL, "there is no promtool")
    def test_every_expression_can_be_read(self):
        rules = [{"record": f"x:{i}", "expr": expression.replace("$__rate_interval", "1m")}
                 for i, expression in enumerate(self.expressions())]
        path = self.directory / "rules.json"  # JSON is YAML
        path.write_text(json.dumps({"groups": [{"name": "x", "rules": rules}]}), encoding="utf-8")
        done = subprocess.run([PROMTOOL, "check", "rules", path], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def with_list(self, text):
        fake = self.directory / "weir"
        (self.directory / "list").write_text(text, encoding="utf-8")
        fake.write_text(f"#!/bin/sh\ncat '{self.directory}/list'\n", encoding="utf-8")
        fake.chmod(0o755)
        return make(fake)

    def test_a_metric_that_is_gone(self):
        done = self.with_list(self.list.replace("weir_grants ", "weir_granted "))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("there is no metric weir_grants_total", done.stderr)

    def test_a_metric_that_is_new(self):
        done = self.with_list(self.list.replace("# EOF", "# TYPE weir_new gauge\n# EOF"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("neither shown nor left out: weir_new", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
