"""One suite at one commit while it is being measured: what was asked for, what came back, and the record of it."""

from __future__ import annotations

import fnmatch
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from collector.case_record import CaseRecord
from collector.errors import CollectorError, SuiteError
from collector.machine import Ceiling, Environment
from collector.measurement import Block, CacheState, Measurement, Timer
from collector.part import Outcome
from collector.protocol import (
    CheckAccuracy,
    CompileStatic,
    DescribeEnvironment,
    Failure,
    ImplementationInfo,
    MeasureCeilings,
    SuiteInfo,
    TimeBlock,
    TimedBlock,
)
from collector.record import Commit, Pairing, RunRecord, utc_now
from collector.results import Accuracy, StaticFacts
from collector.roofline import INVALID_ABOVE, position
from collector.sampling import SamplingPlan
from collector.suite_source import SuiteSource
from collector.targets import DEFAULT_TARGETS
from collector.workers import Workers
from roofwatch import __version__

HARNESS_VERSION = __version__

OnStep = Callable[[str], None]
"""Called with what was just done, once a step."""


@dataclass(frozen=True)
class RunPlan:
    """What to measure, and how long.

    Args:
        kernels: Shell patterns of kernel names.
        implementations: Shell patterns of implementation names.
        tags: Cases that have all of them; None takes what the device does in moments: of a kernel whose cases are
            tagged, those tagged `usual_tag`, and of any other kernel all.
        usual_tag: `quick` on a GPU and `small` on a CPU if None.
        targets: To compile for; empty leaves the static layer out.
        device: `cpu` or `cuda`; None takes a GPU where torch sees one.
        thread_count: Threads of torch on the CPU. One by default: with more, a neighbour that takes one core for a
            moment stalls all of them, and times say more about the neighbour than about the kernel.
        block_count: Blocks of samples per measurement, spread over the run so that no moment decides.
        sampling: When a block ends.
    """

    kernels: tuple[str, ...] = ("*",)
    implementations: tuple[str, ...] = ("*",)
    tags: tuple[str, ...] | None = None
    usual_tag: str | None = None
    targets: tuple[str, ...] = DEFAULT_TARGETS
    device: str | None = None
    thread_count: int | None = 1
    block_count: int = 3
    # so that the quick cases of the suite that comes with roofwatch take a GPU a minute
    sampling: SamplingPlan = field(default_factory=lambda: SamplingPlan(warmup_ms=20, budget_ms=85))
    environment_timeout_s: float = 120.0
    check_timeout_s: float = 300.0
    compile_timeout_s: float = 300.0
    block_timeout_s: float = 120.0


@dataclass(frozen=True, order=True)
class Subject:
    """A case and an implementation of it: what is checked, compiled and timed."""

    case_id: str
    implementation: str

    def __str__(self) -> str:
        return f"{self.case_id} {self.implementation}"


@dataclass
class _Timing:
    blocks: list[Block] = field(default_factory=list)
    failure: Failure | None = None
    timer: Timer = Timer.PERF_COUNTER
    cache: CacheState = CacheState.HOT
    launches_per_sample: int | None = None

    def add(self, block: TimedBlock, started_at: datetime) -> None:
        self.blocks.append(Block(started_at=started_at, samples_ns=block.samples_ns))
        self.timer, self.cache = block.timer, block.cache
        self.launches_per_sample = block.launches_per_sample


class SuiteRun:
    """Measures one suite step by step. A kernel that fails is an outcome; an exception here is the collector's."""

    def __init__(self, source: SuiteSource, plan: RunPlan) -> None:
        self.source = source
        self.plan = plan
        self._started_at = utc_now()
        self._device = plan.device or "cpu"
        self._environment: Environment | None = None
        self._ceilings: tuple[Ceiling, ...] = ()
        self._cases: dict[str, CaseRecord] = {}
        self._rank_counts: dict[str, int] = {}
        self._infos: dict[Subject, ImplementationInfo] = {}
        self._accuracies: dict[Subject, Accuracy] = {}
        self._static_facts: list[StaticFacts] = []
        self._timings: dict[Subject, _Timing] = {}

    def select(self, info: SuiteInfo) -> None:
        """Select what to measure.

        Raises:
            SuiteError: no kernel or implementation matches the plan.
        """
        self._device = info.device
        for kernel in info.kernels:
            if not _matches(kernel.name, self.plan.kernels):
                continue
            for case in self._tagged(kernel.cases):
                for implementation in kernel.implementations:
                    if case.direction in implementation.directions and _matches(
                        implementation.name, self.plan.implementations
                    ):
                        self._cases[case.case_id] = case
                        self._rank_counts[case.case_id] = kernel.rank_count(case)
                        self._infos[Subject(case.case_id, implementation.name)] = implementation
        if not self._infos:
            known = ", ".join(kernel.name for kernel in info.kernels)
            tags = sorted({tag for kernel in info.kernels for case in kernel.cases for tag in case.tags})
            raise SuiteError(
                f"nothing to measure: no kernel matches {' '.join(self.plan.kernels)} with an implementation that "
                f"matches {' '.join(self.plan.implementations)}"
                + (f" and a case tagged {' '.join(self.plan.tags)}" if self.plan.tags else "")
                + f"; the suite has {known}"
                + (f", its cases the tags {' '.join(tags)}" if self.plan.tags else "")
            )

    def _tagged(self, cases: tuple[CaseRecord, ...]) -> tuple[CaseRecord, ...]:
        if self.plan.tags is not None:
            wanted = set(self.plan.tags)
            return tuple(case for case in cases if wanted <= set(case.tags))
        usual = self.plan.usual_tag or ("small" if self._device == "cpu" else "quick")
        return tuple(case for case in cases if usual in case.tags or not case.tags) or cases

    def describe_machine(self, workers: Workers) -> None:
        """Learn the environment and measure the ceilings, while nothing else runs.

        Raises:
            CollectorError: the machine cannot be described.
        """
        reply = workers.request(DescribeEnvironment(), timeout_s=self.plan.environment_timeout_s)
        if reply.environment is None:
            raise CollectorError(f"the machine cannot be described: {reply.failure}")
        self._environment = reply.environment
        dtypes = tuple(sorted({case.dtype for case in self._cases.values()}))
        reply = workers.request(MeasureCeilings(dtypes=dtypes), timeout_s=self.plan.environment_timeout_s)
        if reply.ceilings is None:
            raise CollectorError(f"the ceilings cannot be measured: {reply.failure}")
        self._ceilings = reply.ceilings

    @property
    def to_compile(self) -> list[Subject]:
        if not self.plan.targets:
            return []
        return [subject for subject, info in self._infos.items() if info.language != "torch"]

    @property
    def to_interpret(self) -> list[Subject]:
        """Triton code where there is no GPU: its numerics are checked in the interpreter, and it is not timed."""
        return [subject for subject in self._infos if not self._runs_on_device(subject)]

    @property
    def to_check(self) -> list[Subject]:
        return [subject for subject in self._infos if self._runs_on_device(subject)]

    @property
    def to_time(self) -> list[Subject]:
        """Those that are correct, and have not failed while they were timed."""
        return [
            subject
            for subject in self.to_check
            if subject in self._accuracies
            and self._accuracies[subject].outcome is Outcome.OK
            and self._timing(subject).failure is None
        ]

    def compile(self, workers: Workers, on_step: OnStep) -> None:
        for subject in self.to_compile:
            self._static_facts.extend(self._compiled(workers, subject))
            on_step(f"compiled {subject}")

    def check(self, workers: Workers, subjects: list[Subject], on_step: OnStep) -> None:
        for subject in subjects:
            self._accuracies[subject] = self._checked(workers, subject)
            on_step(f"checked {subject}")

    def launches_per_sample(self, subject: Subject) -> int | None:
        """What the subject's blocks use; None before the first one."""
        return self._timing(subject).launches_per_sample

    def take_block(self, workers: Workers, subject: Subject, launches_per_sample: int | None = None) -> None:
        """Time one more block of a subject; its first block chooses the launches per sample unless they are given."""
        timing = self._timing(subject)
        started_at = utc_now()
        reply = workers.request(
            TimeBlock(
                case_id=subject.case_id,
                implementation=subject.implementation,
                plan=self.plan.sampling,
                launches_per_sample=timing.launches_per_sample or launches_per_sample,
            ),
            timeout_s=self.plan.block_timeout_s,
            rank_count=self._rank_counts[subject.case_id],
        )
        if reply.block is not None:
            timing.add(reply.block, started_at)
        else:
            timing.failure = reply.failure

    @property
    def static_facts(self) -> tuple[StaticFacts, ...]:
        return tuple(self._static_facts)

    def record(self, commit: Commit, project: str, pairing: Pairing | None = None) -> RunRecord:
        """The document of all that came back."""
        assert self._environment is not None, "describe_machine() comes first"
        return RunRecord(
            run_id=uuid.uuid4(),
            project=project,
            commit=commit,
            started_at=self._started_at,
            finished_at=utc_now(),
            harness_version=HARNESS_VERSION,
            environment=self._environment,
            pairing=pairing,
            ceilings=self._ceilings,
            cases=tuple(self._cases.values()),
            measurements=tuple(self._measurement(subject) for subject in self._infos),
            accuracies=tuple(self._accuracies.values()),
            static_facts=self.static_facts,
        )

    def _runs_on_device(self, subject: Subject) -> bool:
        return self._device != "cpu" or self._infos[subject].language == "torch"

    def _timing(self, subject: Subject) -> _Timing:
        return self._timings.setdefault(subject, _Timing())

    def _checked(self, workers: Workers, subject: Subject) -> Accuracy:
        reply = workers.request(
            CheckAccuracy(case_id=subject.case_id, implementation=subject.implementation),
            timeout_s=self.plan.check_timeout_s,
            rank_count=self._rank_counts[subject.case_id],
        )
        if reply.accuracy is not None:
            return reply.accuracy
        assert reply.failure is not None
        return Accuracy(
            case_id=subject.case_id,
            implementation=subject.implementation,
            executor="device" if self._runs_on_device(subject) else "interpreter",
            outcome=reply.failure.outcome,
            message=reply.failure.message,
        )

    def _compiled(self, workers: Workers, subject: Subject) -> Iterator[StaticFacts]:
        reply = workers.request(
            CompileStatic(case_id=subject.case_id, implementation=subject.implementation, targets=self.plan.targets),
            timeout_s=self.plan.compile_timeout_s,
        )
        if reply.static_facts is not None:
            yield from reply.static_facts
            return
        assert reply.failure is not None
        for target in self.plan.targets:
            yield failed_facts(subject, target, reply.failure)

    def _measurement(self, subject: Subject) -> Measurement:
        timing = self._timing(subject)
        failure = self._failure(subject, timing)
        common = {
            "case_id": subject.case_id,
            "implementation": subject.implementation,
            "timer": timing.timer,
            "cache": timing.cache,
            "launches_per_sample": timing.launches_per_sample or 1,
        }
        if failure is not None:
            return Measurement(**common, outcome=failure.outcome, message=failure.message)
        measured = Measurement(**common, outcome=Outcome.OK, blocks=tuple(timing.blocks))
        assert measured.median_ns is not None
        place = position(self._cases[subject.case_id], measured.median_ns, self._ceilings)
        if place is None:
            return measured
        assert self._environment is not None
        limit = INVALID_ABOVE[self._environment.device_kind]
        if place.utilisation > limit:
            return Measurement(
                **common,
                outcome=Outcome.INVALID,
                message=(
                    f"median {measured.median_ns:.0f} ns is {place.utilisation:.1f} times faster than the {place.bound}"
                    f" ceiling allows ({place.least_ns:.0f} ns; up to {limit:g} times is believed): check flop_count "
                    "and memory_bytes, and that the work is really done"
                ),
            )
        if self._cases[subject.case_id].bus_bytes is not None:
            return measured  # what binds it is the links, of which no ceiling is measured
        return measured.model_copy(update={"bound": place.bound, "utilisation": place.utilisation})

    def _failure(self, subject: Subject, timing: _Timing) -> Failure | None:
        accuracy = self._accuracies.get(subject)
        if accuracy is not None and accuracy.outcome is not Outcome.OK:
            return Failure(outcome=accuracy.outcome, message=accuracy.message or "")
        if timing.failure is not None:
            return timing.failure
        if not self._runs_on_device(subject):
            return Failure(
                outcome=Outcome.UNSUPPORTED,
                message="Triton code does not run on a CPU: checked in the interpreter and compiled, not timed",
            )
        if not timing.blocks:
            return Failure(outcome=Outcome.UNSUPPORTED, message="not timed in this run")
        return None


def failed_facts(subject: Subject, target: str, failure: Failure) -> StaticFacts:
    """What stands for the facts of a case that could not be compiled at all."""
    return StaticFacts(
        case_id=subject.case_id,
        implementation=subject.implementation,
        function=subject.implementation,
        target=target,
        outcome=failure.outcome,
        message=failure.message,
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
