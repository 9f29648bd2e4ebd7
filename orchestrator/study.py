"""The study file: what `study.toml` may say, what it means when it says nothing, and messages that
name the key, the value and what is allowed."""

from __future__ import annotations

import difflib
import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from guest import datasets, workloads
from guest.records import Framework, Isa, Metric, Optimizer, Seeds, Variant
from orchestrator.errors import UsageError

MAX_THREADS = 1024
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

ThreadCount = Annotated[int, Field(ge=1, le=MAX_THREADS, strict=True)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1, strict=True)]


class ModelSelection(StrEnum):
    """Which model the analysis looks at. One run yields both."""

    BOTH = "both"
    SELECTED = "selected"  # the one with the best validation metric
    LAST = "last"


class Table(BaseModel):
    """A table of the study file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkloadTable(Table):
    """What is trained."""

    name: Name = ""
    framework: Framework = Framework.TORCH
    model: str
    dataset: str
    epochs: Count = 5
    batch_size: Count = 64
    learning_rate: float = Field(0.01, gt=0, allow_inf_nan=False)
    optimizer: Optimizer = Optimizer.SGD
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    augment: bool = False
    train_samples: Count | None = None
    test_samples: Count | None = None
    metrics: tuple[Metric, ...] | None = None

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, value: str) -> str:
        return _known(value, workloads.MODELS)

    @field_validator("dataset")
    @classmethod
    def _dataset_is_known(cls, value: str) -> str:
        return _known(value, datasets.DATASETS)

    @field_validator("metrics")
    @classmethod
    def _metrics_differ(cls, value: tuple[Metric, ...] | None) -> tuple[Metric, ...] | None:
        return value if value is None else _distinct(value)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        workloads.check(self.model, self.dataset)
        if self.optimizer is Optimizer.ADAM and self.momentum:
            raise ValueError("momentum belongs to optimizer = 'sgd'; adam has its own")
        if not self.name:
            object.__setattr__(self, "name", f"{self.model}-{self.dataset}-{self.framework}")
        return self


class SeedsTable(Table):
    """One factor's seed each, or "free"; a factor that is not named gets the study's seed."""

    initialisation: int | Literal["free"] | None = None
    data_order: int | Literal["free"] | None = None
    augmentation: int | Literal["free"] | None = None
    dropout: int | Literal["free"] | None = None


class LocalTable(Table):
    """Process sandboxes on this machine."""

    kind: Literal["local"] = "local"
    python: str | None = None
    cpuset: Literal["auto", "cgroup", "affinity"] = "auto"


class EngineTable(Table):
    """How runs are executed."""

    retries: int = Field(1, ge=0, le=100)
    timeout_s: float = Field(24 * 3600, gt=0)
    heartbeat_s: float = Field(5, gt=0)
    lost_after_s: float = Field(120, gt=0)
    side_by_side: bool = True


class DataTable(Table):
    """Where data sets are looked for first, and downloaded to."""

    folder: Path | None = None


class Study(Table):
    """A whole study file."""

    name: Name = "study"
    seed: int = Field(1, ge=0, lt=2**31, strict=True)
    repetitions: Count = 3
    cpus: tuple[ThreadCount, ...] = (1, 2, 4, 8)
    threads: tuple[ThreadCount, ...] | None = None
    inter_op_threads: tuple[ThreadCount, ...] | None = None
    variants: tuple[Variant, ...] = (Variant.FIXED_SEED, Variant.DEFAULT)
    isa: Isa = Isa.NATIVE
    model_selection: ModelSelection = ModelSelection.BOTH
    metrics: tuple[Metric, ...] = (Metric.ACCURACY,)
    seeds: SeedsTable = SeedsTable()
    provider: LocalTable = LocalTable()
    engine: EngineTable = EngineTable()
    data: DataTable = DataTable()
    workload: tuple[WorkloadTable, ...]

    @field_validator("cpus", "threads", "inter_op_threads", "variants", "metrics", "workload")
    @classmethod
    def _some_and_distinct(cls, value: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        return value if value is None else _distinct(value)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [w.name for w in self.workload]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice:
            raise ValueError(f"two workloads are named {twice!r}; give one of them another name")
        return self

    def factor_seeds(self, variant: Variant) -> Seeds:
        """The seeds of a run: None where the variant, or the [seeds] table, leaves a factor free."""
        if not variant.seeds_fixed:
            return Seeds()
        named = self.seeds.model_dump()
        return Seeds(
            **{
                factor: None if value == "free" else self.seed if value is None else value
                for factor, value in named.items()
            }
        )


def _known(value: str, registry: Any) -> str:
    if value not in registry:
        near = difflib.get_close_matches(value, registry, 1, 0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"allowed are {', '.join(registry)}{hint}")
    return value


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("at least one is needed")
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise ValueError(f"{getattr(twice, 'value', twice)!r} is named twice")
    return values


def load(path: Path) -> Study:
    """Reads and checks a study file. Raises UsageError that names file, line, key and value."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"{path}: there is no study here; `vbstudy init` writes one, and so does `vbstudy provision`"
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; a study file is text (see `vbstudy init`)") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(text, str(path))


def parse(text: str, source: str = "study.toml") -> Study:
    """Checks a study file's text."""
    if not text.strip():
        raise UsageError(f"{source}: is empty; delete it and run `vbstudy init` for a commented one")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: is not TOML: {error}") from None
    try:
        return Study.model_validate(data)
    except ValidationError as error:
        raise UsageError("\n".join(dict.fromkeys(_explain(e, text, source) for e in error.errors()))) from None


def _explain(error: Any, text: str, source: str) -> str:
    """One line for one of pydantic's errors: file:line: key = value: what is wrong."""
    # A union's arms and a provider's kind are pydantic's own words, not keys of the file.
    location = [part for part in error["loc"] if isinstance(part, int) or re.fullmatch(r"[a-z_]+", part)]
    value = error["input"]
    key = _dotted(location)
    line = _line_of(text, location)
    where = f"{source}:{line}" if line else source
    kind = error["type"]
    if kind == "extra_forbidden":
        allowed = sorted(_table_at(location[:-1]).model_fields)
        near = difflib.get_close_matches(str(location[-1]), allowed, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"allowed are {', '.join(allowed)}"
        return f"{where}: {key}: unknown key; {hint}"
    if kind == "missing":
        return f"{where}: {key}: is missing"
    message = error["msg"].removeprefix("Value error, ")
    if kind in ("enum", "literal_error"):
        allowed = re.findall(r"'([^']*)'", str(error["ctx"]["expected"]))
        near = difflib.get_close_matches(str(value), allowed, 1, 0.4)
        message = f"allowed are {', '.join(allowed)}" + (f"; did you mean {near[0]!r}?" if near else "")
    if kind == "string_pattern_mismatch":
        message = "letters, digits, '.', '_' and '-' only, 64 at most, no sign first"
    if not location or isinstance(value, dict):
        return f"{where}: {key}: {message}" if key else f"{where}: {message}"
    return f"{where}: {key} = {_shown(value)}: {message}"


def _shown(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def _dotted(location: list[Any]) -> str:
    """`workload[1].dataset`; entries are counted from 0, as in the file."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).removeprefix(".")


def _table_at(location: list[Any]) -> type[Table]:
    tables: dict[str, type[Table]] = {
        "workload": WorkloadTable,
        "seeds": SeedsTable,
        "provider": LocalTable,
        "engine": EngineTable,
        "data": DataTable,
    }
    return tables.get(location[0], Study) if location else Study


def _line_of(text: str, location: list[Any]) -> int:
    """The line a key stands on, 0 when it stands nowhere (a default, or a missing key): tomllib
    keeps no positions. Dotted keys and inline tables fall back to their table's line."""
    keys = [part for part in location if isinstance(part, str)]
    index = next((part for part in location if isinstance(part, int)), 0)
    if not keys:
        return 0
    if len(keys) == 1 and not re.search(rf"^\s*\[\[?{keys[0]}\]", text, re.M):
        table, key = "", keys[0]
    else:
        table, key = keys[0], (keys[1] if len(keys) > 1 else "")
    current, seen, fallback = "", -1, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\[?\s*([A-Za-z0-9_.-]+)\s*\]", line)
        if header:
            current = header[1]
            seen += current == table
            if current == table and (seen == index or not line.lstrip().startswith("[[")):
                fallback = number
        elif current == table and (not table or seen == index or seen == 0 == index):
            if key and re.match(rf"\s*\"?{re.escape(key)}\"?\s*[=.]", line):
                return number
    return fallback


DEFAULT_DATASETS = ("fashion-mnist", "digits")  # the first one that is found

TEMPLATE = '''\
# A vbstudy study: the same training, again and again, on guests with different CPU counts.
# Every key that is commented out shows its default.

name = "{name}"
seed = 1                        # of every factor, where seeds are fixed
repetitions = 3                 # runs of each experiment set; `vbstudy sweep --runs N` overrides it
cpus = {cpus}               # one guest for each
# threads = [1, 2, 4]           # framework threads crossed with the guests; default: as many as cpus
# inter_op_threads = [1, 2]     # default: as many as threads
variants = ["fixed-seed", "default"]
                                # default     nothing fixed
                                # fixed-seed  all seeds fixed: what is left is the implementation
                                # algo        seeds free, deterministic implementation
                                # control     everything fixed: must come out bitwise equal
# isa = "native"                # or "portable": AVX2 at most, for equal bits on unlike hosts
# model_selection = "both"      # what the analysis looks at: "both", "selected" or "last" models
# metrics = ["accuracy"]        # also f1_macro, f1_micro, f1_binary; the first one selects the model

[[workload]]
name = "lenet5"
framework = "torch"             # or "tensorflow"
model = "lenet5"                # {models}
dataset = "{dataset}"      # {datasets}
epochs = {epochs}
batch_size = 64
learning_rate = {learning_rate}
optimizer = "sgd"               # or "adam"
momentum = 0.9
# weight_decay = 0.0
# augment = false               # random crops and flips (images)
{samples}
# [seeds]                       # a factor's own seed, or "free"; else the study's seed
# initialisation = 1
# data_order = "free"
# augmentation = 1
# dropout = 1

# [provider]
# kind = "local"                # process sandboxes on this machine
# python = "/path/to/python"    # an interpreter that has the framework; default: vbstudy's own
# cpuset = "auto"               # "cgroup" (needs the right to), "affinity", or the best that works

# [engine]
# retries = 1                   # of a run that failed
# timeout_s = 86400             # for one run
# heartbeat_s = 5
# lost_after_s = 120            # a run that is silent this long is lost, and redone
# side_by_side = true           # guests on disjoint cores at the same time; false: one at a time

# [data]
# folder = "data"               # data sets are looked for here first, and downloaded to here
'''


def template(name: str, cpus: tuple[int, ...], dataset: str) -> str:
    """The default study as commented text. `dataset` is one of DEFAULT_DATASETS."""
    small = dataset == "digits"
    limits = "# train_samples = 1000          # default: all\n# test_samples = 1000\n"
    return TEMPLATE.format(
        name=name,
        cpus=list(cpus),
        models=", ".join(workloads.MODELS),
        dataset=dataset,
        datasets=", ".join(datasets.DATASETS),
        epochs=4 if small else 3,
        learning_rate=0.01,
        samples=limits if small else "train_samples = 6000            # the default is all\ntest_samples = 2000\n",
    )


def default_dataset(folders: tuple[Path, ...] = ()) -> str:
    """Fashion-MNIST where it is found, else the embedded digits."""
    return next(name for name in DEFAULT_DATASETS if name == "digits" or datasets.find(name, folders))


def parse_counts(text: str) -> tuple[int, ...]:
    """`1,2,4,8` as typed on the command line. Raises UsageError that names the wrong piece."""
    counts: list[int] = []
    for piece in text.split(","):
        piece = piece.strip()
        if not re.fullmatch(r"[+-]?\d+", piece):
            raise UsageError(f"--cpus {text}: {piece!r} is not a whole number; write for example 1,2,4,8")
        count = int(piece)
        if not 1 <= count <= MAX_THREADS:
            raise UsageError(f"--cpus {text}: {count} is not between 1 and {MAX_THREADS}")
        if count in counts:
            raise UsageError(f"--cpus {text}: {count} is named twice")
        counts.append(count)
    return tuple(counts)


def edit(path: Path, cpus: tuple[int, ...] | None, provider: str | None) -> str:
    """Puts what the command line asks for into the study file, leaving comments and layout alone.
    Returns what changed, in words; empty when nothing did."""
    import tomlkit

    from orchestrator.store import write_durably

    study = load(path)
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    changes = []
    if cpus is not None and cpus != study.cpus:
        document["cpus"] = list(cpus)
        changes.append(f"cpus changed from {list(study.cpus)} to {list(cpus)}")
    if provider is not None and provider != study.provider.kind:
        document["provider"] = {"kind": provider}
        changes.append(f"provider changed from {study.provider.kind} to {provider}")
    if changes:
        write_durably(path, tomlkit.dumps(document))
    return "; ".join(changes)
