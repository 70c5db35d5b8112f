#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tests of `weir plugin check` are those that docs/plugin-abi.md lists, and each finds something.

    test_plugin_check_listed.py WEIR PLUGIN-ABI.MD MESON.BUILD FILE...

The files are right, and have an algorithm or a balancer each. What MESON.BUILD lists are the variants of
test_plugin_check.py.
"""
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

WEIR, POLICY, VARIANTS, FILES = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
ROW = re.compile(r"^\| (file|algorithm|balancer) \| `([a-z-]+)` \| (.*) \|$", re.MULTILINE)


def check(*arguments):
    """The status of the command, and the tests that it has made."""
    done = subprocess.run([WEIR, "plugin", "check", "--json", "--seed", "1", *arguments],
                          capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)["tests"]


@functools.lru_cache(maxsize=None)
def made(path):
    """The tests that are made of a file: of what, name, promise."""
    status, tests = check(path)
    assert status == 0 and tests, f"{path}: status {status}"
    return [(test["plugin"].split()[0] if test["plugin"] else "file", test["test"], test["promise"])
            for test in tests]


class Listed(unittest.TestCase):
    def test_the_policy_lists_each_test_once(self):
        with open(POLICY, encoding="utf-8") as policy:
            rows = ROW.findall(policy.read())
        self.assertEqual(len(rows), len(set(rows)))
        self.assertEqual(sorted(rows), sorted({test for path in FILES for test in made(path)}))

    def test_each_test_has_a_variant(self):
        with open(VARIANTS, encoding="utf-8") as variants:
            text = variants.read()
        for kind, sources in (("algorithm", "quota slots"), ("balancer", "turns"), ("file", "quota")):
            found = set()
            for source in sources.split():
                for block in re.findall(rf"{source}_variants \+?= \{{(.*?)\}}", text, re.DOTALL):
                    found |= set(re.findall(r"', '([a-z-]+)'\]", block))
            for path in FILES:
                for of, name, _ in made(path):
                    if of == kind and name != "file":
                        self.assertIn(name, found, f"a test of {kind}s")

    def test_a_file_that_is_no_object_is_found(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "text.so")
            with open(path, "w", encoding="utf-8") as file:
                file.write("no object\n")
            status, tests = check("--only", "file", path)
        self.assertEqual(status, 1)
        self.assertIn("file", [test["test"] for test in tests if test["verdict"] == "wrong"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
