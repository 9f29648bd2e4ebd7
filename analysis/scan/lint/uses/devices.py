"""Where a program computes: whether it moves anything to a GPU, or is bound to the CPU."""

from __future__ import annotations

import ast
import re
from functools import partial
from typing import Any

from analysis.scan.lint.syntax.arguments import argument, callee, constant, last
from analysis.scan.lint.syntax.defaults import default
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import WORDS

MOVED, ON_CPU, NEEDS_GPU, ASKS = "moved", "on the CPU", "needs a GPU", "asks for a GPU"
"""Flags of a file: a library moves models to a GPU, a device is the CPU, a GPU is used unasked, one is asked
for or is the user's choice."""
ELSEWHERE_BY_DEFAULT = "elsewhere by default"
"""The flag of a file that makes tensors on another device, or of another type, unless it says where."""
REFUSES = "refuses"
"""Said of what stops where there is no GPU, whatever comes after it."""
MOVING_LIBRARIES = WORDS["moving_libraries"]
"""They move models and data themselves."""
MOVING = re.compile(
    r"^_*(?:cuda|gpu|to_?(?:cuda|gpu)\w*|\w*_to_(?:cuda|gpu)\w*|\w*to_?device\w*|set_default_tensor_type)$",
    re.I,
)
TYPE = re.compile(r"^torch\.(?:u?int\d*|float\d*|b?float16|half|double|long|short|bool|complex\w*)$")
DEVICE_ARGUMENTS = frozenset(
    ("device", "devices", "device_ids", "device_map", "gpus", "gpu", "accelerator", "use_cuda")
)
ENDED_BY_2 = WORDS["ended_by_lightning_2"]
"""Arguments of Lightning's Trainer that version 2.0 does not have."""
CHOICE = re.compile(r"^(?!n_|num_).*(?<![a-z])(?:cuda|gpus?|cpu)(?:$|_)", re.IGNORECASE)
ONLY_WITH_GPU = frozenset(
    f"torch.cuda.{name}" for name in ("current_device", "get_device_name", "get_device_properties")
)
DEVICE = re.compile(r"cuda|mps|[nhx]pu\b|xla")
"""Devices that are there or stop the program, by their beginnings."""
ACCELERATORS = frozenset(("gpu", "cuda", "tpu", "mps", "hpu", "ipu"))
"""Those of Lightning."""
STARTS_PROCESSES = "torch.distributed.init_process_group"
OF_XLA = frozenset(("torch_xla.core.xla_model.xla_device", "torch_xla.device"))
OF_CUDNN = frozenset(("keras.layers.CuDNNLSTM", "keras.layers.CuDNNGRU"))
"""They raise an error where there is no GPU, and so do layers of cuDNN."""
ARGUMENTS = re.compile(
    r"^(?:transformers|trl|setfit|sentence_transformers)\.(?:\w+\.)*(?!TF)\w*(?:Arguments|Config)$"
)
"""They state where a library trains; with fp16 they raise an error where there is no GPU."""
OF_OPTIONS = re.compile(
    r"^(?:self|cls|p|hp|ctx|env|g|common|const\w*|globals?|utils?|device\w*)$|arg|opt|cfg|conf|param|flag|setting|"
    r"train|runner|agent|engine|fabric|accelerator|state|spec|exp",
    re.IGNORECASE,
)
"""Names of what has a device of its own choice."""
ON_NO_GPU = ("", "-1")
MADE_OF_NUMBERS = frozenset(
    f"torch.{name}" for name in ("arange", "linspace", "logspace", "range", "from_numpy")
)
PUTTING = frozenset(("to", "cuda", "type", "type_as"))
"""Methods of tensors that may put them on a GPU."""


TO_CPU = re.compile(r"^/?(?:device:|job:\w+/.*device:)?cpu(?::\d+)?$", re.IGNORECASE)


def pins(to: Walk, context: ast.expr) -> bool:
    """`with tf.device("/cpu:0"):`."""
    return (
        isinstance(context, ast.Call)
        and to.names.resolve(context.func) == "tensorflow.device"
        and bool(TO_CPU.search(str(constant(argument(context, "device_name", 0)))))
    )


def called(to: Walk, node: ast.Call, name: str, attribute: str) -> None:
    """One call; `name` is "" where it is unknown."""
    if attribute in ("is_available", "list_physical_devices", "device_count") or _is_option(node, attribute):
        to.facts.flags.add(ASKS)
    elif _needs(to, node, name, attribute):
        to.facts.flags.add(NEEDS_GPU)
        if not to.branches:
            refuses = name in OF_CUDNN or (name in ONLY_WITH_GPU and not to.scope)
            to.event("gpu", "", node, REFUSES * refuses)
    if name in ("torch.cuda.current_device", "torch.accelerator.current_accelerator"):
        to.facts.flags.add("cuda")
    function = last(node.func)
    of_cpu = name == "torch.device" and _is_without_cuda(argument(node, "type", 0))
    if of_cpu or _trains_on_cpu(node, name):
        to.facts.flags.add(ON_CPU)
    elif (
        (function == "to" and any(_is_device(to, each) for each in _values(node)))
        or MOVING.search(function)
        or name.startswith(
            ("torch.cuda.set_", "torch.set_default_device", "torch.nn.parallel.", "torch.nn.DataParallel")
        )
        or any(k.arg in DEVICE_ARGUMENTS and _is_device(to, k.value) for k in node.keywords)
    ):
        to.event("moved", "", node)
    elif name:
        of_library(to, name)
    if name.endswith(".set_visible_devices") and _hides(node):
        to.facts.flags.add("no GPU")
    if name.startswith("torch.set_default_"):
        to.facts.flags.add(ELSEWHERE_BY_DEFAULT)


def of_library(to: Walk, name: str) -> None:
    """Something of a library is made, or derived from."""
    if name.partition(".")[0] in MOVING_LIBRARIES or name.startswith(
        ("transformers.Trainer", "transformers.Seq2Seq")
    ):
        to.facts.flags.add(MOVED)


def assigned(to: Walk, name: str, value: ast.expr) -> None:
    """`device = "cpu"`; of a name of a function that is a GPU's, whatever happens."""
    if "device" in name.lower() and _is_without_cuda(value):
        to.facts.flags.add(ON_CPU)
    known = f"{to.scope}:{name}"
    is_sure = bool(to.scope) and not to.branches and _is_elsewhere(_begins(value))
    (to.facts.on_gpu.add if is_sure else to.facts.on_gpu.discard)(known)
    (to.facts.made_on_cpu.add if is_made_on_cpu(to, value) else to.facts.made_on_cpu.discard)(known)


def is_made_on_cpu(to: Walk, value: ast.expr) -> bool:
    """`1 - torch.linspace(start, end, steps)`, and what is computed from it: what is made of numbers is on
    the CPU unless it says where, and so is all that it is added to."""
    while isinstance(value, ast.BinOp):  # a + b + c + ...: deep to the left
        if not isinstance(value.right, ast.Subscript) and is_made_on_cpu(to, value.right):
            return True  # one number, `x * steps[0]`, may be anywhere
        value = value.left
        if isinstance(value, ast.Subscript):
            return False
    if ELSEWHERE_BY_DEFAULT in to.facts.flags:
        return False
    match value:
        case ast.Name(id=name):
            return f"{to.scope}:{name}" in to.facts.made_on_cpu
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"{to.scope}:self.{name}" in to.facts.made_on_cpu
        case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
            return is_made_on_cpu(to, inner)
        case ast.Call(func=function, args=args):
            if last(function) in PUTTING or any(k.arg == "device" for k in value.keywords):
                return False
            name = to.names.resolve(function) or ""
            if name in MADE_OF_NUMBERS:
                return True
            of = [function.value] if isinstance(function, ast.Attribute) else []
            if name.startswith("torch."):
                of += args
            return any(is_made_on_cpu(to, each) for each in of)
    return False


def _is_without_cuda(value: ast.expr | None) -> bool:
    """`"cpu"`, `"mps"`, `"mps" if there else "cpu"`."""
    choice = value
    while isinstance(choice, ast.IfExp) and constant(choice.body) == "mps":
        choice = choice.orelse
    return constant(choice) in ("cpu", "mps")


def is_gpu(said: object) -> bool:
    return str(said).startswith("cuda")


def _is_elsewhere(said: object) -> bool:
    """`"cuda:0"`, `"mps"`."""
    return bool(DEVICE.match(str(said)))


def _begins(value: ast.expr | None) -> Any:
    """`"cuda:"` of `f"cuda:{rank}"`; of others the value of a literal."""
    return constant(value.values[0] if isinstance(value, ast.JoinedStr) and value.values else value)


def _hides(node: ast.Call) -> bool:
    """`tf.config.set_visible_devices([], "GPU")`."""
    devices = argument(node, "devices", 0)
    is_none = isinstance(devices, ast.List | ast.Tuple) and not devices.elts
    return is_none and constant(argument(node, "device_type", 1)) == "GPU"


def visible(to: Walk, key: ast.expr | None, value: ast.expr | None) -> None:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = "-1"`."""
    if constant(key) == "CUDA_VISIBLE_DEVICES" and constant(value) in ON_NO_GPU:
        to.facts.flags.add("no GPU")


def _base(value: ast.Attribute) -> str:
    return value.value.id if isinstance(value.value, ast.Name) else ""


def _is_option(node: ast.Call, attribute: str) -> bool:
    """`parser.add_argument("--no-cuda")`."""
    return attribute in ("add_argument", "add_option", "option") and any(
        re.search("cuda|gpu|cpu|device", str(constant(each)), re.IGNORECASE) for each in node.args
    )


def _needs(to: Walk, node: ast.Call, name: str, attribute: str) -> bool:
    """`model.cuda()`, `model.to("cuda")`, `torch.device("cuda")`, `Trainer(gpus=1)`, `load_in_4bit`."""
    if (attribute == "cuda" and not node.keywords) or name in ONLY_WITH_GPU:
        return True
    if not to.branches and (
        name == "torch.cuda.set_device"
        or name in OF_CUDNN | OF_XLA
        or (name == STARTS_PROCESSES and constant(argument(node, "backend", 0)) == "nccl")
        or (name == "torch.set_default_tensor_type" and _is_type_of_cuda(to, argument(node, "t", 0)))
    ):
        return True
    if attribute == "to" or name in ("torch.device", "torch.set_default_device"):
        said = constant if to.scope else partial(default, to)  # a parameter may be given another value
        return any(
            _is_elsewhere(_begins(each))
            or _is_elsewhere(said(each))
            or (isinstance(each, ast.Name) and f"{to.scope}:{each.id}" in to.facts.on_gpu)
            for each in _values(node)
        )
    if name.startswith("sentence_transformers."):
        return is_gpu(constant(argument(node, "device", 2)))
    if name.startswith("ultralytics."):
        device = constant(argument(node, "device"))  # 0, "0,1", [0, 1]; with -1 it takes an idle GPU
        return type(device) is int or bool(re.match(r"cuda|\d|\[\d", str(device)))
    if (
        constant(argument(node, "load_in_4bit")) is True
        or (ARGUMENTS.match(name) and constant(argument(node, "fp16")) is True)
        or (name == "accelerate.Accelerator" and constant(argument(node, "mixed_precision")) == "fp16")
    ):
        return True
    if name.startswith("skorch."):
        return is_gpu(constant(argument(node, "device")))
    return name in ("lightning.Trainer", "lightning.Fabric") and (
        constant(argument(node, "accelerator")) in ACCELERATORS or _counts_gpus(argument(node, "gpus"))
    )


def _is_type_of_cuda(to: Walk, value: ast.expr | None) -> bool:
    """`"torch.cuda.FloatTensor"`, `torch.cuda.FloatTensor`."""
    said = constant(value) if value is None or constant(value) is not ... else to.names.resolve(value)
    return str(said).startswith("torch.cuda.")


def _counts_gpus(value: ast.expr | None) -> bool:
    """`1`, `-1` (all), `[0]`, `"0,1"`."""
    match value:
        case ast.UnaryOp(op=ast.USub()) | ast.List(elts=[_, *_]) | ast.Tuple(elts=[_, *_]):
            return True
        case ast.Constant(value=str(text)):
            return text == "-1" or "," in text
    gpus = constant(value)
    return type(gpus) is int and gpus > 0


def _trains_on_cpu(node: ast.Call, name: str) -> bool:
    """`Trainer(accelerator="cpu")`; `Trainer(track_grad_norm=2)` of a version before 2.0, which used a GPU
    only where that was said; `TrainingArguments(use_cpu=True)`, `Accelerator(cpu=True)`."""
    if ARGUMENTS.match(name) or name == "accelerate.Accelerator":
        return any(constant(argument(node, each)) is True for each in ("use_cpu", "no_cuda", "cpu"))
    if name != "lightning.Trainer":
        return False
    given = {keyword.arg for keyword in node.keywords}
    if constant(argument(node, "accelerator")) == "cpu":
        return True
    if node.args:  # of `Trainer.from_argparse_args(options)`, which may have more
        return False
    return bool(given & ENDED_BY_2) and not given & {*DEVICE_ARGUMENTS, "strategy", "auto_select_gpus", None}


def is_there(test: ast.expr) -> bool:
    """`torch.cuda.is_available()`, `use_cuda`: whether a condition asks for a GPU."""
    match test:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="cuda"), attr="is_available")):
            return True
    return bool(CHOICE.search(last(test)))


def refused(to: Walk, node: ast.If) -> None:
    """`if not torch.cuda.is_available(): raise RuntimeError`, in no branch."""
    match node:
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test), body=body) if not to.branches:
            if is_there(test) and any(isinstance(each, ast.Raise) or _exits(each) for each in body):
                to.event("gpu", "", node, REFUSES)


def _exits(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and callee(node.value) == "exit"


def asserted(to: Walk, node: ast.Assert) -> None:
    """`assert torch.cuda.is_available()`."""
    if is_there(node.test) and not to.branches:
        to.event("gpu", "", node, REFUSES)


def named(to: Walk, node: ast.Name | ast.Attribute) -> None:
    """`args.use_cuda`, `gpu`: a choice, unless it is `torch.cuda`."""
    if CHOICE.search(last(node)) and not (isinstance(node, ast.Attribute) and _base(node) == "torch"):
        to.facts.flags.add(ASKS)


def chosen(to: Walk, node: ast.IfExp) -> None:
    """`"cuda" if there else "cpu"`."""
    if "cpu" in (constant(node.body), constant(node.orelse)):
        to.facts.flags.add(ASKS)


def _values(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords if k.arg == "device")]


def _is_device(to: Walk, value: ast.expr) -> bool:
    """Whether a value may be a GPU: not a type, and not the CPU."""
    said = constant(value)
    if said is not ...:
        return said is True or type(said) is int or str(said).startswith(("cuda", "gpu", "auto"))
    if isinstance(value, ast.Attribute) and value.attr == "device" and not OF_OPTIONS.search(_base(value)):
        return False  # `x.device`: where another tensor is
    name = to.names.resolve(value) or ""
    return not TYPE.search(name) and not (isinstance(value, ast.Attribute) and value.attr == "dtype")
