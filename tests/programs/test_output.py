#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a program that must say what a file says, nothing else, and exit with 0. A program that exits
with 69, as what it needs is not there, is skipped (77). Sets that it shares are in a directory of its
own, which must be empty in the end.

usage: test_output.py EXPECTED PROGRAM [ARGUMENT]...
"""

import difflib
import os
import subprocess
import sys
import tempfile

SKIPPED = 77

with open(sys.argv[1], encoding="utf-8") as file:
    expected = file.read().splitlines()
with tempfile.TemporaryDirectory(prefix="weir-", dir="/dev/shm") as shared:
    result = subprocess.run(
        sys.argv[2:],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=dict(os.environ, WEIR_PROCESS_DIR=shared),
    )
    left = os.listdir(shared)
said = (result.stdout + result.stderr).splitlines()
if result.returncode == os.EX_UNAVAILABLE:
    print(*said, sep="\n")
    sys.exit(SKIPPED)
for line in difflib.unified_diff(expected, said, "expected", "said", lineterm=""):
    print(line)
print(f"exit status {result.returncode}, left behind: {left}")
sys.exit(result.returncode != 0 or said != expected or bool(left))
