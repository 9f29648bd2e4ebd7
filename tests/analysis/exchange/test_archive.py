from __future__ import annotations

import codecs
import hashlib
import json
import stat
import warnings
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.exchange import archive
from analysis.exchange.archive import ALLOWED, ArchiveError, DamagedStudyError, pack, unpack
from analysis.exchange.verify import verify
from analysis.load.study import NothingToAnalyse, load_study
from analysis.pipeline import analyze
from analysis.results.printing import Format, render
from guest.records import bounded
from guest.records.bounded import Limit
from guest.records.codec import NewerSchemaError, seal
from guest.records.run import CPU_MODEL, HISTORY, RECORD, SCHEMA_VERSION, Tier, Variant, machine_id
from tests import factories
from tests.analysis.conftest import Fabricator
from tests.analysis.exchange.test_verify import what_lies_beside
from tests.security.test_older_schemas import as_written


@pytest.fixture
def packed(study, tmp_path):
    study.usual(runs=1)
    (study.directory / "study.toml").write_text('name = "x"\n')
    target = tmp_path / "out" / "x.zip"
    assert pack(study.directory, target) == 6
    return target


def rewritten(path, change):
    """The archive again, with `change` applied to its list of (entry, data)."""
    with zipfile.ZipFile(path) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for entry, data in change(entries):
            archive.writestr(entry, data)
    return path


def refused(path, target, match):
    with pytest.raises(ArchiveError, match=match):
        unpack(path, target)
    assert not target.exists()
    assert not list(target.parent.glob(f".{target.name}*")), "nothing of it is kept"


def test_the_folder_in_an_archive_keeps_the_letters_of_the_study(tmp_path):
    Fabricator(tmp_path / "Fäden (1)").run(1)
    pack(tmp_path / "Fäden (1)", tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"Faden-1"}


@pytest.mark.needs("studies")
def test_what_is_unpacked_gives_the_same_analysis(study, packed, tmp_path):
    unpack(packed, tmp_path / "again")
    texts = [render(analyze(folder), Format.JSON) for folder in (study.directory, tmp_path / "again")]
    assert texts[0] == texts[1]


def test_what_the_analysis_reads_beside_runs_is_packed_too(study, packed, tmp_path):
    beside = what_lies_beside(study)
    others = ("trace/2026-1/figure.svg", "harden/notes.txt", "scan.json", "trace/.part/trace.json")
    for name, text in (beside | dict.fromkeys(others, "")).items():
        (study.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (study.directory / name).write_text(text)
    pack(study.directory, tmp_path / "more.zip")
    unpack(tmp_path / "more.zip", tmp_path / "again")
    assert {name: (tmp_path / "again" / name).read_text() for name in beside} == beside
    assert not [name for name in others if (tmp_path / "again" / name).exists()]
    versions = []
    for path in (packed, tmp_path / "more.zip"):
        with zipfile.ZipFile(path) as archive:
            manifest = next(name for name in archive.namelist() if name.endswith("MANIFEST.json"))
            versions.append(json.loads(archive.read(manifest))["schema_version"])
    assert versions == [1, 3], "an older vbstudy reads what it knows"


def test_of_the_users_programs_only_what_can_be_unpacked_is_packed(study, tmp_path):
    study.run(1)
    taken = {
        "mine.tar": "tar",
        "mine.json": json.dumps({"archive_sha256": hashlib.sha256(b"tar").hexdigest()}),
    }
    others = ("mine.json.part", "mine.env", "mine.tar.bak", "mine.json~", "mine (copy).tar")
    (study.directory / "projects").mkdir()
    for name, text in (taken | dict.fromkeys(others, "")).items():
        (study.directory / "projects" / name).write_text(text)
    pack(study.directory, tmp_path / "x.zip")
    unpack(tmp_path / "x.zip", tmp_path / "again")
    assert {path.name: path.read_text() for path in (tmp_path / "again/projects").iterdir()} == taken
    assert not verify(tmp_path / "again").damaged


def test_failed_attempts_are_packed_without_their_text(study, tmp_path):
    study.run(1, variant="default", seed=None)
    folder = study.directory / "failed/lenet5/default/cpus-1/0001-20250101T000000-a"
    folder.mkdir(parents=True)
    data = {
        "run_id": "lenet5/default/cpus-1/0001",
        "kind": "RuntimeError",
        "message": "/home/me",
        "traceback": "",
    }
    (folder / "error.json").write_text(json.dumps(data))
    (folder / "log.txt").write_text("/home/me")
    pack(study.directory, tmp_path / "x.zip")
    unpack(tmp_path / "x.zip", tmp_path / "again")
    assert [path.name for path in (tmp_path / "again/failed").rglob("*") if path.is_file()] == ["error.json"]
    assert "/home/me" not in next((tmp_path / "again/failed").rglob("*.json")).read_text()
    found = [load_study(each).failures for each in (study.directory, tmp_path / "again")]
    assert found == 2 * [{"lenet5/default/cpus-1": {"RuntimeError": 1}}]


def test_a_study_file_that_begins_with_a_byte_order_mark_is_packed(study, tmp_path):
    study.run(1)
    (study.directory / "study.toml").write_bytes(codecs.BOM_UTF8 + b'name = "x"\n')
    pack(study.directory, tmp_path / "x.zip")
    unpack(tmp_path / "x.zip", tmp_path / "again")
    assert (tmp_path / "again/study.toml").read_bytes() == b'name = "x"\n'


def test_the_same_study_gives_the_same_bytes(study, packed, tmp_path):
    for path in study.directory.rglob("*.csv"):
        path.touch()
    pack(study.directory, tmp_path / "other.zip")
    assert packed.read_bytes() == (tmp_path / "other.zip").read_bytes()


def test_the_manifest_has_the_hash_of_every_other_file(packed):
    with zipfile.ZipFile(packed) as archive:
        names = archive.namelist()
        study = names[0].partition("/")[0]
        files = json.loads(archive.read(f"{study}/MANIFEST.json"))["files"]
        assert {f"{study}/{name}" for name in files} == set(names) - {f"{study}/MANIFEST.json"}
        for name, file in files.items():
            data = archive.read(f"{study}/{name}")
            assert file == {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}


@pytest.mark.parametrize("version", [2, SCHEMA_VERSION])
def test_addresses_of_machines_stay_at_home(study, tmp_path, version):
    for path in (study.run(1) / RECORD, study.run(2) / RECORD):
        record = as_written(json.loads(path.read_text()), version)
        del record["record_sha256"]
        path.write_text(seal(record | {"guest": record["guest"] | {"host": "me@h1.example:22"}}))
    (study.directory / "study.toml").write_text(
        '[provider]\nkind = "ssh"\n[[provider.hosts]]\nhost = "h1.example"\n'
    )
    (study.directory / "guests.json").write_text('"h1.example"')
    pack(study.directory, tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert not any(b"h1.example" in archive.read(name) for name in archive.namelist())
    unpack(tmp_path / "x.zip", tmp_path / "again")
    assert verify(tmp_path / "again").damaged == ()
    packed = [json.loads(path.read_text()) for path in (tmp_path / "again").rglob(RECORD)]
    assert {record["guest"]["host"] for record in packed} == {machine_id("fabricated", "me@h1.example:22")}
    assert {record["schema_version"] for record in packed} == {version}
    pack(tmp_path / "again", tmp_path / "y.zip")
    unpack(tmp_path / "y.zip", tmp_path / "third")
    assert [json.loads(path.read_text()) for path in (tmp_path / "third").rglob(RECORD)] == packed


def test_a_damaged_study_is_not_packed(study, tmp_path):
    (study.run(1) / HISTORY).write_text("")
    with pytest.raises(DamagedStudyError, match="1 damaged"):
        pack(study.directory, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_an_empty_study_is_not_packed_and_nothing_is_overwritten(study, tmp_path, packed):
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToAnalyse):
        pack(tmp_path / "empty", tmp_path / "x.zip")
    with pytest.raises(FileExistsError, match="exists already"):
        pack(study.directory, packed)
    with pytest.raises(FileExistsError, match="exists already"):
        unpack(packed, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt",
        "x/../../evil.txt",
        "/etc/passwd",
        "x/runs/a/b/c/0001/../../../../../../evil.txt",
        "x\\..\\evil.txt",
        "C:/evil.txt",
        "x/runs/a/b/c/0001/evil.py",
        "x/runs/.a/b/c/0001/run.json",
        "x/study.toml/",
        "x/runs/a/b/c/0001/run.json\n",
    ],
)
def test_a_name_that_no_study_has_is_refused(packed, tmp_path, name):
    path = rewritten(packed, lambda entries: [*entries, (zipfile.ZipInfo(name), b"x")])
    refused(path, tmp_path / "target", "is no file of a study|cannot|File is not")
    assert not list(tmp_path.rglob("evil*"))


@given(st.from_regex(ALLOWED, fullmatch=True))
def test_no_allowed_name_leads_out_of_its_folder(name):
    assert name.isascii()
    assert name.isprintable()
    parts = name.split("/")
    assert len(parts) > 1
    assert all(part and not part.startswith(".") and "\\" not in part for part in parts)


@given(
    model=st.from_regex(CPU_MODEL, fullmatch=True),
    tier=st.sampled_from(Tier),
    variant=st.sampled_from(Variant),
)
def test_every_run_folder_that_a_study_can_have_is_allowed(model, tier, variant):
    spec = factories.spec(cpu_model=model, tier=tier, variant=variant)
    assert ALLOWED.fullmatch(f"study/runs/{spec.run_id}/{RECORD}")


def test_a_study_that_compares_cpu_flags_is_packed_and_unpacked(study, tmp_path):
    study.run(1, cpu_model_asked="Haswell,-avx2")
    target = tmp_path / "flags.zip"
    pack(study.directory, target)
    unpack(target, tmp_path / "again")
    assert verify(tmp_path / "again").damaged == ()


def test_a_symlink_is_refused(packed, tmp_path):
    def change(entries):
        entry = zipfile.ZipInfo("x/imported/link.json")
        entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        return [*entries, (entry, b"/etc/passwd")]

    refused(rewritten(packed, change), tmp_path / "target", "is not a plain file")


def without(name):
    return lambda entries: [(e, d) for e, d in entries if not e.filename.endswith(name)]


def unnamed(entries):
    """One more file of the study, which the manifest does not name."""
    study = entries[0][0].filename.partition("/")[0]
    return [*entries, (zipfile.ZipInfo(f"{study}/imported/a.json"), b"")]


def test_what_is_missing_added_or_twice_is_refused(packed, tmp_path):
    original = packed.read_bytes()
    for change, match in (
        (without("cpus-1/0001/history.csv"), "history.csv is missing"),
        (without("MANIFEST.json"), "has no MANIFEST.json"),
        (lambda entries: [*entries, entries[0]], "is there twice"),
        (lambda entries: [*entries, (zipfile.ZipInfo("y/study.toml"), b"")], "more than one study|twice"),
        (unnamed, "not in the manifest"),
    ):  # fmt: skip
        packed.write_bytes(original)
        refused(rewritten(packed, change), tmp_path / "target", match)


def test_other_bytes_and_other_sizes_are_refused(packed, tmp_path):
    original = packed.read_bytes()

    def flipped(entries):
        return [
            (e, bytes([d[0] ^ 1]) + d[1:] if e.filename.endswith("history.csv") else d) for e, d in entries
        ]

    def bomb(entries):
        return [(e, b"\0" * 10**7 if e.filename.endswith("history.csv") else d) for e, d in entries]

    refused(rewritten(packed, flipped), tmp_path / "target", "does not match its SHA-256")
    packed.write_bytes(original)
    refused(rewritten(packed, bomb), tmp_path / "target", "10000000 bytes, not")


def test_an_archive_that_would_unpack_to_more_than_the_limit_is_refused(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "ARCHIVE", Limit(bytes=100, items=100))
    refused(packed, tmp_path / "target", "would unpack to more than 100 bytes")


@pytest.mark.parametrize("limit", ["ARCHIVE", "MANIFEST", "LISTED_BYTES"])
def test_a_study_that_would_not_be_unpacked_is_not_packed(study, tmp_path, monkeypatch, limit):
    study.run(1)
    if limit == "LISTED_BYTES":
        monkeypatch.setattr(archive, limit, 1500)
    else:
        monkeypatch.setattr(bounded, limit, Limit(bytes=100, items=100))
    with pytest.raises(ArchiveError, match="6 files of .* are more than an archive holds"):
        pack(study.directory, tmp_path / "x.zip")
    assert not list(tmp_path.glob("*.zip"))


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", b"PK\3\4" + b"\0" * 100])
def test_what_is_no_zip_is_refused(tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    refused(tmp_path / "x.zip", tmp_path / "target", "x.zip")


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"schema_version": "x"}', "[" * 100_000])
def test_a_manifest_that_cannot_be_read_is_refused(packed, tmp_path, manifest):
    def change(entries):
        return [(e, manifest if e.filename.endswith("MANIFEST.json") else d) for e, d in entries]

    refused(rewritten(packed, change), tmp_path / "target", r"MANIFEST.json cannot be read")


def of_version(packed, version):
    def change(entries):
        manifest = json.dumps({"schema_version": version, "files": {}})
        return [(e, manifest if e.filename.endswith("MANIFEST.json") else d) for e, d in entries]

    return rewritten(packed, change)


def test_a_newer_archive_is_named_and_says_upgrade(packed, tmp_path):
    with pytest.raises(NewerSchemaError, match=r"x\.zip: archive version 99 .* upgrade vbstudy"):
        unpack(of_version(packed, 99), tmp_path / "target")


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_no_archive_had_is_refused(packed, tmp_path, version):
    refused(of_version(packed, version), tmp_path / "target", rf"x\.zip: .*schema_version = {version}; 1 to ")
