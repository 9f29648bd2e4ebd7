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
    with pytest.raises(TypeError, match="report: predictions: expected an array of numbers"):
        report.predictions([object()])
    with pytest.raises(TypeError, match="report: y_true: expected an array of numbers"):
        report.predictions([1, 2], [[1, 2], [1]])


def kept(listening):
    with np.load(listening / "weights.npz", allow_pickle=False) as arrays:
        return {name: arrays[name].tolist() for name in arrays.files}


def test_arrays_may_have_any_name(listening):
    report.weights({"file": np.ones(1), "allow_pickle": np.zeros(2), 0: [3], "a/b": np.float32(4)})
    assert kept(listening) == {"file": [1], "allow_pickle": [0, 0], "0": [3], "a/b": 4}


def test_a_module_may_keep_more_than_tensors(listening):
    torch = pytest.importorskip("torch")

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.file = torch.nn.Parameter(torch.ones(2))

        def get_extra_state(self):
            return {"step": 3, "of": object(), "shapes": [torch.ones(1), torch.zeros(2)]}

    with pytest.warns(UserWarning, match=r"not kept: _extra_state\.of$"):
        report.weights(Counts())
    state = {"_extra_state.step": 3, "_extra_state.shapes.0": [1], "_extra_state.shapes.1": [0, 0]}
    assert kept(listening) == {"file": [1, 1], **state}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # deprecated
def test_tensors_of_any_layout_and_type_are_kept(listening):
    torch = pytest.importorskip("torch")
    packed = torch.quantize_per_tensor(torch.ones(1, 2), 0.5, 0, torch.qint8), torch.ones(1)
    with pytest.warns(UserWarning, match=r"not kept: dtype$"):
        report.weights({"packed": packed, "dtype": torch.qint8})  # as of quantised modules
    assert kept(listening) == {"packed.0": [[1, 1]], "packed.1": [1]}
    report.weights({"a": torch.eye(2).to_sparse(), "b": torch.ones(1).to(torch.float8_e4m3fn)})
    assert kept(listening) == {"a": [[1, 0], [0, 1]], "b": [1]}
    with pytest.raises(TypeError, match="report: weight: expected an array of numbers: Cannot copy"):
        report.weights(torch.nn.Linear(2, 2, device="meta"))
    report.predictions([torch.ones(2, requires_grad=True)] * 3)
    with np.load(listening / "predictions.npz") as arrays:
        assert arrays["predictions"].tolist() == [[1, 1]] * 3
