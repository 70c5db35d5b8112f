# SPDX-License-Identifier: MIT
"""Limiters of other projects, as the distribution packages them, at the work of weir.

They are programs of their own, so what stands side by side is a round of each, one after the other,
many times over."""

import os
import pathlib
import shutil
import subprocess
import tempfile

from .programs import SOURCE, Failure, read_lines, run
from .series import combine

PACKAGES = {
    "go": "golang-go",
    "golang.org/x/time/rate": "golang-golang-x-time-dev",
    "golang.org/x/sync/semaphore": "golang-golang-x-sync-dev",
}

# The figures of `costs`, and those of bench/peers/main.go that correspond to them.
SAME = {
    "take, call": "x/time/rate: Allow",
    "take, rate, refused": "x/time/rate: Allow, refused",
    "acquire + release, resource": "x/sync/semaphore: TryAcquire + Release",
}
SAME |= {f"two: {ours}": f"two: {theirs}" for ours, theirs in SAME.items()}


class Missing(Exception):
    """A required package is not installed."""


def gopath():
    return os.environ.get("GOPATH", "/usr/share/gocode")  # where Debian puts sources of libraries


def go():
    return os.environ.get("GO", "go")


def missing_packages():
    """Names of packages of Debian 12."""
    missing = [] if shutil.which(go()) else [PACKAGES["go"]]
    for path, package in PACKAGES.items():
        if path != "go" and not any((pathlib.Path(root) / "src" / path).is_dir()
                                    for root in gopath().split(os.pathsep)):
            missing.append(package)
    return missing


def build(directory):
    """Builds the program against the distribution's sources: nothing is fetched."""
    missing = missing_packages()
    if missing:
        raise Missing("please install " + " ".join(missing))
    program = pathlib.Path(directory) / "peers"
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": gopath(), "GOFLAGS": "",
                                "GOCACHE": str(pathlib.Path(directory) / "cache"),
                                "CGO_ENABLED": "0"}
    done = subprocess.run([go(), "build", "-o", str(program),
                           str(SOURCE / "bench" / "peers" / "main.go")], env=environment,
                          cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"bench/peers does not compile:\n{done.stdout}{done.stderr}")
    return program


def run_peers(program):
    """One round of all of them."""
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"bench/peers: status {done.returncode}\n{done.stdout}{done.stderr}")
    return read_lines(done.stdout)


def compare(ours, theirs):
    """A line for one figure of weir in one round, as if the peer's were its baseline."""
    own, other = ours["median_ns"], theirs["median_ns"]
    metrics = {"median_ns": own, "p99_ns": ours["p99_ns"], "ratio": own / other,
               "ratio_p99": ours["p99_ns"] / theirs["p99_ns"], "difference_ns": own - other}
    return ours | {"bench": "peers", "baseline": theirs["name"], "rounds": 1,
                   "each": {metric: [value] for metric, value in metrics.items()}}


def alone(theirs):
    """A line for a figure of a peer."""
    return theirs | {"bench": "peers", "rounds": 1, "each": {
        metric: [theirs[metric]] for metric in ("median_ns", "p99_ns")}}


def merge(ours, theirs):
    """One round of both."""
    lines = {name: alone(line) for name, line in theirs.items()}
    for name, other in SAME.items():
        if name in ours and other in theirs:
            lines[name] = compare(ours[name], theirs[other])
    return lines


def measure(build_directory, rounds):
    """Figures of both, with ratios of weir's to the peers'."""
    with tempfile.TemporaryDirectory() as directory:
        program = build(directory)
        merged = []
        for _ in range(rounds):
            theirs = run_peers(program)
            ours, _skipped = run(build_directory, "costs", ["--rounds", "1"])
            merged.append(merge(ours, theirs))
    return combine(merged)
