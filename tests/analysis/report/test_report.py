from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from analysis.pipeline import analyze
from analysis.report import report
from analysis.report.page import page
from analysis.report.report import NotAReportError, write_report
from analysis.results.model import Column, Kind, Table
from tests.analysis.conftest import Fabricator


class Page(HTMLParser):
    """Collects what a browser would fetch, ids, links inside the page, and checks that tags close."""

    VOID = ("meta", "img", "br", "link", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.alts: list[str] = []
        self.stack: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.sources += [values[name] for name in ("src", "srcset", "data") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if "href" in values else []
        self.alts += [values.get("alt", "")] if tag == "img" else []
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


@pytest.fixture
def undrawn(monkeypatch):
    """Reports without figures, which take the time."""
    monkeypatch.setattr(report, "write_figures", lambda _analysis, _folder: [])


@pytest.mark.needs("studies")
def test_everything_is_written_and_the_page_stands_alone(study, tmp_path):
    study.usual()
    analysis = analyze(study.directory)
    page = write_report(analysis, tmp_path / "report")
    assert all(path.stat().st_size > 0 for path in page.parent.rglob("*"))
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "index.html", "findings.json", "tables", "figures"
    }  # fmt: skip
    names = {path.stem for path in (page.parent / "tables").iterdir()}
    assert names == {*analysis.tables, "findings", "runs", "environments"}
    assert json.loads((page.parent / "findings.json").read_text())["schema_version"] == 1
    assert not list(tmp_path.glob(".report*"))

    # The page needs nothing from outside, and is well formed.
    text = page.read_text()
    parsed = Page(text)
    assert parsed.stack == []
    assert len(parsed.sources) == 11
    assert all(source.startswith("data:image/svg+xml,") for source in parsed.sources)
    assert not re.search("https?://", re.sub(r'src="data:[^"]*"', "", text))  # pictures name XML namespaces
    for link in parsed.links:
        found = link[1:] in parsed.ids if link.startswith("#") else (tmp_path / "report" / link).exists()
        assert found, link
    assert ">nan<" not in text
    assert "prefers-color-scheme: dark" in text
    assert len(text) < 1_000_000
    assert all(names for names in parsed.alts)


def test_names_are_escaped_and_problems_and_alarms_shown(study):
    for repetition in (1, 2):
        weights = f"{repetition}"
        study.run(1, repetition, variant="control", weights=weights, cpu_model="<script>alert(1)</script>")
    study.run(2, variant="control", weights="1")
    text = page(analyze(study.directory), [])
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
    assert 'role="alert">CONTROL IS NOT BITWISE EQUAL' in text
    assert "2 CPU models in one comparison" in text


def test_every_link_of_a_page_leads_somewhere_also_without_rows_in_a_table(study):
    study.run(1)
    analysis = analyze(study.directory)
    assert not len(analysis.tables["tests"].frame)
    parsed = Page(page(analysis, []))
    within = {link[1:] for link in parsed.links if link.startswith("#")}
    assert within <= set(parsed.ids)
    assert "table-verdicts" in within
    assert "table-tests" not in within


def test_a_study_whose_folder_has_no_utf8_name_gets_its_report(tmp_path, undrawn):
    study = Fabricator(tmp_path / "bad\udcff")
    study.run(1)
    written = write_report(analyze(study.directory), study.directory / "report")
    assert "mkdir &#39;bad?&#39;" in written.read_text(encoding="utf-8")


def test_an_earlier_report_is_replaced(study, tmp_path, undrawn):
    study.usual(runs=1)
    analysis = analyze(study.directory)
    for _ in range(2):
        page = write_report(analysis, tmp_path / "report")
    assert page.exists()
    assert not list(tmp_path.glob(".report*"))


def test_other_folders_are_left_alone(study, tmp_path, undrawn):
    study.run(1)
    analysis = analyze(study.directory)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("mine", "file"):
        with pytest.raises(NotAReportError, match="name another folder"):
            write_report(analysis, tmp_path / name)
    assert (tmp_path / "mine" / "thesis.tex").exists()


@pytest.mark.needs("studies")
def test_when_writing_fails_the_earlier_report_stays(study, tmp_path, monkeypatch, undrawn):
    study.usual(runs=1)
    analysis = analyze(study.directory)
    before = write_report(analysis, tmp_path / "report").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "page", full)
    with pytest.raises(OSError, match="No space"):
        write_report(analysis, tmp_path / "report")
    assert (tmp_path / "report" / "index.html").read_bytes() == before
    assert not list(tmp_path.glob(".report*"))


def test_the_folder_has_the_permissions_of_the_umask_which_is_not_touched(
    study, tmp_path, undrawn, monkeypatch
):
    study.run(1)
    monkeypatch.delattr(os, "umask")  # other threads of the process make files meanwhile
    write_report(analyze(study.directory), tmp_path / "report")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "report").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_table_that_is_registered_appears_in_the_page_without_further_work(study):
    study.run(1)
    analysis = analyze(study.directory)
    extra = Table(
        name="extra",
        title="Something new",
        note="n is 1.",
        frame=pd.DataFrame({"a": [0.5], "n": [1]}),
        columns=(Column(header="a <b>", source="a", kind=Kind.METRIC), Column(header="n", source="n")),
    )
    text = page(dataclasses.replace(analysis, tables=analysis.tables | {"extra": extra}), [])
    assert 'id="table-extra"' in text
    assert "a &lt;b&gt;" in text
    assert '<td class="number" data-v="0.5">0.50000</td>' in text


def test_the_only_script_is_the_one_that_the_content_policy_names(study):
    study.run(1)
    text = page(analyze(study.directory), [])
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    sha256 = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{sha256}'" in text
    )


def test_the_page_counts_the_runs_that_differ_and_marks_them(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, weights="odd" if repetition == 2 else "w")
    text = page(analyze(study.directory), [])
    assert "1 run differs from most of its condition" in text
    assert text.count("<tr data-differs>") == 1


def test_the_page_says_when_all_machines_are_alike(study):
    study.run(1)
    assert "all runs have the same fingerprint" in page(analyze(study.directory), [])
