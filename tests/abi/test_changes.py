#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A change of the plugin ABI that plugins would notice turns the checks red: copies of the headers, each with one
change to one struct or constant, are held against layout.c, and some of them against the record of abidiff.
WEIR_PERCENT says of how many structs, and WEIR_SEED repeats a choice.

    test_changes.py CC INCLUDE_DIRECTORY LAYOUT.C TEST_PUBLIC.SH PUBLIC_CALLS.PY PUBLIC.ABI
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
STRUCT = re.compile(r"^struct (weir_\w+) \{\n(.*?)^\};", re.M | re.S)


def structs(include):
    """Name, header and body of each struct of the plugin ABI."""
    return [(name, header, body) for header in HEADERS
            for name, body in STRUCT.findall((include / "weir" / header).read_text(encoding="utf-8"))]


def changed_bodies(body):
    """The ways in which a struct may change so that plugins that exist break: with a name for each."""
    yield "a field comes first", "    void *intruder;\n" + body
    yield "a field is added at the end, without a new row", body + "    void *intruder;\n"
    narrower = re.sub(r"\buint64_t\b|\bsize_t\b|\bint64_t\b", "uint16_t", body, count=1)
    if narrower != body:
        yield "a field becomes narrower", narrower


def layout_fails(compiler, layout, include, directory):
    """Whether layout.c does not compile with these headers, or finds something."""
    program = directory / "layout"
    built = subprocess.run([*compiler, "-std=c17", f"-I{include}", "-o", program, layout],
                           capture_output=True, text=True, check=False)
    return built.returncode != 0 or subprocess.run([program], capture_output=True, check=False).returncode != 0


def abidiff_fails(script, compiler, include, calls, recorded):
    """Whether the record differs from these headers. The script also tries a change of its own."""
    done = subprocess.run([script, " ".join(compiler), include, calls, recorded], capture_output=True, text=True,
                          check=False)
    return None if done.returncode == 77 else done.returncode != 0 and "is not the recorded one" in done.stdout


def main():
    compiler, include, layout, script, calls, recorded = sys.argv[1:]
    compiler, include = compiler.split(), pathlib.Path(include)
    failed = tried = 0
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        copy = directory / "include"
        shutil.copytree(include, copy)
        if layout_fails(compiler, layout, copy, directory):
            sys.exit("layout.c fails without a change")

        def try_change(header, text, what, by_abidiff):
            nonlocal failed, tried
            original = (include / "weir" / header).read_text(encoding="utf-8")
            changed = text(original)
            assert changed != original, what
            (copy / "weir" / header).write_text(changed, encoding="utf-8")
            found = {"layout.c": layout_fails(compiler, layout, copy, directory)}
            if by_abidiff:
                found["abidiff"] = abidiff_fails(script, compiler, copy, calls, recorded)
            (copy / "weir" / header).write_text(original, encoding="utf-8")
            missed = [by for by, is_found in found.items() if is_found is False]
            failed += bool(missed)
            tried += 1
            print(f"{'FAILED' if missed else 'ok':7}{what}: {', '.join(missed) or 'found'}", flush=True)

        all_structs = structs(include)
        if len(all_structs) < 15:
            sys.exit(f"only {len(all_structs)} structs are found in the headers")
        for struct, header, body in chosen(all_structs):
            for i, (how, other) in enumerate(changed_bodies(body)):
                try_change(header, lambda text, body=body, other=other: text.replace(body, other, 1),
                           f"struct {struct}: {how}", i == 0)
        for header, old, new in (("plugin.h", "WEIR_PARAMETER_RATIO = 6", "WEIR_PARAMETER_RATIO = 16"),
                                 ("plugin.h", "UINT32_C(0xffff0000)", "UINT32_C(0xff000000)"),
                                 ("algorithm.h", "WEIR_OUTCOME_DROPPED = 4", "WEIR_OUTCOME_DROPPED = 6"),
                                 ("algorithm.h", "WEIR_ALGORITHM_WORD = 1u << 2", "WEIR_ALGORITHM_WORD = 1u << 9"),
                                 ("balancer.h", "UINT32_C(0x80000000)", "UINT32_C(0x40000000)")):
            try_change(header, lambda text, old=old, new=new: text.replace(old, new, 1), f"{old} becomes {new}", False)
    print(f"{tried} changes, {failed} were not found")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    sys.exit(main())
