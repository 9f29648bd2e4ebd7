"""The hooks in Python of `vbstudy record` and `vbstudy replay`. They run in the user's own interpreter,
before the program and without vbstudy.

Beside the preloaded library (level "library") they keep the seeds that a program sets: what a program makes
of a clock or its process number is another seed in every run, and a replay sets the recorded one. Without
the library (level "python") they stand before Python's own sources of random bytes as well, and give the
generators of PyTorch and TensorFlow, which are seeded below Python, a seed that is recorded."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import io
import json
import os
import random
import re
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from vbstudy_imports import AfterImport

if TYPE_CHECKING:
    Function = Callable[..., Any]

EVENT = struct.Struct("<BHI")  # kind, length of the site, size of the data: see guest/replay/streams.py
BYTES, SEED = "p", "s"
NAMES = {BYTES: "random bytes", SEED: "a seed"}
REPLAY_FAILED = 5  # as in preload.c
NAME_BYTES = 150  # of a thread
HERE = os.path.dirname(__file__)  # noqa: PTH120
DEVICES = ("/dev/urandom", "/dev/random")
MODULES = ("numpy", "torch", "tensorflow", "keras", "jax")
COMPILED = "torch.compile was used: the random numbers are replayed, but what is compiled may differ"
CUDA = "CUDA was used: the order in which its kernels add is not replayed"

_urandom = os.urandom
_open: Any = builtins.open


class Streams:
    """What this process draws: a stream for each thread, by the thread's name. A file is open during a draw
    alone: the program may close any descriptor, and start any number of threads."""

    def __init__(self, mode: str, folder: str) -> None:
        self._mode = mode
        self._folder = folder
        self._forks = 0
        self._positions: dict[str, int] = {}
        self._own: set[bytes] = set()
        self._lock = threading.RLock()
        self._process = self._claim()
        self._seeds: set[bytes] = set()
        if mode == "replay":
            with _open(self._path("seeds"), "rb") as file:
                self._seeds.update(file.read().split(b"\n"))
        os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def draw(self, kind: str, what: str, fresh: bytes) -> bytes:
        """`fresh` while recording, what was recorded while replaying."""
        with self._lock, self._kept():
            name = f"{self._process},{_clean(threading.current_thread().name)}"
            if self._mode == "replay":
                return self._replay(name, kind, what)
            site = f"{what} at {_caller()}".encode(errors="replace")
            event = EVENT.pack(ord(kind), len(site), len(fresh)) + site + fresh
            _write(self._path("streams", name), event, os.O_APPEND)
            return fresh

    def owns(self, what: str, seed: bytes) -> bool:
        """Whether a replay leaves the program its seed: it was recorded too, in whichever thread or process,
        so no clock made it. Which thread of a pool sets it is chance."""
        line = f"{what} ".encode() + seed
        if line not in self._seeds:
            return False
        with self._lock, self._kept():
            if line not in self._own:
                self._own.add(line)
                _write(self._path("own", self._process), line + b"\n", os.O_APPEND)
        return True

    def _replay(self, name: str, kind: str, what: str) -> bytes:
        asked = f"{NAMES[kind]} is asked for by {what} at {_caller()}"
        try:
            stream = _open(self._path("streams", name), "rb")
        except FileNotFoundError:
            self.fail(f"{asked}, where nothing was asked for when it was recorded")
        with stream:
            stream.seek(self._positions.get(name, 0))
            own = True
            while own:
                header = stream.read(EVENT.size)
                if len(header) < EVENT.size:
                    self.fail(f"the recording runs out: {asked}")
                recorded_kind, site_length, size = EVENT.unpack(header)
                site = stream.read(site_length).decode(errors="replace")
                data: bytes = stream.read(size)
                recorded = site.partition(" at ")[0]
                own = chr(recorded_kind) == SEED and f"{recorded} ".encode() + data in self._own
            position = self._positions[name] = stream.tell()
        if chr(recorded_kind) != kind or recorded != what:
            self.fail(f"the program asks differently: {asked}; recorded was {site}")
        _write(self._path("used", name), struct.pack("<Q", position))
        return data

    def note(self, text: str) -> None:
        with self._kept(), _open(self._path("notes"), "a") as file:
            file.write(text + "\n")

    def write_summary(self, summary: Any) -> None:
        with self._kept(), _open(self._path("python", self._process), "w") as file:
            json.dump(summary, file)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Ends the process when something cannot be written; the program may not go on after that. Where the
        disk is full, a file can still be removed; its absence is the sign."""
        try:
            yield
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path("whole"))  # noqa: PTH108
            self.fail(f"{self._folder} cannot be written: {error.strerror}")

    def fail(self, text: str) -> NoReturn:
        """Writes the report, unless another process did, and ends the process."""
        stack = [f'  File "{file}", line {line} in {function}' for file, line, function in _frames()]
        part = self._path(f"error.part.{os.getpid()}")
        with contextlib.suppress(OSError):
            os.close(0)  # the program may have no descriptor left, and the report needs one
        try:
            with _open(part, "w") as report:
                report.write("\n".join([text, "Stack (most recent call first):", *stack]) + "\n")
            os.link(part, self._path("error"))
        except OSError:  # another process was first, or the disk is full
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        os._exit(REPLAY_FAILED)

    def _path(self, *names: str) -> str:
        return os.path.join(self._folder, *names)  # noqa: PTH118

    def _claim(self) -> str:
        """The program itself is `py-main`; programs that it starts are numbered by arrival, of all that
        were started to do the same."""
        number = 0
        while True:
            name = f"py-{_purpose():08x}.{number}" if number else "py-main"
            try:
                os.close(os.open(self._path("claims", name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                number += 1
            else:
                return name

    def _before_fork(self) -> None:
        self._forks += 1

    def _after_fork(self) -> None:
        self._process += f"-f{self._forks}"
        self._forks, self._positions, self._own, self._lock = 0, {}, set(), threading.RLock()


def _write(path: str, data: bytes, more: int = 0) -> None:
    """At the start of the file, or with O_APPEND at its end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | more, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def start() -> None:
    """Puts the hooks in place. To be called once, before the program."""
    streams = Streams(os.environ["VBSTUDY_REPLAY_MODE"], os.environ["VBSTUDY_REPLAY_FOLDER"])
    with_bytes = os.environ.get("VBSTUDY_REPLAY_LEVEL") == "python"
    limits: set[str] = set()
    if with_bytes:
        _python_bytes(streams)
    _random(streams, with_bytes)
    patches = {
        "numpy.random": functools.partial(_numpy, streams),
        "torch": functools.partial(_torch, streams, limits, with_bytes),
        "tensorflow": functools.partial(_tensorflow, streams, with_bytes),
    }
    sys.meta_path.insert(0, AfterImport(patches, lambda name, module: patches[name](module)))
    atexit.register(_at_exit, streams, limits)


# ---- seeds -----------------------------------------------------------------------------------


def _seeded(streams: Streams, name: str, original: Function) -> Function:
    """`original`, a function of a seed, that is given the recorded seed in a replay."""

    @functools.wraps(original)
    def seed(*arguments: Any, **named: Any) -> Any:
        return original(*_replaced(streams, name, arguments, named), **named)

    return seed


def _random_state(streams: Streams, module: Any) -> Any:
    """A subclass that stands for numpy's `RandomState` in `isinstance`: what was made before, and copies,
    are of it. numpy's own draws bytes of the system before it takes a seed, and throws them away: in threads
    of a pool, draws of which the order is chance."""
    original = module.RandomState

    def __init__(self: Any, seed: Any = None) -> None:  # noqa: N807
        if _as_json(seed) is None:
            original.__init__(self, seed)
            return
        original.__init__(self, module.MT19937(0))
        original.seed(self, _seed(streams, "numpy.random.RandomState", seed))

    def check(name: str) -> Function:
        return lambda cls, each: getattr(type, name)(original if cls is seeded else cls, each)

    kind = type("Seeded", (type,), {name: check(name) for name in ("__instancecheck__", "__subclasscheck__")})
    seeded = kind(original.__name__, (original,), {"__init__": __init__, "__module__": original.__module__})
    return seeded


def _replaced(
    streams: Streams, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """The arguments with the seed replaced, which comes first or is called `seed`."""
    if arguments:
        return (_seed(streams, name, arguments[0]), *arguments[1:])
    if "seed" in named:
        named["seed"] = _seed(streams, name, named["seed"])
    return arguments


def _seed(streams: Streams, name: str, value: Any) -> Any:
    text = _as_json(value)
    if text is None:
        return value  # None draws bytes of its own; generators and the like were seeded before
    if streams.owns(name, text):
        return value
    recorded = streams.draw(SEED, name, text)
    if recorded == text:
        return value
    streams.note(f"{name}: the program sets {text.decode()}; the recorded {recorded.decode()} was set")
    return _from_json(recorded)


def _as_json(value: Any) -> bytes | None:
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if isinstance(value, (bytes, bytearray)):
        return json.dumps({"hex": bytes(value).hex()}).encode()
    if isinstance(value, (list, tuple)) and all(isinstance(each, int) for each in value):
        return json.dumps(list(value)).encode()
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return json.dumps(value).encode()
    return None


def _from_json(text: bytes) -> Any:
    value = json.loads(text)
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def _random(streams: Streams, with_bytes: bool) -> None:
    original = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is not None:
            a = _seed(streams, "random.seed", a)
        elif with_bytes:  # else `_random.Random` asks the system, below Python
            a = int.from_bytes(os.urandom(32), "little")
        original(self, a, version)

    random.Random.seed = seed  # type: ignore[method-assign]
    random.seed = random._inst.seed
    if with_bytes:
        random.seed()


def _numpy(streams: Streams, module: Any) -> None:
    for name in ("seed", "default_rng"):
        setattr(module, name, _seeded(streams, f"numpy.random.{name}", getattr(module, name)))
    module.RandomState = _random_state(streams, module)


def _torch(streams: Streams, limits: set[str], with_bytes: bool, module: Any) -> None:
    module.manual_seed = module.random.manual_seed = _seeded(streams, "torch.manual_seed", module.manual_seed)
    compile_ = module.compile

    @functools.wraps(compile_)
    def noted(*arguments: Any, **named: Any) -> Any:
        limits.add(COMPILED)
        return compile_(*arguments, **named)

    module.compile = noted
    if with_bytes:

        def seed() -> int:
            drawn = int.from_bytes(os.urandom(8), "little") >> 1
            module.default_generator.manual_seed(drawn)
            return drawn

        seed()
        module.seed = module.random.seed = seed


def _tensorflow(streams: Streams, with_bytes: bool, module: Any) -> None:
    set_seed = module.random.set_seed
    module.random.set_seed = _seeded(streams, "tensorflow.random.set_seed", set_seed)
    if with_bytes:
        set_seed(int.from_bytes(os.urandom(4), "little") >> 1)  # TensorFlow takes 31 bits


# ---- random bytes, without the library -------------------------------------------------------------


def _python_bytes(streams: Streams) -> None:
    def urandom(size: int, /) -> bytes:
        return streams.draw(BYTES, f"os.urandom({size})", _urandom(size))

    def open_(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if isinstance(file, (str, os.PathLike)) and os.fspath(file) in DEVICES and "b" in mode:
            return io.BufferedReader(Device(urandom))
        return _open(file, mode, *arguments, **named)

    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]  # SystemRandom's, so also that of secrets and numpy
    builtins.open = io.open = open_


class Device(io.RawIOBase):
    """/dev/urandom, as far as Python reads it."""

    def __init__(self, urandom: Callable[[int], bytes]) -> None:
        self._bytes = urandom

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        buffer[:] = self._bytes(len(buffer))
        return len(buffer)


# ---- the end ----------------------------------------------------------------------------------


def _at_exit(streams: Streams, limits: set[str]) -> None:
    modules = {name: sys.modules[name] for name in MODULES if name in sys.modules}
    torch = modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        limits.add(CUDA)
    versions = {name: str(getattr(module, "__version__", "")) for name, module in modules.items()}
    streams.write_summary({"modules": versions, "limits": sorted(limits)})


# ---- where ---------------------------------------------------------------------------------------


def _frames() -> list[tuple[str, int, str]]:
    """Files, lines and functions on the stack, the latest call first, without those of the hooks."""
    frame = sys._getframe(1)
    found = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith(HERE):
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _caller() -> str:
    """`train.py:12`: the latest call that is not in a library, or else the latest."""
    frames = _frames() or [("unknown", 0, "")]
    library = ("<", sys.base_prefix + os.sep)
    own = [f for f in frames if "site-packages" not in f[0] and not f[0].startswith(library)]
    file, line, _ = (own or frames)[0]
    return f"{os.path.basename(file)[-60:]}:{line}"  # noqa: PTH119


def _purpose() -> int:
    """A hash of the options and the first argument after them, without digits and folders: see preload.h."""
    words = []
    for word in getattr(sys, "orig_argv", [""])[1:]:
        option = word.startswith("-")
        words.append("".join(c for c in word if not c.isdigit()) if option else re.sub(r"^.*/|\d", "", word))
        if not option:
            break
    return zlib.crc32("\0".join(words).encode(errors="replace"))


def _clean(text: str) -> str:
    """What may stand in a file's name; of a long text its start and a hash."""
    cleaned = "".join(c if c.isalnum() or c in "-_.+:" else "_" for c in text)
    data = cleaned.encode()
    if len(data) <= NAME_BYTES:
        return cleaned
    return f"{data[:NAME_BYTES].decode(errors='ignore')}_{zlib.crc32(data):08x}"
