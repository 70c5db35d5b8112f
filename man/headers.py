# SPDX-License-Identifier: MIT
"""Reads the public headers: which declarations they have, and what their comments say of them."""

import dataclasses
import re

COMMENT = re.compile(r"/\*.*?\*/", re.S)
# What follows a comment: a definition with braces, a declaration, or a constant.
DECLARATION = re.compile(
    r"(?:(?P<braced>(?:typedef )?(?:struct|enum)(?: \w+)? \{.*?\n?\}(?: \w+)?;)"
    r"|(?P<inline>static inline [^;{]*?\))(?P<body>;|\n\{\n.*?\n\})"
    r"|(?P<define>\#define \w+[^\n]*)"
    r"|(?P<plain>[A-Za-z][^;{}\#]*;))", re.S)
CPLUSPLUS = re.compile(r'#ifdef __cplusplus\n(?:extern "C" \{|\})\n#endif\n')


class Wrong(Exception):
    """A header does not say what a manual needs: where, and what is missing."""


@dataclasses.dataclass
class Item:
    """Declarations that share one comment."""

    header: str  # its file name, "queue.h"
    line: int
    comment: list  # of lines, without the decoration
    declarations: list = dataclasses.field(default_factory=list)  # source text
    functions: list = dataclasses.field(default_factory=list)  # names
    type: str = ""  # "struct weir_request", "enum weir_choice", "enum" if it has no name

    def place(self):
        return f"include/weir/{self.header}:{self.line}"


@dataclasses.dataclass
class Header:
    name: str
    comment: list
    items: list


@dataclasses.dataclass
class Member:
    """A field of a struct or a value of an enum; or a remark between them, without a declaration."""

    declaration: str
    comment: list


def undecorated(comment):
    """The lines of a comment without its asterisks and the tag of a call (docs/plugin-abi.md)."""
    lines = re.sub(r"\[\w+ \w+, [\w ]+\](?=[\s*]*\*/)", "", comment)[2:-2].split("\n")
    starred = [re.sub(r"^\s*\* ?", "", line) if re.match(r"\s*\*", line) else line.strip()
               for line in lines[1:]]
    lines = [lines[0].strip(), *(line.rstrip() for line in starred)]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def name_of(prototype):
    return re.search(r"(\w+)\(", prototype).group(1)


def is_public(text, match):
    """Whether a declaration is a call or a type for programs, not internal to a header."""
    if match["inline"]:
        return not name_of(text).endswith("_")
    if match["plain"]:
        return text.startswith(("WEIR_PUBLIC", "extern"))
    if match["define"]:
        return not re.match(r"#define (\w+_H|WEIR_PUBLIC|WEIR_MUST_CHECK)\b", text)
    return not re.search(r"^enum \{ \w+_\b| \w+_ \{", text)


def add(item, match):
    text = match.group(0)
    if match["inline"]:
        text = match["inline"] + ";"
    if (match["inline"] or match["plain"]) and "(" in text and not text.startswith("extern"):
        item.functions.append(name_of(text))
    if match["braced"]:
        item.type = re.match(r"(?:typedef )?((?:struct|enum)(?: \w+)?)", text).group(1)
    item.declarations.append(re.sub(r"^((WEIR_[A-Z_]+|static inline) )+", "", text))


def read_items(name, text, at):
    """The items of a header from a position on. Internal ones, and second declarations, are left out."""
    known = set()
    item = None
    while at < len(text):
        comment = COMMENT.match(text, at)
        match = DECLARATION.match(text, at)
        if comment:
            at = comment.end()
            attached = text[at:at + 1] == "\n" and text[at + 1:at + 2] not in ("", "\n")
            item = Item(name, text.count("\n", 0, comment.start()) + 1,
                        undecorated(comment.group(0)) if attached else [])
            at += 1
        elif match:
            public = is_public(match.group(0), match)
            names = {name_of(match.group(0))} if match["inline"] else set()
            if public and not names & known:
                if item is None:
                    item = Item(name, text.count("\n", 0, at) + 1, [])
                first = not item.declarations
                add(item, match)
                known.update(item.functions)
                if first:
                    yield item
            at = match.end() + 1
        else:
            item = None
            at = text.find("\n", at) + 1 or len(text)


def read_header(path):
    text = path.read_text(encoding="utf-8")
    for match in reversed([*CPLUSPLUS.finditer(text)]):  # the lines stay as many
        text = text[:match.start()] + "\n" * match.group(0).count("\n") + text[match.end():]
    top = [*COMMENT.finditer(text)][1]
    if text[:top.start()].count("\n") != 1:
        raise Wrong(f"{path}:2: the first comment after the license says what the header is for")
    return Header(path.name, undecorated(top.group(0)), [*read_items(path.name, text, top.end())])


def members(declaration):
    """The members of a struct or enum, with their comments: before them, or behind them on the line."""
    body = declaration[declaration.index("{") + 1:declaration.rindex("}")]
    ret, before, at = [], None, 0
    for match in re.finditer(r"(?P<comment>/\*.*?\*/)|(?P<member>[^\s/][^;,/(]*(?:\((?:[^()]|\([^()]*\))*\)[^;,/(]*)*)"
                             r"(?P<end>[;,]?)", body, re.S):
        between = body[at:match.start()]
        at = match.end()
        if match["member"]:
            ret.append(Member(" ".join(match["member"].split()), before or []))
            before = None
        elif ret and before is None and "\n" not in between:
            ret[-1].comment = undecorated(match["comment"])
        else:
            before = undecorated(match["comment"])
            if re.match(r"\n[ \t]*\n", body[at:]):
                ret.append(Member("", before))
                before = None
    return ret
