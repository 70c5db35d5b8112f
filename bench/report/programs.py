# SPDX-License-Identifier: MIT
"""The benchmarks of a build directory: building them, running them, reading their lines."""

import json
import os
import pathlib
import shlex
import subprocess
import tempfile
from collections import namedtuple

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = SOURCE / "build" / "bench"

# In the order of the report. `short`: arguments of a short run that shows that it works.
Benchmark = namedtuple("Benchmark", "title short")

BENCHMARKS = {
    "costs": Benchmark("an operation that need not wait", ["--rounds", "2", "--samples", "2"]),
    "balancers": Benchmark("a pool beside one of its sets", ["--rounds", "1", "--samples", "1"]),
    "clock": Benchmark("the instant that each operation asks for",
                       ["--rounds", "1", "--samples", "2"]),
    "keyed": Benchmark("one of very many subjects", ["--rounds", "1", "--samples", "2", "20000"]),
    "key_table": Benchmark("the table of keys alone", ["--rounds", "1", "--samples", "4", "20000"]),
    "wake": Benchmark("from a release, or an instant, until the waiter runs",
                      ["--rounds", "1", "--samples", "10"]),
    "parked": Benchmark("very many waiters in one queue", ["--rounds", "1", "20000"]),
    "memory": Benchmark("what sets and acquisitions take", ["--rounds", "1", "2000"]),
    "process": Benchmark("sets that processes share", ["--rounds", "1", "--samples", "10"]),
    "redis": Benchmark("sets that a Redis server keeps", ["--rounds", "1", "--samples", "4"]),
}


class Failure(Exception):
    """A benchmark cannot be built, did the wrong thing, or printed invalid lines."""


def set_up():
    """Makes or updates the release build. Returns its directory."""
    steps = []
    if not (BUILD / "build.ninja").exists():
        steps.append(["meson", "setup", str(BUILD), str(SOURCE), "--buildtype=release",
                      "-Dexamples=disabled", "-Dman=disabled", "-Dtests=disabled"])
    steps.append(["ninja", "-C", str(BUILD), "all", *(f"bench/{name}" for name in BENCHMARKS)])
    for step in steps:
        try:
            done = subprocess.run(step, cwd=SOURCE, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
        except OSError as error:
            raise Failure(f"{step[0]}: {error.strerror}") from error
        if done.returncode:
            raise Failure(f"{shlex.join(step)}: status {done.returncode}\n{done.stdout}")
    return BUILD


def source_of(build):
    """The directory of the sources that a build directory was set up for."""
    try:
        told = json.loads((build / "meson-info" / "meson-info.json").read_text(encoding="utf-8"))
        return pathlib.Path(told["directories"]["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return SOURCE


def environment_of(build):
    """The environment of a program of the build tree: the path of the plugins, and no variable that
    would change its behavior."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("WEIR_")}
    environment["WEIR_PLUGIN_PATH"] = os.pathsep.join(
        str(build / "plugins" / kind) for kind in ("algorithms", "balancers", "backends/redis"))
    return environment


def read_lines(text):
    """The lines of JSON, by the names of the figures."""
    figures = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            figure = json.loads(line)
            figures[figure["name"]] = figure
        except (ValueError, KeyError, TypeError) as error:
            raise Failure(f"line {number} is no figure: {line[:80]}") from error
    return figures


def read_skipped(output):
    """The figures that a benchmark cannot measure here, and why."""
    return [line.split(": ", 1)[1] for line in output.splitlines() if line.startswith("skipped: ")]


def run(build, name, arguments):
    """Runs a benchmark once. Returns its figures by name, and those that it has skipped."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as lines:
        command = [str(build / "bench" / name), "--lines", lines.name, *arguments]
        try:
            done = subprocess.run(command, env=environment_of(build), capture_output=True,
                                  text=True, check=False)
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}; it can be built with `ninja -C {build} "
                          f"bench/{name}`") from error
        if done.returncode:
            raise Failure(f"{shlex.join(command)}: status {done.returncode}\n"
                          f"{done.stdout}{done.stderr}")
        figures, skipped = read_lines(lines.read()), read_skipped(done.stdout)
        if not figures and not skipped:
            raise Failure("there are no figures")
        return figures, skipped
