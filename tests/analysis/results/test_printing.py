from __future__ import annotations

import csv
import io
import json
import re

import pytest
from rich.console import Console

from analysis.pipeline import analyze
from analysis.results.latex import latex
from analysis.results.model import MAIN
from analysis.results.printing import (
    Format,
    NoTableError,
    all_tables,
    chosen,
    render,
    render_tables,
    to_csv,
    to_json,
)
from analysis.results.questions import QUESTIONS

FINDINGS = """\
## Findings

| finding | workload | verdict | statement | why |
| --- | --- | --- | --- | --- |
| F1 | all | inconclusive | With free seeds, thread counts are equivalent within the margin | no \
significant difference is found (Brunner and Munzel's test by exact permutation), and equivalence within \
0.01 is not shown (largest p = 0.325, two one-sided t tests: Welch); these runs show no difference, however \
large, at 80 % power; means of accuracy (last model) lie up to 0.0060 apart, runs of one condition up to \
0.020; 9 distinct values in 9 runs |
| F2 | all | supported | With fixed seeds, models are identical within a thread count and differ across \
thread counts | identical within 3 of 3 thread counts (which leaves a chance of up to 0.78 that a run of a \
condition gives another model: 2 repetitions beside the first, one-sided 95 % bound); across them 3 models \
on 3 thread counts, 2 prediction vectors, 3 metric values in 9 runs |
| F3 | all | inconclusive | The difference starts as rounding in the first steps, then accumulates | starts \
in the first steps: yes (weights equal up to step 1, different at step 2, n=9 runs of 1 seed); an operation: \
open (not traced: `vbstudy trace` finds the operation); grows: yes (relative SD of the training loss across \
n=3 thread counts (1 seed, 9 runs) 0 after the first epoch, 0.02 after the last; an SD of 0 is not tested) |
| F4 | all | inconclusive | Model selection narrows the difference across thread counts | thread counts lie \
0.010 apart in accuracy at the selected epochs, 0.070 at the last: narrower by 0.060, not tested (n=1 seed); \
0.20 on average at epochs drawn at random (p = 0.250; 3 distinct models on 3 thread counts, 2 epochs); more \
seeds are needed: so few allow no p below 1 |
| F5 | all | inconclusive | More threads are not faster | default: fastest at 2 (1: 12.2 s, 2: 8.20 s), but \
only 1 and 2 have comparable times; fixed-seed: fastest at 2 (1: 12.2 s, 2: 8.20 s), but only 1 and 2 have \
comparable times; 4: oversubscribed |
"""


def test_markdown_begins_with_the_findings(usual):
    text = render(usual, Format.MARKDOWN)
    assert text.replace("\\<", "<").startswith(FINDINGS)
    tables = [block for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 14
    for block in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, "a pipe in a cell is escaped"


WORD = re.compile(r"[^\W_]{3,}")
LEFT_OUT = "Left out, as the terminal is too narrow"


@pytest.mark.needs("studies")
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_tables_fit_the_terminal_and_no_word_is_cut(usual, width):
    for table in all_tables(usual):
        console = Console(file=io.StringIO(), width=width)
        text = render_tables([table], Format.TABLE, console)
        assert max(map(len, text.splitlines())) <= width
        whole = render_tables([table], Format.TABLE, Console(file=io.StringIO(), width=2000))
        assert set(WORD.findall(text)) <= set(WORD.findall(whole)) | set(WORD.findall(LEFT_OUT)), table.name


def test_columns_without_room_are_named(usual):
    narrow, wide = (
        render_tables([usual.tables["tests"]], Format.TABLE, Console(file=io.StringIO(), width=width))
        for width in (50, 200)
    )
    dropped = re.search(r"terminal is too narrow: ([^.]*)\.", narrow).group(1)
    assert "smallest detectable" in dropped or "verdict" in dropped
    assert "metric: accuracy" in narrow, "what all rows share stands above"
    assert "too narrow" not in wide


def test_tables_are_chosen_by_name(usual):
    assert [table.name for table in chosen(usual, ["findings", "churn"])] == ["findings", "churn"]
    with pytest.raises(NoTableError, match="no table 'chrn' in this study; there are findings, verdicts"):
        chosen(usual, ["chrn"])


def test_a_long_table_is_shown_whole_where_it_is_asked_for(usual):
    (table,) = chosen(usual, ["loss_sd_by_epoch"])
    assert not usual.tables["loss_sd_by_epoch"].columns
    headers = [column.header for column in table.columns]
    assert headers[:3] == ["workload", "variant", "scope"]
    shown = render_tables([table], Format.MARKDOWN)
    assert shown.count("\n|") > len(table.frame)


def test_every_table_has_its_question(usual):
    assert set(usual.tables) <= set(QUESTIONS)
    assert list(QUESTIONS)[:2] == ["findings", "verdicts"]
    assert set(MAIN) <= set(QUESTIONS)


def test_json_is_valid_and_whole(usual):
    text = render(usual, Format.JSON)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    data = json.loads(text, parse_constant=refuse)
    assert data["schema_version"] == 1
    assert data["runs"] == 18
    assert [f["verdict"] for f in data["findings"] if f["workload"] is None][1] == "supported"
    assert set(data["tables"]) == set(usual.tables)
    assert data["tables"]["tests"][0]["p"] == pytest.approx(1.0) or data["tables"]["tests"][0]["p"] <= 1


def test_what_json_cannot_say_is_null():
    assert json.loads(to_json({"a": float("nan"), "b": [float("inf")], "c": None})) == {
        "a": None,
        "b": [None],
        "c": None,
    }


def test_csv_keeps_every_digit_and_lists_in_one_cell(usual):
    rows = list(csv.DictReader(io.StringIO(to_csv(usual.tables["max_difference"]))))
    row = next(r for r in rows if r["variant"] == "fixed-seed" and r["view"] == "last")
    assert row["values"] == "0.75;0.78;0.71"
    assert float(row["difference"]) == 0.78 - 0.71


def test_csv_is_one_table(usual):
    rows = list(csv.DictReader(io.StringIO(render(usual, Format.CSV))))
    assert [row["id"] for row in rows] == ["F1", "F2", "F3", "F4", "F5"], "nothing was scanned"
    with pytest.raises(ValueError, match="2 tables are no CSV file"):
        render_tables(chosen(usual, ["tests", "churn"]), Format.CSV)


def test_latex_is_balanced_and_escaped(usual):
    text = render(usual, Format.LATEX)
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 14
    for block in re.findall(
        r"\\begin\{longtable\}\{(.*?)\}\n\\caption.*?\\endfoot\n(.*?)\n\\end", text, re.S
    ):
        columns = len(re.sub(r"p\{[^}]*\}", "p", re.sub(r">\{[^}]*\}", "", block[0])))
        for line in block[1].splitlines():
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
            assert line.endswith(r" \\")
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[^\x00-\x7f]", text), "pdflatex would stop at it"
    assert latex("50 % of a_b & {c} [d] <e> ~^\\") == (
        r"50 \% of a\_b \& \{c\} {[}d{]} \textless{}e\textgreater{} "
        r"\textasciitilde{}\textasciicircum{}\textbackslash{}"
    )


@pytest.mark.needs("studies")
def test_several_workloads_are_told_apart(study):
    study.usual("a", runs=2)
    study.usual("b", runs=2)
    assert "| F2 | b | supported |" in render(analyze(study.directory), Format.MARKDOWN)
