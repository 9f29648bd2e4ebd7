from __future__ import annotations

import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.exchange.files import ImportFormatError
from analysis.exchange.paths import path_pattern, stated
from analysis.exchange.readers import read_history, read_results

AT = "2026-01-01T00:00:00Z"


def read(path, name="mine"):
    return read_results(path, name, AT)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_text(json.dumps(content))
    return path


def test_one_line_a_run(tmp_path):
    path = write(tmp_path / "r.csv", "threads,accuracy,wall_s,host\n1,0.5,10,a\n1,0.6,,a\n2,0.7,5,b\n")
    found = read(path)
    assert found.kind == "results"
    assert [(r.workload, r.variant, r.threads, r.repetition) for r in found.runs] == [
        ("mine", "imported", 1, 1), ("mine", "imported", 1, 2), ("mine", "imported", 2, 1)
    ]  # fmt: skip
    assert [r.metrics for r in found.runs] == [{"accuracy": 0.5}, {"accuracy": 0.6}, {"accuracy": 0.7}]
    assert [r.wall_s for r in found.runs] == [10.0, None, 5.0]
    assert found.left_out == ("column host: not numbers",)
    assert len(found.runs[0].source_sha256) == 64


def test_a_cell_that_is_no_number_among_numbers_is_refused(tmp_path):
    path = write(tmp_path / "r.csv", "threads,accuracy\n1,0.5\n1,\n2,abc\n2,0.7\n")
    with pytest.raises(ImportFormatError, match="column accuracy, row 3: 'abc' is no number"):
        read(path)


def test_one_line_an_epoch_and_the_last_epoch_counts(tmp_path):
    rows = [{"threads": 4, "repetition": 2, "epoch": e, "loss": 1.0 / e, "workload": "w"} for e in (2, 1)]
    (run,) = read(write(tmp_path / "r.json", rows)).runs
    assert (run.workload, run.repetition, run.metrics, run.history) == (
        "w",
        2,
        {"loss": 0.5},
        {"loss": (1.0, 0.5)},
    )


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("cpus,accuracy\n1,0.5\n", "a column 'threads' is needed; there are cpus, accuracy"),
        ("threads,accuracy\n0,0.5\n", "threads = .*; a whole number from 1"),
        ("threads,accuracy\nfour,0.5\n", "column threads, row 1: 'four' is no number"),
        ("threads,accuracy\n1,0.5\n,0.5\n", "column threads, row 2: 'nan' is no number"),
        ("threads,repetition,a\n1,1,0.5\n1,,0.5\n", "column repetition, row 2: 'nan' is no number"),
        ("threads,accuracy\n1,0.5\n1.5,0.5\n", "threads = 1.5; a whole number"),
        ("Threads,accuracy\n1,0.5\n", "column Threads: write threads"),
        ("threads,Workload,a\n1,x,0.5\n", "column Workload: write workload"),
        ("threads,a ,a\n1,2,3\n", "r.csv: there are two columns a"),
        ("threads,acc,acc\n1,2,3\n", "r.csv: there are two columns acc"),
        ("threads;acc\n1;0,5\n", "separated by ;; save it with commas and decimal points"),
        ("threads\tacc\n1\t0.5\n", "separated by tabs; save it with commas and decimal points"),
        ('threads,acc\n1,"0,5"\n2,"0,6"\n', "there is no result in it: column acc: not numbers"),
        ("threads,acc\n1,95%\n2,96%\n", "there is no result in it: column acc: not numbers"),
        ("threads,epoch,loss\n1,1,0.5\n", "'repetition' is needed too"),
        ("threads,repetition,a\n1,1,0.5\n1,1,0.6\n", "is there 2 times"),
        ("threads,accuracy\n", "there is no result in it"),
        ("", "r.csv"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said(tmp_path, content, what):
    with pytest.raises(ImportFormatError, match=what):
        read(write(tmp_path / "r.csv", content))


def test_an_index_that_pandas_wrote_is_no_metric(tmp_path):
    for header in (",threads,acc,acc.1", "Unnamed: 0,threads,acc,acc.1"):
        found = read(write(tmp_path / "r.csv", f"{header}\n0,1,0.5,0.6\n1,2,0.7,0.8\n"))
        assert [run.metrics for run in found.runs] == [{"acc": 0.5, "acc.1": 0.6}, {"acc": 0.7, "acc.1": 0.8}]
        assert found.left_out == ("column 1: has no name",)
    assert read_history(write(tmp_path / "h.csv", ",loss\n0,1.5\n1,0.5\n")) == {"loss": (1.5, 0.5)}


@pytest.mark.parametrize("content", ["[]", "{}", "[1]", "nonsense", "[" * 100_000])
def test_what_is_no_list_of_objects_is_refused(tmp_path, content):
    with pytest.raises(ImportFormatError, match=r"r\.json"):
        read(write(tmp_path / "r.json", content))


def test_a_folder_of_predictions_with_the_truth_beside_them(tmp_path):
    truth = np.array([0, 1, 2, 2])
    write(tmp_path / "p" / "y_true.npy", truth)
    write(tmp_path / "p" / "threads-1" / "a.npy", np.array([0, 1, 2, 2]))
    write(tmp_path / "p" / "threads-1" / "b.csv", "prediction\n0\n1\n2\n0\n")
    np.savez(tmp_path / "p" / "cpus-2.npz", logits=np.eye(3)[[0, 0, 0, 0]], y_true=truth)
    runs = {r.source: r for r in read(tmp_path / "p").runs}
    assert {s: (r.threads, r.predictions, r.metrics["test_accuracy"]) for s, r in runs.items()} == {
        "threads-1/a.npy": (1, (0, 1, 2, 2), 1.0),
        "threads-1/b.csv": (1, (0, 1, 2, 0), 0.75),
        "cpus-2.npz": (2, (0, 0, 0, 0), 0.25),
    }


def test_a_csv_without_names_keeps_its_first_sample_and_several_columns_are_scores(tmp_path):
    classes = [3, 1, 2, 0, 1, 2]
    scores = np.random.default_rng(0).random((6, 4))
    scores[range(6), classes] = 2
    lines = [",".join(map(str, row)) for row in scores]
    indexed = ["", *(f"{i}," for i in range(6))]
    write(tmp_path / "p" / "y_true.csv", "\n".join(map(str, classes)))
    write(tmp_path / "p" / "threads-1" / "a.csv", "\n".join(map(str, classes)))
    write(tmp_path / "p" / "threads-1" / "b.csv", "\n".join(lines))
    write(tmp_path / "p" / "threads-1" / "c.csv", "\r\n".join(["0,1,2,3", *lines]))
    write(
        tmp_path / "p" / "threads-1" / "d.csv",
        "\n".join(index + line for index, line in zip(indexed, [",0,1,2,3", *lines], strict=True)),
    )
    runs = read(tmp_path / "p").runs
    assert [run.predictions for run in runs] == [tuple(classes)] * 4
    assert {run.metrics["test_accuracy"] for run in runs} == {1.0}


def test_scores_of_a_diverged_run_are_no_classes_and_are_listed(tmp_path):
    scores = np.eye(3)
    for threads, value in ((1, 0.5), (2, np.nan), (4, np.inf), (8, -np.inf)):
        scores[1, 0] = value
        write(tmp_path / "p" / f"threads-{threads}.npy", scores)
    write(tmp_path / "p" / "threads-2.json", {"loss": [1.0, float("nan")]})
    found = read(tmp_path / "p")
    assert {run.threads: run.predictions for run in found.runs} == {1: (0, 1, 2), 2: None, 8: (0, 1, 2)}
    what = "scores that are not finite for 1 of 3 samples"
    assert found.left_out == (
        f"threads-2.npy: {what}",
        f"threads-4.npy: {what}",
        "loss: 1 of 1 run at threads 2 has no finite value",
    )


def test_a_result_behind_a_link_is_listed(tmp_path):
    write(tmp_path / "p" / "threads-1.npy", np.array([0, 1]))
    (tmp_path / "p" / "threads-2.npy").symlink_to(tmp_path / "p" / "threads-1.npy")
    found = read(tmp_path / "p")
    assert len(found.runs) == 1
    assert found.left_out == ("threads-2.npy: a link, which is not followed; put a copy there",)


def test_histories_of_keras_and_of_a_torch_loop_join_the_predictions_of_their_name(tmp_path):
    write(tmp_path / "p" / "threads-1" / "a.json", {"loss": [1.0, 0.5], "val_accuracy": [0.1, 0.2]})
    write(tmp_path / "p" / "threads-1" / "a.npy", np.array([0, 1]))
    write(tmp_path / "p" / "threads-2" / "a.json", [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.25}])
    write(tmp_path / "p" / "threads-4" / "log.csv", "epoch,accuracy,loss\n0,0.5,2.0\n1,0.75,1.0\n")
    one, two, four = sorted(read(tmp_path / "p").runs, key=lambda r: r.threads)
    assert (one.history["loss"], one.predictions) == ((1.0, 0.5), (0, 1))
    assert one.source == "threads-1/a.json + threads-1/a.npy"
    assert two.history == {"loss": (1.0, 0.25)}
    assert four.metrics == {"accuracy": 0.75, "loss": 1.0}


def test_hidden_folders_and_json_that_is_no_history_do_not_stop_a_folder(tmp_path):
    write(tmp_path / "threads-2" / "a.npy", np.array([0, 1]))
    write(tmp_path / "threads-2" / ".ipynb_checkpoints" / "a-checkpoint.npy", np.array([0, 1]))
    write(tmp_path / "threads-2" / "config.json", {"learning_rate": 0.1})
    found = read(tmp_path)
    assert [run.source for run in found.runs] == ["threads-2/a.npy"]
    assert found.left_out == ("threads-2/config.json: not a history",)


def test_a_byte_order_mark_hides_no_history(tmp_path):
    (tmp_path / "threads-1.csv").write_text("\ufeffepoch,loss\n0,0.5\n1,0.25\n")
    (tmp_path / "threads-2.json").write_text('\ufeff{"loss": [0.5, 0.25]}')
    assert [run.history for run in read(tmp_path).runs] == [{"loss": (0.5, 0.25)}] * 2


def test_two_files_of_predictions_with_one_name_are_refused(tmp_path):
    write(tmp_path / "threads-1" / "a.npy", np.array([0, 1]))
    write(tmp_path / "threads-1" / "a.csv", "prediction\n1\n0\n")
    with pytest.raises(ImportFormatError, match="a.csv and threads-1/a.npy have one name"):
        read(tmp_path)


def test_nothing_is_unpickled_and_what_is_not_read_is_named(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    folder = tmp_path / "p"
    write(folder / "threads-1" / "a.npy", np.array([0, 1]))
    (folder / "threads-1" / "history.pt").write_bytes(pickle.dumps(Trap()))
    write(folder / "other.npy", np.array([0, 1]))
    found = read(folder)
    assert len(found.runs) == 1
    assert any("history.pt: not read; this kind of file can run code" in text for text in found.left_out)
    assert any("other.npy: no thread count in its path" in text for text in found.left_out)
    np.save(folder / "threads-1" / "b.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(ImportFormatError, match="allow_pickle=False"):
        read(folder)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ImportFormatError, match="can run code"):
        read(folder / "threads-1" / "history.pt")


@pytest.mark.parametrize("values", [[0.5, 1.0], [-1.0, 0.0], ["a", "b"], [float("nan")]])
def test_what_are_no_classes_is_refused(tmp_path, values):
    write(tmp_path / "p" / "threads-1.npy", np.array(values))
    with pytest.raises(ImportFormatError, match="classes as whole numbers"):
        read(tmp_path / "p")


def test_predictions_of_other_samples_than_the_truth_are_refused(tmp_path):
    write(tmp_path / "p" / "y_true.npy", np.array([0, 1, 2]))
    write(tmp_path / "p" / "threads-1.npy", np.array([0, 1]))
    with pytest.raises(ImportFormatError, match="2 predictions, but 3 true classes"):
        read(tmp_path / "p")


def test_the_file_store_of_mlflow_is_read_as_mlflow_3_writes_it(tmp_path):
    for run, threads in (("a", "1"), ("b", "2"), ("c", None)):
        folder = tmp_path / "mlruns" / "7" / run
        write(folder / "meta.yaml", f"run_id: {run}\nstatus: 3\n")
        write(
            folder / "metrics" / "accuracy",
            "1795258508906 0.6 1 \n1795258508907 0.7 10 \n1795258508907 0.65 2 \n",
        )
        write(folder / "metrics" / "wall_s", "1795258508911 10.0 0 \n")
        (folder / "params").mkdir()
        if threads:
            write(folder / "params" / "threads", threads)
            write(folder / "params" / "workload", "net")
    write(tmp_path / "mlruns" / "7" / "meta.yaml", "name: x\n")
    found = read(tmp_path / "mlruns")
    assert found.kind == "mlflow"
    assert [(r.workload, r.threads, r.wall_s) for r in found.runs] == [("net", 1, 10.0), ("net", 2, 10.0)]
    assert found.runs[0].history == {"accuracy": (0.6, 0.65, 0.7)}, "in order of the steps, as numbers"
    assert "7/c: no parameter 'threads'" in found.left_out


def test_several_experiments_of_mlflow_are_workloads_of_their_names(tmp_path):
    for run in ("1/a", "2/b", "3/c"):
        write(tmp_path / "mlruns" / run / "meta.yaml", "status: 3\n")
        write(tmp_path / "mlruns" / run / "params" / "threads", "1")
        write(tmp_path / "mlruns" / run / "metrics" / "accuracy", "1 0.9 0\n")
    write(tmp_path / "mlruns" / "1" / "meta.yaml", "experiment_id: '1'\nname: resnet on digits\n")
    write(tmp_path / "mlruns" / "2" / "meta.yaml", "name: 'vgg'\n")
    write(tmp_path / "mlruns" / "2" / "b" / "params" / "workload", "logged")
    assert [run.workload for run in read(tmp_path / "mlruns").runs] == ["resnet on digits", "logged", "3"]
    assert [run.workload for run in read(tmp_path / "mlruns" / "1").runs] == ["mine"]


def test_a_store_without_runs_says_so(tmp_path):
    with pytest.raises(ImportFormatError, match="there is no result in it"):
        read(write(tmp_path / "mlruns" / "0" / "meta.yaml", "name: x\n").parent.parent)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200), st.sampled_from([".csv", ".json"]))
def test_no_history_fails_in_another_way(tmp_path, content, suffix):
    path = tmp_path / f"threads-1{suffix}"
    path.write_bytes(content)
    try:
        history = read_history(path)
    except (ImportFormatError, UnicodeDecodeError):
        return
    assert len({len(values) for values in history.values()}) == 1


def conditions(found):
    return [(r.workload, r.variant, r.threads, r.repetition, r.source) for r in found.runs]


def test_paths_name_workload_and_variant_as_well_as_threads(tmp_path):
    for path in (
        "workload-lenet_5/variant-default/threads-2/a.npy",
        "workload=vgg-16_variant=fixed-seed_threads=4_run1.npy",
        "threads-4/plain.npy",
    ):
        write(tmp_path / path, np.array([0, 1]))
    assert conditions(read(tmp_path)) == [
        ("mine", "imported", 4, 1, "threads-4/plain.npy"),
        ("lenet_5", "default", 2, 1, "workload-lenet_5/variant-default/threads-2/a.npy"),
        ("vgg-16", "fixed-seed", 4, 1, "workload=vgg-16_variant=fixed-seed_threads=4_run1.npy"),
    ]


@pytest.mark.parametrize(
    ("path", "threads"),
    [
        ("threads-2/cpus-8/a", 2),
        ("cpus-8-threads-2/a", 2),
        ("lenet_threads-4_gpu-0_cpu1", 4),
        ("intra_op_threads-4_inter_op_threads-2", 4),
        ("threads-4-interop_threads-1", 4),
        ("threads-04/run_threads-4", 4),
        ("subthreads-9/cpus-2", 2),
    ],
)
def test_threads_in_a_path_count_before_cpus(path, threads):
    assert stated(f"{path}.npy", None)["threads"] == str(threads)


def test_a_path_that_states_two_thread_counts_is_refused(tmp_path):
    write(tmp_path / "threads-4" / "dataloader_threads-2" / "a.npy", np.array([0, 1]))
    with pytest.raises(ImportFormatError, match="a.npy: its path states 4 and 2 threads; .* --by"):
        read(tmp_path)
    (run,) = read_results(tmp_path, "mine", AT, "threads-{threads}/*/a.npy").runs
    assert run.threads == 4


def test_a_pattern_says_what_the_parts_of_a_path_are(tmp_path):
    for path in ("lenet5/default/t2/run3/p.npy", "vgg/fixed/t16/run1/p.npy", "vgg/notes/p.npy"):
        write(tmp_path / path, np.array([0, 1]))
    found = read_results(tmp_path, "mine", AT, "{workload}/{variant}/t{threads}/run{repetition}/*.npy")
    assert conditions(found) == [
        ("lenet5", "default", 2, 3, "lenet5/default/t2/run3/p.npy"),
        ("vgg", "fixed", 16, 1, "vgg/fixed/t16/run1/p.npy"),
    ]
    assert found.left_out == ("vgg/notes/p.npy: does not match the pattern",)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("{workload}/*.npy", "{threads} is needed"),
        ("{threads}/{thread}/x.npy", "{thread} is none of {workload}, {variant}, {threads}, {repetition}"),
        ("{threads}/{threads}.npy", "each field at most once"),
        ("t{threads}.npy", "there is no result in it"),
    ],
)
def test_a_wrong_pattern_is_an_error_that_names_it(tmp_path, pattern, what):
    write(tmp_path / "threads-0" / "a.npy", np.array([0, 1]))
    with pytest.raises(ImportFormatError, match=re.escape(what)):
        read_results(tmp_path, "mine", AT, pattern)


def test_a_pattern_belongs_to_a_folder(tmp_path):
    path = write(tmp_path / "r.csv", "threads,accuracy\n1,0.5\n")
    with pytest.raises(ImportFormatError, match="needs a folder"):
        read_results(path, "mine", AT, "{threads}.npy")


@given(st.text("{}*threads/.-0", max_size=12))
def test_every_pattern_compiles_or_is_an_error(text):
    try:
        path_pattern(text)
    except ImportFormatError as error:
        assert text in str(error)


def test_epochs_are_in_order_of_their_numbers_also_as_texts(tmp_path):
    rows = [{"threads": 1, "repetition": 1, "epoch": str(e), "loss": float(e)} for e in (10, 9, 8)]
    (run,) = read(write(tmp_path / "r.json", rows)).runs
    assert (run.metrics, run.history) == ({"loss": 10.0}, {"loss": (8.0, 9.0, 10.0)})
    with pytest.raises(ImportFormatError, match="column epoch, row 1: 'last' is no number"):
        read(write(tmp_path / "r.json", [rows[0] | {"epoch": "last"}]))


def test_a_time_that_is_a_text_is_named_with_its_row(tmp_path):
    rows = [{"threads": 1, "loss": 1.0, "wall_s": wall_s} for wall_s in ("2.5", None, "1.2 s")]
    assert [run.wall_s for run in read(write(tmp_path / "r.json", rows[:2])).runs] == [2.5, None]
    with pytest.raises(ImportFormatError, match="column wall_s, row 3: '1.2 s' is no number"):
        read(write(tmp_path / "r.json", rows))


def test_names_that_look_like_numbers_or_nothing_stay_as_they_are_written(tmp_path):
    cells = ("007,0.10", "1e3,0.1", "NA,None", ",", "True,null")
    text = "\n".join(["workload,variant,threads,acc", *(f"{cell},1,0.5" for cell in cells)])
    assert [(r.workload, r.variant) for r in read(write(tmp_path / "r.csv", text)).runs] == [
        ("007", "0.10"), ("1e3", "0.1"), ("NA", "None"), ("mine", "imported"), ("True", "null")
    ]  # fmt: skip
    rows = [{"threads": 1, "acc": 0.5} | names for names in ({"workload": None}, {"workload": 1}, {})]
    assert [r.workload for r in read(write(tmp_path / "r.json", rows)).runs] == ["mine", "1", "mine"]


def test_an_epoch_that_a_run_has_twice_is_refused(tmp_path):
    rows = [f"1,1,{epoch},{value}" for epoch, value in ((1, 0.1), (2, 0.2), (1, 0.5), (2, 0.9))]
    path = write(tmp_path / "r.csv", "\n".join(["threads,repetition,epoch,acc", *rows]))
    with pytest.raises(ImportFormatError, match="threads 1, repetition 1, epoch 1 is there more than once"):
        read(path)


def test_commas_at_the_end_of_lines_do_not_shift_columns_and_cells_beyond_them_are_refused(tmp_path):
    (run,) = read(write(tmp_path / "r.csv", "workload,threads,accuracy\nlenet,4,0.9,\n")).runs
    assert (run.workload, run.threads, run.metrics) == ("lenet", 4, {"accuracy": 0.9})
    with pytest.raises(ImportFormatError, match="row 2 has more cells than there are columns"):
        read(write(tmp_path / "r.csv", "threads,accuracy\n4,0.9,\n4,0,9\n"))


@pytest.mark.parametrize(
    ("cells", "metrics", "left_out"),
    [
        (("", "", ""), [{}, {}, {}], ("column more: not numbers",)),
        (("", "rerun", ""), [{}, {}, {}], ("column more: not numbers",)),
        (
            ("True", "", "False"),
            [{"more": 1.0}, {}, {"more": 0.0}],
            ("more: 1 of 3 runs at threads 1 has no finite value",),
        ),
    ],
)
def test_columns_with_few_cells_are_texts_or_numbers_and_no_error(tmp_path, cells, metrics, left_out):
    lines = "".join(f"1,1,{cell}\n" for cell in cells)
    found = read(write(tmp_path / "r.csv", "threads,wall_s,more\n" + lines))
    assert ([run.metrics for run in found.runs], found.left_out) == (metrics, left_out)


def test_the_wrong_cell_of_a_column_with_few_cells_is_named(tmp_path):
    with pytest.raises(ImportFormatError, match="column loss, row 4: 'O.3' is no number"):
        read(write(tmp_path / "r.csv", "threads,loss\n1,0.1\n1,\n1,0.2\n1,O.3\n1,\n1,\n"))


def test_true_classes_count_below_their_folder(tmp_path):
    for name, truth in (("a", [0, 1]), ("b", [1, 0])):
        write(tmp_path / "p" / f"workload-{name}" / "y_true.npy", np.array(truth))
        write(tmp_path / "p" / f"workload-{name}" / "threads-1" / "x.npy", np.array(truth))
    write(tmp_path / "p" / "threads-1.npy", np.array([0, 1]))
    write(tmp_path / "p" / "data" / "y_true.npy", np.array([0, 1]))
    found = read(tmp_path / "p")
    accuracies = {run.source: run.metrics.get("test_accuracy") for run in found.runs}
    assert accuracies == {
        "threads-1.npy": None,
        "workload-a/threads-1/x.npy": 1.0,
        "workload-b/threads-1/x.npy": 1.0,
    }
    assert found.left_out == ("data: true classes, and no predictions below their folder",)


def test_runs_of_mlflow_that_are_deleted_or_did_not_finish_are_left_out(tmp_path):
    about = {
        "7/done": "status: 3\nlifecycle_stage: active\n",
        "7/older": "status: FINISHED\n",
        "7/deleted": 'status: 3\nlifecycle_stage: "deleted"\n',
        "7/failed": "status: 4\n",
        "7/running": "status: 1\n",
        ".trash/8/gone": "status: 3\n",
    }
    for run, meta in about.items():
        write(tmp_path / "mlruns" / run / "meta.yaml", meta)
        write(tmp_path / "mlruns" / run / "params" / "threads", "1")
        write(tmp_path / "mlruns" / run / "metrics" / "accuracy", "1 0.9 0\n")
    found = read(tmp_path / "mlruns")
    assert [run.source for run in found.runs] == ["7/done", "7/older"]
    assert set(found.left_out[:-1]) == {
        ".trash/8/gone: deleted",
        "7/deleted: deleted",
        "7/failed: did not finish",
        "7/running: did not finish",
    }


def test_metrics_of_mlflow_in_folders_keep_their_names(tmp_path):
    folder = tmp_path / "mlruns" / "7" / "a"
    write(folder / "meta.yaml", "status: 3\n")
    write(folder / "params" / "threads", "1")
    write(folder / "metrics" / "val" / "accuracy", "1 0.9 0\n")
    assert read(tmp_path / "mlruns").runs[0].metrics == {"val/accuracy": 0.9}


def test_metrics_and_times_that_are_not_finite_are_listed_by_condition(tmp_path):
    lines = "1,0.9,inf,1\n1,0.91,-inf,1\n1,nan,3,inf\n2,0.8,1,1\n2,0.7,2,1\n"
    found = read(write(tmp_path / "r.csv", "threads,accuracy,loss,wall_s\n" + lines))
    assert [run.metrics for run in found.runs[:3]] == [{"accuracy": 0.9}, {"accuracy": 0.91}, {"loss": 3.0}]
    assert found.left_out == (
        "loss: 2 of 3 runs at threads 1 have no finite value",
        "accuracy: 1 of 3 runs at threads 1 has no finite value",
        "wall_s: 1 of 3 runs at threads 1 has no finite value",
    )
    named = "workload,threads,loss\na,1,nan\na,1,1\nb,1,2\n"
    (listed,) = read(write(tmp_path / "n.csv", named)).left_out
    assert listed == "loss: 1 of 2 runs at a, imported, threads 1 has no finite value"


def test_a_history_with_an_epoch_that_is_not_finite_is_listed(tmp_path):
    write(tmp_path / "p" / "threads-2.json", {"loss": [1.0, float("nan"), 2.0]})
    found = read(tmp_path / "p")
    assert (found.runs[0].metrics, found.runs[0].history) == ({"loss": 2.0}, {})
    assert found.left_out == ("history of loss: 1 of 1 run at threads 2 has epochs without a finite value",)


def test_spaces_beside_commas_belong_to_no_name(tmp_path):
    text = "workload, variant , threads ,acc\nx, a ,1, 0.5\ny ,b, 2 ,0.6\nx,a,1,0.7\n"
    found = read(write(tmp_path / "r.csv", text))
    assert [(r.workload, r.variant, r.threads, r.repetition) for r in found.runs] == [
        ("x", "a", 1, 1), ("y", "b", 2, 1), ("x", "a", 1, 2)
    ]  # fmt: skip
    assert [r.metrics for r in found.runs] == [{"acc": 0.5}, {"acc": 0.6}, {"acc": 0.7}]
