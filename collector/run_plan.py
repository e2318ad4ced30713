"""What a run measures, for how long, and where its time went."""

from __future__ import annotations

import fnmatch
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from roofwatch import __version__
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.device.clock_lock import Clock
from roofwatch.collector.device.readings import UnfitDevice
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.record.measurement import CacheState, CaseRecord, Timer
from roofwatch.collector.record.results import Accuracy
from roofwatch.collector.timing.method import EFFORTS, Preset, SamplingPlan
from roofwatch.collector.workers.protocol import (
    ImplementationInfo,
    KernelInfo,
    Reply,
    SuiteInfo,
    check_limit,
    explained,
)


class Activity(StrEnum):
    START = "start"
    """Starting the first worker: torch, Triton and the suite are loaded."""
    CEILINGS = "ceilings"
    COMPILE = "compile"
    """For targets, on all cores, unless it is known from before; meanwhile Triton's interpreter begins to check."""
    CHECK = "check"
    COOL_DOWN = "cool_down"
    """Waiting for a device that heat holds back."""
    WARM_UP = "warm_up"
    TIMING = "timing"
    """Launching what is timed, whatever is done around each launch to time it included."""
    OVERHEAD = "overhead"
    """What a block of samples takes beside: its process, its inputs, its way back."""
    PROFILE = "profile"
    """Calls under a profiler, after all that is timed."""


class SpentTime:
    """Adds up by a clock that never goes backwards. For one thread: what runs beside it takes no time of its own."""

    def __init__(self) -> None:
        self._total_ns: Counter[str] = Counter()
        self._new_ns: Counter[str] = Counter()

    def add_earlier(self, spent_ns: Mapping[str, int]) -> None:
        """Count what an earlier process of the same run spent."""
        self._total_ns.update(spent_ns)

    @contextmanager
    def on(self, activity: Activity) -> Iterator[None]:
        """Count the time within."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._add(activity, time.monotonic_ns() - began_ns)

    def was_in_truth(self, activity: Activity, spent_ns: int, *, counted_as: Activity) -> None:
        """Of what was counted as one activity, a part was another."""
        part_ns = min(spent_ns, self._new_ns[counted_as])
        self._add(counted_as, -part_ns)
        self._add(activity, part_ns)

    def take_new(self) -> dict[str, int]:
        """What was spent since it was asked last, in ns."""
        new, self._new_ns = self._new_ns, Counter()
        self._total_ns.update(new)
        return {str(activity): spent_ns for activity, spent_ns in new.items() if spent_ns}

    @property
    def total_ns(self) -> dict[str, int]:
        """By activity, in the order of a run."""
        total = self._total_ns + self._new_ns
        return {str(activity): total[activity] for activity in Activity if total[activity]}

    def _add(self, activity: Activity, spent_ns: int) -> None:
        self._new_ns[activity] += spent_ns


@dataclass(frozen=True, order=True)
class Subject:
    """A case and an implementation of it: what is checked, compiled and timed."""

    case_id: str
    implementation: str

    def __str__(self) -> str:
        return f"{self.case_id} {self.implementation}"

    @property
    def named(self) -> dict[str, str]:
        """As fields of what came back."""
        return {"case_id": self.case_id, "implementation": self.implementation}


@dataclass(frozen=True)
class Selected:
    """One subject, and what its suite says of it."""

    case: CaseRecord
    implementation: ImplementationInfo
    rank_count: int

    @property
    def subject(self) -> Subject:
        return Subject(self.case.case_id, self.implementation.name)


@dataclass(frozen=True)
class Selection:
    """What is meant.

    Args:
        kernels: Shell patterns of kernel names.
        implementations: Shell patterns of implementation names.
        tags: Cases that have all of them; None takes, of a kernel whose cases are tagged, those tagged `usual_tag`,
            and of any other kernel all.
        usual_tag: `quick` on a GPU and `small` on a CPU if None.
        cases: Shell patterns of case ids, whatever the tags; None takes those of the tags.
    """

    kernels: tuple[str, ...]
    implementations: tuple[str, ...]
    tags: tuple[str, ...] | None
    usual_tag: str | None
    cases: tuple[str, ...] | None = None

    def of(self, info: SuiteInfo) -> tuple[Selected, ...]:
        """In the order of the suite.

        Raises:
            SuiteError: nothing matches.
        """
        found = tuple(
            Selected(case, implementation, kernel.rank_count(case))
            for kernel in info.kernels
            if matches(kernel.name, self.kernels)
            for case in self._cases(kernel, info.device)
            for implementation in kernel.implementations
            if case.direction in implementation.directions and matches(implementation.name, self.implementations)
        )
        if not found:
            raise SuiteError("".join(self._why_nothing(info)))
        return found

    def _cases(self, kernel: KernelInfo, device: str) -> tuple[CaseRecord, ...]:
        if self.cases is not None:
            return tuple(case for case in kernel.cases if matches(case.case_id, self.cases))
        if self.tags is not None:
            wanted = set(self.tags)
            return tuple(case for case in kernel.cases if wanted <= set(case.tags))
        usual = self.usual_tag or ("small" if device == "cpu" else "quick")
        return tuple(case for case in kernel.cases if usual in case.tags or not case.tags) or kernel.cases

    def _why_nothing(self, info: SuiteInfo) -> Iterator[str]:
        yield f"nothing to measure: no kernel matches {' '.join(self.kernels)} with an implementation that "
        yield f"matches {' '.join(self.implementations)}"
        if self.cases:
            yield f" and a case that matches {' '.join(self.cases)}"
        elif self.tags:
            yield f" and a case tagged {' '.join(self.tags)}"
        yield f"; the suite has {', '.join(kernel.name for kernel in info.kernels)}"
        if self.tags:
            known = sorted({tag for kernel in info.kernels for case in kernel.cases for tag in case.tags})
            yield f", its cases the tags {' '.join(known)}"


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name matches one of some shell patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def accuracy_of(subject: Subject, reply: Reply, *, timeout_s: float, runs_here: bool) -> Accuracy:
    """What came of a check, or why nothing did.

    Args:
        subject: What was checked.
        reply: The worker's.
        timeout_s: That it had.
        runs_here: On the run's device, not in Triton's interpreter.
    """
    if reply.accuracy is not None:
        return reply.accuracy
    failure = explained(reply.failure, check_limit(timeout_s))
    assert failure is not None
    return Accuracy(
        **subject.named,
        executor="device" if runs_here else "interpreter",
        outcome=failure.outcome,
        message=failure.message,
    )


HARNESS_VERSION = __version__
"""Version of what measures: times of different versions do not compare."""

_LAUNCHES_BESIDE_SAMPLING = 14
"""Of a kernel so slow that no time is left for more: one that compiles it, two that its memory is counted by, three to
warm up, six samples, one that began just before the budget was spent, and one that a timer repeats.
"""


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
        has_fresh_processes: Whether a block comes from a process that has timed none of its measurement before; of a
            pair every block does.
        sampling: When a block ends.
        timer: The only one to take; None takes the best that there is, one for the whole run.
        cache: What each launch finds; None takes the timer's usual state.
        lock_clocks: What to hold the device's SM clock at meanwhile; None leaves it free.
        unfit_device: Whether to refuse to measure, or to warn, where others use the GPU or it is not kept awake; None
            leaves it to the blocks to tell.
        checks_at_once: Side by side on a CPU; None takes one for each core.
        cases: Shell patterns of case ids, in place of tags.
        has_profiles: Whether some calls of each case are profiled after all is timed.
        check_timeout_s: The longest that one check may take, with compiling, autotuning and the reference.
        compile_timeout_s: The longest that one case and implementation may take to compile for all targets.
        preparation_timeout_s: What a block has before its first launch: inputs, compiling, autotuning.
        launch_timeout_s: The longest that one launch of a healthy kernel may take.
    """

    kernels: tuple[str, ...] = ("*",)
    implementations: tuple[str, ...] = ("*",)
    tags: tuple[str, ...] | None = None
    usual_tag: str | None = None
    targets: tuple[str, ...] = DEFAULT_TARGETS
    device: str | None = None
    thread_count: int | None = 1
    block_count: int = EFFORTS[Preset.SURVEY].block_count
    has_fresh_processes: bool = EFFORTS[Preset.SURVEY].has_fresh_processes
    sampling: SamplingPlan = EFFORTS[Preset.SURVEY].sampling
    timer: Timer | None = None
    cache: CacheState | None = None
    lock_clocks: Clock | None = None
    unfit_device: UnfitDevice | None = None
    checks_at_once: int | None = None
    cases: tuple[str, ...] | None = None
    has_profiles: bool = False
    environment_timeout_s: float = 120.0
    check_timeout_s: float = 300.0
    compile_timeout_s: float = 300.0
    preparation_timeout_s: float = 120.0
    launch_timeout_s: float = 10.0

    @property
    def preset(self) -> Preset | None:
        """The one that samples so, with however many blocks; None where none does."""
        return next((preset for preset, effort in EFFORTS.items() if effort.sampling == self.sampling), None)

    @property
    def block_timeout_s(self) -> float:
        """When a block that is not done hangs: what it has to prepare, to warm up and to sample, and the launches that
        are made however slow they are.
        """
        sampled_s = (self.sampling.warmup_ms + self.sampling.budget_ms) / 1e3
        return self.preparation_timeout_s + sampled_s + _LAUNCHES_BESIDE_SAMPLING * self.launch_timeout_s

    @property
    def block_timeout_in_words(self) -> str:
        """What the time-out is made of, and who may change it."""
        warmup_s, budget_s = self.sampling.warmup_ms / 1e3, self.sampling.budget_ms / 1e3
        return (
            f"a block has {self.preparation_timeout_s:g} s to prepare, {warmup_s:g} s to warm up, {budget_s:g} s of "
            f"samples and {_LAUNCHES_BESIDE_SAMPLING} launches of {self.launch_timeout_s:g} s each; a kernel that is "
            "slower and does not hang takes a larger --launch-timeout, and one that is tuned for longer a larger "
            "--preparation-timeout"
        )
