"""One project: its files read, each by its kind, and what was found put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from analysis.scan.files import Tree, beside, fits, read
from analysis.scan.lint.facts import FileFacts
from analysis.scan.lint.lint import lint_file
from analysis.scan.lint.programs.judge import lint_project
from analysis.scan.lint.syntax.options import Options
from analysis.scan.lint.vocabulary import ELSEWHERE
from analysis.scan.requirements import documents, listed, manifests
from analysis.scan.requirements.listed import Stated
from analysis.scan.results import HardwareStatement, Note, Place, Project, Requirement
from analysis.scan.source import decode

Parser = Callable[[str], Iterable[Stated]]
SOURCES: tuple[tuple[str, re.Pattern[str], Parser], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE), parser)
    for name, pattern, parser in (
        ("requirements.txt", r"(?:^|/)(?:[\w.-]*requirements?[\w.-]*\.(?:txt|in)|requirements/[\w.-]+\.txt)$",
         listed.requirements_txt),
        ("pyproject.toml", r"(?:^|/)pyproject\.toml$", manifests.pyproject),
        ("lock", r"(?:^|/)(?:poetry|uv|pdm)\.lock$", manifests.toml_lock),
        ("lock", r"(?:^|/)Pipfile\.lock$", manifests.pipfile_lock),
        ("lock", r"(?:^|/)(?:conda-lock\.yml|[\w.-]*conda[\w.-]*\.lock|[\w.-]*(?:explicit|spec-file)\.txt)$",
         listed.conda_lock),
        ("Pipfile", r"(?:^|/)Pipfile$", manifests.pipfile),
        ("setup.py", r"(?:^|/)setup\.py$", manifests.setup_py),
        ("setup.cfg", r"(?:^|/)setup\.cfg$", manifests.setup_cfg),
        ("environment.yml", r"(?:^|/)[\w.-]*(?:conda|env)[\w.-]*\.ya?ml$", listed.environment_yml),
        ("Dockerfile", r"(?:^|/)(?:Dockerfile[\w.-]*|[\w.-]+\.dockerfile|Containerfile)$", listed.dockerfile),
        ("README", r"(?:^|/)README[\w.-]*$|^(?:docs?/)?(?:INSTALL|REQUIREMENTS|USAGE|SETUP)[\w.-]*$",
         documents.software),
    )
)  # fmt: skip
PROSE = re.compile(
    r"(?:^|/)README[\w.-]*$|^(?:docs?/)?[\w.-]+\.(?:md|rst)$|^(?:INSTALL|REQUIREMENTS)[\w.-]*$", re.IGNORECASE
)
NOT_PROSE = re.compile(
    r"\.(?:py|ipynb|png|jpe?g|gif|svg|pdf|html?)$|requirements[\w.-]*\.(?:txt|in)$|CHANGE|LICEN[CS]E",
    re.IGNORECASE,
)
CONFIGURATION = re.compile(
    r"^(?!\.|.*/\.)(?!(?:.*/)?(?:docker-compose|mkdocs|package|tsconfig|tokenizer|dvc)[\w.-]*$).*\.(?:ya?ml|json)$"
)
MANY_FILES = 500
LARGE = 200_000
"""In bytes: a larger file has data."""
OPTION = re.compile(r"""\b(\w{4,})["']?[ \t]*:[ \t]*([^\s,}\]\#]*)""")
TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
COMMANDS = ("pyproject.toml", "setup.cfg", "setup.py")
FRAMEWORKS = {name: name for name in ("torch", "tensorflow", "albumentations", "transformers", "timm")} | {
    "tensorflow-cpu": "tensorflow", "tensorflow-gpu": "tensorflow"
}  # fmt: skip
COMPILED = frozenset(("c", "cc", "cpp", "cu", "pyx", "pxd", "pyc", "pyd", "pyi", "so", "proto", "ui"))
PART = re.compile(r"[A-Za-z_]\w*(?=/?\s*$|/|\.py\b)", re.MULTILINE)
"""A part of a path at the end of a line or before a slash."""
NEWEST = re.compile(r"(?<![<>!~=])(===?|=|<=?|~=(?=\d+\.\d+\.))\s*(\d+)\.(\d+)")
"""The newest version that a specifier allows, if it says one."""


def stated(tree: Tree) -> tuple[list[Requirement], list[HardwareStatement], list[Note]]:
    """The requirements that a project states, by file and line."""
    software: list[Requirement] = []
    hardware: list[HardwareStatement] = []
    notes: list[Note] = []
    for path in sorted([*tree.others, *(p for p in tree.python if p.endswith("setup.py"))]):
        kind = next(((name, parser) for name, pattern, parser in SOURCES if pattern.search(path)), None)
        is_prose = bool(PROSE.search(path)) and not NOT_PROSE.search(path)
        if (kind is None or (NOT_PROSE.search(path) and kind[0] == "README")) and not is_prose:
            continue
        data = read(tree.root, path)
        if isinstance(data, Note):
            notes.append(data)
            continue
        text = decode(data)
        if "\0" in text:
            notes.append(Note(path=path, text="contains null bytes: not a text; left out"))
            continue
        if kind is not None:
            software += _parsed(path, text, *kind, notes)
        if is_prose:
            hardware += [
                HardwareStatement(part=part, words=words, quote=quote, place=Place(path=path, line=line))
                for part, words, quote, line in documents.hardware(text)
            ]
    return software, hardware, notes


def _parsed(path: str, text: str, source: str, parser: Parser, notes: list[Note]) -> Iterator[Requirement]:
    try:
        for name, specifier, pinned, line in parser(text):
            place = Place(path=path, line=line)
            yield Requirement(name=name, specifier=specifier, pinned=pinned, source=source, place=place)
    except manifests.ManifestError as error:
        notes.append(Note(path=path, text=f"{error}; its requirements are not known"))


def options(tree: Tree) -> dict[str, bool]:
    """The options that have one value, true or false, in all configuration files of a project."""
    said: dict[str, set[bool | None]] = {}
    paths = [path for path in tree.others if CONFIGURATION.search(path)]
    for path in paths if len(paths) <= MANY_FILES else ():
        data = read(tree.root, path)
        if not isinstance(data, Note) and len(data) < LARGE:
            for name, value in OPTION.findall(decode(data)):
                said.setdefault(name, set()).add(TRUTH.get(value.lower()))
    return {
        name: value
        for name, values in said.items()
        if len(values) == 1
        for value in values
        if value is not None
    }


def lint_some(root: Path, paths: Iterable[str], known: Options) -> list[FileFacts]:
    """The facts of some files of a project, whose options are known."""
    found = []
    for path in paths:
        data = read(root, path)
        if isinstance(data, Note):
            found.append(FileFacts(path=path, module="", notes=[data]))
        else:
            found.append(lint_file(path, data, known))
    return found


ENTRY = re.compile(r"""=\s*["']?([A-Za-z_][\w.]*):([A-Za-z_]\w*)["']?\s*[,\]\n"']""")
"""`train = "package.module:function"`, in any of the files that declare commands."""


def _declare_commands(tree: Tree, facts: Iterable[FileFacts]) -> None:
    """Tells files which of their functions are started as commands."""
    by_name = {file.module.removesuffix(".__init__"): file for file in facts}
    for path in (p for p in (*tree.others, *tree.python) if p.endswith(COMMANDS)):
        data = read(tree.root, path)
        if isinstance(data, Note):
            continue
        for module, function in ENTRY.findall(decode(data)):
            for name, file in by_name.items():
                if name == module or name.endswith("." + module):
                    file.commands.add(function)


def _newest(specifier: str) -> str:
    """`2.9` of `>=2.4,<2.10`, of `==2.9.1` and of `~=2.9.0`; "" where it is open."""
    stated = NEWEST.search(specifier)
    if stated is None:
        return ""
    sign, major, minor = stated[1], int(stated[2]), int(stated[3])
    if sign != "<":
        return f"{major}.{minor}"
    return f"{major}.{minor - 1}" if minor else f"{major - 1}.99"


def _newest_keras(software: Sequence[Requirement]) -> dict[tuple[str, str], str]:
    """The newest version of Keras that statements allow, of a folder and the name `keras`: what comes with a
    TensorFlow has its version. Those of Keras itself come last, those of a README first."""
    found = {}
    for r in sorted(software, key=lambda r: (r.name == "keras", r.source != "README")):
        newest = _newest(r.specifier)
        if newest and (r.name == "keras" or FRAMEWORKS.get(r.name) == "tensorflow"):
            found[r.place.path.rpartition("/")[0], "keras"] = newest
    return found


def _elsewhere(tree: Tree, software: Sequence[Requirement], facts: Iterable[FileFacts]) -> frozenset[str]:
    """The names of what a project says that it has from outside or makes itself (packages, submodules,
    ignored files, sources in other languages), and of modules that are there and were not read."""
    found = tree.unread | {r.name.replace("-", "_") for r in software}
    found |= {PurePosixPath(file.path).stem for file in facts if not file.module}
    for path in tree.others:
        stem, _, suffix = path.rpartition("/")[2].partition(".")
        if suffix in COMPILED:
            found.add(stem)
        if path.endswith((".gitmodules", ".gitignore")):
            data = read(tree.root, path)
            if not isinstance(data, Note):
                found |= set(PART.findall(decode(data)))
    return frozenset(found)


def _not_read(tree: Tree, facts: Iterable[FileFacts]) -> Iterator[Note]:
    """What a file that is scanned alone imports of its project."""
    for file in facts if tree.is_file else ():
        modules = {event.name for event in file.events() if event.kind == "import"}
        modules = {name for name in modules if name.partition(".")[0] not in ELSEWHERE}
        names = sorted({beside(tree.root, name) for name in modules} - {"", file.path})
        if names:
            said = "is imported and not read" if len(names) == 1 else "are imported and not read"
            yield Note(path=file.path, text=f"{', '.join(names)} {said}; scan the folder to follow them")


def put_together(name: str, tree: Tree, facts: list[FileFacts], rules: frozenset[str]) -> Project:
    """A project from the facts of all its files. `rules` empty: it is not linted."""
    software, hardware, unread = stated(tree)
    pinned = _newest_keras(software) | {
        (r.place.path.rpartition("/")[0], FRAMEWORKS[r.name]): r.specifier.lstrip("=")
        for r in software
        if r.pinned and r.name in FRAMEWORKS and r.source != "README"  # which tells of other versions too
    }
    for file in facts:
        file.silent = tuple(
            code
            for pattern, codes in tree.ignores.items()
            if fits(tree.within + file.path, pattern)
            for code in codes
        )
    if rules:
        _declare_commands(tree, facts)
    findings = lint_project(facts, pinned, rules, _elsewhere(tree, software, facts)) if rules else ()
    notes = [*tree.notes, *unread, *(note for file in facts for note in file.notes), *_not_read(tree, facts)]
    if not tree.python:
        notes.append(Note(path=".", text="has no Python and no notebooks; nothing to lint"))
    return Project(
        path=name,
        files=len(tree.python),
        lines=sum(file.lines for file in facts),
        software=tuple(software),
        hardware=tuple(hardware),
        findings=findings,
        notes=tuple(notes),
    )
