"""What `vbstudy analyze` and `vbstudy report` do: read the runs, and write the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli_options import Options
from orchestrator.errors import StoreError, UsageError
from orchestrator.study import ModelSelection

if TYPE_CHECKING:
    from analysis.load import View


def views(options: Options) -> tuple[View, ...]:
    """Those that the study looks at. Raises UsageError where there is no study."""
    from analysis.load import View

    store = options.store()
    if not store.runs.exists() and not store.study_file.exists():
        options.study()  # says that there is no study here
    selection = options.study().model_selection if store.study_file.exists() else ModelSelection.BOTH
    return tuple(View) if selection is ModelSelection.BOTH else (View(selection.value),)


@contextlib.contextmanager
def errors(target: Path) -> Iterator[None]:
    """What goes wrong in the analysis and in writing to `target`, as errors with their exit codes."""
    from analysis.checks import MixedHardwareError
    from analysis.load import NothingToAnalyse
    from analysis.published import UnknownPublishedError
    from analysis.report import NotAReportError
    from guest.records import NewerSchemaError

    try:
        yield
    except (NothingToAnalyse, NotAReportError, MixedHardwareError, UnknownPublishedError) as error:
        raise UsageError(str(error)) from None
    except NewerSchemaError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename or target}: {error.strerror}") from None
