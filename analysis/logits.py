"""How far the logits of other thread counts lie from those of the lowest, with equal seeds: the measures of
Shanmugavelu et al. 2024, section 3. Their files are read anew, one a distinct result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import numerics, statistics
from analysis.load import Study, View, by_threads
from analysis.predictions import read_logits
from analysis.results import VIEWS_NOTE, WHERE, Column, Kind, Table
from guest.records import RecordError

MOST = 8  # distinct results of a set that are read
MEASURES = {
    "vc": "Vc",
    "vermv": "Vermv",
    "vs": "largest |Vs|",
    "kl": "KL of Vs",
    "ulp": "ULP, median",
    "ulp_most": "ULP, largest",
    "own": "Vermv, run to run",
}


def logits(study: Study) -> Table:
    """Vc, Vermv, Vs, KL and ULPs of the final logits of every set, against the first run of the lowest thread
    count; and Vermv against the set's own first run, for runs that agree among themselves but not with the
    reference differ by the algorithm, not from run to run."""
    rows = []
    for workload, variant, runs in study.experiments():
        if not runs.seeds_fixed.all() or runs.threads.nunique() < 2 or runs.seeds_used.nunique() > 1:
            continue
        for view in study.views(workload):
            head = {"workload": workload, "variant": variant, "view": view.value}
            for threads, setting in by_threads(runs).items():
                rows.append(head | {"threads": threads} | _compared(study, view, runs.iloc[0], setting))
    columns = ["workload", "variant", "view", "threads", "n", "distinct", "size"]
    columns += [f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")]
    return Table(
        name="logits",
        title="How far the logits lie from those of the lowest thread count",
        note="Final logits with equal seeds, against the first run of the lowest thread count. Vc: share of "
        "logits that differ. Vermv: mean of |A-B| / |A|. Vs = 1 - |B / A| of each logit; KL is the "
        "divergence of "
        "its histogram from a Gaussian, in nats. ULP: how many float32 numbers lie between, of the logits "
        "that "
        "differ. Run to run: against the set's own first run; where it is 0 and Vermv is not, thread counts "
        "compute otherwise, and repeat. Mean over the runs with Student's t (95 %); at most "
        f"{MOST} distinct results of a set are read. " + VIEWS_NOTE,
        frame=pd.DataFrame(rows, columns=[*columns, "remark"]),
        columns=(
            *WHERE,
            Column(header="view", source="view"),
            Column(header="threads", source="threads"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="distinct", source="distinct", kind=Kind.COUNT),
            Column(header="logits", source="size", kind=Kind.COUNT),
            *(
                Column(header=header, source=name, kind=Kind.SPREAD, low=f"{name}_low", high=f"{name}_high")
                for name, header in MEASURES.items()
            ),
            Column(header="remark", source="remark"),
        ),
    )


def _compared(study: Study, view: View, reference: pd.Series, runs: pd.DataFrame) -> dict[str, Any]:
    hashes = runs[view.sha256("logits")]
    row: dict[str, Any] = {"n": len(runs), "distinct": hashes.nunique(), "remark": ""}
    try:
        base = read_logits(study, view, reference.run_id, reference.predictions_file_sha256)
        kept = runs[hashes.isin(hashes.unique()[:MOST])]
        found: dict[str, dict[str, float | None]] = {}
        own: np.ndarray | None = None
        for run in kept.to_dict("records"):
            sha256 = run[view.sha256("logits")]
            if sha256 in found:
                continue
            mine = read_logits(study, view, run["run_id"], run["predictions_file_sha256"])
            own = mine if own is None else own
            found[sha256] = measures(base, mine) | {"own": numerics.vermv(own, mine)}
    except (RecordError, ValueError, OSError) as error:
        return row | {"remark": f"not measured: {error}"}
    row |= {"size": base.size, "n": len(kept)}
    for name in MEASURES:
        values = [found[sha256][name] for sha256 in kept[view.sha256("logits")]]
        mean = statistics.mean([value for value in values if value is not None])
        row |= {name: mean.value, f"{name}_low": mean.low, f"{name}_high": mean.high}
    return row


def measures(a: np.ndarray, b: np.ndarray) -> dict[str, float | None]:
    """By name; `a` is the reference. Raises ValueError for unlike shapes and for what is not finite."""
    some = a != 0
    vs = 1 - np.abs(b[some].astype(np.float64) / a[some])
    ulps = numerics.ulp_distance(a, b)
    differing = ulps[ulps > 0]
    return {
        "vc": numerics.vc(a, b),
        "vermv": numerics.vermv(a, b),
        "vs": float(np.abs(vs).max()) if len(vs) else None,
        "kl": numerics.kl_to_gaussian(vs),
        "ulp": float(np.median(differing)) if len(differing) else 0.0,
        "ulp_most": float(differing.max()) if len(differing) else 0.0,
    }
