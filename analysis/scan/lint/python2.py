"""Python 2, as far as line by line it can be written as Python 3 with the same lines and indents. It is only
read, so what a statement prints or raises may become a name that nothing uses."""

from __future__ import annotations

import re

_TUPLE = r"\([^()\n]*\)|[\w.]+"
_REWRITTEN = tuple(
    (re.compile(pattern, re.MULTILINE), new)
    for pattern, new in (
        (r"(^|[:;])([ \t]*)print(?=[ \t]*$|[ \t]*[;#])", r"\1\2pass"),
        (r"(^|[:;])([ \t]*)print[ \t]*>>[ \t]*(?!sys\.)([\w.]+)", r"\1\2_ = \3.write()"),
        (r"(^|[:;])([ \t]*)(?:print|exec)[ \t]*>>[ \t]*", r"\1\2_ = "),
        ((r"(^|[:;])([ \t]*)(?:print|exec)(?:[ \t]+|(?=[\"'`{]))"
          r"(?!(?:i[sfn]|and|or|else|for)\b)(?=[\w\"'`{[~-])"), r"\1\2_ = "),
        (rf"\bexcept\s+({_TUPLE})\s*,\s*(\w+)\s*:", r"except \1 as \2:"),
        (rf"(^|[:;])([ \t]*)raise\s+({_TUPLE})\s*,\s*", r"\1\2_ = \3, "),
        (r"`([^`\n]+)`", r"(\1)"),
        (r"<>", "!="),
        (r"(?<![\w.\"'+-])0([0-7]+)[lL]?(?![\w.])", r"0o\1"),
        (r"(?<![\w.])(0[xX][\da-fA-F]+|\d+)[lL]\b", r"\1"),
        (r"\b[uU][rR](?=[\"'])", "r"),
        (r"\blambda\s*\(([\w\s,]+)\)\s*:", r"lambda \1:"),
    )
)  # fmt: skip
_PYTHON_3 = re.compile(
    r"(?<=[\s(,=+[{])[fF][\"'][^\n]*\{|\bnonlocal\s|\basync\s+def\b|\bawait\s|\byield\s+from\b"
)


_ASYNC = re.compile(r"\basync(?=\s*=[^=])")


def without_async_names(text: str) -> str:
    """`x.cuda(async=True)`, which Python has read until 3.6, as `x.cuda(asynk=True)`."""
    return _ASYNC.sub("asynk", text)


def as_python_3(text: str) -> str:
    """The text with the statements of Python 2 rewritten. One that has statements of Python 3 too runs on
    neither, and is given back as it is."""
    if _PYTHON_3.search(text):
        return text
    text = without_async_names(text)
    for pattern, new in _REWRITTEN:
        text = pattern.sub(new, text)
    return text.expandtabs(8)
