"""Software requirements from lists: requirements files, conda environments and their locks, Dockerfiles.

They are read line by line, not by a YAML parser: half of what is published has templates or mistakes in it,
and the line is part of the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from analysis.scan.requirements.prose import LONGEST_LINE


class Stated(NamedTuple):
    """A requirement before it has its file: the line counts from 1."""

    name: str
    specifier: str
    pinned: bool
    line: int


_OPTION = re.compile(r"^-{1,2}\w")
_URL = re.compile(r"^(?:git|hg|svn|bzr)\+|^(?:https?|file)://", re.IGNORECASE)
_ONE_VERSION = re.compile(r"(?:@(?:[0-9a-f]{7,40}|v?\d+(?:\.\d+)+)|\.whl)(?:#|$)")  # a commit, tag or wheel
_WHEEL = re.compile(r"^([A-Za-z][\w.]*)-\d[^-]*-.+\.whl$")
_EGG = re.compile(r"#egg=([\w.-]+)")
_NAME = re.compile(r"^([A-Za-z][\w.-]*)")
_LOOSE = re.compile(r"^([A-Za-z][\w.-]*)(?:\[[\w,\s-]*\])?\s*((?:[=<>!~]=?=?)\s*v?\d[\w.*+!-]*)?")
_AFTER = re.compile(
    r"\s*(?:$|[;,#(]|--|-\w\s|\d)"
)  # what may follow a requirement; "required packages:" is a sentence
_BUILT = re.compile(r"^[\w.-]+=[\w.!+-]+=\w+$")  # as `conda list --export` writes it
_CONDA = re.compile(r"^(?:[\w./-]+::)?([A-Za-z_][\w.-]*)\s*(?:([=<>!~]=?[^=\s]+)(?:=(\S+))?|\s+(\S.*))?$")
_EXPLICIT = re.compile(r"^https?://\S+/([A-Za-z_][\w.-]*?)-(\d[^-/]*)-[^-/]+\.(?:conda|tar\.bz2)")


def requirement(text: str, line: int) -> Stated | None:
    """One requirement in the form of PEP 508, or nearly so; None for what names nothing."""
    text = text.split(" --hash", 1)[0].strip().rstrip("\\").strip()
    if not text:
        return None
    if _URL.match(text):
        name = _EGG.search(text)
        last = re.split(r"[/@#]", text.split("#")[0].split("://", 1)[-1].rsplit("@", 1)[0])[-1]
        if wheel := _WHEEL.match(last):
            return Stated(canonicalize_name(wheel[1]), text, True, line)
        found = name[1] if name else re.sub(r"(?:\.git|\.whl|\.zip|\.tar\.gz)$", "", last)
        if not _NAME.match(found):
            return None
        return Stated(canonicalize_name(found), text, bool(_ONE_VERSION.search(text)), line)
    try:
        parsed = Parsed(text)
    except InvalidRequirement:
        loose = _LOOSE.match(text)
        if not loose or not _AFTER.match(text, loose.end()):
            return None
        specifier = (loose[2] or "").replace(" ", "")
        return Stated(canonicalize_name(loose[1]), specifier, specifier.startswith("=="), line)
    if parsed.url:
        return Stated(canonicalize_name(parsed.name), parsed.url, bool(_ONE_VERSION.search(parsed.url)), line)
    return Stated(
        canonicalize_name(parsed.name), str(parsed.specifier), is_exact(str(parsed.specifier)), line
    )


def is_exact(specifier: str) -> bool:
    """Whether a specifier admits one version: `==1.2`, not `==1.*`."""
    return any(p.strip().startswith("==") and not p.strip().endswith("*") for p in specifier.split(","))


def requirements_txt(text: str) -> Iterator[Stated]:
    continued = ""
    first = 0
    for number, raw in (*_lines(text), (0, "")):  # an empty line ends what a backslash continues
        line = re.sub(r"(?:^|\s)#.*$", "", raw).strip()
        if not continued:
            first = number
        if line.endswith("\\"):
            continued += line[:-1] + " "
            continue
        line, continued = (continued + line).strip(), ""
        if line.startswith(("-e ", "--editable")):
            line = re.sub(r"^(?:-e|--editable)[ =]", "", line).strip()
            if line.startswith("."):
                continue
        if line and not _OPTION.match(line):
            found = conda(line, first) if _BUILT.match(line) else requirement(line, first)
            if found:
                yield found


def environment_yml(text: str) -> Iterator[Stated]:
    """The `dependencies:` of a conda environment, those for pip included."""
    inside, pip = False, -1  # the column of the item `pip:`
    for number, raw in _lines(text):
        line = re.sub(r"(?:^|\s)#.*$", "", raw).rstrip()
        if re.match(r"^[^\s-].*:", line):
            inside, pip = line.startswith("dependencies"), -1
            inline = re.match(r"^dependencies:\s*\[(.*)\]$", line)
            for entry in inline[1].split(",") if inline else ():
                if found := conda(entry.strip().strip("\"'"), number):
                    yield found
            continue
        item = re.match(r"^(\s*)-\s*(.+)$", line)
        if not inside or not item:
            continue
        entry = item[2].strip().strip("\"'")
        if re.match(r"pip\s*:", entry):
            pip = len(item[1])
        elif 0 <= pip < len(item[1]):
            if not entry.startswith("-") and (found := requirement(entry, number)):
                yield found
        elif found := conda(entry, number):
            pip = -1
            yield found


def conda(entry: str, line: int) -> Stated | None:
    """`name=1.2`, `name==1.2=build`, `name >=1.2`. One `=` admits a family of versions, so only a full
    version or a build pins: `name=1.2.3`, `name==1.2`, `name=1.2=build`."""
    match = _CONDA.match(re.sub(r"\[version=['\"]?([^'\"\]]*)['\"]?\]", r" \1", entry))
    if not match:
        return None
    name, specifier, build, spaced = match.groups()
    specifier = specifier or (spaced or "").strip()
    exact = bool(build) or (specifier.startswith("==") and "*" not in specifier)
    if specifier.startswith("=") and not specifier.startswith("=="):
        exact = exact or (specifier.count(".") >= 2 and "*" not in specifier)
    return Stated(canonicalize_name(name), specifier + (f"={build}" if build else ""), exact, line)


def conda_lock(text: str) -> Iterator[Stated]:
    """An explicit list (`@EXPLICIT`), or conda-lock's YAML: `- name: x` with `version: y` below it."""
    name, at = "", 0
    for number, line in _lines(text):
        if explicit := _EXPLICIT.match(line.strip()):
            yield Stated(canonicalize_name(explicit[1]), f"=={explicit[2]}", True, number)
        elif found := re.match(r"^\s*-?\s*name:\s*['\"]?([\w.-]+)", line):
            name, at = found[1], number
        elif (found := re.match(r"^\s*-?\s*version:\s*['\"]?([\w.!+-]+)", line)) and name:
            yield Stated(canonicalize_name(name), f"=={found[1]}", True, at)
            name = ""


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that can hold a requirement, with their numbers."""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) <= LONGEST_LINE:
            yield number, line


_INSTALL = re.compile(
    r"\b(?:(pip(?:3(?:\.\d+)?)?|conda|mamba|micromamba|pipenv|apt|apt-get|brew)\s+(?:-y\s+)?(?:install|create)"
    r"|(uv|poetry|pdm)\s+add)\s+(.*)",
    re.IGNORECASE | re.DOTALL,
)
_APT = re.compile(r"^([A-Za-z][\w.-]*)(=\S+)?$")
_WORD = re.compile(  # of a sentence around a command
    r"a|all|also|an|and|any|are|as|at|by|command|commands|dependencies|following|for|from|have|if|in|into|is|it|library|libraries|necessary|need|"
    r"needed|needs|of|on|or|our|package|packages|prerequisites|required|requirements|run|should|some|the|their|them|then|these|this|to|tool|tools|use|using|via|we|which|will|with|within|you|your",
    re.IGNORECASE,
)
_TAKES_VALUE = re.compile(
    r"-[rcfitnp]|--(?:requirement|constraint|find-links|index-url|extra-index-url|index-strategy|channel|name|prefix"
    r"|target)"
)


def installed(command: str, line: int) -> Iterator[Stated]:
    """What `pip install` or `conda install` in a command, perhaps of several lines, names."""
    for part in re.split(r"&&|\|\||[;|`]|[^\S\n]#", command[: 10 * LONGEST_LINE]):
        if match := _INSTALL.search(part):
            tool = (match[1] or match[2]).lower()
            yield from _named(tool, match[3], line + part.count("\n", 0, match.start(3)))
        line += part.count("\n")


def _apt(word: str, line: int) -> Stated | None:
    """`name`, `name=1.2-3`, which is one version."""
    match = _APT.match(word)
    return match and Stated(canonicalize_name(match[1]), match[2] or "", "*" not in (match[2] or "*"), line)


def _named(tool: str, rest: str, first: int) -> Iterator[Stated]:
    read = (
        conda if tool in ("conda", "mamba", "micromamba") else _apt if tool.startswith("apt") else requirement
    )
    words = re.finditer(r"\S+", rest)
    for raw in words:
        line = first + rest.count("\n", 0, raw.start())
        word = raw[0].rstrip(".,:)").strip("\"'`,")
        if _WORD.fullmatch(word):
            return
        if _TAKES_VALUE.fullmatch(word):
            next(words, None)
        elif (
            word
            and not word.startswith(("-", ".", "/", "$", "<", "{"))
            and not re.search(r"\.(?:txt|whl|ya?ml)$", word)
            and (found := read(word, line))
        ):
            yield found


def dockerfile(text: str) -> Iterator[Stated]:
    """The base image, and what is installed by pip and conda."""
    joined, first = "", 0
    values: dict[str, str] = {}
    stages: set[str] = set()
    for number, raw in _lines(text):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if not joined:
            first = number
        joined += "\n" * (number - first - joined.count("\n")) + " " + line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        command, joined = joined.strip(), ""
        if argument := re.match(r"ARG\s+(\w+)=[\"']?([^\s\"']*)", command, re.IGNORECASE):
            values[argument[1]] = argument[2]
        image = re.match(r"FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", command, re.IGNORECASE)
        if image:
            source = re.sub(
                r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))",
                lambda m: values.get(m[1] or m[3]) or m[2] or m[0],
                image[1],
            )
            known = source.lower() in {"scratch", *stages}
            if image[2]:
                stages.add(image[2].lower())
            if known or "$" in source:
                continue
            name, at, digest = source.partition("@")
            repository, _, tag = name.partition(":") if "/" not in name.rpartition(":")[2] else (name, "", "")
            yield Stated(
                repository.lower(), at + digest or tag, bool(digest) or bool(re.search(r"\d", tag)), first
            )
        elif command.upper().startswith("RUN"):
            if command.endswith("]"):  # the words as a list
                command = re.sub(r"[\[\]\",]+", " ", command)
            yield from installed(command, first)
