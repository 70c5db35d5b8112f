# SPDX-License-Identifier: MIT
"""Writes a C file with a variable for each public call and each struct of the public headers, of its
type: an object compiled from it has the whole interface in its debug information, and nothing else.

    public_calls.py INCLUDE_DIRECTORY > public.c
"""
import pathlib
import re
import sys

LEFT_OUT = {"backend.h", "uring.h"}  # unstable; inline, and compiled with liburing
COMMENT = re.compile(r"/\*.*?\*/", re.S)
CALL = re.compile(r"WEIR_PUBLIC\b[^;{]*?\b(weir_\w+)\s*\(")
STRUCT = re.compile(r"^struct (weir_\w+) \{", re.M)


def main():
    headers = sorted(path for path in (pathlib.Path(sys.argv[1]) / "weir").glob("*.h") if path.name not in LEFT_OUT)
    texts = {path.name: COMMENT.sub("", path.read_text(encoding="utf-8")) for path in headers}
    for name in texts:
        print(f"#include <weir/{name}>")
    for text in texts.values():
        for name in CALL.findall(text):
            print(f"extern __typeof__({name}) *const call_{name};\n__typeof__({name}) *const call_{name} = {name};")
        for name in STRUCT.findall(text):
            print(f"extern const struct {name} *const struct_{name};\n"
                  f"const struct {name} *const struct_{name} = 0;")


main()
