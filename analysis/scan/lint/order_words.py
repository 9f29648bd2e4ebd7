"""Names that tell whether an order is defined, kept, or of no matter."""

from __future__ import annotations

import re

LISTINGS = frozenset(
    (
        "os.listdir",
        "os.scandir",
        "glob.glob",
        "glob.iglob",
        "tensorflow.io.gfile.listdir",
        "tensorflow.io.gfile.glob",
        "tensorflow.gfile.ListDirectory",
        "tensorflow.gfile.Glob",
    )
)
PATHS = frozenset(("pathlib.Path()", "pathlib.PosixPath()"))
PATH_METHODS = frozenset(("iterdir", "rglob"))
FREE = frozenset(
    f"builtins.{name}"
    for name in [
        "sorted",
        "set",
        "frozenset",
        "len",
        "sum",
        "max",
        "min",
        "any",
        "all",
        "hash",
        "print",
        "repr",
        "str",
    ]
) | {
    "natsort.natsorted",
    "natsort.os_sorted",
    "collections.Counter",
    "numpy.sort",
    "numpy.unique",
    "numpy.prod",
    "numpy.max",
    "numpy.min",
    "math.prod",
}
NUMBERS = re.compile(
    r"(?:^|_)(?:ids?|idxs?|index|indexes|indices|positions|ranks|epochs|steps|dims|axes|axis|sizes|labels?)(?:_|$)"
)
"""Names of whole numbers, whose order in a set does not change from process to process."""
SORTING = FREE - {
    f"builtins.{name}" for name in ["len", "any", "all", "sum", "max", "min", "hash", "print", "repr", "str"]
}
KEEPING = frozenset(
    f"builtins.{name}" for name in ["list", "tuple", "enumerate", "zip", "map", "filter", "reversed"]
) | {
    "numpy.array",
    "numpy.asarray",
    "torch.tensor",
}
READY = frozenset(("concurrent.futures.as_completed", "asyncio.as_completed"))
METHODS = PATH_METHODS | {"glob", "imap_unordered"}
OF_INTEREST = LISTINGS | KEEPING | READY
FREE_METHODS = frozenset(
    (
        "update",
        "union",
        "issubset",
        "issuperset",
        "isdisjoint",
        "intersection",
        "difference",
        "difference_update",
        "symmetric_difference",
        "isin",
        "result_type",
        "remove_columns",
        "drop",
        "join",
        "debug",
        "info",
        "warning",
        "error",
        "assertIn",
        "assertNotIn",
        "assertLen",
        "assertCountEqual",
        "assertEmpty",
        "assertNotEmpty",
        "assertSameElements",
    )
)
"""Methods that keep no order, or only that of a text."""
BARS = frozenset(("tqdm", "track", "progress_bar", "progressbar", "iter"))
"""Functions that give what they are given, one by one."""
APPENDING = frozenset(("append", "extend", "insert"))
