"""VirtualBox's API: pyvbox over vboxapi, with what changed between 6.1, for which pyvbox was made, and 7.x.

XPCOM binds its objects to threads, so one thread makes all calls and owns all objects; what leaves it is
plain data. Calls are short. What takes long is a task, which others wait for by asking now and then, so
that several guests can be worked on at once; there are no callbacks."""

from __future__ import annotations

import importlib
import itertools
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.providers.virtualbox.errors import (
    INVALID_OBJECT_STATE,
    INVALID_SESSION_STATE,
    INVALID_VM_STATE,
    OBJECT_IN_USE,
    ApiError,
    explain,
)

OLDEST = (6, 1)
SHORTEST_POLL_S, LONGEST_POLL_S = 0.002, 0.1  # a clone takes 40 ms, a snapshot minutes
TASK_TIMEOUT_S = 1800.0
UNLOCK_TIMEOUT_S = 20.0
BUSY = (INVALID_OBJECT_STATE, INVALID_SESSION_STATE, INVALID_VM_STATE, OBJECT_IN_USE)
X86 = 1  # PlatformArchitecture
NO_VBOXAPI = (
    "VirtualBox's Python module vboxapi is not there for {}: install VirtualBox 6.1 or later (`apt install "
    "virtualbox`, or Oracle's package), and make vbstudy's environment with the distribution's own python3, "
    "`python3 -m venv --system-site-packages`"
)
Result = TypeVar("Result")


class Vbox:
    """VirtualBox as the API thread sees it. `root` is IVirtualBox, `library` has pyvbox's enumerations,
    made to fit."""

    def __init__(self, pyvbox: Any, constants: Mapping[str, Mapping[str, int]]) -> None:
        self.library: Any = pyvbox.library
        fit_enumerations(self.library, constants)
        self._pyvbox = pyvbox
        pyvbox.VirtualBox.assert_version = False
        self.root: Any = pyvbox.VirtualBox()
        self.version = str(self.root.version)
        self.number = version_number(self.version)
        self.tasks: dict[int, tuple[Any, Any]] = {}

    # ---- sessions ----------------------------------------------------------------------------

    def session(self) -> Any:
        return self._pyvbox.Session()

    @contextmanager
    def editing(self, machine: Any) -> Iterator[Any]:
        """The machine's settings, to be changed; saved at the end. Needs it to be stopped or asleep."""
        session = self.session()
        machine.lock_machine(session, self.library.LockType.write)
        try:
            yield session.machine
            session.machine.save_settings()
        finally:
            session.unlock_machine()

    @contextmanager
    def sharing(self, machine: Any) -> Iterator[Any]:
        """A session in addition to the one that runs the machine."""
        session = self.session()
        machine.lock_machine(session, self.library.LockType.shared)
        try:
            yield session
        finally:
            session.unlock_machine()

    # ---- what 7.x changed --------------------------------------------------------------------

    def create_machine(self, name: str, folder: Path, os_type: str) -> Any:
        # VirtualBox takes a relative path for one in its own folder.
        file = self.root.compose_machine_filename(name, "", "", str(folder.resolve()))
        if self.number >= (7, 1):
            arguments = [file, name, X86, [], os_type, "", "", "", ""]
        elif self.number >= (7, 0):
            arguments = [file, name, [], os_type, "", "", "", ""]
        else:
            arguments = [file, name, [], os_type, ""]
        return self.library.IMachine(self.root._call("createMachine", in_p=arguments))

    def set_hardware_virtualisation(self, machine: Any, prop: str, value: bool) -> None:
        """`prop` is a name of HWVirtExPropertyType, which moved to the x86 platform in 7.1."""
        kind = int(self.library.HWVirtExPropertyType[prop])
        owner = machine._i.platform.x86 if self.number >= (7, 1) else machine._i
        owner.setHWVirtExProperty(kind, value)

    def set_io_apic(self, machine: Any) -> None:
        """Several virtual CPUs need it. It was among the BIOS settings before 7.1."""
        settings = machine._i.firmwareSettings if self.number >= (7, 1) else machine._i.BIOSSettings
        settings.IOAPICEnabled = True

    def set_execution_engine(self, machine: Any, name: str) -> None:
        """`name` as in VMExecutionEngine of 7.x: Default, HwVirt, Interpreter, and others."""
        engines = self.constants("VMExecutionEngine")
        if "Default" in engines:  # an older enumeration of that name belongs to the debugger
            machine._i.VMExecutionEngine = engines[name]
        elif name != "Default":
            raise PrerequisiteError(
                f"provider.execution_engine: VirtualBox {self.version} has no such setting; leave it at "
                "'auto', or upgrade to VirtualBox 7.2"
            )

    def constants(self, enumeration: str) -> dict[str, int]:
        return dict(_installed_constants().get(enumeration, {}))


def fit_enumerations(library: Any, constants: Mapping[str, Mapping[str, int]]) -> None:
    """Gives pyvbox's enumerations the installed VirtualBox's values. Marks of a range, such as FirstOnline,
    come first, so that a value is shown by its own name."""
    enum_type = type(library.Enum)
    for name, values in constants.items():
        kind = getattr(library, name, None)
        if not isinstance(kind, enum_type):
            continue  # an enumeration that 6.1 did not have
        docs = {label: doc for label, _, doc in kind._enums}
        ranges = [label for label in values if label.startswith(("First", "Last"))]
        labels = [*ranges, *(label for label in values if label not in ranges)]
        kind._enums = [(label, values[label], docs.get(label, "")) for label in labels]
        enum_type.__init__(kind, name, kind.__bases__, dict(kind.__dict__))


def version_number(version: str) -> tuple[int, int]:
    """`7.2.22_Debian` is (7, 2)."""
    major, minor = (*version.split(".", 2), "0", "0")[:2]
    return int(major), int(minor) if minor.isdigit() else 0


def _installed_constants() -> Mapping[str, Mapping[str, int]]:
    module = importlib.import_module("vboxapi.VirtualBox_constants")
    info = module.VirtualBoxReflectionInfo
    # No method lists the enumerations, only those that are asked for by name.
    values: Mapping[str, Mapping[str, int]] = getattr(info, f"_{info.__name__}__dValues")
    return values


class Api:
    """The one connection of this process to VirtualBox; opened by the first call."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="virtualbox")
        self._vbox: Vbox | None = None
        self._numbers = itertools.count()

    def call(self, about: str, function: Callable[[Vbox], Result]) -> Result:
        """The function's result; it runs on the API's thread and must be short. Raises GuestError or
        PrerequisiteError that begin with `about`."""
        try:
            return self.attempt(function)
        except ApiError as error:
            raise explain(error, about) from None

    def attempt(self, function: Callable[[Vbox], Result]) -> Result:
        """The same, for callers that know what to do about an ApiError."""
        return self._thread.submit(self._perform, function).result()

    def finish(
        self,
        about: str,
        start: Callable[[Vbox], tuple[Any, Any]],
        *,
        then: Callable[[Vbox, Any], None] | None = None,
        timeout_s: float = TASK_TIMEOUT_S,
        patiently: bool = False,
    ) -> None:
        """Runs a task to its end. `start` returns its IProgress (None when there is nothing to wait for)
        and what must live as long, such as its session; `then` is called with that after success.
        `patiently` is as in the method of that name."""
        number = next(self._numbers)

        def begin(vbox: Vbox) -> None:
            vbox.tasks[number] = start(vbox)

        def has_ended(vbox: Vbox) -> bool:
            return is_over(vbox.tasks[number][0])

        def conclude(vbox: Vbox) -> None:
            if then is not None:
                then(vbox, vbox.tasks[number][1])

        def forget(vbox: Vbox) -> None:
            _, kept = vbox.tasks.pop(number)
            if isinstance(kept, vbox.library.ISession) and kept.state == vbox.library.SessionState.locked:
                kept.unlock_machine()

        (self.patiently if patiently else self.call)(about, begin)
        deadline, wait_s = time.monotonic() + timeout_s, SHORTEST_POLL_S
        try:
            while not self.call(about, has_ended):
                if time.monotonic() > deadline:
                    raise GuestError(f"{about}: VirtualBox has not finished within {timeout_s:.0f} s")
                time.sleep(wait_s)
                wait_s = min(wait_s * 1.5, LONGEST_POLL_S)
            self.call(about, conclude)
        finally:
            self.call(about, forget)

    def patiently(self, about: str, function: Callable[[Vbox], Result]) -> Result:
        """A call that a session which is just being closed, or the task of an orchestrator that was killed,
        may stand in the way of: it is tried again for a while. Raises GuestError when that does not end."""
        deadline = time.monotonic() + UNLOCK_TIMEOUT_S
        while True:
            try:
                return self.attempt(function)
            except ApiError as error:
                if error.code not in BUSY or time.monotonic() > deadline:
                    raise explain(error, about) from None
            time.sleep(0.2)

    def _perform(self, function: Callable[[Vbox], Result]) -> Result:
        if self._vbox is None:
            self._vbox = _open()
        try:
            return function(self._vbox)
        except Exception as error:  # noqa: BLE001  (the bindings raise kinds of their own)
            raise _as_api_error(error) from None


def _as_api_error(error: Exception) -> Exception:
    """pyvbox's errors have a value, XPCOM's own an errno; anything else stays what it is."""
    code = getattr(error, "value", None)
    if not isinstance(code, int):
        code = getattr(error, "errno", None)
    if not isinstance(code, int) or isinstance(error, OSError):
        return error
    return ApiError(code & 0xFFFFFFFF, str(getattr(error, "msg", "") or error))


def is_over(progress: Any) -> bool:
    """Whether a task has ended; raises ApiError when it has failed, which raises nothing by itself."""
    if progress is None:
        return True
    if not progress.completed:
        return False
    code = int(progress.result_code) & 0xFFFFFFFF
    if code:
        raise ApiError(code, _innermost(progress.error_info) or str(progress.description))
    return True


def _innermost(info: Any) -> str:
    """The texts of an error and of its causes: only the last one often names the file, or VERR_..."""
    texts: list[str] = []
    while info is not None and info._i is not None and len(texts) < 8:
        texts.append(str(info.text))
        info = info.next_p
    return "; ".join(dict.fromkeys(filter(None, texts)))


def why_not() -> str:
    """What is missing on this host before VirtualBox can be talked to; empty when nothing is."""
    cures = {"virtualbox": "pyvbox is missing: pip install virtualbox", "vboxapi": NO_VBOXAPI}
    for module, cure in cures.items():
        try:
            importlib.import_module(module)
        except ImportError:
            return cure.format(sys.executable)
    return ""


def _open() -> Vbox:
    missing = why_not()
    if missing:
        raise PrerequisiteError(missing)
    try:
        # The bindings crash where a warning of their own is made an error (`python -W error`).
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            vbox = Vbox(importlib.import_module("virtualbox"), _installed_constants())
    except Exception as error:  # noqa: BLE001  (the bindings raise whatever they like)
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise PrerequisiteError(
            f"VirtualBox does not answer: {text}; see whether `VBoxManage list vms` works for this user",
            evidence=repr(error),
        ) from None
    if vbox.number < OLDEST:
        raise PrerequisiteError(f"VirtualBox {vbox.version} is too old: upgrade it to 6.1 or later")
    return vbox


_api: Api | None = None
_opening = threading.Lock()


def shared() -> Api:
    """The process's connection; made when it is first asked for."""
    global _api
    with _opening:
        if _api is None:
            _api = Api()
        return _api
