#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`weir plugin check` finds what is broken, by the right test, and nothing in what is not.

    test_plugin_check.py WEIR --variants FILE TEST [FILE TEST]...    (TEST `none`: nothing is found)
    test_plugin_check.py WEIR --own FILE...

WEIR_SEED repeats a run, and WEIR_PERCENT says of how many of the files. Two files are tested at a time.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from effort import SEED, chosen  # noqa: E402


def found_in(weir, path, *options):
    """The tests that found something: their names, with what they say."""
    done = subprocess.run([weir, "plugin", "check", "--json", "--seed", str(SEED), *options, path],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return None, f"status {done.returncode}: {done.stderr}"
    tests = json.loads(done.stdout)["tests"]
    wrong = {test["test"]: test["text"] for test in tests if test["verdict"] == "wrong"}
    if not tests or bool(wrong) != bool(done.returncode):
        return None, f"status {done.returncode} for {wrong} of {len(tests)} tests"
    return wrong, None


def judge_variant(weir, path, expected):
    only = () if expected == "none" else ("--only", expected)
    wrong, error = found_in(weir, path, *only)
    if error:
        return error
    if expected == "none":
        return f"found {wrong}" if wrong else None
    return None if list(wrong) == [expected] and wrong[expected] else f"{expected} found {wrong}"


def main():
    weir, how, *rest = sys.argv[1:]
    pairs = chosen(zip(rest[::2], rest[1::2]) if how == "--variants" else [(path, "none") for path in rest])
    failed = 0
    print(f"WEIR_SEED={SEED}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(judge_variant, weir, path, expected) for path, expected in pairs]
        for (path, expected), job in zip(pairs, jobs):
            name, error = os.path.basename(path), job.result()
            failed += error is not None
            print(f"{'FAILED' if error else 'ok':7}{name}: {error or expected}", flush=True)
    return 1 if failed or not pairs else 0


if __name__ == "__main__":
    sys.exit(main())
