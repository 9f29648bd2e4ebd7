"""Every step of a run's life at which something is killed with SIGKILL: the list that the tests go through,
and that docs/reliability.md counts. A point names a statement of the product that is marked `# point: NAME`
(`tests.faults.arming`); one that does not exist, or is not reached, fails its test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from guest.records.run import ARTIFACTS, RECORD
from tests.faults.arming import Mishap, Place

Side = Literal["orchestrator", "agent", "guest", "worker"]
Scene = Literal["sweep", "retry", "damaged", "project", "ssh", "hosts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`side` is who dies. `scene` is what the sweep meets: nothing unusual, a run that fails at first, a
    stored run that is damaged, a project of the user's own, a guest behind sshd, or dask's hosts."""

    side: Side
    scene: Scene
    crash: Mishap


def _points(side: Side, scene: Scene, victim: str, rows: list[tuple[Any, ...]]) -> tuple[Point, ...]:
    """A row is (name, where, point[, more of Place and Mishap])."""
    made = []
    for name, where, point, *more in rows:
        options = dict(*more)
        nth, victim_here = options.pop("nth", 1), options.pop("victim", victim)
        place = Place(point=point, where=where, **options)
        crash = Mishap(name=f"{side} {name}", place=place, nth=nth, victim=victim_here)
        made.append(Point(side=side, scene=scene, crash=crash))
    return tuple(made)


_SERVE = {"when": "'serve' in argv"}
_HALF = (
    "half = data[:len(data) // 2]; file.write(half.encode() if isinstance(half, str) else half); file.flush()"
)


def _written(name: str) -> dict[str, str]:
    return {"when": f"path.name == {name!r}"}


ORCHESTRATOR = _points("orchestrator", "sweep", "self", [
    ("study locked", "after", "lock holder written"),
    ("live file half written", "before", "live file renamed"),
    ("leavings removed", "before", "plan checked"),
    ("index half written", "before", "file written",
     _written(".checked") | {"doing": _HALF}),
    ("index written, not renamed", "before", "file renamed",
     _written(".checked")),
    ("store looked through", "after", "store checked"),
    ("plan told", "after", "plan reported"),
    ("cores leased", "inside", "cores leased"),
    ("former guest stopped", "after", "former guest stopped"),
    ("guest started", "after", "guest started"),
    ("agent half pushed", "before", "file put", {"doing": "part.write_bytes(local.read_bytes()[:1000])"}),
    ("agent pushed, not renamed", "before", "put file renamed"),
    ("agent pushed", "after", "put file renamed"),
    ("data brought", "after", "data put"),
    ("agent started", "after", "process started", _SERVE),
    ("agent on its cores", "before", "stream opened", _SERVE),
    ("agent ready", "before", "agent ready"),
    ("folder to collect in made", "after", "attempt begun"),
    ("run handed out", "after", "attempt reported"),
    ("request half sent", "before", "line sent",
     {"doing": "self.process.stdin.write(line.encode()[:100]); self.process.stdin.flush()"}),
    ("request sent", "after", "request sent"),
    ("first message read", "before", "message read"),
    ("epoch told", "after", "message passed on", {"when": "message.kind == 'epoch'"}),
    ("result received", "before", "files collected"),
    *[
        row
        for name in ARTIFACTS
        for row in (
            (f"{name} half received", "before", "piece written", {"when": f"local.name == {name!r}",
              "doing": "target.write(piece[:len(piece) // 2]); target.flush()"}),
            (f"{name} received", "after", "file collected", {"when": f"name == {name!r}"}),
        )
    ],
    ("guest's files removed", "after", "guest files removed"),
    ("neighbours looked at", "after", "isolation measured"),
    ("record made", "after", "record made"),
    ("staged files checked", "after", "staged files checked"),
    (f"{RECORD} half written", "before", "file written",
     _written(RECORD) | {"doing": _HALF}),
    (f"{RECORD} written, not renamed", "before", "file renamed",
     _written(RECORD)),
    (f"{RECORD} staged", "after", "file renamed", _written(RECORD)),
    *[
        (f"{name} on the disk", "after", "staged file synced", {"when": f"name == {name!r}"})
        for name in ARTIFACTS
    ],
    ("staged folder on the disk", "after", "staged folder synced"),
    ("folder of the set made", "after", "condition folder made"),
    ("before the rename", "before", "published"),
    ("after the rename", "after", "published"),
    ("rename on the disk", "after", "publication synced"),
    ("index entry half written", "before", "index entry written",
     {"doing": "self._log.write(entry[0].encode()); self._log.flush()"}),
    ("index entry written", "after", "index entry flushed"),
    ("run counted", "after", "run counted"),
    ("second run: request sent", "after", "request sent", {"nth": 2}),
    ("second run: before the rename", "before", "published", {"nth": 2}),
    ("second run: after the rename", "after", "published", {"nth": 2}),
    ("second run: counted", "after", "run counted", {"nth": 2}),
    ("agent ended", "after", "process group killed"),
    ("guest stopped", "after", "guest stopped"),
    ("cores freed", "after", "cores freed"),
    ("all guests at rest", "before", "all guests at rest"),
    ("sweep over", "after", "sweep over"),
])  # fmt: skip

RETRY = _points("orchestrator", "retry", "self", [
    ("evidence's folder made", "after", "evidence folder made"),
    ("error.json half written", "before", "file written",
     _written("error.json") | {"doing": _HALF}),
    ("error.json written", "after", "file renamed", _written("error.json")),
    ("log half kept", "before", "evidence log copied",
     {"doing": "(staged / LOG).write_bytes((folder / LOG).read_bytes()[:1])"}),
    ("evidence complete, not in place", "before", "evidence published"),
    ("evidence in place", "after", "evidence published"),
    ("attempt's files removed", "after", "attempt removed"),
    ("failure told", "after", "failure reported"),
    ("lost guest closed", "after", "lost guest closed"),
    ("second attempt: request sent", "after", "request sent", {"nth": 2}),
])  # fmt: skip

DAMAGED = _points("orchestrator", "damaged", "self", [
    ("damage found", "inside", "damage found"),
    ("reason half written", "before", "file written",
     _written("reason.txt") | {"doing": _HALF}),
    ("reason written", "after", "file renamed", _written("reason.txt")),
    ("damaged run quarantined", "after", "run quarantined"),
    ("damaged run told", "after", "damage reported"),
])  # fmt: skip

PROJECT = _points("orchestrator", "project", "self", [
    ("project's files hashed", "before", "project hashed"),
    ("project half archived", "before", "project archived", {"doing": "part.write_bytes(b'half')"}),
    ("project archived, not in place", "before", "project archive renamed"),
    ("project's archive in place", "after", "project archive renamed"),
    ("project's description half written", "before", "file written",
     _written("mine.json") | {"doing": _HALF}),
    ("project taken", "after", "snapshots prepared"),
    ("project brought", "before", "executor made"),
])  # fmt: skip

PROJECT_AGENT = _points("agent", "project", "group", [
    ("project's request read", "after", "project request read"),
    ("project unpacked", "after", "project unpacked"),
    ("project's command over", "after", "project command run"),
    ("project's weights read", "after", "project weights read"),
    ("project's predictions read", "after", "project predictions read"),
])  # fmt: skip

AGENT = _points("agent", "sweep", "self", [
    ("started", "before", "agent started"),
    ("framework imported", "before", "framework imported"),
    ("ready", "after", "worker announced"),
    ("request read", "after", "request read"),
    ("data loaded", "after", "data loaded"),
    ("run forked", "before", "run forked"),
    ("log opened", "after", "log opened"),
    ("run told", "after", "run announced"),
    ("threads set", "after", "threads set"),
    ("seeds drawn", "after", "seeds drawn"),
    ("model built", "after", "model built"),
    ("training step 1", "after", "step done", {"when": "step == 1"}),
    ("weights of step 2 hashed", "after", "step hashed", {"when": "step == 2"}),
    ("training step 3", "after", "step done", {"when": "step == 3"}),
    ("epoch over", "after", "epoch done"),
    ("epoch told", "after", "epoch reported"),
    ("last epoch told", "after", "epoch reported", {"when": "epoch == spec.epochs"}),
    ("trained", "after", "model trained"),
    ("history.csv half written", "after", "history header written"),
    ("history.csv written", "before", "predictions written"),
    ("predictions.npz half written", "before", "predictions written",
     {"doing": "(out / PREDICTIONS).write_bytes(b'PK')"}),
    ("predictions.npz written", "after", "predictions written"),
    *[
        row
        for name in ("weights.safetensors", "selected.safetensors")
        for row in (
            (f"{name} half written", "before", "weights written",
             {"when": f"name == {name!r}", "doing": "(out / name).write_bytes(b'half')"}),
            (f"{name} written", "after", "weights written", {"when": f"name == {name!r}"}),
        )
    ],
    ("machine looked at", "after", "fingerprint taken"),
    ("result sealed", "before", "result sent"),
    ("result half sent", "after", "message encoded",
     {"when": "kind == 'done'", "doing": "os.write(self._descriptor, data[:len(data) // 2])"}),
    ("result sent", "after", "result sent"),
    ("and its run, in training step 3", "after", "step done", {"when": "step == 3", "victim": "group"}),
    ("and its run, result half sent", "after", "message encoded",
     {"when": "kind == 'done'", "doing": "os.write(self._descriptor, data[:len(data) // 2])",
      "victim": "group"}),
    ("and its run, result sent", "after", "result sent", {"victim": "group"}),
])  # fmt: skip

GUEST = _points("guest", "sweep", "guest", [
    ("killed, agent started", "after", "stream made", _SERVE),
    ("killed, agent ready", "before", "agent ready"),
    ("killed, request sent", "after", "request sent"),
    ("killed, first message read", "before", "message read"),
    ("killed, epoch told", "after", "message passed on", {"when": "message.kind == 'epoch'"}),
    ("killed, result received", "before", "files collected"),
    ("killed, weights received", "after", "file collected", {"when": "name == 'weights.safetensors'"}),
    ("killed, between runs", "after", "run counted"),
])  # fmt: skip

SSHD = _points("guest", "ssh", "sshd", [
    ("cut off, agent half pushed", "after", "ssh file opened", {"when": "local.suffix == '.pyz'"}),
    ("cut off, agent ready", "before", "agent ready"),
    ("cut off, request sent", "after", "request sent"),
    ("cut off, epoch told", "after", "message passed on", {"when": "message.kind == 'epoch'"}),
    ("cut off, result received", "before", "files collected"),
    ("cut off, weights half received", "after", "ssh file requested",
     {"when": "local.name == 'weights.safetensors'"}),
    ("cut off, between runs", "after", "run counted"),
])  # fmt: skip

OVER_SSH = _points("orchestrator", "ssh", "self", [
    ("weights half received over ssh", "before", "ssh chunk written",
     {"when": "local.name == 'weights.safetensors'",
      "doing": "target.write(chunk[:len(chunk) // 2]); target.flush()"}),
])  # fmt: skip

WORKER = _points("worker", "hosts", "self", [
    ("order read", "before", "order prepared"),
    ("study made ready", "after", "order prepared"),
    ("guest made", "after", "slot guest made"),
    ("run under way", "after", "request sent"),
    ("run kept", "after", "publication synced"),
    ("files half handed over", "after", "file handed over", {"nth": 2}),
    ("files handed over", "before", "receipt given"),
    ("delivered run half dropped", "before", "delivered run dropped",
     {"doing": "(self.runs / run_id / 'weights.safetensors').unlink(missing_ok=True)"}),
])  # fmt: skip

MANY_HOSTS = _points("orchestrator", "hosts", "self", [
    ("token left", "after", "token left"),
    ("host found", "after", "host found"),
    ("order handed out", "after", "order handed out"),
    ("receipt read", "after", "receipt read"),
    ("receipt's files found", "after", "receipt files found"),
    ("host's run published", "before", "host run indexed"),
    ("host not told yet", "after", "delivery noted"),
    ("hosts about to rest", "before", "host sent to rest"),
])  # fmt: skip

POINTS: tuple[Point, ...] = (
    *ORCHESTRATOR, *RETRY, *DAMAGED, *PROJECT, *OVER_SSH, *MANY_HOSTS, *WORKER, *AGENT, *PROJECT_AGENT,
    *GUEST, *SSHD,
)  # fmt: skip
