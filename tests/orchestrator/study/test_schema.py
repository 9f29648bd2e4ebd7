import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.records.run import Seeds, Variant
from orchestrator.errors import UsageError
from orchestrator.study import schema, template

MINIMAL = '[[workload]]\nmodel = "lenet5"\ndataset = "digits"\n'


def message(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        schema.parse(text)
    return caught.value.message


@pytest.mark.parametrize("dataset", template.DEFAULT_DATASETS)
def test_the_template_is_a_valid_study(dataset):
    parsed = schema.parse(template.template("demo", (1, 2), dataset))
    assert parsed.name == "demo"
    assert parsed.cpus == (1, 2)
    assert parsed.repetitions == 3
    assert parsed.variants == (Variant.FIXED_SEED, Variant.DEFAULT)
    assert parsed.workload[0].dataset == dataset


def test_every_commented_default_of_the_template_is_the_real_default():
    lines = template.template("demo", (1, 2), "digits").splitlines()
    commented = {}
    table = ""
    for line in lines:
        bare = line.removeprefix("# ")
        if line.startswith("# [") and line.rstrip().endswith("]"):
            table = bare.strip("[] ")
        elif line.startswith("# ") and table == "engine" and " = " in bare:
            key, value = bare.split("#")[0].split("=")
            commented[key.strip()] = value.strip()
    defaults = schema.EngineTable()
    assert set(commented) == set(schema.EngineTable.model_fields) - {"cluster"}
    for key, value in commented.items():
        default = getattr(defaults, key)
        assert default is None or str(default).lower().removesuffix(".0") == value.strip('"')


def test_every_key_of_every_table_stands_in_the_template():
    text = template.template("demo", (1, 2), "digits")
    for table in set(schema.TABLES.values()):
        for name, field in table.model_fields.items():
            assert f"{name} = " in text or f"[{name}" in text or f".{name}]" in text, (table, field)


@pytest.mark.parametrize("kind", ["local", "qemu", "vagrant", "ssh"])
def test_every_provider_of_the_template_is_one(kind):
    lines = template.template("demo", (1, 2), "digits").splitlines()
    first = next(i for i in range(lines.index("# [provider]"), len(lines)) if f'kind = "{kind}"' in lines[i])
    last = next(i for i in range(first, len(lines)) if lines[i] in ("# or", "# [engine]"))
    table = "\n".join(line.removeprefix("# ") for line in lines[first:last] if "host_key" not in line)
    assert schema.parse(f"{MINIMAL}\n[provider]\n{table}\n").provider.kind == kind


@pytest.mark.parametrize("kind", ["local", "ssh", "slurm"])
def test_every_cluster_of_the_template_is_one(kind):
    lines = template.template("demo", (1, 2), "digits").splitlines()
    begin = lines.index("# [engine.cluster]")
    first = next(i for i in range(begin, len(lines)) if lines[i].startswith(f'# kind = "{kind}"'))
    last = next(i for i in range(first, len(lines)) if lines[i] in ("", "# or"))
    table = "\n".join(line.removeprefix("# ") for line in lines[first:last])
    parsed = schema.parse(f'{MINIMAL}\n[engine]\nkind = "dask"\n[engine.cluster]\n{table}\n')
    assert parsed.engine.cluster is not None
    assert parsed.engine.cluster.model_fields_set == set(type(parsed.engine.cluster).model_fields)
    again = schema.Study.model_validate_json(parsed.model_dump_json(exclude_unset=True))
    assert again == parsed, "it travels to the hosts as it is"


def test_a_study_file_of_an_older_vbstudy_is_read():
    engine = schema.parse(f"{MINIMAL}[engine]\ndisturbed_above = 0.5\nredo_disturbed = true\n").engine
    assert (engine.contended_above, engine.redo_contended) == (0.5, True)


def test_a_minimal_study_has_the_documented_defaults():
    parsed = schema.parse(MINIMAL)
    assert parsed.cpus == (1, 2, 4, 8)
    assert parsed.workload[0].name == "lenet5-digits-torch"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "study.toml: is empty"),
        ("cpus = [1,\n", "study.toml: is not TOML"),
        ("cpus = [0]\n" + MINIMAL, "study.toml:1: cpus[0] = 0: input should be greater than or equal to 1"),
        ("cpus = [-2]\n" + MINIMAL, "study.toml:1: cpus[0] = -2"),
        ('cpus = ["two"]\n' + MINIMAL, "study.toml:1: cpus[0] = 'two': input should be a valid integer"),
        ("cpus = [2, 2]\n" + MINIMAL, "study.toml:1: cpus = [2, 2]: 2 is named twice"),
        (
            "seed = 2\nrepetitions_at_most = {exact = 3, default = 1}\n" + MINIMAL,
            "study.toml:2: repetitions_at_most: the study's variants are fixed-seed, default, without exact",
        ),
        (
            "[provider]\nkind = 'qemu'\ncpu_model = ['max', 'max']\n" + MINIMAL,
            "study.toml:3: provider.cpu_model = ['max', 'max']: 'max' is named twice",
        ),
        (
            "[provider]\nkind = 'qemu'\ncpu_model = '; rm'\n" + MINIMAL,
            "study.toml:3: provider.cpu_model = '; rm': a model as `qemu-system-x86_64 -cpu help` lists it",
        ),
        ("[provider]\nkind = 'qemu'\ncpu_model = []\n" + MINIMAL, "cpu_model = []: at least one is needed"),
        ("cpus = []\n" + MINIMAL, "study.toml:1: cpus = []: at least one is needed"),
        ("cpus = [1000000]\n" + MINIMAL, "study.toml:1: cpus[0] = 1000000: input should be less than"),
        ("cpu = [1]\n" + MINIMAL, "study.toml:1: cpu: unknown key; allowed are analysis, cpus"),
        (
            MINIMAL + "[engine]\nheartbeat_s = 200\n",
            "study.toml:4: engine: heartbeat_s = 200 must be below lost_after_s = 120",
        ),
        *(
            (
                MINIMAL + f"[engine]\n{key} = inf\n",
                f"study.toml:5: engine.{key} = inf: input should be a finite",
            )
            for key in ("timeout_s", "lost_after_s", "workers_wait_s")
        ),
        *(
            (
                MINIMAL + f"[engine]\n{key} = 1e10\n",
                f"study.toml:5: engine.{key} = 10000000000.0: input should be less than or equal to 31536000",
            )
            for key in ("timeout_s", "heartbeat_s", "lost_after_s", "workers_wait_s")
        ),
        (
            MINIMAL + "[engine]\nresults = 'through-worker'\n",
            "study.toml:5: engine.results: unknown key; allowed are cluster",
        ),
        (
            MINIMAL + "[engine]\nkind = 'dask'\n[engine.cluster]\nkind = 'pbs'\n",
            "study.toml:7: engine.cluster.kind = 'pbs': allowed are local, ssh, slurm",
        ),
        (
            MINIMAL + "[engine]\nkind = 'das'\n",
            "engine.kind = 'das': allowed are local, dask; did you mean 'dask'?",
        ),
        (
            MINIMAL + "[engine]\nscheduler = 'tcp://h:1'\n",
            'scheduler, security and cluster belong to kind = "dask"',
        ),
        (
            MINIMAL + "[engine]\nkind = 'dask'\nscheduler = 'http://h'\n",
            "study.toml:6: engine.scheduler = 'http://h': an address like 'tcp://host:8786'",
        ),
        (
            MINIMAL + "[engine]\nkind = 'dask'\nscheduler = 'tls://h:1'\n",
            "engine: a tls:// scheduler needs security",
        ),
        (
            MINIMAL + "[engine]\nkind = 'dask'\nscheduler = 'tcp://h:1'\ncluster.kind = 'local'\n",
            "either a scheduler that is there, or a cluster that is started",
        ),
        (
            MINIMAL + "[engine]\nkind = 'dask'\n[engine.cluster]\nkind = 'ssh'\nhost = 'a'\ncores = 0\n",
            "study.toml:9: engine.cluster.cores = 0: input should be greater",
        ),
        (
            MINIMAL + "[engine]\nkind = 'dask'\n[engine.cluster]\nkind = 'ssh'\nhost = 'a'\n",
            "study.toml:8: engine.cluster.host: unknown key; allowed are cores, hosts, key",
        ),
        (
            MINIMAL
            + "[engine]\nkind = 'dask'\nsecurity = 's'\n[engine.cluster]\nkind = 'ssh'\nhosts = ['a']\n"
            "cores = 1\nmemory_mib = 1\n",
            "a cluster of kind ssh cannot use TLS",
        ),
        (
            MINIMAL + "[engine]\nkind = 'dask'\n[engine.cluster]\nkind = 'lsf'\n",
            "study.toml:7: engine.cluster.kind = 'lsf': allowed are local, ssh, slurm",
        ),
        (MINIMAL.replace("lenet5", "lenet6"), "study.toml:2: workload[0].model = 'lenet6': allowed are"),
        (MINIMAL.replace("digits", "digit"), "did you mean 'digits'?"),
        (
            MINIMAL + "train_samples = 1263\n",
            "study.toml:4: workload[0].train_samples = 1263: digits has 1262 training samples",
        ),
        (
            MINIMAL + "test_samples = 300\n",
            "study.toml:4: workload[0].test_samples = 300: digits has 268 test samples; 300 were asked for",
        ),
        (MINIMAL + "epoch = 3\n", "study.toml:4: workload[0].epoch: unknown key; allowed are augment"),
        (MINIMAL + 'framework = "tensorflo"\n', "allowed are torch, tensorflow; did you mean 'tensorflow'?"),
        (
            MINIMAL + "learning_rate = 1e39\n",
            "workload[0].learning_rate = 1e+39: input should be less than or equal to 1000000",
        ),
        (
            MINIMAL + "weight_decay = 1e39\n",
            "workload[0].weight_decay = 1e+39: input should be less than or equal to 1000000",
        ),
        (MINIMAL + 'optimizer = "adam"\nmomentum = 0.9\n', "momentum belongs to optimizer = 'sgd'"),
        (
            MINIMAL + "epochs = 76923\n",
            "workload 'lenet5-digits-torch' has epochs = 76923: with its metrics, at most 76922 are kept",
        ),
        (MINIMAL + 'epochs = 66666\nmetrics = ["accuracy", "f1_macro"]\n', ", at most 62499 are kept"),
        (MINIMAL.replace("lenet5", "lstm"), "lstm"),
        (
            MINIMAL + "batch_size = 1263\n",
            "study.toml:1: workload[0]: batch_size = 1263 is more than the 1262 training samples",
        ),
        (
            MINIMAL + "batch_size = 101\ntrain_samples = 100\n",
            "batch_size = 101 is more than the 100 training samples",
        ),
        (
            MINIMAL.replace("lenet5", "lstm").replace("digits", "headlines") + "augment = true\n",
            "study.toml:1: workload[0]: augment = true is for images, and headlines is text data",
        ),
        (
            'metrics = ["accuracy", "f1_binary"]\n' + MINIMAL,
            "'lenet5-digits-torch' has the metric f1_binary, which is for two classes, and digits has 10",
        ),
        (MINIMAL + 'metrics = ["f1_binary"]\n', "and digits has 10: write f1_macro"),
        (MINIMAL + MINIMAL, "two workloads are named 'lenet5-digits-torch'"),
        ('variants = ["fixed"]\n' + MINIMAL, "did you mean 'fixed-seed'?"),
        ("[engine]\nretrys = 1\n" + MINIMAL, "study.toml:2: engine.retrys: unknown key"),
        ("[seeds]\ndropout = 'fre'\n" + MINIMAL, "study.toml:2: seeds.dropout = 'fre'"),
        ('[provider]\nkind = "vmware"\n' + MINIMAL, "study.toml:2: provider.kind = 'vmware': allowed are"),
        ("seed = -1\n" + MINIMAL, "study.toml:1: seed = -1"),
        ('name = "../x"\n' + MINIMAL, "study.toml:1: name = '../x': letters, digits"),
        ("repetitions = 3\n", "study.toml: workload: is missing"),
    ],
)
def test_a_wrong_study_is_told_by_line_key_value_and_what_is_allowed(text, expected):
    assert expected in message(text)


def test_what_a_network_can_train_with_is_accepted():
    texts = MINIMAL.replace("lenet5", "lstm").replace("digits", "headlines")
    most = 'metrics = ["accuracy"]\nbatch_size = 1262\nepochs = 76922\n'
    parsed = schema.parse(f'metrics = ["f1_binary"]\n{texts}{MINIMAL}{most}')
    assert [table.batch_size for table in parsed.networks] == [64, 1262]


def test_the_line_of_the_second_workload_is_found():
    text = MINIMAL + '\n[[workload]]\nname = "b"\nmodel = "lenet5"\ndataset = "nowhere"\n'
    assert message(text).startswith("study.toml:8: workload[1].dataset = 'nowhere'")


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (f"{MINIMAL}\n[analysis]\nmargin = 1\n", "6: analysis.margin = 1: "),
        (f'{MINIMAL}\n[analysis]\nprimary = "auc"\n', "6: analysis.primary = 'auc': "),
        (f'{MINIMAL}\nname = "a"\n{MINIMAL}name = "a"\n', "6: two workloads are named 'a'"),
        (f'{MINIMAL}name = "a"\n{MINIMAL}name = "b"\nvariants = ["exact"]\n', "5: workload 'b' has variants"),
        (f"seeds = 5\nvariants = ['default']\n{MINIMAL}", " 5 seeds are crossed"),
    ],
)
def test_errors_of_several_keys_name_the_line_of_the_one_that_they_begin_with(text, begins):
    assert message(text).startswith(f"study.toml:{begins}")


def test_a_wrong_entry_is_told_once():
    assert len(message(MINIMAL + 'framework = "torhc"\n').splitlines()) == 1


@pytest.mark.parametrize("value", ["-5", "2147483648", "true", "'7'", "7.0", "'fre'"])
def test_a_seed_of_a_factor_is_a_number_that_generators_take(value):
    (line,) = message(f"{MINIMAL}[seeds]\ndropout = {value}\n").splitlines()
    assert line.startswith("study.toml:5: seeds.dropout = ")
    assert line.endswith(": a whole number from 0 to 2147483647 is needed, or 'free'")


OWN = """\
[[workload]]
name = "mine"
project = "mine"
command = ["python"]
metrics.accuracy.pattern = "([0-9.]+)"
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (MINIMAL + '[data]\nfolder = "a\\u0000"\n', "data.folder = 'a\\x00'"),
        (OWN + 'wheels = "\\u0000"\n', "workload[0].wheels = '\\x00'"),
        (OWN.replace('["python"]', '["python", "\\u0000"]'), "workload[0].command = ['python', '\\x00']"),
        (OWN + 'artifacts.weights = "\\u0000"\n', "workload[0].artifacts.weights = '\\x00'"),
        (MINIMAL + '[provider]\npython = "\\u0000"\n', "provider.python = '\\x00'"),
        (MINIMAL + '[engine]\nkind = "dask"\nsecurity = "\\u0000"\n', "engine.security = '\\x00'"),
    ],
)
def test_no_text_of_a_study_has_a_nul(text, key):
    assert f"{key}: has a NUL character, which no path" in message(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OWN + f"disk_limit_mib = {2**44}\n", "workload[0].disk_limit_mib = 17592186044416: input should be"),
        (MINIMAL + f"train_samples = {2**31}\n", "workload[0].train_samples = 2147483648: input should be"),
        (f"repetitions = {2**31}\n" + MINIMAL, "repetitions = 2147483648: input should be less than"),
        (
            MINIMAL + f'[engine]\nkind = "dask"\n[engine.cluster]\nkind = "local"\nworkers = {2**31}\n',
            "engine.cluster.workers = 2147483648: input should be less than",
        ),
    ],
)
def test_numbers_of_a_study_have_bounds(text, expected):
    assert expected in message(text)


NUMBERS = {
    MINIMAL: ("learning_rate", "momentum", "weight_decay"),
    MINIMAL + "[engine]\n": ("timeout_s", "heartbeat_s", "lost_after_s", "contended_above", "workers_wait_s"),
    MINIMAL + '[provider]\nkind = "qemu"\n': ("boot_timeout_s",),
    OWN: ("timeout_s",),
}
SWITCHES = {
    MINIMAL: ("augment",),
    MINIMAL + "[engine]\n": ("side_by_side", "hyper_threads", "redo_contended"),
    MINIMAL + '[provider]\nkind = "qemu"\n': ("snapshot",),
    MINIMAL + '[provider]\nkind = "virtualbox"\nbase = "a"\n': ("cloud_init", "nested_paging"),
    OWN: ("metrics.loss.report",),
}


@pytest.mark.parametrize("value", ["true", "'0.5'"])
@pytest.mark.parametrize(("table", "key"), [(table, key) for table, keys in NUMBERS.items() for key in keys])
def test_a_text_and_a_boolean_are_no_numbers(table, key, value):
    assert re.search(
        rf"\b{key} = (True|'0.5'): input should be a valid number", message(f"{table}{key} = {value}\n")
    )


@pytest.mark.parametrize("value", ["1", "'yes'"])
@pytest.mark.parametrize(("table", "key"), [(table, key) for table, keys in SWITCHES.items() for key in keys])
def test_a_number_and_a_text_are_no_booleans(table, key, value):
    assert re.search(
        rf"\b{key} = (1|'yes'): input should be a valid bool", message(f"{table}{key} = {value}\n")
    )


def test_a_whole_number_is_a_number():
    table = schema.parse(f"{MINIMAL}learning_rate = 1\n[engine]\ntimeout_s = 60\n")
    assert (table.networks[0].learning_rate, table.engine.timeout_s) == (1.0, 60.0)


def test_several_mistakes_are_told_at_once():
    assert len(message("cpus = [0]\nseed = 'x'\n" + MINIMAL).splitlines()) == 2


def test_a_study_that_is_missing_a_folder_or_not_text_is_told(tmp_path):
    with pytest.raises(UsageError, match="there is no study here"):
        schema.load(tmp_path / "study.toml")
    with pytest.raises(UsageError, match="is a folder"):
        schema.load(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        schema.load(binary)


def test_seeds_are_free_where_the_variant_or_the_table_says_so():
    parsed = schema.parse("seed = 5\n[seeds]\ndata_order = 'free'\ndropout = 9\n" + MINIMAL)
    assert parsed.factor_seeds(Variant.FIXED_SEED) == Seeds(
        initialisation=5, data_order=None, augmentation=5, dropout=9
    )
    assert parsed.factor_seeds(Variant.ALGO) == Seeds()


@given(st.lists(st.integers(1, 1024), min_size=1, max_size=8, unique=True))
def test_counts_typed_on_the_command_line_are_read_back(counts):
    assert schema.parse_counts(",".join(map(str, counts))) == tuple(counts)


@pytest.mark.parametrize("text", ["0", "-1", "1,,2", "two", "1,1", "999999", "", "1.5", "1;2"])
def test_wrong_counts_are_told_by_the_piece(text):
    with pytest.raises(UsageError, match="--cpus"):
        schema.parse_counts(text)


@given(st.text(max_size=200))
def test_no_text_makes_parsing_fail_in_another_way(text):
    with pytest.raises(UsageError):
        schema.parse(text)


def test_an_edit_keeps_comments_and_says_what_changed(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(template.template("demo", (1, 2), "digits"))
    before = path.read_text()
    text, changed = template.edited(path, (1, 4), None)
    assert changed == "cpus changed from [1, 2] to [1, 4]"
    assert text == before.replace("cpus = [1, 2]", "cpus = [1, 4]")
    assert template.edited(path, (1, 2), "local") == (before, "")
    with pytest.raises(UsageError, match=r"names no hosts; .*\[\[provider.hosts\]\] with host and cpus"):
        template.edited(path, None, "ssh")


def test_the_settings_of_a_former_provider_stay_as_comments(tmp_path):
    path = tmp_path / "study.toml"
    net = '[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'
    path.write_text(f'[provider]\nkind = "qemu"\nmemory_mib = 700\n\n{net}')
    text, changed = template.edited(path, None, "local")
    assert changed == "provider changed from qemu to local"
    assert schema.parse(text).provider.kind == "local"
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# [provider]",
        '# kind = "qemu"',
        "# memory_mib = 700",
    ]
    assert text.endswith(net)


SSH = '[provider]\nkind = "ssh"\n'
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0fYcOQk3cYyW4nQm5m0o1q2w3e4r5t6y7u8i9o0p1a"
HOST = '[[provider.hosts]]\nhost = "a"\ncpus = 1\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SSH, "study.toml:1: provider.hosts: is missing"),
        (SSH + "hosts = []\n", "study.toml:3: provider.hosts = []: at least one is needed"),
        (SSH + 'hosts = [{host = "a", cpus = 0}]\n', "study.toml:3: provider.hosts[0].cpus = 0: input"),
        (SSH + HOST + HOST, "host 'a' is named twice with the same user and port"),
        *(
            (
                SSH + HOST.replace('"a"', f'"{host}"'),
                f"provider.hosts[0].host = '{host}': a host name or an addr",
            )
            for host in ("me@a", "a:2222", "[::1]", "ssh://a", "-a")
        ),
        (
            SSH + HOST + 'python = "~/venv/bin/python"\n',
            "python = '~/venv/bin/python': a command, or a path on",
        ),
        (SSH + 'hosts = [{host = "a", cpus = 2}, {host = "b"}]\n', "3: provider.hosts[1].cpus: is missing"),
        (SSH + 'hosts = [{host = "-oX", cpus = 1}]\n', "a host name or an address is needed"),
        (SSH + HOST + 'folder = "~you/x"\n', "a folder in the account's home, or a path that begins with /"),
        (SSH + HOST + 'folder = "~/"\n', "study.toml:6: provider.hosts[0].folder = '~/': a folder in the"),
        (SSH + HOST + 'host_key = "x"\n', "study.toml:6: provider.hosts[0].host_key = 'x': is not a public"),
        (
            SSH + HOST + f'host_key = "{KEY}"\nknown_hosts = "b"\n',
            "study.toml:3: provider.hosts[0]: host_key and known_hosts each say which key it must show",
        ),
        (
            SSH + HOST + HOST + "prot = 3\n",
            "study.toml:9: provider.hosts[1].prot: unknown key; allowed",
        ),
        (SSH + HOST + HOST + "prot = 3\n", "did you mean 'port'?"),
        (SSH + "memory = 3\n" + HOST, "study.toml:3: provider.memory: unknown key; allowed are connect_t"),
        ("[provider]\nhosts = []\n", "study.toml:2: provider.hosts: unknown key; allowed are cpuset, kind"),
        ('[provider]\nkind = "shh"\n', "study.toml:2: provider.kind = 'shh': allowed are local, "),
        ('[provider]\nkind = "shh"\n', "did you mean 'ssh'?"),
    ],
)
def test_a_wrong_provider_table_is_told_by_the_keys_of_its_kind(text, expected):
    assert expected in message(text + MINIMAL)


@pytest.mark.parametrize(("folder", "there"), [("~/x", "x"), ("x", "x"), ("/srv/x", "/srv/x"), ("x~", "x~")])
def test_a_folder_of_an_ssh_host_counts_from_the_accounts_home(folder, there):
    parsed = schema.parse(f'{SSH}{HOST}folder = "{folder}"\n{MINIMAL}').provider
    assert parsed.hosts[0].folder == there


def test_an_ssh_host_has_the_documented_defaults():
    parsed = schema.parse(SSH + 'hosts = [{host = "a", cpus = 4}]\n' + MINIMAL).provider
    assert parsed.kind == "ssh"
    assert (parsed.hosts[0].port, parsed.hosts[0].python, parsed.hosts[0].user) == (22, "python3", None)


BOX = '[provider]\nkind = "virtualbox"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOX, "study.toml:1: provider.base: is missing"),
        (BOX + 'base = ""\n', "study.toml:3: provider.base = '': "),
        (BOX + 'base = "a"\nexecution_cap_percent = 50\n', "provider.execution_cap_percent: unknown key"),
        (BOX + 'base = "a"\nmemory_mib = 8\n', "study.toml:4: provider.memory_mib = 8: "),
        (
            BOX + 'base = "a"\nparavirtualisation = "kvm"\n',
            "study.toml:4: provider.paravirtualisation: unknown",
        ),
        (BOX + 'base = "a"\nexecution_engine = "slow"\n', "allowed are auto, native, interpreter"),
        (BOX + 'base = "a"\nsnapshot = true\n', "study.toml:4: provider.snapshot = True: allowed are live"),
        (
            BOX + 'base = "a.vdi"\nbase_sha256 = "abc"\n',
            "provider.base_sha256 = 'abc': 64 hexadecimal digits",
        ),
        (BOX + 'base = "a.vdi"\nurl = "ftp://x"\n', "provider.url = 'ftp://x': an address that begins with"),
        (BOX + 'base = "a.vdi"\nurl = "https://me@x"\n', "provider.url = 'https://...@x': has a user or"),
        (BOX + 'base = "a.vdi"\nurl = "http://x"\n', "url needs base_sha256, so that what arrives can be"),
        (BOX + f'base = "a"\nbase_sha256 = "{"0" * 64}"\n', "go with a base that is a file (.vdi, .vmdk"),
        (BOX + 'base = "a"\nfolder = "here"\n', "provider.folder = 'here': a path in the guest that begins"),
        (BOX + 'base = "a"\nhost_key = "x"\n', "provider.host_key = 'x': is not a public key"),
        (BOX + 'base = "a"\nmemory = 1\n', "provider.memory: unknown key; allowed are base, base_sha256"),
    ],
)
def test_a_wrong_virtualbox_table_is_told_by_its_keys(text, expected):
    assert expected in message(text + MINIMAL)


def test_a_virtualbox_table_has_the_documented_defaults():
    parsed = schema.parse(BOX + 'base = "box.ova"\n' + MINIMAL).provider
    assert parsed.is_file()
    assert not schema.parse(BOX + 'base = "my machine"\n' + MINIMAL).provider.is_file()
    named = ("memory_mib", "snapshot", "execution_engine")
    assert [getattr(parsed, name) for name in named] == [2048, "live", "auto"]


def test_the_primary_outcome_is_declared_and_checked():
    parsed = schema.parse(f'{MINIMAL}metrics = ["accuracy", "f1_macro"]\n[analysis]\nprimary = "f1_macro"\n')
    assert (parsed.analysis.primary, parsed.analysis.margin) == ("f1_macro", 0.01)
    text = message(f'{MINIMAL}[analysis]\nprimary = "acuracy"\n')
    assert "analysis.primary = 'acuracy': no workload has this metric; allowed are accuracy" in text
    assert "did you mean 'accuracy'?" in text


@pytest.mark.parametrize("margin", ["0", "-0.1", "nan", "inf", "'wide'"])
def test_a_margin_is_a_number_above_0(margin):
    assert "study.toml:6: analysis.margin = " in message(f"{MINIMAL}\n[analysis]\nmargin = {margin}\n")


def test_a_margin_that_no_two_metrics_exceed_is_refused():
    text = message(f"{MINIMAL}\n[analysis]\nmargin = 1\n")
    assert "analysis.margin = 1: metrics of networks are from 0 to 1" in text


def test_a_table_and_a_number_in_place_of_lists_are_told_how_to_be_written():
    assert "cpus = 2: write a list, as [2]" in message(f"cpus = 2\n{MINIMAL}")
    assert "write a list, as [1, 2]" in message(f'cpus = "1,2"\n{MINIMAL}')
    assert message(f"cpus = {{a = 1}}\n{MINIMAL}").endswith("cpus: write a list")
    assert 'write a list, as ["fixed-seed"]' in message(f'variants = "fixed-seed"\n{MINIMAL}')
    assert "write [[workload]], in double brackets" in message('workload = "mlp"')
    assert "write [[workload]], in double brackets" in message(MINIMAL.replace("[[workload]]", "[workload]"))


def test_an_unknown_key_of_analysis_is_named_with_those_allowed():
    text = message(f"{MINIMAL}[analysis]\nmargins = 0.1\n")
    assert "analysis.margins: unknown key; allowed are margin, primary; did you mean 'margin'?" in text
