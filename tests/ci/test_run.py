"""`.ci/run` with stages of the tests' own: whatever a stage does, the run ends, and nothing of it stays."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROMISED_S = 60  # 30 s are promised, on a machine without other work
PATIENCE_S = 300
STAGES = """
LISTS=({lists})
BY_NAME=()
declare -A LIMIT_S=([slow]=2 [deaf]={deaf_s})
WHOLE_S={whole_s}
GRACE_S={grace_s}
here={folder}

prepare() {{ :; }}

reached() {{
    touch "$here/reached-$1"
}}

# Neither it nor its processes hear SIGTERM, and one has left its process group.
stage_deaf() {{
    trap '' TERM
    setsid sleep 1000 &
    reached deaf
    until [ -e "$here/never" ]; do sleep 1000; done
}}

stage_fails() {{
    until [ -e "$here/reached-deaf" ]; do sleep 0.1; done
    echo "it fails"
    return 7
}}

stage_slow() {{
    bash -c 'trap "echo SIGTERM arrived; exit" TERM; sleep 1000 & wait'
}}

stage_leaves() {{
    LEFTOVERS_S=0
    setsid sleep 1000 &
    until grep -qsx sleep "/proc/$!/comm"; do sleep 0.1; done # before, it has not its environment
}}

stage_quick() {{
    echo "it works"
    mktemp -d
    mktemp -d -p "$VBSTUDY_CI_DISK"
}}
"""


def start(folder: Path, *lists: str, **limits: int) -> subprocess.Popen[str]:
    quoted = " ".join(f'"{each}"' for each in lists)
    stages = folder / "stages"
    limits = {"whole_s": 1000, "deaf_s": 1000, "grace_s": 1} | limits
    stages.write_text(STAGES.format(lists=quoted, folder=folder, **limits))
    return subprocess.Popen(
        ["bash", ".ci/run"],
        cwd=REPOSITORY,
        env=os.environ | {"VBSTUDY_CI_STAGES": str(stages), "VBSTUDY_CI_TEST": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], folder: Path) -> tuple[int, str, list[str]]:
    """Status and output of a run that ended, and the rows of its table."""
    try:
        output = process.communicate(timeout=PATIENCE_S)[0]
    finally:
        left = processes(folder)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert not left, "processes are left"
    _, heading, table = output.rpartition("stage       seconds  result\n")
    assert heading, output
    return process.returncode, output, [" ".join(line.split()) for line in table.splitlines()]


def processes(folder: Path) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"VBSTUDY_CI_TEST={folder}\0".encode() in file.read_bytes():
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


def wait_for(path: Path) -> float:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)
    return time.monotonic()


def test_a_run_of_stages_that_work_ends_with_a_table_of_them(tmp_path):
    status, output, table = ended(start(tmp_path, "quick"), tmp_path)
    assert status == 0
    assert "quick      | it works\n" in output
    made = re.findall(r"quick      \| (/.+)", output)
    assert len(made) == 2
    assert not any(Path(each).exists() for each in made)
    assert [row.split()[::2] for row in table] == [["quick", "done"], ["all", "done"]]


@pytest.mark.needs("studies")
def test_a_stage_that_fails_ends_those_that_ignore_sigterm_and_starts_no_other(tmp_path):
    process = start(tmp_path, "deaf", "fails quick", grace_s=10)
    began = wait_for(tmp_path / "reached-deaf")
    status, output, table = ended(process, tmp_path)
    assert time.monotonic() - began < PROMISED_S
    assert status == 1
    assert "fails      | it fails\n" in output
    assert table[0].startswith("deaf ")
    assert table[0].endswith("stopped")
    assert table[1].endswith("FAILED, with exit code 7")
    assert table[2] == "quick - not run"
    assert table[3].endswith("FAILED")


@pytest.mark.needs("studies")
@pytest.mark.parametrize("stage", ["slow", "deaf"])
def test_a_stage_that_exceeds_its_limit_is_ended_and_fails_the_run(tmp_path, stage):
    status, output, table = ended(start(tmp_path, f"{stage} quick", deaf_s=2), tmp_path)
    assert status == 1
    assert ("slow       | SIGTERM arrived\n" in output) == (stage == "slow")
    assert table[0].endswith("FAILED: not done within 2 s")
    assert table[1] == "quick - not run"


def test_a_run_that_exceeds_its_limit_is_ended(tmp_path):
    status, _, table = ended(start(tmp_path, "deaf", whole_s=2), tmp_path)
    assert status == 1
    assert "FAILED: not done within" in table[0]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_run_with_its_stages(tmp_path, number, expected):
    process = start(tmp_path, "deaf")
    began = wait_for(tmp_path / "reached-deaf")
    process.send_signal(number)
    status, _, table = ended(process, tmp_path)
    assert time.monotonic() - began < PROMISED_S
    assert status == expected
    assert table[0].endswith("stopped")


def test_a_process_that_a_stage_leaves_is_killed_and_fails_it(tmp_path):
    status, output, table = ended(start(tmp_path, "leaves"), tmp_path)
    assert status == 1
    assert "leaves     | left behind, and killed: sleep 1000" in output
    assert table[0].endswith("FAILED, with exit code 1")
