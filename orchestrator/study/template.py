"""The study file as it is written for the user, and edited without losing their comments."""

from __future__ import annotations

import importlib.util
import json
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import tomlkit
from pydantic.fields import FieldInfo

from guest import workloads
from guest.datasets import datasets
from guest.records.run import Framework
from orchestrator.errors import UsageError
from orchestrator.study import schema
from orchestrator.study.providers import SshHostTable

DEFAULT_DATASETS = ("fashion-mnist", "digits")  # the first one that is found
COMMENTS_AT = 31  # columns

TEMPLATE = """\
# A vbstudy study: the same training, again and again, on guests with different CPU counts.
# Every key that is commented out shows its default.

name = "{name}"
seed = 1                        # of every factor, where seeds are fixed
# seeds = 1                     # 10: seeds 1 to 10 in turn, the same on every thread count (F4: at least 6)
# repetitions = 3               # runs of each condition; with several seeds as many as seeds;
                                # `vbstudy sweep --runs N` overrides it
# repetitions_at_most = {{}}      # {{ exact = 3 }}: the most runs of a variant, also of --runs N
cpus = {cpus}
                                # one guest for each; `vbstudy provision --cpus` edits this line
# threads = [1, 2, 4]           # framework threads crossed with the guests; default: as many as cpus
# inter_op_threads = [1, 2]     # default: as many as threads
variants = ["fixed-seed", "default"]
                                # default     nothing fixed
                                # fixed-seed  all seeds fixed: what is left is the implementation
                                # algo        seeds free, deterministic implementation
                                # control     everything fixed: must come out bitwise equal
                                # exact       all seeds fixed, exact mode: equal on all thread counts
# isa = "native"                # or "portable": AVX2 at most, for equal bits on different hosts
# model_selection = "both"      # models that are analysed: "both", "selected" or "last"
# metrics = ["accuracy"]        # also f1_macro, f1_micro, f1_binary; the first one selects the model

[[workload]]
name = "lenet5"
{framework}
model = "lenet5"                # see the list below
dataset = "{dataset}"
epochs = {epochs}
batch_size = 64
learning_rate = {learning_rate}
optimizer = "sgd"               # or "adam"
momentum = 0.9
# weight_decay = 0.0
# augment = false               # random crops and flips (images)
# variants = ["fixed-seed"]     # some of the study's; default: all
# metrics = ["f1_macro"]        # default: the study's
{samples}
# models      {models}
# datasets    {datasets}

# [[workload]]                  # a project of your own, as it is; see docs/own-projects.md
# name = "mine"
# project = "../mine"           # a folder, or a git URL with a pin: "https://host/me/mine.git@1a2b3c4"
# command = ["python", "train.py", "--epochs", "3"]
# requirements = "requirements.txt"  # an environment of its own, built once a guest; default: the guest's
# wheels = "wheels"             # where requirements come from; default: the network
# framework = "torch"           # what guests must have themselves; default: nothing
# random = "replay"             # record the numbers it draws, and replay them; default: "seed"
# timeout_s = 3600              # for one run; default: engine.timeout_s alone
# disk_limit_mib = 10240        # what one run may write
# [workload.metrics]            # the first one is compared first
# accuracy = {{ pattern = 'test acc: ([0-9.]+)' }}      # a line of output
# f1 = {{ file = "out/result.json", key = "test.f1" }}  # also .jsonl, .csv, .tsv, TensorBoard's folder
# train_loss = {{ report = true }}                      # vbstudy.report.metric in the script
# [workload.artifacts]
# predictions = "out/preds.npy" # also .npz, .csv
# weights = "out/model.pt"      # also .safetensors, .npz, .weights.h5, .keras; pickles are refused
{tables}
"""


def template(name: str, cpus: tuple[int, ...], dataset: str, framework: Framework = Framework.TORCH) -> str:
    """The default study as commented text. `dataset` is one of DEFAULT_DATASETS."""
    (other,) = set(Framework) - {framework}
    small = dataset == "digits"
    unlimited = "# train_samples = 1000          # default: all\n# test_samples = 1000\n"
    limited = "train_samples = 4000            # default: all\ntest_samples = 2000\n"
    return TEMPLATE.format(
        name=name,
        cpus=list(cpus),
        models=_wrapped(workloads.MODELS),
        dataset=dataset,
        framework=f'framework = "{framework}"'.ljust(COMMENTS_AT + 1) + f'# or "{other}"',
        datasets=_wrapped(datasets.DATASETS),
        epochs=4 if small else 3,
        learning_rate=0.02,
        samples=unlimited if small else limited,
        tables="\n".join(_tables()),
    )


def sentences() -> dict[str, dict[str, str]]:
    """What each key means, by the class of its table."""
    return tomllib.loads(Path(__file__).with_name("keys.toml").read_text(encoding="utf-8"))


def _tables() -> Iterator[str]:
    """The tables of all but workloads, commented out, with what stands for a key where it is not given: its
    default, or an example where it has none."""
    meanings, above = sentences(), ""
    for path, model in schema.TABLES.items():
        if path.partition(".")[0] in ("", "workload"):
            continue
        name = path.rpartition(".")[0] if "kind" in model.model_fields else path
        header = "# [[provider.hosts]]" if model is SshHostTable else f"# [{name or path}]"
        yield from ["# or"] if header == above else ["", header]
        above = header
        for key, field in model.model_fields.items():
            value = _value(key, field)
            if value:
                yield from _commented(f"{key} = {value}", _meaning(meanings[model.__name__][key], field))


def _value(key: str, field: FieldInfo) -> str:
    """As TOML; nothing for a table, which follows."""
    if key == "kind":
        value = get_args(field.annotation)[0]
    elif field.examples:
        value = field.examples[0]
    else:
        value = None if field.is_required() else field.default
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else json.dumps(value)


def _meaning(sentence: str, field: FieldInfo) -> str:
    allowed = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    others = ", ".join(f'"{value}"' for value in allowed if value != field.default)
    return sentence.replace("`", "") + (f" Also {others}." if len(allowed) > 1 else "")


def _commented(entry: str, meaning: str) -> Iterator[str]:
    begin = f"# {entry}".ljust(COMMENTS_AT)
    first, *more = textwrap.wrap(meaning, max(110 - len(begin), 40) - 3)
    yield f"{begin} # {first}"
    for line in more:
        yield f"{'#':{COMMENTS_AT}} # {line}"


def _wrapped(names: Iterable[str]) -> str:
    lines = textwrap.wrap(", ".join(names), 80)
    return "\n#             ".join(lines)


def for_this_host(name: str, cpus: tuple[int, ...]) -> str:
    """The default study with Fashion-MNIST where it is found, else the embedded digits, and with TensorFlow
    where it is installed and PyTorch is not."""
    dataset = next(each for each in DEFAULT_DATASETS if each == "digits" or datasets.find(each, ()))
    only_tensorflow = importlib.util.find_spec("tensorflow") and not importlib.util.find_spec("torch")
    return template(name, cpus, dataset, Framework.TENSORFLOW if only_tensorflow else Framework.TORCH)


def _provider(kind: str, former: Mapping[str, Any]) -> tomlkit.items.Table:
    """A provider's table, with the settings of the former one as comments."""
    table = tomlkit.table().add("kind", kind)
    if set(former) - {"kind"}:
        for line in tomlkit.dumps({"provider": former}).strip().splitlines():
            table.add(tomlkit.comment(line))
    return table


def edited(path: Path, cpus: tuple[int, ...] | None, provider: str | None) -> tuple[str, str]:
    """The study file with what the command line asks for, comments and layout left alone; and what changed,
    in words: nothing, where nothing did."""
    current = schema.load(path)
    document = tomlkit.parse(path.read_text(encoding="utf-8-sig"))
    changes = []
    if cpus is not None and cpus != current.cpus:
        document["cpus"] = list(cpus)
        changes.append(f"cpus changed from {list(current.cpus)} to {list(cpus)}")
    if provider is not None and provider != current.provider.kind:
        if provider == "ssh":
            raise UsageError(
                f'--provider ssh: {path} names no hosts; give it a table [provider] with kind = "ssh", and a '
                "table [[provider.hosts]] with host and cpus for each, then run `vbstudy provision`"
            )
        document["provider"] = _provider(provider, document.get("provider", {}))
        changes.append(f"provider changed from {current.provider.kind} to {provider}")
    return tomlkit.dumps(document), "; ".join(changes)
