from hypothesis import given
from hypothesis import strategies as st

from guest.records.run import Metric, Variant
from orchestrator.study import schema
from orchestrator.study.plan import plan

WORKLOAD = '[[workload]]\nmodel = "lenet5"\ndataset = "digits"\n'


def test_the_plan_is_every_combination_in_a_fixed_order():
    runs = plan(schema.parse("cpus = [1, 4]\nrepetitions = 2\n" + WORKLOAD))
    assert [run.run_id for run in runs] == [
        f"lenet5-digits-torch/{variant}/cpus-{cpus}/{repetition:04d}"
        for variant in ("fixed-seed", "default")
        for cpus in (1, 4)
        for repetition in (1, 2)
    ]


def test_threads_are_crossed_with_cpus_and_equal_combinations_planned_once():
    runs = plan(schema.parse("cpus = [4]\nthreads = [2, 4]\nvariants = ['control']\n" + WORKLOAD), 1)
    assert [run.threads.label for run in runs] == ["cpus-4-threads-2", "cpus-4"]


def test_inter_op_threads_are_crossed_separately():
    runs = plan(schema.parse("cpus = [2]\ninter_op_threads = [1, 2]\nvariants = ['control']\n" + WORKLOAD), 1)
    assert [run.threads.label for run in runs] == ["cpus-2-interop-1", "cpus-2"]


def test_repetitions_of_the_command_line_take_precedence():
    assert len(plan(schema.parse("cpus = [1]\n" + WORKLOAD), 7)) == 2 * 7


def test_a_workload_without_metrics_gets_those_of_the_study():
    runs = plan(schema.parse("metrics = ['f1_macro']\n" + WORKLOAD))
    assert runs[0].workload.metrics == (Metric.F1_MACRO,)


def test_seeds_are_fixed_in_fixed_variants_only():
    for run in plan(schema.parse("variants = ['default', 'fixed-seed', 'algo', 'control']\n" + WORKLOAD)):
        fixed = run.variant in (Variant.FIXED_SEED, Variant.CONTROL)
        assert (run.seeds.initialisation is not None) == fixed


def test_each_cpu_model_of_a_list_is_planned_and_a_single_one_is_no_factor():
    qemu = "[provider]\nkind = 'qemu'\ncpu_model = {}\n" + WORKLOAD
    compared = plan(schema.parse("cpus = [1, 2]\nvariants = ['control']\n" + qemu.format(["max", "EPYC"])), 1)
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
