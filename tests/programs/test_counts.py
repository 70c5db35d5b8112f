#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/counts must fail when an operation has grown, and say so when it cannot tell.

usage: test_counts.py COUNTS
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("counts", sys.argv[1])
counts = importlib.util.module_from_spec(importlib.util.spec_from_loader("counts", LOADER))
LOADER.exec_module(counts)

CALLGRIND = """# callgrind format
part: {part}
desc: Trigger: {trigger}
events: Ir
summary: {total}
fn=(1) measured
totals: {total}
"""


class Counts(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.baseline = self.directory / "baseline.json"
        self.write({"gcc 12": {"take": 1000.0, "release": 500.0}})

    def write(self, baseline):
        self.baseline.write_text(json.dumps(baseline))

    def run_main(self, measured, *arguments, compiler="gcc 12", valgrind="/usr/bin/valgrind"):
        """Status and output when this was measured."""
        printed = io.StringIO()
        with mock.patch.object(counts, "BASELINE", self.baseline), \
                mock.patch.object(counts, "measure", lambda _: measured), \
                mock.patch.object(counts, "compiler_of", lambda _: compiler), \
                mock.patch.object(counts.shutil, "which", lambda _: valgrind), \
                mock.patch.object(sys, "argv", ["counts", *arguments, str(self.directory)]), \
                contextlib.redirect_stdout(printed):
            status = counts.main()
        return status, printed.getvalue()

    def test_same(self):
        status, printed = self.run_main({"take": 1000.0, "release": 500.0})
        self.assertEqual(status, 0)
        self.assertNotIn("GROWN", printed)

    def test_a_twentieth_more_is_fine(self):
        self.assertEqual(self.run_main({"take": 1050.0, "release": 525.0})[0], 0)

    def test_more_is_not(self):
        status, printed = self.run_main({"take": 1000.0, "release": 525.1})
        self.assertEqual(status, 1)
        self.assertRegex(printed, r"release +525\.1 +500\.0 +\+5\.0 % GROWN")
        self.assertNotRegex(printed, r"take.*GROWN")

    def test_less_is_told(self):
        status, printed = self.run_main({"take": 949.0, "release": 500.0})
        self.assertEqual(status, 0)
        self.assertRegex(printed, r"take +949\.0 +1000\.0 +-5\.1 % less: record it")

    def test_new_operation(self):
        status, printed = self.run_main({"take": 1000.0, "release": 500.0, "reserve": 1.0})
        self.assertEqual(status, 1)
        self.assertIn("NOT RECORDED", printed)

    def test_missing_operation(self):
        status, printed = self.run_main({"take": 1000.0})
        self.assertEqual(status, 1)
        self.assertIn("IS NOT MEASURED ANY MORE", printed)

    def test_other_compiler(self):
        status, printed = self.run_main({"take": 9999.0}, compiler="gcc 13")
        self.assertEqual(status, 77)
        self.assertIn("nothing was recorded for gcc 13", printed.splitlines()[-1])

    def test_no_baseline(self):
        self.baseline.unlink()
        self.assertEqual(self.run_main({"take": 1000.0})[0], 77)

    def test_no_valgrind(self):
        status, printed = self.run_main({"take": 9999.0}, valgrind=None)
        self.assertEqual((status, printed), (77, "there is no valgrind\n"))

    def test_record(self):
        other = {"take": 1.0}
        self.write({"clang 14": other, "gcc 12": {"take": 1000.0}})
        self.assertEqual(self.run_main({"take": 2000.0}, "--record")[0], 0)
        self.assertEqual(json.loads(self.baseline.read_text()),
                         {"clang 14": other, "gcc 12": {"take": 2000.0}})
        self.assertEqual(self.run_main({"take": 2000.0})[0], 0)

    def dump(self, part, trigger, total):
        text = CALLGRIND.format(part=part, trigger=trigger, total=total)
        (self.directory / f"out.{part}").write_text(text)

    def measure(self, operations):
        directory = mock.MagicMock()
        directory.__enter__.return_value = self.directory
        self.baseline.unlink()
        with mock.patch.object(counts, "run", lambda *_: operations), \
                mock.patch.object(counts.tempfile, "TemporaryDirectory", lambda: directory):
            return counts.measure(self.directory)

    def test_reads_callgrind(self):
        for part, total in ((1, 4000), (2, 16000), (10, 9000)):
            self.dump(part, "--dump-after=measured", total)
        self.dump(11, "Program termination", 0)
        measured = self.measure([["1000", "nothing"], ["1000", "take"], ["100", "give, and take"]])
        self.assertEqual(measured, {"take": 12.0, "give, and take": 50.0})

    def test_parts_and_operations_must_agree(self):
        self.dump(1, "--dump-after=measured", 4000)
        with self.assertRaisesRegex(SystemExit, "2 operations, but 1 totals"):
            self.measure([["1000", "nothing"], ["1000", "take"]])

    def compiler_of(self, command):
        (self.directory / "compile_commands.json").write_text(json.dumps(
            [{"file": "../../tools/main.c", "command": "false"},
             {"file": "../../core/api/acquire.c", "command": command}]))
        return counts.compiler_of(self.directory)

    def test_compiler(self):
        """The same compiler has one name, whatever it is called; its options tell it apart."""
        compiler = self.directory / "gcc-99"
        compiler.write_text("#!/bin/sh\necho 'gcc-99 (Somewhere 99.1-7) 99.1'\n")
        compiler.chmod(0o755)
        plain = self.compiler_of(f"{compiler} -Icore -DX=1 -fdiagnostics-color=always -O2 -g")
        self.assertRegex(plain, r"^gcc \(Somewhere 99\.1-7\) 99\.1, \w+, -O2$")
        self.assertEqual(self.compiler_of(f"ccache {compiler} -O2"), plain)
        for option in ("-fsanitize=address", "-march=native", "-D_FORTIFY_SOURCE=2"):
            self.assertEqual(self.compiler_of(f"{compiler} -O2 {option}"), f"{plain} {option}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
