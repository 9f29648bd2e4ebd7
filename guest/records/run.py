"""The one vocabulary shared by orchestrator, guest and analysis: what a run is asked to do
(`RunSpec`), what it says while it runs (`Message`), and what it leaves behind (`RunRecord`).

Everything here is plain data that travels as JSON. Nothing is ever unpickled.

Schema history
    1   first version
    2   RunSpec.cpu_model; in records of version 1 it is empty
    3   Isolation.shares and .disturbed, RunResult.conditions; empty in older records
    4   RunSpec.tier; empty in older records. Somebody's own projects: WorkloadSpec.project,
        RunRequest.project, RunResult.project; none in older records
    5   Isolation.host; empty in older records
    6   Random numbers of projects: ProjectSpec.random, ProjectResult.random, RunRequest.recording, the file
        `random.rec`; projects of version 4 were seeded. ProjectSpec.framework
    7   Isolation.disturbed is called .contended
    8   RunRecord.order; none in older records, whose conditions were run one after the other
    9   Variant.EXACT
    10  RunRecord.failures; empty in older records
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from guest.records import bounded
from guest.records.codec import RecordError, unseal

SCHEMA_VERSION = 10

HISTORY = "history.csv"
PREDICTIONS = "predictions.npz"
WEIGHTS = "weights.safetensors"
SELECTED = "selected.safetensors"
LOG = "log.txt"
RECORDING = "random.rec"  # the random numbers of a project's run, where they are recorded or replayed
RECORD = "run.json"
ARTIFACTS = (HISTORY, PREDICTIONS, WEIGHTS, SELECTED, LOG)
"""The files a finished run consists of, beside its record. The agent may send these and no others."""

CPU_MODEL = r"[A-Za-z0-9][A-Za-z0-9_.,+=-]*"
"""A CPU as QEMU names it, flags included: `Haswell,-avx2`."""
FOLDER_NAME = r"[A-Za-z0-9@+_-][A-Za-z0-9@+.,=_-]*"
"""A folder of a run id: a workload, a variant, or thread counts with CPU model and tier. No leading dot."""

METRIC = r"(?!(?:loss|epoch|step)$)[A-Za-z][A-Za-z0-9_]{0,63}(?<!sha256)"
"""The name of a metric: no other column of a history or a table of runs can come of it."""

EMULATORS = ("tcg", "interpreter")
"""The accelerators of guests whose CPUs are computed: their times are those of the computing."""
CONTENDED_ABOVE = 0.25
"""So many cores kept busy by others, on average, and a time says more of the others than of the run."""


class Variant(StrEnum):
    """Which nondeterminism is left free (Zhuang et al., MLSys 2022, section 3)."""

    DEFAULT = "default"  # nothing fixed: ALGO + IMPL
    FIXED_SEED = "fixed-seed"  # all seeds fixed; what is left is the implementation: IMPL
    ALGO = "algo"  # seeds free, deterministic implementation asked for
    CONTROL = "control"  # everything fixed; must come out bitwise equal
    EXACT = "exact"  # all seeds fixed, exact mode: must come out bitwise equal on all thread counts

    @property
    def seeds_fixed(self) -> bool:
        return self in (Variant.FIXED_SEED, Variant.CONTROL, Variant.EXACT)

    @property
    def deterministic(self) -> bool:
        """Whether the framework's determinism switches and the vendor's are set."""
        return self in (Variant.ALGO, Variant.CONTROL)


class Tier(StrEnum):
    """What is done beside the variant for equal bits on all thread counts; `guest.machine.tiers` describes
    them. Runs of a study have none: tiers are tried by `vbstudy harden`."""

    NONE = ""
    SEEDS = "seeds"
    SWITCHES = "switches"
    ENVIRONMENT = "environment"
    LOGICAL_THREADS = "logical-threads"
    EXACT = "exact"
    ONE_THREAD = "one-thread"


class Framework(StrEnum):
    TORCH = "torch"
    TENSORFLOW = "tensorflow"


class Optimizer(StrEnum):
    SGD = "sgd"
    ADAM = "adam"


class Isa(StrEnum):
    """Which instruction sets the libraries may use."""

    NATIVE = "native"
    PORTABLE = "portable"  # capped at AVX2 and MKL's compatible mode: same bits on different hosts


class Metric(StrEnum):
    """Metrics computed in the guest after every epoch, on validation and test samples."""

    ACCURACY = "accuracy"
    F1_MACRO = "f1_macro"
    F1_MICRO = "f1_micro"
    F1_BINARY = "f1_binary"


LOSSES = ("train_loss", "validation_loss", "test_loss")
"""Losses that a history has columns for; a project may fill them beside its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSource:
    """Where a number of a project is read: `pattern` is a regular expression with one group, tried on
    every line of output; `file` is below the project's folder (JSON, JSON lines, CSV, TSV, or a folder of
    TensorBoard events) and `key` what to read in it. With neither, the project tells it `vbstudy.report`."""

    name: str
    pattern: str = ""
    file: str = ""
    key: str = ""


class Random(StrEnum):
    """How the random numbers of a project are controlled."""

    SEED = "seed"  # its generators are seeded from outside
    REPLAY = "replay"  # those that it draws by itself are recorded once, and given back to other runs


ELSEWHERE = re.compile(r"(?!file:)\w+://|[^/:]+@[^/:]+:")  # a URL, or git's short form of one


def portable_source(source: str) -> str:
    """Where a project is from, for other machines: a URL as it is, a path by its last name alone."""
    if ELSEWHERE.match(source):
        return source
    scheme = "file:///" if source.startswith("file:") else ""
    return scheme + (PurePath(source).name or source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSpec:
    """Somebody's own project. Paths are relative to its folder; an empty one is not declared.
    `source` is the path or git URL as the study file has it, `commit` the pin in it. `framework` is one that
    the guest itself must have."""

    source: str
    commit: str
    command: tuple[str, ...]
    requirements: str
    metrics: tuple[MetricSource, ...]
    predictions: str
    weights: str
    timeout_s: float | None
    disk_limit_mib: int
    random: Random = Random.SEED
    framework: Framework | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What is trained. `train_samples` and `test_samples` limit the data (None: all of it);
    `test_samples` limits the validation part too. Of a `project` only `name` and `metrics` say something
    besides: it has its own network, data and settings, and the other fields are empty or 0."""

    name: str
    framework: Framework | None  # None: whatever a project imports; seen while it runs
    model: str
    dataset: str
    epochs: int
    batch_size: int
    learning_rate: float
    optimizer: Optimizer
    momentum: float = 0.0
    weight_decay: float = 0.0
    augment: bool = False
    train_samples: int | None = None
    test_samples: int | None = None
    metrics: tuple[Metric, ...] = (Metric.ACCURACY,)  # the first one selects the model
    project: ProjectSpec | None = None

    @property
    def comparable(self) -> WorkloadSpec:
        """Equal where the same is trained: without a project's limits, which a finished run kept to, and
        without its place, which a published study file does not have."""
        project = self.project and dataclasses.replace(
            self.project,
            source=portable_source(self.project.source),
            timeout_s=None,
            disk_limit_mib=0,
        )
        return dataclasses.replace(self, project=project)

    @property
    def network_framework(self) -> Framework:
        """What a network of ours is trained with. Raises ValueError for a project."""
        if self.framework is None:
            raise ValueError(f"workload {self.name!r} is a project, and has no framework of ours")
        return self.framework

    @property
    def computes_with(self) -> Framework | None:
        """A network's framework, or the one that a project declares; None where it declares none."""
        return self.framework if self.project is None else self.project.framework

    @property
    def replays(self) -> bool:
        """Whether its runs draw recorded random numbers."""
        return self.project is not None and self.project.random is Random.REPLAY

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics of its runs; the first one is the one that is looked at first."""
        if self.project is None:
            return tuple(metric.value for metric in self.metrics)
        return tuple(source.name for source in self.project.metrics if source.name not in LOSSES)

    def unexpected_artifacts(self, names: Collection[str]) -> list[str]:
        """What these files have too much or too little to be those of a finished run."""
        if self.project is None:
            return sorted(set(names) ^ set(ARTIFACTS))
        due = {HISTORY, LOG}
        due |= {PREDICTIONS} if self.project.predictions else set()
        due |= {WEIGHTS} if self.project.weights else set()
        due |= {RECORDING} if self.replays else set()
        return sorted((due - set(names)) | (set(names) - due - {PREDICTIONS, WEIGHTS}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """One seed a factor; None leaves the factor free (drawn from the operating system)."""

    initialisation: int | None = None
    data_order: int | None = None
    augmentation: int | None = None
    dropout: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpec:
    """Thread counts asked of the frameworks. `cpus` is what the guest has."""

    cpus: int
    intra_op: int
    inter_op: int

    @property
    def label(self) -> str:
        """`cpus-4`, `cpus-4-threads-2`, `cpus-4-interop-1`: what differs from the default is named."""
        text = f"cpus-{self.cpus}"
        if self.intra_op != self.cpus:
            text += f"-threads-{self.intra_op}"
        if self.inter_op != self.intra_op:
            text += f"-interop-{self.inter_op}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One training, completely described. Equal specs with every seed fixed should train equal
    models; whether they do is what the study measures."""

    study_id: str
    workload: WorkloadSpec
    variant: Variant
    threads: ThreadSpec
    repetition: int  # counted from 1
    seeds: Seeds
    isa: Isa = Isa.NATIVE
    cpu_model: str = ""  # the CPU that a virtual machine shows, where the study compares several
    tier: Tier = Tier.NONE
    schema_version: int = SCHEMA_VERSION

    @property
    def comparable(self) -> RunSpec:
        """Equal where the same is asked for: without limits, and without the schema, of which there are older
        ones."""
        return dataclasses.replace(self, workload=self.workload.comparable, schema_version=0)

    @property
    def cure(self) -> Tier:
        """The tier that the run trains with: what is tried, or what its variant is."""
        return Tier.EXACT if self.variant is Variant.EXACT else self.tier

    @property
    def set_id(self) -> str:
        """The experiment set this run belongs to: `lenet5/fixed-seed/cpus-4`, with `-on-Haswell` behind
        it where CPU models are compared, and `-by-exact` where a tier is tried."""
        on = f"-on-{self.cpu_model}" if self.cpu_model else ""
        by = f"-by-{self.tier}" if self.tier else ""
        return f"{self.workload.name}/{self.variant}/{self.threads.label}{on}{by}"

    @property
    def run_id(self) -> str:
        """The run's folder below `runs/`: `lenet5/fixed-seed/cpus-4/0001`."""
        return f"{self.set_id}/{self.repetition:04d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """A project on its way into a guest: an archive of its folder, which the guest checks and unpacks
    for each run, and a folder of wheels ("": requirements come from the network)."""

    archive: str
    archive_sha256: str
    tree_sha256: str  # over paths, modes and contents: what was run
    commit: str  # of the git repository it is from, or ""
    wheels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingFile:
    """A recording in a guest, which checks it."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What the agent is handed: the spec, and what it needs to know of this guest.
    `visible_cpus` is the number of cores the process must see, or the run is refused. A project that replays
    gets its `recording`; without one, the run makes it."""

    spec: RunSpec
    visible_cpus: int
    data_folders: tuple[str, ...] = ()
    heartbeat_s: float = 5.0
    project: ProjectFiles | None = None
    recording: RecordingFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file of a run: what it must hash to, and its size."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashes:
    """SHA-256 of canonical bytes. `weights` and `logits` are the last model's,
    `selected_*` those of the model with the best validation metric, `predictions` the argmax. A project's
    run has no selected model, and "" for whatever it did not write."""

    weights: str
    logits: str
    predictions: str
    selected_weights: str
    selected_logits: str
    selected_predictions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds by the monotonic clock. `wall_s` runs from the start of the run to the end of
    testing, data loading and the hashing of weights included; `train_s` is without them. Importing the
    framework is `import_s`, paid once a warm worker."""

    import_s: float
    data_s: float
    build_s: float
    train_s: float
    evaluate_s: float
    wall_s: float
    cpu_s: float
    warm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How alone a run was: `neighbours` held other cores of the host when it began, at a heartbeat of it, or
    when it ended."""

    oversubscribed: bool
    host_cores: tuple[int, ...]
    cpuset: str  # "cgroup" or "affinity" or "" (the guest has no cores of its own)
    neighbours: tuple[str, ...]
    shares: dict[str, str] = field(default_factory=dict)  # the closest by neighbour: "core", "cache", "node"
    contended: tuple[str, ...] = ()  # what was beyond the study's limits, a phrase each
    # Of a virtual machine on the orchestrator's own: what the machine below saw of these cores, from before
    # the run to after it, in `wall_s`: load_by_others, and what RunResult.conditions has.
    host: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Something in a project that sets what the study set, and wins: `what` was done with which `value`,
    `where` (file:line in the project), how many `times`."""

    what: str
    value: str
    where: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomNumbers:
    """Where the random numbers of a project's run came from: generators "seeded" from outside; or what it
    drew by itself, "recorded" in this run or "replayed" from an earlier one. Then `draws` is how many are in
    RECORDING, and `level` what was seen: "library" (all random bytes) or "python" (those of Python code)."""

    how: Literal["seeded", "recorded", "replayed"] = "seeded"
    draws: int = 0
    level: Literal["", "library", "python"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectResult:
    """What is known of a project's run, and what is not."""

    tree_sha256: str
    commit: str
    # Of all generators that a hook can reach (a script's own factors are not told apart); None: none was set.
    seed: int | None
    overrides: tuple[Override, ...]
    absent: tuple[str, ...]  # what this run does not tell, one phrase each
    notes: tuple[str, ...]  # what a reader should know besides
    packages: tuple[str, ...]  # of the project's own environment; empty: the guest's
    disk_bytes: int  # what the run wrote and left in its folder
    weights_file_sha256: str  # of the file as the project wrote it; "" where there is none
    random: RandomNumbers = field(default_factory=RandomNumbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What the agent says of a finished run in its `done` message."""

    seeds_used: Seeds  # as drawn, when they were free: every run can be repeated; none set: project.random
    step_hashes: dict[str, str]  # after training step "1", "2", "4", ... : SHA-256 of the weights
    selected_epoch: int
    last: dict[str, float]  # test metrics of the last model
    selected: dict[str, float]  # test metrics of the selected model
    hashes: Hashes
    timings: Timings
    environment: dict[str, Any]  # the fingerprint, with the thread counts in force
    load_by_others: float | None  # mean number of this guest's cores that others kept busy
    artifacts: dict[str, Artifact]
    # What happened to its cores meanwhile: steal_s, quota_s, throttled, swapped_mib, frequency_mhz_before and
    # _after, as far as the guest's kernel tells.
    conditions: dict[str, float] = field(default_factory=dict)
    project: ProjectResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """When a run was planned: in which block, which has one run of each condition, and as which of its
    `of` runs. All are counted from 1. When it really started is RunRecord.started_at."""

    block: int
    position: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """`run.json`: the run as it lies in the store."""

    schema_version: int
    spec: RunSpec
    status: Literal["done"]
    result: RunResult
    isolation: Isolation
    guest: dict[str, Any]  # name, provider, what the hypervisor said; `host` is a `machine_id`
    agent_sha256: str
    attempt: int
    started_at: str  # ISO 8601, UTC
    finished_at: str
    order: RunOrder | None = None  # as the study planned it then; None: unknown, or no run of a study
    failures: dict[str, int] = field(default_factory=dict)  # earlier attempts of the sweep, by kind of error

    @property
    def load_by_others(self) -> float | None:
        """As the guest saw it, or the machine below it, whichever saw more; None where neither could tell."""
        seen = (self.result.load_by_others, self.isolation.host.get("load_by_others"))
        return max((load for load in seen if load is not None), default=None)


def machine_id(study_id: str, machine: str) -> str:
    """What distinguishes the machines of a study in its records, of which archives publish every word. An id
    stays as it is; older records have names."""
    if re.fullmatch(r"machine-[0-9a-f]{12}", machine):
        return machine
    return f"machine-{hashlib.sha256(f'{study_id} {machine}'.encode()).hexdigest()[:12]}"


def history_columns(metrics: Sequence[str]) -> list[str]:
    """The columns of `history.csv`, one line an epoch (counted from 1). `test_*` is the model as it
    stands after the epoch, `selected_test_*` the best-validation model so far, first chosen at
    `selected_epoch`: the views without and with model selection."""
    return [
        "epoch",
        "step",
        "train_loss",
        "validation_loss",
        "test_loss",
        *(f"validation_{metric}" for metric in metrics),
        *(f"test_{metric}" for metric in metrics),
        "selected_epoch",
        *(f"selected_test_{metric}" for metric in metrics),
        "weights_sha256",
        "logits_sha256",
        "predictions_sha256",
        "elapsed_s",
    ]


def most_epochs(metrics: Sequence[str]) -> int:
    """How many lines of `history.csv` are read again, beside the line of names."""
    return bounded.HISTORY.items // len(history_columns(metrics)) - 1


class Message(NamedTuple):
    """One JSON line of the agent: `kind` is hello, epoch, heartbeat, done or error."""

    kind: str
    run_id: str
    body: dict[str, Any]


def _upgrade_record(data: dict[str, Any], version: int) -> None:
    isolation = data.get("isolation")
    if version < 7 and isinstance(isolation, dict) and "disturbed" in isolation:
        isolation["contended"] = isolation.pop("disturbed")


def decode_record(text: str | bytes) -> RunRecord:
    """Reads `run.json` of this schema or an older one, and checks what it says. Raises as `unseal`."""
    from guest.records.valid import wrong_record

    record = unseal(RunRecord, text, RECORD, known=SCHEMA_VERSION, upgrade=_upgrade_record)
    wrong = next(wrong_record(record), None)
    if wrong:
        raise RecordError(wrong)
    return record
