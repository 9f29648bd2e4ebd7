"""Everything else than a kill that happens to a sweep: the list that the tests go through, and that
docs/reliability.md counts. Disks, networks and clocks misbehave; what arrives is damaged, late or twice."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, Literal

from guest.records.run import ARTIFACTS, RECORD
from orchestrator.errors import EXIT_DONE, StoreError
from tests.faults.arming import Mishap, Place

FULL, READ_ONLY, BROKEN, STALE, GONE = errno.ENOSPC, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOENT
DONE, STORE = EXIT_DONE, StoreError.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`side` is whose process it happens in; `status` is what the sweep then ends with. One that ends
    with 0 has coped with it alone; after any other it is run again."""

    side: Literal["host", "guest"]
    mishap: Mishap
    status: int


def _faults(side: Literal["host", "guest"], rows: list[tuple[Any, ...]]) -> tuple[Fault, ...]:
    """A row is (name, status, where, point[, more of Place and Mishap])."""
    made = []
    for name, status, where, point, *more in rows:
        options = dict(*more)
        happens = {key: options.pop(key) for key in ("nth", "victim", "error") if key in options}
        place = Place(point=point, where=where, **options)
        made.append(Fault(side=side, mishap=Mishap(name=name, place=place, **happens), status=status))
    return tuple(made)


_RENAME = ("before", "folder renamed")
_RENAMED = ("after", "folder renamed")
_COLLECT = ("before", "piece written")
_WRITE = ("before", "file written")
_RECORD = {"when": f"path.name == {RECORD!r}"}
_SPEAK = ("before", "result sent")

STORAGE = _faults("host", [
    ("the disk is full, a guest's file arrives", STORE, *_COLLECT, {"error": FULL}),
    ("the disk is full, weights arrive", STORE, *_COLLECT,
     {"error": FULL, "when": "local.name == 'weights.safetensors'"}),
    ("the quota is used up, a guest's file arrives", STORE, *_COLLECT, {"error": errno.EDQUOT}),
    ("the disk is broken, a guest's file arrives", STORE, *_COLLECT, {"error": BROKEN}),
    ("the disk is full, the record is written", STORE, *_WRITE, _RECORD | {"error": FULL}),
    ("the disk is full, the index is written", DONE, *_WRITE,
     {"error": FULL, "when": "path.name == '.checked'"}),
    ("the disk is full, an entry of the index is written", DONE, "before", "index entry written",
     {"error": FULL}),
    ("the disk is full, the live file is written", DONE, "before", "live file written", {"error": FULL}),
    ("the disk is full, a folder to collect in is made", STORE, "before", "incoming folder made",
     {"error": FULL}),
    ("the disk is full, the agent is brought to its guest", STORE, "before", "file put", {"error": FULL}),
    ("the store is read-only, the agent is packed", STORE, "before", "agent put", {"error": READ_ONLY}),
    ("the store is read-only, the guest's folder is made", STORE, "before", "guest folder made",
     {"error": READ_ONLY}),
    ("the store is read-only, the lock is taken", STORE, "before", "lock opened", {"error": READ_ONLY}),
    ("the store is read-only, leavings are removed", STORE, "before", "incoming cleared",
     {"error": READ_ONLY}),
    ("the disk is broken, a file is synced", STORE, "before", "staged file synced", {"error": BROKEN}),
    ("the disk is broken, the staged folder is synced", STORE, "before", "staged folder synced",
     {"error": BROKEN}),
    ("the disk is broken, the rename is synced", STORE, "before", "publication synced", {"error": BROKEN}),
    ("the disk is broken, a staged file is read", DONE, "before", "artifact read", {"error": BROKEN}),
])  # fmt: skip

NFS = _faults("host", [
    ("the rename takes two seconds", DONE, *_RENAME, {"doing": "__import__('time').sleep(2)"}),
    ("the rename fails with ESTALE", STORE, *_RENAME, {"error": STALE}),
    ("the rename fails with EIO", STORE, *_RENAME, {"error": BROKEN}),
    ("the rename took place and is told to have failed with ENOENT", DONE, *_RENAMED, {"error": GONE}),
    ("the rename took place and is told to have failed with EIO", STORE, *_RENAMED, {"error": BROKEN}),
    ("the renamed folder is not seen yet", DONE, "before", "run state read",
     {"doing": "folder += '-unseen'"}),
    ("the folder of the set is stale", STORE, "before", "condition folder made", {"error": STALE}),
    ("the record's rename fails with ESTALE", STORE, "before", "file renamed",
     _RECORD | {"error": STALE}),
    ("the lock is not granted", STORE, "before", "lock taken", {"error": errno.ENOLCK}),
])  # fmt: skip

_HELP = "__import__('tests.faults.damage', fromlist=['damage'])"
_CLOCK = _HELP + ".step_clock({})"
_SENT = ("after", "request sent")
_STEP = ("after", "step done")
CLOCKS = (
    *_faults("host", [
        ("the clock goes back a day during a run", DONE, *_SENT, {"doing": _CLOCK.format(-86400)}),
        ("the clock goes forward a year during a run", DONE, *_SENT, {"doing": _CLOCK.format(365 * 86400)}),
        ("the clock goes back an hour between two runs", DONE, "after", "run counted",
         {"doing": _CLOCK.format(-3600)}),
    ]),
    *_faults("guest", [
        ("the guest's clock goes back a day", DONE, *_STEP, {"doing": _CLOCK.format(-86400)}),
        ("the guest's clock goes forward a year", DONE, *_STEP, {"doing": _CLOCK.format(365 * 86400)}),
    ]),
)  # fmt: skip

_ARRIVED = ("after", "file collected")
TRANSFER = (
    *_faults("host", [
        (f"{name} arrives {how}", DONE, *_ARRIVED, {"when": f"name == {name!r}", "doing": doing})
        for name in ARTIFACTS
        for how, doing in (
            ("half", "__import__('os').truncate(into / name, artifact.size_bytes // 2)"),
            ("with a flipped bit", f"{_HELP}.flip(into / name)"),
            ("not at all", "(into / name).unlink()"),
        )
    ]),
    *_faults("guest", [
        (f"{name} loses its end in the guest", DONE, *_SPEAK,
         {"doing": f"__import__('os').truncate(out / {name!r}, (out / {name!r}).stat().st_size // 2)"})
        for name in ARTIFACTS if name != "log.txt"
    ]),
)  # fmt: skip

_SAID = ("after", "result sent")
PROTOCOL = (
    *_faults("guest", [
        ("a run is told to be done twice", DONE, *_SAID,
         {"doing": "writer.send('done', run_id, result=result)"}),
        ("a run of another name is told to be done", DONE, *_SPEAK,
         {"doing": "writer.send('done', 'net/fixed-seed/cpus-1/0009', result=result)"}),
        ("the agent says what is not JSON", DONE, *_SPEAK,
         {"doing": "os.write(writer._descriptor, b'{{{\\n')"}),
        ("the agent greets twice", DONE, "after", "run announced",
         {"doing": "writer.send('hello', run_id, schema_version=SCHEMA_VERSION)"}),
        ("the agent hangs", DONE, *_STEP, {"doing": "__import__('os').kill(__import__('os').getpid(), 19)"}),
        ("the guest's disk is full", DONE, "before", "predictions written", {"error": FULL}),
        ("the guest's disk is broken", DONE, "before", "weights written", {"error": BROKEN}),
    ]),
    *_faults("host", [
        ("a run is published twice", DONE, "before", "run published",
         {"doing": "other = folder.with_name('other'); shutil.copytree(folder, other); "
                   "self.store.publish(other, record)"}),
        ("the request is sent twice", DONE, *_SENT,
         {"doing": "worker.client.send({'request': to_json(request), 'out': out})"}),
    ]),
)  # fmt: skip

FAULTS: tuple[Fault, ...] = (*STORAGE, *NFS, *CLOCKS, *TRANSFER, *PROTOCOL)

# Those that no place of the program has; a test each.
FULL_DISKS_KIB = (0, 16, 48, 96)
"""What is left on a file system of its own when the sweep begins."""
FLIPPED = (RECORD, *ARTIFACTS)
"""Files of a stored run of which a bit flips."""
OTHERS = (
    "the store is mounted read-only",
    "the index is damaged",
    "the index is gone",
    "the inventory is damaged",
    "a finished run comes back from elsewhere",
    "the scheduler forgets",
)


def count() -> int:
    return len(FAULTS) + len(FULL_DISKS_KIB) + len(FLIPPED) + len(OTHERS)
