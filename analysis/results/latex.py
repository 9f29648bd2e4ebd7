"""Tables as LaTeX that compiles with pdflatex and fits the page: long texts are broken into lines, wide
tables are turned and set smaller."""

from __future__ import annotations

import re
from collections.abc import Sequence

NEEDS = "% needs \\usepackage{array,booktabs,longtable,pdflscape,textcomp} and UTF-8 input"

SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "–": "--", "·": r"$\cdot$", "×": r"$\times$",
    "∞": r"$\infty$", "[": "{[}", "]": "{]}", "`": r"\textasciigrave{}", "≠": r"$\neq$", "≤": r"$\leq$",
    "≥": r"$\geq$", "±": r"$\pm$", "µ": r"$\mu$", "μ": r"$\mu$", "’": "'", "\n": " ", "\t": " ",
}  # fmt: skip
LATIN = range(0xC0, 0x180)  # letters that pdflatex knows in UTF-8

# Points a character takes, on average, and the points of a line of `article`, upright and turned.
SIZES = {"footnotesize": 4.4, "scriptsize": 3.8, "tiny": 3.1}
UPRIGHT, TURNED = 345, 530
SEPARATION = 6  # points between columns
CROWDED = 14  # columns from which they stand closer
LONG = 34  # characters from which a text is broken into lines
WORD_ENDS = re.compile(r" |(?<=-)")  # where TeX may break a line
PAGE_ROWS = 40  # of a table that stays on one page
NARROWEST = 9  # characters a column of broken text holds


def latex(text: str) -> str:
    """Text as LaTeX that prints it. Brackets are braced: after a line break they would be an option.
    What pdflatex has no sign for becomes a question mark."""
    return "".join(SIGNS.get(c) or (c if " " <= c <= "~" or ord(c) in LATIN else "?") for c in text)


def table(
    name: str,
    caption: str,
    note: str,
    head: Sequence[str],
    body: Sequence[Sequence[str]],
    numbers: Sequence[bool],
) -> str:
    """A table with a short caption, and its note below: a `tabular` where it fits an upright page, else a
    `longtable`, which may go over pages. `numbers` says which columns are set to the right."""
    size, turned, columns = _layout(head, body, numbers)
    first, *lines = [" & ".join(latex(cell) for cell in row) + r" \\" for row in (head, *body)]
    title = rf"\caption{{{latex(caption)}}}\label{{tab:vbstudy-{name.replace('_', '-')}}}"
    tight = rf"\{size}\setlength{{\tabcolsep}}{{{_separation(head) // 2}pt}}"
    below = [rf"\par\smallskip\noindent{{\footnotesize {latex(note)}\par}}"] if note else []
    if not turned and len(body) <= PAGE_ROWS:
        top = [
            r"\begin{table}[htbp]",
            r"\centering",
            title,
            rf"{{{tight}",
            rf"\begin{{tabular}}{{{columns}}}",
        ]
        end = [r"\bottomrule", r"\end{tabular}\par}", *below, r"\end{table}"]
        return "\n".join([*top, r"\toprule", first, r"\midrule", *lines, *end])
    parts = [rf"\begingroup{tight}", rf"\begin{{longtable}}{{{columns}}}", title + r"\\", r"\toprule", first]
    parts += [r"\midrule\endhead", r"\bottomrule\endfoot", *lines, r"\end{longtable}", r"\endgroup", *below]
    return "\n".join([r"\begin{landscape}", *parts, r"\end{landscape}"] if turned else parts)


def _layout(
    head: Sequence[str], body: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> tuple[str, bool, str]:
    """(size, turned, columns): upright and large where it fits, else turned, else smaller, else with
    its texts broken into lines."""
    widths = [max(map(len, cells)) for cells in zip(head, *body, strict=True)]
    texts = [not number and width > LONG for number, width in zip(numbers, widths, strict=True)]
    room = _separation(head) * len(widths)
    if not any(texts):
        for size, points in SIZES.items():
            for line, turned in ((UPRIGHT, False), (TURNED, True)):
                if sum(widths) * points + room <= line:
                    return size, turned, "".join("r" if number else "l" for number in numbers)
        texts = [not number for number in numbers]  # nothing fits: break every text
    size = next((s for s, p in SIZES.items() if _fixed(widths, texts) * p + room <= 0.6 * TURNED), "tiny")
    left = TURNED - room - _fixed(widths, texts) * SIZES[size]
    least = NARROWEST * SIZES[size]
    if left < least * sum(texts):
        return size, True, _squeezed([head, *body], widths, numbers, room, SIZES[size])
    spare = left - least * sum(texts)
    wider = [max(min(width, 120) - NARROWEST, 0) * text for width, text in zip(widths, texts, strict=True)]
    columns = [
        rf">{{\raggedright\arraybackslash}}p{{{least + spare * more / max(sum(wider), 1):.0f}pt}}"
        if text
        else "r"
        if number
        else "l"
        for text, more, number in zip(texts, wider, numbers, strict=True)
    ]
    return size, True, "".join(columns)


def _squeezed(
    rows: Sequence[Sequence[str]], widths: Sequence[int], numbers: Sequence[bool], room: int, points: float
) -> str:
    """Columns of a table that fits in no other way: all are broken into lines, numbers before intervals.
    Each has room for its longest word, and a share of what is left."""
    words = [
        1 + max(len(word) for cell in cells for word in WORD_ENDS.split(cell))  # one more: m is wide
        for cells in zip(*rows, strict=True)
    ]
    spare = (TURNED - room) / points - sum(words)
    share = min(max(spare / max(sum(widths) - sum(words), 1), 0.0), 1.0)
    sides = (r"\raggedleft" if number else r"\raggedright" for number in numbers)
    return "".join(
        rf">{{{side}\arraybackslash}}p{{{(word + (width - word) * share) * points:.0f}pt}}"
        for side, word, width in zip(sides, words, map(max, words, widths), strict=True)
    )


def _separation(head: Sequence[str]) -> int:
    return SEPARATION if len(head) <= CROWDED else SEPARATION // 3


def _fixed(widths: Sequence[int], texts: Sequence[bool]) -> int:
    """Characters of the columns that are not broken."""
    return sum(width for width, text in zip(widths, texts, strict=True) if not text)
