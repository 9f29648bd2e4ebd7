"""A scan for a person, and as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from analysis.results.model import Table, col, count
from analysis.results.printing import TableText
from analysis.scan.lint.rules import RULES
from analysis.scan.results import Level, Place, Scan
from analysis.scan.sarif import joined
from guest.records.printable import counted, printable

COLOURS = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
HEADER = ("project", "kind", "name", "level", "path", "line", "column", "cell", "text", "advice")
FIELD = 30_000  # characters; some readers of CSV refuse fields of more than 32,767
SHOWN = 200  # projects whose requirements are listed


def print_answer(scan: Scan, console: Console) -> None:
    """How many findings there are, by level."""
    levels = Counter(found.level for project in scan.projects for found in project.findings)
    files, lines = sum(p.files for p in scan.projects), sum(p.lines for p in scan.projects)
    named = ", ".join(counted(levels[level], level) for level in Level)
    console.print(
        f"{counted(levels.total(), 'finding')} in {counted(files, 'file')} with {lines:,} lines: {named}",
        highlight=False,
    )


def print_findings(scan: Scan, console: Console) -> None:
    """Every finding on a line of its own, then what to do, once a rule."""
    counts: Counter[str] = Counter()
    for project in scan.projects:
        for found in project.findings:
            counts[found.rule] += 1
            where = replace(found.place, path=joined(project, found.place.path))
            line = Text(printable(f"{where} "))
            line.append(f"{found.rule} ", style=COLOURS[found.level])
            line.append(printable(f"{found.level}: {found.why}"))
            console.print(line, soft_wrap=True)
    if counts:
        rows = [
            {"rule": name, "n": counts[name], "what": RULES[name].title, "todo": RULES[name].advice}
            for name in sorted(counts)
        ]
        columns = col("rule"), count("n"), col("what"), col("todo", "what to do")
        console.print(TableText(Table.of(rows, *columns, name="rules", title="What to do", note="")))


def print_requirements(scan: Scan, console: Console) -> None:
    """A line a project; hardware with the sentence that states it."""
    for project in scan.projects[:SHOWN]:
        names = sorted({r.name for r in project.software})
        pinned = sum(r.pinned for r in project.software)
        sources = ", ".join(sorted({r.source for r in project.software}))
        text = (
            f"{len(names)} packages in {sources}; {pinned} of {len(project.software)} lines pin a version"
            if names
            else "none stated"
        )
        console.print(Text(printable(f"{project.path}: software: {text}")), soft_wrap=True)
        for stated in project.hardware:
            where = f"{joined(project, stated.place.path)}:{stated.place.line}"
            line = f"  hardware ({stated.part}) {where}: “{stated.quote}”"
            console.print(Text(printable(line)), soft_wrap=True)
    if len(scan.projects) > SHOWN:
        console.print(f"and {len(scan.projects) - SHOWN} more projects; --format json or csv lists them all")


def print_notes(scan: Scan, console: Console) -> None:
    for project in scan.projects:
        for note in project.notes:
            where = joined(project, note.path)
            console.print(Text(printable(f"{where}: {note.text}"), style="dim"), soft_wrap=True)


def to_csv(scan: Scan) -> str:
    """One line for each requirement, hardware statement, finding and note; a project without any has a line
    of kind "project", so that none is lost. Bytes of a name that are no text stand as \\udc..."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    rows.writerow(HEADER)
    nowhere = ("",) * 4
    for project in scan.projects:
        size = f"{project.files} files" + f", {project.lines} lines" * bool(project.lines)
        lines: list[tuple[object, ...]] = [("project", "", "", *nowhere, size, "")]
        for r in project.software:
            level, text = "pinned" if r.pinned else "open", f"{r.specifier} ({r.source})"
            lines.append(("software", r.name, level, *_place(r.place), text, ""))
        lines += [("hardware", h.words, h.part, *_place(h.place), h.quote, "") for h in project.hardware]
        lines += [("lint", f.rule, f.level, *_place(f.place), f.why, f.advice) for f in project.findings]
        lines += [("note", "", "", note.path, *nowhere[1:], note.text, "") for note in project.notes]
        for line in lines:
            fields = [str(field)[:FIELD] for field in (project.path, *line)]
            (quoted if "\r" in "".join(fields) else rows).writerow(fields)  # Python 3.11 leaves it bare
    return file.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def _place(place: Place) -> tuple[str, int, int, str]:
    return place.path, place.line, place.column, str(place.cell or "")
