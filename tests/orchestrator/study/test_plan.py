import dataclasses
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.records.run import Metric, RunOrder, ThreadSpec, Variant
from orchestrator.errors import UsageError
from orchestrator.inventory import guest_for
from orchestrator.study import schema
from orchestrator.study.plan import conditions, plan, planned, run_order

WORKLOAD = '[[workload]]\nmodel = "lenet5"\ndataset = "digits"\n'
WORKLOAD_TOO = WORKLOAD.replace("lenet5", "lenet1")


def test_each_block_has_one_run_of_every_condition_in_an_order_of_its_own():
    runs = plan(schema.parse("cpus = [1, 2, 4]\nrepetitions = 20\n" + WORKLOAD))
    conditions_ = {
        f"lenet5-digits-torch/{variant}/cpus-{cpus}"
        for variant in ("fixed-seed", "default")
        for cpus in (1, 2, 4)
    }
    blocks = [runs[i : i + 6] for i in range(0, 120, 6)]
    for number, block in enumerate(blocks, start=1):
        assert {run.repetition for run in block} == {number}
        assert {run.set_id for run in block} == conditions_
    orders = {tuple(run.set_id for run in block) for block in blocks}
    assert len(orders) > 10
    assert {block[0].threads.cpus for block in blocks} == {1, 2, 4}


def test_a_guest_has_its_runs_of_a_block_one_after_the_other():
    runs = plan(schema.parse("cpus = [1, 2, 4]\nrepetitions = 9\n" + WORKLOAD + WORKLOAD_TOO))
    turns = [guest for _, guest in [key for key, _ in groupby(runs, lambda r: (r.repetition, guest_for(r)))]]
    assert len(turns) == 9 * 3


def test_runs_that_share_a_warm_worker_follow_one_another_in_a_drawn_order():
    torch, keras = (f'{WORKLOAD_TOO}framework = "{name}"\n' for name in ("torch", "tensorflow"))
    study = schema.parse(
        "cpus = [1, 2]\nrepetitions = 6\nvariants = ['exact', 'default']\n" + WORKLOAD + torch + keras
    )
    runs = plan(study)
    workers = [
        worker
        for worker, _ in groupby(
            runs, lambda r: (r.repetition, guest_for(r), r.workload.framework, r.variant)
        )
    ]
    assert len(workers) == 6 * 2 * 4
    firsts = {worker[2:] for worker in workers[::4]}
    assert len(firsts) > 1  # drawn, not the same one in each turn


def test_more_repetitions_conditions_or_another_seed_change_the_order_as_little_as_they_can():
    text = "cpus = [1, 4]\nrepetitions = 30\n"
    runs = plan(schema.parse(text + WORKLOAD))
    assert plan(schema.parse(text + WORKLOAD), 40)[: len(runs)] == runs
    more = plan(schema.parse(text.replace("[1, 4]", "[1, 2, 4]") + WORKLOAD))
    assert [run for run in more if run.threads.cpus != 2] == runs
    other = plan(schema.parse("seed = 7\n" + text + WORKLOAD))
    assert [run.set_id for run in other] != [run.set_id for run in runs]


def test_the_order_of_a_run_is_its_place_in_the_plan():
    study = schema.parse("cpus = [1, 4]\nrepetitions = 3\n" + WORKLOAD)
    runs = plan(study)
    assert [run_order(study, run) for run in runs] == [
        RunOrder(block=block, position=position, of=4) for block in (1, 2, 3) for position in (1, 2, 3, 4)
    ]
    elsewhere = dataclasses.replace(runs[0], threads=ThreadSpec(cpus=9, intra_op=9, inter_op=9))
    assert run_order(study, elsewhere) is None


def test_threads_are_crossed_with_cpus_and_equal_combinations_planned_once():
    runs = conditions(schema.parse("cpus = [4]\nthreads = [2, 4]\nvariants = ['control']\n" + WORKLOAD))
    assert [run.threads.label for run in runs] == ["cpus-4-threads-2", "cpus-4"]


def test_inter_op_threads_are_crossed_separately():
    runs = conditions(
        schema.parse("cpus = [2]\ninter_op_threads = [1, 2]\nvariants = ['control']\n" + WORKLOAD)
    )
    assert [run.threads.label for run in runs] == ["cpus-2-interop-1", "cpus-2"]


def test_repetitions_of_the_command_line_take_precedence():
    assert len(plan(schema.parse("cpus = [1]\n" + WORKLOAD), 7)) == 2 * 7


def test_a_variant_has_its_own_most_repetitions_and_the_others_keep_their_order():
    text = "cpus = [1, 2]\nrepetitions = 5\nvariants = ['fixed-seed', 'exact']\n" + WORKLOAD
    study = schema.parse("repetitions_at_most = { exact = 2 }\n" + text)
    runs = plan(study)
    assert [sum(run.variant is v for run in runs) for v in (Variant.FIXED_SEED, Variant.EXACT)] == [10, 4]
    assert [run for run in plan(schema.parse(text)) if run in runs] == runs
    assert len(plan(study, 1)) == 4  # --runs 1: of each condition
    assert len(plan(study, 9)) == 2 * (9 + 2)
    assert [planned(study, Variant.EXACT, n) for n in (None, 1, 9)] == [2, 1, 2]


def test_a_workload_may_have_some_of_the_variants_and_no_others():
    text = "cpus = [1]\nrepetitions = 2\nvariants = ['fixed-seed', 'exact']\n" + WORKLOAD_TOO + WORKLOAD
    runs = plan(schema.parse(text + "variants = ['exact']\n"))
    assert runs == [
        r for r in plan(schema.parse(text)) if r.workload.model == "lenet1" or r.variant is Variant.EXACT
    ]
    with pytest.raises(UsageError, match="variants that the study does not name: control"):
        schema.parse(text + "variants = ['control']\n")


def test_a_workload_without_metrics_gets_those_of_the_study():
    runs = plan(schema.parse("metrics = ['f1_macro']\n" + WORKLOAD))
    assert runs[0].workload.metrics == (Metric.F1_MACRO,)


def test_seeds_are_fixed_in_fixed_variants_only():
    for run in plan(schema.parse("variants = ['default', 'fixed-seed', 'algo', 'control']\n" + WORKLOAD)):
        fixed = run.variant in (Variant.FIXED_SEED, Variant.CONTROL)
        assert (run.seeds.initialisation is not None) == fixed


def test_each_cpu_model_of_a_list_is_planned_and_a_single_one_is_no_factor():
    qemu = "[provider]\nkind = 'qemu'\ncpu_model = {}\n" + WORKLOAD
    compared = conditions(
        schema.parse("cpus = [1, 2]\nvariants = ['control']\n" + qemu.format(["max", "EPYC"]))
    )
    assert [(run.cpu_model, run.threads.cpus) for run in compared] == [
        ("max", 1), ("max", 2), ("EPYC", 1), ("EPYC", 2),
    ]  # fmt: skip
    assert {run.cpu_model for run in plan(schema.parse(qemu.format("'EPYC'")))} == {""}


@given(
    st.lists(st.integers(1, 16), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(1, 16), min_size=1, max_size=3, unique=True),
)
def test_no_two_runs_share_a_folder_and_the_plan_is_repeatable(cpus, threads):
    text = f"cpus = {cpus}\nthreads = {threads}\n" + WORKLOAD
    runs = plan(schema.parse(text))
    assert len({run.run_id for run in runs}) == len(runs)
    assert plan(schema.parse(text)) == runs
