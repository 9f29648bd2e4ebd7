import pickle
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from guest.projects import artifacts
from guest.projects.artifacts import ArtifactError

WEIGHTS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.int64)}


class Bomb:
    """What unpickling would run."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('somebody else decides')",))


def same(found: dict) -> bool:
    return set(found) == set(WEIGHTS) and all(np.array_equal(found[name], WEIGHTS[name]) for name in found)


def test_weights_are_read_from_safetensors_numpy_and_torch(tmp_path):
    torch = pytest.importorskip("torch")
    save_file(WEIGHTS, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", **WEIGHTS)
    tensors = {name: torch.from_numpy(array) for name, array in WEIGHTS.items()}
    torch.save(tensors, tmp_path / "w.pt")
    for name in ("checkpoint.pth", "best.pth.tar"):
        torch.save({"epoch": 3, "state_dict": tensors}, tmp_path / name)
    for name in ("w.safetensors", "w.npz", "w.pt", "checkpoint.pth", "best.pth.tar"):
        assert same(artifacts.load_weights(tmp_path / name)), name


def test_weights_are_read_from_hdf5_and_from_keras_archives(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "m.weights.h5", "w") as file:
        for name, array in WEIGHTS.items():
            file.create_dataset(f"layers/{name}", data=array)
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.write(tmp_path / "m.weights.h5", "model.weights.h5")
    for name in ("m.weights.h5", "m.keras"):
        found = artifacts.load_weights(tmp_path / name)
        assert set(found) == {"layers/a", "layers/b"}
        assert np.array_equal(found["layers/a"], WEIGHTS["a"])


def test_bfloat16_is_widened_which_is_exact(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)}, tmp_path / "w.pt")
    assert artifacts.load_weights(tmp_path / "w.pt")["a"].tolist() == [1.5, -2.0]


def test_arrays_of_every_type_are_read_from_hdf5_but_those_of_strings(tmp_path):
    h5py = pytest.importorskip("h5py")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["bfloat16"] = np.array([1.5, -2.0], ml_dtypes.bfloat16)
        file["bfloat16"].attrs["dtype"] = "bfloat16"  # as Keras does
        file["scalar"] = np.array(3.0, ml_dtypes.bfloat16)
        file["scalar"].attrs["dtype"] = "bfloat16"
        file["complex"] = np.array([1 + 2j])
        file["compound"] = np.zeros(2, [("a", np.int32), ("b", np.float32)])
        file["text"] = "words"
        file["reference"] = np.array([file["complex"].ref], h5py.ref_dtype)
    found = artifacts.load_weights(tmp_path / "m.h5")
    assert set(found) == {"bfloat16", "scalar", "complex", "compound"}
    assert found["bfloat16"].tolist() == [1.5, -2.0]
    assert found["bfloat16"].dtype == np.float32
    assert found["scalar"].tolist() == 3.0
    assert found["complex"].tolist() == [1 + 2j]


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.pt", "m.bin", "m.npz", "m.npy"])
def test_a_pickle_is_refused_and_never_run_whatever_its_name(tmp_path, name):
    pytest.importorskip("torch")
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ArtifactError, match=name):
        artifacts.load_weights(tmp_path / name)


def test_a_whole_torch_model_is_refused_with_what_to_write_instead(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pt")
    with pytest.raises(ArtifactError, match=r"never loaded: write a \.safetensors"):
        artifacts.load_weights(tmp_path / "m.pt")


def test_predictions_are_classes_scores_or_other_numbers(tmp_path):
    np.save(tmp_path / "classes.npy", np.array([1, 0, 2]))
    np.savez(tmp_path / "scores.npz", logits=np.eye(3, dtype=np.float32), labels=np.array([0, 1.0, 2]))
    np.save(tmp_path / "numbers.npy", np.array([0.5, 1.25]))
    (tmp_path / "table.csv").write_text("class\n1\n0\n")
    assert artifacts.load_predictions(tmp_path / "classes.npy").classes().tolist() == [1, 0, 2]
    scores = artifacts.load_predictions(tmp_path / "scores.npz")
    assert scores.classes().tolist() == [0, 1, 2]
    assert scores.y_true.tolist() == [0, 1, 2]
    assert scores.y_true.dtype == np.int64
    assert artifacts.load_predictions(tmp_path / "numbers.npy").classes() is None
    assert artifacts.load_predictions(tmp_path / "table.csv").classes().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("0,1,2\n0.5,0.25,0.25\n0.25,0.5,0.25\n", [0, 1]),
        ("0,1\n0,5\n1,3\n", [5, 3]),  # identifiers below pandas' numbers
        ("0,1\n1,0\n2,3\n", [1, 0, 3]),  # identifiers without a header
        ("10,3\n11,2\n12,0\n", [3, 2, 0]),
        (",0\n17,3\n4,1\n250,0\n", [3, 1, 0]),  # a shuffled index of pandas'
        ("0,1\n1,0\n0,1\n", [1, 0, 1]),  # scores of 0 and 1
        ("0,1\n0,1\n1,0\n", [1, 1, 0]),
        ("0,1\n1.0,0.0\n0.0,1.0\n", [0, 1]),
        ("0,2,1\n1,2,0.5\n0.5,2.5,0\n", [1, 1, 1]),
        ("0\n1\n2\n", [0, 1, 2]),
    ],
)
def test_the_numbers_that_pandas_gives_several_columns_are_no_sample(tmp_path, text, classes):
    (tmp_path / "table.csv").write_text(text)
    assert artifacts.load_predictions(tmp_path / "table.csv").classes().tolist() == classes


@pytest.mark.parametrize(
    ("text", "values", "truth"),
    [
        ("y_true,y_pred\n0,1\n0,2\n", [1, 2], [0, 0]),
        ("file,y_pred,sure,labels\na,1,0.5,0\nb,2,0.75,2\n", [1, 2], [0, 2]),
        ("\ufeffy_true,y_pred\n1.5,1.25\n2.5,0.5\n", [1.25, 0.5], None),
    ],
)
def test_columns_of_a_table_are_known_by_their_names(tmp_path, text, values, truth):
    (tmp_path / "table.csv").write_text(text)
    found = artifacts.load_predictions(tmp_path / "table.csv")
    assert found.values.tolist() == values
    assert (None if found.y_true is None else found.y_true.tolist()) == truth


@pytest.mark.parametrize(
    "text",
    [
        'text,y_pred,y_true\n"a, b",1,0\n"c ""d"", e",2,0\n',
        "text,y_pred,y_true\n#1,1,0\nissue #2,2,0\n",
        'text,y_pred,y_true\n"two\nlines",1,0\n"and\n\n#3",2,0\n',
        '"a, b","c\nd","y_pred",y_true\n5,6,1,0\n7,8,2,0\n',
    ],
)
def test_texts_beside_named_columns_may_have_commas_hashes_and_line_breaks(tmp_path, text):
    (tmp_path / "table.csv").write_text(text)
    found = artifacts.load_predictions(tmp_path / "table.csv")
    assert (found.values.tolist(), found.y_true.tolist()) == ([1, 2], [0, 0])


def test_a_table_whose_header_has_no_end_is_refused(tmp_path):
    (tmp_path / "table.csv").write_text('"y_pred\n' + "1\n" * 70_000)
    with pytest.raises(ArtifactError, match=r"table\.csv: cannot be read: field larger"):
        artifacts.load_predictions(tmp_path / "table.csv")


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("true,guess\n2,1\n2,2\n", None),
        ("guess,sure\n0,0.9\n1,0.8\n", None),
        ("p0,p1\n0.0,1.0\n1.0,0.0\n0.0,1.0\n", [1, 0, 1]),
        ("p0,p1,p2\n0.00,0.33,0.66\n0.00,0.98,0.01\n", [2, 1]),
        ("p0,p1\n1.00,0.00\n0.01,1.00\n", [0, 1]),
        ("reference,other\n0,-1.5\n0,2.5\n", [0, 1]),
    ],
)
def test_a_column_of_different_whole_numbers_is_none_of_scores_but_in_probabilities(tmp_path, text, classes):
    (tmp_path / "table.csv").write_text(text)
    found = artifacts.load_predictions(tmp_path / "table.csv").classes()
    assert (found if found is None else found.tolist()) == classes


@pytest.mark.parametrize(
    ("name", "arrays", "told"),
    [
        ("p.npy", np.array([{}], dtype=object), "never loaded"),
        ("p.npy", np.zeros((2, 2, 2)), r"\(2, 2, 2\) of float64"),
        ("p.npz", {"x": np.ones(2), "y": np.ones(2)}, "has the arrays x, y"),
        ("p.npz", {"logits": np.ones((2, 2)), "y_true": np.ones(3, int)}, "2 predictions, but true classes"),
        (
            "p.npz",
            {"pred": np.ones(2), "y": np.array([1, np.inf])},
            "whole numbers, and here they are float64",
        ),
        ("p.npz", {"pred": np.ones(2), "y": np.array(["a", "b"])}, "and here they are <U1"),
    ],
)
def test_predictions_that_cannot_be_compared_are_told(tmp_path, name, arrays, told):
    if isinstance(arrays, dict):
        np.savez(tmp_path / name, **arrays)
    else:
        np.save(tmp_path / name, arrays, allow_pickle=True)
    with pytest.raises(ArtifactError, match=told):
        artifacts.load_predictions(tmp_path / name)


def test_a_missing_artifact_is_told_with_what_is_there(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.pth").touch()
    with pytest.raises(ArtifactError, match=r"wrote no such file; there are model\.pth"):
        artifacts.locate(tmp_path, "out/model.pt", "artifacts.weights")
    with pytest.raises(ArtifactError, match="there is no such folder"):
        artifacts.locate(tmp_path, "runs/model.pt", "artifacts.weights")
    (tmp_path / "out" / "link.pt").symlink_to("/etc/hostname")
    with pytest.raises(ArtifactError, match="leads out of the project"):
        artifacts.locate(tmp_path, "out/link.pt", "artifacts.weights")
