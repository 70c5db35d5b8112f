#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says what a run of `meson test` found, one test per line: a program of several cmocka cases
counts as that many tests. The end of what a failed test said goes to standard error.

usage: test-results.py .../testlog.json
lines: pass|fail|skip TAB name TAB reason
"""
import json
import re
import sys

CASE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED|ERROR)\s+\] (\S.*)$")
OTHER = re.compile(r"^(---|\d+ test\(s\))")  # cmocka's messages and closing lines
FINE = re.compile(r"^\[\s+(OK|RUN)\s+\] ")
WORDS = {"OK": "pass", "FAILED": "fail", "ERROR": "fail", "SKIPPED": "skip"}
LINES_SHOWN = 40
NO_REASON = "no reason was given"


def output_of(test):
    return (test.get("stdout") or "") + (test.get("stderr") or "")


def cases_of(test):
    """Verdict and reason of cmocka's cases by name; a case that failed once has failed. A case that
    skips itself says why just before."""
    cases = {}
    before = ""
    for line in output_of(test).splitlines():
        match = CASE.match(line)
        name = match[2].strip() if match else ""
        verdict = WORDS[match[1]] if match and not OTHER.match(name) else None
        if verdict and (name not in cases or verdict == "fail"):
            cases[name] = (verdict, (before or NO_REASON) if verdict == "skip" else "")
        before = "" if line.startswith("[") else line.strip()
    return cases


def said_by(test):
    """The end of what a failed test said, without the cases that passed."""
    lines = [line for line in output_of(test).splitlines() if not FINE.match(line)]
    return lines[-LINES_SHOWN:]


def last_line(test):
    lines = [line.strip() for line in output_of(test).splitlines() if line.strip()]
    return lines[-1] if lines else NO_REASON


def results_of(test):
    """Pairs of name and (verdict, reason)."""
    result = test["result"]
    name = test["name"].split(" / ")[-1]
    if result == "SKIP":
        return {name: ("skip", last_line(test))}
    results = {f"{name}.{case}": found for case, found in cases_of(test).items()}
    fine = result in ("OK", "EXPECTEDFAIL")
    failed = any(verdict == "fail" for verdict, _ in results.values())
    if not results or (not fine and not failed):
        results[name] = ("pass", "") if fine else ("fail", f"{result.lower()}, status "
                                                   f"{test.get('returncode')}")
    return results


def main():
    seen = 0
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            test = json.loads(line)
            seen += 1
            results = results_of(test)
            for name, (verdict, reason) in results.items():
                print(verdict, name, reason, sep="\t")
            if any(verdict == "fail" for verdict, _ in results.values()):
                print(f"--- {test['name']}:", file=sys.stderr)
                for said in said_by(test):
                    print("   ", said, file=sys.stderr)
    if not seen:
        sys.exit("test-results: no test was run")


if __name__ == "__main__":
    main()
