"""What tests need is named in one place, and each of it is offered by a stage."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NEEDS

REPOSITORY = Path(__file__).parents[2]
CONTRACT = "tests/orchestrator/providers/test_contract.py"


def collect(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Without the plugins of others, which take longer to start than the collection, and a stage's options.
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", *arguments],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_need_is_offered_by_a_stage_and_needed_by_a_test():
    offered = re.findall(r"--needs ([\w,]+)", (REPOSITORY / ".ci" / "stages").read_text())
    tests = "".join(path.read_text() for path in (REPOSITORY / "tests").rglob("*.py"))
    assert {name for each in offered for name in each.split(",")} == set(NEEDS)
    assert set(NEEDS) <= set(re.findall(r'needs\("(\w+)"[,)]', tests))


@pytest.mark.parametrize("path", ["Makefile", ".github/workflows/ci.yml"])
def test_commands_that_offer_something_name_the_folder_of_the_tests(path: str):
    # Else pytest takes `studies` of `--needs studies` for the folder of that name, and knows no `--needs`.
    commands = re.findall(r"pytest .*--needs .*", (REPOSITORY / path).read_text())
    assert commands
    assert all(command.endswith(" tests") for command in commands)


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    ("arguments", "expected"), [([], {"local"}), (["--needs", "sshd,qemu"], {"ssh", "qemu"})]
)
def test_those_tests_run_whose_needs_are_offered(arguments, expected):
    collected = collect(CONTRACT, *arguments).stdout
    assert set(re.findall(r"\[(\w+)", collected)) == expected


def test_long_tests_run_only_where_they_are_asked_for(tmp_path):
    case = tmp_path / "test_case.py"
    case.write_text(
        "import pytest\nfrom tests.needs import at_night\n"
        'pytestmark = pytest.mark.needs("qemu")\n\n\ndef test_short():\n    pass\n\n\n'
        '@pytest.mark.needs("qemu", long=True)\ndef test_long():\n    pass\n\n\n'
        '@pytest.mark.needs("sshd")\n'
        '@pytest.mark.parametrize("of", ["day", at_night("sshd", "night")])\ndef test_both(of):\n    pass\n'
    )
    for options, expected in [
        (["--needs", "qemu"], ["test_short"]),
        (["--needs", "qemu", "--long"], ["test_short", "test_long"]),
        (["--needs", "sshd"], ["test_both[day]"]),
        (["--needs", "sshd", "--long"], ["test_both[day]", "test_both[night]"]),
        (["--long"], []),
    ]:
        collected = collect("-p", "tests.needs", *options, str(case)).stdout
        assert re.findall(r"<Function ([\w\[\]]+)>", collected) == expected


def test_a_name_that_is_not_listed_is_refused():
    refused = collect(CONTRACT, "--needs", "nonsense")
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--needs: nothing is called 'nonsense'; there are: browser, dask" in refused.stderr


def test_a_test_whose_need_is_not_listed_is_refused(tmp_path):
    case = tmp_path / "test_case.py"
    case.write_text('import pytest\n\n\n@pytest.mark.needs("nonsense")\ndef test_nothing():\n    pass\n')
    refused = collect("-p", "tests.needs", str(case))
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_nothing: nothing is called 'nonsense'; there are" in refused.stdout + refused.stderr
