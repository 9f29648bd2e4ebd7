from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.scan.lint.lint import lint_file
from analysis.scan.lint.programs.differ import differing
from analysis.scan.lint.programs.judge import lint_project
from analysis.scan.lint.programs.program import programs
from analysis.scan.lint.rules import RULES, chosen, examples, explained
from analysis.scan.results import Level
from analysis.scan.run import scan
from tests.analysis.scan.corpus import Snippet, snippets

EVERY = frozenset(RULES)


def findings(text: str | bytes, path: str = "main.py", rules: frozenset[str] = EVERY):
    facts = lint_file(path, text.encode() if isinstance(text, str) else text)
    return lint_project([facts], {}, rules)


def notes(data: bytes, path: str = "main.py") -> list[str]:
    return [note.text for note in lint_file(path, data).notes]


@pytest.mark.parametrize("snippet", snippets(), ids=lambda snippet: snippet.name)
def test_the_labelled_corpus(snippet: Snippet):
    assert snippet.found() == snippet.expected()


def test_the_corpus_has_every_rule_and_snippets_without_findings():
    everything = [snippet.expected() for snippet in snippets()]
    assert {rule for expected in everything for rule, _, _ in expected} == set(RULES)
    assert sum(not expected for expected in everything) >= 40


def test_a_finding_says_where_why_and_what_to_do():
    (found,) = findings("import torch\nif True:\n    torch.backends.cudnn.benchmark = True\n")
    assert (found.rule, found.level, str(found.place)) == ("VB504", Level.WARNING, "main.py:3:5")
    assert found.why
    assert found.advice


# ---- notebooks


def notebook(*cells: str) -> bytes:
    prose = {"cell_type": "markdown", "source": ["# title"]}
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [prose, *code], "nbformat": 4}).encode()


def test_places_in_notebooks_are_cells_and_their_lines():
    first = "import torch\nfrom torch import nn\n"
    second = "%matplotlib inline\n!pip install x\nnet = nn.Linear(1, 2)\nnet(x).sum().backward(); o.step()"
    data = notebook(first, second)
    found = findings(data, "a.ipynb", chosen(("VB101",), ()))
    assert [(f.place.cell, f.place.line, f.place.column) for f in found] == [(3, 3, 7)]
    assert str(found[0].place) == "a.ipynb:cell 3:3:7"


def test_a_broken_cell_costs_no_other():
    data = notebook("import torch", "def f(:", "torch.backends.cudnn.benchmark = True")
    assert [f.place.cell for f in findings(data, "a.ipynb")] == [4]
    assert notes(data, "a.ipynb") == ["cell 3, line 1: invalid syntax; not linted"]


def test_cells_in_other_languages_are_left_out():
    data = notebook(
        "%%bash\nfor f in *; do echo $f; done", "%%time\nimport torch\ntorch.seed()", "files = !ls\n?x"
    )
    assert notes(data, "a.ipynb") == []
    assert [f.rule for f in findings(data, "a.ipynb")] == ["VB104"]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff\xfe", b'{"cells": 3}', b"[" * 100_000])
def test_what_is_no_notebook_is_said_to_be_none(data):
    (note,) = notes(data, "a.ipynb")
    assert "not a notebook" in note


# ---- bad input


def test_python_2_is_named_and_linted_where_it_can_be_read():
    assert notes(b"import torch\nprint 'hello'\n") == [
        "line 2: is Python 2, which ended in 2020; linted as Python 3"
    ]
    assert notes(b"def f(a, (b, c)):\n    print 'hello'\nraise f, 'x'\nprint 3\n")[0].endswith("; not linted")
    assert "Python 2" in notes(b"try:\n    pass\nexcept IOError, e:\n    pass\n")[0]


def test_broken_syntax_is_told_with_its_line():
    assert notes(b"x = 1\ndef f(:\n") == ["line 2: invalid syntax; not linted"]


def test_an_error_after_a_bare_carriage_return_has_its_line():
    assert notes(b"\r\x01")[0].startswith("line 2: ")


def test_a_conflict_of_git_is_no_python_2():
    (note,) = notes(b"x = 1\n<<<<<<< HEAD\nx = 2  # <> 3\n=======\n>>>>>>> other\n")
    assert note == "line 2: invalid syntax; not linted"


@pytest.mark.needs("studies")
def test_deep_nesting_is_no_crash():
    (note,) = notes(b"import torch\nx = " + b"(" * 5000 + b")" * 5000)
    assert "not linted" in note
    assert findings("import torch\nx = " + " + ".join(["1"] * 20_000)) == ()
    chain = "import torch\n" + "if a:\n    pass\n" + "elif b:\n    pass\n" * 900
    assert findings(chain) == ()
    dots = "import torch\nx = a" + ".b()" * 3000 + "\n"
    assert isinstance(findings(dots), tuple)
    squares = "import torch\nx = 'a'\n" + "x = x * x\n" * 60 + "x = x + x\n" * 60
    assert findings(squares) == ()


@pytest.mark.parametrize("value", ["0x" + "f" * 5000, "f\"{r['\u3000']}\"", " + ".join(["'a'"] * 700)])
def test_what_cannot_be_written_as_text_again_is_no_crash(value: str):
    text = f"import os, torch\nrows.append({value})\nif os.path.exists({value}):\n    load({value})\n"
    assert notes((text + f"torch.save(net, {value})\nfit()\n").encode()) == []
    assert findings(text) == ()


def test_an_empty_file_has_nothing():
    assert findings("") == ()
    assert notes(b"") == []


@given(st.text())
def test_arbitrary_text_never_crashes(text):
    findings(text)


@given(st.binary())
def test_arbitrary_bytes_never_crash(data):
    findings(data)
    findings(data, "a.ipynb")


_PIECES = st.sampled_from(
    """\
import torch
import numpy as np
from torch import *
x = os.listdir(d)
torch.manual_seed(0)
x.sort()
for i in x:
    y.append(i)
def f(self, *a, **k):
    return set(a)
class C(C):
    def __init__(self): self.x = C()
f()
C().f()
lambda: f
random.seed()
os.environ['OMP_NUM_THREADS'] = '1'
@f
async def g(): await f()
match x:
    case [a, *_]: pass
x: int
y += [i for i in {*x}]
with open(f) as (a, b): pass
torch.nn.Linear(*a, **k).backward()
DataLoader(**k)
from . import y
from ...z import w
x = y = z""".splitlines()
)


@given(st.lists(_PIECES, max_size=12))
def test_any_mixture_of_code_is_walked(lines):
    findings("\n".join(lines))


# ---- silencing, choosing


def test_ignore_comments_name_rules_their_beginnings_or_none():
    text = "import torch\ntorch.backends.cudnn.benchmark = True  {}\n"
    silent = (
        "# vbstudy: ignore",
        "# vbstudy: ignore[VB504]",
        "#vbstudy:ignore[vb5]",
        "# vbstudy: ignore[VB1, VB504]",
        "# vbstudy: ignore[VB1] # vbstudy: ignore[VB504]",
    )
    heard = ("", "# vbstudy: ignore[VB101]", "# vbstudy: ignore[]")
    for comment in (*silent, *heard):
        assert len(findings(text.format(comment))) == (comment in heard), comment


def test_a_text_that_has_such_a_comment_silences_nothing():
    text = "import torch\nx = '# vbstudy: ignore'; torch.backends.cudnn.benchmark = True\n"
    assert [found.rule for found in findings(text)] == ["VB504"]
    assert notes(text.encode()) == []


def test_select_and_ignore_choose_rules_by_their_beginnings():
    assert chosen((), ()) == EVERY - {"VB201", "VB202", "VB503", "VB601", "VB602", "VB604"}
    assert chosen(("VB6",), ("VB603",)) == {"VB601", "VB602", "VB604"}
    assert chosen(("VB1",), ("VB104", "VB105")) == {"VB101", "VB102", "VB103", "VB106", "VB107"}
    with pytest.raises(ValueError, match="there is no rule VB9"):
        chosen(("VB9",), ())


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_an_example_that_fails_and_one_that_passes(rule: str):
    example = examples()[rule]
    assert rule in {found.rule for found in findings(example.fails, rules=frozenset([rule]))}
    assert findings(example.passes, rules=frozenset([rule])) == ()
    assert notes(example.fails.encode()) == notes(example.passes.encode()) == []


def test_comments_that_silence_nothing_any_more_are_noted():
    silent = "import torch\ntorch.backends.cudnn.benchmark = {}  # vbstudy: ignore[VB5]\n"
    for value, noted in (("True", []), ("False", ["line 2: # vbstudy: ignore[VB5] silences nothing"])):
        facts = lint_file("main.py", silent.format(value).encode())
        assert lint_project([facts], {}, chosen(("VB1",), ())) == (), "whichever rules were chosen"
        assert [note.text for note in facts.notes] == noted
    facts = lint_file("a.ipynb", notebook("x = 1", "y = 2  # vbstudy: ignore"))
    lint_project([facts], {}, EVERY)
    assert [note.text for note in facts.notes] == ["cell 3, line 1: # vbstudy: ignore silences nothing"]


def test_a_rule_is_explained_with_its_examples():
    text = explained("VB602")
    assert text.startswith("VB602 (warning): test data are shuffled\nTo do: pass shuffle=False.\n")
    assert "Off by default; select it with --extend-select VB602." in text
    assert "    test_loader = DataLoader(test_set, shuffle=True)\n" in text
    with pytest.raises(ValueError, match="there is no rule VB9"):
        explained("VB9")
    with pytest.raises(ValueError, match="VB1 is a prefix of several rules; give one"):
        explained("VB1")


# ---- versions, modes


def test_what_an_operation_does_depends_on_the_version():
    text = "import torch\ntorch.use_deterministic_algorithms(True)\ntorch.nn.ReplicationPad2d(1)\n"
    facts = [lint_file("main.py", text.encode())]
    rules = chosen(("VB5",), ())
    assert lint_project(facts, {("", "torch"): "2.1.0"}, rules)[0].rule == "VB502", "2.1 raises"
    assert lint_project(facts, {("", "torch"): "2.2.0"}, chosen(("VB5",), ())) == (), "2.2 switches"
    assert lint_project(facts, {}, chosen(("VB5",), ())) == (), "the newest switches"


def test_operations_are_one_finding_a_program_and_rule():
    text = "import torch\nfrom torch import nn\nx.cuda()\na = [nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)]\n"
    text += "b = y.gather(1, x)\nx.backward()\no.step()\n"
    (found,) = findings(text, rules=chosen(("VB501",), ()))
    assert found.why == (
        "Conv2d (2) differ on CUDA tensors, gather (1) in the gradient on CUDA; "
        "torch.use_deterministic_algorithms(True) prevents it"
    )


def test_recurrent_layers_differ_unless_cublas_has_its_workspace():
    text = "import os\nimport torch\n{}\na = torch.nn.LSTM(1, 2).cuda()\nx.backward()\no.step()\n"
    rules = chosen(("VB501",), ())
    (found,) = findings(text.format(""), rules=rules)
    assert found.why.startswith("LSTM differs")
    assert findings(text.format('os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"'), rules=rules) == ()
    (found,) = findings(text.format("b = torch.nn.Conv2d(1, 2, 3)"), rules=rules)
    assert (found.place.line, found.why.startswith("Conv2d (1) differs")) == (3, True)


def test_what_prevents_it_in_tensorflow_1_is_a_variable():
    text = b"import tensorflow as tf\na = tf.layers.conv2d(x, 1, 2)\n"
    (found,) = lint_project(
        [lint_file("main.py", text)], {("", "tensorflow"): "1.15"}, chosen(("VB501",), ())
    )
    assert "TF_DETERMINISTIC_OPS=1" in found.why


def test_of_a_project_that_trains_only_what_training_includes_is_told():
    train = lint_file("main.py", b"import torch\nimport net\nx.backward()\n")
    net = lint_file("net.py", b"import torch\nc = torch.nn.Conv2d(1, 2, 3)\n")
    other = lint_file("other.py", b"import torch\nc = torch.nn.Conv2d(1, 2, 3)\n")
    rules = chosen(("VB501",), ())
    assert [f.place.path for f in lint_project([train, net, other], {}, rules)] == ["net.py"]
    assert [f.place.path for f in lint_project([net, other], {}, rules)] == ["net.py"], "a library"


def test_of_a_project_that_trains_nothing_no_gradient_is_told():
    text = "import torch\nfrom sklearn.metrics import f1_score\nnet = torch.nn.Conv2d(1, 2, 3).cuda()\n"
    text += "net.load_state_dict(torch.load('net.pt'))\n"
    assert findings(text + "print('F1', f1_score(y, net(x)))\n", rules=chosen(("VB501",), ())) == ()


def test_an_operation_of_a_model_that_no_training_builds_is_not_told():
    text = "import torch\n"
    for name in ("Used", "Unused"):
        text += f"class {name}(torch.nn.Module):\n"
        text += "    def __init__(self):\n        self.c = torch.nn.Conv2d(1, 2, 3)\n"
    nets = lint_file("nets.py", text.encode())
    start = b"import torch\nfrom nets import Used, Unused\n"
    rules = chosen(("VB501",), ())
    for built in ("Used", "Unused"):
        train = lint_file("main.py", start + f"{built}().cuda()(x).sum().backward()\no.step()\n".encode())
        (found,) = lint_project([train, nets], {}, rules)
        assert found.place.line == {"Used": 4, "Unused": 7}[built]


def test_a_file_counts_for_the_first_program_that_builds_something_in_it():
    text = "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
    net = lint_file("net.py", (text + "        self.c = torch.nn.Conv2d(1, 2, 3)\n").encode())
    start = "import torch\nfrom net import Net\n"
    a = lint_file("a.py", (start + "x.sum().backward()\no.step()\n").encode())
    b, c = (
        lint_file(path, (start + "Net().cuda()(x).sum().backward()\no.step()\n").encode())
        for path in ("b.py", "c.py")
    )
    rules = chosen(("VB501",), ())
    assert lint_project([a, net], {}, rules) == ()
    assert [f.place.path for f in lint_project([a, b, c, net], {}, rules)] == ["net.py"]


def test_a_notebook_that_trains_nothing_is_no_library():
    cell = {"cell_type": "code", "source": "import torch\nc = torch.nn.Conv2d(1, 2, 3)\n"}
    data = json.dumps({"cells": [cell], "nbformat": 4}).encode()
    assert findings(data, "a.ipynb", chosen(("VB501",), ())) == ()
    assert len(findings(cell["source"], "a.py", chosen(("VB501",), ()))) == 1


def test_orders_that_no_training_reaches_are_told_where_orders_are_selected():
    train = lint_file("main.py", b"import torch\nx.backward()\no.step()\n")
    read = lint_file("read.py", b"import os, torch\ndef read():\n    return list(os.listdir('d'))\n")
    assert lint_project([train, read], {}, frozenset(("VB301",))) == ()
    (found,) = lint_project([train, read], {}, chosen(("VB301",), ()))
    assert (found.rule, found.place.line) == ("VB301", 3)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("", "gives a fixed seed (line 7) only if a user gives one"),
        (", default=None", "gives a fixed seed (line 7) only if a user gives one"),
        (", default=3", ""),
    ],
)
def test_a_seed_that_a_user_may_leave_out_is_said_to_be_one(option: str, said: str):
    text = "import argparse\nimport torch\nparser = argparse.ArgumentParser()\n"
    text += f"parser.add_argument('--seed', type=int{option})\noptions = parser.parse_args()\n"
    text += "if options.seed is not None:\n    torch.manual_seed(options.seed)\n"
    text += "torch.nn.Linear(1, 1)(x).sum().backward(); optimizer.step()\n"
    found = findings(text, rules=chosen(("VB101",), ()))
    assert [said in each.why for each in found] == [True] * bool(said)


def test_a_model_of_stable_baselines_is_told_to_take_a_seed():
    text = "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1').learn(1000)\n"
    whys = [each.why for each in findings(text, rules=chosen(("VB101",), ()))]
    assert [why.rpartition("; ")[2] for why in whys] == ["PPO(..., seed=seed) does"] * 2


def test_a_program_with_sessions_is_told_the_functions_of_tensorflow_1():
    text = (
        "import tensorflow as tf\nw = tf.nn.conv2d(x, tf.Variable(tf.truncated_normal([3, 3])), 1, 'SAME')\n"
    )
    text += "step = tf.train.AdamOptimizer().minimize(w)\ntf.Session().run(step)\n"
    whys = {each.rule: each.why for each in findings(text, rules=chosen(("VB101", "VB501"), ()))}
    assert whys["VB101"].endswith("; tf.set_random_seed(seed) does")
    assert "TF_DETERMINISTIC_OPS" in whys["VB501"]
    later = {each.rule: each.why for each in findings(text.replace("tf.Session().run", "print"))}
    assert later["VB101"].endswith("; keras.utils.set_random_seed(seed) does")


@pytest.mark.parametrize(("pin", "found"), [("1.8.1", ["numpy"]), ("1.9.0", []), ("2.1.0", [])])
def test_workers_of_an_old_pytorch_leave_numpys_generator_unseeded(pin: str, found: list[str]):
    text = "import random\nimport numpy as np\nimport torch\ntorch.manual_seed(0)\nclass Rows:\n"
    text += "    def __getitem__(self, i):\n        return np.random.rand(3) + random.random()\n"
    text += "for x in torch.utils.data.DataLoader(Rows(), num_workers=2):\n"
    text += "    net(x).sum().backward(); optimizer.step()\n"
    facts = lint_file("main.py", text.encode())
    whys = [each.why for each in lint_project([facts], {("", "torch"): pin}, chosen(("VB101",), ()))]
    assert [why.partition(".")[0] for why in whys] == found


def test_of_an_old_torch_convolutions_are_told_with_what_it_has():
    facts = [lint_file("main.py", b"import torch\nc = torch.nn.Conv2d(1, 2, 3)\n")]
    (found,) = lint_project(facts, {("", "torch"): "1.4.0"}, chosen(("VB501",), ()))
    assert "cudnn.deterministic = True prevents it" in found.why


def test_pins_apply_to_the_folder_that_they_are_in():
    text = b"import torch\nx.cuda()\nc = torch.nn.ReplicationPad2d(1)\n"
    facts = [lint_file(path, text) for path in ("old/main.py", "new/main.py", "main.py")]
    pins = {("old", "torch"): "1.7", ("new", "torch"): "2.2"}
    found = {use.file.path: use.rule for fact in facts for use in differing([fact], programs([fact]), pins)}
    assert found == {"old/main.py": "VB502", "new/main.py": "VB501", "main.py": "VB501"}
    assert [use.rule for use in differing(facts[2:], [], {("env", "torch"): "1.7"})] == ["VB502"]


def test_levels_tell_a_gpu_program_from_one_that_may_not_be():
    text = "import torch\n{}torch.nn.Conv2d(1, 2, 3)\n"
    assert findings(text.format(""))[0].level is Level.NOTE
    assert findings(text.format("x.cuda()\n"))[0].level is Level.WARNING


def test_an_order_is_a_warning_where_there_are_data_and_else_a_note():
    text = "import os\n{}\nfiles = []\nfor f in os.listdir('.'):\n    files.append(f)\nuse(files)\n"
    assert findings(text.format("import torch"))[0].level is Level.WARNING
    assert findings(text.format("import numpy\nnumpy.save(x, y)"))[0].level is Level.WARNING
    assert findings(text.format("import json"))[0].level is Level.NOTE


def test_an_order_that_is_only_handed_on_is_a_note():
    text = "import os\nimport numpy\n{}\nuse(files, x)\n"
    for handed_on in ("files = [f for f in os.listdir('.')]", "x = list({a.name, b.name})"):
        (found,) = findings(text.format(handed_on), rules=frozenset(["VB301", "VB302"]))
        assert found.level is Level.NOTE


@pytest.mark.parametrize(
    "numbering",
    [
        "index = {w: i for i, w in enumerate(words)}",
        "index = {i: w for i, w in enumerate(words)}",
        "index = {}\nfor i, w in enumerate(words):\n    index[w] = i",
    ],
)
@pytest.mark.parametrize("made", ["words = list(set(text.split()))", "words = tuple({a.name, b.name})"])
def test_numbers_in_the_order_of_a_set_of_texts_are_a_warning(made: str, numbering: str):
    begin, end = f"import torch\n{made}\n", f"{numbering}\nuse(index)\n"
    (found,) = findings(begin + end, rules=frozenset(["VB302"]))
    assert found.level is Level.WARNING
    assert not findings(f"{begin}words = sorted(words)\n{end}", rules=frozenset(["VB302"]))


def test_readmes_do_not_pin_the_version_whose_behaviour_is_told(tmp_path):
    (tmp_path / "README.md").write_text("    pip install torch==1.7\n")
    (tmp_path / "main.py").write_text("import torch\nx = torch.nn.ReplicationPad2d(1)\n")
    assert [f.rule for f in scan([tmp_path], jobs=1).projects[0].findings] == ["VB501"]
    (tmp_path / "requirements.txt").write_text("torch==1.7\n")
    assert [f.rule for f in scan([tmp_path], jobs=1).projects[0].findings] == ["VB502"]


def test_an_operation_that_raises_under_the_mode_is_an_error_on_cuda():
    text = "import torch\ntorch.use_deterministic_algorithms(True)\nx.cuda()\ntorch.nn.CTCLoss()\n"
    assert [(f.rule, f.level) for f in findings(text, rules=chosen(("VB502",), ()))] == [
        ("VB502", Level.ERROR)
    ]
    warned = text.replace("(True)", "(True, warn_only=True)")
    assert findings(warned, rules=chosen(("VB502",), ()))[0].level is Level.WARNING


@pytest.mark.parametrize(
    ("comment", "text"),
    [
        ("# vbstudy: ignore[VB31]", "line 2: there is no rule VB31"),
        ("# vbstudy: ignor[VB301]", "line 2: # vbstudy: ignor[VB301] is not known"),
        ("# vbstudy: ignore VB301", "line 2: # vbstudy: ignore VB301 is not known"),
        ("# vbstudy: noqa", "is not known, so it silences nothing"),
    ],
)
def test_a_comment_that_silences_nothing_is_told(comment: str, text: str):
    program = f"import os\nx = list(os.listdir('.'))  {comment}\nuse(x)\n"
    assert [f.rule for f in findings(program)] == ["VB301"]
    (note,) = notes(program.encode())
    assert text in note


@pytest.mark.parametrize(
    "comment",
    [
        "# vbstudy: ignore",
        "#vbstudy:ignore[vb301]",
        "# vbstudy: ignore[VB3, VB101]",
        "# vbstudy: ignore[VB301] # why",
        "# vbstudy: ignore[VB301] reason: one file",
    ],
)
def test_a_comment_that_silences_says_nothing(comment: str):
    program = f"import os\nx = list(os.listdir('.'))  {comment}\n"
    assert findings(program) == ()
    assert notes(program.encode()) == []


# ---- pictures in notebooks


@pytest.mark.parametrize(
    ("last", "rules"),
    [
        ("plt.imshow(data[index])", []),  # no other cell reads what was drawn
        ("pick = index", ["VB101"]),
        ("plt.imshow(data[index])\nnp.save('some.npy', index)", ["VB101"]),
    ],
)
def test_what_a_cell_draws_for_a_picture_is_no_finding(last, rules):
    cells = (
        "import random, torch\nimport numpy as np\nimport matplotlib.pyplot as plt\ntorch.manual_seed(1)",
        f"index = random.randint(0, 9)\n{last}",
        "net = torch.nn.Linear(1, 2)\nnet(x).sum().backward()\noptimizer.step()",
    )
    assert [f.rule for f in findings(notebook(*cells), "a.ipynb", frozenset(("VB101",)))] == rules


def test_what_a_cell_draws_and_shows_and_another_reads_is_a_finding():
    cells = (
        "import random\nimport torch\nimport matplotlib.pyplot as plt\ntorch.manual_seed(1)",
        "index = random.randint(0, 9)\nplt.imshow(data[index])",
        "net = torch.nn.Linear(1, 2)\nnet(data[index]).sum().backward()\noptimizer.step()",
    )
    (found,) = findings(notebook(*cells), "a.ipynb", frozenset(("VB101",)))
    assert (found.place.cell, found.place.line) == (3, 1)


def test_operations_that_several_programs_train_are_one_finding_that_names_them():
    net = (
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def __init__(self):\n        self.layer = torch.nn.Conv2d(1, 2, 3)\n"
    )
    training = (
        "import torch\nfrom net import Net\nmodel = Net().cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "model(rows).sum().backward()\noptimizer.step()\n"
    )
    texts = {"net.py": net, "first.py": training, "second.py": training}
    facts = [lint_file(path, text.encode()) for path, text in texts.items()]
    (found,) = lint_project(facts, {}, frozenset({"VB501"}))
    assert found.place.path == "net.py"
    assert found.why.endswith("; programs: first.py, second.py")


@pytest.mark.parametrize(
    ("embedding", "rules"),
    [
        ("sklearn.manifold import TSNE", []),
        ("PyQt5.QtWidgets import QApplication", []),
        ("sklearn.decomposition import PCA", ["VB301"]),
    ],
)
def test_an_order_of_which_only_a_picture_is_made_does_not_matter(embedding: str, rules: list[str]):
    name = embedding.rpartition(" ")[2]
    text = (
        f"import glob\nimport json\nimport numpy as np\nfrom {embedding}\n"
        "rows = [np.load(path) for path in glob.glob('rows/*.npy')]\n"
        f"points = {name}(2).fit_transform(np.stack(rows))\n"
        "json.dump(points.tolist(), open('points.json', 'w'))\n"
    )
    assert [found.rule for found in findings(text, rules=frozenset({"VB301"}))] == rules


@pytest.mark.parametrize(("stated", "found"), [("2.9", 0), ("2.10", 1), ("2.15", 1), ("3.0", 1), ("1.15", 0)])
def test_which_generator_decides_the_weights_of_keras_depends_on_the_version(stated, found):
    text = "import tensorflow as tf\ntf.random.set_seed(1)\nm = tf.keras.Model(tf.keras.layers.Dense(1))\n"
    facts = [lint_file("main.py", f"{text}m.fit(x)\n".encode())]
    assert len(lint_project(facts, {("", "keras"): stated}, frozenset(("VB101",)))) == found
    facts = [lint_file("main.py", f"import random\nrandom.seed(1)\n{text}m.fit(x)\n".encode())]
    assert lint_project(facts, {("", "keras"): stated}, frozenset(("VB101",))) == ()


def test_a_cell_that_plays_what_it_draws_matters_to_nobody():
    fit = "import numpy as np\nimport torch\ntorch.manual_seed(1)\nloss.backward()\noptimizer.step()\n"
    one = "some = np.random.choice(sounds, 5)\nfor each in some:\n    listen(each)\n"
    rules = frozenset(("VB101",))
    assert findings(notebook(fit, one, one.replace("sounds", "more")), "a.ipynb", rules) == ()
    assert findings(notebook(fit, one, "keep(some)\n"), "a.ipynb", rules)


def test_an_estimator_without_an_argument_for_threads_is_told_what_sets_them():
    text = (
        "from sklearn.neural_network import MLPClassifier\nMLPClassifier(random_state=0).fit(rows, labels)\n"
    )
    (found,) = findings(text, rules=frozenset(("VB401",)))
    assert found.why.endswith("; OMP_NUM_THREADS or threadpoolctl sets it")
