#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual pages that are made of the headers: each public call has one, with all that its comment
says; none is empty; groff warns of nothing. Also: what a manual needs and a header lacks is an error.

usage: test_man.py PAGES_PY HEADERS LIBRARY [DIRECTORY]...

HEADERS is the directory of the headers, LIBRARY the shared library, the DIRECTORIES have the pages. Without
any, the pages are made first.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PAGES_PY, HEADERS, LIBRARY = (pathlib.Path(argument) for argument in sys.argv[1:4])
DIRECTORIES = [pathlib.Path(argument) for argument in sys.argv[4:]]
SKIPPED = 77
CALL = re.compile(r"/\*((?:(?!\*/).)*)\*/\n(?:WEIR_[A-Z_]+ |static inline )+[^;{]*?(\bweir_\w+[a-z])\([^;{]*?\);", re.S)
# What is said by the place where a sentence stands, in place of these words.
SAID_BY_SECTIONS = set("returns any thread errors that can fail with meanings or and 0 h".split())
LACKING = {
    "WEIR_PUBLIC int weir_new(void);": "there is no comment",
    "/* Does. Any thread. Returns 0. */\nWEIR_PUBLIC int weir_new(void);": "does not say what weir_new returns",
    "/* Does. Returns 0 or -EBADMSG. */\nWEIR_PUBLIC int weir_new(void);": "-EBADMSG of weir_new is not explained",
    f"/* {'Does so much '* 20}. Returns 0 or -ENOMEM. */\nWEIR_PUBLIC int weir_new(void);": "first sentence",
}


def words(text):
    return set(re.findall(r"[a-z0-9_]+", text.lower()))


def find(page):
    return next((directory / page for directory in DIRECTORIES if (directory / page).exists()), None)


def rendered(paths):
    """The text of each page, and what groff says of them."""
    result = subprocess.run(["groff", "-man", "-ww", "-Kutf8", "-Tutf8", "-P-cbou", *paths], capture_output=True,
                            text=True, timeout=60, check=False, env=dict(os.environ, LC_ALL="C.UTF-8"))
    parts = re.split(r"^(weir[\w-]*\(\d\)) +weir +\1$", result.stdout, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2])), result.stderr


def comments():
    """The comment of each call, and those that follow it without a comment of their own."""
    for header in HEADERS.glob("*.h"):
        text = header.read_text(encoding="utf-8")
        for match in CALL.finditer(text):
            said = re.sub(r"\[\w+ \w+, [\w ]+\](?=[\s*]*\Z)", "", match[1])  # the tag of a call: docs/plugin-abi.md
            yield match[2], re.sub(r"\n \*", "\n", said)


def exported():
    symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True,
                             check=True).stdout
    return set(re.findall(r"\bT (weir_\w+)", symbols))


def wrong_pages(calls):
    for name in sorted(calls):
        page = find(f"{name}.3")
        if page is None:
            yield f"{name} has no page"
            continue
        source = page.read_text(encoding="utf-8")
        link = re.fullmatch(r"\.so man3/(\w+\.3)\n", source)
        if link and (find(link[1]) is None or name not in find(link[1]).read_text(encoding="utf-8").split("SYNOPSIS")[0]):
            yield f"{page.name} leads to {link[1]}, which is not about it"
        for section in () if link else ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
            content = re.search(rf'^\.SH "{section}"\n(.*?)(?=^\.SH|\Z)', source, re.M | re.S)
            if not content or not words(content[1]):
                yield f"{page.name}: {section} is empty"


def wrong_texts(said):
    """What a comment says and its page does not, and what groff warns of."""
    headers = [f"weir-{header.stem}.7" for header in HEADERS.glob("*.h") if header.name != "weir.h"]
    pages = [*headers, *(f"{name}.3" for name in said)]
    lost = [page for page in pages if find(page) is None]
    texts, warnings = rendered([find(page) for page in pages if page not in lost])
    yield from (f"there is no {page}" for page in lost)
    yield from warnings.splitlines()
    for name, comment in said.items():
        text = texts.get(f"{name}(3)", "")
        missing = words(comment) - words(text) - SAID_BY_SECTIONS
        missing = {word for word in missing if f"{word}.h" not in comment}
        if missing:
            yield f"{name}.3 lacks {' '.join(sorted(missing))}"
    if len(said) < 40:
        yield f"only {len(said)} comments of calls were found"


def wrong_complaints():
    with tempfile.TemporaryDirectory() as directory:
        header = pathlib.Path(directory) / "new.h"
        for text, complaint in LACKING.items():
            header.write_text(f"/* SPDX-License-Identifier: MIT */\n/* New. */\n#ifndef N\n\n{text}\n#endif\n")
            result = subprocess.run([sys.executable, PAGES_PY, "--check", header], capture_output=True, text=True,
                                    timeout=60, check=False)
            if result.returncode == 0 or complaint not in result.stderr or "new.h:" not in result.stderr:
                yield f"no complaint that {complaint}, but: {result.stderr}"


def check():
    said = dict(comments())
    wrong = [*wrong_pages(exported() | set(said)), *wrong_complaints()]
    if not wrong:
        wrong = [*wrong_texts(said)]
    print("\n".join(wrong) or f"{len(said)} calls have pages")
    return bool(wrong)


def main():
    if not shutil.which("groff") or not shutil.which("nm"):
        print("there is no groff, or no nm")
        return SKIPPED
    if DIRECTORIES:
        return check()
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, PAGES_PY, "--output", directory, *HEADERS.glob("*.h")], check=True)
        DIRECTORIES.append(pathlib.Path(directory))
        return check()


if __name__ == "__main__":
    sys.exit(main())
