# SPDX-License-Identifier: MIT
"""Comments taken apart into blocks and sentences, and written as manual pages (groff_man(7))."""

import dataclasses
import re

TERM = re.compile(r"^( *)(\S(?:.*?\S)??)( {2,})(\S.*)$")
ERROR = re.compile(r"^ +(-E[A-Z0-9]+(?:, (?:-E[A-Z0-9]+|…))*)\s+(.*)$")
TOKEN = re.compile(r"`([^`]+)`|(?:weir/|\b)(\w+\.h)\b|\b(weir_\w+)\b(\(\)|(?=\())?|(-E[A-Z][A-Z0-9]+)|\b(WEIR_\w+\*?)|(\S)|(\s+)")


@dataclasses.dataclass
class Block:
    kind: str  # "paragraph", "code", "list", "bullets"
    text: str = ""
    lines: list = dataclasses.field(default_factory=list)
    entries: list = dataclasses.field(default_factory=list)  # of a list: term and text


def indent_of(line):
    return len(line) - len(line.lstrip())


def as_list(lines):
    """The entries of a list, if the texts of all begin in one column; else nothing."""
    first = TERM.match(lines[0])
    if not first:
        return []
    column, entries = first.start(4), []
    for line in lines:
        match, error = TERM.match(line), ERROR.match(line)
        if match and match.start(4) == column:
            entries.append([match[2], match[4]])
        elif indent_of(line) == column and entries:
            entries[-1][1] += " " + line.strip()
        elif error:
            entries.append([error[1], error[2]])
        elif entries and 0 < indent_of(line) == indent_of(lines[-1]) and entries[-1][0].startswith("-E"):
            entries[-1][1] += " " + line.strip()
        else:
            return []
    return [tuple(entry) for entry in entries]


def as_bullets(lines):
    if not lines[0].lstrip().startswith("- "):
        return []
    entries = []
    for line in lines:
        if line.lstrip().startswith("- "):
            entries.append(("", line.lstrip()[2:]))
        else:
            entries[-1] = ("", entries[-1][1] + " " + line.strip())
    return entries


def chunks(lines):
    """Lines of one kind that follow one another: of text, or indented."""
    chunk = []
    for line in lines:
        if chunk and (not line or line.startswith("  ") != chunk[0].startswith("  ")):
            yield chunk
            chunk = []
        if line:
            chunk.append(line)
    if chunk:
        yield chunk


def blocks(lines):
    ret = []
    for chunk in chunks(lines):
        if not chunk[0].startswith("  "):
            ret.append(Block("paragraph", " ".join(chunk)))
        elif as_bullets(chunk):
            ret.append(Block("bullets", entries=as_bullets(chunk)))
        elif len(as_list(chunk)) > 1:
            ret.append(Block("list", entries=as_list(chunk)))
        else:
            least = min(indent_of(line) for line in chunk)
            ret.append(Block("code", lines=[line[least:] for line in chunk]))
    return ret


def depth_split(text, separator):
    """Splits where a pattern matches outside of parentheses and backquotes: the parts, each with where it
    begins."""
    ret, begin, depth, quoted = [], 0, 0, False
    at = 0
    while at < len(text):
        match = separator.match(text, at) if depth == 0 and not quoted else None
        if match:
            ret.append((begin, text[begin:match.start()]))
            begin = at = match.end()
            continue
        quoted ^= text[at] == "`"
        depth += (text[at] == "(") - (text[at] == ")" and depth > 0)
        at += 1
    return [*ret, (begin, text[begin:])]


def sentences(text):
    """The sentences of a text. Parentheses and backquotes are inside of one."""
    marked = re.sub(r"(?<=[^.][.!?]) +(?=[A-Z`*\d-])", "\0", text)
    return [part.strip() for _, part in depth_split(marked, re.compile("\0")) if part.strip()]


def parts(text):
    """What a sentence enumerates, each with where it begins."""
    return depth_split(text, re.compile(r"[;,]\s+(?:or\s+(?=-E))?|\s+or\s+(?=-E)"))


def escape(text):
    return text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")


def bold(text):
    return r"\fB" + escape(text) + r"\fR"


class Text:
    """Writes prose: names of calls and headers refer to their pages."""

    def __init__(self, calls, headers):
        self.calls, self.headers = calls, headers

    def plain(self, text):
        """Without fonts, for the line of names."""
        return escape(text.replace("\0", " ").replace("`", ""))

    def token(self, match, parameters):
        quoted, header, name, arguments, error, constant, other, space = match.groups()
        if quoted:
            return (r"\fI" + escape(quoted) + r"\fR" if quoted.lstrip("*") in parameters else bold(quoted))
        if header:
            return bold("weir-" + header[:-2]) + "(7)" if header in self.headers else escape(match.group(0))
        if name:
            return bold(name) + ("(3)" if name in self.calls and arguments != "" else "")
        if error or constant:
            return bold(error or constant)
        return " " if space else escape(other) if other == "\\" else other

    def inline(self, text, parameters=()):
        ret = "".join(self.token(match, parameters) for match in TOKEN.finditer(text.replace("\0", " ")))
        ret = re.sub(r"(?<![A-Za-z\\])-|(?<!\\)-(?![A-Za-z])", r"\\-", ret)
        return ret


class Page:
    """A page in the making."""

    def __init__(self, text, parameters):
        self.text, self.parameters = text, parameters
        self.lines = []

    def request(self, line):
        self.lines.append(line)

    def line(self, text):
        self.lines.append(text)

    def section(self, title):
        self.lines.append(f'.SH "{title}"')

    def subsection(self, title):
        self.lines.append(f'.SS "{title}"')

    def prose(self, text):
        for sentence in sentences(text):
            line = self.text.inline(sentence, self.parameters)
            self.lines.append(r"\&" + line if line[0] in ".'" else line)

    def paragraph(self, text):
        self.lines.append(".PP")
        self.prose(text)

    def paragraph_of(self, marked):
        self.lines += [".PP", marked]

    def term(self, marked):
        self.lines += [".TP", marked]

    def inside_text(self, text):
        self.prose(text or r"\&")

    def inside(self, lines):
        """A comment as the text of a term."""
        content = blocks(lines)
        if not content:
            self.lines.append(r"\&")
        for at, block in enumerate(content):
            if block.kind == "paragraph" and at == 0:
                self.prose(block.text)
            elif block.kind == "paragraph":
                self.lines.append(".IP")
                self.prose(block.text)
            else:
                self.lines.append(".RS")
                self.blocks([block])
                self.lines.append(".RE")

    def outdent(self):
        self.lines.append(".PP")

    def code(self, lines, bold=False):
        self.lines += [".PP", ".nf"]
        if not bold:
            self.lines.append(".RS 2")
        for line in lines:
            text = escape(line.rstrip()) or r"\&"
            self.lines.append(r"\fB" + text + r"\fR" if bold and line else r"\&" + text if text[0] in "." else text)
        if not bold:
            self.lines.append(".RE")
        self.lines.append(".fi")

    def comment(self, lines):
        self.blocks(blocks(lines))

    def blocks(self, content):
        for block in content:
            if block.kind == "paragraph":
                self.paragraph(block.text)
            elif block.kind == "code":
                self.code(block.lines)
            else:
                for term, text in block.entries:
                    if block.kind == "list":
                        self.term(self.text.inline(term, self.parameters))
                    else:
                        self.lines.append(r".IP \(bu 2")
                    self.prose(text)

    def source(self):
        lines = self.lines
        kept = [line for at, line in enumerate(lines)  # no empty paragraphs
                if not (line == ".PP" and (at + 1 == len(lines) or
                                           lines[at + 1].startswith((".PP", ".SH", ".SS", ".TP", ".IP"))))]
        return "\n".join(['.\\" Made of the headers by man/pages.py.', *kept]) + "\n"
