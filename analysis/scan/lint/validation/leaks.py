"""Models that learn from what they are evaluated on (VB603): training steps on held-out data, and one model
for all folds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from analysis.scan.lint.syntax.arguments import argument, last
from analysis.scan.lint.syntax.choices import Function
from analysis.scan.lint.syntax.tree import all_of, names_in, nodes_of, stored_in
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.validation.evaluation import is_held_out, is_only_held_out, is_training
from analysis.scan.lint.validation.parts import Parts

EVALUATING = re.compile(
    r"^_*(?:run_|do_)?(?:eval|evaluate|evaluation|validate|validation|valid|val|test)"
    r"(?:_(?:epoch|one_epoch|loop|model|step|fn|batch|net|network))?$"
)
"""Functions that evaluate, by their names."""
OPTIMIZER = re.compile(r"(?:^|[._])(?:\w*optim\w*|opt)$", re.IGNORECASE)
OPERATION = re.compile(r"^(?:train_?(?:op|step)\w*|\w*optimi[sz]er\w*|optim)$", re.IGNORECASE)
"""Names of what changes weights when a session runs it."""
OTHER = re.compile(r"train|fit|learn|adapt|attack|tune", re.IGNORECASE)
"""Functions that train before they evaluate, or evaluate by training."""
TRAINING_DATA = re.compile(
    r"train\w*(?:loader|set|data|_[xy]\b|iter|gen|idx|ind)|\b[xy]_train", re.IGNORECASE
)
FOLDS = re.compile(r"fold|^s?kf\d*$|^r?s?kf$|^cv\w*$|^loo$|^sss$|^gkf$|^tscv$|split", re.IGNORECASE)
MODEL = re.compile(r"model|net(?:work)?$|^clf$", re.IGNORECASE)
RESETTING = re.compile(
    r"reset|init|clone|deepcopy|load|set_weights|^apply$|build|compile_model", re.IGNORECASE
)
REFITTING = re.compile(r"Keras(?:Classifier|Regressor)|Wrapper|Neural\w*(?:Classifier|Regressor)$")
"""Models that begin again with each `fit`."""
APART = re.compile(
    r"^(?:train_test_split|cross_val\w*|cross_validate|\w*(?:KFold|ShuffleSplit)|LeaveOne\w+)$"
)
"""What holds data out."""
METRIC = re.compile(
    r"^(?:accuracy|balanced_accuracy|f1|precision|recall|roc_auc|average_precision)_score$|^classification_report$"
)
ERROR = re.compile(
    r"^(?:r2|explained_variance)_score$|^(?:root_)?mean_(?:absolute|squared)(?:_percentage|_log)?_error$|^(?:mae|mse|rmse)$"
)
REGRESSOR = re.compile(r"^(?:\w*model|\w*regressor|svr|rf|gbr?|xgbr?)$", re.IGNORECASE)
"""Models that predict numbers, by their names; a line through points has none of them."""
SCORING = re.compile(rf"fit$|score$|predict|evaluate$|{METRIC.pattern}|{ERROR.pattern}")
CLASSIFIER = re.compile(
    r"^(?:clf|classifier|knn|svm|svc|logreg|\w+_(?:clf|classifier|knn|svm))$", re.IGNORECASE
)
LEARNING = frozenset(("torch", "tensorflow", "keras", "lightning", "jax", "estimators"))
"""Flags of files with models."""


def of_module(to: Walk, tree: ast.Module) -> None:
    """All of a module, after the walk."""
    if to.facts.flags.isdisjoint(LEARNING):
        return
    Parts(to).scope(tree.body)
    nodes = nodes_of(tree)
    functions = {node.name: node for node in nodes if isinstance(node, Function)}
    operations = _operations(nodes)
    made = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    on_held_out: list[tuple[ast.Call, str]] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            _run(to, node, operations)
        elif isinstance(node, ast.For) and is_only_held_out(ast.unparse(node.iter)):
            on_held_out += [(step, _iterated(node.iter)) for step in _steps(node.body, operations)]
        elif isinstance(node, ast.For) and _goes_over_folds(node):
            _folds(to, node, made)
        elif isinstance(node, Function) and EVALUATING.match(node.name):
            _evaluates(to, node, functions, operations)
    if not any(isinstance(node, ast.Name | ast.Attribute) and APART.search(last(node)) for node in nodes):
        for node in (tree, *functions.values()):
            _scored(to, node)
    steps = sum(isinstance(node, ast.Call) and _is_step(node, operations) for node in nodes)
    if steps > len(on_held_out):  # else what is called held out is all that is trained on
        for step, data in on_held_out:
            to.report("VB603", step, f"a training step on {data}")


def _scored(to: Walk, scope: ast.Module | Function) -> None:
    """`model.fit(x, y)`, and then `model.score(x, y)` or `accuracy_score(y, model.predict(x))`."""
    fitted: set[tuple[str, str, str]] = set()
    numbers: set[str] = set()  # names of what regressors predicted
    predicted: dict[str, str] = {}  # the labels that were fitted to, by the names of predictions
    calls = [call for call in all_of(ast.Call, scope) if call.args and SCORING.match(last(call.func))]
    if not any(last(call.func) == "fit" for call in calls):
        return
    targets = {
        node.value: ast.unparse(node.targets[0])
        for node in all_of(ast.Assign, scope)
        if isinstance(node.value, ast.Call)
    }
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        first, second = [*map(ast.unparse, call.args[:2]), ""][:2]
        method = last(call.func)
        if method == "fit" and owner and second:
            fitted.add((owner, first, second))
        elif method.startswith("predict") and call in targets:
            labels = next((y for model, x, y in fitted if (model, x) == (owner, first)), "")
            predicted[targets[call]] = "" if is_training(first) else labels
            if REGRESSOR.match(owner):
                numbers.add(targets[call])
        elif method == "evaluate" and is_held_out(targets.get(call, "")) and (owner, first, second) in fitted:
            to.report("VB603", call, "the model was fitted to the same data")
        elif is_training(f"{first} {second}"):
            continue  # by its name, how well the model fits
        elif (method == "score" and CLASSIFIER.search(owner) and (owner, first, second) in fitted) or (
            predicted.get(second) == first
            and (METRIC.match(method) or (ERROR.match(method) and second in numbers))
        ):
            to.report("VB603", call, "the model was fitted to the same data")


def _iterated(node: ast.expr) -> str:
    """`loader` of `enumerate(tqdm(loader))`."""
    while isinstance(node, ast.Call) and node.args and last(node.func) in ("enumerate", "tqdm", "iter"):
        node = node.args[0]
    return ast.unparse(node)


def _operations(nodes: Sequence[ast.AST]) -> set[str]:
    """`step` of `step = optimizer.minimize(loss)`."""
    return {
        last(target)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr in ("minimize", "apply_gradients")
    }


def _is_run(node: ast.Call, operations: set[str]) -> bool:
    """`session.run([step, loss], ...)`."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "run" and node.args and operations):
        return False
    fetched = node.args[0]
    parts = fetched.elts if isinstance(fetched, ast.List | ast.Tuple) else [fetched]
    return any(
        last(part) in operations or OPERATION.match(last(part))
        for part in parts
        if isinstance(part, ast.Name | ast.Attribute)
    )


def _run(to: Walk, node: ast.Call, operations: set[str]) -> None:
    """`session.run(step, feed_dict={x: x_val})`."""
    fed = argument(node, "feed_dict", 1)
    if isinstance(fed, ast.Dict) and _is_run(node, operations):
        text = ", ".join(ast.unparse(value) for value in fed.values)
        if is_only_held_out(text):
            to.report("VB603", node, f"a training step on {text}")


def _is_step(node: ast.Call, operations: set[str]) -> bool:
    function = node.func
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr == "step":
        return bool(
            OPTIMIZER.search(ast.unparse(function.value))
            or any(OPTIMIZER.search(ast.unparse(each)) for each in node.args[:1])  # of a GradScaler
        )
    return function.attr in ("apply_gradients", "train_on_batch") or _is_run(node, operations)


def _steps(body: Sequence[ast.stmt], operations: set[str]) -> Iterator[ast.Call]:
    """The training steps that are made whatever conditions say: in a branch where the other has one too."""
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        if isinstance(statement, ast.If):
            first, second = (list(_steps(each, operations)) for each in (statement.body, statement.orelse))
            if first and second:
                yield first[0]
        elif isinstance(statement, ast.For | ast.While | ast.With | ast.Try):
            if not (isinstance(statement, ast.For) and is_training(ast.unparse(statement.iter))):
                yield from _steps(statement.body, operations)
        else:
            yield from (call for call in all_of(ast.Call, statement) if _is_step(call, operations))


def _evaluates(to: Walk, node: Function, functions: dict[str, Function], operations: set[str]) -> None:
    """A function that evaluates by its name, and changes weights itself or by a function that it calls. One
    that makes its own optimizer trains something of its own."""
    text = ast.unparse(node)
    if TRAINING_DATA.search(text):
        return
    for step in _steps(node.body, operations):
        if not _is_own(node, step):
            to.report("VB603", step, f"a training step in {node.name}()")
    for call in all_of(ast.Call, node):
        called = functions.get(_own(call.func))
        if (
            called is None
            or called is node
            or OTHER.search(called.name)
            or TRAINING_DATA.search(ast.unparse(called))
        ):
            continue
        for step in _steps(called.body, operations):
            if not _is_own(called, step):
                to.report("VB603", step, f"{node.name}() makes a training step by {called.name}()")


def _own(function: ast.expr) -> str:
    """`step` of `step(...)` and of `self.step(...)`."""
    match function:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def _is_own(function: Function, step: ast.Call) -> bool:
    """Whether the optimizer of a step is made in the function."""
    owner = step.func.value if isinstance(step.func, ast.Attribute) else step.func
    return not names_in(owner).isdisjoint(stored_in(*function.body))


def _goes_over_folds(node: ast.For) -> bool:
    """`for train, test in folds.split(rows):`."""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "split"
        and bool(call.args)
        and not isinstance(call.args[0], ast.Constant)
        and bool(FOLDS.search(last(call.func.value) or last(getattr(call.func.value, "func", call.func))))
        for call in all_of(ast.Call, node.iter)
    )


def _folds(to: Walk, loop: ast.For, made: dict[str, ast.Call]) -> None:
    """One model that is made before the folds, and trained on from fold to fold."""
    bound = stored_in(*loop.body)
    calls = list(all_of(ast.Call, *loop.body))
    used = {last(call.func) for call in calls if isinstance(call.func, ast.Name)}
    for call in calls:
        model = _trained(call, used)
        if model not in made or model in bound or REFITTING.search(last(made[model].func)):
            continue
        if not any(_resets(each, model) for each in calls):
            why = (
                f"{model} goes on learning from fold to fold, so it was trained on what later folds hold out"
            )
            to.report("VB603", call, why)
            return


def _trained(call: ast.Call, used: set[str]) -> str:
    """`model` of `model.fit(x, y, epochs=9)`, of `train(model, optimizer)`, and of `optimizer.step()` beside
    `model(x)`."""
    function = call.func
    if (
        isinstance(function, ast.Attribute)
        and function.attr == "step"
        and OPTIMIZER.search(last(function.value))
    ):
        return next(filter(MODEL.search, sorted(used)), "")
    if isinstance(function, ast.Attribute) and function.attr in ("fit", "fit_generator"):
        is_keras = any(keyword.arg == "epochs" for keyword in call.keywords)
        return last(function.value) if is_keras and isinstance(function.value, ast.Name) else ""
    names = [value.id for value in call.args if isinstance(value, ast.Name)]
    if re.match(r"_*(?:train|fit)(?:_|$)", last(function)) and any(map(OPTIMIZER.search, names)):
        return next(filter(MODEL.search, names), "")
    return ""


def _resets(call: ast.Call, model: str) -> bool:
    """`model.set_weights(first)`, `reset(model)`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    given = [*call.args, *([owner] if owner is not None else [])]
    return model in names_in(*given) and bool(RESETTING.search(last(call.func)))
