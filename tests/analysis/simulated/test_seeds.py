"""The interval of the SD between thread counts relative to that between seeds: does it cover?"""

import numpy as np
import pytest

from analysis.inference.seeds import split

pytestmark = pytest.mark.needs("studies", long=True)

RUNS = 300  # an interval that covers 95 % covers 91.2 to 98.8 % of so many, but for three standard errors


@pytest.mark.parametrize(
    ("seeds", "threads", "interaction", "systematic", "samples"),
    [
        (5, 2, 0.1, 0.0, None),
        (5, 3, 1.0, 0.0, None),
        (10, 2, 0.5, 0.3, None),
        (10, 4, 0.1, 0.0, None),
        (5, 2, 0.5, 0.5, 9),
        (5, 2, 0.1, 0.0, 3),
        (10, 4, 0.05, 0.0, 3),
    ],
    ids=str,
)
def test_the_interval_of_the_ratio_covers(seeds, threads, interaction, systematic, samples):
    """Normal values, SD 1 between seeds; or accuracies of 1,000 test samples, an SD of `samples` of them."""
    rng = np.random.default_rng([seeds, threads, round(100 * interaction), samples or 0])
    effects = np.linspace(-1, 1, threads)
    effects *= systematic / effects.std(ddof=1)

    def draw(n: int) -> np.ndarray:
        between = rng.normal(size=(n, seeds, 1))
        values = between + effects + interaction * rng.normal(size=(n, seeds, threads))
        return values if samples is None else np.round(900.4 + samples * values) / 1000

    many = draw(20_000)
    true = np.sqrt(many.var(axis=2, ddof=1).mean() / many.var(axis=1, ddof=1).mean())
    found = [split(values).bounds.get("ratio") for values in draw(RUNS)]
    given = [bounds for bounds in found if bounds is not None]
    covered = np.mean([low <= true <= high for low, high in given])
    assert len(given) > 0.8 * RUNS
    assert covered >= 0.912
    if samples is None:
        assert covered <= 0.988
