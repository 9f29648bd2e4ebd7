"""How models are evaluated: model selection, what is shuffled, what is tested on what (VB6xx)."""

from __future__ import annotations

import ast
import itertools
import re
from functools import cache

from analysis.scan.lint.syntax.arguments import argument, constant, is_open, last, lines_of, text_of
from analysis.scan.lint.syntax.defaults import default
from analysis.scan.lint.syntax.tree import nodes_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import IN_ORDER

HELD_OUT = re.compile(
    r"(?:^|_|\b)(?:test|val|valid|validation|eval|dev|holdout)(?:_|\d|\b|set|loader|data|ds|dataset|gen)",
    re.I,
)
TRAINING = re.compile(r"(?:^|_|\b)(?:x_|y_)?train(?:ing|set|loader|data|_|\d|\b)", re.IGNORECASE)
BEST_WORDS = ("best", "patience", "earlystop", "early_stop")
BEST = re.compile("|".join(BEST_WORDS), re.IGNORECASE)
SELECTING = re.compile(
    r"(?:EarlyStopping|SaveBest\w*|save_best\w*|BestModel\w*|load_best\w*|update_best\w*|GridSearchCV|"
    r"RandomizedSearchCV|HalvingGridSearchCV|save_best_model)$"
)
LOADER = "torch.utils.data.DataLoader"
SHUFFLED_BY_DEFAULT = frozenset(("flow_from_directory", "flow_from_dataframe"))
OF_HELD_OUT = re.compile(
    r"\b(?:is_)?train(?:ing)?=False|=['\"](?:test|val|valid|validation|dev|eval)['\"]", re.I
)
"""`MNIST(root, train=False)`, `load(split="test")`."""
GIVEN_FOR_VALIDATION = frozenset(
    ("eval_dataset", "val_dataloaders", "valid_dataloaders", "val_dataset", "valid_dataset", "val_loader",
     "valid_loader", "val_dataloader", "validation_loader")
)  # fmt: skip
ONE_ROW, ROWS = "fits one row at a time", "fits several rows at a time"
"""Flags of a file."""
DATASET_FROM_FILES = re.compile(r"image_dataset_from_directory$|text_dataset_from_directory$")


def selecting_lines(text: str, before: int) -> set[int]:
    """The lines, after `before` others, that have a word of BEST. By str.find, which is twenty times faster
    than the expression."""
    text = text.lower()
    found = set()
    for word in BEST_WORDS:
        at, line, counted = text.find(word), before + 1, 0
        while at >= 0:
            line += text.count("\n", counted, at)
            found.add(line)
            counted, at = at, text.find(word, at + 1)
    return found


def called(to: Walk, node: ast.Call, name: str | None, attribute: str) -> None:
    function = (name or attribute).rpartition(".")[2] or last(node.func)
    kind = _kind(function)
    if kind == "checkpoint":  # Keras' keeps every epoch's model, or the last one, unless it selects
        if len(node.args) > 3 or is_open(node, "monitor") is not True:
            to.facts.flags.add("selects")
    elif kind == "selects":
        to.facts.flags.add("selects")
    for keyword in node.keywords:
        if keyword.arg in ("load_best_model_at_end", "restore_best_weights", "save_best_only"):
            to.facts.flags.add("selects")
        elif keyword.arg in GIVEN_FOR_VALIDATION and isinstance(
            keyword.value, ast.Name | ast.Attribute | ast.Subscript
        ):
            text = ast.unparse(keyword.value)
            if is_training(text) and not is_held_out(text):
                to.report("VB603", node, f"{keyword.arg}={text} is what the model is trained on")
    if name == LOADER:
        _loader(to, node)
    elif attribute in SHUFFLED_BY_DEFAULT or kind == "files":
        held = is_held_out(to.target) or constant(argument(node, "subset")) == "validation"
        if held and is_open(node, "shuffle") is True:
            why = f"{function} shuffles by default, so predictions do not stand in the order of the files"
            to.report("VB602", node, why)
        elif held and constant(argument(node, "shuffle")) is True:
            to.report("VB602", node, f"{function} shuffles the held-out data")
    elif attribute in ("fit", "fit_generator"):
        _fit(to, node, name)
    elif attribute in ("evaluate", "score") and node.args and is_held_out(to.target):
        text = ast.unparse(node.args[0])
        if is_training(text) and not is_held_out(text) and not is_training(to.target):
            to.report("VB603", node, f"{to.target} is of {text}")


def _loader(to: Walk, node: ast.Call) -> None:
    text = data_of(node)
    held = is_held_out(to.target) or is_held_out(text)
    if held and constant(argument(node, "shuffle", 2)) is True and not is_training(to.target):
        why = "the samples come in another order each time: predictions cannot be compared one by one"
        to.report("VB602", node, why)
    if (
        is_held_out(to.target)
        and not is_training(to.target)
        and is_training(text)
        and not is_held_out(text)
        and not _reads_part(node)
    ):
        to.report("VB603", node, f"{to.target} reads {text}")


def _reads_part(node: ast.Call) -> bool:
    """`DataLoader(train_set, sampler=part)`, `DataLoader(train_set[800:])`: a part may be held out."""
    for name, position in (("sampler", 3), ("batch_sampler", 4)):
        given = argument(node, name, position)
        if given is not None and constant(given) is not None:
            return True
    match argument(node, "dataset", 0):
        case ast.Subscript(slice=ast.Slice()):
            return True
        case ast.Call(func=function):
            return last(function) == "Subset"
    return False


def data_of(node: ast.Call) -> str:
    """What a loader reads, as text."""
    data = argument(node, "dataset", 0)
    return text_of(data) if data is not None else ""


@cache
def _kind(function: str) -> str:
    if function == "ModelCheckpoint":
        return "checkpoint"
    if SELECTING.search(function):
        return "selects"
    return "files" if DATASET_FROM_FILES.search(function) else ""


def is_for_training(to: Walk, node: ast.Call) -> bool:
    """Whether a DataLoader is one that is random: it shuffles or samples, or its name says that
    it is for training. One that reads held-out data, or tensors that are there already, is not."""
    data = argument(node, "dataset", 0)
    shuffle, sampler = argument(node, "shuffle", 2), argument(node, "sampler", 3)
    if data is not None and (to.names.resolve(data) or "").startswith("torch.utils.data.TensorDataset"):
        return False
    named = (to.target, data_of(node), to.scope)
    if any(map(is_held_out, named)) and not any(map(is_training, named)):
        return False
    if shuffle is not None:
        return constant(shuffle) not in (False, None)
    return sampler is not None and constant(sampler) is not None


def _fit(to: Walk, node: ast.Call, name: str | None) -> None:
    if name is not None and name.startswith("sklearn"):
        return
    to.facts.flags.add("keras_fit" if argument(node, "epochs") is not None else "-")
    if constant(argument(node, "shuffle")) is False:
        to.facts.flags.add(IN_ORDER)
    size = default(to, argument(node, "batch_size", 2 if len(node.args) > 2 else -1))
    to.facts.flags.add(ONE_ROW if size == 1 else ROWS)
    twice = next((pair for pair in itertools.pairwise(node.args[:3]) if _is_twice(*pair)), None)
    if twice is not None:
        to.report("VB603", node, f"{ast.unparse(twice[0])} is given for training and for validation")
    validation = argument(node, "validation_data")
    fitted = argument(node, "x", 0)
    if validation is not None and fitted is not None and _is_validated_on(validation, fitted):
        why = f"validation_data={ast.unparse(validation)} is what the model is trained on"
        to.report("VB603", node, why)
    split = argument(node, "validation_split")
    if split is not None and constant(split) not in (0, 0.0):
        why = "validation_split takes the last samples, before any shuffling: the order of the data decides"
        to.report("VB604", node, why)


def _is_validated_on(validation: ast.expr, fitted: ast.expr) -> bool:
    """Whether what validates is what is fitted, or by its name training data. Of those a slice may be held
    out, unless all of them are fitted."""
    first = (
        validation.elts[0] if isinstance(validation, ast.Tuple | ast.List) and validation.elts else validation
    )
    text, trained = ast.unparse(first), ast.unparse(fitted)
    if isinstance(first, ast.Name | ast.Attribute | ast.Subscript) and text == trained:
        return True
    if not is_training(ast.unparse(validation)) or is_held_out(ast.unparse(validation)):
        return False
    return not isinstance(first, ast.Subscript) or ast.unparse(first.value) == trained


def _is_twice(first: ast.expr, second: ast.expr) -> bool:
    """Whether one loader is given twice; an autoencoder is fitted to its own inputs, which are none."""
    text = ast.unparse(first)
    return isinstance(first, ast.Name | ast.Attribute) and "loader" in text and ast.unparse(second) == text


def compared(to: Walk, test: ast.expr) -> None:
    """`if accuracy > best: ...` selects a model."""
    if "selects" in to.facts.flags or to.facts.selecting.isdisjoint(lines_of(test)):
        return
    for node in nodes_of(test):
        said = constant(node) if isinstance(node, ast.Constant) else last(node)
        if isinstance(said, str) and BEST.search(said):
            to.facts.flags.add("selects")


def is_held_out(text: str) -> bool:
    return bool(HELD_OUT.search(text) or OF_HELD_OUT.search(text))


def is_training(text: str) -> bool:
    return bool(TRAINING.search(OF_HELD_OUT.sub("", text)))


def is_only_held_out(text: str) -> bool:
    return is_held_out(text) and not is_training(text)
