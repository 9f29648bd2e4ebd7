"""What `vbstudy harden` does: trains a workload with every tier on every CPU count, and keeps what came out.

In each guest the tiers take turns, the default among them, forwards and backwards from one repetition to the
next: a tier and the default of one repetition are a pair, measured under the same conditions. Every training
is stored as soon as it is done, so that nothing is lost with a process that is killed. What follows from the
measurements, the analysis decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from guest.machine import fingerprint, seeds, tiers
from guest.records.codec import digest
from guest.records.harden import Hardening, Measurement, Profile, Proof
from guest.records.run import EMULATORS, Framework, RunResult, RunSpec, Tier, Variant, WorkloadSpec
from orchestrator.agent.archive import AgentArchive
from orchestrator.agent.executor import Executor, RunFailedError
from orchestrator.errors import GuestError, UsageError, says_full
from orchestrator.files import temporary_folder
from orchestrator.guests import temporary
from orchestrator.guests.session import alone
from orchestrator.inventory import Guest, guest_spec
from orchestrator.programs.try_report import times_default
from orchestrator.providers import Provider
from orchestrator.store.store import Store, now
from orchestrator.study import snapshots
from orchestrator.study.schema import Study
from orchestrator.text import Say

NOTHING = "writes neither weights nor predictions that its table names, so that no models can be compared"
ENVIRONMENT = ("cpu", "machine", "libraries", "hypervisor")  # of the fingerprint: what a proof is bound to


def begin(
    study: Study,
    store: Store,
    base: RunSpec,
    cpus: Sequence[int],
    asked: Sequence[Tier],
    repetitions: int,
    agent: AgentArchive,
    say: Say,
) -> Hardening:
    """What is to be measured, with the measurements that are stored and still hold: of the same training by
    the same agent. Raises UsageError for less than two CPU counts."""
    if len(cpus) < 2:
        raise UsageError(f"--cpus {cpus[0]}: name two or more CPU counts, for example 1,2,4")
    chosen = tuple(tier for tier in tiers.TIERS if tier in {Tier.SEEDS, *asked})
    known = profile(store, base.workload)
    own = base.workload.project is not None
    fresh = Hardening(
        workload=base.workload,
        seeds=seeds.draw(study.factor_seeds(Variant.FIXED_SEED)),
        isa=study.isa,
        cpus=tuple(cpus),
        repetitions=repetitions,
        tiers=chosen,
        not_applicable={},
        provider=study.provider.kind if store.guests_file.exists() else "local",
        agent_sha256=agent.sha256,
        environments={},
        measurements=(),
        profile=known,
        tree_sha256=snapshots.read(store, base.workload.name).tree_sha256 if own else "",
    )
    stored = store.hardenings.read(base.workload.name)
    if stored is None:
        return fresh
    same = ("workload", "tree_sha256", "isa", "provider", "agent_sha256")
    differing = [name for name in same if getattr(stored, name) != getattr(fresh, name)]
    if differing or not _same_seeds(study, stored):
        what = {"tree_sha256": "version of the project"}.get(name := (differing or ["seed"])[0], name)
        say(f"{base.workload.name}: the stored trainings are of another {what}; they are repeated")
        return fresh
    # What failed may have been mended meanwhile; other CPU counts may ask for other fixed threads.
    kept = tuple(
        each
        for each in stored.measurements
        if not each.error
        and each.intra_op
        == tiers.threads_of(each.tier, framework_of(base.workload), each.cpus, max(cpus)).intra_op
    )
    return dataclasses.replace(fresh, seeds=stored.seeds, environments=stored.environments, measurements=kept)


def unsuitable(workload: WorkloadSpec) -> str:
    """Why tiers cannot be set for a project; "" where they can."""
    if workload.replays:
        return 'random = "replay": only projects whose runs repeat with a seed can be hardened'
    if workload.computes_with is None:
        return 'tiers need a framework: name it in the workload\'s table, as in framework = "torch"'
    return ""


def framework_of(workload: WorkloadSpec) -> Framework:
    """Of a suitable one."""
    assert workload.computes_with is not None  # noqa: S101
    return workload.computes_with


def profile(store: Store, workload: WorkloadSpec) -> Profile | None:
    """Which operations vary with the thread count, by the traces of this training; None without any."""
    stored = store.stored_traces()
    traces = [trace for trace in stored if trace.workload.comparable == workload.comparable]
    if not traces:
        return None
    return Profile(
        traces=tuple(trace.trace_id for trace in traces),
        varying=tuple(dict.fromkeys(origin.op for trace in traces for origin in trace.origins)),
        unknown=tuple(dict.fromkeys(op for trace in traces for op in trace.unknown)),
    )


def _same_seeds(study: Study, stored: Hardening) -> bool:
    """Free factors were drawn once, and stay as they were drawn."""
    wanted = dataclasses.asdict(study.factor_seeds(Variant.FIXED_SEED))
    have = dataclasses.asdict(stored.seeds)
    return all(value is None or have[factor] == value for factor, value in wanted.items())


def measure(study: Study, store: Store, hardening: Hardening, agent: AgentArchive, say: Say) -> Hardening:
    """Measures what is missing. The caller holds the study's lock."""
    wanted = [guest_spec(count, study.cpu_models[0]) for count in hardening.cpus]
    most = len(hardening.cpus) * len(hardening.tiers) * hardening.repetitions
    say(
        f"{hardening.workload.name}: {most} trainings at most: {len(hardening.tiers)} tiers on "
        f"{', '.join(map(str, hardening.cpus))} CPUs, {hardening.repetitions} each; "
        f"{len(hardening.measurements)} are stored"
    )
    store.clear_incoming()
    try:
        with temporary.guests(study, store, wanted, say) as (provider, guests):
            for spec in wanted:
                hardening = Bench(study, store, provider, guests[spec.name], agent, say).work(hardening)
    finally:
        store.clear_incoming()
    return hardening


@dataclass(frozen=True, slots=True)
class Bench:
    """One guest, in which the tiers take turns."""

    study: Study
    store: Store
    provider: Provider
    guest: Guest
    agent: AgentArchive
    say: Say

    def work(self, hardening: Hardening) -> Hardening:
        """The hardening with this guest's measurements, each stored as soon as it was made."""
        vendor = self.guest.observed.cpu_vendor or fingerprint.cpu()["vendor"]
        framework = framework_of(hardening.workload)
        why = {tier: tiers.not_applicable(tier, framework, vendor) for tier in hardening.tiers}
        refused = {tier.value: reason for tier, reason in why.items() if reason}
        hardening = dataclasses.replace(hardening, not_applicable=hardening.not_applicable | refused)
        missing = self._missing(hardening)
        if not missing:
            return hardening
        with alone(self.study, self.store, self.provider, self.guest, self.agent, self.say) as session:
            executor = session.executor()
            return self._in_turns(hardening, missing, executor)

    def _missing(self, hardening: Hardening) -> list[tuple[Tier, int]]:
        """Tiers and repetitions, in the order in which they are measured."""
        done = {each.key for each in hardening.measurements}
        cpus, found = self.guest.spec.cpus, []
        for repetition in range(1, hardening.repetitions + 1):
            order = hardening.tiers if repetition % 2 else reversed(hardening.tiers)
            found += [
                (tier, repetition)
                for tier in order
                if tier.value not in hardening.not_applicable and (tier, cpus, repetition) not in done
            ]
        return found

    def _in_turns(
        self, hardening: Hardening, missing: list[tuple[Tier, int]], executor: Executor
    ) -> Hardening:
        failed: set[Tier] = set()
        for tier, repetition in missing:
            if tier in failed:  # it would again
                continue
            measured, environment = self._train(hardening, tier, repetition, executor)
            if measured.error:
                failed.add(tier)
            hardening = dataclasses.replace(
                hardening,
                environments=hardening.environments | environment,
                measurements=(*hardening.measurements, measured),
                results=(),
                cheapest=Tier.NONE,
            )
            self.store.hardenings.write(hardening.workload.name, hardening)
            text = measured.error or f"{measured.train_s:.2f} s of training, weights {measured.weights[:12]}"
            self.say(f"{self.guest.spec.name}, {tier} {repetition}/{hardening.repetitions}: {text}")
        return hardening

    def _train(
        self, hardening: Hardening, tier: Tier, repetition: int, executor: Executor
    ) -> tuple[Measurement, dict[str, dict[str, Any]]]:
        cpus = self.guest.spec.cpus
        spec = RunSpec(
            study_id=self.study.name,
            workload=hardening.workload,
            variant=Variant.FIXED_SEED,
            threads=tiers.threads_of(tier, framework_of(hardening.workload), cpus, max(hardening.cpus)),
            repetition=repetition,
            seeds=hardening.seeds,
            isa=hardening.isa,
            cpu_model=self.guest.spec.cpu_model,
            tier=tier,
        )
        result: RunResult | None = None
        error = ""
        with temporary_folder("vbstudy-harden-") as folder:
            try:
                result = executor.execute(spec, folder, lambda message: None)  # noqa: ARG005
            except RunFailedError as failure:
                error = str(failure).partition("\n")[0]
                if says_full(error):  # which says nothing of the tier
                    raise GuestError(
                        f"guest {self.guest.spec.name}: its disk is full; make room there and harden again: "
                        "what was measured is kept",
                        evidence=str(failure.error["traceback"]),
                    ) from None
        if result is not None and not any((result.hashes.weights, result.hashes.predictions)):
            error, result = NOTHING, None
        seen = {} if result is None else {name: result.environment.get(name) for name in ENVIRONMENT}
        key = digest(seen)[:16] if seen else ""
        measured = Measurement(
            tier=tier,
            cpus=cpus,
            intra_op=spec.threads.intra_op,
            repetition=repetition,
            weights=result.hashes.weights if result else "",
            logits=(result.hashes.logits or result.hashes.predictions) if result else "",
            step_hashes=result.step_hashes if result else {},
            train_s=result.timings.train_s if result else 0.0,
            oversubscribed=executor.context.oversubscribed,  # more threads than cores may be the tier itself
            emulated=self.guest.observed.details.get("accelerator") in EMULATORS,
            load_by_others=result.load_by_others if result else None,
            environment=key,
            error=error,
            finished_at=now(),
        )
        return measured, ({key: seen} if seen else {})


def told(hardening: Hardening) -> list[str]:
    """What to do, for a person: the cheapest tier that is proved, for what, and the lines to paste."""
    name, most = hardening.workload.name, max(hardening.cpus)
    if not hardening.cheapest:
        failed = [each for each in hardening.results if each.proof is Proof.FAILED]
        why = f"; {len(failed)} failed, the first: {failed[0].why}" if failed else ""
        return [f"{name}: no tier is proved to make its models equal on all thread counts{why}"]
    result = next(each for each in hardening.results if each.tier is hardening.cheapest)
    info, seed = tiers.TIERS[result.tier], hardening.seeds.initialisation or 0
    costs = [each.mean_cost for each in hardening.results if each.proof is Proof.PROVED]
    what = "cheapest tier that is proved,"
    if result.mean_cost is not None and None not in costs:
        what += f" at {times_default(result.mean_cost, result.mean_low, result.mean_high)} training time,"
    else:
        guess = (
            f", about {times_default(result.estimate)} training time" if result.estimate is not None else ""
        )
        what += (
            f" as far as its times tell{guess} (some are excluded from comparisons, so that this is an "
            f"estimate; to measure again on a quiet machine, move harden/{name}.json away),"
        )
    paste = tiers.lines(result.tier, framework_of(hardening.workload), seed, most)
    counts = ", ".join(map(str, hardening.cpus))
    seen = f"seen on {counts} CPUs in {result.n} trainings, and said of nothing else"
    return [
        f"{name}: the {what} is {info.number}, {info.title}; {seen}",
        f"  {_uncovered(hardening)}",
        "  before the program starts:",
        *(f"    {line}" for line in paste.shell),
        "  at the top of the script, before the first operation:",
        *(f"    {line}" for line in paste.python),
    ]


def _uncovered(hardening: Hardening) -> str:
    """What remains open: operations that vary by themselves, or that nobody has looked at."""
    known = hardening.profile
    if known is None:
        return "operations that vary or are unknown: not profiled (`vbstudy trace` does)"
    varying, unknown = (", ".join(names) or "none" for names in (known.varying, known.unknown))
    return f"operations seen to vary by themselves: {varying}; unknown to the registry: {unknown}"
