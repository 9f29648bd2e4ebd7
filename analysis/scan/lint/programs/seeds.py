"""The rules about generators that need a whole program: what is never seeded, or too late."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set

from analysis.scan.lint.facts import APPLIES, Event, FileFacts
from analysis.scan.lint.programs.differ import AFTER_TRAINING
from analysis.scan.lint.programs.kinds import is_of_plots
from analysis.scan.lint.programs.orders import PREPARING, makes_data
from analysis.scan.lint.programs.pictures import is_of_pictures
from analysis.scan.lint.programs.program import Program, Step, at, place
from analysis.scan.lint.programs.seeded import (
    Scope,
    ever_seeded,
    is_for_seed,
    seeded_by_choice,
    seeded_in_workers,
)
from analysis.scan.lint.registry import Pins, pin_of, version
from analysis.scan.lint.vocabulary import (
    ASKS_WHETHER_TRAINED,
    DEFERRED,
    FITS_SEQUENCE,
    GENERATORS,
    IN_EVALUATION,
    IN_ORDER,
    KERAS_1,
    NOT_BY_HELPERS,
    OWN_ENVIRONMENTS,
    OWN_MODEL,
    OWN_VARIABLES,
    RANDOM_TRANSFORM,
    STABLE_BASELINES,
    TENSORFLOW_1,
    WITHOUT_TENSORFLOW,
    WORDS,
    makes_weights,
)
from analysis.scan.results import LintFinding

OF_GENERATORS = frozenset(("VB102", "VB104", "VB203"))
DROPOUT = re.compile(r"^torch\.nn\.(?:\w*Dropout\w*|RReLU)$")
PERHAPS = re.compile(rf"[Dd]ropout\w*(?: {re.escape(IN_EVALUATION)})?$|RReLU$|initializer$")
"""What draws nothing with a rate of 0, and what may be a default that nobody takes: named after others."""
KEEPS_MODES = WORDS["keeping_modes"]
"""Libraries that put a model into its mode of evaluation themselves."""
FIRST_OF_TENSORFLOW = (2, 4)
"""Before it, Keras was a package of its own that asked NumPy."""
FIRST_OF_PYTHON = (2, 10)
ONLY_OF_OLD = (
    "keras.legacy",
    "keras.backend.tensorflow_backend",
    "keras.engine.topology",
    "keras.layers.normalization.BatchNormalization",
)
"""What only that package has."""
OWN_OF_ALBUMENTATIONS = [1, 4, 19]
"""The first version with a generator of its own."""
OF_A_GRAPH = "tensorflow.global_variables_initializer"
"""It draws what the variables of a graph draw, which may be made elsewhere."""
FITS = frozenset(("fit()", "fit_generator()"))
METRICS = re.compile(
    r"^(?:sklearn\.metrics|torchmetrics|evaluate|sacrebleu|rouge_score|pytorch_fid|lpips)(?:\.|$)"
)
AUGMENTING = re.compile(r"augment|transform(?!er)|tensorflow\.(?:image\.|random_crop)", re.IGNORECASE)
"""Files and functions that change training data, which no metric is of."""
EVALUATES = re.compile(
    r"(?:^|[/_])(?:eval\w*|validat(?:e|ion)\w*|metrics?|scor\w+)\.(?:py|ipynb)$", re.IGNORECASE
)
OF_EVALUATION = re.compile(r"(?:^|[/_])eval\w*\.(?:py|ipynb)$", re.IGNORECASE)
PREDICTING = re.compile(r"(?:\w+\.)?(?:get_?)?(?:predict|classif)", re.IGNORECASE)
SERVICES = WORDS["services"]
OF_USE = re.compile(
    r"(?:^|/)(?:(?:run_)?test(?!_?(?:set|data|split))\w*|\w+_test|cluster\w*|detect\w*|recogni[sz]\w*|classify\w*|compare\w*|inspect\w*|show\w*|"
    r"view\w*|display\w*|play\w*|enjoy\w*|render\w*|translate|caption|sample|inpaint|generate|simulator|drive|"
    r"webcam\w*|live|real_?time|(?:run_?)?(?:dehaz|denois|enhanc|restor|colori[sz])(?:e|ing))\.(?:py|ipynb)$",
    re.IGNORECASE,
)
"""Files that use a model, by their names, beside those of AFTER_TRAINING."""


def prepares(program: Program) -> bool:
    """Whether a program that trains nothing may prepare data. One that loads weights uses a model, and what
    a service makes up is an answer."""
    path = program.file.path
    return (
        program.training is None
        and makes_data(program)
        and not program.file.flags & SERVICES
        and not AFTER_TRAINING.search(path)
        and not OF_USE.search(path)
        and not any(step.event.kind == "loaded" for step in program.reached)
    )


def measures(program: Program) -> bool:
    """Whether a program that trains nothing reports metrics of a model that it loads, or makes data by it; an
    evaluation, by its name, also of what is no model."""
    if program.training is not None:
        return False
    if OF_EVALUATION.search(program.file.path):
        return True
    if "reports" in program.file.flags and any(map(PREDICTING.match, program.file.scopes)):
        return True  # of a learner that is written out
    return any(step.event.kind == "loaded" for step in program.reached) and (
        reports(program) or _makes_data_by_name(program)
    )


def _makes_data_by_name(program: Program) -> bool:
    return bool(PREPARING.search(program.file.path)) and makes_data(program)


def reports(program: Program) -> bool:
    """Whether a program reports metrics, by what it imports and prints or by its name."""
    return (
        any(METRICS.match(name) for name in program.file.imported.values())
        or "reports" in program.file.flags
        or bool(EVALUATES.search(program.file.path))
    )


def measured_with(program: Program, pinned: Pins) -> Iterator[LintFinding]:
    """Rule VB101 of a program that measures: noise, masks and choices, which no made-up input is. Of one that
    makes data by a model, what it is sure to do in other files too."""
    sure = {id(step.event) for step in program.flow} if _makes_data_by_name(program) else set()
    found = _never_seeded(
        program,
        lambda step: _drops(program, step) or _is_of_evaluation(program, step, sure),
        pinned,
    )
    return (each for each, _ in found)


def _is_of_evaluation(program: Program, step: Step, sure: Set[int]) -> bool:
    text = step.event.text
    if RANDOM_TRANSFORM.match(text):
        return _is_applied(program, step)
    if text.endswith(IN_EVALUATION):
        return _is_of_model(step)
    return (
        not DEFERRED.search(text)
        and not makes_weights(text)
        and not text.startswith("DataLoader")
        and (step.file is program.file or _is_of_model(step) or id(step.event) in sure)
        and not AUGMENTING.search(f"{step.file.path} {text}")
        and step.event.spot not in step.file.fixed
    )


def _is_applied(program: Program, step: Step) -> bool:
    """Whether a program that measures has a random transform by a name that says nothing of training, or
    imports it by whatever name."""
    name = step.file.targets.get(step.event.spot, "")
    if step.file is program.file:
        return bool(name) and not re.search("train|aug", name, re.IGNORECASE)
    return name in program.file.imported


def _drops(program: Program, step: Step) -> bool:
    """Whether layers of dropout draw in a program that measures: nothing puts the model into its mode of
    evaluation."""
    return (
        bool(DROPOUT.match(step.event.text))
        and reports(program)
        and not any(each.event.kind == "evaluates" for each in program.reached)
        and not any(
            name.partition(".")[0] in KEEPS_MODES for file in program.files for name in file.imported.values()
        )
    )


def _is_of_model(step: Step) -> bool:
    """Whether a model draws in each use; one that asks whether it is trained draws only then."""
    scope = step.file.scope_at(step.event.spot.line)
    return scope.endswith((".forward", ".call")) and ASKS_WHETHER_TRAINED not in step.file.flags


def is_run(file: FileFacts, found: LintFinding, users: Sequence[Program]) -> bool:
    """Whether one of the programs may run what a finding is about; without programs, all may be."""
    scope = file.scope_at(found.place.line)
    return not users or any(
        any(each is file for each in program.files)
        and (program.may_run(file, scope) if file is not program.file else program.is_used(scope))
        for program in users
    )


def never_seeded(program: Program, pinned: Pins) -> Iterator[LintFinding]:
    """Rule VB101."""
    told = False
    source = _source_of_seeds(program, pinned)
    is_training = program.training is not None
    every = _never_seeded(
        program,
        lambda step: (
            is_training or not makes_weights(step.event.text) or _is_applied_untrained(program, step)
        ),
        pinned,
    )
    for found, generator in every:
        told = told or generator == source
        yield found
    seeded = ever_seeded(program)
    wanting = {source, "*"}.isdisjoint(seeded)
    if wanting and not told and (source == "numpy" or "tensorflow" in seeded):
        yield from _unseeded_weights(program, source)


def _is_applied_untrained(program: Program, step: Step) -> bool:
    """Whether weights of a program that neither trains nor loads any decide what its network computes."""
    return step.file is program.file and APPLIES in step.file.flags


def _unseeded_weights(program: Program, source: str) -> Iterator[LintFinding]:
    """Rule VB101, of weights of Keras whose seeds come from elsewhere than what is seeded."""
    made = program.own_first(_weights(program))
    if made is not None and program.training is not None:
        name, _ = GENERATORS[source]
        why = f"{made.event.text} takes the seeds of its weights from the generator of {name}"
        yield at("VB101", made, f"{why}, which this program never seeds; {_cure(program, made, source)} does")


def _never_seeded(
    program: Program, matters: Callable[[Step], bool], pinned: Pins
) -> Iterator[tuple[LintFinding, str]]:
    """The findings, and of which generator they are."""
    seeded = ever_seeded(program)
    replaced = _replaced(program, pinned)
    source = _source_of_seeds(program, pinned)
    trains_torch = program.training is not None and program.training.event.name == "backward()"
    by_workers = {} if seeded.isdisjoint(("torch", "*")) else seeded_in_workers(program, pinned)
    for generator, (name, _) in GENERATORS.items():
        if (
            generator in seeded | replaced.keys()
            or ("*" in seeded and generator not in NOT_BY_HELPERS)
            or (generator == "tensorflow" and trains_torch)  # it is there for an export
            or (generator == "gym" and OWN_ENVIRONMENTS in program.flags())
            or (generator == "action space" and program.flags().isdisjoint(("gym", "gymnasium")))
        ):
            continue
        own = {generator, *(each for each, instead in replaced.items() if instead == generator)}
        own |= {FITS_SEQUENCE} if generator == "python" else set()
        elsewhere = by_workers.get(generator, set())
        asked = source if source == "numpy" or program.flags() & WITHOUT_TENSORFLOW else ""
        drawn = _first_drawn(program, own, matters, of_keras=asked, elsewhere=elsewhere)
        if drawn is not None:
            why = f"{drawn.event.text} draws from the generator of {name}, which this program"
            so = f"never seeds; {_cure(program, drawn, generator)} does"
            if seeding := seeded_by_choice(program).get(generator):
                where = place(seeding, drawn)
                so = f"gives a fixed seed ({where}) only if a user gives one; make one the default"
            yield at("VB101", drawn, f"{why} {so}"), generator


def _cure(program: Program, drawn: Step, generator: str) -> str:
    """What seeds it."""
    if STABLE_BASELINES.match(drawn.event.text):
        return f"{drawn.event.text.rpartition('.')[2]}(..., seed=seed)"
    if drawn.event.text.startswith("fastai."):
        return "set_seed(seed)"
    if generator == "tensorflow" and program.flags() & {"session", TENSORFLOW_1}:
        return "tf.set_random_seed(seed)"
    of_keras = generator == "python" and drawn.event.text.startswith("keras.")
    return GENERATORS["tensorflow" if of_keras else generator][1]


def _replaced(program: Program, pinned: Pins) -> dict[str, str]:
    """Generators that older versions of libraries do not have, by those that these draw from."""
    stated = [int(n) for n in re.findall(r"\d+", pin_of(pinned, "albumentations", program.file.path))]
    return {"albumentations": "python"} if stated and stated < OWN_OF_ALBUMENTATIONS else {}


def _first_drawn(
    program: Program,
    generators: set[str],
    matters: Callable[[Step], bool],
    *,
    of_keras: str,
    elsewhere: set[Scope],
) -> Step | None:
    """The first draw that matters, in the program's own file if there is one. Of a program that only prepares
    data, what is reached for certain; a model in it is one to use. Layers of the old package Keras ask NumPy
    for a seed, those that only draw while they are used too."""
    is_training = program.training is not None
    flags = program.flags()
    if IN_ORDER in flags or not any(step.event.name in FITS for step in program.trainings):
        generators = generators - {FITS_SEQUENCE}
    found = [
        step
        for step in (program.steps if is_training else program.reached)
        if step.event.kind == "draw"
        and _generator(step, of_keras) in generators
        and not is_for_seed(step)
        and not (step.event.text == OF_A_GRAPH and OWN_VARIABLES in flags)
        and matters(step)
        and (step.file.path, step.file.scope_at(step.event.spot.line)) not in elsewhere
        and not is_of_pictures(program, step)
    ]
    plain = [step for step in found if _generator(step, of_keras) == step.event.name]
    found = plain or found  # before layers that ask for a seed, and batches that `fit` shuffles
    first = program.own_first(found)
    if first is not None and PERHAPS.search(first.event.text):
        certain = [step for step in found if not PERHAPS.search(step.event.text)]
        beside = [step for step in certain if step.file is first.file]
        return next(iter(beside), program.own_first(certain) or first)
    return first


def _generator(step: Step, of_keras: str) -> str:
    if step.event.text == FITS_SEQUENCE:
        return FITS_SEQUENCE
    return of_keras if of_keras and step.event.text.startswith("keras.") else step.event.name


def drawn_seeds(program: Program) -> Iterator[LintFinding]:
    """Rule VB104, where a seed is drawn from what nothing has seeded before; once a generator."""
    known: set[str] = set()
    for step in program.reached:
        if step.event.kind == "seed":
            known.add(step.event.name)
        elif is_for_seed(step) and step.event.name not in known:
            known.add(step.event.name)
            by = step.event.text.split()[0]
            yield at("VB104", step, f"the seed is drawn by {by}, and nothing has seeded that before")


def late_seeds(program: Program) -> Iterator[LintFinding]:
    """Rule VB103."""
    drawn: dict[str, Step] = {}
    seeded: set[str] = set()
    late: dict[tuple[str, int], tuple[Step, list[str]]] = {}  # by place: what has drawn before it
    thrown_away: set[Event] = set()
    for step in program.flow:
        kind, name, spot, text = step.event
        if kind == "call" and spot.line in program.file.remade and step.file is program.file:
            thrown_away |= {each.event for each in program.called_by(step)}
        if kind == "draw" and makes_weights(text) and step.event in thrown_away:
            continue  # of a model that is made again
        if kind == "draw" and spot in step.file.fixed and name == "torch":
            continue  # an input of a written size, to look at shapes
        if kind == "loaded":
            drawn = {n: first for n, first in drawn.items() if not makes_weights(first.event.text)}
        elif kind == "draw" and name not in seeded and not DEFERRED.search(text) and not is_for_seed(step):
            if not program.is_unused(step) and not is_of_pictures(program, step):
                drawn.setdefault(name, step)
        elif kind == "seed" and name not in seeded and not is_of_plots(program.file, *step):
            seeded.add(name)
            if name in drawn and text != OWN_MODEL:
                first = drawn[name]
                before = late.setdefault((step.file.path, spot.line), (step, []))[1]
                before.append(f"{first.event.text} at {place(first, step)}")
    for step, before in late.values():
        has = "has" if len(before) == 1 else "have"
        yield at("VB103", step, f"{', '.join(before)} {has} already drawn from what this seeds")


def drawn_in_parallel(program: Program) -> Iterator[LintFinding]:
    """Rule VB203: which element gets which draw, the threads of a tf.data pipeline decide. Once a program."""
    if "tensorflow" in program.modes():  # then such a map is not run in parallel
        return
    for step in program.steps:
        if step.event.kind == "parallel" and (drawn := _drawn_by_mapped(program, step)) is not None:
            why = (
                f"{drawn.event.text} draws while elements are mapped in parallel: threads decide who is first"
            )
            yield at("VB203", step, why)
            return


def _drawn_by_mapped(program: Program, step: Step) -> Step | None:
    return next(
        (
            each
            for each in program.called_by(step)
            if each.event.kind == "augments"
            or (
                each.event.kind == "draw"
                and each.event.name in ("python", "numpy", "tensorflow")
                and not makes_weights(each.event.text)
            )
        ),
        None,
    )


def _source_of_seeds(program: Program, pinned: Pins) -> str:
    """The generator that decides the weights of Keras: that of NumPy for the old package, of TensorFlow for
    what came with it up to 2.9, of Python since. The newest version is meant unless the project says, or
    uses what only TensorFlow 1 has."""
    stated = version(pin_of(pinned, "keras", program.file.path))
    imports = [event.name for file in program.files for event in file.events() if event.kind == "import"]
    if KERAS_1 in program.flags() or any(name.startswith(ONLY_OF_OLD) for name in imports):
        return "numpy"
    is_old = TENSORFLOW_1 in program.flags()
    if stated is None and not is_old:
        return "python"
    if stated is not None and stated >= FIRST_OF_PYTHON:
        return "python"
    is_own_package = any(name.partition(".")[0] == "keras" for name in imports)
    return "numpy" if is_own_package and (stated is None or stated < FIRST_OF_TENSORFLOW) else "tensorflow"


def _weights(program: Program) -> Iterator[Step]:
    """The steps that make weights of Keras."""
    for step in program.steps:
        kind, name, _, text = step.event
        is_of_keras = kind == "draw" and name == "tensorflow" and text.startswith("keras.")
        if is_of_keras and makes_weights(text) and not DEFERRED.search(text):
            yield step
