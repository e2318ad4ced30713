"""State of one suite during a run: the plan, the results so far, and the record made of them."""

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from roofwatch.collector.compile.static_compiler import compile_subjects
from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.errors import JournalError, SuiteError, TimerError
from roofwatch.collector.outbox.journal import ALONE, Entry, Journal, TimedStep, changes
from roofwatch.collector.record.machine import Ceiling, DeviceState, Environment, Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import Commit, Pairing, RunRecord, utc_now
from roofwatch.collector.record.results import Accuracy, CaseProfile, StaticFacts
from roofwatch.collector.redaction import Redaction, redact
from roofwatch.collector.run_plan import HARNESS_VERSION, Activity, RunPlan, Selected, SpentTime, Subject, select
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.timing.case_timing import CaseTiming, under_the_roof
from roofwatch.collector.timing.method import ChosenMethod
from roofwatch.collector.workers.protocol import (
    ChooseTiming,
    DescribeEnvironment,
    MeasureCeilings,
    ProfileCalls,
    Reply,
    SuiteInfo,
    TimeBlock,
    check_limit,
    machine_error,
)
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.collector.workload_values import workload_values

_MACHINE_TIMEOUT_S = 120.0
"""Time limit of describing the machine, of choosing a timer and of measuring the ceilings."""

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
        self.spent = SpentTime()
        self.chosen: ChosenMethod | None = None
        """Timer and cache state; None until the machine is described."""
        self._session = session or DeviceSession()
        self._journal = journal
        self._side = side
        self._run_id = uuid.uuid4() if journal is None else journal.header.suites[side].run_id
        self._started_at = utc_now() if journal is None else journal.header.started_at
        self._device = plan.device or "cpu"
        self._environment: Environment | None = None
        self._ceilings: tuple[Ceiling, ...] = ()
        self._at_ceilings: tuple[DeviceState, ...] = ()
        self._selected: dict[Subject, Selected] = {}
        self._accuracies: dict[Subject, Accuracy] = {}
        self._static_facts: dict[Subject, tuple[StaticFacts, ...]] = {}
        self._timings: dict[Subject, CaseTiming] = {}
        self._profiles: dict[Subject, CaseProfile] = {}

    def select(self, info: SuiteInfo, *, may_be_empty: bool = False) -> bool:
        """Select what to measure, and restore results of an interrupted run; return whether there is something.

        Raises:
            SuiteError: no kernel or implementation matches the plan, and `may_be_empty` is false.
        """
        self._device = info.device
        try:
            self._selected = {found.subject: found for found in select(info, self.plan)}
        except SuiteError:
            if not may_be_empty:
                raise
        self._timings = {subject: CaseTiming() for subject in self._selected}
        for entry in () if self._journal is None else self._journal.entries(self._side):
            self._restore(entry)
        return bool(self._selected)

    def describe_machine(self, workers: WorkerPool) -> None:
        """Read the environment, choose a timer and measure the ceilings, while nothing else runs.

        Raises:
            CollectorError: the machine cannot be described, or the run was started on another one.
            TimerError: the requested timer or cache state is not available.
        """
        with self.spent.on(Activity.START):
            reply = workers.request(DescribeEnvironment(), timeout_s=_MACHINE_TIMEOUT_S)
        if reply.environment is None:
            raise machine_error("the machine cannot be described", reply.failure, self._device)
        environment = self._session.begin(reply.environment, reply.device_uuid)
        if self._environment is None:
            self._environment = environment
            self._store(environment=environment)
        else:
            before, now = (each.model_dump(mode="json") for each in (self._environment, environment))
            if changed := ", ".join(changes(before, now)):
                raise JournalError(f"the run was started on another machine: {changed}; resume there, or use --discard")
        with self.spent.on(Activity.START):
            self.chosen = self._choose_timing(workers)
        if not self._ceilings:
            self._measure_ceilings(workers, self.chosen)

    def _choose_timing(self, workers: WorkerPool) -> ChosenMethod:
        """Choose timer and cache state as the plan asks, or as an earlier process of the run did."""
        earlier = next((timing.method for timing in self._timings.values() if timing.method is not None), None)
        timer, cache = (self.plan.timer, self.plan.cache) if earlier is None else (earlier.timer, earlier.cache)
        reply = workers.request(ChooseTiming(timer=timer, cache=cache), timeout_s=_MACHINE_TIMEOUT_S)
        if reply.timer_error is not None:
            raise TimerError(reply.timer_error)
        if reply.chosen is None:
            raise machine_error("no timer can be chosen", reply.failure, self._device)
        return reply.chosen

    def _measure_ceilings(self, workers: WorkerPool, chosen: ChosenMethod) -> None:
        dtypes = tuple(sorted({found.case.dtype for found in self._selected.values()}))
        with self.spent.on(Activity.CEILINGS):
            job = MeasureCeilings(dtypes=dtypes, timer=chosen.method.timer)
            reply = workers.request(job, timeout_s=_MACHINE_TIMEOUT_S)
        if reply.ceilings is None:
            raise machine_error("the ceilings cannot be measured", reply.failure, self._device)
        self._ceilings = tuple(measured.ceiling for measured in reply.ceilings)
        self._at_ceilings = self._session.states_at(reply.ceilings)
        self._store(ceilings=self._ceilings, at_ceilings=self._at_ceilings)

    @property
    def is_on_cpu(self) -> bool:
        return self._device == "cpu"

    @property
    def has_torch_compile(self) -> bool:
        return any(self._selected[subject].implementation.is_compiled for subject in self.to_check)

    @property
    def to_compile(self) -> list[Subject]:
        if not self.plan.targets:
            return []
        return [subject for subject, found in self._selected.items() if found.implementation.language != "torch"]

    @property
    def to_interpret(self) -> list[Subject]:
        """Triton implementations on a machine without a GPU: checked in the interpreter, not timed."""
        return [subject for subject in self._selected if not self._runs_on_device(subject)]

    @property
    def to_check(self) -> list[Subject]:
        return [subject for subject in self._selected if self._runs_on_device(subject)]

    @property
    def to_time(self) -> list[Subject]:
        """Subjects that are correct and have not failed during timing."""
        return [subject for subject in self._selected if self._can_be_timed(subject)]

    @property
    def to_profile(self) -> list[Subject]:
        """Timed subjects that run in one process, if profiles were requested."""
        timed = [subject for subject in self.to_time if self.block_count(subject)] if self.plan.has_profiles else []
        return [subject for subject in timed if self._selected[subject].rank_count == 1]

    def compile(self, workers: WorkerPool, on_step: OnStep) -> None:
        """Compile for all targets, in workers of `compilers`."""
        missing = [subject for subject in self.to_compile if subject not in self._static_facts]
        for subject in self.to_compile:
            if subject in self._static_facts:
                on_step(f"compiled {subject}")
        compiled = compile_subjects(workers, missing, self.plan) if missing else ()
        for subject, facts in self.spent.waiting_for(compiled, Activity.COMPILE):
            self._static_facts[subject] = facts
            self._store(compiled=facts)
            on_step(f"compiled {subject}")

    def check(
        self, workers: WorkerPool, subjects: Sequence[Subject], on_step: OnStep, *, worker_count: int = 1
    ) -> None:
        """Check subjects on the device or in Triton's interpreter, `worker_count` at a time."""
        missing = {
            subject: self._selected[subject].rank_count for subject in subjects if subject not in self._accuracies
        }
        for subject in subjects:
            if subject not in missing:
                on_step(f"checked {subject}")
        checked = workers.check_all(missing, worker_count=worker_count, timeout_s=self.plan.check_timeout_s)
        with closing(checked):
            for subject, reply in self.spent.waiting_for(checked, Activity.CHECK):
                accuracy = self._accuracies[subject] = self._accuracy(subject, reply)
                self._store(accuracy=accuracy)
                on_step(f"checked {subject}")

    def block_count(self, subject: Subject) -> int:
        return len(self._timings[subject].blocks)

    def lacks_block(self, subject: Subject, number: int) -> bool:
        """Whether block `number`, from 0, is to be timed and missing."""
        return self._can_be_timed(subject) and self.block_count(subject) <= number

    def keep_blocks(self, subject: Subject, count: int) -> None:
        """Keep only the first `count` blocks."""
        if self.block_count(subject) > count:
            self._add(TimedStep(**subject.named, blocks_before=count))

    def launches_per_sample(self, subject: Subject) -> int | None:
        """Launches per sample of the subject's blocks; None before the first block."""
        timing = self._timings.get(subject)
        return None if timing is None else timing.launches_per_sample

    def cool_down(self, on_wait: OnStep) -> None:
        """Wait for a throttled device to cool down."""
        if self._session.is_too_hot:
            with self.spent.on(Activity.COOL_DOWN):
                self._session.cool_down(on_wait)

    def take_block(self, workers: WorkerPool, subject: Subject, launches_per_sample: int | None = None) -> None:
        """Time one more block; the first block chooses the launches per sample unless given."""
        job = TimeBlock(
            **subject.named,
            plan=self.plan.sampling,
            method=None if self.chosen is None else self.chosen.method,
            launches_per_sample=self.launches_per_sample(subject) or launches_per_sample,
        )
        with self.spent.on(Activity.OVERHEAD):
            rank_count = self._selected[subject].rank_count
            reply = workers.request(job, timeout_s=self.plan.block_timeout_s, rank_count=rank_count)
        blocks_before = self.block_count(subject)
        if reply.block is not None:
            self.spent.move(Activity.WARM_UP, reply.block.warm_up_ns, source=Activity.OVERHEAD)
            self.spent.move(Activity.TIMING, reply.block.timed_ns, source=Activity.OVERHEAD)
            taken = self._session.with_state(reply.block)
            self._add(TimedStep(**subject.named, blocks_before=blocks_before, taken=taken))
        else:
            failure = reply.failure_within(self.plan.block_timeout_in_words)
            self._add(TimedStep(**subject.named, blocks_before=blocks_before, failure=failure))

    def profile(self, workers: WorkerPool, on_step: OnStep, on_failure: OnStep) -> None:
        """Profile some calls; a subject that cannot be profiled keeps its times."""
        for subject in self.to_profile:
            if subject not in self._profiles:
                with self.spent.on(Activity.PROFILE):
                    reply = workers.request(ProfileCalls(**subject.named), timeout_s=self.plan.block_timeout_s)
                if reply.profile is not None:
                    self._profiles[subject] = reply.profile
                    self._store(profile=reply.profile)
                elif reply.failure is not None:
                    on_failure(f"{subject} was not profiled: {reply.failure.message}")
            on_step(f"profiled {subject}")

    def record(self, commit: Commit, project: str, pairing: Pairing | None = None) -> RunRecord:
        """The redacted record of all results, in the order of the suite."""
        assert self._environment is not None, "describe_machine() comes first"
        telemetry = self._session.telemetry
        cases = tuple({found.case.case_id: found.case for found in self._selected.values()}.values())
        measurements = tuple(self._measurement(found, self._environment) for found in self._selected.values())
        profiles = tuple(self._profiles[subject] for subject in self._selected if subject in self._profiles)
        source_lines = (line for found in self._selected.values() for line in found.implementation.source_lines)
        record = RunRecord(
            run_id=self._run_id,
            project=project,
            commit=commit,
            started_at=self._started_at,
            finished_at=max(utc_now(), self._started_at),  # the clock may have been set back
            harness_version=HARNESS_VERSION,
            environment=self._environment,
            preset=self.plan.preset,
            pairing=pairing,
            ceilings=self._ceilings,
            cases=cases,
            measurements=measurements,
            accuracies=tuple(self._accuracies[subject] for subject in self._selected if subject in self._accuracies),
            static_facts=tuple(fact for subject in self._selected for fact in self._static_facts.get(subject, ())),
            profiles=profiles,
            imported=tuple(workload_values(cases, measurements, profiles, self._ceilings)),
            suite=self.source.name,
            source_lines=tuple(dict.fromkeys(source_lines)),
            telemetry=telemetry and telemetry.model_copy(update={"at_ceilings": self._at_ceilings}),
            spent_ns=self.spent.total_ns,
        )
        return redact(record, Redaction.of_this_machine())

    def _measurement(self, found: Selected, environment: Environment) -> Measurement:
        assert self.chosen is not None, "describe_machine() comes first"
        timing, subject = self._timings[found.subject], found.subject
        failure = timing.why_untimed(self._accuracies.get(subject), runs_here=self._runs_on_device(subject))
        measured = timing.measurement(subject, failure, self.chosen.method)
        return under_the_roof(measured, found.case, self._ceilings, environment)

    def _add(self, step: TimedStep) -> None:
        self._timings[step.subject].apply(step)
        self._store(timed=step)

    def _store(self, **result: Any) -> None:
        """Write a result to the journal: one field of `Entry`."""
        if self._journal is not None:
            new = {"spent_ns": self.spent.take_new(), "seen": self._session.take_new()}
            self._journal.append(Entry(side=self._side, **new, **result))

    def _restore(self, entry: Entry) -> None:
        self.spent.add_earlier(entry.spent_ns)
        self._environment = entry.environment or self._environment
        if entry.ceilings is not None:
            self._ceilings, self._at_ceilings = entry.ceilings, entry.at_ceilings
        if (accuracy := entry.accuracy) is not None:
            self._accuracies[Subject(accuracy.case_id, accuracy.implementation)] = accuracy
        if compiled := entry.compiled:
            self._static_facts[Subject(compiled[0].case_id, compiled[0].implementation)] = compiled
        step = entry.timed
        # after a damaged line, later blocks of a pair would be compared with other blocks of its other side
        if step is not None and (self._side == ALONE or step.blocks_before <= self.block_count(step.subject)):
            self._timings[step.subject].apply(step)
        if (profile := entry.profile) is not None:
            self._profiles[Subject(profile.case_id, profile.implementation)] = profile

    def _can_be_timed(self, subject: Subject) -> bool:
        accuracy = self._accuracies.get(subject)
        is_correct = accuracy is not None and accuracy.outcome is Outcome.OK
        return is_correct and self._runs_on_device(subject) and self._timings[subject].failure is None

    def _runs_on_device(self, subject: Subject) -> bool:
        return not self.is_on_cpu or self._selected[subject].implementation.language == "torch"

    def _accuracy(self, subject: Subject, reply: Reply) -> Accuracy:
        if reply.checked is not None:
            return reply.checked.report.accuracy(subject.case_id)
        failure = reply.failure_within(check_limit(self.plan.check_timeout_s))
        executor = "device" if self._runs_on_device(subject) else "interpreter"
        return Accuracy(**subject.named, executor=executor, outcome=failure.outcome, message=failure.message)


def share_ceilings(runs: Sequence[SuiteRun]) -> None:
    """Give the suites of one job one set of ceilings: the highest of each kind, as each is measured from below."""
    highest: dict[tuple[object, ...], tuple[Ceiling, DeviceState | None]] = {}
    for run in runs:
        states = iter(run._at_ceilings)
        for ceiling in run._ceilings:
            key = ceiling.source, ceiling.resource, ceiling.level, ceiling.dtype
            state = next(states, None) if ceiling.source == "measured" else None
            if key not in highest or ceiling.per_s > highest[key][0].per_s:
                highest[key] = ceiling, state
    for run in runs:
        run._ceilings = tuple(ceiling for ceiling, _ in highest.values())
        run._at_ceilings = tuple(state for _, state in highest.values() if state is not None)
