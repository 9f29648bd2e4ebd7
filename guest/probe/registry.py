"""The registry of operations, read from `registry.toml`, which describes its format."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import CodeType
from typing import Any

from guest.probe import steps
from guest.records.run import Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One entry. `inputs`, `torch` and `tensorflow` are expressions; "": the framework has no such
    operation."""

    name: str
    setting: str
    inputs: str
    torch: str = ""
    tensorflow: str = ""
    aten: tuple[str, ...]
    tf: tuple[str, ...] = ()
    backward: bool = True
    sizes: tuple[int, ...] = (8, 32, 128, 512)

    def draw(self, generator: Any, size: int) -> dict[str, Any]:
        """The arguments of one size by name, drawn by a `guest.probe.tasks.Draw`."""
        drawn: dict[str, Any] = eval(_code(f"dict({self.inputs})"), {"d": generator, "n": size})  # noqa: S307
        return drawn

    def computed_in(self, framework: Framework) -> str:
        """The expression of the framework's result; "" where it has none."""
        return self.torch if framework is Framework.TORCH else self.tensorflow

    def compute(self, framework: Framework, module: Any, arguments: Mapping[str, Any]) -> Any:
        """The result, of the framework's module and the arguments."""
        names = {**vars(steps), "T": module, **arguments}
        return eval(_code(self.computed_in(framework)), names)  # noqa: S307


@cache
def _code(expression: str) -> CodeType:
    return compile(f"({expression})", "registry.toml", "eval")


@cache
def _registry() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("registry.toml").read_text("utf-8"))


@cache
def operations() -> tuple[Operation, ...]:
    found = []
    for name, entry in _registry()["operations"].items():
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
        found.append(Operation(name=name, **values))
    return tuple(found)


def setting_of(framework: Framework, op: str, dtype: str = "float32") -> str | None:
    """What governs an operation of this type, as the framework calls it (`aten.mm.default`, `MatMul`), for a
    person; None for one that the registry does not know."""
    found = _covered(framework).get(base_name(op))
    if found == "oneDNN" and dtype == "float64":  # it has no convolution of that
        found = "gemm"
    if found == "gemm" and framework is Framework.TORCH and dtype in ("bfloat16", "float16"):
        found = "low_precision_gemm"
    return None if found is None else str(_registry()["settings"][framework][found])


def base_name(op: str) -> str:
    """`aten.add_.Tensor` is `add`: in place or not, with whatever arguments."""
    if "." not in op:
        return op
    name = op.split(".")[1]
    return name.rstrip("_") if not name.startswith("__") else name


@cache
def _covered(framework: Framework) -> dict[str, str]:
    """By a framework's operation its own setting, or that of the first entry that runs it."""
    own: dict[str, list[str]] = _registry()["settings_of"][framework]
    covered = {name: setting for setting, names in own.items() for name in names}
    for operation in operations():
        for name in operation.aten if framework is Framework.TORCH else operation.tf:
            covered.setdefault(name, operation.setting)
    return covered
