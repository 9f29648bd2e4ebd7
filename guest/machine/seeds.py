"""Every generator, split by factor (Zhuang et al., MLSys 2022, section 3.1): initialisation, data
order, augmentation, dropout. A free factor is drawn from the operating system and recorded, so that
even a run of the `default` variant can be repeated."""

from __future__ import annotations

import dataclasses
import random
import secrets
from typing import TYPE_CHECKING

from guest.records.run import Seeds

if TYPE_CHECKING:
    import numpy as np

SEED_BITS = 31  # numpy's legacy generator and TensorFlow take no more


def draw(seeds: Seeds) -> Seeds:
    """The same seeds with every free factor drawn: all are integers in 0 .. 2**31 - 1."""
    free = {
        f.name: secrets.randbits(SEED_BITS)
        for f in dataclasses.fields(seeds)
        if getattr(seeds, f.name) is None
    }
    return dataclasses.replace(seeds, **free)


def seed_globals(seeds: Seeds) -> None:
    """Seeds Python's and numpy's global generators, for code that draws from them unasked."""
    import numpy as np

    assert seeds.initialisation is not None  # noqa: S101  (drawn seeds are all set)
    random.seed(seeds.initialisation)
    np.random.seed(seeds.initialisation)


def generator(seeds: Seeds, factor: str) -> np.random.Generator:
    """A stream of its own for one factor: equal seeds for two factors do not give equal draws."""
    import numpy as np

    names = [f.name for f in dataclasses.fields(seeds)]
    return np.random.Generator(np.random.PCG64([getattr(seeds, factor), names.index(factor)]))
