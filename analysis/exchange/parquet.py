"""A study's tables as Parquet files, for pandas, R or DuckDB."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd

from analysis.results.model import Analysis
from analysis.results.temporary import temporary
from guest.records.printable import pip_install


class ExtraMissingError(ImportError):
    """An optional package is not installed; the text names it."""


def write_parquet(analysis: Analysis, target: Path) -> list[Path]:
    """One file a table into the new folder `target`: runs, epochs and steps with everything the records
    say, and each table of the analysis under `tables/`. Raises ExtraMissingError, FileExistsError."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ExtraMissingError(f"Parquet needs pyarrow: `{pip_install('pyarrow')}`")
    if target.exists():
        raise FileExistsError(f"{target} exists already; name another folder")
    from analysis.report.page import detail_tables  # brings matplotlib, which no other export needs

    study = analysis.study
    frames = {"runs": study.runs, "epochs": study.epochs, "steps": study.steps}
    tables = (*analysis.tables.values(), *detail_tables(analysis))
    frames |= {f"tables/{table.name}": table.frame for table in tables}
    with temporary(target) as folder:
        (folder / "tables").mkdir(parents=True)
        for name, frame in frames.items():
            _plain(frame).to_parquet(folder / f"{name}.parquet", engine="pyarrow", index=False)
        folder.rename(target)
    return [target / f"{name}.parquet" for name in frames]


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of one kind each: Parquet knows no column of numbers and texts. Lists stay lists of texts."""
    return pd.DataFrame({name: _of_one_kind(frame[name]) for name in frame.columns})


def _of_one_kind(column: pd.Series) -> pd.Series:
    if column.dtype != object:
        return column
    values = column.dropna()
    if values.map(lambda v: isinstance(v, (list, tuple))).any():
        return column.map(lambda v: [str(x) for x in v] if isinstance(v, (list, tuple)) else None)
    if values.map(lambda v: isinstance(v, (int, float))).all() and len(values):
        return pd.to_numeric(column)
    return column.map(lambda v: None if pd.isna(v) else str(v))
