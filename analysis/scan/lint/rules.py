"""The rules of the determinism lint: their messages, and what to do about them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from analysis.scan.results import Level

ERROR, WARNING, NOTE = Level.ERROR, Level.WARNING, Level.NOTE


@dataclass(frozen=True, slots=True)
class Rule:
    """`level` is the usual one; a finding may have another where the code tells more."""

    level: Level
    title: str
    advice: str


RULES: dict[str, Rule] = {
    # ---- seeds
    "VB101": Rule(WARNING, "a generator is used by a training program that never seeds it",
                  "seed it before the first use"),
    "VB102": Rule(WARNING, "a separate generator is created without a seed",
                  "give it a seed: default_rng(seed), RandomState(seed), Random(seed), "
                  "TPESampler(seed=seed), tf.random.Generator.from_seed(seed)"),
    "VB103": Rule(WARNING, "a generator is seeded after it was used",
                  "seed before the first use"),
    "VB104": Rule(WARNING, "the seed differs from run to run",
                  "use a fixed seed, or record the one that was drawn"),
    "VB105": Rule(NOTE, "PYTHONHASHSEED is set inside the program, where it has no effect",
                  "set it in the environment before Python starts"),
    "VB106": Rule(WARNING, "a program continues from files that its last run left",
                  "begin each run in a folder of its own, or go on only where an option asks for it"),
    "VB107": Rule(WARNING, "data come from a service whose answers change",
                  "store once what it answers, with the date, and train on that"),
    # ---- data loading
    "VB201": Rule(NOTE, "workers of a DataLoader have no seed of their own",
                  "pass generator= with a seed, and worker_init_fn= where the data set uses NumPy or random"),
    "VB202": Rule(NOTE, "a random split or sampler draws from the global generator",
                  "pass a generator that is made and seeded once: one made in each epoch repeats its order"),
    "VB203": Rule(WARNING, "threads or workers decide the order of elements, draws or updates",
                  "remove deterministic=False (in_order=False); draw by tf.random.stateless_* or "
                  "tf.image.stateless_*, or map one by "
                  "one; fill a queue by one thread; train word vectors by one worker"),
    # ---- order
    "VB301": Rule(WARNING, "files come in the order of the file system",
                  "wrap it in sorted(); of os.walk, sort each step's folders and files (folders.sort(), "
                  "sorted(files)); of os.scandir, by key=lambda entry: entry.name"),
    "VB302": Rule(WARNING, "the order of a set becomes the order of data",
                  "iterate over sorted(...), or over dict.fromkeys(...), which keeps the order of its input"),
    "VB303": Rule(WARNING, "hash() of a string differs from run to run",
                  "use zlib.crc32 or hashlib, or set PYTHONHASHSEED in the environment"),
    "VB304": Rule(WARNING, "results come in the order in which they are ready",
                  "use map() or imap(), or put the results back into the order of their inputs"),
    "VB305": Rule(NOTE, "rows come in whatever order the database returns them",
                  "add ORDER BY with a key that is unique, or sort the rows by one"),
    # ---- threads
    "VB401": Rule(NOTE, "a training program does not set its thread count",
                  "set it (torch.set_num_threads, OMP_NUM_THREADS; of TensorFlow tf.config.threading, of its "
                  "sessions ConfigProto) and report it"),
    "VB402": Rule(WARNING, "an environment variable is set after the library that reads it was imported",
                  "set it before the import, or outside the program"),
    "VB403": Rule(ERROR, "a thread setting comes after the work has begun",
                  "set it right after the import"),
    "VB404": Rule(NOTE, "a TensorFlow 1 session does not set its thread count",
                  "pass ConfigProto(intra_op_parallelism_threads=n, inter_op_parallelism_threads=m)"),
    "VB405": Rule(NOTE, "a count that the results depend on is taken from the machine",
                  "set a fixed number, or record it with the results"),
    # ---- operations
    "VB501": Rule(WARNING, "an operation can differ between runs, and the mode that prevents it is off",
                  "turn the mode on at the start of the program, with CUBLAS_WORKSPACE_CONFIG=:4096:8 in the "
                  "environment on CUDA; for PyTorch's convolutions alone torch.backends.cudnn.deterministic "
                  "= True is enough"),
    "VB502": Rule(WARNING, "an operation can differ between runs, and has no deterministic version",
                  "use another operation, or compute this one on the CPU"),
    "VB503": Rule(NOTE, "operations round differently on other thread counts, and no mode changes that",
                  "fix the thread count and report it; compare runs of one thread count only"),
    "VB504": Rule(WARNING, "cuDNN chooses its algorithms by timing them",
                  "set torch.backends.cudnn.benchmark = False"),
    "VB505": Rule(WARNING, "the deterministic mode needs CUBLAS_WORKSPACE_CONFIG on CUDA",
                  "set CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment"),
    # ---- evaluation
    "VB601": Rule(NOTE, "the last model is evaluated, not one that validation selected",
                  "keep the model with the best validation metric"),
    "VB602": Rule(WARNING, "test data are shuffled", "pass shuffle=False"),
    "VB603": Rule(WARNING, "training data are used for testing or validation",
                  "hold data out"),
    "VB604": Rule(NOTE, "the split follows the order of the training data",
                  "shuffle once with a seed, or hold out named samples"),
}  # fmt: skip


BY_CHOICE = frozenset(("VB201", "VB202", "VB503", "VB601", "VB602", "VB604"))
"""Only where they are selected. VB201 and VB202 are about what the order of drawing decides: with a seed runs
repeat, and without one there is VB101. VB503 is VB401 in detail. The others: how a model is judged."""
USUAL = frozenset(RULES) - BY_CHOICE
EVERYWHERE = "everywhere"
"""Among chosen rules: orders were selected, and are reported wherever they are kept, whoever uses them."""


class Example(NamedTuple):
    fails: str
    passes: str


@cache
def examples() -> dict[str, Example]:
    """Of each rule a program that it finds something in, and one that it does not."""
    file = Path(__file__).parent / "data" / "examples.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return {rule: Example(**{key: text.lstrip("\n") for key, text in data[rule].items()}) for rule in RULES}


def explained(rule: str) -> str:
    """A rule for a person. Raises ValueError for one that there is not."""
    chosen((rule,), ())
    if rule not in RULES:
        raise ValueError(f"{rule} is a prefix of several rules; give one full code")
    known, example = RULES[rule], examples()[rule]
    usual = "" if rule in USUAL else f"\nOff by default; select it with --extend-select {rule}."
    return (
        f"{rule} ({known.level}): {known.title}\nTo do: {known.advice}.{usual}\n\n"
        f"Reported in\n\n{indent(example.fails, '    ')}\nbut not in\n\n{indent(example.passes, '    ')}"
    )


def chosen(select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    """The rules that begin with one of `select` (USUAL, when empty) and with none of `ignore`; EVERYWHERE
    where one of orders was selected. Raises ValueError for a code that no rule begins with."""
    for code in (*select, *ignore):
        if not any(rule.startswith(code) for rule in RULES):
            raise ValueError(f"there is no rule {code}; there are {', '.join(RULES)}")
    everywhere = frozenset((EVERYWHERE,) if any(code.startswith("VB3") for code in select) else ())
    return everywhere | frozenset(
        rule
        for rule in RULES
        if (rule.startswith(select) if select else rule in USUAL) and not (ignore and rule.startswith(ignore))
    )
