"""`seeds = 10`: the same seeds on every thread count."""

import pytest

from guest.records.run import Seeds
from orchestrator.study import schema
from orchestrator.study.plan import plan
from tests.orchestrator.study.test_projects import NETWORK as WORKLOAD
from tests.orchestrator.study.test_projects import OWN, message


def used(text: str, repetitions: int | None = None) -> dict[str, list[int | None]]:
    """The seeds of initialisation by condition."""
    found: dict[str, list[int | None]] = {}
    for run in sorted(plan(schema.parse(text), repetitions), key=lambda run: run.repetition):
        found.setdefault(f"{run.variant}/{run.threads.label}", []).append(run.seeds.initialisation)
    return found


def test_repetitions_take_the_seeds_in_turn_and_every_thread_count_takes_the_same():
    crossed = "seed = 5\nseeds = 3\ncpus = [1, 4]\nvariants = ['default', 'fixed-seed', 'control']\n"
    assert used(crossed + WORKLOAD) == {
        f"{variant}/cpus-{cpus}": [None] * 3 if variant == "default" else [5, 6, 7]
        for variant in ("default", "fixed-seed", "control")
        for cpus in (1, 4)
    }
    assert used(crossed + WORKLOAD, 7)["control/cpus-4"] == [5, 6, 7, 5, 6, 7, 5]
    assert used(crossed + WORKLOAD, 2)["control/cpus-1"] == [5, 6]


def test_one_seed_is_the_plan_without_the_key():
    assert plan(schema.parse("seeds = 1\n" + WORKLOAD)) == plan(schema.parse(WORKLOAD))


def test_factors_with_seeds_of_their_own_count_from_these_and_free_ones_stay_free():
    text = "seed = 5\nvariants = ['control']\n[seeds]\ncount = 2\ndropout = 90\ndata_order = 'free'\n"
    assert {run.repetition: run.seeds for run in plan(schema.parse(text + WORKLOAD))} == {
        1: Seeds(initialisation=5, data_order=None, augmentation=5, dropout=90),
        2: Seeds(initialisation=6, data_order=None, augmentation=6, dropout=91),
    }


@pytest.mark.parametrize("seeds", ["seeds = 10\n", "[seeds]\ncount = 10\n"])
def test_there_are_as_many_repetitions_as_seeds_unless_more_are_asked_for(seeds):
    assert schema.parse(seeds + WORKLOAD).repetitions == 10
    assert schema.parse("repetitions = 20\n" + seeds + WORKLOAD).repetitions == 20


def test_a_study_with_several_seeds_survives_its_way_to_other_hosts():
    sent = schema.parse("seeds = 5\nrepetitions = 10\n" + WORKLOAD)
    read = schema.Study.model_validate_json(sent.model_dump_json(exclude_unset=True, exclude={"repetitions"}))
    assert (read.seeds, read.repetitions) == (sent.seeds, 5)


def test_projects_get_several_seeds_unless_their_numbers_are_recorded():
    text = "seeds = 2\ncpus = [1, 2]\nvariants = ['fixed-seed']\n"
    assert used(text + OWN) == {"fixed-seed/cpus-1": [1, 2], "fixed-seed/cpus-2": [1, 2]}
    replaying = OWN.replace("project =", 'random = "replay"\nproject =')
    assert "seeds sets, frees or counts seeds, and workload 'mine' has none" in message(text + replaying)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seeds = 0\n", "study.toml:1: seeds = 0: a whole number from 1 on is needed"),
        ("seeds = 'ten'\n", "study.toml:1: seeds = 'ten': a whole number from 1 on"),
        ("seeds = true\n", "study.toml:1: seeds = True: a whole number from 1 on"),
        ("seeds = [1, 2]\n", "study.toml:1: seeds = [1, 2]: a whole number from 1 on"),
        ("[seeds]\ncount = 0\n", "study.toml:2: seeds.count = 0: input should be greater"),
        ("seeds = 10\nrepetitions = 3\n", "10 seeds are crossed with the thread counts (seeds), and repet"),
        ("seeds = 4\nvariants = ['algo']\n", "and variants (algo) have free seeds: add 'fixed-seed'"),
        ("seed = 2147483647\nseeds = 2\n", "from 2147483647 on: the last one is above 2**31 - 1"),
        (
            "[seeds]\ncount = 2\n" + "\n".join(f"{name} = 'free'" for name in Seeds.__slots__) + "\n",
            "and [seeds] frees all factors",
        ),
    ],
)  # fmt: skip
def test_wrong_numbers_of_seeds_are_told_with_what_is_allowed(text, expected):
    assert expected in message(text + WORKLOAD)
