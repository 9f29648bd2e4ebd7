"""What a README states: software with its versions, and hardware, each with the sentence that says so."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from analysis.scan.requirements.listed import Stated, installed
from analysis.scan.requirements.prose import LONGEST_LINE, Sentence, sentences
from analysis.scan.results import Part

QUOTE = 300  # characters of a sentence that are kept

# ---- software --------------------------------------------------------------------------------------------

SPELLINGS = {
    "pytorch": "torch",
    "sklearn": "scikit-learn",
    "cv2": "opencv",
    "opencv-python": "opencv",
    "pil": "pillow",
    "pytorch lightning": "lightning",
    "pytorch-lightning": "lightning",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tf": "tensorflow",
}
_DATA = tomllib.loads((Path(__file__).parent / "data" / "documents.toml").read_text(encoding="utf-8"))
_KNOWN = re.sub(r"\s*\n\s*", "", _DATA["software"]["known"])
_VERSIONED = re.compile(
    rf"(?<![\w/.-])({_KNOWN})[`*_\]]*\s*:?\s*(?:\(?\s*(?:versions?|ver\.?)\s*:?\s*)?\(?\s*"
    r"([=<>~!≥≤]{1,2}|v)?\s*(\d+(?:\.\d+)*(?:\.[x*](?!\*))?)"
    r"(\+|\s*(?:or|and)\s+(?:newer|higher|above|later|up))?"
    r"((?:\s*(?:,|/|\||-|–|&|or\b|and\b|to\b|~)\s*v?\d+(?:\.[\dx*]+)+)+)?(?![\w%-]*[A-Za-z%]{2})",
    re.IGNORECASE,
)
_ITEM = re.compile(rf"^\s*(?:[-*+•]|\d+[.)])\s+[`*_\[]*({_KNOWN})\b", re.IGNORECASE)
# Asking for something in words, or being the section of it: what is named there needs no version.
_ASKS = re.compile(
    r"\b(?:(?<!not )requires?|depends?\s+on|dependenc(?:y|ies)|prerequisites?|"
    r"(?:is|are)\s+(?:required|needed)|(?:need|have|has)\s+to\s+(?:be\s+)?install(?:ed)?|"
    r"(?:need|must\s+have|please\s+install|install\s+the\s+following|(?:first|then),?\s+install))\b",
    re.IGNORECASE,
)
_NEEDED = re.compile(r"\b(?:requirements?|dependenc(?:y|ies)|prerequisites?|required)\b", re.IGNORECASE)
_NAMED = re.compile(rf"(?<![\w/.-])({_KNOWN})(?![\w/-]|\.\w)", re.IGNORECASE)
_ALONE = re.compile(  # a line of a code block that is no code: `Python 3.6`, `torch==1.0`
    rf"^\s*(?:[-*•]\s*)?(?:{_KNOWN})\s*(?:[:(=<>~≥]|version|v)*\s*\d[\w.*+ /,()-]*$", re.IGNORECASE
)
_BADGE = re.compile(r"shields\.io/badge/([^?)\s\"'>\]]{1,200})")
_SECTION = re.compile(
    r"require|dependenc|prerequisit|install|set-?up|environment|getting started|packages", re.IGNORECASE
)


def software(text: str) -> Iterator[Stated]:
    """Versions of known packages, also in tables and badges; names in a section of requirements or in a
    sentence that asks for them; and install commands."""
    yield from _badges(text)
    command, first, columns = "", 0, ""
    for sentence in sentences(text):
        if sentence.code:
            first = first if command else sentence.line
            command += "\n" * (sentence.line - first - command.count("\n"))
            command += " " + sentence.text.removesuffix("\\")
            if sentence.text.endswith("\\") and len(command) < LONGEST_LINE:
                continue
            yield from installed(command.strip(), first)
            command = ""
            if _SECTION.search(sentence.heading) and (alone := _ALONE.match(sentence.text)):
                yield from _versions(alone[0], sentence.line)
            continue
        if command:  # a backslash, and nothing after it
            yield from installed(command, first)
            command = ""
        yield from installed(sentence.text, sentence.line)
        row = sentence.text.startswith("|")
        columns = (columns or sentence.text) if row else ""
        said = sentence.text
        if row and (
            _SECTION.search(sentence.heading) or re.search("version|require", columns, re.IGNORECASE)
        ):
            said = re.sub(r"[|\s]+", " ", said)
        versions = list(_versions(said, sentence.line))
        yield from versions
        if versions or sentence.text == sentence.heading:
            continue
        if _SECTION.search(sentence.heading) and (item := _ITEM.match(sentence.text)):
            yield Stated(_spelling(item[1]), "", False, sentence.line)
        elif _ASKS.search(sentence.text) or _NEEDED.search(sentence.heading):
            for name in _NAMED.finditer(sentence.text):
                yield Stated(_spelling(name[1]), "", False, sentence.line)
    yield from installed(command, first)


def _versions(text: str, line: int) -> Iterator[Stated]:
    text = re.sub(r"\s+", " ", text)  # the pattern has optional blanks side by side
    for match in _VERSIONED.finditer(text):
        sign, version, more, others = match[2] or "", match[3], match[4], match[5] or ""
        if f"{sign}{version}" == "<3" and match[0].endswith("<3") and not text[match.end() :].strip():
            continue  # a heart
        open_ended = bool(more or others) or sign in (">", "<", ">=", "<=", "≥", "≤", "~=", "!=", "~")
        exact = not open_ended and version.count(".") >= 1 and not re.search(r"[x*]", version)
        specifier = f"{sign}{version}{'+' if more else ''}{others}" if open_ended else f"=={version}"
        yield Stated(_spelling(match[1]), specifier, exact, line)


def _badges(text: str) -> Iterator[Stated]:
    """`https://img.shields.io/badge/python-3.8+-blue`: label, message and colour, as shields.io has them."""
    line, at = 1, 0
    for match in _BADGE.finditer(text):
        label, _, message = unquote(match[1]).replace("--", "\0").replace("_", " ").partition("-")
        message = message.rpartition("-")[0].replace("\0", "-")
        if re.match(r"\s*[=<>~≥v]*\s*\d", message):
            line, at = line + text.count("\n", at, match.start()), match.start()
            yield from _versions(f"{label} {message}", line)


def _spelling(name: str) -> str:
    name = re.sub(r"\s+", " ", name.lower()).removesuffix(" toolkit")
    return SPELLINGS.get(name, name)


_LISTED_NEEDS = re.compile(r"require|prerequisite|dependenc|hardware", re.IGNORECASE)

# ---- hardware --------------------------------------------------------------------------------------------


_CONDITION = re.compile(r"\b(?:if|unless|in\s+case|whether)\b[^.]{0,60}\bGPUs?\b", re.IGNORECASE)
_COMMAND = re.compile(r"^\W*(?:python|pip|conda|sudo|export|import|git|docker|srun|#)|--\w", re.IGNORECASE)
_ITEM_GPU = re.compile(
    r"^(?:[-*+•|]|\d+[.)])\s*[^.]{0,40}?\b(?<!for )GPUs?\b(?!\s+(?:version|support))", re.IGNORECASE
)


class HardwareStated(NamedTuple):
    part: Part
    words: str
    quote: str
    line: int


PATTERNS: tuple[tuple[Part, re.Pattern[str]], ...] = tuple(
    (Part(entry["part"]), re.compile(entry["pattern"], re.IGNORECASE | re.VERBOSE))
    for entry in _DATA["hardware"]
)
_ABSENT = re.compile(
    r"\b(?:no|without(?: an?)?|(?:do(?:es)?\s?n[o']t|not) (?:require|need)(?:\s+an?)?|don'?t need(?:\s+an?)?)"
    r"\s+(?:\w+\s+)?GPUs?\b",
    re.IGNORECASE,
)


def hardware(text: str) -> Iterator[HardwareStated]:
    """What a document states of GPUs, CPUs, memory, and numbers of cores or threads: once a part and
    sentence. A model, a size, a count, or a sentence that asks for a GPU; code is not read, and "no GPU
    needed" is none."""
    for sentence in sentences(text):
        if not sentence.code or (_NEEDED.search(sentence.heading) and not _COMMAND.search(sentence.text)):
            yield from _of_sentence(sentence)


def _of_sentence(sentence: Sentence) -> Iterator[HardwareStated]:
    seen = set()
    for part, pattern in PATTERNS:
        match = pattern.search(sentence.text)
        if not match or part in seen:
            continue
        conditional = _CONDITION.search(sentence.text) and not re.search(r"\d", match[0])
        if part is not Part.GPU or not (conditional or _ABSENT.search(sentence.text)):
            seen.add(part)
            yield HardwareStated(part, match[0].strip(), sentence.text[:QUOTE], sentence.line)
    listed = _LISTED_NEEDS.search(sentence.heading) and not _ABSENT.search(sentence.text)
    if listed and Part.GPU not in seen and (match := _ITEM_GPU.match(sentence.text)):
        yield HardwareStated(Part.GPU, match[0].strip(), sentence.text[:QUOTE], sentence.line)
