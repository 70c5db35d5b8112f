# SPDX-License-Identifier: MIT
"""Limiters of other projects, as the distribution packages them, at the work of weir.

Each ecosystem has one program, in its own language, which prints lines as bench/costs does. It is a
process of its own, so what stands side by side is a round of each, one after the other, many times
over."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
from collections import namedtuple

from .programs import SOURCE, Failure, read_lines, run
from .series import combine


# ---- how to build ----

def command_of(variable, default):
    """The words of a tool's command, which the environment may replace."""
    return shlex.split(os.environ.get(variable, "")) or [default]


def has_tool(variable, default):
    return shutil.which(command_of(variable, default)[0]) is not None


def gopath():
    return os.environ.get("GOPATH", "/usr/share/gocode")  # where Debian puts sources of libraries


def has_go_library(path):
    return any((pathlib.Path(root) / "src" / path).is_dir() for root in gopath().split(os.pathsep))


def crates():
    return pathlib.Path(os.environ.get("CRATES", "/usr/share/cargo/registry"))  # Debian's place


# Each of these returns a command to be run in `directory`, what it adds to the environment, and the
# program that it builds there. Nothing is fetched, and nothing of the user's home is read.

def build_go(source, directory):
    program = directory / "peers"
    environment = {"GO111MODULE": "off", "GOPATH": gopath(), "GOFLAGS": "", "GOENV": "off",
                   "GOCACHE": str(directory / "cache"), "CGO_ENABLED": "0"}
    return [*command_of("GO", "go"), "build", "-o", str(program), str(source)], environment, program


CARGO_MANIFEST = """\
[package]
name = "peers"
version = "0.0.0"
edition = "2021"

[[bin]]
name = "peers"
path = "main.rs"

[dependencies]
tokio = { version = "1", default-features = false, features = ["sync"] }
"""

CARGO_CONFIG = """\
[source.crates-io]
replace-with = "distribution"

[source.distribution]
directory = %s
"""


def build_rust(source, directory):
    home, target = directory / "home", directory / "target"
    home.mkdir()
    (home / "config.toml").write_text(CARGO_CONFIG % json.dumps(str(crates())), encoding="utf-8")
    (directory / "Cargo.toml").write_text(CARGO_MANIFEST, encoding="utf-8")
    shutil.copy(source, directory)
    command = [*command_of("CARGO", "cargo"), "build", "--offline", "--release", "--quiet",
               "--target-dir", str(target)]
    return command, {"CARGO_HOME": str(home)}, target / "release" / "peers"


def build_cpp(source, directory):
    program = directory / "peers"
    return [*command_of("CXX", "g++"), "-std=c++20", "-O3", "-pthread", "-o", str(program),
            str(source)], {}, program


# ---- the ecosystems ----

# `packages`: names of packages of Debian 12, and whether what is needed of each is there. `same`: the
# figures of its program, and those of `costs` that they correspond to.
Ecosystem = namedtuple("Ecosystem", "name language source build packages same")

ECOSYSTEMS = (
    Ecosystem(
        "go", "Go", "main.go", build_go,
        {"golang-go": lambda: has_tool("GO", "go"),
         "golang-golang-x-time-dev": lambda: has_go_library("golang.org/x/time/rate"),
         "golang-golang-x-sync-dev": lambda: has_go_library("golang.org/x/sync/semaphore"),
         "golang-github-juju-ratelimit-dev": lambda: has_go_library("github.com/juju/ratelimit")},
        {"x/time/rate: Allow": "take, call",
         "x/time/rate: Allow, refused": "take, rate, refused",
         "juju/ratelimit: TakeAvailable": "take, rate",
         "juju/ratelimit: TakeAvailable, refused": "take, rate, refused",
         "x/sync/semaphore: TryAcquire + Release": "acquire + release, resource"}),
    Ecosystem(
        "rust", "Rust", "main.rs", build_rust,
        {"cargo": lambda: has_tool("CARGO", "cargo"),
         "librust-tokio-dev": lambda: any(crates().glob("tokio-1.*"))},
        {"tokio::Semaphore: try_acquire + drop": "acquire + release, resource"}),
    Ecosystem(
        "cpp", "C++", "main.cc", build_cpp,
        {"g++": lambda: has_tool("CXX", "g++")},
        {"counting_semaphore: try_acquire + release": "acquire + release, resource"}),
)


def same_figures(ecosystem):
    """The corresponding figures by one thread and by two."""
    return ecosystem.same | {f"two: {theirs}": f"two: {ours}"
                             for theirs, ours in ecosystem.same.items()}


def missing_packages(ecosystem):
    """Names of packages of Debian 12."""
    return [package for package, is_there in ecosystem.packages.items() if not is_there()]


def outer_environment():
    """The environment without what would change a build of cargo: wrappers, flags, directories."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("CARGO_", "RUSTFLAGS", "RUSTC_"))}


def build(ecosystem, directory):
    """Builds the program of an ecosystem in a directory of its own below `directory`."""
    place = pathlib.Path(directory) / ecosystem.name
    place.mkdir()
    command, environment, program = ecosystem.build(SOURCE / "bench/peers" / ecosystem.source, place)
    done = subprocess.run(command, env=outer_environment() | environment, cwd=place,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"bench/peers/{ecosystem.source} does not compile:\n"
                      f"{done.stdout}{done.stderr}")
    return program


def build_all(directory):
    """The ecosystems that are installed, with their programs."""
    programs = []
    for ecosystem in ECOSYSTEMS:
        missing = missing_packages(ecosystem)
        if missing:
            print(f"peers_{ecosystem.name}: skipped: please install {' '.join(missing)}", flush=True)
        else:
            programs.append((ecosystem, build(ecosystem, directory)))
    return programs


# ---- rounds ----

def run_peers(ecosystem, program):
    """One round of a program."""
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"bench/peers/{ecosystem.source}: status {done.returncode}\n"
                      f"{done.stdout}{done.stderr}")
    figures = read_lines(done.stdout)
    if not figures:
        raise Failure(f"bench/peers/{ecosystem.source}: there are no figures")
    return figures


def line_of_round(ecosystem, figure, metrics):
    """A line for a figure of one round."""
    times = {key: figure[key] for key in ("name", "min_ns", "median_ns", "p99_ns", "max_ns")}
    return times | {"bench": f"peers_{ecosystem.name}", "rounds": 1,
                    "each": {metric: [value] for metric, value in metrics.items()}}


def alone(ecosystem, figure):
    return line_of_round(ecosystem, figure,
                         {metric: figure[metric] for metric in ("median_ns", "p99_ns")})


def compare(ecosystem, theirs, ours):
    """A line for a figure of a peer: weir's of that round is its baseline."""
    metrics = {"median_ns": theirs["median_ns"], "p99_ns": theirs["p99_ns"],
               "ratio": theirs["median_ns"] / ours["median_ns"],
               "ratio_p99": theirs["p99_ns"] / ours["p99_ns"],
               "difference_ns": theirs["median_ns"] - ours["median_ns"]}
    return line_of_round(ecosystem, theirs, metrics) | {"baseline": ours["name"]}


def merge(ecosystem, ours, theirs):
    """One round of both: each figure of weir, and the peers' that correspond to it."""
    lines = {}
    for name, own in same_figures(ecosystem).items():
        if name in theirs and own in ours:
            lines[own] = alone(ecosystem, ours[own])
            lines[name] = compare(ecosystem, theirs[name], ours[own])
    return lines


def measure(ecosystem, program, build_directory, rounds):
    """Figures of both, with ratios of the peers' to weir's."""
    merged = []
    for _ in range(rounds):
        theirs = run_peers(ecosystem, program)
        ours, _skipped = run(build_directory, "costs", ["--rounds", "1"])
        merged.append(merge(ecosystem, ours, theirs))
    return combine(merged)
