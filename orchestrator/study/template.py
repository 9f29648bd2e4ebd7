"""The study file as it is written for the user, and edited without losing their comments."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

import tomlkit

from guest import workloads
from guest.datasets import datasets
from orchestrator.files import write_durably
from orchestrator.study import schema

DEFAULT_DATASETS = ("fashion-mnist", "digits")  # the first one that is found

TEMPLATE = """\
# A vbstudy study: the same training, again and again, on guests with different CPU counts.
# Every key that is commented out shows its default.

name = "{name}"
seed = 1                        # of every factor, where seeds are fixed
# seeds = 1                     # 10: seeds 1 to 10 in turn, the same on every thread count (at least 5)
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
framework = "torch"             # or "tensorflow"
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
# f1 = {{ file = "out/result.json", key = "test.f1" }}  # also .jsonl, .csv, a folder of TensorBoard events
# train_loss = {{ report = true }}                      # vbstudy.report.metric in the script
# [workload.artifacts]
# predictions = "out/preds.npy" # also .npz, .csv
# weights = "out/model.pt"      # also .safetensors, .npz, .weights.h5, .keras; pickles are refused

# [seeds]                       # a factor's own seed, or "free"; else the study's seed
# count = 1                     # how many of each in a row, in place of `seeds = ...`
# initialisation = 1
# data_order = "free"
# augmentation = 1
# dropout = 1

# [provider]
# kind = "local"                # process sandboxes on this machine
# python = "/path/to/python"    # an interpreter that has the framework; default: vbstudy's own
# cpuset = "auto"               # "cgroup" (needs the right to), "affinity", or the best that works
# or
# kind = "qemu"                 # virtual machines on this machine; with KVM where it works
# memory_mib = 2048
# cpu_model = "max"             # see `qemu-system-x86_64 -cpu help`; several in [] are compared
# accelerator = "auto"          # "kvm" or "tcg"
# snapshot = true               # guests resume from a snapshot, taken after their first boot
# boot_timeout_s = 300
# image = "debian-12.qcow2"     # an image of your own, with cloud-init, in place of the one that is built
# python_version = "3.11"       # of its Python, which is given the libraries; default: it has its own
# python = "/usr/bin/python3"   # the interpreter in it
# or
# kind = "vagrant"              # virtual machines that Vagrant makes from a box
# hypervisor = "virtualbox"     # or "libvirt"
# box = "debian/bookworm64"     # any box with sudo and Python 3.11; vagrant/box builds one
# memory_mib = 2048
# python = "/usr/bin/python3"   # one in the box that has the framework; default: installed by us
# boot_timeout_s = 300
# or
# kind = "virtualbox"           # machines under VirtualBox, linked clones of one base
# base = "image.vdi"            # .vdi .vmdk .vhd .qcow2 .raw .ova, or the name of a machine with a snapshot
# url = "https://..."           # where the file is fetched from when it is not there; wants base_sha256
# base_sha256 = "..."           # the file must have it
# cloud_init = false            # true: a cloud image, which gets user, key and host key from the study
# host_key = "ssh-ed25519 ..."  # that of the image, without cloud_init
# user = "root"                 # who logs in
# key = "id_ed25519"            # with what; default: the study's own key
# python = "python3"            # in the image, with the framework
# folder = "/var/tmp/vbstudy"   # where runs work in the guest
# memory_mib = 2048
# nested_paging = true
# execution_engine = "auto"     # or "native", or "interpreter": no driver, no VT-x, very slow
# snapshot = "live"             # guests resume from one; "saved": taken asleep; "off": boot, shut down
# boot_timeout_s = 300
# or
# kind = "ssh"                  # machines that are there already
# hosts = [{{ host = "node1", cpus = 8, user = "me", port = 22, host_key = "ssh-ed25519 AAAA..." }}]
#                               # also key, known_hosts, python, folder

# [engine]
# retries = 1                   # of a run that failed
# timeout_s = 86400             # for one run
# heartbeat_s = 5
# lost_after_s = 120            # a run silent for this long is lost, and redone; above heartbeat_s
# side_by_side = true           # guests on disjoint cores at the same time; false: one at a time
# hyper_threads = true          # count as cores; false: each virtual CPU on a physical core
# reserve = 0                   # cores held for each guest, if more than it has CPUs
# contended_above = 0.25        # cores that others kept busy, on average over a run: it is flagged
# redo_contended = false        # true: such a run is redone, as often as `retries` says
# kind = "local"                # on this machine's guests; "dask": on the workers of many hosts
# scheduler = "tcp://node0:8786"  # of dask, with `vbstudy worker` on each host; or a cluster (below)
# security = "security.toml"    # for tls://: a file with ca, cert and key
# workers_wait_s = 600          # for the first worker

# [engine.cluster]
# kind = "local"                # workers on this machine, started and ended with the sweep
# workers = 1                   # they share its cores
# or
# kind = "ssh"                  # a worker on each host; the scheduler on the first
# hosts = ["node1", "node2"]
# cores = 8                     # of each, for guests
# memory_mib = 32000
# user = "me"
# port = 22
# key = "id_ed25519"
# known_hosts = "known_hosts"
# python = "python3"            # there, with vbstudy[dask]
# or
# kind = "slurm"                # a worker in each job
# jobs = 8
# cores = 32
# memory_mib = 64000
# walltime = "24:00:00"
# queue = "long"
# account = "me"
# directives = ["--exclusive"]
# interface = "ib0"             # the network by which nodes reach the scheduler
# python = "python3"

# [analysis]                    # declared before the runs
# primary = "accuracy"          # the metric that findings are decided by; default: the first one
# margin = 0.01                 # means of it that are nearer count as the same

# [data]
# folder = "data"               # data sets are looked for here first, and downloaded to here
"""


def template(name: str, cpus: tuple[int, ...], dataset: str) -> str:
    """The default study as commented text. `dataset` is one of DEFAULT_DATASETS."""
    small = dataset == "digits"
    unlimited = "# train_samples = 1000          # default: all\n# test_samples = 1000\n"
    limited = "train_samples = 4000            # default: all\ntest_samples = 2000\n"
    return TEMPLATE.format(
        name=name,
        cpus=list(cpus),
        models=_wrapped(workloads.MODELS),
        dataset=dataset,
        datasets=_wrapped(datasets.DATASETS),
        epochs=4 if small else 3,
        learning_rate=0.02,
        samples=unlimited if small else limited,
    )


def _wrapped(names: Iterable[str]) -> str:
    lines = textwrap.wrap(", ".join(names), 80)
    return "\n#             ".join(lines)


def default_dataset(folders: tuple[Path, ...] = ()) -> str:
    """Fashion-MNIST where it is found, else the embedded digits."""
    return next(name for name in DEFAULT_DATASETS if name == "digits" or datasets.find(name, folders))


def edit(path: Path, cpus: tuple[int, ...] | None, provider: str | None) -> str:
    """Puts what the command line asks for into the study file, leaving comments and layout alone.
    Returns what changed, in words; empty when nothing did."""
    current = schema.load(path)
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    changes = []
    if cpus is not None and cpus != current.cpus:
        document["cpus"] = list(cpus)
        changes.append(f"cpus changed from {list(current.cpus)} to {list(cpus)}")
    if provider is not None and provider != current.provider.kind:
        document["provider"] = {"kind": provider}
        changes.append(f"provider changed from {current.provider.kind} to {provider}")
    if changes:
        text = tomlkit.dumps(document)
        schema.parse(text, str(path))  # an ssh provider without hosts is not written down
        write_durably(path, text)
    return "; ".join(changes)
