"""The result on one screen of a terminal: at most LINES lines at 80 columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from analysis.findings.evidence import SHORT, evidence
from analysis.findings.steps import next_steps
from analysis.findings.summary import by_workload, headline, which_threads
from analysis.load.design import STUDY_FILE
from analysis.load.runs import Problem
from analysis.provenance.overrides import OVERRIDES
from analysis.report.story import settings, size_text
from analysis.results.model import ACROSS, Analysis, Finding, Verdict
from analysis.results.printing import shown_findings
from analysis.sameness.verdicts import DIFFER, IDENTICAL, LEVELS, NOT_FINITE, NOT_RECORDED

WIDEST = 100  # characters; longer lines are hard to read
MATRIX_ROWS = 6
SIGNS = {
    IDENTICAL: ("=", "green"),
    DIFFER: ("≠", "red"),
    **dict.fromkeys((NOT_RECORDED, NOT_FINITE), ("–", "dim")),
}
PLAIN = {"≠": "x", "–": "-"}  # where an output cannot write them
SELDOM = {"–": "there is none", "?": "not known"}  # named where they occur
FIRST_NOTES: tuple[Callable[[Problem], bool], ...] = (
    lambda problem: problem.path == STUDY_FILE,
    lambda problem: problem.skipped and problem.path.startswith("runs/"),  # damaged, so it is missing, too
    lambda problem: problem.path == "runs",  # runs that are missing
    lambda problem: problem.what.startswith(OVERRIDES),
)
COLOURS = {
    Verdict.SUPPORTED: "green",
    Verdict.NOT_SUPPORTED: "red",
    Verdict.MIXED: "magenta",
    Verdict.INCONCLUSIVE: "yellow",
}


def screen(analysis: Analysis, command: str = "vbstudy") -> RenderableType:
    """The headline, what is the same, which thread count to use, the findings, and what to do next. `command`
    begins the commands to copy."""
    steps = list(next_steps(analysis))
    instead = analysis.study.plan.instead
    if instead is not None and instead[0] != "sweep":  # the others need the sweep's lock, or the study file
        steps = [steps[0], steps[-1]]
    parts: list[RenderableType] = [
        *(Text(alarm, style="bold red") for alarm in analysis.alarms),
        Text(headline(analysis), style="bold"),
        Text(size_text(analysis), style="dim"),
        Text(),
        *_matrix(analysis),
        Text(),
        _pairs("Which thread count?", which_threads(analysis)),
        Text(),
        _findings(analysis),
        Text(),
        *_notes(analysis),
        Text("Next", style="bold"),
        *_commands([(f"{command} {arguments}", why) for arguments, why in steps]),
    ]
    return Constrain(Group(*parts), WIDEST)


def _grid(*headings: str, title: str | None = None) -> Table:
    grid = Table(
        title=title, title_justify="left", title_style="bold", box=None, show_edge=False, pad_edge=False,
        padding=(0, 2, 0, 0), show_header=any(headings),
    )  # fmt: skip
    for heading in headings:
        grid.add_column(heading, header_style="dim")
    return grid


def _matrix(analysis: Analysis) -> Iterator[RenderableType]:
    """A row a workload, in the variant by which models are compared; "" where none has fixed seeds."""
    rows = by_workload(analysis)
    if not rows:
        return
    columns = settings(analysis)
    shown = {
        workload: [_signs(scopes.get(scope)) for scope in (ACROSS, *columns)]
        for workload, scopes in list(rows.items())[:MATRIX_ROWS]
    }
    there = {sign for cells in shown.values() for cell in cells for sign, _ in cell}
    title = Text("Same model?", style="bold")
    metric = "all metrics" if any(len(names) > 1 for names in analysis.study.metrics.values()) else "metric"
    legend = f" weights, predictions, {metric} at equal seeds  (= same, {_plain('≠')} differ)"
    title.append(legend, style="not bold dim")
    yield title
    grid = _grid("", "all threads", *columns)
    for workload, cells in shown.items():
        grid.add_row(workload, *(_spaced(cell) for cell in cells))
    yield grid
    if seldom := [f"{_plain(sign)} {text}" for sign, text in SELDOM.items() if sign in there]:
        yield Text(", ".join(seldom), style="dim")
    if len(rows) > MATRIX_ROWS:
        yield Text(f"and {len(rows) - MATRIX_ROWS} more workloads: --table verdicts", style="dim")


def _signs(row: dict[object, object] | None) -> list[tuple[str, str]]:
    """With their colours."""
    return [SIGNS.get(str(row[level]), ("?", "yellow")) for level in LEVELS] if row else []


def _spaced(signs: list[tuple[str, str]]) -> Text:
    return Text(" ").join(Text(_plain(sign), style=colour) for sign, colour in signs)


def _plain(sign: str) -> str:
    try:
        sign.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return PLAIN[sign]
    return sign


def _commands(steps: list[tuple[str, str]]) -> Iterator[Text]:
    """To copy with their comments; longer ones than the line go on in the next."""
    width = max(len(command) for command, _ in steps)
    for command, why in steps:
        yield Text.assemble((command.ljust(width), "cyan"), (f"  # {why}", "dim"), overflow="fold")


def _pairs(title: str, pairs: list[tuple[str, str]]) -> Table:
    grid = _grid("", "", title=title)
    grid.columns[0].no_wrap = True
    for name, text in pairs:
        grid.add_row(Text(name), Text(text))
    return grid


def _findings(analysis: Analysis) -> Table:
    grid = _grid("", "", "", title="Findings")
    for finding in shown_findings(analysis):
        if finding.workload:
            continue
        text = Text.assemble((SHORT[finding.id], "bold"), "\n", evidence(analysis, finding))
        grid.add_row(finding.id, Text(_verdict(finding), style=COLOURS[finding.verdict]), text)
    return grid


def _verdict(finding: Finding) -> str:
    if finding.verdict is not Verdict.MIXED:
        return finding.verdict
    return f"mixed: {finding.numbers['supported']} of {sum(finding.numbers.values())}"


def _notes(analysis: Analysis) -> Iterator[Text]:
    """The first of each kind that stands above the others; without any, the first of all."""
    problems = analysis.study.problems
    firsts = [next((p for p in problems if kind(p)), None) for kind in FIRST_NOTES]
    shown = [problem for problem in firsts if problem is not None] or list(problems[:1])
    more = len(problems) - len(shown)
    for problem in shown:
        last = f" ({more} more in the report)" * (more > 0) + "\n" if problem is shown[-1] else ""
        yield Text.assemble(("note: ", "bold yellow"), f"{problem}{last}")
