"""Writes the report: one page that needs no network, and the tables, figures and findings as files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.diagnosis.hardening_figures import write_hardening_figures
from analysis.figures.figures import write_figures
from analysis.report.page import detail_tables, page
from analysis.report.progress import Unfinished
from analysis.results.model import Analysis
from analysis.results.printing import as_data, findings_table, to_csv, to_json
from analysis.results.temporary import temporary

PAGE = "index.html"
FINDINGS = "findings.json"


class NotAReportError(FileExistsError):
    """The folder to write to holds something that is not a report; it is left as it is."""


def write_report(analysis: Analysis, output: Path, live: Unfinished | None = None) -> Path:
    """Writes the report into the folder `output`, in place of an earlier report there. Returns its page: a
    live one where `live` says how far the sweep is.

    It is complete or not there: everything is written beside it and moved in at the end. Raises
    NotAReportError when `output` is a file or a folder with other things in it.
    """
    if output.exists() and not _replaceable(output):
        raise NotAReportError(f"{output} holds other things than a report; name another folder")
    with _swapped_in(output) as folder:
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        for table in (findings_table(analysis), *analysis.tables.values(), *detail_tables(analysis)):
            (folder / "tables" / f"{table.name}.csv").write_text(to_csv(table), encoding="utf-8")
        (folder / FINDINGS).write_text(to_json(as_data(analysis)), encoding="utf-8")
        pictures = write_figures(analysis, folder / "figures")
        pictures += write_hardening_figures(analysis, folder / "figures")
        (folder / PAGE).write_text(page(analysis, pictures, live), encoding="utf-8")
    return output / PAGE


def _replaceable(output: Path) -> bool:
    """An earlier report, or an empty folder."""
    ours = {PAGE, FINDINGS, "tables", "figures"}
    return output.is_dir() and {path.name for path in output.iterdir()} <= ours


@contextmanager
def _swapped_in(output: Path) -> Iterator[Path]:
    """A temporary folder beside `output` that takes its place when all went well."""
    output = output.resolve()
    with temporary(output) as fresh:
        fresh.mkdir()
        yield fresh
        if output.exists():
            output.rename(fresh.with_name(f"{output.name}-old"))
        fresh.rename(output)
