"""The commands that exchange studies: verify, export, import."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import Options, analysis_errors, check_begun, note_edited, result, show
from orchestrator.errors import StoreError, UnmetError, UsageError
from orchestrator.files import temporary_folder

if TYPE_CHECKING:
    from analysis.exchange.verify import Verification
    from orchestrator.experiments.rerun import Recomputed
    from orchestrator.store.store import Store
    from orchestrator.study.schema import Study

SHOWN = 20  # problems that are printed
FORMATS = ("zip", "parquet", "mlflow")


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--rerun", type=click.IntRange(min=1), metavar="N",
              help="Afterwards repeat N runs, drawn at random, and compare their bits.")  # fmt: skip
@click.pass_obj
def verify(options: Options, path: Path | None, rerun: int | None) -> None:
    """Check a study, or an archive, byte for byte.

    Checks every record, file, size and hash, and names the planned runs that are missing. Exits with 0 when
    the study is complete, with 1 when runs are missing, with 6 when something is damaged. Changes nothing.

    --rerun repeats runs in the study's guests (of an archive: in those of the study in -C) with the seeds
    that the runs recorded. It exits with 1 when bits differ."""
    from analysis.exchange.verify import verify as verify_
    from orchestrator.store.store import Store
    from orchestrator.study import schema
    from orchestrator.study.edited import edited
    from orchestrator.sweep.status import instead_of_sweep

    subject = path or options.directory
    again: list[Recomputed] = []
    with analysis_errors(), _unpacked(subject) as folder:
        Store(folder).check_readable()
        home = options.directory if subject.is_file() else subject
        study = None if rerun is None else schema.load(Store(home).study_file)  # before what takes long
        found = verify_(folder, _planned(options, subject, folder))
        if not found.runs and not found.imports and not found.damaged and found.planned is None:
            raise UsageError(f"{subject}: there is no study in it; name a study's folder or an archive")
        note_edited(options, edited(Store(folder)))
        if not options.as_json:
            show(f"{subject}: {found}")
            _list([str(problem) for problem in found.damaged])
            _list([f"missing: {run}" for run in found.missing])
        at = f" -C {shlex.quote(str(path))}" if path else ""  # else that of the command itself
        todo = f"run `vbstudy{at} sweep`"
        if found.missing and (instead := instead_of_sweep(Store(folder), found.missing)) is not None:
            todo = f"{instead[1]}; next: vbstudy{at} {instead[0]}"
        if subject.is_file():
            todo = "the study that it was made from may have them"
        if study is not None and rerun is not None and not found.damaged:
            again = _rerun(options, study, folder, home, rerun)
    if options.as_json:
        data = dataclasses.asdict(found) | {"path": str(subject)}
        more = {} if rerun is None else {"rerun": [_as_data(each) for each in again]}
        click.echo(json.dumps(data | more, indent=1))
    else:
        for each in again:
            show(_told(each))
    _judge(subject, found, again, todo)


@contextlib.contextmanager
def _unpacked(subject: Path) -> Iterator[Path]:
    """A study's folder, or one with what an archive holds that is gone in the end."""
    from analysis.exchange.archive import unpack

    if subject.is_dir():
        yield subject
    elif subject.is_file():
        with temporary_folder("vbstudy-verify-") as temporary:
            unpack(subject, temporary / "study")
            yield temporary / "study"
    else:
        raise UsageError(f"{subject}: is neither a folder nor an archive")


def _judge(subject: Path, found: Verification, again: Sequence[Recomputed], todo: str) -> None:
    """Raises what the worst of it is worth. `todo` is what brings missing runs."""
    if found.damaged:
        raise StoreError(f"{subject}: {len(found.damaged)} damaged, the first: {found.damaged[0]}")
    unequal = sum(not each.equal for each in again)
    if unequal:
        raise UnmetError(f"{subject}: {unequal} of {len(again)} repeated runs differ from the stored ones")
    if found.missing:
        raise UnmetError(f"{subject}: {len(found.missing)} planned runs are missing; {todo}")


def _rerun(options: Options, study: Study, runs: Path, home: Path, count: int) -> list[Recomputed]:
    """A sample of the runs in the folder `runs`, done again in the guests of `study` in `home`."""
    from analysis.load.runs import run_folders
    from orchestrator.experiments.rerun import recompute
    from orchestrator.store.store import Store

    store, report = Store(home), options.reporter()
    run_ids = [folder.relative_to(runs / "runs").as_posix() for folder in run_folders(runs)]
    again = recompute(study, store, Store(runs), run_ids, count, report)
    if len(again) < count:
        report(f"{len(again)} runs repeated, not {count}: no other run belongs to a guest of {home}")
    return again


def _differing_fields(each: Recomputed) -> list[str]:
    """The fields of the two fingerprints that are not the same."""
    from analysis.provenance.fingerprints import flat

    stored, computed = map(flat, each.environments)
    return sorted(name for name in {*stored, *computed} if stored.get(name) != computed.get(name))


def _as_data(each: Recomputed) -> dict[str, Any]:
    names = ("run_id", "equal", "difference", "failure", "stored_on", "computed_on")
    data = {name: getattr(each, name) for name in names}
    return data if each.equal else data | {"fields_that_differ": _differing_fields(each)}


def _told(each: Recomputed) -> str:
    from guest.records.printable import printable

    if each.equal:
        return f"  the same bits: {each.run_id} ({each.computed_on})"
    if each.failure:
        return f"  failed: {each.run_id}: {each.failure} ({each.computed_on})"
    names = printable(", ".join(_differing_fields(each)), limit=300) or "none"
    return (
        f"  OTHER BITS: {each.run_id}: {each.difference}\n"
        f"    stored: {each.stored_on}\n    again: {each.computed_on}\n    fingerprints differ in: {names}"
    )


def _planned(options: Options, subject: Path, folder: Path) -> list[str] | None:
    """The run ids that the study file plans; None without a study file, and for that of an archive, which
    nobody here can correct, when it has an error."""
    from orchestrator.store.store import Store
    from orchestrator.study import plan, schema

    store = Store(folder)
    if not store.study_file.is_file():
        return None
    try:
        return [spec.run_id for spec in plan.plan(schema.load(store.study_file))]
    except UsageError as error:
        if folder == subject:
            raise
        reason = error.message.replace(f"{folder}/", "")
        options.reporter("note: ")(f"{subject}: was not checked for missing runs: {reason}")
        return None


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), show_default="by the ending of TARGET",
              help="The format of TARGET.")  # fmt: skip
@click.option("--without-projects", is_flag=True,
              help="Leave your own programs out of TARGET.zip.")  # fmt: skip
@click.pass_obj
def export(options: Options, target: Path, form: str | None, without_projects: bool) -> None:
    """Export the study as an archive, Parquet tables or MLflow runs.

    \b
    TARGET.zip        its runs and all other results; the same study gives the
                      same bytes
    TARGET.parquet    a folder of its tables as Parquet files (extra `parquet`)
    mlruns            MLflow's file store; under another name with --format mlflow
    """
    from guest.records.printable import counted
    from orchestrator.study.edited import edited

    form = form or ("mlflow" if target.name == "mlruns" else target.suffix.removeprefix("."))
    if form not in FORMATS:
        raise UsageError(
            f"{target}: the format is not known: name it *.zip, *.parquet or mlruns, or use --format"
        )
    store = options.store()
    check_begun(options)
    with analysis_errors(target):
        note_edited(options, edited(store))
        if form == "zip":
            from analysis.exchange.archive import pack

            names = _projects(store)  # before it is written: an archive is whole, or there is none
            what = counted(pack(store.directory, target, projects=not without_projects), "run")
            if names:
                copy = "" if without_projects else ", and its files (--without-projects leaves them out)"
                options.reporter("note: ")(
                    f"of {', '.join(names)} the archive has the command with all arguments, the path or URL "
                    f"of the project, what each run printed (log.txt){copy}: check licence and private data "
                    "before you share it"
                )
        elif form == "mlflow":
            from analysis.exchange.mlflow_store import write_mlflow
            from analysis.load.study import load_study

            what = counted(write_mlflow(load_study(store.directory), target), "run")
        else:
            from analysis.exchange.parquet import write_parquet
            from analysis.pipeline import analyze

            what = f"{len(write_parquet(analyze(store.directory), target))} tables"
    result(options, {"target": str(target), "format": form}, f"wrote {what} to {target}")


def _projects(store: Store) -> list[str]:
    """The workloads of stored runs that are user projects."""
    folders = sorted(path.name for path in store.runs.glob("*"))
    records = [record for name in folders for record in store.records(f"{name}/*/*", 1)]
    return [record.spec.workload.name for record in records if record.spec.workload.project]


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option("--name", help="The name of the import, or of an archive's folder.", show_default="SOURCE's")
@click.option(
    "--by",
    metavar="PATTERN",
    default="",
    show_default=False,
    help="How to read the paths in SOURCE/: a pattern of {workload}, {variant}, {threads}, {repetition}, "
    "such as '{workload}/t{threads}/*.npy'.",
)
@click.pass_obj
def import_(options: Options, source: Path, name: str | None, by: str) -> None:
    """Import an archive, or the results of another program.

    \b
    SOURCE.zip    an archive of `vbstudy export`: checked, then unpacked
    SOURCE.csv    results, one line per run (or epoch), with a column 'threads'
    SOURCE.json   the same as a list of objects
    SOURCE/       a folder of predictions (.npy, .npz, .csv) and histories
                  (.json, .csv) with 'threads-4' or 'cpus-4' in their paths (also
                  'workload-lenet5', 'variant-default'); or MLflow's file store

    Results of other programs are compared by thread count in tables of their own."""
    import re

    from analysis.exchange.archive import unpack
    from analysis.exchange.comparison import imported_tables
    from analysis.exchange.imported import read_imports, write_import
    from analysis.exchange.readers import read_results
    from analysis.load.runs import run_folders
    from guest.records.printable import unaccented
    from orchestrator.store.store import now

    store = options.store()
    own = re.sub(r"[^A-Za-z0-9_-]+", "-", unaccented(source.resolve().stem)).strip("-") or "import"
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise UsageError(f"--name {name}: letters, digits, - and _ are allowed")
    name = name or own[:64]
    with analysis_errors(store.directory / name):
        if source.suffix == ".zip":
            if by:
                raise UsageError(f"--by {by}: it describes the paths of a folder, and {source} is an archive")
            if store.is_own(name):
                raise UsageError(
                    f"{name}: a study keeps files of its own under this name; give another by --name"
                )
            folder = str(store.directory / name)
            if (store.directory / name).exists():
                raise UsageError(f"{folder}: exists already; give another name with --name")
            unpack(source, store.directory / name)
            text = f"unpacked into {folder}"
            if run_folders(store.directory / name):  # without one there is nothing to analyse
                text += f"; next: vbstudy -C {shlex.quote(folder)} analyze"
            result(options, {"folder": folder}, text)
            return
        imported = read_results(source, name, now(), by)
        path = write_import(store.directory, imported)
        tables = imported_tables([each for each in read_imports(store.directory)[0] if each.name == name])
    if not options.as_json:
        from analysis.results.printing import print_tables

        print_tables([table for table in tables.values() if len(table.frame)], sys.stdout)
    data = {"file": str(path), "runs": len(imported.runs), "left_out": list(imported.left_out)}
    text = (
        f"{len(imported.runs)} imported runs ({imported.kind}) in {path}; weights, seeds and machines unknown"
    )
    result(options, data, text)
    if not options.as_json:
        _list([f"left out: {each}" for each in imported.left_out])


def _list(lines: list[str]) -> None:
    for line in lines[:SHOWN]:
        show(f"  {line}")
    if len(lines) > SHOWN:
        click.echo(f"  and {len(lines) - SHOWN} more; --json lists them all")
