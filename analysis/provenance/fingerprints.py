"""In what the machines and the software of a study's runs differ: their fingerprints, compared field by
field, without what all have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.load.study import StudyData
from analysis.results.model import Table, cols, count

ABSENT = "not recorded"


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as `cpu.model`; lists stay whole."""
    fields: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        fields |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return fields


def environments(study: StudyData) -> Table:
    """One row a field and value, for the fields that are not the same in all runs: who has which."""
    told = {key: flat(environment) for key, environment in study.environments.items()}
    told = {key: told.get(key, {}) for key in study.runs.environment.unique()}
    rows = []
    for name in dict.fromkeys(field for fields in told.values() for field in fields):
        values = {key: fields.get(name, ABSENT) for key, fields in told.items()}
        texts = _texts(values)
        if len(set(texts.values())) == 1:
            continue
        shown = study.runs.environment.map(texts)
        for text, runs in study.runs.groupby(shown, sort=False):
            rows.append(
                {
                    "field": name.replace("knobs.", "environment variable "),
                    "value": text,
                    "n": len(runs),
                    "threads": list(runs.threads.unique()),
                    "variants": list(runs.variant.unique()),
                    "guests": list(runs.guest.unique()),
                }
            )
    return Table.of(
        rows,
        *cols("field", "value"),
        count("n", "n (runs)"),
        *cols("threads", "variants", "guests"),
        name="environments",
        title="In what machines and software differ",
        note="Fields of the runs' fingerprints that are not the same in all runs; of lists (CPU flags, "
        "caches) only the entries that not all have. Thread settings differ by "
        "design, where thread counts do. What is not listed was recorded and equal.",
    )


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Each value as text; lists without the entries that all of them share."""
    lists = [value for value in values.values() if isinstance(value, list)]
    common = set.intersection(*({str(v) for v in value} for value in lists)) if lists else set()
    return {
        key: (", ".join(str(v) for v in value if str(v) not in common) or "none besides the common ones")
        if isinstance(value, list)
        else str(value)
        for key, value in values.items()
    }
