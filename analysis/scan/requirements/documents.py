"""What a README states: software with its versions, and hardware, each with the sentence that says so."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from analysis.scan.requirements.listed import Stated, installed
from analysis.scan.requirements.prose import Sentence, sentences
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
    rf"(?<![\w/.-])({_KNOWN})[`*_\]]*\s*(?:\(?\s*(?:version|ver\.?)\s*)?\(?\s*([=<>~!≥≤]{{1,2}}|v)?\s*"
    r"(\d+(?:\.[\dx*]+)*)(\+|\s*(?:or|and)\s+(?:newer|higher|above|later|up))?(?![\w%-]*[A-Za-z%]{2})",
    re.IGNORECASE,
)
_ITEM = re.compile(rf"^\s*(?:[-*+•]|\d+[.)])\s+[`*_\[]*({_KNOWN})\b", re.IGNORECASE)
_SECTION = re.compile(
    r"require|dependenc|prerequisit|install|set-?up|environment|getting started|packages", re.IGNORECASE
)


def software(text: str) -> Iterator[Stated]:
    """Versions of known packages, list items in a section of requirements, and install commands."""
    for sentence in sentences(text):
        yield from installed(sentence.text, sentence.line)
        if sentence.code:
            continue
        found = False
        for match in _VERSIONED.finditer(sentence.text):
            found = True
            sign, version, more = match[2] or "", match[3], match[4]
            open_ended = bool(more) or sign in (">", "<", ">=", "<=", "≥", "≤", "~=", "!=", "~")
            exact = not open_ended and version.count(".") >= 1 and not re.search(r"[x*]", version)
            specifier = f"{sign}{version}{'+' if more else ''}" if open_ended else f"=={version}"
            yield Stated(_spelling(match[1]), specifier, exact, sentence.line)
        if not found and _SECTION.search(sentence.heading) and (item := _ITEM.match(sentence.text)):
            yield Stated(_spelling(item[1]), "", False, sentence.line)


def _spelling(name: str) -> str:
    name = re.sub(r"\s+", " ", name.lower()).removesuffix(" toolkit")
    return SPELLINGS.get(name, name)


# ---- hardware --------------------------------------------------------------------------------------------


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
        if not sentence.code:
            yield from _of_sentence(sentence)


def _of_sentence(sentence: Sentence) -> Iterator[HardwareStated]:
    seen = set()
    for part, pattern in PATTERNS:
        match = pattern.search(sentence.text)
        if match and part not in seen and not (part is Part.GPU and _ABSENT.search(sentence.text)):
            seen.add(part)
            yield HardwareStated(part, match[0].strip(), sentence.text[:QUOTE], sentence.line)
