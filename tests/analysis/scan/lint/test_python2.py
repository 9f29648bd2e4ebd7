from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.scan.lint.lint import lint_file
from analysis.scan.lint.programs.judge import lint_project
from analysis.scan.lint.python2 import as_python_3


@pytest.mark.parametrize(
    "text",
    [
        "print 'a', b,\n",
        "print\n",
        "for x in y: print x; print\n",
        "print >>log, 'loss', x\n",
        'print"%d" % n\n',
        "print [2 ** i for i in x]\n",
        "print not x\n",
        "try:\n    pass\nexcept (IOError, OSError), e:\n    raise ValueError, 'no'\n",
        "try:\n    pass\nexcept IOError, e:\n    raise\n",
        "exec 'x = 1'\nexec code in names\n",
        "if `x` <> '3': y = 0755 + 10L + 0xFFL\n",
        "x = ur'a' + u'b'\n",
        "f = lambda (a, b): a + b\n",
        "x = x.cuda(async=True)\n",
        "if x:\n        y = 1\n\tz = 2\n",
        "print 'a %s' % \\\n    x\n",
    ],
)
def test_statements_of_python_2_can_be_read(text: str):
    rewritten = as_python_3(text)
    ast.parse(rewritten)
    assert rewritten.count("\n") == text.count("\n")


@pytest.mark.parametrize("text", ["rate = 5e-04\n", "print(x)\n", "x = 1 if y else 0\n", "name = '007'\n"])
def test_what_both_have_stays_as_it_is(text: str):
    assert as_python_3(text) == text


def test_a_file_of_both_runs_on_neither_and_is_not_read():
    text = "print 'a'\nx = f'{y}'\n"
    assert as_python_3(text) == text


def test_draws_of_python_2_are_found():
    text = "import random\nimport pickle\n\nrows = range(9)\nprint 'split', rows\n"
    text += "train = random.sample(rows, 6)\npickle.dump(train, open('train.pkl', 'w'))\n"
    facts = lint_file("split.py", text.encode())
    found = lint_project([facts], {}, frozenset(("VB101",)))
    assert [(each.rule, each.place.line) for each in found] == [("VB101", 6)]


@pytest.mark.parametrize("line", ["print('x', 'y')", "print(f'{x} y')", "print('é');\tx"])
def test_async_is_a_name_until_python_3_6(line: str):
    text = f"import random\n{line}; x = y.cuda(async=True); random.shuffle(x)\n"
    text += "loss.backward()\noptimizer.step()\n"
    facts, newer = (lint_file("train.py", each.encode()) for each in (text, text.replace("async", "other")))
    assert [note.text for note in facts.notes] == [
        "line 2: async is a keyword since Python 3.7; linted as a name"
    ]
    found, expected = (lint_project([each], {}, frozenset(("VB101",))) for each in (facts, newer))
    assert found == expected != []


def test_what_python_2_prints_into_a_file_is_written():
    text = "import os\nrows = open('rows.txt', 'w')\nfor name in os.listdir('train'):\n    rows.write(name)\n"
    for written in (text, text.replace("rows.write(name)", "print >>rows, name; print 'one'")):
        facts = lint_file("prepare.py", written.encode())
        assert [each.place.line for each in lint_project([facts], {}, frozenset(("VB301",)))] == [3]


@given(st.text(alphabet="print exec raise,:;()[]`'\"<>0789Lu\n\tx=", max_size=60))
def test_any_text_is_rewritten_without_an_error(text: str):
    assert as_python_3(text).count("\n") == text.count("\n")
