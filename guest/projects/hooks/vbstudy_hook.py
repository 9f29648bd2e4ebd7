"""At the start of every Python process of a project: seeds its generators and sets its thread counts after
their libraries are imported, and notices what the project itself does to them. The script is not edited, and
what it sets wins and is reported.

Standard library only, because the project's environment may lack all others, and for Python 3.8 and later.
Each process writes its notices to its own file, one JSON line each, at once: a process may end in any way."""

from __future__ import annotations

import atexit
import builtins
import functools
import importlib.machinery
import json
import os
import random
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from vbstudy_imports import AfterImport, Library

SETTINGS: dict[str, Any] = json.loads(os.environ["VBSTUDY_HOOK"])
ROOT: str = SETTINGS["root"]
LIBRARIES = ("/site-packages/", SETTINGS["library"], "/vbstudy/exact/")  # which compiles at first use
SEED: int | None = SETTINGS["seed"]  # None: the project's generators are left alone
VARIABLES = frozenset(
    (
        "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_PROC_BIND", "MKL_NUM_THREADS",
        "MKL_DYNAMIC", "NPROC",
        "MKL_CBWR", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS", "TF_DETERMINISTIC_OPS", "TF_ENABLE_ONEDNN_OPTS", "ATEN_CPU_CAPABILITY",
        "ONEDNN_MAX_CPU_ISA",
    )
)  # fmt: skip
NAMED = (
    "numpy", "scipy", "pandas", "torch", "torchvision", "lightning", "transformers", "tensorflow", "keras",
    "jax", "sklearn", "xgboost", "lightgbm", "catboost", "torch_geometric", "timm",
)  # fmt: skip
STUDY = {name: os.environ.get(name) for name in VARIABLES}  # as the study set them
_lock = threading.RLock()
MAX_NOTICES = 10_000  # of a process: a seed that is set again for each sample is one each
_seen: set[tuple[str, str, str]] = set()
_open = builtins.open


def _after_fork() -> None:
    """Another thread may have held the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def write(kind: str, **body: Any) -> None:
    """One line of this process's file."""
    path = os.path.join(SETTINGS["folder"], f"{os.getpid()}.jsonl")  # noqa: PTH118  (light: runs at each start)
    with _lock, _open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, **body}) + "\n")


def notice(what: str, value: object, *, needs_project: bool = True) -> None:
    """Reports an override of a setting of the study. Calls that no line of the project made are ignored
    unless `needs_project` is false."""
    where = place(sys._getframe(1))
    if needs_project and not where:
        return
    key = (what, str(value), where)
    with _lock:
        if key in _seen or len(_seen) >= MAX_NOTICES:
            return
        _seen.add(key)
    write("override", what=what, value=str(value), where=where)


def place(frame: FrameType | None, *, direct: bool = False) -> str:
    """The innermost line of the project that is being executed, as `folder/file.py:12`; or nothing, as for
    what a DataLoader worker does by itself. `direct`: nothing, too, where a library stands in between
    (the standard library does not count)."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(ROOT) and "/site-packages/" not in name:
            return f"{name[len(ROOT) :].lstrip('/')}:{frame.f_lineno}"
        if name.endswith("/torch/utils/data/_utils/worker.py"):
            return ""
        if direct and any(each in name for each in LIBRARIES):
            return ""
        frame = frame.f_back
    return ""


def wrap(owner: Any, name: str, before: Callable[..., None]) -> None:
    """Has `before` called with the arguments, then the original."""
    original = getattr(owner, name, None)
    if original is None or getattr(original, "vbstudy_wrapped", False):
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        return original(*args, **kwargs)

    wrapper.vbstudy_wrapped = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


def seeding(name: str) -> Callable[..., None]:
    def before(*args: Any, **kwargs: Any) -> None:
        if SEED is None:
            return  # the study sets no seed that this one would override
        value = next(iter([*args, *kwargs.values()]), None)
        notice(name, "from the operating system" if value is None else value)

    return before


# ---- libraries, after their import --------------------------------------------------------------


def after_numpy(numpy: ModuleType) -> None:
    if SEED is not None:
        numpy.random.seed(SEED)
        make, count = numpy.random.default_rng, [0]

        @functools.wraps(make)
        def default_rng(seed: Any = None) -> Any:
            if seed is not None:
                return make(seed)
            count[0] += 1  # the n-th generator that the project leaves to the operating system
            return make([SEED, count[0]])

        numpy.random.default_rng = default_rng
    wrap(numpy.random, "seed", seeding("numpy.random.seed"))


def after_torch(torch: ModuleType) -> None:
    intra_op, inter_op = SETTINGS["intra_op"], SETTINGS["inter_op"]
    torch.set_num_threads(intra_op)
    if torch.get_num_interop_threads() != inter_op:
        torch.set_num_interop_threads(inter_op)
    if SEED is not None:
        torch.manual_seed(SEED)
    if SETTINGS["deterministic"]:
        torch.use_deterministic_algorithms(True, warn_only=True)
    if not SETTINGS["onednn"]:
        torch.backends.mkldnn.enabled = False
    if SETTINGS["deterministic"] or SETTINGS.get("settles_mkl"):
        torch.sqrt(torch.ones(1))  # MKL's first call: see vbstudy.exact.first_call
    wrap(torch, "set_num_threads", functools.partial(notice, "torch.set_num_threads"))
    original = torch.set_num_interop_threads
    module: Any = torch

    def set_num_interop_threads(count: int) -> None:
        notice("torch.set_num_interop_threads", f"{count} (refused: it can be set once, and the study did)")
        if count < 1:
            original(count)  # its own complaint

    module.set_num_interop_threads = set_num_interop_threads
    for owner in (torch, torch.random):
        wrap(owner, "manual_seed", seeding("torch.manual_seed"))
        wrap(owner, "seed", seeding("torch.seed"))
    data = sys.modules.get("torch.utils.data.dataloader")
    if data is not None:
        after_dataloader(data)


def after_dataloader(module: ModuleType) -> None:
    def loader(*args: Any, **kwargs: Any) -> None:
        workers = kwargs.get("num_workers", args[6] if len(args) > 6 else 0)
        if workers:
            notice("DataLoader worker processes", f"num_workers={workers}")

    wrap(module.DataLoader, "__init__", loader)
    asked, begin = SETTINGS.get("workers"), module.DataLoader.__init__
    if asked is None:
        return

    @functools.wraps(begin)
    def with_workers(self: Any, *args: Any, **kwargs: Any) -> None:
        write("loader")
        if len(args) > 5:  # (dataset, batch_size, shuffle, sampler, batch_sampler, num_workers)
            args = (*args[:5], asked, *args[6:])
        else:
            kwargs["num_workers"] = asked
        if not asked:  # these are refused without workers
            for name in ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
                kwargs.pop(name, None)
        begin(self, *args, **kwargs)

    module.DataLoader.__init__ = with_workers


def after_tensorflow(tf: ModuleType) -> None:
    threading_ = tf.config.threading
    if SEED is not None:
        tf.random.set_seed(SEED)
    if "VBSTUDY_EXACT" not in os.environ:  # which fixes the pools
        threading_.set_intra_op_parallelism_threads(SETTINGS["intra_op"])
        threading_.set_inter_op_parallelism_threads(SETTINGS["inter_op"])
    if SETTINGS["deterministic"]:
        tf.config.experimental.enable_op_determinism()
    wrap(tf.random, "set_seed", seeding("tf.random.set_seed"))
    for which in ("intra", "inter"):
        name = f"set_{which}_op_parallelism_threads"
        wrap(threading_, name, functools.partial(notice, f"tf.config.threading.{name}"))


def after_session(module: ModuleType) -> None:
    def session(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:  # noqa: ARG001
        named = ("intra_op_parallelism_threads", "inter_op_parallelism_threads", "use_per_session_threads")
        values = {name: getattr(config, name) for name in named if config is not None}
        if any(values.values()):
            notice("tf.compat.v1.ConfigProto", ", ".join(f"{k}={int(v)}" for k, v in values.items() if v))

    wrap(module.BaseSession, "__init__", session)


AFTER: dict[str, Callable[[ModuleType], None]] = {
    "numpy": after_numpy,
    "torch": after_torch,
    "torch.utils.data.dataloader": after_dataloader,
    "tensorflow": after_tensorflow,
    "tensorflow.python.client.session": after_session,
}


def after_import(name: str, module: ModuleType) -> None:
    if name in NAMED:  # now: a process may end in any way
        write("import", versions={name: str(getattr(module, "__version__", ""))})
    try:
        AFTER[name](module)
    except Exception as error:  # noqa: BLE001  (the project must run as it does without us)
        write("trouble", what=f"after the import of {name}: {type(error).__name__}: {error}")


# ---- the process itself ---------------------------------------------------------------------------


def audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "os.putenv":
        name, value = (os.fsdecode(part) for part in args)
        # Libraries clear the environment and restore it; only another value than the study's overrides it.
        if name in VARIABLES and STUDY[name] != value:
            notice(f"os.environ[{name!r}]", value, needs_project=False)
    elif event in ("subprocess.Popen", "os.posix_spawn", "os.fork") and place(sys._getframe(1), direct=True):
        notice("processes started", str(args[0])[-80:] if args else "a copy of itself")


def at_end() -> None:
    """What is in force when the process ends, of libraries that it imported."""
    settings: dict[str, Any] = {"visible_cpus": len(os.sched_getaffinity(0))}
    torch, tf = sys.modules.get("torch"), sys.modules.get("tensorflow")
    if torch is not None and hasattr(torch, "get_num_threads"):
        settings["torch"] = {"version": str(torch.__version__), "intra_op": torch.get_num_threads(),
                             "inter_op": torch.get_num_interop_threads()}  # fmt: skip
    if tf is not None and hasattr(tf, "config"):
        threading_ = tf.config.threading
        settings["tensorflow"] = {"version": str(tf.__version__),
                                  "intra_op": threading_.get_intra_op_parallelism_threads(),
                                  "inter_op": threading_.get_inter_op_parallelism_threads()}  # fmt: skip
    exact = sys.modules.get("vbstudy.exact")
    if "torch" in settings and exact is not None and exact.active():
        settings["torch"]["exact"] = exact.coverage().facts()
    versions = {
        name: str(getattr(sys.modules[name], "__version__", "")) for name in NAMED if name in sys.modules
    }
    write("end", **settings, versions=versions)


def start() -> None:
    # For `from vbstudy import exact, report`. Last: the program's own modules and an installed vbstudy win.
    # Ahead of the finder that it asks, which would take any folder named vbstudy for the package.
    library, finders = Library(SETTINGS["library"], last=True), sys.meta_path
    finders.insert(finders.index(importlib.machinery.PathFinder), library)
    argv = getattr(sys, "orig_argv", [])
    write("start", argv=argv, python=sys.version.split()[0], executable=sys.executable)
    if SEED is not None:
        random.seed(SEED)
    wrap(random, "seed", seeding("random.seed"))
    sys.meta_path.insert(0, AfterImport(AFTER, after_import))
    sys.addaudithook(audit)
    atexit.register(at_end)
    if SETTINGS.get("pools") is not None:
        import vbstudy_pools

        vbstudy_pools.install(**SETTINGS["pools"], write=write)
    if SETTINGS["watch"]:
        import vbstudy_watch
        import vbstudy_weights

        vbstudy_watch.install()
        vbstudy_weights.install()


start()
