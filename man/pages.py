#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes manual pages of the public headers: one for each call (section 3), from its declaration, its
comment and those of the structs that it takes; and one for each header (section 7), with its types. The
calls that share a comment share a page. What a manual needs and a header does not say is an error.

    man/pages.py --names HEADER...                              prints the names of the pages
    man/pages.py --check HEADER...                              only says what is missing
    man/pages.py --output DIR --version VERSION HEADER...
"""

import argparse
import pathlib
import re
import sys
import textwrap

sys.dont_write_bytecode = True  # the modules are in the source tree

import roff
from headers import Wrong, members, read_header

FIRST_SENTENCE_MAX = 110
CODES = r"-E[A-Z0-9]+(?:(?:, | or )(?:-E[A-Z0-9]+|…))*"


class Manual:
    """All headers, and what pages refer to: calls, types, the errors of each call."""

    def __init__(self, headers):
        self.headers = headers
        self.pages = {}  # first name of a call to its item
        self.calls = {}  # every call to the name of its page
        self.types = {}  # "struct weir_request" to its item
        self.common = {}  # what a code means if a call does not say
        for header in headers:
            for item in header.items:
                self.add(item)
        for header in headers:
            if header.name == "error.h":
                self.common = {code: text for terms, text in listed(header.comment)
                               for code in re.findall(r"-E[A-Z0-9]+", terms)}
        self.text = roff.Text(self.calls, {header.name for header in headers})

    def add(self, item):
        if item.functions:
            self.pages[item.functions[0]] = item
            self.calls.update(dict.fromkeys(item.functions, item.functions[0]))
        if item.type and " " in item.type:
            self.types[item.type] = item

    def include(self, header):
        """The header that a program includes for another one."""
        return header if header in ("uring.h", "segment.h", "plugin.h", "algorithm.h", "balancer.h") else "weir.h"


def listed(lines):
    """The terms of all lists in a comment, with their texts."""
    for block in roff.blocks(lines):
        if block.kind == "list":
            yield from block.entries


def own_types(manual, item):
    """The types of the arguments of calls, and those that are in them, in this order."""
    ret, texts = [], list(item.declarations)
    while texts:
        for name in re.findall(r"\b(?:struct|enum) weir_\w+", texts.pop(0)):
            kind = manual.types.get(name)
            if kind and kind not in ret and kind.header != "plugin.h":
                ret.append(kind)
                texts += kind.declarations
    return ret


class Outcome:
    """What a call returns: the sentence on success, each error with its text, and what else is said."""

    def __init__(self, manual, item):
        self.manual, self.item = manual, item
        self.description, self.success, self.errors, self.others = [], [], [], []
        self.threads, self.like = False, None
        reporting = False
        for block in roff.blocks(item.comment):
            if block.kind == "list" and reporting:
                self.read_list(block)
            elif block.kind == "paragraph":
                reporting = self.read_paragraph(block)
            else:
                self.description.append(block)
                reporting = False

    def read_list(self, block):
        for term, text in block.entries:
            if term.startswith("-E"):
                self.errors.append((term, text))
            else:
                self.success.append((term, text))

    def read_paragraph(self, block):
        """Sorts the sentences; returns whether a list of results follows."""
        kept, reporting = [], False
        for sentence in roff.sentences(block.text):
            codes = "-E" in sentence
            if sentence == "Returns":
                reporting = True
            elif sentence == "Any thread.":
                self.threads = True
            elif re.match(r"Returns NULL|Always returns", sentence):
                self.success.append(("", sentence))
            elif re.match(r"Returns\b", sentence) and (codes or "an error of" in sentence):
                self.read_result(sentence.removeprefix("Returns").strip())
                reporting = True
            elif re.match(r"(Errors:|That can fail with) -E", sentence):
                self.read_result(re.sub(r"^(Errors:|That can fail with) ", "", sentence))
            elif reporting and re.match(rf"{CODES}:", sentence):
                self.errors.append(tuple(sentence.split(": ", 1)))
            else:
                kept.append(sentence)
        if kept:
            self.description.append(roff.Block("paragraph", " ".join(kept)))
        return reporting and (not kept or block.text.endswith("Returns"))

    def read_result(self, sentence):
        """Takes "0, -EINVAL (why), -ENOMEM, or another error" apart."""
        like = re.search(r"(?:meanings of|errors? of|as) (weir_\w+)", sentence)
        before, group, seen = sentence, [], False
        sentence = sentence.rstrip(".")
        for begin, part in roff.parts(sentence):
            match = re.match(rf"({CODES}|…)\s*(.*)", part, re.S)
            if match:
                before = before if seen else sentence[:begin]
                seen = True
                group.append(match[1])
                text = "" if match[2].startswith("with the meanings of") else match[2]
                if text:
                    self.add_errors(group, text)
                    group = []
            elif seen:
                self.others.append(re.sub("^or ", "", sentence[begin:]))
                break
        self.errors += [(code, "") for code in group]
        before = re.sub(r"([,;]? (or )?|\.)$", "", before)
        if before:
            self.success.append(("", before + "."))
        self.like = like and like[1]

    def add_errors(self, group, text):
        """A text is that of the code before it; with an ellipsis, of all that are listed there."""
        shared = group if "…" in " ".join(group) else group[-1:]
        self.errors += [(code, "") for code in group[:len(group) - len(shared)]]
        enclosed = re.fullmatch(r"\(([^()]*(\([^()]*\)[^()]*)*)\)", text)
        self.errors.append((", ".join(shared), enclosed[1] if enclosed else text))

    def explained(self):
        """The errors with their texts; those without one have that of the call they are like, or the
        common one."""
        like = {}
        if self.like in self.manual.calls:
            other = self.manual.pages[self.manual.calls[self.like]]
            if other is not self.item:
                like = {code: text for terms, text in Outcome(self.manual, other).explained()
                        for code in re.findall(r"-E[A-Z0-9]+", terms)}
        for term, text in self.errors:
            for code in [term] if text else re.findall(r"-E[A-Z0-9]+", term):
                said = text or like.get(code) or self.manual.common.get(code)
                if not said:
                    raise Wrong(f"{self.item.place()}: {code} of {self.item.functions[0]} is not explained, here or "
                                "in error.h: say -ECODE (why)")
                yield code, said


def summary(place, lines):
    """The first sentence of a comment, for the line of names."""
    text = next((block.text for block in roff.blocks(lines) if block.kind == "paragraph"), "")
    first = (roff.sentences(text) or [""])[0].rstrip(".:")
    if not first:
        raise Wrong(f"{place}: there is no comment")
    if len(first) > FIRST_SENTENCE_MAX:
        raise Wrong(f"{place}: the first sentence has more than {FIRST_SENTENCE_MAX} characters; it is the line of the "
                    "manual page's name")
    return first if first[1:2].isupper() else first[0].lower() + first[1:]


def heading(page, name, section, version):
    page.request(f'.TH {name} {section} "" "weir {version}" "weir"')
    page.request(".ad l")
    page.request(".nh")


def write_names(page, names, what):
    page.section("NAME")
    page.line(", ".join(roff.escape(name) for name in names) + r" \- " + page.text.plain(what))


def write_members(page, item):
    """A type: its comment, and its fields or values as a list."""
    page.subsection(item.type if " " in item.type else "Flags")
    page.comment(item.comment)
    for member in members(item.declarations[0]):
        if member.declaration:
            page.term(roff.bold(member.declaration))
            page.inside(member.comment)
        else:
            page.outdent()
            page.comment(member.comment)
    page.outdent()
    for define in item.declarations[1:]:
        page.paragraph_of(roff.bold(re.sub(r"\s*/\*.*", "", define)))


def flags_of(manual, item, types):
    """Flags without a type of their own, which fields of these types or the call's comment name."""
    said = "\n".join(["\n".join(item.comment), *(text for kind in types for text in kind.declarations)])
    for header in manual.headers:
        for other in header.items:
            if other.type == "enum" and header.name != "plugin.h":
                values = [member.declaration.split()[0] for member in members(other.declarations[0])
                          if member.declaration]
                prefix = values[0].rsplit("_", 1)[0] + "_*"
                if prefix in said or any(re.search(rf"\b{value}\b", said) for value in values):
                    yield other


def merged(errors):
    """Errors that follow one another with one text become one entry."""
    ret = []
    for term, text in errors:
        if ret and ret[-1][1] == text:
            ret[-1] = (f"{ret[-1][0]}, {term}", text)
        else:
            ret.append((term, text))
    return ret


def write_outcome(page, outcome):
    if outcome.success or outcome.errors or outcome.others:
        page.section("RETURN VALUE")
    for term, text in outcome.success:
        if term:
            page.term(roff.bold(term))
            page.inside_text(text)
        else:
            page.paragraph("0 on success." if text == "0." else text[0].upper() + text[1:])
    errors = [*outcome.explained()]
    if errors or outcome.others:
        page.outdent()
        page.paragraph("On failure, a negative number: see ERRORS.")
        page.section("ERRORS")
    for term, text in merged(errors):
        page.term(page.text.inline(term))
        page.inside_text(text)
    if outcome.others:
        page.outdent()
    for other in outcome.others:
        more = not re.match(r"then|on|`", other)
        page.paragraph(("Also: " + other if more else other[0].upper() + other[1:]) + ".")


def write_see_also(page, manual, item):
    said = "\n".join(item.comment)
    names = [name for name in dict.fromkeys(re.findall(r"\bweir_\w+", said))
             if name in manual.calls and name not in item.functions]
    header = item.header.removesuffix(".h")
    page.section("SEE ALSO")
    pages = [(name, 3) for name in names] + [(f"weir-{header}", 7), ("libweir", 7)]
    page.line(",\n".join(f".BR {roff.escape(name)} ({section})" for name, section in pages)
              .replace(",\n", " ,\n").replace(") ,", "),"))


def call_page(manual, item, version):
    outcome = Outcome(manual, item)
    parameters = set(re.findall(r"[\s*](\w+)[,)]", " ".join(item.declarations)))
    page = roff.Page(manual.text, parameters)
    heading(page, item.functions[0], 3, version)
    write_names(page, item.functions, summary(item.place(), item.comment))
    page.section("SYNOPSIS")
    page.code([f"#include <weir/{manual.include(item.header)}>", "",
               *(line for text in item.declarations for line in prototype(text))], bold=True)
    if not outcome.description:
        raise Wrong(f"{item.place()}: the comment only says what is returned")
    page.section("DESCRIPTION")
    page.blocks(outcome.description)
    if outcome.threads:
        page.paragraph("Any thread may call it." if len(item.functions) == 1 else "Any thread may call them.")
    types = own_types(manual, item)
    flags = [flag for flag in flags_of(manual, item, types) if flag not in types]
    if types or flags:
        page.section("TYPES")
    for kind in types + flags:
        write_members(page, kind)
    write_outcome(page, outcome)
    if outcome.item.declarations[0].startswith("int ") and not (outcome.success or outcome.errors or outcome.others):
        raise Wrong(f"{item.place()}: the comment does not say what {item.functions[0]} returns")
    write_see_also(page, manual, item)
    return page.source()


def prototype(text):
    """A declaration, broken into lines of at most 72 characters."""
    text = " ".join(text.split())
    if len(text) <= 72:
        return [text]
    head, arguments = text.split("(", 1)
    indent = " " * 4 if len(head) > 30 else " " * (len(head) + 1)
    bound = re.sub(r"(?<!,) ", "\0", arguments)  # an argument stays on one line
    lines = [line.replace("\0", " ") for line in textwrap.wrap(bound, 72 - len(indent))]
    return [head + "(" + lines[0], *(indent + line for line in lines[1:])] if len(indent) > 4 else \
        [head + "(", *(indent + line for line in lines)]


def header_page(manual, header, version):
    page = roff.Page(manual.text, set())
    name = "weir-" + header.name.removesuffix(".h")
    heading(page, name, 7, version)
    write_names(page, [name], summary(f"include/weir/{header.name}:2", header.comment))
    page.section("SYNOPSIS")
    page.code([f"#include <weir/{manual.include(header.name)}>"], bold=True)
    page.section("DESCRIPTION")
    page.comment(header.comment)
    others = [item for item in header.items if not item.functions]
    if others:
        page.section("TYPES AND CONSTANTS")
    for item in others:
        if item.type:
            write_members(page, item)
        else:
            for text in item.declarations:
                page.term(roff.bold(re.sub(r"\s*/\*.*", "", text)))
            page.inside(item.comment)
            page.outdent()
    calls = [name for item in header.items for name in item.functions]
    page.section("SEE ALSO")
    page.line("\n".join([f".BR {name} (3)," for name in calls] + [".BR libweir (7)"]))
    return page.source()


def all_pages(manual, version):
    """Every page, its file's name and its source; and what is wrong with others."""
    pages, wrong = {}, []
    for first, item in manual.pages.items():
        try:
            pages[f"{first}.3"] = call_page(manual, item, version)
        except Wrong as error:
            wrong.append(str(error))
        for other in item.functions[1:]:
            pages[f"{other}.3"] = f".so man3/{first}.3\n"
    for header in manual.headers:
        try:
            if header.name != "weir.h":
                pages[f"weir-{header.name.removesuffix('.h')}.7"] = header_page(manual, header, version)
        except Wrong as error:
            wrong.append(str(error))
    return pages, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--version", default="")
    parser.add_argument("headers", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    try:
        manual = Manual([read_header(path) for path in options.headers])
        pages, wrong = all_pages(manual, options.version)
    except Wrong as error:
        wrong = [str(error)]
    if wrong:
        sys.exit("\n".join(wrong))
    for name, source in pages.items():
        if options.names:
            print(name)
        elif options.output:
            (options.output / name).write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
