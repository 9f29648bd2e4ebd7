"""Studies to disturb, and undisturbed ones to compare them with."""

import pytest

from orchestrator.cores import locks
from tests.faults.scenes import RUNS, Scene


@pytest.fixture(autouse=True, scope="module")
def locks_of_their_own(tmp_path_factory):
    """Not shared with tests side by side: a lock that is held after a sweep is one that was left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(locks.FOLDER, str(tmp_path_factory.mktemp("cores")))
        yield


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """By kind of study: one that was never disturbed."""
    made = {}

    def undisturbed(kind: str) -> Scene:
        if kind not in made:
            scene = made[kind] = Scene(tmp_path_factory.mktemp(kind) / "whole", kind)
            scene.provision()
            assert scene.vbstudy("sweep") == 0
            assert scene.leaks() == []
        return made[kind]

    return undisturbed


@pytest.fixture
def whole(swept):
    return swept(RUNS)


@pytest.fixture
def scene(tmp_path, whole):
    """A study that nothing has run in yet."""
    made = Scene(tmp_path / "scene", RUNS)
    made.provision(whole)
    return made
