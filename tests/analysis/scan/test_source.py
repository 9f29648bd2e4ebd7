from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.scan.source import (
    UnreadableError,
    as_older_python,
    comments,
    decode,
    decode_python,
    notebook_cells,
)


def test_a_coding_line_is_obeyed():
    text = "# -*- coding: latin-1 -*-\nname = 'é'\n"
    assert decode_python(text.encode("latin-1")) == (text, "")


def test_without_a_coding_line_it_is_utf_8_or_said_not_to_be():
    assert decode_python("x = 'é'\n".encode()) == ("x = 'é'\n", "")
    text, remark = decode_python("x = 'é'\n".encode("latin-1"))
    assert text == "x = 'é'\n"
    assert "read as Latin-1" in remark


def test_an_unknown_coding_is_told():
    text, remark = decode_python(b"# coding: klingon\nx = 1\n")
    assert "x = 1" in text
    assert "unknown encoding" in remark


def test_byte_order_marks_are_taken_off():
    assert decode_python(codecs.BOM_UTF8 + b"x = 1\n") == ("x = 1\n", "")
    text, remark = decode_python("x = 1\n".encode("utf-16"))
    assert text == "x = 1\n"
    assert "UTF-16" in remark


@pytest.mark.parametrize("data", [b"\0\1\2", codecs.BOM_UTF16_LE + b"\0\xd8", b"x = 1\n\0"])
def test_what_is_no_text_is_left_out(data):
    with pytest.raises(UnreadableError, match="not"):
        decode_python(data)


def test_prose_is_read_whatever_it_is_encoded_in():
    assert decode("é".encode("latin-1")) == "é"
    assert decode("é".encode("utf-16")) == "é"


@given(st.binary())
def test_prose_of_any_bytes_becomes_text(data):
    assert isinstance(decode(data), str)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = '# a'  # b # c\n", [(1, "# b # c")]),
        ('"""\n# a\n"""\n#b', [(4, "#b")]),
        ("x = 1 # a\r\ny = 2\r\n# b", [(1, "# a"), (3, "# b")]),
        ("print 'x' # a\n", [(1, "# a")]),
        ("x = (# a\n1 # b\n", [(1, "# a"), (2, "# b")]),
        ("if x:\n  y\n z # a\n", [(3, "# a")]),
        ("", []),
    ],
)
def test_comments_are_not_what_texts_have(text, found):
    assert comments(text) == found


@given(st.text())
def test_comments_of_any_text_are_found_or_not(text):
    assert all(line > 0 and comment.startswith("#") for line, comment in comments(text))


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ('f"{x["a"]} b"', "f\"{x['a']} b\""),
        ("f'{x['a']:>{w['b']}}'", 'f\'{x["a"]:>{w["b"]}}\''),
        ('f"{{" + g("{")', 'f"{{" + g("{")'),
        (r'f"{a(b + "\n")}\n"', r'''f"{a(b + '_n')}\n"'''),
        ('rf"{\', \'.join(x["a"])}"', "rf\"{', '.join(x['a'])}\""),
        ("class Box[T: list[int]](Base): x = 1", "class Box              (Base): x = 1"),
        ("def f[*P, **Q](x: P): pass", "def f         (x: P): pass"),
        ("async def f[\n    T,\n](x): pass", "async def f\\\n     \\\n (x): pass"),
        ("type Rows[T] = list[T]\ntype = x[0]", "Rows         = list[T]\ntype = x[0]"),
        ("x = [\n    type\n]\ntype(x)[0] == 1", "x = [\n    type\n]\ntype(x)[0] == 1"),
    ],
)
def test_what_python_has_since_3_12_is_read_by_older_ones(new: str, old: str):
    assert as_older_python(new) == old


def test_brackets_that_never_close_take_no_longer_than_others():
    assert len(as_older_python("class A[\n" * 200_000)) == 1_800_000


@pytest.mark.parametrize(
    ("magic", "read"),
    [
        ("!echo {f} \\\n    --more \\\n  a\nx = 1", "pass\n\n\nx = 1"),
        ("if y:\n    %run a.py \\\n --b\nx = 1", "if y:\n    pass\n\nx = 1"),
        ("z = !ls \\\n   -l\nx = 1", "z = None\n\nx = 1"),
        ("!ls \\\n\nx = 1", "pass\n\nx = 1"),
        ("!ls\nx = 1 + \\\n  2", "pass\nx = 1 + \\\n  2"),
        ("!ls \\", "pass"),
    ],
)
def test_a_magic_ends_where_its_last_line_does(magic: str, read: str):
    cells = [{"cell_type": "code", "source": magic}]
    assert [cell.text for cell in notebook_cells(json.dumps({"cells": cells}).encode())] == [read]


@pytest.mark.parametrize(
    "code",
    [
        "print(\n    'loss %.3f'\n    % loss.item()\n)",
        "if (\n    a\n    != b\n):\n    pass",
        "x = [\n    (a)\n    % b,  # )]\n    y\n    % z,\n]",
    ],
)
def test_an_operator_that_begins_a_line_within_brackets_is_no_magic(code: str):
    cells = [{"cell_type": "code", "source": f"%time\n{code}\n!ls (\n%pylab"}]
    (cell,) = notebook_cells(json.dumps({"cells": cells}).encode())
    assert cell.text == f"pass\n{code}\npass\npass"


@pytest.mark.parametrize("code", ["x = '('  # [", '"""\n( it\'s\n"""', r"x = '\'('", "x = ''"])
def test_brackets_of_texts_and_comments_hide_no_magic(code: str):
    cells = [{"cell_type": "code", "source": f"{code}\n%time"}]
    (cell,) = notebook_cells(json.dumps({"cells": cells}).encode())
    assert cell.text == f"{code}\npass"


@given(st.text(alphabet="([{)]}%!?'\"#\\\n ax="))
def test_any_cell_keeps_its_lines(code: str):
    cells = [{"cell_type": "code", "source": code}]
    for cell in notebook_cells(json.dumps({"cells": cells}).encode()):
        assert cell.text.count("\n") == code.count("\n")


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({"kernelspec": {"language": "julia", "name": "julia-1.9"}}, "julia"),
        ({"kernelspec": {"name": "ir"}, "language_info": {"name": "R"}}, "R"),
        ({"kernelspec": {"language": "python"}, "language_info": {"name": "R"}}, ""),
        ({"language_info": {"name": "pyspark"}}, ""),
        ({"kernelspec": {"language": "", "name": "x"}, "language_info": 3}, ""),
        ({"kernelspec": ["julia"], "language_info": {"name": None}}, ""),
        (None, ""),
    ],
)
def test_notebooks_of_other_languages_are_left_out(metadata: object, language: str):
    cells = [{"cell_type": "code", "source": "x = 1"}]
    data = json.dumps({"cells": cells, "metadata": metadata}).encode()
    if language:
        with pytest.raises(UnreadableError, match=f"^is a notebook of {language}; left out$"):
            notebook_cells(data)
    else:
        assert [cell.text for cell in notebook_cells(data)] == ["x = 1"]
