"""What a sweep asks for before it begins."""

import pytest

from orchestrator.cli import main as cli
from orchestrator.sweep import command
from tests.orchestrator.sweep.test_pipeline import STUDY


def test_a_sweep_on_other_hosts_that_measures_robustness_asks_for_its_guest_before_it_begins(
    tmp_path, capsys, monkeypatch
):
    pytest.importorskip("distributed")
    monkeypatch.setattr(command, "run_missing", lambda *_: pytest.fail("the sweep began"))
    (tmp_path / "study.toml").write_text(STUDY)
    arguments = ["-C", str(tmp_path), "-q", "sweep", "--robustness", "--scheduler", "tcp://127.0.0.1:1"]
    assert cli.run(arguments) == 2
    assert "there are no guests yet; run `vbstudy provision` first" in capsys.readouterr().err
