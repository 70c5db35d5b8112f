#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The gates of the static leg turn red: each case breaks a copy of the sources in one way, and the
script that guards against it must fail and name the place.

usage: test_gates.py SOURCE_DIRECTORY
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1])
LAYERS, LANGUAGE, FAULTS = ["scripts/check-layers"], ["scripts/lint"], ["scripts/faults", "--check"]


def git(directory, *arguments):
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", directory, *arguments],
                          check=True, capture_output=True, text=True).stdout


class Gates(unittest.TestCase):
    """A copy of the sources, and what the scripts say of it."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.copy = pathlib.Path(self.directory.name)
        for name in git(SOURCE, "ls-files").split("\n"):
            if name and (SOURCE / name).is_file():
                (self.copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(SOURCE / name, self.copy / name)
        git(self.copy, "init", "-q")

    def run_gate(self, gate):
        done = subprocess.run([self.copy / gate[0], *gate[1:]], cwd=self.copy, check=False,
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def assert_refused(self, gate, *said):
        status, output = self.run_gate(gate)
        self.assertNotEqual(status, 0, output)
        for text in said:
            self.assertIn(text, output)

    def add(self, name, text, after="\n"):
        """Adds text to a file after the first place of another text."""
        path = self.copy / name
        before, found, rest = path.read_text().partition(after)
        self.assertEqual(found, after)
        path.write_text(before + found + text + rest)

    def test_sources_pass(self):
        for gate in LAYERS, LANGUAGE, FAULTS:
            status, output = self.run_gate(gate)
            self.assertEqual(status, 0, output)

    def test_claim_without_a_test(self):
        rows = {"measured": "neither a test nor a benchmark",
                "`test_speed_of_light.c`": "no test test_speed_of_light.c",
                "`test_kill.c`: `at_the_speed_of_light`": "no at_the_speed_of_light",
                "`bench/light`": "no bench/light.c"}
        self.add("README.md", "".join(f"| It is fast. | {shown} |\n" for shown in rows),
                 "| promise | shown by |\n| --- | --- |\n")
        self.assert_refused(LANGUAGE, "README.md", *rows.values())

    def test_call_without_a_manual(self):
        self.add("include/weir/queue.h", "\nWEIR_PUBLIC int weir_queue_new(weir_queue *queue);\n",
                 "WEIR_PUBLIC int weir_queue_fd(weir_queue *queue);\n")
        self.assert_refused(LANGUAGE, "include/weir/queue.h", "there is no comment")

    def test_operation_without_a_tag(self):
        self.add("include/weir/algorithm.h", "    /* Hears of it. */\n    int (*hear)(void *state);\n",
                 "    int (*check)(const void *config, const void *state);\n")
        self.assert_refused(LANGUAGE, "include/weir/algorithm.h", "hear has no tag")

    def test_upward_include(self):
        self.add("core/base/units.c", '#include "set/set.h"\n')
        self.assert_refused(LAYERS, "base/units.c", "set/set.h")

    def test_internal_header_of_another_folder(self):
        self.add("core/api/acquire.c", '#include "set/txn_internal.h"\n')
        self.assert_refused(LAYERS, "api/acquire.c", "txn_internal.h")

    def test_include_cycle(self):
        for name, other in ("units", "error"), ("error", "units"):
            self.add(f"core/base/{name}.h", f'#include "base/{other}.h"\n',
                     f"#define WEIR_CORE_BASE_{name.upper()}_H\n")
        self.assert_refused(LAYERS, "cycle")

    def test_header_that_reaches_too_far(self):
        everything = "".join(f'#include "{path.parent.name}/{path.name}"\n'
                             for path in sorted((self.copy / "core").glob("*/*.h"))
                             if path.parent.name != "api" and "_internal" not in path.name)
        (self.copy / "core/api/everything.h").write_text(everything)
        self.assert_refused(LAYERS, "api/everything.h", "reaches")

    def test_banned_word(self):
        self.add("core/base/units.c", "/* Counts for whoever asks. */\n")
        self.assert_refused(LANGUAGE, "core/base/units.c:2", "whoever")

    def test_banned_word_in_a_test(self):
        self.add("tests/unit/base/test_units.c", "static void whoever_asks(void)\n{\n}\n")
        self.assert_refused(LANGUAGE, "tests/unit/base/test_units.c:2", "whoever")

    def test_retired_term(self):
        self.add("scripts/faults", "# Called by the timekeeper.\n")
        self.assert_refused(LANGUAGE, "scripts/faults:2", "timekeeper")

    def test_unit_test_without_a_module(self):
        (self.copy / "tests/unit/base/test_nothing.c").write_text("/* SPDX-License-Identifier: MIT */\n")
        self.assert_refused(LANGUAGE, "tests/unit/base/test_nothing.c")

    def test_file_that_a_document_names_in_vain(self):
        self.add("docs/design.md", "See `core/base/nothing.c` and [that](nothing.md).\n")
        self.assert_refused(LANGUAGE, "docs/design.md:2: there is no core/base/nothing.c", "no nothing.md")

    def test_function_name_of_another_file(self):
        for name in "core/base/units.c", "core/base/error.c":
            path = self.copy / name
            path.write_text(path.read_text() + "\nstatic int twice_defined(void)\n{\n}\n")
        self.assert_refused(LANGUAGE, "twice_defined")

    def test_module_without_a_place_in_its_readme(self):
        (self.copy / "core/base/newcomer.c").write_text("/* SPDX-License-Identifier: MIT */\n")
        self.assert_refused(LANGUAGE, "newcomer")

    def test_fragment_that_is_gone(self):
        path = self.copy / "tests/seeded_faults/base.toml"
        path.write_text(path.read_text().replace("find = '''\n", "find = '''\nnot there\n", 1))
        self.assert_refused(FAULTS, "stands 0 times")

    def test_fragment_that_stands_twice(self):
        path = self.copy / "core/limit/limit.c"
        path.write_text(path.read_text() * 2)
        self.assert_refused(FAULTS, "stands 2 times in core/limit/limit.c")


if __name__ == "__main__":
    try:
        git(SOURCE, "rev-parse")
    except (OSError, subprocess.CalledProcessError):
        print("the sources are not in a git repository, by which the scripts find them")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
