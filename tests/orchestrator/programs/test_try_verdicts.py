from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.programs import conditions
from orchestrator.programs.try_files import FileSeen, Role
from orchestrator.programs.try_report import NOT_APPLICABLE, Cure, Report, cost, text
from orchestrator.programs.try_verdicts import (
    Answer,
    LevelVerdict,
    Trial,
    comparable,
    decide,
    overall,
    unrepeated,
)

LABELS = ("1 thread", "4 threads")


def file(digest: str, parsed: bool = True) -> FileSeen:
    return FileSeen(role=Role.WEIGHTS, digest=digest, parsed=parsed, caveat="")


def trials(digests: str = "aaaa", metrics=(), lines=(), files=None, statuses=(0, 0, 0, 0)) -> list[Trial]:
    """Two runs on one thread, then two on four."""
    return [
        Trial(
            condition=LABELS[i // 2],
            threads=(1, 4)[i // 2],
            repetition=i % 2 + 1,
            wall_s=1.0,
            metrics={name: (values[i],) for name, values in metrics},
            files={"m.pt": file(digest)} if files is None else files[i],
            lines=tuple(lines[i]) if lines else (),
            status=statuses[i],
        )
        for i, digest in enumerate(digests)
    ]  # fmt: skip


@given(st.lists(st.sampled_from("ab"), min_size=4, max_size=4))
def test_a_factor_matters_only_where_runs_repeat_in_each_condition(digests):
    a, b, c, d = digests
    expected = Answer.INCONCLUSIVE if a != b or c != d else Answer.SAME if a == c else Answer.MATTERS
    assert decide(trials("".join(digests)))[0].answer is expected


def test_bytes_that_nobody_read_do_not_say_that_one_thread_does_not_repeat():
    stamped = [{"m.pt": file(digest), "stamp": file(str(i), parsed=False)} for i, digest in enumerate("aabc")]
    assert unrepeated(decide(trials(files=stamped))) == {"4 threads"}
    assert unrepeated(decide(trials(files=[{"stamp": each["stamp"]} for each in stamped]))) == set(LABELS)


def test_times_thread_counts_and_numbers_of_warnings_are_no_metrics():
    named = [("time", "1234"), ("threads @ a.py:3", "1144"), ("it/s", "5678"), ("epoch", "1111"),
             ("metrics.json: train_runtime", "1234"), ("in current system is", "1144")]  # fmt: skip
    assert decide(trials(metrics=named))[2].answer is Answer.ABSENT


def test_a_score_is_a_metric():
    for name in ("score", "val_score @ a.py:3", "F1", "out/metrics.json: eval.accuracy", "support_loss"):
        assert decide(trials(metrics=[(name, "1122")]))[2].answer is Answer.MATTERS, name


@pytest.mark.parametrize(
    "name",
    ["speed mae", "sentiment accuracy", "processed/metrics.csv: loss", "time_series.json: mae", "estimated",
     "memory/run.csv: tokens", "time_rmse", "MS-SSIM"],
)  # fmt: skip
def test_a_result_is_compared_whatever_its_file_or_the_rest_of_its_name_is_called(name):
    assert decide(trials(metrics=[(name, "1122")]))[2].answer is Answer.MATTERS


@pytest.mark.parametrize(
    "name",
    ["score_time", "fitTime", "eval_runtime", "train_samples_per_second", "tokens/s", "num_workers",
     "_timestamp", "timing.json: wall_clock", "step time", "step_ms", "ms per step", "ms/step", "max mem",
     "data", "latency", "Training finished in"],
)  # fmt: skip
def test_times_and_counts_of_the_machine_are_known_by_their_words(name):
    assert decide(trials(metrics=[(name, "1234")]))[2].answer is Answer.ABSENT


@pytest.mark.parametrize(
    "line", ["speed MAE: {}", "sentiment accuracy: {}", "preprocessed rows: {}", "4 workers, accuracy: {}"]
)
def test_a_result_in_a_line_about_speed_or_the_machine_is_a_difference_of_the_output(line):
    assert comparable(line.format(0.5)) != comparable(line.format(0.6))


def test_constants_are_counted_and_losses_stand_first():
    named = [("batch_size", "8888"), ("embd_pdrop", "0000"), ("tokens", "1122"), ("loss", "3344")]
    verdict = decide(trials(metrics=named))[2]
    assert [each.name for each in verdict.compared] == ["loss", "tokens"]
    assert verdict.constants == 2
    assert decide(trials(metrics=named[:2]))[2].answer is Answer.ABSENT


@pytest.mark.parametrize("name", ["data", "line", "batch"])
def test_what_passes_as_progress_where_it_is_printed_is_a_number_in_a_file(name):
    verdicts = decide(trials(metrics=[(f"chart.json: {name}", "1122")], files=[{}] * 4))
    assert verdicts[2].answer is Answer.MATTERS


def test_a_number_that_repeats_to_six_digits_is_no_time_whatever_its_name():
    for name in ("sum of squares per process", "log.csv: data memory"):
        values = ["0.3000001"] * 2 + ["0.6"] * 2
        assert decide(trials(metrics=[(name, values)]))[2].answer is Answer.MATTERS, name
        for passing in (["3.0000000"] * 2 + ["2.0000000"] * 2, ["1048576"] * 2 + ["2097152"] * 2):
            assert decide(trials(metrics=[(name, passing)]))[2].answer is Answer.ABSENT, name


@pytest.mark.parametrize(("values", "answer"), [("1111", Answer.SAME), ("1122", Answer.ABSENT)])
def test_a_file_whose_numbers_are_the_same_is_the_same_though_none_is_a_loss_or_a_score(values, answer):
    runs = trials(metrics=[("m.json: mean", "2222"), ("m.json: std", values)], files=[{}] * 4)
    assert decide(runs)[0].answer is answer
    assert overall(decide(runs)) is (Answer.SAME if answer is Answer.SAME else Answer.MATTERS)
    runs = trials(metrics=[("vbstudy.report.metric: mean", "2222"), ("batch_size", "8888")], files=[{}] * 4)
    assert decide(runs)[0].answer is Answer.ABSENT


def test_files_that_were_read_outweigh_those_that_were_not():
    files = [{"m.pt": file("x"), "args.bin": file(str(i), parsed=False)} for i in range(4)]
    verdict = decide(trials(files=files))[0]
    assert verdict.answer is Answer.SAME
    assert (verdict.compared[0].name, verdict.compared[0].unrepeated) == ("args.bin", LABELS)


@pytest.mark.parametrize(
    ("digests", "answer"),
    [("aaaa", Answer.SAME), ("aabb", Answer.MATTERS), ("abcd", Answer.INCONCLUSIVE)],
)
def test_data_that_were_read_do_not_outweigh_a_model_that_was_not(digests, answer):
    data = FileSeen(role=Role.OTHER, digest="x", parsed=True, caveat="")
    verdict = decide(trials(files=[{"X.npy": data, "m.pkl": file(d, parsed=False)} for d in digests]))[0]
    assert verdict.answer is answer
    assert answer is Answer.SAME or verdict.compared[0].name == "m.pkl"


def test_bytes_that_repeat_and_differ_between_thread_counts_are_a_difference():
    files = [{"m.pt": file("x"), "words.txt": file(digest, parsed=False)} for digest in "aabb"]
    assert decide(trials(files=files))[0].answer is Answer.MATTERS


def test_predictions_of_equal_classes_and_other_bits_differ_bitwise_alone():
    files = [
        {"logits.npy": FileSeen(role=Role.PREDICTIONS, digest=d, parsed=True, caveat="", classes="c")}
        for d in "aabb"
    ]
    assert [verdict.answer for verdict in decide(trials(files=files))[:2]] == [Answer.MATTERS, Answer.SAME]


def test_a_file_that_some_runs_do_not_write_differs():
    files = [{}, {}, {"m.pt": file("x")}, {"m.pt": file("x")}]
    verdict = decide(trials(files=files))[0]
    assert (verdict.answer, verdict.compared[0].remark) == (Answer.MATTERS, "0 arrays; written in 2 of them")


@pytest.mark.parametrize(
    ("digests", "answer"),
    [("aaaa", Answer.SAME), ("aabb", Answer.MATTERS), ("aaab", Answer.INCONCLUSIVE)],
)
def test_files_whose_names_vary_are_compared_by_what_they_hold(digests, answer):
    folders = ("01-02-03", "01-02-05", "run", "run")  # both runs on four threads fell into one second
    files = [
        {f"out/{at}/m-{name}.pt": file(digest), f"out/{at}/log.pt": file("x"), "fixed.pt": file("y")}
        for at, name, digest in zip(folders, "abcd", digests, strict=True)
    ]
    verdict = decide(trials(files=files))[0]
    assert verdict.answer is answer
    assert {each.name: each.remark for each in verdict.compared} == {
        "out/*/*.pt": "0 arrays; its name varies",
        "out/*/log.pt": "0 arrays; its name varies",
        "fixed.pt": "0 arrays",
    }


def test_files_of_equal_names_but_for_their_variable_parts_are_told_apart_by_what_they_hold():
    names = ("ab", "ba", "cd", "dc")
    files = [{f"{one}.pt": file("x"), f"{other}.pt": file("y")} for one, other in names]
    verdict = decide(trials(files=files))[0]
    assert (verdict.answer, [each.name for each in verdict.compared]) == (Answer.SAME, ["*.pt", "*.pt (2)"])


def test_numbers_in_files_whose_names_vary_are_compared():
    runs = [
        replace(trial, metrics={f"{name}/a.json: loss": ("0.5",)})
        for trial, name in zip(trials(), ("p", "q", "r", "r"), strict=True)
    ]
    verdict = decide(runs)[2]
    assert (verdict.answer, verdict.compared[0].name) == (Answer.SAME, "*/a.json: loss")


def test_how_many_files_have_times_in_their_names_is_inconclusive():
    later = {"m-*.pt": file("x"), "m-*.pt (2)": file("x")}  # slower, so that two were due
    verdict = decide(trials(files=[later, later, {"m-*.pt": file("x")}, {"m-*.pt": file("x")}]))[0]
    assert (verdict.answer, verdict.compared[0].unrepeated) == (Answer.INCONCLUSIVE, ())


def test_a_number_that_is_no_result_does_not_decide_where_a_result_repeats():
    spread = ("throttle", "1234")
    assert decide(trials(metrics=[("loss", "1111"), spread]))[2].answer is Answer.SAME
    assert decide(trials(metrics=[("loss", "1122"), spread]))[2].answer is Answer.MATTERS
    assert decide(trials(metrics=[("loss", "1232"), spread]))[2].answer is Answer.INCONCLUSIVE
    assert decide(trials(metrics=[spread]))[2].answer is Answer.INCONCLUSIVE


def test_a_result_that_equals_the_thread_count_is_no_thread_count():
    lines = [["errors: 1"], ["errors: 1"], ["errors: 4"], ["errors: 4"]]
    verdicts = decide(trials(metrics=[("errors", "1144"), ("width", "1144")], lines=lines))
    assert [v.answer for v in verdicts[2:]] == [Answer.MATTERS] * 2
    assert [one.name for one in verdicts[2].compared] == ["errors"]


def test_lines_in_another_order_are_no_proof_of_an_effect():
    lines = [["rank 0", "rank 1"], ["rank 0", "rank 1"], ["rank 1", "rank 0"], ["rank 1", "rank 0"]]
    assert decide(trials(lines=lines))[-1].answer is Answer.INCONCLUSIVE
    lines[2:] = [["rank 1", "rank 2"]] * 2
    assert decide(trials(lines=lines))[-1].answer is Answer.MATTERS


def test_bytes_that_nobody_read_do_not_decide_where_metrics_repeat():
    plots = [{"plot.pdf": replace(file(str(i), parsed=False), role=Role.OTHER)} for i in range(4)]
    for values, answer in (("1111", Answer.SAME), ("1122", Answer.MATTERS), ("1232", Answer.INCONCLUSIVE)):
        verdicts = decide(trials(files=plots, metrics=[("loss", values)]))
        assert verdicts[0].answer is Answer.INCONCLUSIVE
        assert overall(verdicts) is answer
    assert overall(decide(trials(files=plots))) is Answer.INCONCLUSIVE
    pickles = [{"m.pkl": file(str(i), parsed=False)} for i in range(4)]
    assert overall(decide(trials(files=pickles, metrics=[("loss", "1111")]))) is Answer.INCONCLUSIVE


def test_an_exit_status_is_a_result():
    (first, *_) = decide(trials(statuses=(0, 0, 1, 1)))[2].compared
    assert (first.name, first.answer, first.remark) == ("exit status", Answer.MATTERS, "0 | 1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("epoch 1: 0.5 (3.2 s)", "epoch 1: 0.5 (3.4 s)"),
        ("12:00:01 done", "12:00:07 done"),
        ("<Model at 0x7f00>", "<Model at 0x7e11>"),
        ("using 1 thread", "using 4 thread"),
        ("  140513316465616: TensorSpec(shape=())", "  139986012265432: TensorSpec(shape=())"),
        ("UserWarning: 1 is few", "UserWarning: 4 is many"),
        ("speed: 15.2 samples/s", "speed: 18 samples/s"),
        ("{'eval_loss': '0.6', 'eval_runtime': '0.01'}", "{'eval_loss': '0.6', 'eval_runtime': '0.03'}"),
        ("took 3 in all, pid 17", "took 4 in all, pid 99"),
    ],
)
def test_what_passes_is_no_difference_of_the_output(one, other):
    assert comparable(one) == comparable(other)


@pytest.mark.parametrize("text", ["01" * 32_000, "deadbeef12" * 6_400, "W1234 " * 10_000])
def test_long_lines_are_compared_in_a_time_that_grows_as_they_do(text):
    assert comparable(f"mask {text}") == comparable(f"mask {text}")


def test_the_first_line_that_differs_is_shown_in_both_versions():
    lines = [["same", "a 0.5", "end"]] * 2 + [["same", "a 0.6", "end"]] * 2
    verdicts = decide(trials(lines=lines, files=[{}] * 4))
    assert verdicts[3].answer is Answer.MATTERS
    assert (verdicts[3].compared[0].name, verdicts[3].compared[0].remark) == ("line 2", "a 0.5\na 0.6")
    assert overall(verdicts) is Answer.MATTERS  # there was nothing else


def test_a_line_is_shown_as_it_was_printed_with_its_number():
    one, other = (["warning: slow", f"epoch 1 loss: {loss}"] for loss in (0.5, 0.6))
    (line,) = decide(trials(lines=[one, one, other, other], files=[{}] * 4))[3].compared
    assert (line.name, line.remark) == ("line 2", "epoch 1 loss: 0.5\nepoch 1 loss: 0.6")


def test_the_line_of_code_below_a_warning_is_no_output():
    warned = ["/lib/loader.py:600: UserWarning: 2 workers are many", "  self.check()", "loss 0.5"]
    lines = [["loss 0.5"]] * 2 + [warned] * 2
    assert decide(trials(lines=lines, files=[{}] * 4))[3].answer is Answer.SAME


def test_lines_that_state_the_thread_count_are_no_evidence_of_a_difference():
    lines = [["n_jobs=1", "end"]] * 2 + [["n_jobs=4", "end"]] * 2
    found = decide(trials(lines=lines, files=[{}] * 4))[3]
    assert [found.answer, *(each.answer for each in found.compared)] == [Answer.SAME, Answer.SAME]
    lines = [["on 1. Of 0.1"]] * 2 + [["on 4. Of 0.4"]] * 2
    assert decide(trials(lines=lines, files=[{}] * 4))[3].answer is Answer.MATTERS


@pytest.mark.parametrize("name", ["msg_id", "run_id @ t.py:3", "session", "job id", "uuid"])
def test_identifiers_are_no_metrics(name):
    runs = trials(metrics=[(name, "1234"), ("loss", ["0.5"] * 4)])
    assert decide(runs)[2].answer is Answer.SAME


def test_the_output_alone_decides_only_where_there_is_nothing_else():
    lines = [["a 0.5"]] * 2 + [["a 0.6"]] * 2
    assert overall(decide(trials(lines=lines))) is Answer.SAME


def made(answers: dict[str, Answer], cure: Answer | None = None) -> Report:
    verdicts = tuple(LevelVerdict(level=level, answer=a, compared=()) for level, a in answers.items())
    exact = None
    if cure is not None:
        exact = Cure(answer=cure, verdicts=verdicts, pairs=4, ratio=1.1, low=0.9, high=1.3)
    return Report(
        command=("python", "train.py"), factor="thread count", conditions=LABELS, repetitions=2, seed=1,
        answer=overall(verdicts), varied=True, verdicts=verdicts, oversubscribed=(),
        wall_s={"1 thread": [2.0], "4 threads": [1.0, 1.5]}, first_wall_s=3.0, overrides=(), notes=(),
        software={"torch": "2"}, last_lines=(), exact=exact,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "first", "last"),
    [
        (
            {"bitwise": Answer.MATTERS, "predictions": Answer.SAME, "metric": Answer.SAME},
            "The thread count matters: it changes the files; the predictions and metrics are the same.",
            "  vbstudy harden -- python train.py",
        ),
        (
            {"bitwise": Answer.INCONCLUSIVE},
            "Whether the thread count changes the files is inconclusive.",
            "next: vbstudy try --replay -- python train.py",
        ),
        (
            {"metric": Answer.INCONCLUSIVE, "predictions": Answer.SAME},
            "Whether the thread count changes the metrics is inconclusive; the predictions are the same.",
            "next: vbstudy try --replay -- python train.py",
        ),
        (
            {"bitwise": Answer.INCONCLUSIVE, "output": Answer.MATTERS},
            "The thread count changes the output: whether it changes the files is inconclusive.",
            "next: vbstudy try --replay -- python train.py",
        ),
        (
            {"metric": Answer.SAME},
            "The thread count shows no effect: the metrics are the same.",
            "  4 threads: 1.0, 1.5",
        ),
        (
            {"bitwise": Answer.ABSENT, "output": Answer.MATTERS},
            "The thread count matters: it changes the output.",
            "  vbstudy harden -- python train.py",
        ),
        (
            {"metric": Answer.SAME, "output": Answer.MATTERS},
            "The thread count changes the output, and shows no other effect: the metrics are the same.",
            "  4 threads: 1.0, 1.5",
        ),
        ({"bitwise": Answer.ABSENT}, "Nothing was seen that could be compared.", "  4 threads: 1.0, 1.5"),
    ],
)
def test_the_answer_stands_first_and_the_next_command_last(answers, first, last):
    lines = text(made(answers)).splitlines()
    assert (lines[0], lines[-1]) == (first, last)


def test_bytes_that_do_not_repeat_are_not_put_down_to_a_seed_alone():
    plots = [{"plot.pdf": replace(file(str(i), parsed=False), role=Role.OTHER)} for i in range(4)]
    report = replace(made({"bitwise": Answer.INCONCLUSIVE}), verdicts=decide(trials(files=plots)))
    assert "only bytes that were not read as numbers do not repeat" in text(report)


def test_the_bytes_of_a_model_that_cannot_be_read_are_not_called_weights():
    def first(parsed: bool, digests: str) -> str:
        verdicts = tuple(decide(trials(files=[{"m.pkl": file(each, parsed)} for each in digests])))
        return text(replace(made({}), verdicts=verdicts, answer=overall(verdicts))).splitlines()[0]

    assert first(True, "aabb") == "The thread count matters: it changes the weights."
    assert first(False, "aabb") == (
        "The thread count matters: it changes the model files (compared byte for byte)."
    )
    assert first(False, "aaaa") == "The thread count shows no effect: the weights are the same."


def test_what_repeats_on_one_thread_alone_is_put_down_to_the_threads():
    def told(digests: str, software: str) -> list[str]:
        verdicts = tuple(decide(trials(digests)))
        report = replace(made({}), verdicts=verdicts, answer=overall(verdicts))
        return text(replace(report, software={software: "2"})).splitlines()[-3:]

    threads, causes, following = told("aaab", "torch")
    assert "repeats itself on one thread" in threads
    assert "the gradient of x[index] and MKL's first call" in causes
    assert following == "next: vbstudy try --exact -- python train.py"
    assert "repeats itself on one thread" in told("aaab", "xgboost")[-1]
    assert told("abab", "torch")[-1] == "next: vbstudy try --replay -- python train.py"


def test_whether_exact_mode_cures_is_said_second_with_its_price():
    lines = text(made({"bitwise": Answer.MATTERS}, Answer.SAME)).splitlines()
    assert lines[1] == (
        "Exact mode cures it: all runs with it agree. "
        "A whole run takes 1.10 [0.90, 1.30] times the default's (4 pairs, 95 % interval)."
    )
    assert lines[-1] == "next: vbstudy exact -- python train.py"
    lines = text(made({"bitwise": Answer.INCONCLUSIVE}, Answer.SAME)).splitlines()
    assert lines[1].startswith(
        "All runs with exact mode agree; those without it do not repeat themselves. A whole run takes 1.10"
    )
    lines = text(made({"bitwise": Answer.MATTERS}, Answer.MATTERS)).splitlines()
    assert lines[1] == "Exact mode does not cure it: the runs with it differ, too."
    assert lines[-2] == "  vbstudy trace -- python train.py"


@pytest.mark.parametrize("plain", [Answer.SAME, Answer.MATTERS])
def test_exact_mode_is_not_applicable_to_a_program_without_a_framework(plain):
    report = replace(made({"bitwise": plain}, NOT_APPLICABLE), software={"numpy": "2"})
    lines = text(report).splitlines()
    assert lines[1].startswith("Exact mode is not applicable: it is for PyTorch and TensorFlow")
    assert "next: vbstudy exact -- python train.py" not in lines


@pytest.mark.parametrize(
    ("answer", "settings", "commands"),
    [
        (Answer.MATTERS, {}, ["trace --cpus 1,4 --seed 7", "harden --cpus 1,2,4 --seed 7"]),
        (Answer.MATTERS, {"software": {}},
         ["try --which --cpus 1,2,4 --seed 7", "harden --cpus 1,2,4 --seed 7"]),
        (Answer.MATTERS, {"seed": None}, ["trace --replay --cpus 1,4"]),
        (Answer.MATTERS, {"factor": "instruction set"},
         ["try --vary isa --exact --cpus 1,2,4 --seed 7"]),
        (Answer.INCONCLUSIVE, {}, ["try --replay --cpus 1,2,4"]),
    ],
)  # fmt: skip
def test_the_next_commands_have_the_seed_and_the_thread_counts_that_were_given(answer, settings, commands):
    report = replace(made({"bitwise": answer}), **{"seed": 7, **settings})
    told = [line.partition("vbstudy ")[2] for line in text(report, (1, 2, 4)).splitlines()]
    assert list(filter(None, told)) == [f"{command} -- python train.py" for command in commands]


def test_the_cost_is_of_the_runs_that_have_a_core_for_each_thread(monkeypatch):
    monkeypatch.setattr(conditions, "host_cores", lambda: (0, 1))
    runs = [
        Trial(
            condition=f"{kind} {threads}", threads=threads, repetition=n, wall_s=wall_s, metrics={}, files={}
        )
        for kind, factor in (("plain", 1.0), ("exact", 1.5))
        for threads, wall_s in ((2, 2.0 * factor), (4, 2.0 * factor**3))
        for n in (1, 2, 3)
    ]
    assert cost(runs, {"exact 2": "plain 2", "exact 4": "plain 4"})[0::3] == (1.5, 2)
    assert cost(runs, {"exact 4": "plain 4"}) == (None, None, None, 0)
