"""What a program as it is written does not do: branches that no constant takes, models that take no gradient,
files that nothing imports."""

from __future__ import annotations

import json

import pytest

from analysis.scan.lint.lint import lint_file
from analysis.scan.lint.programs.judge import lint_project
from analysis.scan.lint.rules import RULES, chosen
from analysis.scan.results import Level

START = "import torch\nfrom transformers import AutoModelForMaskedLM, AutoModelForCausalLM\n"
TRAINS = "net.cuda()(x).sum().backward()\no.step()\n"


def found(*cells: str, rule: str):
    data = {"cells": [{"cell_type": "code", "source": c} for c in cells], "nbformat": 4}
    every = lint_project([lint_file("a.ipynb", json.dumps(data).encode())], {}, chosen((rule,), ()))
    return [(each.place.cell, each.place.line) for each in every]


def lines(text: str, rule: str):
    every = lint_project([lint_file("main.py", text.encode())], {}, frozenset(RULES))
    return [each.place.line for each in every if each.rule == rule]


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        ("MODE == 'train'", False),
        ("MODE != 'train'", True),
        ("not MODE", False),
        ("MODE is None or x", True),
        ("MODE is None and x", False),
        ("x and MODE", True),
        ("OPEN", True),
        ("not 'some notes'", False),
        ("name == 'train'", True),
    ],
)
def test_a_branch_that_no_constant_takes_is_not_run(test: str, runs: bool):
    text = "import numpy as np\nMODE = 'test'\nOPEN = 0\nOPEN = 1\n"
    text += f"def f(name, x):\n    if {test}:\n        np.random.seed()\n"
    assert lines(text, "VB104") == ([7] if runs else [])


def test_the_other_branch_of_a_constant_that_holds_is_not_run():
    text = "import numpy as np\nSEED = 3\nif SEED is not None:\n    pass\nelse:\n    np.random.seed()\n"
    assert lines(text, "VB104") == []
    assert lines(text + "def f():\n    global SEED\n    SEED = None\n", "VB104") == [6]


def test_a_model_that_another_one_replaces_takes_no_gradient():
    first = "net = AutoModelForMaskedLM.from_pretrained(a)\nprint(net)\n"
    second = "net = AutoModelForCausalLM.from_pretrained(a)\n"
    assert found(START, first, second + TRAINS, rule="VB501") == [(3, 1)]
    assert found(START, first, TRAINS, second, rule="VB501") == [(2, 1)]


@pytest.mark.parametrize(
    ("use", "is_idle"),
    [
        ("with torch.no_grad():\n    y = other(x)\n", True),
        ("other.eval()\ny = other.generate(x)\n", True),
        ("@torch.no_grad()\ndef f(x):\n    return other(x)\n", True),
        ("other = other.to(d).eval()\ny = other.generate(x)\n", True),
        ("y = other.to(d)(x)\n", False),
        ("y = other(x)\n", False),
        ("y = other.generate(x)\no = SGD(other.parameters())\n", False),
        ("y = other.generate(x)\nfit(other)\n", False),
    ],
)
def test_a_model_that_only_answers_takes_no_gradient(use: str, is_idle: bool):
    made = "net = make()\nother = AutoModelForCausalLM.from_pretrained(a)\n"
    assert found(START, made, use, TRAINS, rule="VB501") == ([] if is_idle else [(2, 2)])


def test_a_model_of_a_class_that_only_answers_takes_no_gradient():
    text = START + "class Reader:\n    def __init__(self):\n        self.model = None\n"
    text += "        self.model = AutoModelForMaskedLM.from_pretrained(a)\n"
    text += "    def read(self, x):\n        with torch.no_grad():\n            return self.model(x)\n"
    assert found(text, "Reader().read(x)\n" + TRAINS, rule="VB501") == []
    text += "    def fit(self, x):\n        return self.model(x)\n"
    assert found(text, "Reader().fit(x)\n" + TRAINS, rule="VB501") == [(1, 6)]


def test_networks_that_nothing_imports_are_reported_where_a_text_decides_what_is_imported():
    net = b"import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
    net += b"        self.c = torch.nn.Conv2d(1, 2, 3)\n"
    for library, expected in (("json", []), ("importlib", ["net.py"])):
        main = f"import torch\nimport {library}\n{TRAINS}".encode()
        every = lint_project(
            [lint_file("main.py", main), lint_file("net.py", net)], {}, chosen(("VB501",), ())
        )
        assert [each.place.path for each in every] == expected


def test_a_hash_in_a_service_beside_a_training_is_no_matter():
    train = lint_file("main.py", b"import torch\nx.backward()\no.step()\n")
    app = lint_file("app.py", b"import streamlit\nk = hash(name) % 9\n")
    assert lint_project([train, app], {}, chosen(("VB303",), ())) == ()
    assert len(lint_project([app], {}, chosen(("VB303",), ()))) == 1


def test_a_list_that_is_counted_is_no_order_where_functions_have_lists_of_the_same_name():
    text = "import os\nfiles = os.listdir(a)\nassert len(files) > 3\n"
    text += "def f():\n    files = sorted(os.listdir(b))\n    return files[1:]\nfiles = f()\n"
    text += "import torch\nx.backward()\no.step()\n"
    assert lines(text, "VB301") == []


@pytest.mark.parametrize(
    ("use", "matters"),
    [
        ("for i in chosen:\n    listen(clips[i])\n", False),
        ("for i in range(9):\n    if i in chosen:\n        write(clips[i])\n", True),
        ("save(x, f'{folder}/image_{chosen}.png')\n", False),
        ("x = read(f'{folder}/image_{chosen}.png')\n", True),
        ("for i in chosen:\n    listen(clips[i])\nx = x[chosen]\n", True),
    ],
)
def test_draws_that_are_only_shown_or_name_a_file_are_no_matter(use: str, matters: bool):
    text = "import random\nimport torch\nx.backward()\no.step()\n"
    drawn = "chosen = random.sample(range(9), 3)\n"
    assert lines(text + drawn + use, "VB101") == ([5] if matters else [])
    drawn = drawn.replace("chosen", "saved_ids")
    assert lines(text + drawn + "if 3 in saved_ids:\n    write(x)\n", "VB101") == []


def test_a_module_that_tries_itself_out_on_made_up_data_is_no_program():
    text = "import numpy as np\nfrom sklearn.svm import SVC\ndef fit(x):\n    SVC().fit(x, x)\n"
    text += "if __name__ == '__main__':\n    fit(np.random.rand(3, 3))\n"
    tried = lint_file("learn.py", text.encode())
    user = lint_file("main.py", b"import torch\nimport learn\nx.backward()\no.step()\n")
    rules = chosen(("VB101",), ())
    assert [each.place.path for each in lint_project([tried], {}, rules)] == ["learn.py"]
    assert lint_project([tried, user], {}, rules) == ()


@pytest.mark.parametrize(
    ("guarded", "counts"),
    [
        ("make()(torch.randn(2, 3)).sum().backward()\n    o.step()\n", False),
        ("make()(torch.randn(2, 3)).sum().backward()\n    o.step()\n    print('accuracy', x)\n", True),
        ("make()(torch.randn(2, 3)).sum().backward()\n    o.step()\n    torch.save(x, y)\n", True),
        ("make()(torch.randn(size, 3)).sum().backward()\n    o.step()\n", True),
    ],
)
def test_a_step_on_tensors_of_written_sizes_that_leaves_nothing_is_no_program(guarded: str, counts: bool):
    text = "import torch\ndef make():\n    return torch.nn.Linear(3, 1)\n"
    text += "kept = {}\ndef other():\n    return kept.copy()\n"
    text += f"if __name__ == '__main__':\n    {guarded}"
    assert bool(lines(text, "VB101")) == counts == bool(lines(text, "VB401"))


def test_depthwise_convolutions_under_the_mode_of_tensorflow_do_not_raise_for_certain():
    text = "import tensorflow as tf\n{}\ntf.keras.layers.DepthwiseConv2D(3)(x)\nm.fit(x)\n"
    mode = "tf.config.experimental.enable_op_determinism()"
    assert lines(text.format(""), "VB502") == [3]
    assert lines(text.format(mode), "VB502") == []


LISTED = "import os\nimport torch\nx.backward()\no.step()\nnames = os.listdir(a)\n"


@pytest.mark.parametrize(
    ("use", "is_kept"),
    [
        ("for i in range(len(names)):\n    save(read(names[i]), out + names[i])\n", False),
        ("for i in range(0, len(names)):\n    save(read(names[i]), out + names[i])\n", False),
        ("for i in range(0, len(names)):\n    rows[i][0] = read(names[i])\n", True),
        ("first = read(names[0])\n", False),
        ("second = read(names[1])\n", True),
        ("every = []\nevery.extend(names)\nevery += names\ntrain(sorted(every))\n", False),
        ("every = []\nevery.extend(names)\ntrain(every)\n", True),
        ("", False),
        ("for i in range(9):\n    axes[i].imshow(read(names[i]))\n", False),
        ("some = random.sample(names, 9)\nfor name in some:\n    plt.imshow(read(name))\n", False),
        ("some = random.sample(names, 9)\nfor name in some:\n    train(read(name))\n", True),
        ("sizes = []\nfor name in names:\n    sizes.append(size(name))\nplt.hist(sizes)\n", False),
        ("sizes = []\nfor name in names:\n    sizes.append(size(name))\ntrain(sizes)\n", True),
        ("Parallel(n_jobs=2)(delayed(convert)(name) for name in names)\n", False),
        ("rows = Parallel(n_jobs=2)(delayed(convert)(name) for name in names)\ntrain(rows)\n", True),
        ("unused = [read(name) for name in names]\n", False),
        ("unused = []\nfor name in names:\n    unused.append(name)\n", False),
        ("for i in range(len(names)):\n    data.append(read(names[i]))\ntrain(data)\n", True),
        ("for i in range(len(names)):\n    table[i] = read(names[i])\n", True),
        ("for name in names:\n    packed.write(name, name)\n", False),
        ("for name in names:\n    zipf.write(name)\n", False),
        ("for name in names:\n    table.write(name)\n", True),
        ("some = names[:3]\nprint('for example', some)\n", True),
    ],
)
def test_a_loop_by_numbers_or_into_an_archive_keeps_no_order_of_its_own(use: str, is_kept: bool):
    assert lines(LISTED + use, "VB301") == ([5] if is_kept else [])


@pytest.mark.parametrize("reads", ["from lists import names\n", "import other\n"])
def test_a_listing_that_another_program_may_read_has_an_order(reads: str):
    reads += "import torch\nx.backward()\no.step()\n"
    files = [lint_file("lists.py", LISTED.encode()), lint_file("train.py", reads.encode())]
    assert len(lint_project(files, {}, frozenset(["VB301"]))) == ("names" in reads)


@pytest.mark.parametrize(
    ("use", "found"),
    [
        ("for i in range(len(a)):\n    print('PSNR', compare(a[i], b[i]))\n", [5, 6]),
        ("for i, x in enumerate(a):\n    print('PSNR', compare(x, b[i]))\n", [5, 6]),
        ("for x, y in zip(a, b):\n    print('PSNR', compare(x, y))\n", [5, 6]),
        ("for i, x in enumerate(some):\n    print('PSNR', compare(a[i], x))\n", []),
        ("c = [f(x) for x in a]\nfor x, y in zip(a, c):\n    print('PSNR', compare(x, y))\n", []),
        ("for x in random.sample(a, 9):\n    print('PSNR', compare(x, b))\n", [5]),
        ("for x in a:\n    print('PSNR', compare(x, b))\n", []),
    ],
)
def test_an_order_that_decides_what_is_measured_counts_in_evaluations(use: str, found: list[int]):
    text = "import os\nimport random\nimport torch\n\na = os.listdir({})\nb = os.listdir({})\n" + use
    for path, folders in (("evaluate.py", "xy"), ("measure.py", ("'test/x'", "'test/y'"))):
        written = f"{text.format(*folders)}import numpy\nnumpy.save(out, x)\n"
        facts = [lint_file(path, written.encode())]
        assert [each.place.line for each in lint_project(facts, {}, frozenset(["VB301"]))] == found


@pytest.mark.parametrize(
    ("use", "level"),
    [
        ("xs = [np.load(name) for name in names]\n", Level.WARNING),
        ("xs = torch.stack([read(np.load(name)) for name in names])\n", Level.WARNING),
        ("xs = [os.path.join(a, name) for name in names]\n", Level.NOTE),
    ],
)
def test_a_comprehension_that_reads_files_keeps_their_order(use: str, level: Level):
    text = f"import numpy as np\n{LISTED}{use}train(xs)\n"
    (one,) = lint_project([lint_file("main.py", text.encode())], {}, frozenset(["VB301"]))
    assert one.level is level


@pytest.mark.parametrize(("sorts", "is_kept"), [("files.sort()", False), ("pass", True)])
def test_sorted_steps_of_a_walk_have_unsorted_files(sorts: str, is_kept: bool):
    text = "import os\nimport torch\nx.backward()\no.step()\nxs = []\n"
    text += (
        f"for r, _, files in sorted(os.walk(a)):\n    {sorts}\n    for f in files:\n        xs.append(f)\n"
    )
    assert lines(text + "train(xs)\n", "VB301") == ([6] if is_kept else [])


def test_a_training_whose_score_is_only_printed_draws():
    text = "from sklearn.ensemble import RandomForestClassifier as Forest\n"
    text += (
        "from sklearn.model_selection import cross_val_score\nprint(cross_val_score(Forest(), x, y).mean())\n"
    )
    assert lines(text, "VB101") == [3]


def test_an_input_to_trace_a_model_with_is_no_data():
    text = "import torch\nnet.cuda()(x).sum().backward()\no.step()\n"
    assert lines(f"{text}torch.jit.trace(net, torch.rand(1, 3))\n", "VB101") == []
    assert lines(f"{text}net(torch.rand(1, 3))\n", "VB101") == [4]


def test_a_listing_that_is_only_printed_has_no_order():
    text = LISTED.replace("os.listdir(a)", "[n for n in os.listdir(a) if n][:3]")
    assert lines(text + "print('for example', names)\n", "VB301") == []
    assert lines(text + "train(names)\n", "VB301") == [5]


@pytest.mark.parametrize(
    ("body", "is_kept"),
    [
        ("    for name in given:\n        save(read(name), name)\n", False),
        ("    jobs = []\n    for name in given:\n        jobs.append(pool.submit(f, name))\n", False),
        (
            "    jobs = [p.submit(f, n) for n in given]\n    for job in jobs:\n        print(job.result())\n",
            False,
        ),
        (
            "    jobs = [p.submit(f, n) for n in given]\n    for j in jobs:\n        a.append(j.result())\n",
            True,
        ),
        ("    print(len(given))\n", False),
        ("    rows = []\n    for name in given:\n        rows.append(read(name))\n    return rows\n", True),
        ("    for name in given:\n        yield name\n", True),
        ("    for i, name in enumerate(given):\n        save(read(name), i)\n", True),
        ("    for name in given:\n        rows.append(name)\n", True),
        ("    return given[3:]\n", True),
        ("    learn(given)\n", True),
    ],
)
def test_a_function_that_takes_each_item_on_its_own_keeps_no_order(body: str, is_kept: bool):
    text = f"def work(given):\n{body}" + LISTED
    for use in ("work(names)\n", "work(given=names)\n"):
        assert len(lines(text + use, "VB301")) == is_kept


@pytest.mark.parametrize(
    ("use", "is_kept"),
    [
        ("Parallel(n_jobs=2)(delayed(convert)(name) for name in given())\n", False),
        ("for name in given():\n    rows.append(name)\n", True),
        ("train(given())\n", True),
        ("rows = list(given())\nrows.sort()\ntrain(rows)\n", True),
        ("rows = given()\nrows = sorted(rows)\ntrain(rows)\n", False),
    ],
)
def test_what_a_generator_yields_is_in_the_order_that_its_callers_keep(use: str, is_kept: bool):
    text = "import os\nimport torch\ndef given():\n    for name in os.listdir(a):\n        yield a, name\n"
    assert bool(lines(text + use + "x.backward()\no.step()\n", "VB301")) == is_kept


def test_a_condition_nested_too_deeply_is_no_crash():
    data = b"if " + b"not " * 900 + b"x:\n    pass\n"
    assert lint_file("main.py", data * 3).path == "main.py"


def test_what_draws_from_a_generator_of_its_own_needs_no_other_seed():
    text = "import torch\ng = torch.Generator()\nn = torch.randn(x, generator={})\nn.backward()\no.step()\n"
    assert lines(text.format("g"), "VB101") == []
    assert lines(text.format("given"), "VB101") == [3]


@pytest.mark.parametrize(
    ("trains", "is_stated"), [("net(x).sum().backward()\no.step()\n", True), (None, False)]
)
def test_a_thread_count_of_openmp_is_none_of_tensorflow(trains: str | None, is_stated: bool):
    text = "import os\nos.environ['OMP_NUM_THREADS'] = '2'\n"
    fits = "import keras\nm = keras.Sequential([keras.layers.Dense(1)])\nm.compile('sgd')\nm.fit(x, y)\n"
    assert bool(lines(text + (f"import torch\n{trains}" if trains else fits), "VB401")) != is_stated


def test_a_network_on_an_accelerator_runs_on_cuda():
    text = "import torch\nd = torch.accelerator.current_accelerator()\nnet = torch.nn.Conv2d(3, 1, 3).to(d)\n"
    assert lines(f"{text}net(x).sum().backward()\no.step()\n", "VB501") == [3]
