"""What the path of a file of results states of its run."""

from __future__ import annotations

import re
from pathlib import Path

from analysis.exchange.files import ImportFormatError

_NOT_INTER_OP = "(?<!inter_op[-_])(?<!interop[-_])"
THREADS = tuple(
    re.compile(rf"(?<![a-z]){word}[-_= ]?(\d+)", re.IGNORECASE)
    for word in (rf"(?:{_NOT_INTER_OP}threads?|intra_?op)", "cpus?")
)
"""CPUs count where a path states no threads."""
_NEXT = r"(?:workload|variant)[-_=]|(?:threads?|cpus?|intra_?op|rep|run|seed)[-_=]?\d"
NAMED = {
    key: re.compile(rf"(?:^|[/_.,-]){key}[-_=](.+?)(?=[_.,-](?:{_NEXT})|/|$)")
    for key in ("workload", "variant")
}
"""`workload-lenet5` in a path: the value ends with the folder, the file, or where the next name begins."""
FIELDS = ("workload", "variant", "threads", "repetition")


def path_pattern(text: str) -> re.Pattern[str]:
    """`{workload}/{variant}/t{threads}/{repetition}.npy` as a regular expression over relative paths; `*` is
    anything within a name. Raises ImportFormatError."""
    pieces = []
    for piece in re.split(r"(\{[^{}]*\}|\*)", text):
        if piece == "*":
            pieces.append("[^/]*")
        elif not piece.startswith("{"):
            pieces.append(re.escape(piece))
        elif piece[1:-1] not in FIELDS:
            allowed = ", ".join(f"{{{field}}}" for field in FIELDS)
            raise ImportFormatError(f"pattern {text}: {piece} is none of {allowed}")
        else:
            pieces.append(f"(?P<{piece[1:-1]}>{r'[0-9]+' if piece[1:-1] in FIELDS[2:] else '[^/]+?'})")
    if "{threads}" not in text or any(text.count(f"{{{field}}}") > 1 for field in FIELDS):
        raise ImportFormatError(f"pattern {text}: {{threads}} is needed, and each field at most once")
    return re.compile("".join(pieces))


def stated(relative: str, by: re.Pattern[str] | None) -> dict[str, str] | None:
    """What the path of a file states of its run, by field; None where it states no thread count. Raises
    ImportFormatError where it states several."""
    if by is not None:
        found = by.fullmatch(relative)
        return None if found is None else found.groupdict()
    stem = relative.removesuffix(Path(relative).suffix)
    threads = dict.fromkeys(map(int, next(filter(None, (each.findall(stem) for each in THREADS)), ())))
    if not threads:
        return None
    if len(threads) > 1:
        raise ImportFormatError(
            f"{relative}: its path states {' and '.join(map(str, threads))} threads; state which by --by"
        )
    named = {key: match.group(1) for key, pattern in NAMED.items() if (match := pattern.search(stem))}
    return named | {"threads": str(*threads)}


def natural(path: Path) -> list[tuple[int, str]]:
    """By which paths are sorted: numbers in them by their size."""
    return [(int(t), "") if t.isdigit() else (-1, t) for t in re.split(r"(\d+)", path.as_posix())]
