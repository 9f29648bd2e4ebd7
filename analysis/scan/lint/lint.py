"""From the text of a file to its facts, and to the findings that need no other file."""

from __future__ import annotations

import ast
import dataclasses
import gc
import re
from pathlib import PurePosixPath

from analysis.scan.lint.collect import Collector
from analysis.scan.lint.facts import FETCHES, MOVES, FileFacts, Spot, finding, spot
from analysis.scan.lint.models.frozen import WORD, frozen
from analysis.scan.lint.models.idle import idle_lines, remade_lines
from analysis.scan.lint.models.resumed import (
    EXISTS,
    LAST,
    REMOVES,
    handed_back,
    loads_if_there,
    restored,
    resumed,
)
from analysis.scan.lint.order.kept import kept_in_order
from analysis.scan.lint.python2 import as_python_3, without_async_names
from analysis.scan.lint.registry import registry
from analysis.scan.lint.rules import RULES
from analysis.scan.lint.syntax.choices import Function, record_choices
from analysis.scan.lint.syntax.constants import apply_constants
from analysis.scan.lint.syntax.options import Options, apply_options
from analysis.scan.lint.syntax.tree import all_of, nodes_of
from analysis.scan.lint.uses.showing import shown_lines
from analysis.scan.lint.validation.evaluation import selecting_lines
from analysis.scan.results import LintFinding, Place
from analysis.scan.source import (
    Cell,
    UnreadableError,
    as_older_python,
    comments,
    decode_python,
    notebook_cells,
    parsed,
)

_COMMENT = re.compile(r"#\s*vbstudy:([^#]*)")
_IGNORE = re.compile(r"ignore(?:\s*\[([^\]]*)\](?:\s.*)?|(?:\s+-.*)?)")  # a reason may follow
_FETCHES = re.compile(
    rb"%%(?:writefile|file|bash|sh|script|run)\b|[!%]\s*(?:run|load|store|pylab|cp|mv|ln|git|wget|curl|gdown|gsutil|unzip"
    rb"|tar|kaggle)\b|/kaggle/"
)
"""What a notebook does to have files that are not in the project, or names that it does not write out."""
_MOVES = re.compile(rb"[!%]\s*cd\b|drive\.mount|os\.chdir")
_PATHS = re.compile(rb"""sys\.path\.(?:append|insert|extend)\([^\n]*?["'](?:~|/\w|[A-Za-z]:|(?:\.\./)+\w)""")
"""Modules from outside."""
_BINDS = re.compile(rb"%(?:run|pylab|store|load|macro|R)\b|%%(?!time|bash|sh\b|writefile|html|script)")
"""What may bind names in a notebook that are not written out."""
_LOADS = re.compile(r"(?:load|restor|resum)\w*\(", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_LINE_END = re.compile(r"\r\n?|\n")
_PYTHON_2 = re.compile(
    r"^\s*print\s+(?![=(\[,.)])\S|^\s*except\s+[\w.()]+(?:\s*,\s*\w+)+\s*:|^\s*raise\s+\w+\s*,|^\s*exec\s+[\"'\w]"
    r"|\b0[0-7]+[lL]?\b(?<!\b0)|<>|\bur[\"']",
    re.MULTILINE,
)


def lint_file(path: str, data: bytes, options: Options | None = None) -> FileFacts:
    """The facts of a Python file or notebook, from its bytes; `options` are those of which all configuration
    files of its project say the same. Never raises for what is in them."""
    facts = FileFacts(path=path, module=module_name(path))
    if _PATHS.search(data):
        facts.flags.add(FETCHES)
    try:
        if path.endswith(".ipynb"):
            facts.is_notebook = facts.is_main = True
            if _FETCHES.search(data):
                facts.flags.add(FETCHES)
            if _MOVES.search(data):
                facts.flags.add(MOVES)
            cells = notebook_cells(data)
        else:
            text, remark = decode_python(data)
            if remark:
                facts.note(remark)
            cells = [Cell(0, text.removeprefix("\ufeff"))]
    except UnreadableError as error:
        facts.note(str(error))
        return facts
    lint_cells(facts, cells, options or {})
    if facts.is_notebook and _BINDS.search(data):
        facts.undefined.clear()
    return facts


def lint_cells(facts: FileFacts, cells: list[Cell], options: Options) -> None:
    """Parses cells one by one, so that a broken one costs no other, and walks over all of them."""
    body: list[ast.stmt] = []
    starts = []
    unread = False
    enabled = gc.isenabled()

    def has(word: re.Pattern[str]) -> bool:
        return any(word.search(cell.text) for cell in cells)

    gc.disable()  # a tree is all new objects: looking for cycles among them costs a third of the time
    try:
        for cell in cells:
            starts.append((facts.lines + 1, cell.number))
            if tree := _parse(facts, cell):
                if facts.lines:
                    ast.increment_lineno(tree, facts.lines)
                body += tree.body
                facts.selecting |= selecting_lines(cell.text, facts.lines)
                _ignored(facts, cell)
            else:
                unread = True
            if facts.is_notebook:
                facts.loads.append(_names_read(tree))
            facts.lines += cell.text.count("\n") + (not cell.text.endswith("\n") and bool(cell.text))
        if facts.is_notebook:
            facts.cells = tuple(starts)
        if has(WORD):
            facts.frozen = frozen(body)
        try:
            if options and any(not options.keys().isdisjoint(_WORD.findall(cell.text)) for cell in cells):
                apply_options(body, options)
                nodes_of.cache_clear()
            apply_constants(body)
            nodes_of.cache_clear()
            Collector(facts).module(ast.Module(body=body, type_ignores=[]))
            record_choices(facts, body)
            facts.remade = remade_lines(body)
            if has(EXISTS):
                facts.findings += [goes_on(facts.path, spot(test), name) for test, name in resumed(body)]
                functions = (each for each in body if isinstance(each, Function))
                facts.loading = {each.name: places for each in functions if (places := loads_if_there(each))}
            if has(LAST):
                name = "the last checkpoint"
                facts.findings += [goes_on(facts.path, spot(each), name) for each in restored(body)]
            if has(REMOVES):
                facts.findings = [each for each in facts.findings if each.rule != "VB106"]
            if has(_LOADS):
                facts.handed_back = {spot(call): names for call, names in handed_back(body)}
            if any(registry().operations[use.entry].model for use in facts.operations):
                facts.idle = idle_lines(body)
            if facts.targets or facts.findings or any(event.kind == "draw" for event in facts.events()):
                facts.looked_at = shown_lines(body, kept_in_order, is_notebook=facts.is_notebook)
        except RecursionError:
            facts.note("is nested too deeply; not linted")
        except ValueError as error:  # of ast.unparse, for numbers of thousands of digits and odd f-strings
            facts.note(f"{error}; not linted")
        if unread:
            facts.undefined.clear()  # the others may bind them
    finally:
        nodes_of.cache_clear()
        if enabled:
            gc.enable()
    if "threads" not in facts.flags and _trains(facts):
        facts.findings += [
            finding("VB404", facts.path, spot, "TensorFlow then takes all threads of the machine")
            for spot in facts.sessions
        ]


def goes_on(path: str, where: Spot, name: str) -> LintFinding:
    return finding("VB106", path, where, f"training goes on from {name} if it is there")


def _names_read(tree: ast.Module | None) -> set[str]:
    """The names that a cell reads, without those that it has given a value itself before."""
    found: set[str] = set()
    own: set[str] = set()
    for statement in tree.body if tree is not None else ():
        read = (each for each in all_of(ast.Name, statement) if isinstance(each.ctx, ast.Load))
        found |= {each.id for each in read} - own
        if isinstance(statement, ast.Assign):
            own |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


def _trains(facts: FileFacts) -> bool:
    """Clusters of what a loaded network gives are no training."""
    clusters = any(name.startswith("sklearn.cluster") for name in facts.imported.values())
    return "optimizes" in facts.flags or any(
        event.kind == "train" and not (clusters and event.name == "estimator") for event in facts.events()
    )


def _parse(facts: FileFacts, cell: Cell) -> ast.Module | None:
    where = f"cell {cell.number}, " if cell.number else ""
    tree: ast.Module | None
    try:
        try:
            tree = parsed(cell.text)
        except SyntaxError:
            older = as_older_python(cell.text)
            if older == cell.text or (tree := _parse_older(older)) is None:
                raise
    except SyntaxError as error:
        text = f"{where}line {error.lineno}: {error.msg}; not linted"
        if "async" in cell.text and (tree := _parse_older(without_async_names(cell.text))):
            _keep_lines(facts, cell.text.replace("\t", " "))
            facts.note(f"{where}line {error.lineno}: async is a keyword since Python 3.7; linted as a name")
            return tree
        lines = _LINE_END.split(cell.text)
        of_python_2 = _PYTHON_2.search(lines[min(error.lineno or 1, len(lines)) - 1])
        tree = _parse_older(as_python_3(cell.text))
        if of_python_2 or tree is not None:
            said = "not linted (2to3 converts it)" if tree is None else "linted as Python 3"
            text = f"{where}line {error.lineno}: is Python 2, which ended in 2020; {said}"
        if tree is not None:
            _keep_lines(facts, cell.text)
            facts.note(text)
            return tree
    except ValueError as error:
        text = f"{where}{error}; not linted"
    except (RecursionError, MemoryError):
        text = f"{where}is nested too deeply; not linted"
    else:
        _keep_lines(facts, cell.text.replace("\t", " "))
        return tree
    facts.note(text)
    return None


def _keep_lines(facts: FileFacts, text: str) -> None:
    """Keeps the lines from which columns are counted; of Python 2, tabs were read as several spaces."""
    if not text.isascii() or "\t" in text:
        for number, line in enumerate(_LINE_END.split(text), facts.lines + 1):
            if not line.isascii() or "\t" in line:
                facts.texts[number] = line


def _parse_older(text: str) -> ast.Module | None:
    try:
        return parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _ignored(facts: FileFacts, cell: Cell) -> None:
    if "vbstudy:" not in cell.text:
        return
    where = f"cell {cell.number}, " if cell.number else ""
    found = (
        (n, each[1].strip()) for n, comment in comments(cell.text) for each in _COMMENT.finditer(comment)
    )
    for number, words in found:
        said = _IGNORE.fullmatch(words)
        if said is None:
            text = f"# vbstudy: {words} is not known, so it silences nothing"
            facts.note(f"{where}line {number}: {text}; write # vbstudy: ignore[VB301]")
            continue
        codes = (
            ("",) if said[1] is None else tuple(c.strip().upper() for c in said[1].split(",") if c.strip())
        )
        for code in codes:
            if not any(rule.startswith(code) for rule in RULES):
                text = f"there is no rule {code}, so # vbstudy: ignore[{code}] silences nothing"
                facts.note(f"{where}line {number}: {text}")
        line = facts.lines + number
        facts.ignored[line] = (*facts.ignored.get(line, ()), *codes)


def is_ignored(facts: FileFacts, found: LintFinding) -> bool:
    """Whether a comment or the project's settings silence the finding."""
    return found.rule.startswith(facts.silent) or is_commented(facts, found)


def is_commented(facts: FileFacts, found: LintFinding) -> bool:
    """Whether the finding's line has `# vbstudy: ignore[...]`; without codes it means every rule. Not
    mapped yet: `found` has the line in the parsed text."""
    return any(found.rule.startswith(code) for code in facts.ignored.get(found.place.line, ()))


def mapped(facts: FileFacts, found: LintFinding) -> LintFinding:
    """The finding with the cell of its notebook, the line there, and the column in characters."""
    place = found.place
    cell, line = facts.place_of(place.line)
    place = Place(path=place.path, line=line, column=facts.column_of(place.line, place.column), cell=cell)
    return dataclasses.replace(found, place=place)


def module_name(path: str) -> str:
    """`a/b/c.py` is `a.b.c`, `a/b/__init__.py` is `a.b.__init__`, whose package is a.b."""
    return ".".join(PurePosixPath(path).with_suffix("").parts)
