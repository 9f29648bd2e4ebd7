"""The files and functions of a project, found by the names under which they are imported and called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile

from analysis.scan.lint.facts import MAIN, Event, FileFacts
from analysis.scan.lint.syntax.bindings import UNKNOWN
from analysis.scan.lint.vocabulary import ELSEWHERE

LIBRARIES = ELSEWHERE - {"this"}
"""An installed library is meant, whatever files a project has."""
MENTIONS = frozenset(("call", "value", "method"))
"""Events that name a function or a class."""
HOPS = 4  # how often a name is imported from what has imported it


class Index:
    """The modules of a project by their names."""

    def __init__(self, files: Sequence[FileFacts]) -> None:
        self._by_last: dict[str, list[tuple[str, FileFacts]]] = {}
        self._packages: dict[str, FileFacts] = {}
        self._known: dict[tuple[str, str, int], tuple[FileFacts, str] | None] = {}
        self._modules: dict[tuple[str, str], FileFacts | None] = {}  # by name and importer
        self._functions: dict[tuple[str, str], tuple[FileFacts, str] | None] = {}  # by name and caller
        self._mentions: dict[str, dict[str, set[str]]] = {}  # of files
        for file in files:
            if file.is_notebook:
                continue  # is not imported
            name = file.module.removesuffix(".__init__")
            if name != file.module:
                self._packages[name] = file
            self._by_last.setdefault(name.rpartition(".")[2], []).append((name, file))

    def module(self, name: str, importer: FileFacts) -> FileFacts | None:
        """The file that an import of `name` reads: its path ends with the name. Of several, the one beside a
        program, else the one in the folder nearest to the importer."""
        known = self._modules.get((name, importer.path), ...)
        if known is ...:
            known = self._modules[name, importer.path] = self._nearest(name, importer)
        return known

    def _nearest(self, name: str, importer: FileFacts) -> FileFacts | None:
        if not name or name.partition(".")[0] in LIBRARIES:
            return None
        found = self._named(name)
        if len(found) > 1:
            beside = _beside(importer, name)
            found.sort(
                key=lambda each: (
                    each[1] is importer,  # `train.py` that imports from the package `train`
                    importer.is_main and each[0] != beside,
                    -_shared(each[1].module, importer.module),
                    len(each[0]),
                    not each[1].module.endswith("__init__"),  # of both, Python takes the package
                )
            )
        return found[0][1] if found else None

    def below(self, package: str, importer: FileFacts) -> list[str]:
        """The modules of a package, by their whole names; of several packages, of the nearest to a file."""
        if package.partition(".")[0] in LIBRARIES:
            return []
        found: dict[str, list[str]] = {}
        for full in (full for each in self._by_last.values() for full, _ in each):
            around = full.rpartition(".")[0]
            if f".{around}".endswith(f".{package}"):
                found.setdefault(around, []).append(full)
        nearest = min(found, key=lambda each: (-_shared(f"{each}.", importer.module), len(each)), default="")
        return sorted(found.get(nearest, ()))

    def lacks(self, module: str, name: str, importer: FileFacts) -> bool:
        """Whether `from module import name` fails: the module is one of the project for certain, beside the
        program or by its whole name, and none of that name in the project has it."""
        found, beside = self._named(module), _beside(importer, module)
        return any(full == beside or (full == module and "." in module) for full, _ in found) and not any(
            not file.bound
            or not file.bound.isdisjoint((name, UNKNOWN))
            or f"{full}.{name}" in self.whole_names
            for full, file in found
        )

    def _named(self, name: str) -> list[tuple[str, FileFacts]]:
        """The modules whose whole names end with a name."""
        return [
            (full, file)
            for full, file in self._by_last.get(name.rpartition(".")[2], ())
            if full == name or full.endswith("." + name)
        ]

    def is_local(self, name: str, importer: FileFacts) -> bool:
        """Whether a module or a folder of that name lies beside a file, or beside a folder around it."""
        around = importer.module.split(".")[:-1]
        return any(".".join([*around[:count], name]) in self.whole_names for count in range(len(around) + 1))

    @cached_property
    def whole_names(self) -> frozenset[str]:
        """The modules and the folders around them, by their whole names."""
        every = (full.split(".") for each in self._by_last.values() for full, _ in each)
        return frozenset(".".join(parts[:count]) for parts in every for count in range(1, len(parts) + 1))

    def has(self, name: str) -> bool:
        """Whether a module or a folder anywhere has that name at the end of its whole name."""
        return name in self._ends

    @cached_property
    def _ends(self) -> frozenset[str]:
        every = (name.split(".") for name in self.whole_names)
        return frozenset(".".join(parts[first:]) for parts in every for first in range(len(parts)))

    def packages(self, name: str, file: FileFacts) -> list[FileFacts]:
        """The packages around a module, the outermost first: an import of a.b.c runs a, then a.b, then it."""
        parts = file.module.removesuffix(".__init__").split(".")
        first = len(parts) - name.count(".")
        around = [".".join(parts[:count]) for count in range(first, len(parts))]
        return [self._packages[each] for each in around if each in self._packages]

    def function(self, name: str, caller: FileFacts) -> tuple[FileFacts, str] | None:
        """The file and scope that a call of `name` runs."""
        known = self._functions.get((name, caller.path), ...)
        if known is ...:
            known = self._functions[name, caller.path] = self._called(name.replace("()", ""), caller)
        return known

    def _called(self, name: str, caller: FileFacts) -> tuple[FileFacts, str] | None:
        if name.startswith("@"):
            return _scope(caller, name[1:])
        if name.startswith("*."):
            return self._exported(caller, name[2:], HOPS)
        return self._elsewhere(name, caller, HOPS)

    def _elsewhere(self, name: str, caller: FileFacts, hops: int) -> tuple[FileFacts, str] | None:
        parts = name.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            file = self.module(".".join(parts[:cut]), caller)
            if file is not None:
                rest = ".".join(parts[cut:])
                return _scope(file, rest) or (self._exported(file, rest, hops - 1) if hops else None)
        return None

    def _exported(self, file: FileFacts, name: str, hops: int) -> tuple[FileFacts, str] | None:
        """What a file has imported itself: `from .train import fit` in an `__init__`, or all of a module."""
        known = self._known.get((file.path, name, hops), ...)
        if known is ...:
            known = self._known[file.path, name, hops] = self._look_up(file, name, hops)
        return known

    def _look_up(self, file: FileFacts, name: str, hops: int) -> tuple[FileFacts, str] | None:
        first, dot, rest = name.partition(".")
        if first in file.imported and hops:
            return self._elsewhere(file.imported[first] + dot + rest, file, hops)
        for star in reversed(file.stars):  # what is imported last counts
            found = self.module(star, file)
            if found is not None and found is not file:
                target = _scope(found, name) or (self._exported(found, name, hops - 1) if hops else None)
                if target is not None:
                    return target
        return None

    def members(self, event: Event, file: FileFacts) -> list[Event]:
        """What an event may give or call: itself, unless it names all of something: `models.*` all that a
        module has, `@Run().*` the public methods of a class."""
        owner = event.name.removesuffix(".*")
        if owner == event.name:
            return [event]
        kind, names = event.kind, set[str]()
        made = self.function(owner, file) if owner.endswith("()") else None
        if made is not None and made[1].endswith(".__init__"):
            kind, names = "call", self._methods(made[0], made[1].removesuffix(".__init__"))
        elif (module := self.module(owner, file)) is not None:
            names = (
                {scope for scope in module.scopes if "." not in scope} | module.classes | {*module.imported}
            )
            for star in module.stars:
                every = self.module(star, module)
                names |= every.classes if every is not None else set()
        return [event._replace(kind=kind, name=f"{owner}.{each}") for each in sorted(names - {"", MAIN})]

    def mentions(self, file: FileFacts) -> dict[str, set[str]]:
        """The last names of what each scope of a file calls, gives or fetches."""
        found = self._mentions.get(file.path)
        if found is None:
            found = self._mentions[file.path] = {
                scope: {
                    last_name(each.name)
                    for event in events
                    if event.kind in MENTIONS
                    for each in self.members(event, file)
                }
                for scope, events in file.scopes.items()
            }
        return found

    def _methods(self, file: FileFacts, name: str) -> set[str]:
        """The public methods of a class, and of those that it is derived from."""
        found: set[str] = set()
        classes = [(file, name)]
        for base, owner in classes:  # grows
            scopes = (scope.rpartition(".") for scope in base.scopes)
            found |= {last for around, _, last in scopes if around == owner and not last.startswith("_")}
            classes += [each for each in self.bases(base, owner) if each not in classes]
        return found

    def bases(self, file: FileFacts, name: str) -> Iterator[tuple[FileFacts, str]]:
        """The classes of the project that a class is derived from."""
        for event in file.scopes.get(f"{name}.__init__", ()):
            if event.kind == "call" and event.name.endswith(".__init__"):
                target = self.function(event.name.removesuffix(".__init__"), file)
                if target is not None:
                    yield target[0], target[1].rpartition(".")[0]


def last_name(name: str) -> str:
    """`fit` of `@Model().fit`."""
    return name.replace("()", "").lstrip("@").rpartition(".")[2]


def _scope(file: FileFacts, name: str) -> tuple[FileFacts, str] | None:
    """The function of a name in a file; of a class, its `__init__`, whether it has one or not."""
    for candidate in (name, f"{name}.__init__"):
        if candidate in file.scopes:
            return file, candidate
    name = name.removesuffix(".__init__")
    if name in file.classes:
        return file, f"{name}.__init__"
    return None


def _beside(importer: FileFacts, name: str) -> str:
    """The whole name of a module in the folder of another one."""
    return ".".join([*importer.module.split(".")[:-1], name])


def _shared(a: str, b: str) -> int:
    """How many folders the names of two modules share."""
    pairs = zip(a.split("."), b.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
