"""What is followed through the calls of a project, before its programs are looked at: branches that none
takes, `if method == "adasyn"` where all give "smote", seeds that none gives, `random_state=seed` where all
leave it None, modules that are loaded by their names, trainers that functions return,
`make_trainer(model).train()`, and functions that load a model if it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.scan.lint.facts import Choice, Event, FileFacts, Values, finding
from analysis.scan.lint.index import Index, last_name
from analysis.scan.lint.lint import goes_on
from analysis.scan.lint.names import ANY
from analysis.scan.lint.programs.differ import LOADING
from analysis.scan.lint.programs.kinds import is_test
from analysis.scan.lint.syntax.constants import holds
from analysis.scan.lint.vocabulary import OWN_SOURCE, PERHAPS, WORDS
from analysis.scan.results import LintFinding

OFTEN_CALLED = WORDS["called_by_frameworks"] | WORDS["usual_methods"]
"""Methods whose calls are not all known."""
TRAIN = "().train"
HOPS = 3  # through how many callers a parameter is followed
Site = tuple[FileFacts, str, Event]


def without_unreached(files: Sequence[FileFacts]) -> Sequence[FileFacts]:
    """The files without what stands in such branches, nor in those that only they lead to; what has no such
    seed draws."""
    if any(file.flags & LOADING for file in files):
        return files
    for _ in range(HOPS):
        if not any(file.choices for file in files):
            break
        calls = _Calls(files)
        excluded = [[each for each in file.choices if calls.exclude(file, each)] for file in files]
        if not any(excluded):
            break
        files = [
            _without(file, choices) if choices else file
            for file, choices in zip(files, excluded, strict=True)
        ]
    if any(file.seeds for file in files):
        calls = _Calls(files)
        files = [calls.unseeded(file) if file.seeds else file for file in files]
    return files


def with_modules(files: Sequence[FileFacts]) -> Sequence[FileFacts]:
    """The files, with all modules of a package where one of them is loaded by its name."""
    if not any(ANY in event.name for file in files for event in file.events()):
        return files
    index = Index(files)
    return [_with_modules(file, index) for file in files]


def _with_modules(file: FileFacts, index: Index) -> FileFacts:
    scopes: dict[str, list[Event]] = {}
    for scope, events in file.scopes.items():
        scopes[scope] = []
        for event in events:
            package, by_name, rest = event.name.partition(f".{ANY}")
            modules = index.below(package, file) if by_name else []
            scopes[scope] += [event._replace(name=module + rest) for module in modules] or [event]
            if event.kind == "import":
                scopes[scope] += [event._replace(kind="value", name=f"{module}.*") for module in modules]
    return replace(file, scopes=scopes)


def with_trainers(files: Sequence[FileFacts]) -> Sequence[FileFacts]:
    """The files, with a training where what a function returns, a trainer of a library, trains."""
    if not any(any(file.trainers.values()) for file in files):
        return files
    index = Index(files)
    return [_with_trainings(file, index) for file in files]


def with_resumed(files: Sequence[FileFacts]) -> Sequence[FileFacts]:
    """The files, with what they go on from by a function that loads a model if it is there (VB106)."""
    if not any(file.loading for file in files) or not any(file.handed_back for file in files):
        return files
    index = Index(files)
    return [
        replace(file, findings=[*file.findings, *_resumed(file, index)]) if file.handed_back else file
        for file in files
    ]


def _resumed(file: FileFacts, index: Index) -> Iterator[LintFinding]:
    for event in file.events():
        given = file.handed_back.get(event.spot, {}) if event.kind == "call" else {}
        target = index.function(event.name, file) if given else None
        places = target[0].loading.get(target[1], []) if target is not None else []
        names = [given.get(place, given.get(name, "")) for place, name in places]
        if names and all(names):
            yield goes_on(file.path, event.spot, ", ".join(names))


def _with_trainings(file: FileFacts, index: Index) -> FileFacts:
    flags = set(file.flags)
    scopes: dict[str, list[Event]] = {}
    for scope, events in file.scopes.items():
        scopes[scope] = []
        for event in events:
            scopes[scope].append(event)
            if event.kind == "call" and event.name.endswith(TRAIN):
                made_by = index.function(event.name.removesuffix(TRAIN), file)
                if made_by is not None and made_by[0].trainers.get(made_by[1], False):
                    scopes[scope].append(event._replace(kind="train", name="Trainer.train()", text=""))
                    flags |= made_by[0].flags & {"torch", "tensorflow"}
    return replace(file, scopes=scopes, flags=flags)


class _Calls:
    """The calls of a project, by the last names of what is called."""

    def __init__(self, files: Sequence[FileFacts]) -> None:
        self._index = Index(files)
        self._stored = set().union(*(file.stored for file in files))
        self._sites: dict[str, list[Site]] = {}
        for file in files:
            if is_test(file):
                continue
            for scope, events in file.scopes.items():
                for event in events:
                    if event.kind in ("call", "value", "method", "parallel"):
                        name = last_name(event.name.removesuffix(".__init__"))
                        self._sites.setdefault(name, []).append((file, scope, event))

    def exclude(self, file: FileFacts, choice: Choice) -> bool:
        """Whether no call gives the parameter a value with which the lines run."""
        if choice.name != choice.parameter and choice.name.removeprefix("self.") in self._stored:
            return False
        values = self._values(file, choice.scope, choice.parameter, HOPS)
        said = {holds(choice.test, {choice.name: value}) for value in values}
        return said == {not choice.holds}

    def unseeded(self, file: FileFacts) -> FileFacts:
        """The file, with draws where no call gives a seed, and findings of generators of their own."""

        def settled(scope: str, event: Event) -> Event:
            is_open = event.kind == PERHAPS
            given = self._values(file, scope, file.seeds[event.spot], HOPS) if is_open else ()
            return event._replace(kind="draw") if set(given) == {None} else event

        scopes = {scope: [settled(scope, each) for each in every] for scope, every in file.scopes.items()}
        own = [
            finding("VB102", file.path, each.spot, each.text)
            for every in scopes.values()
            for each in every
            if each.kind == "draw" and each.name == OWN_SOURCE
        ]
        return replace(file, scopes=scopes, findings=[*file.findings, *own])

    def _values(self, file: FileFacts, scope: str, name: str, hops: int) -> Values:
        """All values that calls give to a parameter; none where one is unknown."""
        known = file.parameters.get(scope, {}).get(name)
        owner, _, last = scope.rpartition(".")
        if known is None or not hops or scope in file.commands or (owner and last in OFTEN_CALLED):
            return ()
        is_method = owner in file.classes
        for caller, _, event in self._sites.get("*", ()):
            whole = event.name.removesuffix(".*")
            made = self._index.function(whole, caller) if whole.endswith("()") else None
            if made == (file, f"{owner}.__init__") or self._index.module(whole, caller) is file:
                return ()  # `getattr(models, name)`, `fire.Fire(Run)`
        found: list[object] = []
        for caller, around, event in self._sites.get(owner if last == "__init__" else last, ()):
            target = self._index.function(event.name, caller)
            if (
                target is not None
                and target != (file, scope)
                and not (is_method and target[1].endswith(f".{last}"))
            ):
                continue
            if target is None and event.kind == "method" and (not is_method or last == "__init__"):
                continue
            given = caller.given.get(event.spot)
            if event.kind in ("value", "parallel") or given is None or given.is_open:
                return ()
            place = known.position - is_method
            if place < 0:
                return ()  # a method whose first parameter is the object, under another name than `self`
            value = given.named.get(name, known.default)
            if place < len(given.positional):
                value = given.positional[place]
            if isinstance(value, str):
                value = self._values(caller, around, value, hops - 1)
            if not value:
                return ()
            found += value
        return tuple(found)


def _without(file: FileFacts, choices: Sequence[Choice]) -> FileFacts:
    """A file without what stands in the lines of some choices."""
    lines = {line for each in choices for line in range(each.lines[0], each.lines[1] + 1)}
    return replace(
        file,
        scopes={
            scope: [event for event in events if event.spot.line not in lines]
            for scope, events in file.scopes.items()
        },
        operations=[use for use in file.operations if use.spot.line not in lines],
        threaded=[use for use in file.threaded if use.spot.line not in lines],
        findings=[each for each in file.findings if each.place.line not in lines],
        choices=[each for each in file.choices if each not in choices],
    )
