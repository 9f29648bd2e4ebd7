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
    names, hard = [], True
    for line in file:
        if line.strip(MARKS):
            names.append(line.partition(",")[0].strip(MARKS))
            hard = hard and all(part in ("0", "1") for part in cells(line))
    several = len(first) > 1
    header = any(not is_number(part) for part in first)
    named = several and _are_identifiers(names, in_order=not header)
    # pandas numbers columns without names; 0,1 may also be the identifier 0 and its class, or a sample of
    # class 1 among others whose scores are 0 and 1.
    if several and first == [str(i) for i in range(len(first))] and not hard:
        header = not (named and "0" not in names)
    if not header:
        named = named and _are_identifiers([first[0], *names], in_order=True)
    columns = range(1, len(first)) if named else None
    file.seek(0)
    return np.loadtxt(file, delimiter=",", skiprows=int(header), ndmin=1, usecols=columns)


def _are_identifiers(names: list[str], *, in_order: bool) -> bool:
    """Whether the first of several columns holds the rows' identifiers: whole numbers or texts, no two the
    same. Numbers without a header have to be `in_order`: they may be scores."""
    if not len(set(names)) == len(names) > 1 or any(map(_is_fraction, names)):
        return False
    if not in_order or not all(map(is_number, names)):
        return True
    numbers = list(map(int, names))
    return numbers in (sorted(numbers), sorted(numbers, reverse=True))


def _is_fraction(text: str) -> bool:
    return is_number(text) and not text.lstrip("+-").isdecimal()


def is_number(text: str) -> bool:
    """Whether it is written as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
