"""State of one suite during a run: the plan, the results so far, and the record made of them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

from roofwatch.collector.compile.static_compiler import StaticCompiler
from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.journal import ALONE, CompiledCase, Entry, Journal, changes
from roofwatch.collector.record.machine import Ceiling, DeviceState, Environment, Outcome
from roofwatch.collector.record.measurement import Block, CaseRecord, Measurement
from roofwatch.collector.record.record import Commit, Pairing, RunRecord, utc_now
from roofwatch.collector.record.results import Accuracy, CaseProfile, StaticFacts
from roofwatch.collector.redaction import Redaction, redact
from roofwatch.collector.run_plan import HARNESS_VERSION, Activity, RunPlan, Selection, SpentTime, Subject, accuracy_of
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.timing.case_timing import CaseTiming, choose_timing, under_the_roof
from roofwatch.collector.timing.method import ChosenMethod
from roofwatch.collector.workers.protocol import (
    CheckAccuracy,
    DescribeEnvironment,
    ImplementationInfo,
    MeasureCeilings,
    ProfileCalls,
    Reply,
    SuiteInfo,
    TimeBlock,
    explained,
    machine_error,
)
from roofwatch.collector.workers.worker_pool import WorkerPool

OnStep = Callable[[str], None]
"""Called with a description of each finished step."""


class SuiteRun:
    """Measures one suite step by step. A failing kernel is an outcome; an exception is a failure of the collector.

    Args:
        source: The suite.
        plan: What to measure.
        journal: Stores results; those of an interrupted run are read from it, not measured again.
        session: The device session, shared by two suites of one job; default a new one.
        side: Side of the run in the journal.
    """

    def __init__(
        self,
        source: SuiteSource,
        plan: RunPlan,
        journal: Journal | None = None,
        session: DeviceSession | None = None,
        side: str = ALONE,
    ) -> None:
        self.source = source
        self.plan = plan
        self._session = session or DeviceSession()
        self.spent = SpentTime()
        self._journal = journal
        self._side = side
        self._is_stopped = threading.Event()
        self._run_id = uuid.uuid4() if journal is None else journal.header.suites[side].run_id
        self._started_at = utc_now() if journal is None else journal.header.started_at
        self._device = plan.device or "cpu"
        self.chosen: ChosenMethod | None = None
        """Timer and cache state; None until the machine is described."""
        self._environment: Environment | None = None
        self._ceilings: tuple[Ceiling, ...] = ()
        self._at_ceilings: tuple[DeviceState, ...] = ()
        """Device readings while the ceilings were measured."""
        self._cases: dict[str, CaseRecord] = {}
        self._rank_counts: dict[str, int] = {}
        self._infos: dict[Subject, ImplementationInfo] = {}
        self._accuracies: dict[Subject, Accuracy] = {}
        self._static_facts: dict[Subject, tuple[StaticFacts, ...]] = {}
        self._timings: dict[Subject, CaseTiming] = {}
        self._profiles: dict[Subject, CaseProfile] = {}

    def select(self, info: SuiteInfo) -> None:
        """Select the cases and implementations to measure.

        Raises:
            SuiteError: no kernel or implementation matches the plan.
        """
        self._device = info.device
        plan = self.plan
        for found in Selection(plan.kernels, plan.implementations, plan.tags, plan.usual_tag, plan.cases).of(info):
            self._cases[found.case.case_id] = found.case
            self._rank_counts[found.case.case_id] = found.rank_count
            self._infos[found.subject] = found.implementation
        self._restore()

    def describe_machine(self, workers: WorkerPool) -> None:
        """Read the environment and measure the ceilings, while nothing else runs.

        Raises:
            CollectorError: the machine cannot be described, or the run was started on another one.
        """
        with self.spent.on(Activity.START):
            reply = workers.request(DescribeEnvironment(), timeout_s=self.plan.environment_timeout_s)
        if reply.environment is None:
            raise machine_error("the machine cannot be described", reply.failure, self._device)
        environment = self._session.begin(reply.environment, reply.device_uuid)
        if self._environment is None:
            self._environment = environment
            self._keep(environment=environment)
        else:
            before, now = (each.model_dump(mode="json") for each in (self._environment, environment))
            if changed := ", ".join(changes(before, now)):
                raise JournalError(f"the run was started on another machine: {changed}; resume there, or use --discard")
        self.chosen = self._choose_timing(workers)
        if self._ceilings:
            return
        dtypes = tuple(sorted({case.dtype for case in self._cases.values()}))
        with self.spent.on(Activity.CEILINGS):
            job = MeasureCeilings(dtypes=dtypes, timer=self.chosen.method.timer)
            reply = workers.request(job, timeout_s=self.plan.environment_timeout_s)
        if reply.ceilings is None:
            raise machine_error("the ceilings cannot be measured", reply.failure, self._device)
        self._ceilings = tuple(measured.ceiling for measured in reply.ceilings)
        self._at_ceilings = self._session.states_at(reply.ceilings)
        self._keep(ceilings=self._ceilings, at_ceilings=self._at_ceilings)

    def _choose_timing(self, workers: WorkerPool) -> ChosenMethod:
        """Choose timer and cache state for the whole run; an earlier process of the same run decides.

        Raises:
            TimerError: the requested or earlier choice is not available.
        """
        earlier = next((timing for timing in self._timings.values() if timing.blocks), None)
        touched = () if self.plan.cases else {self._cases[subject.case_id].memory_bytes for subject in self.to_check}
        with self.spent.on(Activity.START):
            return choose_timing(workers, self.plan, self._device, earlier=earlier, touched_bytes=touched)

    @property
    def to_compile(self) -> list[Subject]:
        if not self.plan.targets:
            return []
        return [subject for subject, info in self._infos.items() if info.language != "torch"]

    @property
    def to_interpret(self) -> list[Subject]:
        """Triton implementations on a machine without a GPU: checked in the interpreter, not timed."""
        return [subject for subject in self._infos if not self._runs_on_device(subject)]

    @property
    def to_check(self) -> list[Subject]:
        return [subject for subject in self._infos if self._runs_on_device(subject)]

    @property
    def to_time(self) -> list[Subject]:
        """Subjects that are correct and have not failed during timing."""
        return [
            subject
            for subject in self.to_check
            if subject in self._accuracies
            and self._accuracies[subject].outcome is Outcome.OK
            and self._timing(subject).failure is None
        ]

    def compile(self, compiler: StaticCompiler, on_step: OnStep) -> None:
        """Compile for the targets, except what was compiled before."""
        missing = []
        for subject in self.to_compile:
            if subject in self._static_facts:
                on_step(f"compiled {subject}")
            else:
                missing.append(subject)
        compiled = compiler.compile(missing, self.plan.targets) if missing else iter(())
        while True:
            with self.spent.on(Activity.COMPILE):
                found = next(compiled, None)
            if found is None:
                return
            self._static_facts[found.subject] = found.facts
            self._keep(compiled=CompiledCase(**found.subject.named, static_facts=found.facts))
            on_step(f"compiled {found.subject}")

    def interpret(self, workers: WorkerPool, on_step: OnStep) -> None:
        """Run checks in Triton's interpreter; runs in its own thread until `stop()`."""
        for subject in self.to_interpret:
            if subject not in self._accuracies:
                reply = workers.request(
                    CheckAccuracy(**subject.named),
                    timeout_s=self.plan.check_timeout_s,
                    rank_count=self._rank_count(subject),
                )
                accuracy = self._accuracy_of(subject, reply)
                if self._is_stopped.is_set():
                    return  # its process may have been ended: that says nothing about the kernel
                self._accuracies[subject] = accuracy
                if self._journal is not None:
                    self._journal.append(Entry(side=self._side, accuracy=accuracy))
            on_step(f"checked {subject}")

    @property
    def is_on_cpu(self) -> bool:
        return self._device == "cpu"

    @property
    def has_torch_compile(self) -> bool:
        return any(self._infos[subject].is_compiled for subject in self.to_check)

    def check(self, workers: WorkerPool, on_step: OnStep, *, worker_count: int = 1) -> None:
        """Check what runs on the device, `worker_count` at a time."""
        for subject in self.to_check:
            if subject in self._accuracies:
                on_step(f"checked {subject}")
        missing = {subject: self._rank_count(subject) for subject in self.to_check if subject not in self._accuracies}
        checked = workers.check_all(missing, worker_count=worker_count, timeout_s=self.plan.check_timeout_s)
        with closing(checked):
            while True:
                with self.spent.on(Activity.CHECK):
                    found = next(checked, None)
                if found is None:
                    return
                subject, reply = found
                accuracy = self._accuracies[subject] = self._accuracy_of(subject, reply)
                self._keep(accuracy=accuracy)
                on_step(f"checked {subject}")

    def stop(self) -> None:
        """Ignore all results that still arrive."""
        self._is_stopped.set()

    def block_count(self, subject: Subject) -> int:
        return len(self._timing(subject).blocks)

    def keep_blocks(self, subject: Subject, count: int) -> None:
        """Keep only the first `count` blocks."""
        timing = self._timing(subject)
        if len(timing.blocks) > count:
            del timing.blocks[count:]
            self._keep_step(subject, timing)

    def launches_per_sample(self, subject: Subject) -> int | None:
        """Launches per sample of the subject's blocks; None before the first block."""
        return self._timing(subject).launches_per_sample

    def cool_down(self, on_wait: OnStep) -> None:
        """Wait for a throttled device to cool down."""
        if self._session.is_too_hot:
            with self.spent.on(Activity.COOL_DOWN):
                self._session.cool_down(on_wait)

    def take_block(self, workers: WorkerPool, subject: Subject, launches_per_sample: int | None = None) -> None:
        """Time one more block; the first block chooses the launches per sample unless given."""
        timing, block = self._timing(subject), None
        with self.spent.on(Activity.OVERHEAD):
            reply = workers.request(
                TimeBlock(
                    case_id=subject.case_id,
                    implementation=subject.implementation,
                    plan=self.plan.sampling,
                    method=None if self.chosen is None else self.chosen.method,
                    launches_per_sample=timing.launches_per_sample or launches_per_sample,
                ),
                timeout_s=self.plan.block_timeout_s,
                rank_count=self._rank_count(subject),
            )
        if reply.block is not None:
            timing.add(self._session.with_state(reply.block))
            block = timing.blocks[-1]
            self.spent.was_in_truth(Activity.WARM_UP, reply.block.warm_up_ns, counted_as=Activity.OVERHEAD)
            self.spent.was_in_truth(Activity.TIMING, reply.block.timed_ns, counted_as=Activity.OVERHEAD)
        else:
            timing.failure = explained(reply.failure, self.plan.block_timeout_in_words)
        self._keep_step(subject, timing, block)

    @property
    def to_profile(self) -> list[Subject]:
        """What was timed and runs in one process, if profiles were requested."""
        timed = [subject for subject in self.to_time if self.block_count(subject)] if self.plan.has_profiles else []
        return [subject for subject in timed if self._rank_count(subject) == 1]

    def profile(self, workers: WorkerPool, on_step: OnStep, on_trouble: OnStep) -> None:
        """Profile some calls; a subject that cannot be profiled keeps its times."""
        for subject in self.to_profile:
            if subject not in self._profiles:
                with self.spent.on(Activity.PROFILE):
                    reply = workers.request(ProfileCalls(**subject.named), timeout_s=self.plan.block_timeout_s)
                if reply.profile is not None:
                    self._profiles[subject] = reply.profile
                    self._keep(profile=reply.profile)
                elif reply.failure is not None:
                    on_trouble(f"{subject} was not profiled: {reply.failure.message}")
            on_step(f"profiled {subject}")

    @property
    def static_facts(self) -> tuple[StaticFacts, ...]:
        """In the order of the suite."""
        return tuple(fact for subject in self._infos for fact in self._static_facts.get(subject, ()))

    def record(self, commit: Commit, project: str, pairing: Pairing | None = None) -> RunRecord:
        """The redacted record of all results."""
        assert self._environment is not None, "describe_machine() comes first"
        telemetry = self._session.telemetry
        record = RunRecord(
            run_id=self._run_id,
            project=project,
            commit=commit,
            started_at=self._started_at,
            finished_at=max(utc_now(), self._started_at),  # the clock may have been set back meanwhile
            harness_version=HARNESS_VERSION,
            environment=self._environment,
            preset=self.plan.preset,
            pairing=pairing,
            ceilings=self._ceilings,
            cases=tuple(self._cases.values()),
            measurements=tuple(self._measurement(subject) for subject in self._infos),
            accuracies=tuple(self._accuracies[subject] for subject in self._infos if subject in self._accuracies),
            static_facts=self.static_facts,
            profiles=tuple(self._profiles[subject] for subject in self._infos if subject in self._profiles),
            source_lines=tuple(dict.fromkeys(line for info in self._infos.values() for line in info.source_lines)),
            telemetry=telemetry and telemetry.model_copy(update={"at_ceilings": self._at_ceilings}),
            spent_ns=self.spent.total_ns,
        )
        return redact(record, Redaction.of_this_machine())

    def _keep(self, **came_back: Any) -> None:
        if self._journal is not None:
            new = {"spent_ns": self.spent.take_new(), "seen": self._session.take_new()}
            self._journal.append(Entry(side=self._side, **new, **came_back))

    def _keep_step(self, subject: Subject, timing: CaseTiming, block: Block | None = None) -> None:
        self._keep(timed=timing.step(subject, block))

    def _restore(self) -> None:
        """Restore results of an interrupted run."""
        for entry in () if self._journal is None else self._journal.entries(self._side):
            self.spent.add_earlier(entry.spent_ns)
            self._environment = entry.environment or self._environment
            if entry.ceilings is not None:
                self._ceilings, self._at_ceilings = entry.ceilings, entry.at_ceilings
            if entry.accuracy is not None:
                self._accuracies[Subject(entry.accuracy.case_id, entry.accuracy.implementation)] = entry.accuracy
            if (compiled := entry.compiled) is not None:
                self._static_facts[Subject(compiled.case_id, compiled.implementation)] = compiled.static_facts
            if entry.timed is not None:
                subject = Subject(entry.timed.case_id, entry.timed.implementation)
                self._timings[subject] = self._timing(subject).after(entry.timed)
            if (profile := entry.profile) is not None:
                self._profiles[Subject(profile.case_id, profile.implementation)] = profile

    def _runs_on_device(self, subject: Subject) -> bool:
        return self._device != "cpu" or self._infos[subject].language == "torch"

    def _timing(self, subject: Subject) -> CaseTiming:
        return self._timings.setdefault(subject, self._untimed())

    def _untimed(self) -> CaseTiming:
        if self.chosen is None:
            return CaseTiming()
        return CaseTiming(timer=self.chosen.method.timer, cache=self.chosen.method.cache)

    def _rank_count(self, subject: Subject) -> int:
        return self._rank_counts[subject.case_id]

    def _accuracy_of(self, subject: Subject, reply: Reply) -> Accuracy:
        here = self._runs_on_device(subject)
        return accuracy_of(subject, reply, timeout_s=self.plan.check_timeout_s, runs_here=here)

    def _measurement(self, subject: Subject) -> Measurement:
        assert self._environment is not None
        timing = self._timing(subject)
        failure = timing.why_untimed(self._accuracies.get(subject), runs_here=self._runs_on_device(subject))
        measured = timing.measurement(subject, failure)
        return under_the_roof(measured, self._cases[subject.case_id], self._ceilings, self._environment)
