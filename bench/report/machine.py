# SPDX-License-Identifier: MIT
"""The machine and the sources that are measured, and other load on the machine."""

import json
import os
import platform
import re
import resource
import shlex
import subprocess
import time

from .programs import source_of

# Parts of all processors' time. Beyond this, the figures show the machine and not weir.
OTHERS_MAX = 0.05
STOLEN_MAX = 0.01


def output_of(*command):
    """The first line of the output of a command, or None."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return (done.stdout.splitlines() or [""])[0] if done.returncode == 0 else None


def commit(build):
    """The commit of the sources of a build, marked if they differ from it."""
    source = str(source_of(build))
    name = output_of("git", "-C", source, "rev-parse", "--short=12", "HEAD")
    if name is None:
        return "unknown"
    changed = output_of("git", "-C", source, "status", "--porcelain", "--untracked-files=no")
    return name + ("-changed" if changed else "")


def processor():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        found = re.search(r"^(?:model name|CPU part)\s*: (.*)$", file.read(), re.M)
    return f"{found[1].strip() if found else 'unknown'} ({platform.machine()})"


def compiler(build):
    """The version of the compiler, and its optimization."""
    try:
        commands = json.loads((build / "compile_commands.json").read_text())
    except (OSError, ValueError):
        return "unknown"
    words = next((shlex.split(command["command"]) for command in commands
                  if command["file"].endswith("core/api/acquire.c")), [])
    if words and os.path.basename(words[0]) == "ccache":
        words = words[1:]
    if not words:
        return "unknown"
    options = [word for word in words if re.match(r"-O|-flto|-fsanitize|-march|-mtune", word)]
    return " ".join([output_of(words[0], "--version") or words[0], *options])


def describe(build):
    """The fields of every line of the report."""
    return {
        "machine": processor(),
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "compiler": compiler(build),
        "commit": commit(build),
    }


def is_optimized(description):
    return bool(re.search(r"-O(2|3|fast)", description["compiler"]))


class Ticks:
    """Time of all processors so far, in seconds, from the text of /proc/stat."""

    def __init__(self, text):
        fields = [int(field) for field in text.splitlines()[0].split()[1:]]
        user, nice, system, _idle, _iowait, irq, softirq, stolen = (fields + [0] * 8)[:8]
        second = os.sysconf("SC_CLK_TCK")
        self.busy = (user + nice + system + irq + softirq) / second
        self.stolen = stolen / second
        self.processors = len(re.findall(r"^cpu\d+ ", text, re.M))


def own_time():
    """Processor time of this process and its children, in seconds."""
    return sum(usage.ru_utime + usage.ru_stime for usage in (
        resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)))


def disturbances(busy, own, stolen, whole):
    """The disturbances in `whole` seconds of the processors. `busy` of these were in use, `own` of them
    by this process, and the host took `stolen`."""
    others = max(busy - own, 0) / whole
    found = []
    if others > OTHERS_MAX:
        found.append(f"others had {others:.0%} of the processors' time (at most {OTHERS_MAX:.0%} "
                     "is quiet)")
    if stolen / whole > STOLEN_MAX:
        found.append(f"the host took {stolen / whole:.0%} of the processors' time for other "
                     f"machines (at most {STOLEN_MAX:.0%} is quiet)")
    return found


class Watch:
    """Watches the other load on the machine from now on."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        with open("/proc/stat", encoding="utf-8") as file:
            return Ticks(file.read()), own_time(), time.monotonic()

    def disturbances(self):
        (first, first_own, begin), (last, last_own, end) = self.begin, self.now()
        whole = max((end - begin) * last.processors, 1e-9)
        return disturbances(last.busy - first.busy, last_own - first_own,
                            last.stolen - first.stolen, whole)
