"""Everything else than a kill that happens to a sweep: the list that the tests go through, and that README
counts. Disks, networks and clocks misbehave; what arrives is damaged, late, twice, or half."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, Literal

from guest.records import ARTIFACTS, RECORD
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
    """A row is (name, status, module, function, where, text of the statement[, more of Place and Mishap])."""
    made = []
    for name, status, module, function, where, at, *more in rows:
        options = dict(*more)
        happens = {key: options.pop(key) for key in ("nth", "victim", "error") if key in options}
        place = Place(module=module, function=function, where=where, at=at, **options)
        made.append(Fault(side=side, mishap=Mishap(name=name, place=place, **happens), status=status))
    return tuple(made)


_STORE, _CHECKED, _CONNECTION = "orchestrator.store", "orchestrator.checked", "orchestrator.connection"
_EXECUTOR, _ATTEMPTS = "orchestrator.executor", "orchestrator.engine.attempts"
_RENAME = (_STORE, "_put_in_place", "before", "folder.rename(target)")
_RENAMED = (_STORE, "_put_in_place", "after", "folder.rename(target)")
_COLLECT = (_CONNECTION, "LocalConnection.get", "before", "target.write(piece)")
_WRITE = (_STORE, "write_durably", "before", "file.write(text)")
_RECORD = {"when": f"path.name == {RECORD!r}"}
_SPEAK = ("guest.agent", "execute", "before", "speaker.say('done'")

STORAGE = _faults("host", [
    ("the disk is full, a guest's file arrives", STORE, *_COLLECT, {"error": FULL}),
    ("the disk is full, weights arrive", STORE, *_COLLECT,
     {"error": FULL, "when": "local.name == 'weights.safetensors'"}),
    ("the quota is used up, a guest's file arrives", STORE, *_COLLECT, {"error": errno.EDQUOT}),
    ("the disk is broken, a guest's file arrives", STORE, *_COLLECT, {"error": BROKEN}),
    ("the disk is full, the record is written", STORE, *_WRITE, _RECORD | {"error": FULL}),
    ("the disk is full, the index is written", DONE, *_WRITE,
     {"error": FULL, "when": "path.name == '.checked'"}),
    ("the disk is full, an entry of the index is written", DONE, _CHECKED, "Checked.add", "before",
     "self._log.write(", {"error": FULL}),
    ("the disk is full, the live file is written", DONE, "orchestrator.live", "LiveFile._write", "before",
     "part.write_text(", {"error": FULL}),
    ("the disk is full, a folder to collect in is made", STORE, _STORE, "Store.new_incoming", "before",
     "folder.mkdir(", {"error": FULL}),
    ("the disk is full, the agent is brought to its guest", STORE, _CONNECTION, "LocalConnection.put",
     "before", "shutil.copyfile(local, part)", {"error": FULL}),
    ("the store is read-only, the agent is packed", STORE, "orchestrator.session", "Session.executor",
     "before", "connection.put(", {"error": READ_ONLY}),
    ("the store is read-only, the guest's folder is made", STORE, "orchestrator.providers.local",
     "LocalProvider.create", "before", "self._folder(guest).mkdir(", {"error": READ_ONLY}),
    ("the store is read-only, the lock is taken", STORE, _STORE, "Store.lock", "before",
     "descriptor = os.open(", {"error": READ_ONLY}),
    ("the store is read-only, leavings are removed", STORE, _STORE, "Store.clear_incoming", "before",
     "shutil.rmtree(self.incoming)", {"error": READ_ONLY}),
    ("the disk is broken, a file is synced", STORE, _STORE, "Store.publish", "before", "_sync(folder / name)",
     {"error": BROKEN}),
    ("the disk is broken, the staged folder is synced", STORE, _STORE, "Store.publish", "before",
     "_sync(folder)", {"error": BROKEN}),
    ("the disk is broken, the rename is synced", STORE, _STORE, "Store.publish", "before",
     "_sync(target.parent)", {"error": BROKEN}),
    ("the disk is broken, a staged file is read", DONE, _STORE, "check_artifact", "before",
     "size = path.lstat().st_size", {"error": BROKEN}),
])  # fmt: skip

NFS = _faults("host", [
    ("the rename takes two seconds", DONE, *_RENAME, {"doing": "__import__('time').sleep(2)"}),
    ("the rename fails with ESTALE", STORE, *_RENAME, {"error": STALE}),
    ("the rename fails with EIO", STORE, *_RENAME, {"error": BROKEN}),
    ("the rename took place and is told to have failed with ENOENT", DONE, *_RENAMED, {"error": GONE}),
    ("the rename took place and is told to have failed with EIO", STORE, *_RENAMED, {"error": BROKEN}),
    ("the renamed folder is not seen yet", DONE, _CHECKED, "state", "before", "numbers: list[int] = []",
     {"doing": "folder += '-unseen'"}),
    ("the folder of the set is stale", STORE, _STORE, "Store.publish", "before", "target.parent.mkdir(",
     {"error": STALE}),
    ("the record's rename fails with ESTALE", STORE, _STORE, "write_durably", "before", "part.rename(path)",
     _RECORD | {"error": STALE}),
    ("the lock is not granted", STORE, _STORE, "Store.lock", "before", "fcntl.flock(",
     {"error": errno.ENOLCK}),
])  # fmt: skip

_HELP = "__import__('tests.faults.damage', fromlist=['damage'])"
_CLOCK = _HELP + ".step_clock({})"
_SENT = (_EXECUTOR, "Executor.execute", "after", "worker.send(")
_STEP = ("guest.training", "train", "after", "on_step(step)")
CLOCKS = (
    *_faults("host", [
        ("the clock goes back a day during a run", DONE, *_SENT, {"doing": _CLOCK.format(-86400)}),
        ("the clock goes forward a year during a run", DONE, *_SENT, {"doing": _CLOCK.format(365 * 86400)}),
        ("the clock goes back an hour between two runs", DONE, "orchestrator.engine.local",
         "Crew._work_through", "after", "self._observer.finished(", {"doing": _CLOCK.format(-3600)}),
    ]),
    *_faults("guest", [
        ("the guest's clock goes back a day", DONE, *_STEP, {"doing": _CLOCK.format(-86400)}),
        ("the guest's clock goes forward a year", DONE, *_STEP, {"doing": _CLOCK.format(365 * 86400)}),
    ]),
)  # fmt: skip

_ARRIVED = (_EXECUTOR, "Executor._collect", "after", "self._connection.get(")
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

_SAID = ("guest.agent", "execute", "after", "speaker.say('done'")
PROTOCOL = (
    *_faults("guest", [
        ("a run is told to be done twice", DONE, *_SAID,
         {"doing": "speaker.say('done', run_id, result=result)"}),
        ("a run of another name is told to be done", DONE, *_SPEAK,
         {"doing": "speaker.say('done', 'net/fixed-seed/cpus-1/0009', result=result)"}),
        ("the agent says what is not JSON", DONE, *_SPEAK,
         {"doing": "os.write(speaker._descriptor, b'{{{\\n')"}),
        ("the agent greets twice", DONE, "guest.agent", "execute", "after", "speaker.say('hello'",
         {"doing": "speaker.say('hello', run_id, schema_version=SCHEMA_VERSION)"}),
        ("the agent hangs", DONE, *_STEP, {"doing": "__import__('os').kill(__import__('os').getpid(), 19)"}),
        ("the guest's disk is full", DONE, "guest.agent", "_write", "before", "np.savez(", {"error": FULL}),
        ("the guest's disk is broken", DONE, "guest.agent", "_write", "before", "save_file(",
         {"error": BROKEN}),
    ]),
    *_faults("host", [
        ("a run is published twice", DONE, _ATTEMPTS, "Attempts.run", "before", "if self._store.publish(",
         {"doing": "other = folder.with_name('other'); shutil.copytree(folder, other); "
                   "self._store.publish(other, record)"}),
        ("the request is sent twice", DONE, *_SENT,
         {"doing": "worker.send(json.dumps({'request': to_json(request), 'out': out}))"}),
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
