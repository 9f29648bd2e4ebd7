"""The rules about operations that can differ between runs: VB501 and VB502."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from analysis.scan.lint.facts import MAIN, FileFacts, Spot, finding
from analysis.scan.lint.lint import is_ignored
from analysis.scan.lint.programs.kinds import is_test
from analysis.scan.lint.programs.program import Program, Step, naming
from analysis.scan.lint.programs.seeded import by_choice
from analysis.scan.lint.registry import Operation, Pins, pin_of, registry, version
from analysis.scan.lint.uses.devices import ASKS, MOVED, NEEDS_GPU, ON_CPU, REFUSES
from analysis.scan.lint.validation.evaluation import ONE_ROW, ROWS
from analysis.scan.lint.vocabulary import WITHOUT_TENSORFLOW
from analysis.scan.results import Level, LintFinding

LOSS = re.compile(r"Loss$|_loss$")
FRAMEWORKS = {"torch", "tensorflow", "jax"}
AFTER_TRAINING = re.compile(
    r"(?:^|/)(?:eval\w*|metrics?|\w+_(?:inference|infer|predict(?!ion)|eval|metrics?|score)|\w*submi\w*|visuali[sz]\w*|inference|infer|predict\w*|demo\w*|export\w*|\w*plot\w*|debug\w*|"
    r"verify\w*|explain\w*|interpret\w*|profil\w*|benchmark\w*)(?:/|\w*\.(?:py|ipynb)$)"
    r"|(?:^|/)(?:webui|frontend)/"
    r"|(?:^|/)(?:setup|web\w*|\w*app|serve\w*|\w*api|gui|dashboard|analy[sz]\w*|summar\w*|\w*cam)\.(?:py|ipynb)$",
    re.IGNORECASE,
)
MODELS_OF_TENSORS = frozenset(("keras.Model", "keras.models.Model"))
NOT_TRAINED = re.compile(
    AFTER_TRAINING.pattern
    + r"|(?:^|/)(?:data|datasets?|data_?load\w*|transform(?!er)s?|augment\w*|pre_?process\w*)"
    r"(?:/|\w*\.(?:py|ipynb)$)",
    re.IGNORECASE,
)
"""Files of what happens before, after and beside training."""
LOADING = frozenset(("importlib", "imp", "pydoc", "hydra", "omegaconf", "mmcv", "mmengine", "gin", "fvcore"))
"""Libraries with which a configuration or a text decides what is imported."""
BESIDE = re.compile(r"infer|eval|valid|test|predict", re.IGNORECASE)
"""Functions of what training may do without."""
IN_A_MODEL = re.compile(r"\w\.(?:__init__|forward)$")
"""Functions without which a model does not compute."""
_SEVERITY = (Level.ERROR, Level.WARNING, Level.NOTE)


class Differing(NamedTuple):
    """A use of an operation that can differ between runs."""

    rule: str
    level: Level
    name: str
    then: str
    file: FileFacts
    spot: Spot
    prevented: frozenset[str]  # by which modes
    operation: Operation

    def alone(self) -> LintFinding:
        why = f"{self.name} differs {self.operation.on}; {self.then}"
        return finding(self.rule, self.file.path, self.spot, why, self.level)


def differing(files: Sequence[FileFacts], every: Sequence[Program], pinned: Pins) -> Iterator[Differing]:
    """The uses of operations that can differ, judged by the programs that train what their file has, else by
    all that include it, else by the file. A mode counts where all of them have it."""
    modes: dict[str, set[str]] = {file.path: set(file.modes) for file in files}
    always: dict[str, set[str]] = {}
    flags: dict[str, set[str]] = {file.path: set(file.flags) for file in files}
    trained: set[tuple[str, str]] = set()  # files and frameworks of programs that may train them on a GPU
    for program in every:
        own_modes, own_flags = _modes(program), program.flags()
        trains = _trains_network(program)
        on_gpu = [name for name in registry().modes if _may_use_gpu(program, name)]
        for file in program.files:
            modes[file.path] |= own_modes
            flags[file.path] |= own_flags
            if trains:
                trained |= {(file.path, name) for name in on_gpu}
                always[file.path] = always.get(file.path, own_modes) & own_modes
    idle = _without_gradient(files)
    for file in files:
        if file.operations:
            on = always.get(file.path, modes[file.path])
            for use in _of_file(file, on, flags[file.path], pinned):
                if use.operation.in_gradient and file.scope_at(use.spot.line) in idle:
                    continue
                key = file.path, use.operation.framework
                if use.operation.always or file.path not in always or key in trained:
                    yield use


def _without_gradient(files: Sequence[FileFacts]) -> set[str]:
    """The functions that are called under `torch.no_grad()`, and nowhere else."""
    called: dict[bool, set[str]] = {True: set(), False: set()}
    for file in files:
        for event in file.events():
            if event.kind in ("call", "value"):
                called[event.spot in file.without_gradient].add(event.name.lstrip("@").rpartition(".")[2])
    return called[True] - called[False]


def _of_file(file: FileFacts, modes: set[str], flags: set[str], pinned: Pins) -> Iterator[Differing]:
    known = registry()
    for entry, name, spot in file.operations:
        operation = known.operations[entry]
        if (
            ("loss on the CPU" in flags and LOSS.search(name))
            or (name.startswith("keras.") and flags & WITHOUT_TENSORFLOW)
            or (name.startswith("keras.layers.") and _is_thrown_away(file, spot))
            or (operation.model and (file.targets.get(spot, "") in file.frozen or spot.line in file.idle))
            or (operation.cublas and "cublas" in flags)
            or (operation.since and _is_before(operation, name, pinned, file.path, flags))
            or (operation.rows and ONE_ROW in file.flags and ROWS not in file.flags)
        ):
            continue
        framework = operation.framework
        pin = version(pin_of(pinned, framework, file.path))
        behaviour = operation.behaviour(pin)
        mode = _mode(operation, pin, flags)
        others = ["warn"] * (framework == "torch") + ["cudnn"] * operation.cudnn
        prevented = frozenset((framework, *others))
        likely = operation.always or ("cuda" in flags and not operation.rare)
        level = Level.WARNING if likely else Level.NOTE
        rule, then = "VB502", "no mode prevents it"
        if behaviour == "switch" and not modes & prevented:
            rule, then = "VB501", f"{mode} prevents it"
        elif behaviour != "raises" or (operation.perhaps and framework in modes):
            continue
        elif framework in modes:
            level = Level.ERROR if likely else Level.NOTE
            then = f"with {mode} it raises an error"
        yield Differing(
            rule=rule,
            level=level,
            name=name.rpartition(".")[2],
            then=then,
            file=file,
            spot=spot,
            operation=operation,
            prevented=prevented if rule == "VB501" else frozenset(),
        )


def _is_thrown_away(file: FileFacts, spot: Spot) -> bool:
    """`end = Dense(1)(x)` where nothing reads the name, and a model is made of tensors: it is in none."""
    target = file.targets.get(spot, "")
    of_tensors = not MODELS_OF_TENSORS.isdisjoint(file.imported.values())
    return of_tensors and target.isidentifier() and target not in file.named


def _mode(operation: Operation, pin: tuple[int, ...] | None, flags: set[str]) -> str:
    """What prevents it, in that version; a program with sessions is one of before TensorFlow 2.8."""
    if operation.cudnn and pin is not None and pin < (1, 8):  # the first with that mode under its name
        return "torch.backends.cudnn.deterministic = True"
    if operation.framework == "tensorflow" and (pin < (2, 8) if pin is not None else "session" in flags):
        return "the variable TF_DETERMINISTIC_OPS=1 (of TensorFlow 2.1 and later)"
    return registry().modes[operation.framework]


def _modes(program: Program) -> set[str]:
    """The modes that are on, without those of functions that the program does not reach, of options that are
    off by default, and of seeds that a user may leave out."""
    is_by_choice = by_choice(program)
    return {
        event.name
        for file in program.files
        for scope, events in file.scopes.items()
        if scope in ("", MAIN) or "." in scope or (file.path, scope) in program.scopes
        for event in events
        if event.kind == "mode" and program.defaults(event.text) != {False} and not is_by_choice(file, event)
    }


def _trains_network(program: Program) -> bool:
    """Whether it trains by gradients, and not an estimator of what a loaded network gives."""
    return program.training is not None and any(
        step.event.kind == "train" and step.event.name != "estimator" for step in program.steps
    )


def _may_use_gpu(program: Program, framework: str) -> bool:
    """PyTorch computes on the CPU unless something is moved, TensorFlow on a GPU that it sees."""
    flags = program.flags()
    if "no GPU" in flags:
        return False
    if program.trainings and all(step.event.spot in step.file.pinned for step in program.trainings):
        return False
    training = program.training
    near = [program.file, *([training.file] if training else [])]
    moves = [event for file in near for event in file.events()]
    moves += [step.event for step in program.reached]
    moved = MOVED in flags or any(event.kind == "moved" for event in moves)
    return framework != "torch" or (moved and ("cuda" in flags or ON_CPU not in flags))


def _is_before(operation: Operation, name: str, pinned: Pins, path: str, flags: set[str]) -> bool:
    """Whether a project has a version of the operation's package that is older than the first to have it."""
    first = next((first for pattern, first in operation.since if re.search(pattern, name)), "")
    newest = (flag for flag in flags if flag.startswith(f"{operation.package} "))
    pin = version(pin_of(pinned, operation.package, path) or next(newest, "").partition(" ")[2])
    return pin is not None and pin < (version(first) or ())


def needs_gpu(program: Program, training: Step) -> bool:
    """Whether a program stops without a GPU: what trains, or calls that, uses one whatever there is, or the
    files that train use one, and none asks for it."""
    here = training.file.scope_at(training.event.spot.line)
    for scope, events in training.file.scopes.items():
        is_near = scope == here or any(event[:2] == ("call", f"@{here}") for event in events)
        if is_near and any(event.kind == "gpu" for event in events):
            return True
    saves = "saves" in program.flags()  # else a metric, which has to be computed, is all that it gives
    if any(
        step.event.kind == "gpu" and not (saves and BESIDE.search(_scope(step)))
        for step in program.under(training.file, here)
    ):
        return True
    if any(
        step.event.kind == "gpu" and (step.event.text == REFUSES or IN_A_MODEL.search(_scope(step)))
        for step in program.reached
    ):
        return True
    said = program.defaults("device")
    if said and all(str(each).startswith("cuda") for each in said) and ASKS not in program.flags():
        return True
    flags = program.file.flags | training.file.flags
    return NEEDS_GPU in flags and ASKS not in flags


def _scope(step: Step) -> str:
    return step.file.scope_at(step.event.spot.line)


def note_too_old(files: Sequence[FileFacts], pinned: Pins) -> None:
    """Where a pinned framework is older than what the rules know, which are then silent about it."""
    first = {"torch": (1, 6), "tensorflow": (2, 8)}
    for framework, known in first.items():
        for file in files:
            if not any(registry().operations[use.entry].framework == framework for use in file.operations):
                continue
            text = pin_of(pinned, framework, file.path)
            pin = version(text)
            if pin is not None and pin < known:
                oldest = ".".join(map(str, known))
                file.note(
                    f"{framework}=={text} is pinned; which operations differ is known from {oldest} on, "
                    "so VB501 and VB502 are silent where that depends on the version"
                )
                break


def found_operations(
    files: Sequence[FileFacts], uses: Sequence[Differing], every: Sequence[Program], rules: frozenset[str]
) -> Iterator[LintFinding]:
    """One finding a program and rule: a model of a hundred convolutions is one thing to do. A file counts for
    the first program that builds something in it. What no training program includes is reported only for a
    project without another finding of the rule: a library."""
    own_files = {id(program.file) for program in every}
    learning = [program for program in every if program.training is not None]
    if learning and not any(map(_trains_network, learning)):
        return  # networks only make features of which estimators learn: no gradient is taken
    if every and not any(event.kind == "train" for file in files for event in file.events()):
        uses = [use for use in uses if use.operation.always]  # nothing is trained
    left = [
        use
        for use in uses
        if use.rule in rules
        and not is_ignored(use.file, use.alone())
        and (id(use.file) in own_files or not NOT_TRAINED.search(use.file.path))
    ]
    loads = any(file.flags & LOADING for file in files)
    found: set[str] = set()
    trained: set[str] = set()  # frameworks
    included: set[int] = set()  # files of training programs
    users: dict[str, list[Differing]] = {}  # what each program trains, by its file
    for program in every:
        if program.training is None or not _trains_network(program):
            continue
        trained |= program.training.file.flags & FRAMEWORKS
        included |= {id(file) for file in program.files}
        users[program.file.path] = _known(_trained_by(program, left))
    for path, every_use in users.items():
        remaining = {id(use) for use in left}
        own = [use for use in every_use if id(use) in remaining]
        told = {id(use.file) for use in own}
        left = [use for use in left if id(use.file) not in told]
        own.sort(key=lambda use: use.file.path != path)  # its own file before those it imports
        found |= {use.rule for use in own}
        yield from _together(own, {path: every_use} | users)
    yield from _together(
        [
            use
            for use in left
            if use.rule not in found
            and id(use.file) not in included
            and (not trained or use.operation.framework in trained)
            and not is_test(use.file)
            and not use.file.is_notebook
            and not (trained and use.operation.model)
            and not use.operation.alone
            and (not trained or id(use.file) not in own_files)
            and (not trained or (loads and use.file.classes))  # of networks that a configuration names
            and not NOT_TRAINED.search(use.file.path)
        ]
    )


def _known(uses: Sequence[Differing]) -> list[Differing]:
    """Without models of which nothing is known but that they are loaded, where something is known."""
    known = {use.operation.framework for use in uses if not use.operation.alone}
    return [use for use in uses if not (use.operation.alone and use.operation.framework in known)]


def _trained_by(program: Program, uses: Sequence[Differing]) -> list[Differing]:
    """Those of the program's files that it reaches."""
    inside, modes = {id(file) for file in program.files}, _modes(program)
    return [
        use
        for use in uses
        if id(use.file) in inside
        and _is_trained_by(use, program, modes)
        and (use.file is program.file or not AFTER_TRAINING.search(use.file.path))
        and (use.file.path, use.file.scope_at(use.spot.line)) in program.scopes
    ]


def _is_trained_by(use: Differing, program: Program, modes: set[str]) -> bool:
    """An export to TensorFlow beside a training in PyTorch trains nothing; what is never moved to a GPU, and
    what the program's mode prevents, does not differ."""
    operation, training = use.operation, program.training
    if operation.framework == "tensorflow" and training and training.event.name == "backward()":
        return False
    return (operation.always or _may_use_gpu(program, operation.framework)) and not modes & use.prevented


def _rank(use: Differing) -> tuple[bool, int, bool]:
    """The surest first: weights of convolutions are trained, what other functions are given may not be."""
    return use.operation.beside, _SEVERITY.index(use.level), not use.operation.cudnn


def _together(
    uses: Sequence[Differing], users: Mapping[str, Sequence[Differing]] = MappingProxyType({})
) -> Iterator[LintFinding]:
    """`users` are the programs, the first before the others, and what they train."""
    groups: dict[tuple[str, str], list[Differing]] = {}
    for use in uses:
        groups.setdefault((use.rule, use.then), []).append(use)
    for some in groups.values():
        if all(use.operation.beside for use in some):
            continue
        first = min(some, key=_rank)
        why = f"{_counted(some)}; {first.then}" if len(some) > 1 else first.alone().why
        members = {id(use) for use in some}
        trained_by = [path for path, theirs in users.items() if any(id(use) in members for use in theirs)]
        yield naming(finding(first.rule, first.file.path, first.spot, why, first.level), trained_by)


def _counted(uses: Sequence[Differing]) -> str:
    """`Conv2d (2) differ on CUDA tensors, gather (1) in the gradient on CUDA`: the most frequent first."""
    where: dict[str, list[str]] = {}
    counts = Counter((use.name, use.operation.on) for use in uses)
    for (name, on), count in counts.most_common():
        where.setdefault(on, []).append(f"{name} ({count})")
    (on, first), *others = where.items()
    verb = "differs" if first == [f"{first[0].partition(' ')[0]} (1)"] else "differ"
    texts = [f"{', '.join(first)} {verb} {on}", *(f"{', '.join(names)} {on}" for on, names in others)]
    return ", ".join(texts)
