#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The project's algorithms and balancers, compiled with headers in which each struct of the plugin ABI is longer, as
those of a later release will be, are used by this library like the others. WEIR_PERCENT says of how many, and
WEIR_SEED repeats a choice.

    test_grown.py WEIR CC INCLUDE_DIRECTORY DIRECTORY_OF_PLUGINS
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from effort import chosen  # noqa: E402

HEADERS = ("plugin.h", "algorithm.h", "balancer.h")
STRUCT = re.compile(r"^(struct weir_\w+ \{\n)(.*?)(^\};)", re.M | re.S)
TESTS = {"algorithms": ("configure", "try-take", "refund", "release", "observe", "reconfigure"),
         "balancers": ("pick", "ranks", "view-size", "weights")}


def grow(include):
    """Adds fields to each struct. Returns how many there are."""
    grown_n = 0
    for header in HEADERS:
        path = include / "weir" / header
        text, n = STRUCT.subn(r"\1\2    uint64_t of_a_later_release[4];\n\3", path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        grown_n += n
    return grown_n


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "WEIR_PLUGIN_PATH": "", "LC_ALL": "C"})
    if f"no test {command[-2]} was made" in done.stderr:
        return True, ""
    if done.returncode != 0:
        print(f"FAILED {' '.join(map(str, command))}:\n{done.stdout}{done.stderr}", flush=True)
    return done.returncode == 0, done.stdout


def main():
    weir, compiler, include, plugins_source = sys.argv[1:]
    sources = chosen(path for kind in TESTS for path in sorted(pathlib.Path(plugins_source, kind).glob("*.c")))
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        headers, plugins = directory / "include", directory / "plugins"
        shutil.copytree(include, headers)
        plugins.mkdir()
        assert grow(headers) >= 15
        files = [(source, plugins / f"{source.stem}.so") for source in sources]
        is_fine = bool(files)
        for source, made in files:
            is_fine &= run(*compiler.split(), "-std=c17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden",
                           f"-I{headers}", "-o", made, source)[0]
        listed, text = run(weir, "plugins", plugins)
        is_fine &= listed
        for source, made in files:
            name = made.stem
            if not re.search(rf"^  (algorithm|balancer) {name} ", text, re.M):
                print(f"FAILED {name} is not listed:\n{text}")
                is_fine = False
            for test in TESTS[source.parent.name]:
                is_fine &= run(weir, "plugin", "check", "--only", test, made)[0]
    print("all are used" if is_fine else "not all are used")
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
