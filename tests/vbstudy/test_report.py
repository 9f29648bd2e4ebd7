import json

import numpy as np
import pytest

from vbstudy import report


@pytest.fixture
def listening(tmp_path, monkeypatch):
    monkeypatch.setenv("VBSTUDY_REPORT", str(tmp_path))
    return tmp_path


def test_outside_of_vbstudy_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.delenv("VBSTUDY_REPORT", raising=False)
    monkeypatch.chdir(tmp_path)
    report.metric("accuracy", 0.5)
    report.predictions([1, 2])
    report.weights(object())
    assert not report.active()
    assert not list(tmp_path.iterdir())


def test_metrics_are_appended_with_their_epochs(listening):
    report.metric("accuracy", np.float32(0.5), epoch=1)
    report.metric("accuracy", 0.75)
    lines = [json.loads(line) for line in (listening / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {"name": "accuracy", "value": 0.5, "epoch": 1},
        {"name": "accuracy", "value": 0.75, "epoch": None},
    ]


def test_the_last_predictions_and_weights_count(listening):
    torch = pytest.importorskip("torch")
    report.predictions([9, 9])
    report.predictions(torch.eye(2), [0, 1])
    report.weights(torch.nn.Linear(2, 1))
    with np.load(listening / "predictions.npz") as arrays:
        assert arrays["predictions"].tolist() == [[1, 0], [0, 1]]
        assert arrays["y_true"].tolist() == [0, 1]
    with np.load(listening / "weights.npz") as arrays:
        assert set(arrays.files) == {"weight", "bias"}


def test_what_is_no_model_and_no_array_is_refused(listening):
    with pytest.raises(TypeError, match="expected a module, Keras model or dict of arrays, got int"):
        report.weights(3)
    with pytest.raises(TypeError, match="expected an array of numbers"):
        report.predictions([object()])
