"""The provider without a VirtualBox: pyvbox against the constants of 6.1 and 7.2, error texts, the host."""

import contextlib
import errno
import functools
import http.server
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import virtualbox

from orchestrator.cores import topology
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError, PrerequisiteError, UsageError
from orchestrator.guests.provision import _require_tools
from orchestrator.inventory import GuestSpec, Now, Observation, host_name
from orchestrator.providers import inside
from orchestrator.providers.virtualbox import api, base, errors, host, machine, settings
from orchestrator.providers.virtualbox.provider import VirtualBoxProvider
from orchestrator.store.store import Store
from orchestrator.study.schema import parse
from orchestrator.sweep.status import _state
from orchestrator.transport.connection import Completed, LocalConnection
from tests.processes import wait_until

CONSTANTS = json.loads((Path(__file__).parent / "constants.json").read_text())
WORKLOAD = '[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'


# ---- enumerations and arguments ----------------------------------------------------------------


@pytest.fixture(params=["6.1", "7.2"])
def fitted(request):
    """pyvbox's library with the constants of a version; as it was made for 6.1 afterwards."""
    api.fit_enumerations(virtualbox.library, CONSTANTS[request.param])
    yield request.param
    api.fit_enumerations(virtualbox.library, CONSTANTS["6.1"])


def test_a_state_has_the_installed_versions_number_and_its_own_name(fitted):
    states = virtualbox.library.MachineState
    assert int(states.running) == {"6.1": 5, "7.2": 6}[fitted]
    assert str(states.running) == "Running"  # not FirstOnline, which is the same number
    assert str(states({"6.1": 6, "7.2": 7}[fitted])) == "Paused"
    assert str(states.online_snapshotting) == "OnlineSnapshotting"


def test_the_states_that_the_provider_knows_are_there(fitted):
    known = set(CONSTANTS[fitted]["MachineState"])
    newer = {"AbortedSaved"} if fitted == "6.1" else set()
    assert (machine.OFF | machine.ASLEEP | machine.STEADY) - known == newer


def test_the_names_that_the_provider_uses_are_there(fitted):
    library = virtualbox.library
    assert int(library.ParavirtProvider["default"]) >= 0
    assert int(library.HWVirtExPropertyType["nested_paging"]) >= 0
    assert int(library.CleanupMode.detach_all_return_hard_disks_only) > 0
    if fitted == "7.2":
        assert set(settings.ENGINES.values()) <= set(CONSTANTS["7.2"]["VMExecutionEngine"])


class Fake:
    """Stands in for an object of the API: remembers what it was told."""

    def __init__(self, **attributes):
        self.told = []
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)

        def method(*arguments, **named):
            self.told.append((name, *arguments, *named.values()))
            return f"/machines/{arguments[0]}.vbox"

        return method


def vbox_of(number, constants=()):
    vbox = object.__new__(api.Vbox)
    vbox.library, vbox.number, vbox.version = virtualbox.library, number, ".".join(map(str, number))
    vbox.root, vbox.tasks = Fake(), {}
    vbox.constants = lambda name: dict(constants)
    return vbox


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ((6, 1), ["/machines/a.vbox", "a", [], "Linux", ""]),
        ((7, 0), ["/machines/a.vbox", "a", [], "Linux", "", "", "", ""]),
        ((7, 1), ["/machines/a.vbox", "a", 1, [], "Linux", "", "", "", ""]),
        ((7, 2), ["/machines/a.vbox", "a", 1, [], "Linux", "", "", "", ""]),
    ],
)
def test_a_machine_is_created_with_the_arguments_of_the_version(number, expected):
    vbox = vbox_of(number)
    vbox.create_machine("a", Path("/f"), "Linux")
    assert vbox.root.told[-1] == ("_call", "createMachine", expected)


@pytest.mark.parametrize("number", [(6, 1), (7, 0), (7, 1), (7, 2)])
def test_settings_that_moved_are_found_where_the_version_has_them(number):
    platform, firmware, bios = Fake(x86=Fake()), Fake(), Fake()
    inner = Fake(platform=platform, firmwareSettings=firmware, BIOSSettings=bios)
    vbox, one = vbox_of(number), Fake(_i=inner)
    vbox.set_io_apic(one)
    vbox.set_hardware_virtualisation(one, "nested_paging", False)
    moved = number >= (7, 1)
    assert ("IOAPICEnabled" in vars(firmware), "IOAPICEnabled" in vars(bios)) == (moved, not moved)
    told = (platform.x86 if moved else inner).told
    assert told == [
        ("setHWVirtExProperty", int(virtualbox.library.HWVirtExPropertyType.nested_paging), False)
    ]


def test_an_execution_engine_is_set_where_the_version_knows_it():
    one = Fake(_i=Fake())
    vbox_of((7, 2), CONSTANTS["7.2"]["VMExecutionEngine"]).set_execution_engine(one, "Interpreter")
    assert one._i.VMExecutionEngine == CONSTANTS["7.2"]["VMExecutionEngine"]["Interpreter"]
    old = vbox_of((6, 1), CONSTANTS["6.1"]["VMExecutionEngine"])
    old.set_execution_engine(Fake(_i=Fake()), "Default")
    with pytest.raises(PrerequisiteError, match="VirtualBox 6.1 has no such setting; leave it at 'auto'"):
        old.set_execution_engine(one, "Interpreter")


@pytest.mark.parametrize(
    ("text", "number"),
    [("7.2.22_Debian", (7, 2)), ("6.1.50", (6, 1)), ("7.10", (7, 10)), ("8", (8, 0)), ("7.x", (7, 0))],
)
def test_versions_are_read(text, number):
    assert api.version_number(text) == number


# ---- the end of a machine ----


def test_a_machine_that_is_off_is_not_stopped_before_its_process_is_gone(tmp_path):
    vbox = vbox_of((7, 2))
    unlocked = virtualbox.library.SessionState.unlocked
    off = Fake(
        state="PoweredOff",
        settings_file_path=str(tmp_path / "a.vbox"),
        accessible=True,
        session_state=unlocked,
    )
    vbox.root.find_machine = lambda name: off
    stopped = machine.VirtualBoxMachine(connected(vbox), tmp_path, "vbstudy-mark", "guest a")
    program = "print(flush=True); input()"
    argv = ["VBoxHeadless", "-c", program, "--comment", stopped.name, "--startvm", "1-2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, executable=sys.executable, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        stopping = threading.Thread(target=stopped.stop)
        stopping.start()
        stopping.join(1)
        assert stopping.is_alive(), "it returned while the process was there"
        process.stdin.close()
        stopping.join(120)
        assert not stopping.is_alive()
    assert host.processes_of(stopped.name, tmp_path) == []


# ---- its start ----


@pytest.mark.parametrize("snapshot", ["live", "saved", "off"])
def test_a_cloud_image_has_done_its_first_boot_before_its_snapshot_is_taken(tmp_path, monkeypatch, snapshot):
    keys = f'base = "a.vdi"\ncloud_init = true\nsnapshot = "{snapshot}"'
    study = parse(f'[provider]\nkind = "virtualbox"\n{keys}\n{WORKLOAD}')
    made, done = VirtualBoxProvider(study, Store(tmp_path), print), []

    class Connection:
        def run(self, argv, env, timeout_s):
            done.append(" ".join(argv))
            return Completed(status=0, stdout="", stderr="")

        def close(self):
            done.append("close")

    there = Fake(has_snapshot=lambda: False, stop=lambda: None)
    monkeypatch.setattr(made, "create", lambda guest: None)
    monkeypatch.setattr(made, "_machine", lambda guest: there)
    monkeypatch.setattr(made, "_power_up", lambda *arguments: 1)
    monkeypatch.setattr(made, "_connect", lambda machine, port: Connection())
    monkeypatch.setattr(made, "_take_snapshot", lambda *arguments: done.append("snapshot"))
    made.start(GuestSpec(name="cpus-1", cpus=1), (0,))
    assert done == ["cloud-init status --wait", "close"] + ["snapshot"] * (snapshot != "off")


# ---- calls and tasks ---------------------------------------------------------------------------


class XpcomError(Exception):
    """As the bindings raise it, past pyvbox."""

    errno = -2135228409  # 0x80bb0007 as a signed number
    msg = "The machine 'a' is already locked by a session"


def connected(vbox):
    made = api.Api()
    made._vbox = vbox
    return made


def raising(error):
    def function(vbox):
        raise error

    return function


def pyvbox_error():
    error = virtualbox.library.VBoxErrorObjectNotFound()
    error.value, error.msg = 0x80BB0001, "Could not find a registered machine named 'x'"
    return error


@pytest.mark.parametrize(
    ("raised", "code"), [(XpcomError(), 0x80BB0007), (pyvbox_error(), 0x80BB0001)], ids=["raw", "pyvbox"]
)
def test_errors_of_the_bindings_become_one_kind(raised, code):
    with pytest.raises(errors.ApiError) as caught:
        connected(vbox_of((7, 2))).attempt(raising(raised))
    assert caught.value.code == code
    assert caught.value.text == raised.msg


def test_errors_that_are_not_virtualboxs_stay_what_they_are():
    for raised in (OSError(errno.ENOSPC, "full"), UsageError("wrong"), AttributeError("x")):
        with pytest.raises(type(raised)):
            connected(vbox_of((7, 2))).attempt(raising(raised))


def progress(polls, code=0, text=""):
    states = iter([False] * polls + [True] * 3)

    class Progress:
        result_code = code
        description = "a task"
        error_info = Fake(_i=1, text=text, next_p=None)

        @property
        def completed(self):
            return next(states)

    return Progress()


def test_a_task_is_waited_for_and_then_concluded_on_the_same_thread():
    vbox, threads = vbox_of((7, 2)), []

    def then(vbox, kept):
        threads.append((threading.current_thread().name, kept))

    connected(vbox).finish("guest a", lambda vbox: (progress(3), "kept"), then=then)
    assert threads == [("virtualbox_0", "kept")]
    assert vbox.tasks == {}


def test_a_task_that_failed_is_an_error_and_is_forgotten():
    vbox = vbox_of((7, 2))
    with pytest.raises(PrerequisiteError, match="guest a: VT-x or AMD-V is taken by another hypervisor"):
        connected(vbox).finish(
            "guest a", lambda vbox: (progress(1, -2147467259, "(VERR_VMX_IN_VMX_ROOT_MODE)"), None)
        )
    assert vbox.tasks == {}


@pytest.mark.parametrize("code", [0, -2147467259], ids=["copied", "failed"])
@pytest.mark.parametrize("known", [False, True])
def test_virtualbox_forgets_an_image_that_it_got_to_know_by_copying_it(tmp_path, known, code):
    image, vbox = tmp_path / "a.vdi", vbox_of((7, 2))
    image.touch()

    class Disk(Fake):
        def clone_to_base(self, target, variants):
            return progress(1, code, "(VERR_DISK_FULL)")

        def close(self):
            vbox.root.hard_disks.remove(self)

    class Root(Fake):
        def open_medium(self, location, *arguments):
            if not known:
                self.hard_disks.append(Disk(location=location))
            return self.hard_disks[-1]

    vbox.root = Root(hard_disks=[Disk(location="/x.vdi")] + [Disk(location=str(image.resolve()))] * known)
    before = list(vbox.root.hard_disks)
    table = parse(f'[provider]\nkind = "virtualbox"\nbase = "a.vdi"\n{WORKLOAD}').provider
    made = base.Base(connected(vbox), table, tmp_path, tmp_path / "guests", lambda text: None)
    with pytest.raises(GuestError) if code else contextlib.nullcontext():
        made._copy(image, str(tmp_path / "disk.vdi"))
    assert vbox.root.hard_disks == before


@pytest.mark.parametrize(("bases", "accessible"), [(0, True), (1, True), (1, False), (2, True)])
def test_guests_of_an_image_that_was_deleted_go_on_with_the_base_that_was_made_of_it(
    tmp_path, bases, accessible
):
    vbox, folders = vbox_of((7, 2)), [tmp_path / "guests" / f"base-{number}" for number in range(bases)]
    for folder in folders:
        folder.mkdir(parents=True)
    vbox.root.find_machine = lambda name: Fake(
        settings_file_path=str(folders[0] / "a.vbox"),
        accessible=accessible,
        snapshot_count=1,
        current_snapshot=Fake(id_p="1-2"),
    )
    table = parse(f'[provider]\nkind = "virtualbox"\nbase = "a.vdi"\n{WORKLOAD}').provider
    made = base.Base(connected(vbox), table, tmp_path, tmp_path / "guests", lambda text: None)
    if bases == 1 and accessible:
        assert made.source() == base.Source(machine=host_name(folders[0]), snapshot="1-2")
    else:
        with pytest.raises(PrerequisiteError, match="a.vdi: is gone, .*: put it back"):
            made.source()
        assert all(folder.is_dir() for folder in folders)


def test_a_task_that_does_not_end_is_told():
    with pytest.raises(GuestError, match="guest a: VirtualBox has not finished within 0 s"):
        connected(vbox_of((7, 2))).finish("guest a", lambda vbox: (progress(10**6), None), timeout_s=0.1)


def test_a_call_that_is_in_the_way_of_another_is_tried_again(monkeypatch):
    tries = []

    def function(vbox):
        tries.append(1)
        if len(tries) < 3:
            raise XpcomError
        return "done"

    assert connected(vbox_of((7, 2))).patiently("guest a", function) == "done"
    monkeypatch.setattr(api, "UNLOCK_TIMEOUT_S", 0.3)
    with pytest.raises(GuestError, match="guest a: its machine is locked by another program"):
        connected(vbox_of((7, 2))).patiently("guest a", raising(XpcomError()))


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("virtualbox", "pyvbox is missing: pip install virtualbox"), ("vboxapi", "--system-site-packages")],
)
def test_a_missing_module_is_told_with_its_cure(monkeypatch, missing, expected):
    def load(name):
        if name == missing:
            raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", load)
    assert expected in api.why_not()
    with pytest.raises(PrerequisiteError, match="pip install|python3"):
        api.Api().call("x", lambda vbox: None)


# ---- error texts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (0x80004005, "The VM session was closed (VERR_VM_DRIVER_NOT_INSTALLED)", "sudo modprobe vboxdrv"),
        (0x80004005, "Failed to load VMMR0.r0 (VERR_SUPLIB_NOT_ROOT_OWNED)", "sudo modprobe vboxdrv"),
        (0x80004005, "x (VERR_SUP_DRIVERLESS)", "sudo /sbin/vboxconfig"),
        (0x80004005, "vboxdrv (VERR_VM_DRIVER_VERSION_MISMATCH)", "of another version than VirtualBox"),
        (
            0x80004005,
            "VT-x is being used by another hypervisor (VERR_VMX_IN_VMX_ROOT_MODE)",
            "modprobe -r kvm",
        ),
        (0x80004005, "AMD-V is being used (VERR_SVM_IN_USE)", "VT-x or AMD-V is taken by another"),
        (0x80004005, "VT-x is not available (VERR_VMX_NO_VMX)", "switch it on in the firmware"),
        (0x80004005, "out of memory (VERR_NO_MEMORY)", "lower provider.memory_mib"),
        (0x80004005, "x (VERR_DISK_FULL)", "the disk is full: make room"),
        (0x80BB0004, "Could not open the medium '/a.vdi'.", "a disk of its machine is missing"),
        (0x80BB0007, "The machine is already locked by a session", "locked by another program: close"),
        (0x80BB000B, "something", "locked by another program: close"),
        (0x80BB000C, "Cannot close medium '/a' because it has 1 child media", "used by another machine"),
        (0x80BB000A, "line 3", "its settings file is damaged: run `vbstudy destroy`"),
        (0x80070005, "Assertion failed: [SUCCEEDED(hrc)]", "VirtualBox itself failed: run this again"),
        (0x80004005, "cannot load the saved state (VERR_SSM_UNIT_NOT_FOUND)", "its snapshot does not fit"),
        (0x800706BE, "Call to remote object failed", "VirtualBox's service ended in between; run this again"),
        (0x80070057, "Invalid\nargument", "VirtualBox refuses: Invalid argument (code 0x80070057)"),
    ],
)
def test_what_virtualbox_says_becomes_one_line_that_says_what_to_do(code, text, expected):
    told = errors.explain(errors.ApiError(code, text), "guest cpus-1")
    assert told.message.startswith("guest cpus-1: ")
    assert expected in told.message
    assert "\n" not in told.message
    assert f"0x{code:08x}" in told.evidence
    unfit = any(advice in told.message for advice in errors.HOST_IS_UNFIT)
    assert told.exit_code == (3 if unfit else 4)


# ---- the host ----------------------------------------------------------------------------------


def test_one_thread_of_each_physical_core_is_used(monkeypatch):
    pairs = [frozenset(pair) for pair in ({0, 2}, {1, 3}, {0, 2}, {1, 3}, {4, 5}, {4, 5})]
    there = {core: topology.Domains(core=pair, cache=pair, node=pair) for core, pair in enumerate(pairs)}
    monkeypatch.setattr(host, "host_cores", lambda: (0, 1, 2, 3, 5))
    monkeypatch.setattr(topology, "read", lambda cores: {core: there[core] for core in cores})
    assert host.cores() == (0, 1, 5)


def test_a_port_is_ours_when_our_process_listens_on_it():
    with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(["sleep", "60"]) as other:
        port = server.getsockname()[1]
        assert host.listens(os.getpid(), port)
        assert not host.listens(other.pid, port)
        assert host.is_taken(other.pid, port)
        assert not host.is_taken(os.getpid(), port)
        other.kill()
    assert not host.listens(os.getpid(), port)
    assert not host.listens(other.pid, port)


def test_a_process_is_pinned_and_one_that_ended_is_told():
    core = host_cores()[-1]
    with subprocess.Popen(["sleep", "60"]) as process:
        host.pin(process.pid, [core], "guest a")
        assert os.sched_getaffinity(process.pid) == {core}
        process.kill()
    with pytest.raises(GuestError, match="guest a: its machine ended while it was started"):
        host.pin(process.pid, [core], "guest a")


# ---- images ------------------------------------------------------------------------------------


@pytest.fixture
def web(tmp_path):
    """A web server on the loopback, and its folder."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            """Nobody reads it."""

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_image_is_fetched_whole_or_not_at_all(web, tmp_path):
    folder, address = web
    (folder / "image.vdi").write_bytes(b"x" * 100_000)
    said = []
    base.fetch(f"{address}/image.vdi", tmp_path / "images" / "a.vdi", said.append)
    assert (tmp_path / "images" / "a.vdi").read_bytes() == b"x" * 100_000
    assert said == [f"fetching {address}/image.vdi"]
    with pytest.raises(PrerequisiteError, match="no.vdi: cannot be fetched: .*put the file to .*b.vdi"):
        base.fetch(f"{address}/no.vdi", tmp_path / "images" / "b.vdi", said.append)
    assert [file.name for file in (tmp_path / "images").iterdir()] == ["a.vdi"]


def test_two_that_want_one_image_at_once_fetch_it_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data, asked, second_came = b"x" * 100_000, [], threading.Event()

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:1000])
            second_came.wait(60)
            self.wfile.write(data[1000:])

        def log_message(self, *arguments):
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        url, target = f"http://127.0.0.1:{server.server_port}/image.vdi", tmp_path / "a.vdi"
        serving = threading.Thread(target=server.serve_forever)
        first = threading.Thread(target=base.fetch, args=(url, target, lambda text: None))
        for thread in (serving, first):
            thread.start()
        wait_until(lambda: asked)
        threading.Timer(1, second_came.set).start()
        base.fetch(url, target, lambda text: None)
        first.join()
        server.shutdown()
        serving.join()
    assert (target.read_bytes(), len(asked)) == (data, 1)
    assert {file.name for file in tmp_path.iterdir()} == {"a.vdi", "cache"}


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        pytest.param(b"", "without response", id="nothing"),
        pytest.param(b"\x00\xff noise\r\n\r\n", "noise", id="noise"),
        pytest.param(OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n", "more than 65536 bytes", id="long header"),
        pytest.param(OK + b"Content-Length: 5\r\n\r\nabc", "3 of 5 bytes arrived", id="cut"),
        pytest.param(OK + b"Content-Length: five\r\n\r\nabc", "five", id="length that is none"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", "IncompleteRead", id="cut chunk"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nz\r\nabc", "IncompleteRead", id="bad chunk"),
        pytest.param(OK + b"\r\nabc", "does not say how many bytes", id="no length"),
        pytest.param(OK + b"Content-Length: 9\r\n\r\nabcabcabc", "more than 0 GiB", id="too long"),
    ],
)
def test_an_image_that_does_not_come_whole_is_an_error_and_leaves_nothing(tmp_path, monkeypatch, reply, told):
    monkeypatch.setattr(base, "FETCH_LIMIT_BYTES", 8)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/image.vdi"
        with pytest.raises(PrerequisiteError, match=told):
            base.fetch(url, tmp_path / "images" / "a.vdi", lambda text: None)
        thread.join()
    assert list((tmp_path / "images").iterdir()) == []


def test_a_fetched_image_is_compared_with_its_checksum(web, tmp_path):
    folder, address = web
    (folder / "image.vdi").write_bytes(b"not what was expected")
    url, wrong = f"{address}/image.vdi", "0" * 64
    text = f'[provider]\nkind = "virtualbox"\nbase = "b.vdi"\nurl = "{url}"\nbase_sha256 = "{wrong}"\n'
    table = parse(text + WORKLOAD).provider
    made = base.Base(api.Api(), table, tmp_path, tmp_path / "guests", lambda text: None)
    (problem,) = made.problems()
    assert "base_sha256 in study.toml is another; delete the file to fetch it again" in problem


# ---- guests without Python ---------------------------------------------------------------------


def test_a_look_into_a_guest_tells_what_it_lacks(tmp_path):
    import sys

    real = LocalConnection(tmp_path, sys.executable, host_cores(), None, {})
    seen, missing = inside.inspect_with_shell("a", real, ["json", "no_such_framework"], 60)
    assert seen.cpus == len(host_cores())
    assert seen.python.count(".") == 2
    assert seen.vendor
    assert missing == ("no_such_framework",)
    bare = LocalConnection(tmp_path, "/no/python3", host_cores(), None, {})
    seen, missing = inside.inspect_with_shell("a", bare, ["torch"], 60)
    assert (seen.cpus, seen.python, missing) == (len(host_cores()), "", ("/no/python3",))
    (tmp_path / "old").write_text("#!/bin/sh\necho 3.10.2\n")
    (tmp_path / "old").chmod(0o755)
    old = LocalConnection(tmp_path, f"{tmp_path}/old", host_cores(), None, {})
    _, missing = inside.inspect_with_shell("a", old, [], 60)
    assert missing == (f"Python 3.11 or newer ({tmp_path}/old is 3.10.2)",)


def test_provisioning_refuses_a_guest_whose_image_lacks_something():
    def observed(missing):
        details = {"missing": missing}
        return Observation(provider_cpus=1, guest_cpus=1, oversubscribed=False, start_s=1, details=details)

    spec = GuestSpec(name="cpus-1", cpus=1)
    _require_tools(spec, observed([]))
    with pytest.raises(GuestError, match="guest cpus-1: its image lacks torch, x: install it there"):
        _require_tools(spec, observed(["torch", "x"]))


def test_status_tells_what_a_machine_does_now():
    now = Now(state="Running", cpus=1, memory_mib=1, port=2, uptime_s=3.4, process=5)
    assert _state(now) == "now Running for 3 s on port 2"
