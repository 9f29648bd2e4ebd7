"""What the tests of exact mode share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
