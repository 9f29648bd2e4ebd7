"""What a fleet takes: by hand, through the command line, and against real sweeps."""

import json
import random
from datetime import datetime

import pytest

from orchestrator.engine.packing import Room
from orchestrator.errors import UsageError
from orchestrator.forecast import fleet as fleets
from orchestrator.forecast.fleet import ExpectedRun, estimate, simulate
from orchestrator.forecast.text import fleet_text
from orchestrator.study.schema import parse
from tests.orchestrator.forecast import test_model
from tests.orchestrator.sweep.test_pipeline import STUDY, records, vbstudy


def fleet(planned, stored, study=STUDY, **changes):
    usual = {"hosts": 1, "cores": 2, "memory_mib": None}
    done = {run.spec.run_id for run in stored}
    to_do = [spec for spec in planned if spec.run_id not in done]
    return estimate(parse(study), to_do, test_model.estimated(planned, stored), **(usual | changes))


def test_hours_and_utilisation_by_hand():
    planned = test_model.specs(cpus=(1, 2), runs=3)
    stored = [
        test_model.run(planned[0], run_s=3600.0),
        test_model.run(planned[1], run_s=3600.0),
        test_model.run(planned[3], run_s=1800.0),
        test_model.run(planned[4], run_s=1800.0),
    ]
    found = fleet(planned, stored)
    assert (found.runs, found.n_measured) == (2, 4)
    assert found.hours == pytest.approx(
        1.5
    )  # the one of an hour and the one of half an hour do not fit beside
    assert (found.hours_low, found.hours_high) == pytest.approx((1.5, 1.5))
    assert found.bound_hours == pytest.approx(1.0)
    assert found.utilisation == pytest.approx(2 / 3)
    text = fleet_text(found)
    assert "2 runs in 1 h 30 min (95 %: 1 h 30 min to 1 h 30 min), no schedule is shorter than 60 m" in text
    assert "67% of 3 core-hours used; times from 4 runs" in text
    two = fleet(planned, stored, hosts=2)
    assert two.hours == pytest.approx(1.0)
    assert fleet_text(found).startswith("fleet   1 host with 2 cores: ")
    assert fleet_text(two).startswith("fleet   2 hosts with 2 cores: ")


def with_runs_that_vary(rng, runs=30):
    """Runs of 600 s, SD 120: 30 are done, 50 are to do."""
    planned = test_model.specs(cpus=(2,), runs=80)
    return planned, [test_model.run(spec, run_s=rng.gauss(600, 120)) for spec in planned[:runs]]


def test_on_as_many_hosts_as_runs_the_longest_run_decides():
    found = fleet(*with_runs_that_vary(random.Random(1)), hosts=100_000)
    longest = (600 + 2.25 * 120) / 3600  # 2.25 SD: the mean of the largest of 50 normal numbers
    assert found.hours == pytest.approx(longest, rel=0.05)
    assert found.hours_low < longest < found.hours_high
    assert found.core_hours == pytest.approx(2 * 100_000 * found.hours)
    assert found.utilisation == pytest.approx(50 * 600 / (100_000 * found.hours * 3600), rel=0.1)


@pytest.mark.parametrize("hosts", [1, 5, 50])
def test_about_95_percent_of_the_times_are_in_the_interval(hosts):
    rng, inside = random.Random(1), 0
    for _ in range(16):
        found = fleet(*with_runs_that_vary(rng), hosts=hosts)
        runs = [
            ExpectedRun(run=str(n), group="a", needs=Room(cpus=2), run_s=rng.gauss(600, 120))
            for n in range(50)
        ]
        inside += found.hours_low <= simulate(runs, hosts, Room(cpus=2)).makespan_s / 3600 <= found.hours_high
    assert inside >= 13


def test_a_plan_too_large_to_simulate_often_has_no_interval(monkeypatch):
    planned, stored = with_runs_that_vary(random.Random(1))
    monkeypatch.setattr(fleets, "DRAWN", 50 * (5 + 64) - 1)
    assert fleet(planned, stored, hosts=4).hours_low is not None
    large = fleet(planned, stored, hosts=5)
    assert large.hours_low is None
    assert " (no interval: too many runs for repeated simulations), no schedule" in fleet_text(large)


def test_without_two_runs_of_a_condition_the_spread_is_unknown():
    planned = test_model.specs(cpus=(1,), runs=3)
    found = fleet(planned, [test_model.run(planned[0], run_s=3600.0)])
    assert "2 runs in 60 min (spread unknown until two runs are done), no schedule" in fleet_text(found)


def test_only_runs_are_counted_that_times_are_from():
    planned = test_model.specs(cpus=(1, 2), runs=2) + test_model.specs(cpus=(1, 2), runs=2, name="other")
    stored = [test_model.run(spec) for spec in [*planned[:3], planned[4]]]
    assert fleet(planned, stored).n_measured == 1 + 1, "nothing is to do of one condition with two runs"


def test_without_a_run_of_a_set_the_fleet_is_unknown_and_the_set_is_named():
    planned = test_model.specs(cpus=(1,)) + test_model.specs(cpus=(1,), name="other")
    found = fleet(planned, [test_model.run(planned[0])])
    assert found.hours is None
    assert found.unknown == ("other/fixed-seed/cpus-1",)
    assert "unknown until one run is done of other/fixed-seed/cpus-1" in fleet_text(found)


def test_guests_that_no_host_has_the_memory_for_are_refused():
    planned = test_model.specs(cpus=(1,), runs=2)
    study = STUDY + '\n[provider]\nkind = "qemu"\nmemory_mib = 4096\n'
    stored = [test_model.run(planned[0])]
    with pytest.raises(UsageError, match="needs 4096"):
        fleet(planned, stored, study, memory_mib=2048)
    assert fleet(planned, stored, study, memory_mib=4096).hours


def test_one_guest_at_a_time_has_a_host_for_itself():
    planned = test_model.specs(cpus=(1,), runs=5)
    stored = [test_model.run(planned[0], run_s=3600.0)]
    alone = STUDY + "\n[engine]\nside_by_side = false\n"
    assert fleet(planned, stored).hours == pytest.approx(2.0)
    assert fleet(planned, stored, alone).hours == pytest.approx(4.0)


@pytest.mark.parametrize(
    "arguments",
    [["--hosts", "2"], ["--cores", "2"], ["--memory-mib", "5"]],
)
def test_half_a_fleet_is_no_fleet(tmp_path, capsys, arguments):
    (tmp_path / "study.toml").write_text(STUDY)
    assert vbstudy(tmp_path, "plan", *arguments) == 2
    assert "--hosts needs --cores" in capsys.readouterr().err


def test_the_command_estimates_a_fleet_as_text_and_as_json(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY)
    assert vbstudy(tmp_path, "plan", "--hosts", "8", "--cores", "32") == 0
    assert "fleet   8 hosts with 32 cores: unknown until one run is done" in capsys.readouterr().out
    assert vbstudy(tmp_path, "--json", "plan", "--hosts", "8", "--cores", "32") == 0
    assert json.loads(capsys.readouterr().out)["fleet"]["hosts"] == 8


@pytest.mark.needs("studies", long=True)
def test_a_plan_of_100_000_runs_is_simulated_run_by_run():
    runs = [
        ExpectedRun(
            run=str(n), group=str(n % 64), needs=Room(cpus=(1, 2, 4, 8)[n % 4]), run_s=float(n % 64 + 1)
        )
        for n in range(100_000)
    ]
    found = simulate(runs, 8, Room(cpus=32))
    assert len(found.starts) == 100_000
    assert found.makespan_s <= 1.01 * found.bound_s


@pytest.mark.needs("dask", long=True)
def test_the_simulation_of_a_real_sweep_takes_as_long_as_the_sweep(tmp_path):
    text = STUDY.replace("repetitions = 2", "repetitions = 4").replace("epochs = 2", "epochs = 40")
    text += '\n[engine]\nkind = "dask"\n'
    (tmp_path / "study.toml").write_text(text)
    assert vbstudy(tmp_path, "-q", "sweep") == 0
    done = list(records(tmp_path).values())
    began = {r.spec.run_id: datetime.fromisoformat(r.started_at) for r in done}
    ended = {r.spec.run_id: datetime.fromisoformat(r.finished_at) for r in done}
    took_s = (max(ended.values()) - min(began.values())).total_seconds()
    runs = [
        ExpectedRun(
            run=r.spec.run_id,
            group=r.spec.set_id,
            needs=Room(cpus=r.spec.threads.cpus),
            run_s=(ended[r.spec.run_id] - began[r.spec.run_id]).total_seconds(),
        )
        for r in sorted(done, key=lambda r: r.started_at)
    ]
    found = simulate(runs, 1, Room(cpus=2))
    assert found.bound_s <= took_s
    # The sweep starts guests besides, and learns which set is the longest only from its first runs.
    assert 0.8 * took_s <= found.makespan_s <= 1.2 * took_s, (found.makespan_s, took_s)
