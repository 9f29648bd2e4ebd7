from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from analysis import report
from analysis.pipeline import analyze
from analysis.report import NotAReportError, page, write_report


class Page(HTMLParser):
    """Collects what a browser would fetch, ids, links inside the page, and checks that tags close."""

    VOID = ("meta", "img", "br", "link", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.stack: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.sources += [values[name] for name in ("src", "srcset", "data") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if "href" in values else []
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


@pytest.fixture
def undrawn(monkeypatch):
    """Reports without figures, which take the time."""
    monkeypatch.setattr(report, "write_figures", lambda _analysis, _folder: [])


def test_everything_is_written_and_the_page_stands_alone(study, tmp_path):
    study.usual()
    analysis = analyze(study.directory)
    paths = write_report(analysis, tmp_path / "report")
    for path in (paths.page, paths.findings, *paths.tables, *paths.figures):
        assert path.stat().st_size > 0
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "index.html", "findings.json", "tables", "figures"
    }  # fmt: skip
    assert len(paths.tables) == len(analysis.tables)
    assert json.loads(paths.findings.read_text())["schema_version"] == 1
    assert not list(tmp_path.glob(".report*"))

    # The page needs nothing from outside, and is well formed.
    text = paths.page.read_text()
    parsed = Page(text)
    assert parsed.stack == []
    assert len(parsed.sources) == 5
    assert all(source.startswith("data:image/svg+xml;base64,") for source in parsed.sources)
    assert "http://" not in text
    assert "https://" not in text
    for link in parsed.links:
        found = link[1:] in parsed.ids if link.startswith("#") else (tmp_path / "report" / link).exists()
        assert found, link
    assert ">nan<" not in text
    assert "prefers-color-scheme: dark" in text


def test_findings_stand_before_verdicts_before_figures_before_tables(study):
    study.usual()
    text = page(analyze(study.directory), [])
    order = [text.index(f'id="{name}"') for name in ("findings", "verdicts", "figures", "tables")]
    assert order == sorted(order)
    assert "= weights 1/3" in text
    assert "≠ weights 3/9" in text


def test_names_are_escaped_and_problems_and_alarms_shown(study):
    study.run(1, variant="control", weights="a", cpu_model="<script>alert(1)</script>")
    study.run(2, variant="control", weights="b")
    text = page(analyze(study.directory), [])
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert 'role="alert">CONTROL IS NOT BITWISE EQUAL' in text
    assert "2 CPU models in one comparison" in text


def test_an_earlier_report_is_replaced(study, tmp_path, undrawn):
    study.usual(runs=1)
    analysis = analyze(study.directory)
    for _ in range(2):
        paths = write_report(analysis, tmp_path / "report")
    assert paths.page.exists()
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


def test_when_writing_fails_the_earlier_report_stays(study, tmp_path, monkeypatch, undrawn):
    study.usual(runs=1)
    analysis = analyze(study.directory)
    before = write_report(analysis, tmp_path / "report").page.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "page", full)
    with pytest.raises(OSError, match="No space"):
        write_report(analysis, tmp_path / "report")
    assert (tmp_path / "report" / "index.html").read_bytes() == before
    assert not list(tmp_path.glob(".report*"))


def test_the_folder_is_as_open_as_others(study, tmp_path, undrawn):
    study.run(1)
    write_report(analyze(study.directory), tmp_path / "report")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "report").stat().st_mode == (tmp_path / "other").stat().st_mode
