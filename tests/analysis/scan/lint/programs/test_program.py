from __future__ import annotations

import json

import pytest

from analysis.scan.lint.lint import lint_file
from analysis.scan.lint.programs.judge import lint_project
from analysis.scan.lint.programs.program import Index, Program, programs

BOTH = frozenset(("VB101", "VB401"))

RUNS = "\n\nif __name__ == '__main__':\n    fit(1)\n"


def facts(**files: str):
    return [lint_file(name.replace("__", "/") + ".py", text.encode()) for name, text in files.items()]


def test_a_program_reaches_what_it_imports_and_calls_in_the_order_of_running():
    found = facts(
        utils="import random\n\ndef seed():\n    random.seed(0)\n",
        main="import torch\nfrom utils import seed\n\ndef work():\n    torch.rand(3)\n\nwork()\nseed()\n",
    )
    program = Program(found[1], Index(found))
    kinds = [(s.event.kind, s.event.name) for s in program.flow if s.event.kind in ("draw", "seed")]
    assert kinds == [("draw", "torch"), ("seed", "python")]
    assert {file.path for file in program.files} == {"main.py", "utils.py"}


@pytest.mark.parametrize("given", ["train", "function=train"])
def test_a_script_that_gives_a_function_to_be_called_is_a_program(given: str):
    text = f"import wandb\n\ndef train():\n    loss.backward()\n\nwandb.agent('sweep', {given})\n"
    assert [step.event.kind for step in programs(facts(main=text))[0].flow if step.event.kind == "train"]


def test_functions_that_call_each_other_end():
    found = facts(
        main="import random\n\ndef f():\n    g()\n\ndef g():\n    f()\n    random.random()\n\nf()\n"
    )
    assert len([s for s in programs(found)[0].flow if s.event.kind == "draw"]) == 1


def test_modules_that_import_each_other_end():
    found = facts(a="import b\nimport torch\nx.backward()\n", b="import a\n")
    assert {file.path for file in programs(found)[0].files} == {"a.py", "b.py"}


def test_of_several_modules_of_a_name_the_nearest_is_imported():
    found = facts(one__utils="", two__utils="", two__main="import utils\n")
    index = Index(found)
    assert index.module("utils", found[2]).path == "two/utils.py"
    assert index.module("os", found[2]) is None


def test_methods_of_own_classes_are_reached():
    text = "import torch\n\nclass T:\n    def run(self):\n        self.step()\n"
    text += "    def step(self):\n        torch.rand(1)\n\nT().run()\n"
    (program,) = programs(facts(main=text))
    assert any(s.event.kind == "draw" for s in program.flow)


def test_a_method_that_its_class_calls_is_reached_where_a_derived_class_has_another():
    base = "class Base:\n    def run(self):\n        self.advance()\n\n    def advance(self):\n        pass\n"
    derived = "class {}({}):\n    def advance(self):\n        {}()\n"
    main = "from models import Base\n\n{}\n{}\nmake(Fitted).run()\n"
    main = main.format(derived.format("Fitted", "Base", "used"), derived.format("Other", "", "unused"))
    files = facts(models=base, main=main + "\ndef used():\n    pass\n\ndef unused():\n    pass\nOther\n")
    (program,) = programs(files)
    _ = program.reached
    scopes = {scope for _, scope in program.scopes}
    assert {"Base.advance", "Fitted.advance", "used"} <= scopes
    assert "unused" not in scopes


@pytest.mark.parametrize(
    ("made_by", "trains"),
    [
        ("def Net():\n    return build()\n", True),
        ("class Net:\n    def fit(self, rows):\n        pass\n", False),
    ],
)
@pytest.mark.parametrize("imports", ["", "from net import Net\n"])
def test_a_function_with_a_capital_makes_a_model_and_a_class_is_looked_at(made_by, trains, imports):
    files = {"net": made_by} if imports else {}
    (program,) = programs(facts(**files, main=f"{imports or made_by}model = Net()\nmodel.fit(rows)\n"))
    assert bool(program.trainings) == trains


def test_what_a_class_of_elsewhere_fits_is_no_model():
    assert not any(p.trainings for p in programs(facts(main="from there import Net\nNet().fit(rows)\n")))


def test_libraries_and_tests_are_no_programs():
    assert programs(facts(lib="import torch\n\ndef f():\n    torch.rand(1).backward()\n")) == []
    assert programs(facts(tests__test_x="import torch\ntorch.rand(1).backward()\n")) == []


def test_many_methods_and_calls_of_one_name_take_no_time():
    classes = "".join(f"class C{n}:\n    def f(self): x.f()\n" for n in range(3000))
    (program,) = programs(facts(main=f"import torch\n{classes}x.f()\ny.backward()\n"))
    assert len(program.reached) < 20_000


def test_files_that_import_all_of_each_other_take_no_time():
    stars = "".join(f"from m{n} import *\n" for n in range(60))
    calls = "".join(f"f{n}()\n" for n in range(60))
    found = facts(main=stars + calls, **{f"m{n}": stars for n in range(60)})
    assert Index(found).function("*.nothing", found[0]) is None


def test_a_finding_names_the_programs_that_share_what_it_is_about():
    model = "import torch\n\ndef fit(loss):\n    torch.nn.Linear(3, 3)\n    loss.backward()\n"
    model += "    optimizer.step()\n"
    main = "from model import fit\n\nif __name__ == '__main__':\n    fit(1)\n"
    of = {each.rule: each.why for each in lint_project(facts(model=model, one=main, two=main), {}, BOTH)}
    assert of["VB101"].endswith("; programs: one.py, two.py")
    assert of["VB401"].endswith("; programs: one.py, two.py")


def test_a_finding_in_the_file_of_its_only_program_names_none():
    main = "import torch\n\ntorch.nn.Linear(3, 3)\nloss.backward()\noptimizer.step()\n"
    assert not any("programs:" in each.why for each in lint_project(facts(main=main), {}, BOTH))


@pytest.mark.parametrize(
    ("has", "runs"),
    [
        ("def fit(x):\n    pass\n", True),
        ("if 1:\n    fit = print\n", True),
        ("try:\n    from there import fit\nexcept ImportError:\n    fit = None\n", True),
        ("from there import *\n", True),
        ("def __getattr__(name):\n    return print\n", True),
        ("def other(x):\n    return fit\n", False),
        ("def fit(:\n", True),  # cannot be read, so nobody knows
    ],
)
def test_a_program_that_stops_at_an_import_is_none(has: str, runs: bool):
    assert [p.file.path for p in programs(facts(model=has, main=f"from model import fit{RUNS}"))] == (
        ["main.py"] if runs else []
    )


@pytest.mark.parametrize(
    ("model", "call", "found"),
    [
        ("def fit():\n    pass\n", "train()", 1),
        ("def other():\n    pass\n", "train()", 0),  # it stops at the import
        ("def fit():\n    pass\n", "pass  # train()", 0),
    ],
)
def test_a_session_counts_where_a_program_opens_it(model: str, call: str, found: int):
    step = "session.run(tf.train.AdamOptimizer().minimize(fit()))"
    session = f"def train():\n    with tf.Session() as session:\n        {step}\n"
    begin = "import tensorflow.compat.v1 as tf\nfrom model import fit\n"
    files = facts(
        model=model,
        main=f"{begin}{session}\nif __name__ == '__main__':\n    {call}\n",
        other=f"def fit(n):\n    pass{RUNS}",
    )
    assert len(lint_project(files, {}, frozenset(("VB404",)))) == found


def test_an_import_of_an_import_that_fails_stops_too():
    files = facts(
        pkg__middle="from .model import fit\n",
        pkg__model="def other():\n    pass\n",
        main=f"from pkg.middle import fit{RUNS}",
    )
    assert programs(files) == []


@pytest.mark.parametrize(
    "text",
    [
        f"try:\n    from model import fit\nexcept ImportError:\n    fit = print{RUNS}",
        f"from model.parts import fit{RUNS}",  # a folder without an __init__
        f"from model import parts as fit{RUNS}",
    ],
)
def test_imports_that_may_succeed_stop_nothing(text: str):
    files = facts(model="def other():\n    pass\n", model__parts="def fit(x):\n    pass\n", main=text)
    assert [program.file.path for program in programs(files)] == ["main.py"]


def test_a_library_of_the_name_of_a_file_elsewhere_may_have_what_is_imported():
    files = facts(src__datasets="rows = 1\n", main=f"from datasets import load_dataset as fit{RUNS}")
    assert [program.file.path for program in programs(files)] == ["main.py"]


KERAS = "import tensorflow as tf\n{}\nnet = tf.keras.Sequential([tf.keras.layers.Dense(2)])\n{}\n"


@pytest.mark.parametrize(
    ("device", "found"), [("/cpu:0", []), ("/device:CPU:0", []), ("/gpu:0", ["VB501"]), (None, ["VB501"])]
)
@pytest.mark.parametrize("pinned", ["net.fit(rows)", "step(tf.nn.conv2d(rows, kernel, 1, 'SAME'))"])
def test_what_is_pinned_to_the_cpu_does_not_differ_on_a_gpu(
    pinned: str, device: str | None, found: list[str]
):
    text = f"with tf.device({device!r}):\n    {pinned}" if device else pinned
    if "fit" not in pinned:  # the operation alone
        text = f"{text}\ntf.keras.Model().fit(rows)"
        main = f"import tensorflow as tf\n{text}\n"
    else:
        main = KERAS.format("", text)
    rules = [each.rule for each in lint_project(facts(main=main), {}, frozenset(("VB501",)))]
    assert rules == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("net.to('cuda')", 0),
        ("net.cuda()", 0),
        ("net.to('cuda' if torch.cuda.is_available() else 'cpu')", 1),
        ("if torch.cuda.is_available():\n        net.cuda()", 1),
    ],
)
def test_a_program_whose_training_takes_a_gpu_unasked_does_not_train_on_a_cpu(line: str, found: int):
    main = (
        "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        f"def train(net):\n    {line}\n    net(rows.to(device)).sum().backward()\n    optimizer.step()\n"
        "train(torch.nn.Linear(1, 2))\n"
    )
    assert len(lint_project(facts(main=main), {}, frozenset(("VB401",)))) == found


def test_a_function_that_takes_a_gpu_and_calls_the_training_counts_too():
    main = "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    main += "def step(net):\n    net(rows.to(device)).sum().backward()\n    optimizer.step()\n"
    main += "def train(net):\n    net = net.train(){}\n    step(net)\ntrain(torch.nn.Linear(1, 2))\n"
    rules = frozenset(("VB401",))
    assert not lint_project(facts(main=main.format(".to('cuda')")), {}, rules)
    assert len(lint_project(facts(main=main.format(".to(device)")), {}, rules)) == 1


@pytest.mark.parametrize(("name", "found"), [("__init__", 0), ("forward", 0), ("show", 1)])
def test_a_model_that_takes_a_gpu_unasked_does_not_train_on_a_cpu(name: str, found: int):
    net = (
        f"import torch\nclass Net(torch.nn.Module):\n    def {name}(self, rows=None):\n        rows.cuda()\n"
    )
    main = "import torch\nfrom net import Net\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    main += "Net().to(device)(rows).sum().backward()\noptimizer.step()\n"
    assert len(lint_project(facts(net=net, main=main), {}, frozenset(("VB401",)))) == found


def test_a_model_that_is_loaded_and_fitted_is_an_operation_where_no_other_is_known():
    load = "from tensorflow.keras.models import load_model\n\ndef get():\n    return load_model('a.keras')\n"
    load += "\ndef fit(n):\n    model = get()\n    model.fit(rows)\n"
    build = "from tensorflow.keras import layers\nlayer = layers.Dense(2)\n"
    rules = frozenset(("VB501",))
    (alone,) = lint_project(facts(load=load, main="from load import fit\nfit(1)\n"), {}, rules)
    assert (alone.place.path, alone.why.partition(" ")[0]) == ("load.py", "load_model")
    (beside,) = lint_project(facts(load=load, main=f"from load import fit\n{build}fit(1)\n"), {}, rules)
    assert "load_model" not in beside.why
    assert not lint_project(
        facts(main="from tensorflow.keras.models import load_model\nload_model(1)\n"), {}, rules
    )


@pytest.mark.parametrize(
    "decorator", ["@MODELS.register_module()", "@register_model('net')", "@registry.register"]
)
def test_a_class_that_registers_itself_is_one_of_the_program_that_imports_it(decorator: str):
    model = f"import torch\nfrom there import *\n\n{decorator}\nclass Net(torch.nn.Module):\n"
    model += "    def __init__(self):\n        self.layer = torch.nn.Conv2d(1, 2, 3)\n"
    main = "import torch\nimport model\nnet = build('Net').cuda()\n"
    main += "net(rows).sum().backward()\noptimizer.step()\n"
    rules = frozenset(("VB501",))
    assert len(lint_project(facts(model=model, main=main), {}, rules)) == 1
    assert not lint_project(facts(model=model.replace(f"{decorator}\n", ""), main=main), {}, rules)


def test_a_loss_of_keras_is_named_beside_other_operations():
    main = "from tensorflow import keras\nnet = keras.Sequential([keras.layers.{}])\n"
    main += "net.compile('adam', loss='categorical_crossentropy')\nnet.fit(rows)\n"
    rules = frozenset(("VB501",))
    (found,) = lint_project(facts(main=main.format("Dense(2)")), {}, rules)
    assert "categorical_crossentropy (1)" in found.why
    assert not lint_project(facts(main=main.format("Flatten()")), {}, rules)


@pytest.mark.parametrize(
    ("imports", "found"), [("from nets import UNet", 1), ("from nets import Classifier", 0)]
)
def test_a_loss_beside_a_network_of_pictures_is_one_of_pictures(imports: str, found: int):
    main = f"import torch\n{imports}\nnet = make().cuda()\nloss = torch.nn.CrossEntropyLoss()\n"
    main += "loss(net(rows), labels).backward()\noptimizer.step()\n"
    assert len(lint_project(facts(main=main), {}, frozenset(("VB502",)))) == found


@pytest.mark.parametrize(
    ("forest", "found"),
    [
        ("RandomForestRegressor(n_jobs=-1)", 1),
        ("RandomForestRegressor()", 0),
        ("RandomForestRegressor(n_jobs=2)", 0),
        ("RandomForestClassifier(n_jobs=-1)", 0),
    ],
)
def test_a_forest_whose_threads_add_what_it_predicts_has_a_thread_count(forest: str, found: int):
    name = forest.partition("(")[0]
    main = f"from sklearn.ensemble import {name}\nmodel = {forest}\nmodel.fit(rows, values)\n"
    assert len(lint_project(facts(main=main), {}, frozenset(("VB401",)))) == found


def test_settings_matter_in_programs_with_a_result_where_there_are_some():
    late = (
        "import torch\nimport os\nos.environ['OMP_NUM_THREADS'] = '1'\nos.environ['PYTHONHASHSEED'] = '1'\n"
        "part = hash(name) % 9\n"
    )
    train = "torch.nn.Linear(1, 2)(rows).sum().backward()\noptimizer.step()\n"
    rules = frozenset(("VB105", "VB402"))
    show = f"{late}print(torch.get_num_threads())\nif __name__ == '__main__':\n    pass\n"
    assert [each.rule for each in lint_project(facts(show=show), {}, rules)] == ["VB402", "VB105"]
    assert not lint_project(facts(show=show, train=f"import torch\n{train}"), {}, rules)
    found = lint_project(facts(show=show, train=late + train), {}, rules)
    assert [(each.rule, each.place.path) for each in found] == [("VB402", "train.py"), ("VB105", "train.py")]


def test_what_imports_torch_for_a_program_makes_it_one_of_torch():
    main = "from pytorch_tabnet.tab_model import TabNetClassifier\nTabNetClassifier().fit(rows, labels)\n"
    assert [each.rule for each in lint_project(facts(main=main), {}, frozenset(("VB401",)))] == ["VB401"]


@pytest.mark.parametrize(
    ("after", "line"),
    [
        ("base.trainable = False\n", 3),
        ("for layer in base.layers:\n    layer.trainable = False\n", 3),
        ("for layer in base.layers[:9]:\n    layer.trainable = False\n", 2),  # a part of them
        ("if options.keep:\n    base.trainable = False\n", 2),
        ("base.trainable = False\nbase.trainable = True\n", 2),
        ("", 2),
    ],
)
def test_a_model_of_which_nothing_is_trained_does_not_differ(after: str, line: int):
    main = (
        "from tensorflow import keras\nbase = keras.applications.ResNet50()\nhead = keras.layers.Dense(2)\n"
    )
    main += f"{after}keras.Sequential([base, head]).fit(rows)\n"
    (found,) = lint_project(facts(main=main), {}, frozenset(("VB501",)))
    assert found.place.line == line


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("getattr(nets, options.net)()", True),
        ("nets.__dict__[options.net]()", True),
        ("vars(nets)[options.net]()", True),
        ("getattr(nets, 'Net')()", True),
        ("getattr(nets, 'Other')()", False),
        ("getattr(options, 'net')()", False),
        ("eval(options.net)()", False),
        ("config.make('net', nets)", True),
        ("config.make('net', options)", False),
    ],
)
def test_a_class_that_is_looked_up_by_a_value_is_reached(made: str, found: bool):
    model = "import torch\n\nclass Net(torch.nn.Module):\n"
    model += "    def __init__(self):\n        self.layer = torch.nn.Conv2d(1, 2, 3)\n"
    main = f"import torch\nimport nets\nnet = {made}.cuda()\nnet(rows).sum().backward()\noptimizer.step()\n"
    files = facts(nets__parts=model, main=main)
    files.append(lint_file("nets/__init__.py", b"from .parts import Net\n"))
    (program,) = programs(files)
    assert (("nets/parts.py", "Net.__init__") in program.scopes) == found


def test_a_class_of_the_own_file_is_looked_up_too():
    main = "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
    main += "        self.layer = torch.nn.Conv2d(1, 2, 3)\n\ndef fit(name):\n"
    main += "    net = globals()[name]().cuda()\n"
    main += f"    net(rows).sum().backward()\n    optimizer.step()\n{RUNS}"
    assert len(lint_project(facts(main=main), {}, frozenset(("VB501",)))) == 1


@pytest.mark.parametrize("made", ["models.__dict__[name]()", "getattr(models, name)(num_classes=3)"])
def test_a_model_of_a_library_that_a_value_names_draws_and_differs(made: str):
    main = f"import torch\nfrom torchvision import models\nnet = {made}.cuda()\n"
    main += "net(rows).sum().backward()\noptimizer.step()\n"
    found = lint_project(facts(main=main), {}, frozenset(("VB101", "VB501")))
    assert sorted(each.rule for each in found) == ["VB101", "VB501"]


def test_a_class_of_all_that_was_imported_is_looked_up_by_its_text():
    model = "import torch\n\nclass Net(torch.nn.Module):\n"
    model += "    def __init__(self):\n        self.layer = torch.nn.Conv2d(1, 2, 3)\n"
    main = (
        "import torch\nfrom nets import *\nnet = eval(name)()\nnet(rows).sum().backward()\noptimizer.step()\n"
    )
    found = lint_project(facts(nets=model, main=main), {}, frozenset(("VB101",)))
    assert [each.place.path for each in found] == ["nets.py"]


def test_a_mode_of_training_is_no_training():
    main = "import torch\n\nclass Use:\n    def train(self):\n        self.model.train()\n"
    main += "        self.model(rows).sum().backward()\n        self.optimizer.step()\n\n"
    main += "    def test(self):\n        self.model.eval()\n        return self.model(rows)\n\n"
    (program,) = programs(facts(main=f"{main}Use().test()\n"))
    assert program.training is None
    (program,) = programs(facts(main=f"{main}Use().train()\n"))
    assert program.training is not None


def test_a_module_beside_a_program_is_the_one_that_it_imports():
    files = [
        lint_file("tools/make.py", b"from tools import draw\nif __name__ == '__main__':\n    draw()\n"),
        lint_file("tools/tools.py", b"import random\n\ndef draw():\n    random.shuffle(rows)\n"),
        lint_file("tools/__init__.py", b""),
    ]
    (program,) = programs(files)
    assert "tools/tools.py" in {file.path for file in program.files}


def test_a_late_seed_is_told_once_with_all_that_has_drawn_before():
    main = "import random\nimport numpy as np\nfrom transformers import set_seed\n"
    main += "rows = random.sample(range(9), 3)\nnp.random.shuffle(rows)\nset_seed(1)\n"
    main += "net(rows).backward()\noptimizer.step()\n"
    (found,) = lint_project(facts(main=main), {}, frozenset(("VB103",)))
    assert found.why == (
        "random.sample at line 4, numpy.random.shuffle at line 5 have already drawn from what this seeds"
    )


def test_in_a_notebook_a_message_names_the_cell_and_its_line():
    cells = ["import numpy as np\nimport torch", "rows = [1, 2]\nnp.random.shuffle(rows)"]
    cells.append("np.random.seed(1)\ntorch.nn.Linear(2, 1)(rows).sum().backward()\noptimizer.step()")
    text = json.dumps({"cells": [{"cell_type": "code", "source": each} for each in cells]})
    (found,) = lint_project([lint_file("main.ipynb", text.encode())], {}, frozenset(("VB103",)))
    assert "at cell 2, line 2 " in found.why


def test_a_model_that_is_named_by_a_number_of_thousands_of_digits_is_no_model_of_timm():
    main = f"import timm\n\nnet = timm.create_model(0x{'f' * 6000}).cuda()\n"
    main += "net(rows).sum().backward()\noptimizer.step()\n"
    (found,) = lint_project(facts(main=main), {}, frozenset(("VB501",)))
    assert "attention" not in found.why


def test_a_trainer_that_a_function_of_another_file_returns_trains():
    made = "def make(net):\n    from transformers import Trainer\n\n    return Trainer(model=net)\n"
    main = "from made import make\n\nrunner = make(net)\nrunner.train()\n"
    (found,) = lint_project(facts(main=main, made=made), {}, frozenset(("VB401",)))
    assert (found.place.path, found.place.line) == ("main.py", 4)


def test_models_of_sentence_transformers_train_by_fit():
    main = "from sentence_transformers import CrossEncoder\nmodel = CrossEncoder('a')\nmodel.{}(rows)\n"
    trains = [programs(facts(main=main.format(each)))[:1] for each in ("fit", "predict")]
    assert [bool(each and each[0].training) for each in trains] == [True, False]


@pytest.mark.parametrize(("arguments", "trains"), [("rows", False), ("rows, epochs=9, verbose=1", True)])
def test_a_model_of_unknown_origin_is_one_of_keras_by_how_it_is_fitted(arguments: str, trains: bool):
    main = "from tensorflow import keras\nclass Words:\n    def fit(self, rows):\n        pass\n"
    main += f"def fit(net):\n    net.fit({arguments})\nWords().fit(rows)\nfit(build())\n"
    assert bool(programs(facts(main=main))[0].training) is trains


def test_a_call_of_what_seeds_on_the_line_of_a_model_that_is_made_again_is_followed():
    main = "import torch\ndef set_seed(n):\n    torch.manual_seed(n)\n"
    main += "set_seed(0); net = torch.nn.Linear(1, 1)\nnet = torch.nn.Linear(2, 1)\n"
    main += "net(x).sum().backward()\noptimizer.step()\n"
    assert not lint_project(facts(main=main), {}, frozenset(("VB101", "VB103")))


@pytest.mark.parametrize(
    ("device", "found"), [("", 1), ("device=0", 0), ("device='0,1'", 0), ("device='cpu'", 1)]
)
def test_a_yolo_model_that_is_given_a_gpu_has_no_thread_count(device: str, found: int):
    main = f"from ultralytics import YOLO\nmodel = YOLO('a.pt')\nmodel.train(data='a.yaml', {device})\n"
    assert len(lint_project(facts(main=main), {}, frozenset(("VB401",)))) == found


def test_a_gpu_whose_name_is_asked_for_where_there_is_one_is_not_needed():
    main = (
        "import torch\n\ndef main():\n    device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "    if device != 'cuda':\n        print('slow')\n"
        "    elif 'GB10' in torch.cuda.get_device_name(0):\n        print('fast')\n"
        "    model(rows).backward()\n    optimizer.step()\n\nmain()\n"
    )
    assert [each.rule for each in lint_project(facts(main=main), {}, frozenset(("VB401",)))] == ["VB401"]


def test_a_setting_that_stood_before_the_import_is_not_late_where_it_is_repeated():
    once = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\n"
    train = "import torch\nimport data\ntorch.nn.Linear(1, 2)(rows).backward()\noptimizer.step()\n"
    rules = frozenset(("VB402",))
    assert [each.rule for each in lint_project(facts(data=once, train=train), {}, rules)] == ["VB402"]
    assert not lint_project(facts(data=once, train=once + train), {}, rules)


@pytest.mark.parametrize("call", ["optimizer.step_and_update_lr()", "optimizer.zero_grad()"])
def test_an_optimizer_that_is_wrapped_trains(call: str):
    text = f"import torch\n\ndef step(model, optimizer, rows):\n    model(rows).backward()\n    {call}\n"
    main = "import torch\nfrom steps import step\nstep(torch.nn.Linear(1, 2), wrapped, rows)\n"
    found = lint_project(facts(steps=text, main=main), {}, frozenset(("VB101",)))
    assert [each.place.path for each in found] == ["main.py"]
