#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a program that must say what a file says, nothing else, and exit with 0.

usage: test_output.py EXPECTED PROGRAM [ARGUMENT]...
"""

import difflib
import subprocess
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    expected = file.read().splitlines()
result = subprocess.run(sys.argv[2:], capture_output=True, text=True, timeout=300, check=False)
said = (result.stdout + result.stderr).splitlines()
for line in difflib.unified_diff(expected, said, "expected", "said", lineterm=""):
    print(line)
print(f"exit status {result.returncode}")
sys.exit(result.returncode != 0 or said != expected)
