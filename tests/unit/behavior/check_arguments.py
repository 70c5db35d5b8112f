#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the list of calls that test_arguments passes NULL to with the public headers: each call,
with as many pointers as it has.

    check_arguments.py TEST_ARGUMENTS DIRECTORY_OF_THE_HEADERS
"""

import pathlib
import re
import subprocess
import sys


def calls_of(text):
    """The public calls of a header, with the number of their pointers."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for name, parameters in re.findall(r"WEIR_PUBLIC\s[^;(]*?(\w+)\((.*?)\)\s*;", text, re.S):
        callbacks = re.sub(r"\(\*\w+\)\s*\([^)]*\)", "*", parameters)
        yield name, sum("*" in parameter for parameter in callbacks.split(","))


def main(program, directory):
    done = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    tried = {name: int(n) for name, n in map(str.split, done.stdout.splitlines())}
    public = {name: n for header in pathlib.Path(directory).glob("*.h")
              for name, n in calls_of(header.read_text())}
    public = {name: n for name, n in public.items() if n > 0}
    wrong = sorted(set(tried.items()) ^ set(public.items()))
    for name, n in wrong:
        print(f"{name}: {n} pointers {'in the headers, not tried' if public.get(name) == n else 'tried'}")
    if len(public) < 40 or wrong:
        sys.exit("check_arguments.py: not every pointer of every call is tried")


if __name__ == "__main__":
    main(*sys.argv[1:])
