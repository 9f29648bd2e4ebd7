"""Operations of the registry, as they are used in a file."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.facts import Use, spot
from analysis.scan.lint.registry import Arguments, Operation, operations_of, registry
from analysis.scan.lint.syntax.arguments import argument, called_on, constant, last
from analysis.scan.lint.syntax.defaults import default
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.uses import devices
from analysis.scan.lint.vocabulary import WORDS

WITHOUT_GRADIENT = re.compile(
    r"(?:^|[._])(?:reorder|generate|predict|infer|post_?process|beam|nms|decode|visuali[sz]e|plot|explain|evaluate|eval)(?:_|$|\.)"
    r"|top_?[kp]|(?:^|_)gt(?:_|$)|nucleus|sample_(?:from|sequence|token|next)|grad_?cam|saliency|(?<!geo)(?<!sym)(?<!para)(?<!volu)metric|accuracy",
    re.IGNORECASE,
)
"""Functions that run after training."""
TRAINS_TOO = re.compile(r"(?:^|\.)(?:run_|do_)?(?:train|fit)_and_(?:eval|valid|test)", re.IGNORECASE)
"""Functions that do both: `train_and_evaluate`."""
FUNCTIONAL = "torch.nn.functional."
OF_DATA = re.compile(
    r"^(?:imgs?|images?|frames?|targets?|labels?|gts?|gt_\w+|edges?|one_?hots?|teacher\w*|clips?|videos?)$",
    re.IGNORECASE,
)
"""Names of what no gradient flows to: data, and what a teacher gives."""
NUMBER = re.compile(
    r"^(?:alpha|beta|gamma|eps\w*|epsilon|smooth(?:ing)?|confidence|\w*_value|(?:n|num)_\w+|\w*classes|n_?class|n|inf)$",
    re.IGNORECASE,
)
"""Names of numbers, such as those with which labels are smoothed."""
OF_ARRAYS = re.compile(r"^torch\.(?:from_numpy|tensor|as_tensor|frombuffer|load)\(\)")
"""What makes tensors without a gradient."""
SHAPING = WORDS["shaping"]
ONES = frozenset(("ones", "ones_like", "zeros", "zeros_like", "new_ones", "new_zeros"))
WHOLE_TYPE = re.compile(r"^u?int|^long$|^bool$|^short$")
WHOLE_METHODS = WORDS["whole_methods"]
WHOLE_NAME = re.compile(
    r"(?:masks?|lens?|lengths?|counts?|sizes?|ids?|idxs?|index|indexes|indices|inds?|offsets?|repeats|batch|labels?|shapes?|bound(?:ary|aries|s)|dur(?:s|ations?)|tp|fp)\d?$"
    r"|^n$|^index_|range$|^(?:n|num|is)_",
    re.IGNORECASE,
)
"""Names that tensors of whole numbers have."""


def used(to: Walk, node: ast.Call, name: str) -> None:
    known = registry()
    for index in operations_of(name):
        operation = known.operations[index]
        if _differs(to, node, operation, operation.position + name.startswith(FUNCTIONAL)):
            to.facts.operations.append(Use(index, name, spot(node)))
            if operation.model:
                to.facts.targets[spot(node)] = to.target
    if name in known.threads_by_name:
        index = known.threads_by_name[name]
        threaded = known.threads[index]
        if not _spared(to, node, threaded.unless, threaded.position):
            to.facts.threaded.append(Use(index, name, spot(node)))
    of_self = name.startswith("@") and name.count(".") > 1  # a method of something that `self` has
    if name.startswith("torch.Tensor.") or (name.startswith("torch.") and "()." in name) or of_self:
        method(to, node, name.rpartition(".")[2])


def inherited(to: Walk, base: ast.expr, name: str) -> None:
    """A class derived from a layer is one, whatever its arguments."""
    if operations_of(name) or name in registry().threads_by_name:
        used(to, ast.copy_location(ast.Call(func=base, args=[], keywords=[]), base), name)


def compiled(to: Walk, node: ast.Call) -> None:
    """`model.compile("adam", loss="categorical_crossentropy")`."""
    loss = constant(argument(node, "loss", 1))
    if isinstance(loss, str) and "tensorflow" in to.facts.flags:
        used(to, node, f"keras.losses.{loss}")


def method(to: Walk, node: ast.Call, attribute: str) -> None:
    """A method of something unknown: only those that nothing but tensors has, in files that import torch."""
    known = registry()
    if attribute in known.by_method and "torch" in to.facts.flags:
        for index in known.by_method[attribute]:
            operation = known.operations[index]
            dimension = argument(node, "dim", 0)
            named = isinstance(dimension, ast.Name) and dimension.id in ("dim", "axis")
            if operation.dim and not (named or _is_number(dimension)):
                continue
            if _differs(to, node, operation, operation.position - 1, is_method=True):
                to.facts.operations.append(Use(index, f"Tensor.{attribute}", spot(node)))


def _differs(
    to: Walk, node: ast.Call, operation: Operation, position: int, *, is_method: bool = False
) -> bool:
    """Whether the arguments are those with which the operation can differ."""
    tensor = _tensor(node, is_method=is_method)
    name = _name(tensor)
    if operation.in_gradient and (to.without_gradient or OF_DATA.search(name) or _is_read(to, tensor)):
        return False
    if not operation.always and (
        to.pinned
        or (WITHOUT_GRADIENT.search(to.scope) and not TRAINS_TOO.search(to.scope))
        or any(map(_is_of_ones, node.args))
        or (tensor is not None and devices.is_made_on_cpu(to, tensor))
    ):
        return False
    if operation.of and not re.search(operation.of, name):
        return False
    if operation.overlaps and not _overlaps(node, position):
        return False
    if operation.chosen and not any(re.search(operation.chosen, text) for text in _chosen(to, node)):
        return False
    if operation.where and not _is_where(to, operation):
        return False
    if id(node) in to.only_values and not {"torch.median", "torch.kthvalue"}.isdisjoint(operation.names):
        return False
    if operation.floats and _is_whole(node, tensor):
        return False
    if _spared(to, node, operation.unless, position):
        return False
    for name, values in operation.only:
        given = argument(node, name, position)
        if given is None and operation.default in values:
            continue
        if given is None or (name == "src" and _is_number(given)):
            return False
        if values and isinstance(given, ast.Constant) and given.value not in values:
            return False
        if values and isinstance(given, ast.Attribute) and given.attr.lower() not in values:
            return False  # ResizeMethod.BILINEAR
        if values and not isinstance(given, ast.Constant | ast.Attribute):
            return False  # unknown: silence rather than noise
    return True


def _chosen(to: Walk, node: ast.Call) -> list[str]:
    """The text of its first argument, or the texts that the name of that has by default."""
    given = argument(node, "model_name", 0)
    values = to.facts.defaults.get(last(given), {constant(given)})
    return [value for value in values if isinstance(value, str)]


def _is_where(to: Walk, operation: Operation) -> bool:
    """Whether the names around tell the case in which it differs."""
    if re.search(operation.where, f"{to.facts.path} {to.scope}", re.IGNORECASE):
        return True
    names = to.facts.imported.values() if operation.imports else ()
    return any(re.search(operation.imports, name) for name in names)


def _is_number(node: ast.expr | None) -> bool:
    """`1`, `-1e9`, `float("inf")`, `1 - self.eps`, `confidence`."""
    match node:
        case ast.UnaryOp(operand=inner):
            return _is_number(inner)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Call(func=ast.Name(id="float" | "int")):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return bool(NUMBER.search(name))
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _spared(to: Walk, node: ast.Call, unless: Arguments, position: int) -> bool:
    for name, values in unless:
        given = argument(node, name, position)
        if given is not None and (not values or {ast.unparse(given), str(default(to, given))} & {*values}):
            return True
    return False


def _is_whole(node: ast.Call, tensor: ast.expr | None) -> bool:
    """Whether the tensor is one of whole numbers or truth values, as far as the text shows."""
    kind = argument(node, "dtype")
    if isinstance(kind, ast.Attribute) and WHOLE_TYPE.search(kind.attr):
        return True
    match tensor:
        case ast.Compare() | ast.UnaryOp(op=ast.Invert()):
            return True
        case ast.Call(func=ast.Attribute(attr="to" | "type"), args=[ast.Attribute(attr=name), *_]):
            return bool(WHOLE_TYPE.search(name))
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in WHOLE_METHODS
    return bool(WHOLE_NAME.search(_name(tensor)))


def _overlaps(node: ast.Call, position: int) -> bool:
    """Whether the windows of a pool overlap, for then several of them add to one gradient."""
    size, step = argument(node, "kernel_size", position), argument(node, "stride", position + 1)
    if size is None or step is None:
        return False
    sizes, steps = _numbers(size), _numbers(step)
    if sizes and steps:
        return any(a > b for a, b in zip(sizes * len(steps), steps * len(sizes), strict=True))
    padding = argument(node, "padding", position + 2)
    return ast.unparse(size) != ast.unparse(step) and padding is not None and constant(padding) != 0


def _numbers(node: ast.expr) -> list[int]:
    """`[2]` of `2`, `[3, 2, 2]` of `(3, 2, 2)`; none where one is not known."""
    each = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    known = [value for item in each if isinstance(value := constant(item), int)]
    return known if len(known) == len(each) else []


def _is_of_ones(value: ast.expr) -> bool:
    """`degree.scatter_add_(0, index, torch.ones_like(index))`: a count is exact in any order."""
    return called_on(value, ONES) is not None


def _tensor(node: ast.Call, *, is_method: bool) -> ast.expr | None:
    function = node.func
    tensor = function.value if is_method and isinstance(function, ast.Attribute) else None
    tensor = (
        tensor or argument(node, "input", 0) or argument(node, "params", 0) or argument(node, "images", 0)
    )
    while (of := called_on(tensor, SHAPING)) is not None:
        tensor = of
    while isinstance(tensor, ast.Subscript) and not isinstance(constant(tensor.slice), str):
        tensor = tensor.value
    return tensor


def _is_read(to: Walk, tensor: ast.expr | None) -> bool:
    """Whether the tensor is made of an array or numbers here."""
    return tensor is not None and bool(OF_ARRAYS.search(to.names.resolve(tensor) or ""))


def _name(tensor: ast.expr | None) -> str:
    match tensor:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return last(tensor)
