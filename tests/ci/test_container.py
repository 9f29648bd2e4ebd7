"""`Containerfile` copies what the package is made of; `.ci/run image` makes and tries the image."""

import tomllib
from pathlib import Path

import pytest

from tests import container

REPOSITORY = Path(__file__).parents[2]
STEPS = list(container.instructions((REPOSITORY / "Containerfile").read_text()))


def test_the_image_is_built_of_what_the_wheel_is_and_nothing_else_is_sent_to_the_engine():
    copied = {
        name
        for keyword, rest in STEPS
        if keyword == "COPY" and "--from" not in rest
        for name in rest.split()[:-1]
    }
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["only-include"]) == {name for name in copied if (REPOSITORY / name).is_dir()}
    licenses = {name.partition("/")[0] for name in project["project"]["license-files"]}
    assert {project["project"]["readme"], *licenses} <= copied
    sent = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert {line.removeprefix("!") for line in sent} == copied


def test_it_is_used_by_somebody_who_is_not_root():
    started = max(number for number, (keyword, _) in enumerate(STEPS) if keyword == "FROM")
    assert "USER" in {keyword for keyword, _ in STEPS[started:]}


def test_a_line_that_is_continued_is_one_and_a_comment_is_none():
    text = "FROM base AS one\n# said of it\nRUN a \\\n    && b\n\nUSER somebody\n"
    assert list(container.instructions(text)) == [
        ("FROM", "base AS one"),
        ("RUN", "a && b"),
        ("USER", "somebody"),
    ]


def test_what_is_not_understood_is_an_error(tmp_path):
    (tmp_path / "Containerfile").write_text("HEALTHCHECK NONE\n")
    with pytest.raises(ValueError, match="Containerfile: HEALTHCHECK is not known here"):
        container.build(tmp_path / "Containerfile", tmp_path)
