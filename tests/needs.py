"""What a test needs beyond this machine as `make install` leaves it: `@pytest.mark.needs("sshd")`.

Tests that need something run only where it is offered: `pytest --needs sshd tests` runs those that need an
sshd, and no others. The nearest mark counts: that of a value replaces that of its test, and that of its
module.

`@pytest.mark.needs("qemu", long=True)` runs with `--needs qemu --long`, which CI does at night: such a test
takes a minute or more, and what it proves seldom changes or is proved in parts by others.
"""

import os
from typing import Any

import pytest

# The stages of `.ci/stages` offer them; the time is that on two cores.
NEEDS = {
    "browser": "Chromium, for the report",
    "dask": "minutes, for sweeps on many hosts, with workers, schedulers and sweeps killed",
    "exact": "an hour, for all sizes and thread counts of exact mode",
    "fashion_mnist": "the Fashion-MNIST files",
    "faults": "minutes, for sweeps killed at every step, and disturbed otherwise; better as root",
    "fuzz": "as long as VBSTUDY_FUZZ_S says, for damaged input to every reader",
    "machines": "QEMU, and an hour, for virtual machines of other kinds",
    "pages": "half an hour, for every command of README and the tutorials; boots virtual machines",
    "portable": "other compilers, an emulator of ARM, and an hour",
    "programs": "public libraries, and half an hour",
    "proof": "minutes, for networks that train in exact mode on several thread counts and workers",
    "qemu": "QEMU and an image of a virtual machine",
    "replay": "minutes, for unseeded trainings, eight times each",
    "sshd": "an sshd on this machine",
    "studies": "minutes, for small studies from beginning to end, and what starts frameworks often",
    "tools": "pyarrow, MLflow, TeX and actionlint",
    "trainers": "lightning and transformers, and minutes, for the examples",
    "vagrant": "Vagrant and libvirt",
    "vagrant_virtualbox": "Vagrant and a real VirtualBox, and half an hour, for a guest in its interpreter",
    "vcpus": "QEMU, and four hours, for training on several virtual CPUs",
    "virtualbox": "a real VirtualBox",
    "virtualbox_sweep": "a real VirtualBox, and half an hour, for a study in its guests",
}

ROOT = "needs root"  # the one reason for which a stage skips a test: others run it too, see tests/strict.py
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=ROOT)


def at_night(need: str, *values: object) -> Any:
    """Values of a parametrized test that takes long with them, and seldom changes."""
    return pytest.param(*values, marks=pytest.mark.needs(need, long=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--needs",
        default="",
        metavar="NAME[,NAME]",
        help="run the tests that need one of these, instead of those that need nothing: " + ", ".join(NEEDS),
    )
    parser.addoption("--long", action="store_true", help="with --needs: also the tests that take long")


def pytest_configure(config: pytest.Config) -> None:
    for name in _offered(config):
        _check("--needs", name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    offered, long_too = _offered(config) or {None}, config.getoption("--long")
    selected, deselected = [], []
    for item in items:
        need, long = _need(item)
        (selected if need in offered and (long_too or not long) else deselected).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = selected


def _offered(config: pytest.Config) -> set[str]:
    return set(config.getoption("--needs").split(",")) - {""}


def _need(item: pytest.Item) -> tuple[str | None, bool]:
    """What it needs, and whether it is long."""
    own = [mark for mark in item.own_markers if mark.name == "needs"]
    mark = own[-1] if own else item.get_closest_marker("needs")  # those of a value come last
    if mark is None:
        return None, False
    return _parsed(item.nodeid, *mark.args, **mark.kwargs)


def _parsed(where: str, name: str, *, long: bool = False) -> tuple[str, bool]:
    _check(where, name)
    return name, long


def _check(where: str, name: str) -> None:
    if name not in NEEDS:
        raise pytest.UsageError(f"{where}: nothing is called '{name}'; there are: {', '.join(NEEDS)}")
