"""Real virtual machines: booted, trained in, killed. Run by `.ci/run qemu` and `.ci/run machines`."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError
from orchestrator.inventory import GuestSpec, read_inventory
from orchestrator.providers import make
from orchestrator.providers.qemu import machine as machines
from orchestrator.providers.qemu.machine import QemuMachine
from orchestrator.providers.qemu.qmp import connect
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.sweep.live import read_live
from tests.orchestrator.fleet.fleets import fleet
from tests.orchestrator.sweep.test_pipeline import hashes, records, start
from tests.processes import wait_until
from tests.qemu import cloud_image

pytestmark = pytest.mark.needs("qemu")

STUDY = """
name = "vm"
cpus = {cpus}
repetitions = 2
variants = ["fixed-seed"]
isa = "portable"

[provider]
kind = "{provider}"

[[workload]]
name = "net"
model = "lenet1"
dataset = "digits"
epochs = 1
batch_size = 32
train_samples = 128
test_samples = 50
"""
BURN = "while True: pass"
ONE = GuestSpec(name="cpus-1", cpus=1)
TWO = GuestSpec(name="cpus-2", cpus=2)
COLD = 'kind = "qemu"\nsnapshot = false'
ONCE = ("repetitions = 2", "repetitions = 1")


def vbstudy(directory: Path, *arguments: str) -> int:
    return cli.run(["-C", str(directory), *arguments])


def write(directory: Path, cpus=(1,), provider="qemu", changes=()) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    text = STUDY.format(cpus=list(cpus), provider=provider)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (directory / "study.toml").write_text(text)
    return directory


def provider_of(directory: Path):
    return make(schema.load(directory / "study.toml"), Store(directory))


@contextlib.contextmanager
def destroyed(directory: Path):
    try:
        yield directory
    finally:
        assert vbstudy(directory, "-q", "destroy") == 0
        assert machines_of(directory) == []


@pytest.fixture
def cold(tmp_path):
    with destroyed(write(tmp_path / "study", changes=[('kind = "qemu"', COLD)])) as directory:
        yield directory


def machines_of(directory: Path) -> list[str]:
    """Command lines of machines whose disks lie in the study, whatever their name."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "qemu-system" in line and (file.parent / "cwd").readlink().is_relative_to(directory):
                found.append(line)
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished study in virtual machines, for the tests that only look at it."""
    with destroyed(write(tmp_path_factory.mktemp("vm"), cpus=(1, 2))) as directory:
        assert vbstudy(directory, "provision") == 0
        assert vbstudy(directory, "sweep") == 0
        yield directory


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same study in process sandboxes on this machine."""
    directory = write(tmp_path_factory.mktemp("local"), cpus=(1, 2), provider="local")
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    return directory


def test_machines_have_the_virtual_cpus_that_were_asked_for(swept):
    for guest in read_inventory(swept / "guests.json").guests:
        seen = guest.observed
        assert seen.provider_cpus == seen.guest_cpus == guest.spec.cpus
        assert seen.details["accelerator"] in ("kvm", "tcg")
        assert (seen.details["accelerator"] == "kvm") == (seen.details["accelerator_reason"] == "")
        assert seen.start_s > 0


def test_trainings_in_machines_come_back_whole_with_the_machine_they_ran_on(swept):
    found = records(swept)
    assert len(found) == 4
    for record in found.values():
        in_force = record.result.environment["threads_in_force"]
        assert in_force["visible_cpus"] == in_force["online_cpus"] == record.spec.threads.cpus
        assert record.guest["provider"] == "qemu"
        assert "QEMU" in record.result.environment["hypervisor"]
    assert not (swept / "failed").exists()


def test_bits_are_equal_within_a_cpu_count_and_differ_across(swept):
    weights = hashes(swept)
    assert weights["net/fixed-seed/cpus-1/0001"] == weights["net/fixed-seed/cpus-1/0002"]
    assert weights["net/fixed-seed/cpus-2/0001"] == weights["net/fixed-seed/cpus-2/0002"]
    assert weights["net/fixed-seed/cpus-1/0001"] != weights["net/fixed-seed/cpus-2/0001"]


def test_with_the_portable_instruction_set_host_and_machine_compute_the_same_bits(swept, local):
    assert hashes(swept) == hashes(local)
    models = {
        directory: {r.result.environment["cpu"]["model"] for r in records(directory).values()}
        for directory in (swept, local)
    }
    assert models[swept].isdisjoint(models[local]) or "kvm" in json.dumps(
        [g.observed.details for g in read_inventory(swept / "guests.json").guests]
    )


def test_the_analysis_finds_equal_bits_within_and_others_across(swept, capsys):
    assert vbstudy(swept, "--json", "analyze") == 0
    told = json.loads(capsys.readouterr().out)
    weights = {row["scope"]: row["weights"] for row in told["tables"]["verdicts"]}
    assert weights == {"1": "identical", "2": "identical", "across thread counts": "differ"}
    assert next(f for f in told["findings"] if f["id"] == "F2")["verdict"] == "supported"


@pytest.mark.needs("machines")
def test_where_host_and_machine_differ_in_bits_their_instruction_sets_are_named(tmp_path, capsys):
    """The same study, one repetition in a machine and one on its host, with native instruction sets."""
    native = ('isa = "portable"', 'isa = "native"')
    with destroyed(write(tmp_path / "study", changes=[native, ('kind = "qemu"', COLD)])) as directory:
        assert vbstudy(directory, "-q", "provision") == 0
        assert vbstudy(directory, "-q", "sweep", "--runs", "1") == 0
        assert vbstudy(directory, "-q", "provision", "--provider", "local") == 0
        assert machines_of(directory) == []
        assert vbstudy(directory, "-q", "sweep") == 0
        capsys.readouterr()
        assert vbstudy(directory, "analyze") == 2
        assert "the condition net/fixed-seed/cpus-1 mixes 2 CPU models" in capsys.readouterr().err
        assert vbstudy(directory, "analyze", "--allow-mixed", "--format", "markdown") == 0
        told = capsys.readouterr().out
        inside, outside = (r.result.environment["framework"] for r in records(directory).values())
        if inside["cpu_capability"] == outside["cpu_capability"]:
            pytest.fail(f"host and machine both have {inside['cpu_capability']}: nothing to tell apart")
        assert len(set(hashes(directory).values())) == 2
        assert "2 instruction sets in one comparison" in told
        assert "which the weights of equal seeds diverge (threads 1)" in told
        assert "isa = 'portable' gives equal bits on different CPUs" in told


def test_a_command_runs_in_a_machine_and_its_status_comes_back(swept):
    assert vbstudy(swept, "ssh", "cpus-2", "sh", "-c", "test $(nproc) = 2 || exit 1; exit 7") == 7


def test_status_and_logs_show_what_machines_say(swept, capsys):
    assert vbstudy(swept, "status") == 0
    assert "CPUs seen inside" in capsys.readouterr().out
    assert vbstudy(swept, "logs", "cpus-1") == 0
    assert "console.log" in capsys.readouterr().out


def test_runs_are_forked_from_a_worker_that_slept_in_the_snapshot(swept):
    for record in records(swept).values():
        assert record.result.timings.warm
    assert read_inventory(swept / "guests.json").guests[0].observed.details["snapshot"]


def test_a_resumed_machine_has_the_right_time_and_randomness_of_its_own(swept):
    provider = provider_of(swept)
    code = "import os, time; print(time.time(), os.urandom(16).hex())"
    drawn = set()
    for _ in range(2):
        connection = provider.start(ONE, host_cores()[:1])
        asked = time.time()
        clock, random = connection.run([connection.python, "-c", code], {}, 60).stdout.split()
        assert asked - 60 < float(clock) < time.time() + 60
        drawn.add(random)
        connection.close()
        provider.stop(ONE)
    assert len(drawn) == 2


def test_each_virtual_cpu_is_held_to_a_core_of_its_own(swept):
    provider = provider_of(swept)
    cores = host_cores()[:2]
    provider.start(TWO, cores).close()
    try:
        machine = QemuMachine(swept / "guests" / "cpus-2")
        held = [os.sched_getaffinity(thread) for thread in machine.vcpus().values()]
        assert held == [{core} for core in (cores * 2)[:2]]
        (process,) = machine.processes()
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                assert os.sched_getaffinity(int(thread.name)) <= set(cores)
    finally:
        provider.stop(TWO)


# ---- kinds of machines -----------------------------------------------------------------------


@pytest.mark.needs("machines")
def test_cpu_models_are_a_factor_and_exact_mode_gives_one_model_on_all(tmp_path, capsys):
    models = f'{COLD}\ncpu_model = ["Haswell-noTSX", "EPYC"]'
    exact = ('["fixed-seed"]', '["fixed-seed", "exact"]')
    changes = [('kind = "qemu"', models), ONCE, exact]
    with destroyed(write(tmp_path / "study", cpus=(1, 2), changes=changes)) as directory:
        assert vbstudy(directory, "-q", "provision") == 0
        assert vbstudy(directory, "-q", "sweep") == 0
        found = records(directory)
        vendors = {run: record.result.environment["cpu"]["vendor"] for run, record in found.items()}
        assert vendors == {
            f"net/{variant}/cpus-{cpus}-on-{model}/0001": vendor
            for variant in ("fixed-seed", "exact")
            for cpus in (1, 2)
            for model, vendor in (("EPYC", "AuthenticAMD"), ("Haswell-noTSX", "GenuineIntel"))
        }
        weights = hashes(directory)
        assert len({value for run, value in weights.items() if "/exact/" in run}) == 1
        assert len({value for run, value in weights.items() if "/fixed-seed/" in run}) > 1
        capsys.readouterr()
        assert vbstudy(directory, "--json", "analyze") == 0
        tables = json.loads(capsys.readouterr().out)["tables"]
        assert {(row["models"], row["n"]) for row in tables["cpu_models"] if row["view"] == "last"} == {
            ("EPYC, Haswell-noTSX", 2)
        }
        assert vbstudy(directory, "analyze") == 0
        assert "identical across CPU models (EPYC and Haswell-noTSX)" in capsys.readouterr().out


@pytest.mark.needs("machines")
def test_tensorflow_trains_in_a_machine_to_the_same_bits_again(tmp_path):
    tensorflow = ('model = "lenet1"', 'model = "lenet1"\nframework = "tensorflow"')
    with destroyed(write(tmp_path / "study", changes=[tensorflow])) as directory:
        assert vbstudy(directory, "-q", "provision") == 0
        assert vbstudy(directory, "-q", "sweep") == 0
        found = records(directory).values()
        assert {r.result.environment["framework"]["name"] for r in found} == {"tensorflow"}
        assert all(r.result.timings.warm for r in found)
        assert len(hashes(directory)) == 2
        assert len(set(hashes(directory).values())) == 1


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cloud")
    cloud_image.build(folder / "debian.qcow2", tmp_path_factory.mktemp("work"))
    return folder / "debian.qcow2"


@pytest.mark.needs("machines")
def test_a_cloud_image_becomes_a_guest_that_trains(tmp_path, cloud, local):
    own = f'kind = "qemu"\nsnapshot = false\nimage = "{cloud}"\npython_version = "3.11"\nboot_timeout_s = 600'
    changes = [('kind = "qemu"', own), ONCE]
    with destroyed(write(tmp_path / "study", changes=changes)) as directory:
        assert vbstudy(directory, "provision") == 0
        assert vbstudy(directory, "ssh", "cpus-1", "systemctl", "--version") == 0  # it is not our image
        assert vbstudy(directory, "-q", "sweep") == 0
        (weights,) = hashes(directory).values()
        assert weights == hashes(local)["net/fixed-seed/cpus-1/0001"]


@pytest.mark.needs("machines")
def test_a_cloud_image_that_cannot_train_is_told_with_its_cure(tmp_path, cloud, capsys):
    own = f'kind = "qemu"\nsnapshot = false\nimage = "{cloud}"\nboot_timeout_s = 600'
    with destroyed(write(tmp_path / "study", changes=[('kind = "qemu"', own)])) as directory:
        assert vbstudy(directory, "provision") == 4
        told = capsys.readouterr().err
        assert "/usr/bin/python3 has no torch; install it in the image, or set" in told
        assert "provider.python_version = '3.11'" in told


def test_more_memory_than_there_is_is_told_before_anything_is_made(tmp_path, capsys):
    large = ('kind = "qemu"', 'kind = "qemu"\nmemory_mib = 1000000')
    assert vbstudy(write(tmp_path / "study", changes=[large]), "provision") == 3
    assert "provider.memory_mib = 1000000: this machine has " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "there is no such file"), ("no disk", "is not the image of a disk with a system")],
    ids=["missing", "no image"],
)
def test_an_image_that_is_none_is_told_before_anything_is_made(tmp_path, content, told, capsys):
    own = 'kind = "qemu"\nimage = "mine.img"'
    directory = write(tmp_path / "study", changes=[('kind = "qemu"', own)])
    if content is not None:
        (directory / "mine.img").write_text(content)
    assert vbstudy(directory, "provision") == 3
    assert told in capsys.readouterr().err
    assert not (directory / "guests").exists()


# ---- faults ----------------------------------------------------------------------------------


# To be disturbed in the middle: machines as slow as without KVM, that tell each step.
LONG = [
    ("epochs = 1", "epochs = 12"),
    ('kind = "qemu"', 'kind = "qemu"\naccelerator = "tcg"'),
    ("[provider]", "[engine]\nheartbeat_s = 0.5\n\n[provider]"),
]


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory):
    with destroyed(write(tmp_path_factory.mktemp("disturbed"), changes=LONG)) as directory:
        assert vbstudy(directory, "-q", "provision") == 0
        yield directory


@pytest.fixture
def disturbed(provisioned):
    """A study with one machine, to be changed and swept; nothing has run in it."""
    write(provisioned, changes=LONG)
    yield provisioned
    for name in ("runs", "failed"):
        shutil.rmtree(provisioned / name, ignore_errors=True)


def trains(directory: Path) -> bool:
    """Whether a run is in the middle of its training."""
    live = read_live(Store(directory).live_file)
    return live is not None and any(run.step for run in live.running)


@contextlib.contextmanager
def once_a_run_is_under_way(directory: Path, act):
    """Calls `act(over)` in a thread as soon as a run trains. The thread ends with the block, when
    `over` is set."""
    over = threading.Event()

    def wait_and_act() -> None:
        while not trains(directory):
            if over.wait(0.1):
                return
        act(over)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(wait_and_act)
        try:
            yield
        finally:
            over.set()
    future.result()


@pytest.mark.needs("qemu", long=True)
def test_a_machine_that_is_killed_during_a_run_is_started_again_and_the_run_repeated(disturbed, capsys):
    machine = QemuMachine(disturbed / "guests" / "cpus-1")

    def crash(over: threading.Event) -> None:
        for pid in machine.processes():
            os.kill(pid, signal.SIGKILL)

    with once_a_run_is_under_way(disturbed, crash):
        assert vbstudy(disturbed, "sweep") == 0
    assert len(records(disturbed)) == 2
    assert len(set(hashes(disturbed).values())) == 1
    assert len(list((disturbed / "failed").rglob("error.json"))) == 1
    assert "was lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lost_after_s", "cut_s", "failures"),
    [
        pytest.param(600, 30, 0, id="for 30 s", marks=pytest.mark.needs("qemu", long=True)),
        pytest.param(30, None, 1, id="for good", marks=pytest.mark.needs("machines")),
    ],
)
def test_a_cut_network_is_waited_for_or_the_run_repeated(disturbed, lost_after_s, cut_s, failures):
    engine = ("[engine]", f"[engine]\nlost_after_s = {lost_after_s}")
    write(disturbed, changes=[*LONG, ONCE, engine])
    machine = QemuMachine(disturbed / "guests" / "cpus-1")

    def set_link(up: bool) -> None:
        with connect(machine.folder / "qmp.sock", machine.name) as qmp:
            qmp.execute("set_link", name="net", up=up)

    def cut(over: threading.Event) -> None:
        set_link(False)
        if cut_s is not None:  # else another machine takes its place, with a network of its own
            over.wait(cut_s)
            set_link(True)

    with once_a_run_is_under_way(disturbed, cut):
        assert vbstudy(disturbed, "-q", "sweep") == 0
    assert len(records(disturbed)) == 1
    assert len(list((disturbed / "failed").rglob("error.json"))) == failures


@pytest.mark.needs("qemu", long=True)
def test_a_clock_that_jumps_during_a_run_harms_nothing(disturbed):
    write(disturbed, changes=[*LONG, ONCE])
    sweep = start(disturbed, "-q", "sweep")
    machine = QemuMachine(disturbed / "guests" / "cpus-1")
    while not trains(disturbed):
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.1)
    connection = provider_of(disturbed).connection(ONE, int(machine.port_file.read_text()))
    for jump in ("2001-01-01", "2040-01-01"):
        assert connection.run(["date", "-s", jump], {}, 120).status == 0
    connection.close()
    assert sweep.wait(600) == 0, sweep.communicate()
    sweep.communicate()
    (record,) = records(disturbed).values()
    assert 0 < record.result.timings.train_s < record.result.timings.wall_s < 100_000
    assert not (disturbed / "failed").exists()


@pytest.mark.needs("machines")
def test_two_studies_in_machines_at_once_do_not_meet(tmp_path, local):
    with contextlib.ExitStack() as stack:
        studies = [
            stack.enter_context(destroyed(write(tmp_path / name, changes=[('kind = "qemu"', COLD)])))
            for name in ("first", "second")
        ]
        for command in ("provision", "sweep"):
            processes = [start(directory, "-q", command) for directory in studies]
            outputs = [process.communicate(timeout=1800) for process in processes]
            assert [process.returncode for process in processes] == [0, 0], outputs
        expected = {run: h for run, h in hashes(local).items() if "cpus-1" in run}
        for directory in studies:
            assert hashes(directory) == expected
            assert not (directory / "failed").exists()


def test_guests_are_provisioned_at_the_same_time_where_there_are_cores(tmp_path):
    if len(host_cores()) < 2:
        pytest.fail("this test needs two cores")
    models = f'{COLD}\ncpu_model = ["max", "EPYC"]'
    with destroyed(write(tmp_path / "study", changes=[('kind = "qemu"', models)])) as directory:
        process, most = start(directory, "-q", "provision"), 0
        while process.poll() is None:
            most = max(most, len(machines_of(directory)))
            time.sleep(0.05)
        assert process.returncode == 0, process.communicate()
        process.communicate()
        assert most == 2
        assert machines_of(directory) == []


def test_a_machine_that_never_boots_is_told_with_the_end_of_its_console(cold, tmp_path):
    provider = provider_of(cold)
    image, accelerator, why = provider._prepare()
    blank = tmp_path / "blank.img"
    with blank.open("wb") as file:
        file.truncate(64 << 20)
    provider._prepared = dataclasses.replace(image, root=blank), accelerator, why
    with pytest.raises(GuestError, match="the last line of its console: '") as caught:
        provider.start(ONE, host_cores()[:1])
    assert "the root disk cannot be mounted" in caught.value.evidence
    assert machines_of(cold) == []


def test_a_machine_that_is_too_slow_to_boot_is_told_and_ended(tmp_path, capsys):
    slow = f'{COLD}\naccelerator = "tcg"\nboot_timeout_s = 1.5'
    with destroyed(write(tmp_path / "study", changes=[('kind = "qemu"', slow)])) as directory:
        assert vbstudy(directory, "provision") == 4
        assert "guest cpus-1: did not answer on port 22 within" in capsys.readouterr().err
        assert machines_of(directory) == []


def test_a_port_that_is_taken_in_between_costs_another_try(cold, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(machines, "free_port", lambda: ports.pop() if ports else honest())
        provider = provider_of(cold)
        connection = provider.start(ONE, host_cores()[:1])
        assert connection.run(["echo", "here"], {}, 60).stdout == "here\n"
        connection.close()


honest = machines.free_port


def test_an_unknown_cpu_model_is_told_in_qemus_words(tmp_path, capsys):
    odd = 'kind = "qemu"\nsnapshot = false\ncpu_model = "Hazwell"'
    with destroyed(write(tmp_path / "study", changes=[('kind = "qemu"', odd)])) as directory:
        assert vbstudy(directory, "provision") == 4
        assert "Hazwell" in capsys.readouterr().err


def test_destroying_leaves_no_process_no_port_and_no_file(cold):
    provider = provider_of(cold)
    connection = provider.start(ONE, host_cores()[:1])
    port = connection.target.port
    connection.close()
    assert len(machines_of(cold)) == 1
    provider.destroy(ONE)
    assert machines_of(cold) == []
    assert not (cold / "guests" / "cpus-1").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


@pytest.mark.parametrize("command", ["provision", "sweep"])
def test_what_a_killed_orchestrator_leaves_running_is_destroyed(cold, command):
    if command == "sweep":
        assert vbstudy(cold, "-q", "provision") == 0
    process = start(cold, "-q", command)
    wait_until(lambda: machines_of(cold), process)
    time.sleep(1 if command == "provision" else 4)  # it boots; it imports what it trains with
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(machines_of(cold)) == 1
    assert vbstudy(cold, "-q", "destroy") == 0
    assert machines_of(cold) == []
    assert not (cold / "guests").exists()


@pytest.mark.needs("qemu", long=True)
def test_a_worker_makes_machines_for_a_sweep_through_dask_and_the_host_sees_who_disturbs_them(tmp_path):
    directory = write(tmp_path / "study", changes=[*LONG, ONCE])
    core = min(host_cores())
    with fleet(tmp_path / "fleet") as hosts, contextlib.ExitStack() as stack:
        hosts.scheduler()
        hosts.worker("host", "--provider", "qemu", "--cores", str(core))
        sweep = hosts.sweep(directory)
        live = Store(directory).live_file
        while not (live.exists() and read_live(live).running):  # a machine boots as fast as it can
            assert sweep.poll() is None, hosts.log("sweep")
            time.sleep(0.1)
        burner = stack.enter_context(subprocess.Popen([sys.executable, "-c", BURN]))
        stack.callback(burner.kill)
        os.sched_setaffinity(burner.pid, {core})
        assert sweep.wait(1800) == 0, hosts.log("sweep")
    assert machines_of(tmp_path) == []
    assert not list(tmp_path.glob("fleet/host/*/slot-*")), "the worker removed its guests"
    (record,) = records(directory).values()
    assert record.guest["provider"] == "qemu"
    assert record.isolation.host_cores == (core,)
    assert record.isolation.host["load_by_others"] > 0.25
    assert any(why.startswith("on the host, others kept") for why in record.isolation.contended)
    assert record.load_by_others == record.isolation.host["load_by_others"]
