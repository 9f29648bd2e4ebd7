import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guest.records.run import ProjectSpec
from orchestrator.errors import UsageError
from orchestrator.study import schema
from orchestrator.study.plan import plan

NETWORK = '[[workload]]\nmodel = "lenet5"\ndataset = "digits"\n'
OWN = """\
[[workload]]
name = "mine"
project = "../mine"
command = ["python", "train.py"]
[workload.metrics]
accuracy = { pattern = "acc ([0-9.]+)" }
"""


def message(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        schema.parse(text)
    return caught.value.message


def test_a_project_and_a_network_stand_in_one_study():
    parsed = schema.parse(NETWORK + OWN)
    assert [w.name for w in parsed.workload] == ["lenet5-digits-torch", "mine"]
    assert [w.name for w in parsed.networks] == ["lenet5-digits-torch"]
    assert [w.name for w in parsed.projects] == ["mine"]
    assert [f.value for f in parsed.frameworks] == ["torch"]


def test_a_project_is_planned_with_all_that_the_file_says_of_it():
    text = (
        OWN.replace("train.py", "fit.py")
        + 'train_loss = { file = "log.csv", key = "loss" }\nf1 = { report = true }\n'
    )
    text += '[workload.artifacts]\nweights = "out/m.pt"\n'
    spec = plan(schema.parse(text))[0]
    project = spec.workload.project
    assert isinstance(project, ProjectSpec)
    assert project.command == ("python", "fit.py")
    assert project.weights == "out/m.pt"
    assert [(m.name, m.pattern, m.file, m.key) for m in project.metrics] == [
        ("accuracy", "acc ([0-9.]+)", "", ""),
        ("train_loss", "", "log.csv", "loss"),
        ("f1", "", "", ""),
    ]
    assert spec.workload.metric_names == ("accuracy", "f1")
    assert spec.workload.framework is None


@pytest.mark.parametrize(
    ("project", "is_git", "location", "commit", "name"),
    [
        ("../a/b", False, "../a/b", "", "b"),
        (".", None, None, None, None),
        ("https://host/me/net.git@0123abc", True, "https://host/me/net.git", "0123abc", "net"),
        ("git@host:me/net.git", True, "git@host:me/net.git", "", "net"),
        ("file:///srv/net", True, "file:///srv/net", "", "net"),
        ("me@home", False, "me@home", "", "me-home"),
    ],
)
def test_where_a_project_is_from_is_read(project, is_git, location, commit, name):
    text = OWN.replace('name = "mine"\n', "").replace("../mine", project)
    if is_git is None:
        assert 'gives no name: add name = "..."' in message(text)
        return
    table = schema.parse(text).projects[0]
    assert (table.is_git, table.location, table.commit, table.name) == (is_git, location, commit, name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('command = ["python", "train.py"]\n', ""), "study.toml:1: workload[0].command: is missing"),
        (('project = "../mine"\n', ""), "study.toml:1: workload[0].project: is missing"),
        (("command", "comand"), "unknown key; allowed are artifacts, command"),
        (
            ('["python", "train.py"]', '"python train.py"'),
            "study.toml:4: workload[0].command = 'python train.py': is a list",
        ),
        (('["python", "train.py"]', "[]"), "study.toml:4: workload[0].command"),
        (
            ("([0-9.]+)", "[0-9.]+"),
            "study.toml:6: workload[0].metrics.accuracy.pattern = 'acc [0-9.]+': needs one group",
        ),
        (("([0-9.]+)", "([0-9"), "is no regular expression"),
        (
            ("pattern", "patern"),
            "workload[0].metrics.accuracy.patern: unknown key; allowed are file, key, pattern, report",
        ),
        (("accuracy =", "loss ="), "'loss' is taken; write train_loss"),
        (("accuracy =", "train_loss ="), "beside losses one metric is needed"),
        (("accuracy =", '"a b" ='), "'a b': letters, digits and '_' only"),
        (('pattern = "acc ([0-9.]+)"', 'file = "a.json"'), "file and key belong together"),
        (
            ('pattern = "acc ([0-9.]+)"', 'file = "../a.json", key = "x"'),
            "is a path below the project's folder",
        ),
        (('pattern = "acc ([0-9.]+)"', 'pattern = "(a)", report = true'), "it has pattern and report"),
        (('name = "mine"', 'requirements = "/etc/passwd"'), "is a path below the project's folder"),
        (('name = "mine"', "epochs = 3"), "workload[0].epochs: unknown key"),
        (('name = "mine"', "disk_limit_mib = 0"), "workload[0].disk_limit_mib = 0"),
        (('name = "mine"', "timeout_s = -1"), "workload[0].timeout_s = -1"),
    ],
)
def test_a_wrong_project_is_told_by_line_key_and_what_is_allowed(change, told):
    assert told in message(OWN.replace(*change))


def test_a_mistake_in_the_second_project_is_told_with_its_line():
    second = OWN.replace('"mine"', '"other"').replace("([0-9.]+)", "x")
    assert message(OWN + second).startswith("study.toml:12: workload[1].metrics.accuracy.pattern")


@pytest.mark.parametrize("name", ["weights", "predictions"])
def test_a_pickle_as_artifact_is_refused_in_the_study_file(name):
    text = OWN + f'[workload.artifacts]\n{name} = "out/model.pkl"\n'
    assert f"study.toml:8: workload[0].artifacts.{name} = 'out/model.pkl': is a pickle" in message(text)


def test_seeds_by_factor_and_selected_models_are_not_for_projects():
    assert "workload 'mine' is a project, which has one seed" in message("[seeds]\ndropout = 3\n" + OWN)
    assert "only the last model is known" in message('model_selection = "selected"\n' + OWN)
    schema.parse("[seeds]\ndropout = 1\n" + OWN)


def test_a_workload_that_is_no_table_is_told():
    assert "workload[0] = 3" in message("workload = [3]\n")


@given(st.text(max_size=30))
@example("[[")
@example("[[]acc] ([0-9.]+)")
def test_no_pattern_fails_in_another_way_than_a_usage_error(text):
    import json

    try:
        schema.parse(OWN.replace('"acc ([0-9.]+)"', json.dumps(text, ensure_ascii=True)))
    except UsageError:
        return


@pytest.mark.parametrize(
    "url",
    [
        "https://me:s3cret@host/net.git",
        "https://s3cret@host/net.git@0123abc",
        "ssh://git:s3cret@host/net.git",
        "git://me:s3cret@host/net",
    ],
)
def test_a_url_with_a_password_is_refused_and_the_password_not_repeated(url):
    told = message(OWN.replace("../mine", url))
    assert "has a user or password in it" in told
    assert "credential helper" in told
    assert "s3cret" not in told


@pytest.mark.parametrize("url", ["ssh://git@host/net.git", "git@host:me/net.git", "https://host/a@b/net.git"])
def test_a_url_with_the_name_of_an_account_alone_is_taken(url):
    assert schema.parse(OWN.replace("../mine", url)).projects[0].project == url
