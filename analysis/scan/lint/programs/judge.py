"""The rules that need a whole program: seeds, the order of settings, modes, thread counts, model
selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from analysis.scan.lint.facts import FileFacts, finding
from analysis.scan.lint.lint import is_commented, is_ignored, mapped
from analysis.scan.lint.programs.differ import differing, found_operations, needs_gpu, note_too_old
from analysis.scan.lint.programs.followed import with_modules, with_resumed, with_trainers, without_unreached
from analysis.scan.lint.programs.kinds import is_test
from analysis.scan.lint.programs.measured import is_without_effect
from analysis.scan.lint.programs.orders import ORDERS, orders
from analysis.scan.lint.programs.program import Program, Step, at, naming, place, programs
from analysis.scan.lint.programs.seeds import (
    OF_GENERATORS,
    drawn_in_parallel,
    drawn_seeds,
    is_run,
    late_seeds,
    measured_with,
    measures,
    never_seeded,
    prepares,
    reports,
)
from analysis.scan.lint.registry import Pins, registry
from analysis.scan.lint.rules import EVERYWHERE, RULES
from analysis.scan.lint.uses.pools import FORESTS, OF_BLAS, OPEN, STATES_COUNT
from analysis.scan.lint.uses.settings import MEASURES
from analysis.scan.lint.uses.training import GRADIENTS
from analysis.scan.lint.vocabulary import KERAS_ON_JAX, SETTINGS, THREAD_SETTINGS, WITHOUT_TENSORFLOW, WORDS
from analysis.scan.results import Level, LintFinding

SHARED = frozenset(("VB101", "VB401"))
"""Rules of which one finding may be about several programs."""
OF_RESULTS = OF_GENERATORS | {"VB105", "VB107", "VB303", "VB504"}
"""What matters in programs that train or prepare data, of the rules of one file."""
OF_TENSORFLOW = frozenset(name for name in THREAD_SETTINGS if "tensorflow" in SETTINGS[name])
"""Its thread pools do not read those of OpenMP."""
AT_FIRST_USE = WORDS["at_first_use"]
"""Settings that are not read when a library is imported."""
OF_HASHES = frozenset(("VB302", "VB303"))
"""Rules of what differs with the hash seed of the process."""
OF_TRAINING = frozenset(("VB106", "VB603"))
NOT_IN_TESTS = ("VB2", "VB303", "VB404", "VB6")


def lint_project(
    files: Sequence[FileFacts], pinned: Pins, rules: frozenset[str], elsewhere: frozenset[str] = frozenset()
) -> tuple[LintFinding, ...]:
    """All findings of a project, by place; `elsewhere` are names that it says it has from outside. Comments
    that silence nothing become notes of their files."""
    files = with_resumed(with_trainers(without_unreached(with_modules(files))))
    every = programs(files, elsewhere)
    users = [program for program in every if program.training is not None or prepares(program)]
    measuring = [program for program in every if program not in users and reports(program)] if users else []
    learning = [program for program in every if program.training is not None]
    trained = {file.path for program in learning for file in program.files}
    found = [
        each
        for file in files
        for each in file.findings
        if each.rule not in ORDERS
        and not (each.rule.startswith(NOT_IN_TESTS) and is_test(file))
        and not (each.rule == "VB203" and "tensorflow" in file.modes)  # which overrides it
        and not (
            each.rule in OF_RESULTS and not is_run(file, each, [*users, *measuring * (each.rule == "VB504")])
        )
        and not (each.rule == "VB504" and is_without_effect(file, each, every))
        and not (each.rule == "VB404" and not is_run(file, each, every))
        and not (each.rule in OF_TRAINING and not is_run(file, each, learning))
        and not (each.rule == "VB203" and trained and file.path not in trained)
    ]
    found += orders(files, every, everywhere=EVERYWHERE in rules)
    found = [each for each in found if each.rule != "VB105" or _has_hashes(each, found, every)]
    stated: set[str] = set()  # files of programs whose thread count VB401 is about
    shared: dict[tuple[str, str, int], list[str]] = {}
    for program in every:
        own = list(_of_program(program, pinned))
        if program in users or not users or measures(program):
            own += _of_settings(program)
        for each in own:
            if each.rule in SHARED:
                shared.setdefault(_shared(each), []).append(program.file.path)
        if rules & {each.rule for each in own} & {"VB401"}:
            stated |= {file.path for file in program.files}
        found += own
    uses = list(differing(files, every, pinned))
    _note_leftover(files, [*found, *(use.alone() for use in uses)])
    note_too_old(files, pinned)
    found += found_operations(files, uses, every, rules)
    found = [each for each in found if each.rule != "VB404" or each.place.path not in stated]
    found = [naming(each, shared.get(_shared(each), [])) for each in _first_of_file(found)]
    by_path = {file.path: file for file in files}
    kept: dict[tuple[str, str, int, int, str], LintFinding] = {}
    for each in found:
        file = by_path[each.place.path]
        if each.rule in rules and not is_ignored(file, each):
            generator = each.why if each.rule == "VB101" else ""  # one call may draw from two
            place = each.place
            kept.setdefault((each.rule, place.path, place.line, place.column, generator), mapped(file, each))
    return tuple(
        sorted(
            kept.values(), key=lambda f: (f.place.path, f.place.cell, f.place.line, f.place.column, f.rule)
        )
    )


def _has_hashes(late: LintFinding, found: Sequence[LintFinding], every: Sequence[Program]) -> bool:
    """Whether something in a program that sets PYTHONHASHSEED too late depends on it."""
    depending = {each.place.path for each in found if each.rule in OF_HASHES}
    paths = [{file.path for file in program.files} for program in every]
    return late.place.path in depending or any(
        late.place.path in own and not own.isdisjoint(depending) for own in paths
    )


def _note_leftover(files: Sequence[FileFacts], found: Sequence[LintFinding]) -> None:
    """Comments on lines without a finding that they silence, whichever rules were chosen."""
    places: dict[tuple[str, int], list[LintFinding]] = {}
    for each in found:
        places.setdefault((each.place.path, each.place.line), []).append(each)
    for file in files:
        for line, codes in file.ignored.items():
            known = all(any(rule.startswith(code) for rule in RULES) for code in codes)
            if known and not any(is_commented(file, each) for each in places.get((file.path, line), ())):
                named = "" if "" in codes else f"[{', '.join(codes)}]"
                file.note(f"{file.where(line)}: # vbstudy: ignore{named} silences nothing")


def _shared(found: LintFinding) -> tuple[str, str, int]:
    """What findings of several programs have in common: a place, of thread counts the file."""
    return found.rule, found.place.path, 0 if found.rule == "VB401" else found.place.line


def _first_of_file(found: Sequence[LintFinding]) -> list[LintFinding]:
    """Programs that share the file in which they train are not reported one by one, nor calls of services."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for each in found:
        if each.rule in ("VB107", "VB401"):
            if (each.rule, each.place.path) in seen:
                continue
            seen.add((each.rule, each.place.path))
        kept.append(each)
    return kept


def _of_program(program: Program, pinned: Pins) -> Iterator[LintFinding]:
    training = program.training
    if training is None:
        if prepares(program):
            yield from drawn_seeds(program)
            yield from never_seeded(program, pinned)
        elif measures(program):
            yield from measured_with(program, pinned)
        return
    yield from drawn_seeds(program)
    yield from late_seeds(program)
    yield from never_seeded(program, pinned)
    yield from drawn_in_parallel(program)
    flags = program.flags()
    yield from _unstated_threads(program, training, flags)
    if flags & {"loop", "keras_fit"} and not flags & {"selects"}:
        yield at(
            "VB601",
            training,
            "no best model is kept: at the end the last one is used, whatever epoch it happens to be",
        )


def _of_settings(program: Program) -> Iterator[LintFinding]:
    """What a program with a result sets."""
    yield from _late_settings(program)
    modes = (s for s in program.steps if s.event.kind == "mode" and s.event.name in ("torch", "warn"))
    mode = program.own_first(modes)
    if mode is not None and "cuda" in program.flags() and "cublas" not in program.flags():
        yield at(
            "VB505",
            mode,
            "unless CUBLAS_WORKSPACE_CONFIG is set, matrix products on CUDA raise RuntimeError, or differ if "
            "the mode only warns",
        )
    yield from _measuring(program)


def _measuring(program: Program) -> Iterator[LintFinding]:
    """`cudnn.benchmark = options.benchmark`, where that is True unless the user says otherwise."""
    for file in program.files:
        for where, name, value in file.measuring:
            if program.defaults(name) == {value}:
                yield finding("VB504", file.path, where, f"{MEASURES}: {name} is {value} by default")


def _late_settings(program: Program) -> Iterator[LintFinding]:
    """Variables that a library has read before, and thread counts that come after work has begun."""
    imported: dict[str, Step] = {}
    working: dict[str, Step] = {}
    in_time: set[str] = set()
    everything = {s.event.name.partition(".")[0] for s in program.flow if s.event.kind == "import"}
    for step in program.flow:
        kind, name, _, _ = step.event
        if kind == "import":
            imported.setdefault(name.partition(".")[0], step)
        elif kind == "work":
            working.setdefault(name, step)
        elif kind == "setting":
            is_lazy = name in AT_FIRST_USE
            began = working if is_lazy else imported
            reader = next((library for library in SETTINGS[name] if library in everything), None)
            if reader not in began:
                in_time.add(name)
            elif reader is not None and name not in in_time:
                when = "first computed" if is_lazy else "was imported"
                where = place(began[reader], step)
                yield at("VB402", step, f"{reader} read {name} when it {when}, at {where}")
        elif kind == "threads" and (first := working.get(framework := name.partition(".")[0])):
            before = f"{first.event.text} at {place(first, step)} came first"
            if framework == "tensorflow":
                yield at(
                    "VB403", step, f"{before}: TensorFlow raises RuntimeError, its threads exist already"
                )
            else:
                yield at("VB403", step, f"{before}, with the default thread count", Level.WARNING)


def _unstated_threads(program: Program, training: Step, flags: set[str]) -> Iterator[LintFinding]:
    networks = [step for step in program.trainings if step.event.name != "estimator"]
    network = next((step for step in networks if not _is_of_jax(step)), None)
    imported = (network or training).file.flags & {"torch", "tensorflow"}
    of_tensorflow = network is not None and imported == {"tensorflow"} and not flags & WITHOUT_TENSORFLOW
    stated = "threads" in flags or any(
        event.kind == "setting" and event.name in (OF_TENSORFLOW if of_tensorflow else THREAD_SETTINGS)
        for file in program.files
        for event in file.events()
    )
    if stated:
        return
    known = registry()
    uses = [
        (file, use)
        for file in program.near
        for use in file.threaded
        if not (use.name.startswith("keras.") and flags & WITHOUT_TENSORFLOW)
    ]
    counts = Counter(use.name.rpartition(".")[2] for _, use in uses)
    named = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
    framework = imported or any(
        s.event.kind == "draw" and s.event.name in ("torch", "tensorflow") for s in program.steps
    )
    pool = _pool(program, flags)
    if framework and network is not None and not needs_gpu(program, network):
        why = "the thread count is the machine's, and the same seeds give another model on another one"
        yield at("VB401", network, f"{why}: {named}" if named else why)
    elif pool is not None:
        why = f"as many threads as the machine has decide in what order {pool.event.name} adds"
        so = "predicts, in the last digits" if FORESTS.match(pool.event.name) else "learns"
        by = "; OMP_NUM_THREADS or threadpoolctl sets it" if OF_BLAS.match(pool.event.name) else ""
        yield at("VB401", pool, f"{why}, and so what it {so}{by}")
    elif not networks and (computed := _features(program)) and not needs_gpu(program, computed):
        by = computed.event.name.rpartition(".")[2]
        why = f"as many threads as the machine has compute ({by}) what an estimator learns from"
        yield at("VB401", computed, why)
    if not uses:
        return
    what = dict.fromkeys(known.threads[use.entry].what for _, use in uses)
    file, use = next(((f, u) for f, u in uses if f is program.file), uses[0])
    yield finding("VB503", file.path, use.spot, f"{named}: {'; '.join(what)}")


def _is_of_jax(step: Step) -> bool:
    """`jax.grad`, and what is done with its gradients: another library may only load the data; or Keras."""
    uses = step.event.name in ("apply_gradients()", "descent") and step.file.flags & {"jax", "flax"}
    return step.event.name in GRADIENTS or bool(uses) or KERAS_ON_JAX in step.file.flags


def _features(program: Program) -> Step | None:
    """The first network that is not trained and computes something before an estimator is fitted."""
    steps = iter(program.steps)
    found = next((step for step in steps if step.event.kind == "infers"), None)
    return found if any(step.event.kind == "train" for step in steps) else None


def _pool(program: Program, flags: set[str]) -> Step | None:
    """The first estimator whose threads are not counted, in the program's own file if there is one."""
    return program.own_first(
        step
        for step in program.steps
        if step.event.kind == "pool" and (step.event.text != OPEN or STATES_COUNT not in flags)
    )
