"""Prose in pieces: the sentences of a document, each with the line it begins in, without its code."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_LINE = 2000  # characters; what is longer is data, no prose and no requirement
_FENCE = re.compile(r"^\s*(?:(?:[-*+>]|\d+[.)])\s+)?(`{3,}|~{3,})(.*)$")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*)$|^\*\*([^*]+)\*\*:?\s*$")
_UNDERLINE = re.compile(r"^\s*(?:={3,}|-{3,}|~{3,})\s*$")
_STARTS_ANEW = re.compile(r"^\s*(?:[-*+•]\s|\d+[.)]\s|\||>|#)")
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[*_])")
_DECORATION = re.compile(r"!\[[^\[\]]*\]\([^)]*\)|</?[A-Za-z!][^<>]{0,500}>")
_LINK = re.compile(r"\[([^\[\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Sentence:
    """`heading` is that of its section. `code`: a line of a code block."""

    text: str
    line: int
    heading: str
    code: bool = False


def sentences(text: str) -> Iterator[Sentence]:
    heading, fence, listed = "", "", False
    paragraph: list[tuple[int, str]] = []
    lines = text.splitlines()
    for number, raw in enumerate(lines, start=1):
        line = raw[:LONGEST_LINE]
        mark = _FENCE.match(line)
        if mark and fence:
            if mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
                continue
        elif mark and mark[1][0] not in mark[2]:
            yield from _split(paragraph, heading)
            paragraph, fence = [], mark[1]
            continue
        elif mark:  # opened and closed on one line
            yield from _split(paragraph, heading)
            paragraph = []
            yield Sentence(mark[2].strip("`~ "), number, heading, code=True)
            continue
        listed = bool(_ITEM.match(line)) or (listed and (not line.strip() or line[0] in " \t"))
        indented = line.startswith(("    ", "\t")) and not listed
        if fence or (indented and not paragraph and not _STARTS_ANEW.match(line)):
            if line.strip():
                yield Sentence(line.strip(), number, heading, code=True)
            continue
        if _UNDERLINE.match(line) and len(paragraph) == 1:
            heading, paragraph = paragraph[0][1].strip(), []
            continue
        title = _HEADING.match(line)
        if title or not line.strip() or _STARTS_ANEW.match(line):
            yield from _split(paragraph, heading)
            paragraph = []
        if title:
            heading = (title[2] or title[1].rstrip().rstrip("#")).strip()
            yield Sentence(heading, number, heading)
        elif line.strip():
            paragraph.append((number, line))
    yield from _split(paragraph, heading)


def _split(paragraph: list[tuple[int, str]], heading: str) -> Iterator[Sentence]:
    if not paragraph:
        return
    joined, starts = "", []
    for _, line in paragraph:
        starts.append(len(joined))
        joined += _LINK.sub(r"\1", _DECORATION.sub(" ", line)).strip() + " "
    begin = 0
    for end in [*(m.end() for m in _END.finditer(joined)), len(joined)]:
        part = joined[begin:end].strip()
        if part:
            yield Sentence(part, paragraph[bisect.bisect_right(starts, begin) - 1][0], heading)
        begin = end
