"""Every step of a run's life at which something is killed with SIGKILL: the list that the tests go through,
and that README counts. A point names a place of the program (`tests.faults.arming`); one that is not there
any more, or is not reached, fails its test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from guest.records import ARTIFACTS, RECORD
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
    """A row is (name, module, function, where, text of the statement[, more of Place and Mishap])."""
    made = []
    for name, module, function, where, at, *more in rows:
        options = dict(*more)
        nth, victim_here = options.pop("nth", 1), options.pop("victim", victim)
        place = Place(module=module, function=function, where=where, at=at, **options)
        crash = Mishap(name=f"{side} {name}", place=place, nth=nth, victim=victim_here)
        made.append(Point(side=side, scene=scene, crash=crash))
    return tuple(made)


_SWEEP, _STORE, _CHECKED = "orchestrator.sweep", "orchestrator.store", "orchestrator.checked"
_SESSION, _SIDES = "orchestrator.session", "orchestrator.side_by_side"
_CONNECTION, _EXECUTOR = "orchestrator.connection", "orchestrator.executor"
_ATTEMPTS, _LOCAL = "orchestrator.engine.attempts", "orchestrator.engine.local"
_SERVE = {"when": "'serve' in argv"}
_PLACED = "_put_in_place(folder, target)"
_HALF = "file.write(text[:len(text) // 2]); file.flush()"


def _written(name: str) -> dict[str, str]:
    return {"when": f"path.name == {name!r}"}


ORCHESTRATOR = _points("orchestrator", "sweep", "self", [
    ("study locked", _STORE, "Store.lock", "after", "os.pwrite(descriptor"),
    ("live file half written", "orchestrator.live", "LiveFile._write", "before", "part.replace(self._path)"),
    ("leavings removed", _SWEEP, "run_specs", "before", "needed = "),
    ("index half written", _STORE, "write_durably", "before", "file.write(text)",
     _written(".checked") | {"doing": _HALF}),
    ("index written, not renamed", _STORE, "write_durably", "before", "part.rename(path)",
     _written(".checked")),
    ("store looked through", _SWEEP, "run_specs", "after", "found = resume("),
    ("plan told", _SWEEP, "run_specs", "after", "observer.planned(specs"),
    ("cores leased", _SIDES, "SideBySide._guard", "inside", "with lease:"),
    ("former guest stopped", _SESSION, "Session.executor", "after", "self._provider.stop("),
    ("guest started", _SESSION, "Session.executor", "after", "self._connection = connection ="),
    ("agent half pushed", _CONNECTION, "LocalConnection.put", "before", "shutil.copyfile(local, part)",
     {"doing": "part.write_bytes(local.read_bytes()[:1000])"}),
    ("agent pushed, not renamed", _CONNECTION, "LocalConnection.put", "before", "part.rename(target)"),
    ("agent pushed", _CONNECTION, "LocalConnection.put", "after", "part.rename(target)"),
    ("data brought", _SESSION, "Session.executor", "after", "folders = guest_data.bring("),
    ("agent started", _CONNECTION, "LocalConnection._start", "after", "process = subprocess.Popen(", _SERVE),
    ("agent on its cores", _CONNECTION, "LocalConnection.open", "before", "stream.follow()", _SERVE),
    ("agent ready", _EXECUTOR, "Executor._warm_worker", "before", "version = message.body.get("),
    ("folder to collect in made", _ATTEMPTS, "Attempts.run", "after", "folder = self._store.new_incoming()"),
    ("run handed out", _ATTEMPTS, "Attempts.run", "after", "reports.started("),
    ("request half sent", _CONNECTION, "LocalStream.send", "before", "self.process.stdin.write(",
     {"doing": "self.process.stdin.write(line.encode()[:100]); self.process.stdin.flush()"}),
    ("request sent", _EXECUTOR, "Executor.execute", "after", "worker.send("),
    ("first message read", _EXECUTOR, "Executor._follow", "before", "if message.run_id != spec.run_id:"),
    ("epoch told", _EXECUTOR, "Executor._follow", "after", "on_message(message)",
     {"when": "message.kind == 'epoch'"}),
    ("result received", _EXECUTOR, "Executor.execute", "before", "self._collect(out, into"),
    *[
        row
        for name in ARTIFACTS
        for row in (
            (f"{name} half received", _CONNECTION, "LocalConnection.get", "before", "target.write(piece)",
             {"when": f"local.name == {name!r}",
              "doing": "target.write(piece[:len(piece) // 2]); target.flush()"}),
            (f"{name} received", _EXECUTOR, "Executor._collect", "after", "self._connection.get(",
             {"when": f"name == {name!r}"}),
        )
    ],
    ("guest's files removed", _EXECUTOR, "Executor._clear", "after", "self._connection.remove(OUT)"),
    ("neighbours looked at", _ATTEMPTS, "Attempts._execute", "after", "seen = isolation("),
    ("record made", _ATTEMPTS, "Attempts.run", "after", "record = self._record("),
    ("staged files checked", _STORE, "Store.publish", "after", "_check_artifacts(folder, record)"),
    (f"{RECORD} half written", _STORE, "write_durably", "before", "file.write(text)",
     _written(RECORD) | {"doing": _HALF}),
    (f"{RECORD} written, not renamed", _STORE, "write_durably", "before", "part.rename(path)",
     _written(RECORD)),
    (f"{RECORD} staged", _STORE, "write_durably", "after", "part.rename(path)", _written(RECORD)),
    *[
        (f"{name} on the disk", _STORE, "Store.publish", "after", "_sync(folder / name)",
         {"when": f"name == {name!r}"})
        for name in ARTIFACTS
    ],
    ("staged folder on the disk", _STORE, "Store.publish", "after", "_sync(folder)"),
    ("folder of the set made", _STORE, "Store.publish", "after", "target.parent.mkdir("),
    ("before the rename", _STORE, "Store.publish", "before", _PLACED),
    ("after the rename", _STORE, "Store.publish", "after", _PLACED),
    ("rename on the disk", _STORE, "Store.publish", "after", "_sync(target.parent)"),
    ("index entry half written", _CHECKED, "Checked.add", "before", "self._log.write(",
     {"doing": "self._log.write(entry[0].encode()); self._log.flush()"}),
    ("index entry written", _CHECKED, "Checked.add", "after", "self._log.flush()"),
    ("run counted", _LOCAL, "Crew._work_through", "after", "self._observer.finished("),
    ("second run: request sent", _EXECUTOR, "Executor.execute", "after", "worker.send(", {"nth": 2}),
    ("second run: before the rename", _STORE, "Store.publish", "before", _PLACED, {"nth": 2}),
    ("second run: after the rename", _STORE, "Store.publish", "after", _PLACED, {"nth": 2}),
    ("second run: counted", _LOCAL, "Crew._work_through", "after", "self._observer.finished(", {"nth": 2}),
    ("agent ended", _CONNECTION, "LocalStream.kill", "after", "os.killpg("),
    ("guest stopped", _SESSION, "Session.close", "after", "self._provider.stop("),
    ("cores freed", _SIDES, "SideBySide._work", "after", "self._running.discard("),
    ("all guests at rest", _SWEEP, "run_specs", "before", "summary.elapsed_s ="),
    ("sweep over", "orchestrator.sweeping", "work", "after", "outcome = _sweep("),
])  # fmt: skip

RETRY = _points("orchestrator", "retry", "self", [
    ("evidence's folder made", _STORE, "Store.keep_failure", "after", "staged = self.new_incoming()"),
    ("error.json half written", _STORE, "write_durably", "before", "file.write(text)",
     _written("error.json") | {"doing": _HALF}),
    ("error.json written", _STORE, "write_durably", "after", "part.rename(path)", _written("error.json")),
    ("log half kept", _STORE, "Store.keep_failure", "before", "shutil.copyfile(folder / LOG, staged / LOG)",
     {"doing": "(staged / LOG).write_bytes((folder / LOG).read_bytes()[:1])"}),
    ("evidence complete, not in place", _STORE, "Store.keep_failure", "before", "staged.rename(target)"),
    ("evidence in place", _STORE, "Store.keep_failure", "after", "staged.rename(target)"),
    ("attempt's files removed", _STORE, "Store.keep_failure", "after", "shutil.rmtree(folder"),
    ("failure told", _ATTEMPTS, "Attempts.run", "after", "reports.failed("),
    ("lost guest closed", _ATTEMPTS, "Attempts.run", "after", "session.close()"),
    ("second attempt: request sent", _EXECUTOR, "Executor.execute", "after", "worker.send(", {"nth": 2}),
])  # fmt: skip

DAMAGED = _points("orchestrator", "damaged", "self", [
    ("damage found", _SWEEP, "run_specs", "inside", "for spec, reason in found.damaged:"),
    ("reason half written", _STORE, "write_durably", "before", "file.write(text)",
     _written("reason.txt") | {"doing": _HALF}),
    ("reason written", _STORE, "write_durably", "after", "part.rename(path)", _written("reason.txt")),
    ("damaged run set aside", _STORE, "Store.set_aside", "after", "source.rename(target)"),
    ("damaged run told", _SWEEP, "run_specs", "after", "observer.quarantined("),
])  # fmt: skip

_PROJECTS = "orchestrator.projects"
PROJECT = _points("orchestrator", "project", "self", [
    ("project's files hashed", _PROJECTS, "_take", "before", "size = sum("),
    ("project half archived", _PROJECTS, "_take", "before", "_write_archive(part",
     {"doing": "part.write_bytes(b'half')"}),
    ("project archived, not in place", _PROJECTS, "_take", "before", "part.rename("),
    ("project's archive in place", _PROJECTS, "_take", "after", "part.rename("),
    ("project's description half written", _STORE, "write_durably", "before", "file.write(text)",
     _written("mine.json") | {"doing": _HALF}),
    ("project taken", _LOCAL, "LocalEngine.work", "after", "projects.prepare("),
    ("project brought", _SESSION, "Session.executor", "before", "self._executor = Executor("),
])  # fmt: skip

_SERVICE = "guest.projects.service"
PROJECT_AGENT = _points("agent", "project", "group", [
    ("project's request read", _SERVICE, "serve", "after", "request = from_json("),
    ("project unpacked", _SERVICE, "run", "after", "work = unpack("),
    ("project's command over", _SERVICE, "run", "after", "ended = command.run("),
    ("project's weights read", _SERVICE, "run", "after", "weights_sha256, weights_file = "),
    ("project's predictions read", _SERVICE, "run", "after", "predictions = _predictions("),
])  # fmt: skip

_AGENT, _TRAINING = "guest.agent", "guest.training"
AGENT = _points("agent", "sweep", "self", [
    ("started", _AGENT, "main", "before", "speaker = Speaker("),
    ("framework imported", _AGENT, "Worker.serve", "before", "warm = Warm("),
    ("ready", _AGENT, "Worker.serve", "after", "self._speaker.say('hello'"),
    ("request read", _AGENT, "Worker.serve", "after", "request: Any = from_json("),
    ("data loaded", _AGENT, "Worker.serve", "after", "warm.load(request)"),
    ("run forked", _AGENT, "Worker._fork", "before", "die_with_parent()"),
    ("log opened", _AGENT, "execute", "after", "os.close(log)"),
    ("run told", _AGENT, "execute", "after", "speaker.say('hello'"),
    ("threads set", _AGENT, "_run", "after", "threads.apply("),
    ("seeds drawn", _AGENT, "_run", "after", "seeds.seed_globals(drawn)"),
    ("model built", _AGENT, "_run", "after", "backend = workloads.build("),
    ("training step 1", _TRAINING, "train", "after", "on_step(step)", {"when": "step == 1"}),
    ("weights of step 2 hashed", _TRAINING, "train", "after", "step_hashes[str(step)] =",
     {"when": "step == 2"}),
    ("training step 3", _TRAINING, "train", "after", "on_step(step)", {"when": "step == 3"}),
    ("epoch over", _TRAINING, "train", "after", "history.append(row)"),
    ("epoch told", _TRAINING, "train", "after", "on_epoch(row)"),
    ("last epoch told", _TRAINING, "train", "after", "on_epoch(row)", {"when": "epoch == spec.epochs"}),
    ("trained", _AGENT, "_run", "after", "outcome = train("),
    ("history.csv half written", _AGENT, "_write", "after", "writer.writeheader()"),
    ("history.csv written", _AGENT, "_write", "before", "np.savez("),
    ("predictions.npz half written", _AGENT, "_write", "before", "np.savez(",
     {"doing": "(out / PREDICTIONS).write_bytes(b'PK')"}),
    ("predictions.npz written", _AGENT, "_write", "after", "np.savez("),
    *[
        row
        for name in ("weights.safetensors", "selected.safetensors")
        for row in (
            (f"{name} half written", _AGENT, "_write", "before", "save_file(",
             {"when": f"name == {name!r}", "doing": "(out / name).write_bytes(b'half')"}),
            (f"{name} written", _AGENT, "_write", "after", "save_file(", {"when": f"name == {name!r}"}),
        )
    ],
    ("machine looked at", _AGENT, "_run", "after", "environment = fingerprint.fingerprint("),
    ("result sealed", _AGENT, "execute", "before", "speaker.say('done'"),
    ("result half sent", _AGENT, "Speaker.say", "after", "data = line.encode()",
     {"when": "kind == 'done'", "doing": "os.write(self._descriptor, data[:len(data) // 2])"}),
    ("result sent", _AGENT, "execute", "after", "speaker.say('done'"),
    ("and its run, in training step 3", _TRAINING, "train", "after", "on_step(step)",
     {"when": "step == 3", "victim": "group"}),
    ("and its run, result half sent", _AGENT, "Speaker.say", "after", "data = line.encode()",
     {"when": "kind == 'done'", "doing": "os.write(self._descriptor, data[:len(data) // 2])",
      "victim": "group"}),
    ("and its run, result sent", _AGENT, "execute", "after", "speaker.say('done'", {"victim": "group"}),
])  # fmt: skip

GUEST = _points("guest", "sweep", "guest", [
    ("killed, agent started", _CONNECTION, "LocalConnection._start", "after",
     "stream = LocalStream(process)", _SERVE),
    ("killed, agent ready", _EXECUTOR, "Executor._warm_worker", "before", "version = message.body.get("),
    ("killed, request sent", _EXECUTOR, "Executor.execute", "after", "worker.send("),
    ("killed, first message read", _EXECUTOR, "Executor._follow", "before",
     "if message.run_id != spec.run_id:"),
    ("killed, epoch told", _EXECUTOR, "Executor._follow", "after", "on_message(message)",
     {"when": "message.kind == 'epoch'"}),
    ("killed, result received", _EXECUTOR, "Executor.execute", "before", "self._collect(out, into"),
    ("killed, weights received", _EXECUTOR, "Executor._collect", "after", "self._connection.get(",
     {"when": "name == 'weights.safetensors'"}),
    ("killed, between runs", _LOCAL, "Crew._work_through", "after", "self._observer.finished("),
])  # fmt: skip

_SSH = "orchestrator.ssh"
SSHD = _points("guest", "ssh", "sshd", [
    ("cut off, agent half pushed", _SSH, "SshConnection.put", "after", "file.set_pipelined(True)",
     {"when": "local.suffix == '.pyz'"}),
    ("cut off, agent ready", _EXECUTOR, "Executor._warm_worker", "before", "version = message.body.get("),
    ("cut off, request sent", _EXECUTOR, "Executor.execute", "after", "worker.send("),
    ("cut off, epoch told", _EXECUTOR, "Executor._follow", "after", "on_message(message)",
     {"when": "message.kind == 'epoch'"}),
    ("cut off, result received", _EXECUTOR, "Executor.execute", "before", "self._collect(out, into"),
    ("cut off, weights half received", _SSH, "SshConnection.get", "after", "source.prefetch(",
     {"when": "local.name == 'weights.safetensors'"}),
    ("cut off, between runs", _LOCAL, "Crew._work_through", "after", "self._observer.finished("),
])  # fmt: skip

OVER_SSH = _points("orchestrator", "ssh", "self", [
    ("weights half received over ssh", _SSH, "SshConnection.get", "before", "target.write(chunk)",
     {"when": "local.name == 'weights.safetensors'",
      "doing": "target.write(chunk[:len(chunk) // 2]); target.flush()"}),
])  # fmt: skip

_HOST, _SLOTS = "orchestrator.engine.host", "orchestrator.engine.slots"
WORKER = _points("worker", "hosts", "self", [
    ("order read", _HOST, "Host.perform", "before", "work = self._work(order)"),
    ("study made ready", _HOST, "Host.perform", "after", "work = self._work(order)"),
    ("guest made", _SLOTS, "Slots._warmed", "after", "slot.guest = provision.make_guest("),
    ("run under way", _EXECUTOR, "Executor.execute", "after", "worker.send("),
    ("run kept", _STORE, "Store.publish", "after", "_sync(target.parent)"),
    ("files half handed over", _HOST, "Host._receipt", "after", "shutil.copyfile(", {"nth": 2}),
    ("files handed over", _HOST, "Host._receipt", "before", "return Receipt(host=host, record="),
    ("delivered run half dropped", _STORE, "Store.drop", "before", "shutil.rmtree(",
     {"doing": "(self.runs / run_id / 'weights.safetensors').unlink(missing_ok=True)"}),
])  # fmt: skip

_FLEET, _DISPATCH = "orchestrator.engine.fleet", "orchestrator.engine.dispatch"
_DASK = "orchestrator.engine.dask"
MANY_HOSTS = _points("orchestrator", "hosts", "self", [
    ("token left", _DASK, "DaskEngine._orders", "after", "directory, token = "),
    ("host found", _FLEET, "Fleet._found", "after", "self.packing.add_host("),
    ("order handed out", _DISPATCH, "Dispatch.hand_out", "after", "future = self._client.submit("),
    ("receipt read", _FLEET, "Fleet._take", "after", "receipt = None if"),
    ("receipt's files found", _FLEET, "Fleet._publish", "after", "folder = self._store.collected("),
    ("host's run published", _FLEET, "Fleet._publish", "before", "self._checked.add("),
    ("host not told yet", _FLEET, "Fleet._take", "after", "self._delivered.setdefault("),
    ("hosts about to rest", _DASK, "DaskEngine._connected", "before", "self._ask(client, host, tasks.rest"),
])  # fmt: skip

POINTS: tuple[Point, ...] = (
    *ORCHESTRATOR, *RETRY, *DAMAGED, *PROJECT, *OVER_SSH, *MANY_HOSTS, *WORKER, *AGENT, *PROJECT_AGENT,
    *GUEST, *SSHD,
)  # fmt: skip
