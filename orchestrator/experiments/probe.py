"""What `vbstudy probe` does: every operation of the registry on several thread counts, each in a process of
its own, for libraries read their settings when they are loaded. What differs is computed once more, and
fetched."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from analysis.diagnosis.probes import numbers
from guest.machine import fingerprint, threads
from guest.probe import registry
from guest.records.codec import RecordError, from_json, to_json
from guest.records.printable import counted
from guest.records.probe import Case, CaseResult, ProbeReport, ProbeRequest, ProbeRow
from guest.records.run import Framework, ThreadSpec
from guest.records.trace import TENSORS
from orchestrator.agent import archive
from orchestrator.agent.client import AgentClient
from orchestrator.agent.frameworks import lacks
from orchestrator.cores.leases import CoreLeases, host_cores
from orchestrator.errors import GuestError, PrerequisiteError, ProtocolError, UsageError
from orchestrator.files import temporary_folder
from orchestrator.store.store import Store, now
from orchestrator.study.messages import did_you_mean
from orchestrator.study.plan import program_spec
from orchestrator.study.providers import LocalTable
from orchestrator.study.schema import Study
from orchestrator.text import Say
from orchestrator.transport.connection import LocalConnection

SILENT_S, LONGEST_S = 300.0, 24 * 3600.0
CASES = 100  # of a request, so that the answer with 100 runs of each is no larger than a message may be
Distance = tuple[float | None, float | None, float | None, int | None]
"""Vs, Vermv, Vc, largest distance in ULPs."""
Apart = dict[tuple[str, str, int], Distance]
"""By case, part and thread count: how far the outputs lie from the reference's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is probed. The first of `threads` is the reference."""

    framework: Framework
    python: str
    threads: tuple[int, ...]
    pattern: str
    dtypes: tuple[str, ...]
    quick: bool
    runs: int


def cases(ask: Ask) -> tuple[Case, ...]:
    """Raises UsageError when no operation of the registry has such a name."""
    chosen = [o for o in registry.operations() if fnmatch.fnmatchcase(o.name, ask.pattern)]
    if not chosen:
        names = [o.name for o in registry.operations()]
        hint = did_you_mean(ask.pattern, names) or f"; there are {', '.join(names)}"
        raise UsageError(f"--operation {ask.pattern}: no operation has such a name{hint}")
    return tuple(
        Case(operation=o.name, size=size, dtype=dtype)
        for o in chosen
        for dtype in ask.dtypes
        for size in (o.sizes[1::2] if ask.quick else o.sizes)
    )


def interpreter(study: Study | None) -> str:
    """The one that the study's local guests use."""
    python = study.provider.python if study is not None and isinstance(study.provider, LocalTable) else None
    return python or sys.executable


def unknown(framework: Framework, store: Store) -> tuple[str, ...]:
    """Operations of the study's traced workloads that the registry does not know."""
    traces = [trace for trace in store.stored_traces() if trace.workload.computes_with is framework]
    ops = {op for trace in traces for op in trace.unknown}
    return tuple(sorted(op for op in ops if registry.setting_of(framework, op) is None))


def work(
    ask: Ask,
    store: Store,
    target: Path,
    write: Callable[[ProbeReport, Path], None],
    say: Say,
) -> ProbeReport:
    """Probes, and writes the report into the folder `target`, whole or not at all. Raises UsageError."""
    wanted, unknown_ = cases(ask), unknown(ask.framework, store)
    agent = archive.build()
    with temporary_folder("vbstudy-probe-") as folder, contextlib.ExitStack() as stack:
        stack.enter_context(CoreLeases(host_cores(), waiting=say).wait_for("probe", len(host_cores())))
        connection = LocalConnection(folder, ask.python, host_cores(), None, {})
        stack.callback(connection.close)
        agent.write(folder)
        workers, answers = [], []
        for count in ask.threads:
            say(f"{ask.framework} on {counted(count, 'thread')}: {len(wanted)} cases")
            worker = ProbeWorker(connection, agent.name, ask, count)
            workers.append(worker)
            answers.append(worker.ask(wanted, runs=ask.runs, keep=False))
        results = [by_case(results) for results, _ in answers]
        refused = {key: r.refused for each in results for key, r in each.items() if r.refused}
        differing = tuple(c for c in wanted if c.key not in refused and _differs(c, results))
        say(f"{len(differing)} of {len(wanted)} cases differ; what they gave is compared")
        apart = _apart(workers, ask.threads, differing, folder) if differing else {}
    report = ProbeReport(
        framework=ask.framework,
        created_at=now(),
        threads=ask.threads,
        runs=ask.runs,
        rows=tuple(_rows(ask, wanted, results, refused, apart)),
        refused=refused,
        unknown=unknown_,
        environment=answers[0][1],
    )
    store.write_together(target, functools.partial(write, report))
    return report


class ProbeWorker:
    """An agent on one thread count."""

    def __init__(self, connection: LocalConnection, agent: str, ask: Ask, count: int) -> None:
        self._ask = ask
        self._count = count
        spec = program_spec("probe", ThreadSpec(cpus=count, intra_op=count, inter_op=count), 0, ask.framework)
        env = threads.environment(spec, cpu_vendor=fingerprint.cpu()["vendor"])
        where = f"the probe on {counted(count, 'thread')}"
        command = ["probe", "--framework", ask.framework, "--threads", str(count)]
        self._client = AgentClient(connection, agent, command, env, where)
        try:
            self._client.greeting()
        except GuestError as error:
            if f"No module named '{ask.framework}'" not in error.evidence:
                raise
            raise PrerequisiteError(lacks(ask.framework, ask.python)) from None

    @property
    def folder(self) -> str:
        return f"kept-{self._count}"

    def ask(
        self, wanted: tuple[Case, ...], *, runs: int, keep: bool
    ) -> tuple[list[CaseResult], dict[str, Any]]:
        """The results and the environment. What is kept comes from one request, as it lies in one file."""
        step = len(wanted) if keep else CASES
        parts = (wanted[first : first + step] for first in range(0, len(wanted), step))
        answers = [self._results(part, runs, keep=keep) for part in parts]
        return [result for results, _ in answers for result in results], answers[0][1]

    def _results(
        self, wanted: tuple[Case, ...], runs: int, *, keep: bool
    ) -> tuple[list[CaseResult], dict[str, Any]]:
        request = ProbeRequest(framework=self._ask.framework, cases=wanted, runs=runs, keep=keep)
        self._client.send({"request": to_json(request), "out": self.folder})
        answer = self._client.answer(SILENT_S, LONGEST_S, "")
        if answer.kind != "done":
            text = f"{answer.body.get('kind')}: {answer.body.get('message')}"
            raise GuestError(
                f"the probe on {counted(self._count, 'thread')} failed: {text}",
                evidence=str(answer.body.get("traceback")),
            )
        try:
            found = [from_json(CaseResult, each, "done.results") for each in answer.body["results"]]
        except (KeyError, TypeError, RecordError) as error:
            raise ProtocolError(f"the agent's answer is malformed: {error}") from None
        if tuple(result.case for result in found) != wanted:
            raise ProtocolError("the agent answered for other cases")
        return found, answer.body.get("environment", {})


def by_case(results: Sequence[CaseResult]) -> dict[str, CaseResult]:
    return {result.case.key: result for result in results}


def _differs(case: Case, results: Sequence[dict[str, CaseResult]]) -> bool:
    parts = [[part.hashes[0] for part in each[case.key].parts] for each in results]
    return any(each != parts[0] for each in parts)


def _apart(
    workers: Sequence[ProbeWorker],
    counts: Sequence[int],
    differing: tuple[Case, ...],
    folder: Path,
) -> Apart:
    found: Apart = {}
    results = by_case(workers[0].ask(differing, runs=1, keep=True)[0])
    with safe_open(folder / workers[0].folder / TENSORS, "numpy") as reference:
        for worker, count in zip(workers[1:], counts[1:], strict=True):
            worker.ask(differing, runs=1, keep=True)
            with safe_open(folder / worker.folder / TENSORS, "numpy") as other:
                for case in differing:
                    for part in results[case.key].parts:
                        each = []
                        for i, dtype in enumerate(part.dtypes):
                            name = f"{case.key}/{part.part}/{i}"
                            each.append(numbers(reference.get_tensor(name), other.get_tensor(name), dtype))
                        found[case.key, part.part, count] = _largest(each)
    return found


def _largest(each: Sequence[Distance]) -> Distance:
    """Of each number, the one that is largest in magnitude."""
    columns = [[v for v in column if v is not None] for column in zip(*each, strict=True)]
    vs, vermv, vc, ulp = (max(column, key=abs, default=None) for column in columns)
    return vs, vermv, vc, None if ulp is None else int(ulp)


def _rows(
    ask: Ask,
    wanted: Sequence[Case],
    results: Sequence[dict[str, CaseResult]],
    refused: dict[str, str],
    apart: Apart,
) -> Iterator[ProbeRow]:
    for case in wanted:
        if case.key in refused:
            continue
        for i, reference in enumerate(results[0][case.key].parts):
            base_s = statistics.median(reference.seconds)
            for count, each in zip(ask.threads, results, strict=True):
                part = each[case.key].parts[i]
                vs, vermv, vc, ulp = apart.get((case.key, part.part, count), (None, None, None, None))
                median_s = statistics.median(part.seconds)
                yield ProbeRow(
                    operation=case.operation,
                    part=part.part,
                    dtype=case.dtype,
                    size=case.size,
                    threads=count,
                    equal=part.hashes[0] == reference.hashes[0],
                    unique=len(set(part.hashes)),
                    runs=len(part.hashes),
                    vs=vs,
                    vermv=vermv,
                    vc=vc,
                    max_ulp=ulp,
                    seconds=median_s,
                    ratio=median_s / base_s,
                )
