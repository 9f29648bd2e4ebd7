"""The numbers of a CSV of predictions, which may have a header and a column of identifiers, or neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import numpy as np

MARKS = " \"'\n"


def cells(line: str) -> list[str]:
    return [part.strip(MARKS) for part in line.split(",")]


def read(file: TextIO) -> np.ndarray:
    """(N,) of one column, (N, C) of several, without a header and identifiers. Raises ValueError."""
    import numpy as np

    first = cells(file.readline())
    names = [line.partition(",")[0].strip(MARKS) for line in file if line.strip(MARKS)]
    # The first of several columns holds the rows' identifiers: whole numbers or text, no two the same.
    named = len(first) > 1 and len(set(names)) == len(names) > 1 and not any(map(_is_fraction, names))
    columns = range(1, len(first)) if named else None
    # pandas numbers columns without names; 0,1 may also be the identifier 0 and its class.
    numbered = len(first) > 1 and first == [str(i) for i in range(len(first))]
    header = any(not is_number(part) for part in first) or (numbered and not (named and "0" not in names))
    file.seek(0)
    return np.loadtxt(file, delimiter=",", skiprows=int(header), ndmin=1, usecols=columns)


def _is_fraction(text: str) -> bool:
    return is_number(text) and not text.lstrip("+-").isdecimal()


def is_number(text: str) -> bool:
    """Whether it is written as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
