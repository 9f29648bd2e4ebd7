"""What a name stands for: imports, aliases and assignments, through nested scopes."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.registry import registry
from analysis.scan.lint.vocabulary import WORDS, canonical, generator_of, seeded_by

BUILTINS = WORDS["builtins"]
"""The builtins that a rule knows."""
CUSTOMARY = {name: name for name in ("os", "random", "torch", "glob", "keras", "optuna")} | {
    "np": "numpy", "tf": "tensorflow", "nn": "torch.nn", "F": "torch.nn.functional",
}  # fmt: skip
"""What names usually stand for."""
SAYING_NOTHING = frozenset(("typing", "typing_extensions", "builtins", "abc", "collections", "types"))
"""Where the types come from that do not tell which class something has."""


ANY = "<any>"
"""Stands for the modules of a package of which one is loaded by its name."""


class Names:
    """The names of one module. A name stands for a qualified name, `X()` being what a call of X returned,
    `@f` something defined in this module, None something unknown."""

    def __init__(self, module: str) -> None:
        self._package = module.split(".")[:-1]
        self._scopes: list[dict[str, str | None]] = [{}]
        self.stars: list[str] = []
        self.results: dict[str, ast.expr] = {}  # what functions say that they return
        self.values: dict[str, ast.expr] = {}  # what names were given last

    def defined(self) -> list[str]:
        """The functions and classes of the module."""
        return [name for name, meaning in self._scopes[0].items() if meaning == f"@{name}"]

    def push(self) -> None:
        self._scopes.append({})

    def pop(self) -> None:
        self._scopes.pop()

    def is_local(self, name: str) -> bool:
        """Whether a name is one of the scopes within the module."""
        return any(name in scope for scope in self._scopes[1:])

    def is_innermost(self, name: str) -> bool:
        """Whether a name is one of the innermost scope, and not of what is around it."""
        return name in self._scopes[-1]

    def bind(self, name: str, meaning: str | None) -> None:
        self._scopes[-1][name] = meaning

    def bind_import(self, node: ast.Import) -> list[str]:
        """Binds what is imported; returns the modules."""
        for alias in node.names:
            if alias.asname:
                self.bind(alias.asname, alias.name)
            else:
                top = alias.name.partition(".")[0]
                self.bind(top, top)
        return [alias.name for alias in node.names]

    def base(self, node: ast.ImportFrom) -> str:
        """The module that something is imported from, of a relative import too."""
        base = node.module or ""
        if node.level:
            parents = self._package[: len(self._package) - node.level + 1]
            base = ".".join([*parents, base] if base else parents)
        return base

    def bind_from(self, node: ast.ImportFrom) -> list[str]:
        """Binds what is imported; returns the modules that this may load."""
        base = self.base(node)
        loaded = [base]
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(base)
            else:
                self.bind(alias.asname or alias.name, f"{base}.{alias.name}")
                loaded.append(f"{base}.{alias.name}")
        return loaded

    def resolve(self, node: ast.expr) -> str | None:
        """The canonical name of what an expression stands for; None where it is unknown."""
        name = self._raw(node)
        if name and self.results and "()" in name:
            name = self._result(name)
        return canonical(name) if name else None

    def _result(self, name: str) -> str:
        """`Trainer().train` of `@make().train`, where that says that it returns one."""
        function, _, rest = name.partition("()")
        kind = self._raw(self.results[function]) if function in self.results else None
        is_told = kind is not None and kind.partition(".")[0] not in SAYING_NOTHING
        return f"{kind}(){rest}" if is_told else name

    def _raw(self, node: ast.expr) -> str | None:
        calls_and_attributes: list[str] = []
        while True:
            kind = node.__class__
            if kind is ast.Attribute:
                calls_and_attributes.append("." + node.attr)  # type: ignore[attr-defined]
                node = node.value  # type: ignore[attr-defined]
            elif kind is ast.Call:
                if module := self._loaded(node):  # type: ignore[arg-type]
                    return module + "".join(reversed(calls_and_attributes))
                calls_and_attributes.append("()")
                node = node.func  # type: ignore[attr-defined]
            elif kind is ast.Name:
                found = self._lookup(node.id)  # type: ignore[attr-defined]
                break
            elif (one := _one_of(node)) is not None:
                node = one
            else:
                return None
        if found is None or not calls_and_attributes:
            return found
        return found + "".join(reversed(calls_and_attributes))

    def _lookup(self, name: str) -> str | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if self.stars:
            for star in reversed(self.stars):
                if _is_known(canonical(f"{star}.{name}")):
                    return f"{star}.{name}"
            if name in CUSTOMARY:  # `from utils import *`, where utils imports them
                return CUSTOMARY[name]
        return f"builtins.{name}" if name in BUILTINS else None

    def _loaded(self, node: ast.Call) -> str:
        """`nets.unet` of `import_module("nets.unet")`; `nets.<any>` of `import_module("nets." + kind)`.
        A name stands for the text that it was given last."""
        match node:
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"), args=[module]
            ):
                if isinstance(module, ast.Name):
                    module = self.values.get(module.id, module)
                if isinstance(module, ast.Constant) and isinstance(module.value, str):
                    return module.value
                package = _beginning(module).rpartition(".")[0]
                return f"{package}.{ANY}" if package else ""
        return ""


def _one_of(node: ast.expr) -> ast.expr | None:
    """`PPO` of `{"ppo": PPO, "a2c": A2C}[name]`: what the first stands for, the others are of a kind."""
    match node:
        case ast.Subscript(value=ast.Dict(values=[ast.Name() | ast.Attribute() as first, *others])):
            return first if all(isinstance(each, type(first)) for each in others) else None
    return None


def _beginning(text: ast.expr) -> str:
    """`nets.` of `"nets." + kind`, `f"nets.{kind}"`, `"nets.%s" % kind` and `"nets.{}".format(kind)`."""
    match text:
        case ast.BinOp(left=first) | ast.JoinedStr(values=[first, *_]):
            return _beginning(first)
        case ast.Call(func=ast.Attribute(value=first, attr="format")):
            return _beginning(first)
        case ast.Constant(value=str(begins)):
            return re.split("[%{]", begins)[0]
    return ""


def _is_known(name: str) -> bool:
    return (
        generator_of(name) is not None
        or seeded_by(name) != ()
        or name in registry().by_name
        or name in ("torch.utils.data.DataLoader", "keras.Sequential", "keras.models.Sequential")
    )
