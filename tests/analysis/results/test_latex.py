from __future__ import annotations

import re
import subprocess

import pytest

from analysis.pipeline import analyze
from analysis.results.latex import NARROWEST, NEEDS, SEPARATION, SIZES, TURNED, latex, table
from analysis.results.printing import Format, render

PREAMBLE = "\\documentclass[a4paper]{article}\n\\usepackage[utf8]{inputenc}\n" + NEEDS.split()[2]
NASTY = "50 % of a_b & {c} [d] <e> ~^\\ #1 $x$ `q` é ł 模 → ≠ ≤ \u200b \x07 | – · × ∞ \"q\" 'q'"


def compiled(body, folder):
    """What pdflatex says of a document with this body; fails where it stops."""
    (folder / "t.tex").write_text(f"{PREAMBLE}\n\\begin{{document}}\n{body}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    for _ in range(3):  # longtable finds its widths in several passes
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, text[-3000:]
    return text


def test_what_pdflatex_has_no_sign_for_becomes_a_question_mark():
    assert latex("é 模 → \x07≤") == r"é ? ? ?$\leq$"


def test_a_narrow_table_stays_upright_and_a_wide_one_is_turned():
    narrow = table("n", "N", "Below.", ["a", "b"], [["x", "1"]], [False, True])
    assert r"\begin{tabular}{lr}" in narrow
    assert r"\caption{N}" in narrow
    assert narrow.index(r"\end{tabular}") < narrow.index("Below.")
    assert "landscape" not in narrow
    long = table("n", "N", "", ["a", "b"], [["x", "1"]] * 100, [False, True])
    assert long.startswith(r"\begingroup")
    assert r"\begin{longtable}{lr}" in long
    wide = table("n", "N", "", ["a"] * 12, [["0123456789"] * 12], [True] * 12)
    assert wide.startswith(r"\begin{landscape}")
    assert wide.endswith(r"\end{landscape}")


def test_long_texts_are_broken_into_lines_and_numbers_are_not():
    text = table("n", "N", "", ["why", "n"], [["word " * 40, "1"]], [False, True])
    assert re.search(r"\{longtable\}\{>\{\\raggedright\\arraybackslash\}p\{\d+pt\}r\}", text)


def test_short_columns_of_a_table_of_broken_texts_take_no_more_than_the_line_has():
    """Short texts have a least width, which comes off the long ones."""
    result = "differ (1,000 distinct of 10,000)"
    head = ["workload", "variant", "view", "threads", "seeds", *["level"] * 3]
    body = [["cnn-bn-digits-tensorflow", "default", "selected", "across thread counts", "0", *[result] * 3]]
    text = table("n", "N", "", head, body, [False] * 4 + [True] + [False] * 3)
    widths = [int(width) for width in re.findall(r"p\{(\d+)pt\}", text)]
    assert len(widths) == 7
    assert sum(widths) <= TURNED - len(head) * SEPARATION - len("seeds") * SIZES["footnotesize"]
    assert min(widths) >= int(NARROWEST * SIZES["footnotesize"])


@pytest.mark.needs("tools")
def test_the_tables_of_a_study_compile_and_fit_the_page(study, tmp_path):
    study.usual("lenet5", runs=2)
    study.usual("a-workload-with-a-long-name", runs=2)
    log = compiled(render(analyze(study.directory), Format.LATEX), tmp_path)
    assert "Overfull" not in log
    assert (tmp_path / "t.pdf").stat().st_size > 10_000


@pytest.mark.needs("tools")
def test_any_text_compiles(tmp_path):
    compiled(table("a_b", NASTY, NASTY, [NASTY, "n"], [[NASTY, "1"], ["[x]", "2"]], [False, True]), tmp_path)


@pytest.mark.needs("tools")
def test_what_does_not_compile_would_be_seen(tmp_path):
    with pytest.raises(AssertionError, match="Undefined control sequence"):
        compiled(r"\nosuchcommand", tmp_path)
