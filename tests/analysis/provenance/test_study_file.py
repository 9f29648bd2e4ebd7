"""What of a study file leaves the house."""

import re
import tomllib

import pytest

from analysis.load.study import load_study
from analysis.provenance.study_file import TABLES, public_study_file, study_file_of
from orchestrator.study import schema
from orchestrator.study.providers import PROVIDER_TABLES, VirtualBoxTable
from tests.analysis.provenance.test_overrides import as_project

PRIVATE = {
    "": {"data"},
    "workload": {"wheels"},
    "engine": {"kind", "scheduler", "security", "cluster", "workers_wait_s"},
    "provider": {"hosts", "host_key", "user", "key", "url", "python", "folder"},
}
STUDY = """\
# the token is s3cret
name = "x"
cpus = [1, 2]
[data]
folder = "/home/eve/data"
[engine]
kind = "dask"
scheduler = "tcp://node1.example:8786"
retries = 3
[provider]
kind = "virtualbox"
base = "/home/eve/debian.vdi"
user = "eve"
key = "/home/eve/id"
[[workload]]
model = "lenet5"
dataset = "digits"
[[workload]]
project = "../mine"
command = ["python", "train.py"]
wheels = "/home/eve/wheels"
metrics.accuracy.pattern = "acc ([0-9.]+)"
"""


def test_only_what_repeats_the_study_is_published():
    text, left_out = public_study_file(STUDY)
    assert tomllib.loads(text) == {
        "name": "x",
        "cpus": [1, 2],
        "engine": {"retries": 3},
        "provider": {"kind": "virtualbox", "base": "debian.vdi"},
        "workload": [
            {"model": "lenet5", "dataset": "digits"},
            {
                "project": "mine",
                "command": ["python", "train.py"],
                "metrics": {"accuracy": {"pattern": "acc ([0-9.]+)"}},
            },
        ],
    }
    for private in ("eve", "node1", "s3cret", "#"):
        assert private not in text
    assert left_out == [
        "data", "engine.kind", "engine.scheduler", "provider.user", "provider.key", "workload.wheels",
    ]  # fmt: skip
    assert isinstance(schema.parse(text).provider, VirtualBoxTable)


@pytest.mark.parametrize(
    ("provider", "published"),
    [
        (
            'kind = "ssh"\nhosts = [{host = "a.example", user = "eve", cpus = 4}, {host = "b", cpus = 8}]',
            [("machine-1.invalid", None, 4), ("machine-2.invalid", None, 8)],
        ),
        ('kind = "qemu"\nimage = "/home/eve/debian.qcow2"\npython_version = "3.11"', "debian.qcow2"),
    ],
)
def test_a_published_study_file_is_one_that_every_command_reads(provider, published):
    text, _ = public_study_file(
        f'[provider]\n{provider}\n[[workload]]\nmodel = "lenet5"\ndataset = "digits"\n'
    )
    assert not re.search(r"example|eve", text)
    read = schema.parse(text).provider
    hosts = [(host.host, host.user, host.cpus) for host in getattr(read, "hosts", ())]
    assert (hosts or str(read.image)) == published
    assert public_study_file(text)[0] == text


@pytest.mark.parametrize(
    ("project", "published"),
    [
        ("/home/eve/secret/net", "net"),
        ("~/secret/net/", "net"),
        ("..", ".."),
        ("/home/eve/net.git@0123abc", "net.git@0123abc"),
        ("file:///home/eve/net@0123abc", "file:///net@0123abc"),
        ("https://host/eve/net.git@0123abc", "https://host/eve/net.git@0123abc"),
        ("git@host:eve/net.git", "git@host:eve/net.git"),
    ],
)
def test_of_a_project_on_this_machine_the_name_is_published(project, published):
    text, _ = public_study_file(STUDY.replace("../mine", project))
    assert tomllib.loads(text)["workload"][1]["project"] == published


def test_a_study_file_that_is_made_from_runs_names_a_project_as_a_published_one(study):
    as_project(study.run(1, workload="mine"))
    (workload,) = tomllib.loads(study_file_of(load_study(study.directory)))["workload"]
    assert workload["project"] == "mine"


def test_every_key_of_a_study_file_is_either_published_or_named_as_private_here():
    """A new key is private until somebody decides."""
    workload = {*schema.WorkloadTable.model_fields, *schema.ProjectTable.model_fields}
    tables = [table for path, table in PROVIDER_TABLES.items() if path.count(".") == 1]
    known = {
        "": set(schema.Study.model_fields),
        "workload": workload,
        "engine": set(schema.EngineTable.model_fields),
        "provider": {key for table in tables for key in table.model_fields},
    }
    for table, keys in known.items():
        assert keys - set(TABLES[table]) == PRIVATE[table], table


@pytest.mark.parametrize("text", ["cpus = [", "\x00"])
def test_what_is_not_toml_is_an_error(text):
    with pytest.raises(tomllib.TOMLDecodeError):
        public_study_file(text)


@pytest.mark.parametrize("text", ["provider = 3", "workload = 3", "workload = [3]", "engine = [[1]]"])
def test_a_study_file_of_another_shape_does_no_harm(text):
    assert public_study_file(text)[0].strip() in (text, "workload = []", "engine = []")


@pytest.mark.parametrize(
    "hosts", ["3", "[3]", '["h1.example"]', '[{host = "h1.example", cpus = ["h1.example"]}]']
)
def test_hosts_of_another_shape_do_no_harm(hosts):
    assert "example" not in public_study_file(f"provider.hosts = {hosts}")[0]
