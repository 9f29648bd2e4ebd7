from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

from rich.console import Console

from analysis.scan.printed import (
    HEADER,
    print_answer,
    print_findings,
    print_notes,
    print_requirements,
    to_csv,
)
from analysis.scan.run import scan
from analysis.scan.sarif import to_sarif


def example(tmp_path):
    (tmp_path / "main.py").write_text("import torch\ntorch.backends.cudnn.benchmark = True\n")
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "README.md").write_text('Python 3.6 on a V100, says "he", [bold]twice[/bold].\n')
    return scan([tmp_path])


def text_of(show, found) -> str:
    file = io.StringIO()
    show(found, Console(file=file, width=120))
    return file.getvalue()


def test_findings_stand_one_a_line_with_what_to_do_once_a_rule(tmp_path):
    text = text_of(print_findings, example(tmp_path))
    assert f"{tmp_path}/main.py:2:1 VB504 warning: with benchmark = True" in text
    assert "set torch.backends.cudnn.benchmark = False" in text
    answer = text_of(print_answer, example(tmp_path))
    assert answer == "1 finding in 2 files with 3 lines: 0 errors, 1 warning, 0 notes\n"


def test_quotes_are_printed_as_they_stand(tmp_path):
    text = text_of(print_requirements, example(tmp_path))
    assert (
        f'hardware (gpu) {tmp_path}/README.md:1: “Python 3.6 on a V100, says "he", [bold]twice[/bold].”'
        in text
    )
    assert "software: 1 packages in README; 1 of 1 lines pin a version" in text


def test_notes_name_their_file(tmp_path):
    assert f"{tmp_path}/bad.py: line 1: invalid syntax; not linted" in text_of(print_notes, example(tmp_path))


def test_a_file_that_is_scanned_alone_is_named_once_and_one_in_a_folder_of_its_name_below_it(tmp_path):
    example(tmp_path)
    text = text_of(print_requirements, scan([tmp_path / "README.md"]))
    assert f" {tmp_path}/README.md:1: " in text
    (tmp_path / "a.py").mkdir()
    (tmp_path / "a.py" / "a.py").write_text("import torch\ntorch.seed()\n")
    assert f"{tmp_path}/a.py/a.py:2:1 " in text_of(print_findings, scan([tmp_path / "a.py"]))


def test_csv_has_a_line_for_everything(tmp_path):
    rows = list(csv.reader(io.StringIO(to_csv(example(tmp_path)))))
    assert rows[0] == list(HEADER)
    assert [row[1] for row in rows[1:]] == ["project", "software", "hardware", "lint", "note"]
    assert all(len(row) == len(HEADER) for row in rows)


NAMES = [b"a\nb.py", b"\x1b[31mred.py", b"\xe9.py"]


def strange(tmp_path):
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(
            "import torch\ntorch.backends.cudnn.benchmark = True\n"
        )
    return scan([tmp_path])


def test_names_that_are_no_text_are_shown_without_obeying_them(tmp_path):
    text = text_of(print_findings, strange(tmp_path))
    assert "\x1b" not in text
    assert f"{tmp_path}/?[31mred.py:2:1 VB504" in text
    assert f"{tmp_path}/a?b.py:2:1 VB504" in text
    text.encode("utf-8")


def test_csv_and_sarif_of_such_names_are_unicode(tmp_path):
    found = strange(tmp_path)
    rows = list(csv.reader(io.StringIO(to_csv(found).encode("utf-8").decode("utf-8"))))
    assert {row[4] for row in rows if row[1] == "lint"} == {"a\nb.py", "\x1b[31mred.py", "\\udce9.py"}
    places = [
        r["locations"][0]["physicalLocation"] for r in json.loads(to_sarif(found, "1"))["runs"][0]["results"]
    ]
    uris = {place["artifactLocation"]["uri"] for place in places}
    assert {uri.rpartition("/")[2] for uri in uris} == {"a%0Ab.py", "%1B%5B31mred.py", "%E9.py"}


def test_csv_of_texts_with_returns_is_read_as_it_was_written(tmp_path):
    (tmp_path / "a\rb.py").write_text("import torch\ntorch.seed()\n")
    (tmp_path / "README.md").write_bytes(b"It runs\ron a V100.\r")
    rows = list(csv.reader(io.StringIO(to_csv(scan([tmp_path])), newline="")))
    assert all(len(row) == len(HEADER) for row in rows)
    assert "a\rb.py" in {row[4] for row in rows}


def test_csv_fields_are_no_longer_than_readers_take(tmp_path):
    (tmp_path / "requirements.txt").write_text("a" * 200_000 + "\n")
    rows = list(csv.reader(io.StringIO(to_csv(scan([tmp_path])))))
    assert max(len(field) for row in rows for field in row) <= 30_000
