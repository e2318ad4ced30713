"""Reasons, thresholds and exit codes of verdicts."""

from dataclasses import dataclass
from enum import StrEnum

from roofwatch.model.machine import DOCUMENTATION_URL


class Verdict(StrEnum):
    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    PREDICTED_SLOWER = "predicted_slower"
    """By the cycle model, from machine code alone; decides nothing unless a check is set to."""
    PREDICTED_FASTER = "predicted_faster"

    @property
    def is_change(self) -> bool:
        """Whether something got worse or better."""
        return self in {Verdict.REGRESSED, Verdict.IMPROVED}

    @classmethod
    def of_change(cls, *, is_worse: bool) -> "Verdict":
        """The verdict on what got worse or better."""
        return cls.REGRESSED if is_worse else cls.IMPROVED


class Status(StrEnum):
    """Whether a change of a history was confirmed."""

    CONFIRMED = "confirmed"
    """Deterministic, or measured again in a pair."""
    UNCONFIRMED = "unconfirmed"
    REFUTED = "refuted"
    """Measured again in a pair, and not there."""


class Reason(StrEnum):
    """Why a verdict is what it is."""

    BEYOND_THRESHOLD = "beyond_threshold"
    """The whole interval lies beyond the practical threshold."""
    WITHIN_THRESHOLD = "within_threshold"
    """The whole interval lies within the threshold."""
    NOISE = "noise"
    """The interval includes the threshold: more blocks may decide."""
    TOO_FEW_BLOCKS = "too_few_blocks"
    MULTIPLICITY = "multiplicity"
    """Beyond the threshold, but not significant among so many comparisons."""
    NOT_COMPARABLE = "not_comparable"
    FOREIGN_CODE = "foreign_code"
    """A side loaded code that is not of its commit, so neither time nor result is the commit's."""
    NOT_PAIRED = "not_paired"
    """Base and head come from different jobs, whose difference is not in the interval."""
    SAME_MACHINE_CODE = "same_machine_code"
    """The time changed but the machine code did not: host, clock or configuration."""
    SAME_SOURCES = "same_sources"
    """The time changed in one job, but nothing that the implementation is known to use did."""
    THROTTLED = "throttled"
    """Too few pairs of blocks remain in which the device was neither throttled nor shared."""
    HOST_BOUND = "host_bound"
    """Issuing a launch takes about as long as the launch, by a timer that includes the host."""
    CLOCK_CHANGED = "clock_changed"
    """The time changed and the clock cycles did not."""
    COST_SHIFT = "cost_shift"
    """Shares of a workload's step changed and the time of the step did not."""
    WRONG_RESULT = "wrong_result"
    """The base gave right results."""
    FAILED = "failed"
    """The base worked."""
    FIXED = "fixed"
    """The base failed or gave wrong results."""
    ALREADY_FAILING = "already_failing"
    """Both sides fail."""
    LESS_ACCURATE = "less_accurate"
    """Right, with a larger error than before."""
    MORE_ACCURATE = "more_accurate"
    """Right, with a smaller error than before."""
    MEMORY_CHANGED = "memory_changed"
    """The peak memory of a launch changed."""
    HOST_CHANGED = "host_changed"
    """The host time of a launch changed; the kernel on the device is judged separately."""
    NOT_TIMED = "not_timed"
    """Works on both sides, its code changed or may have changed, and its time was not measured."""
    SAME_CODE = "same_code"
    """Sources and machine code are identical on both sides; the time was not measured, or is too
    noisy.
    """
    NEW_CASE = "new_case"
    REMOVED_CASE = "removed_case"
    SPILLS_CHANGED = "spills_changed"
    """The bytes per thread in local memory changed."""
    FIT_CHANGED = "fit_changed"
    """A block no longer fits on a multiprocessor, or fits again."""
    TENSOR_CORES_CHANGED = "tensor_cores_changed"
    """Products use another path of the tensor cores, or none."""
    ACCESS_WIDTH_CHANGED = "access_width_changed"
    """Global memory is accessed by narrower or wider instructions."""
    COUNTER_CHANGED = "counter_changed"
    """A hardware counter changed; it decides nothing."""
    LAUNCHES_CHANGED = "launches_changed"
    """A call launches other kernels, or more or fewer of them; it decides nothing."""
    LIMIT_CHANGED = "limit_changed"
    """The diagnosis of a slower case names another limit, or more; it decides nothing."""
    RATIO_CHANGED = "ratio_changed"
    """The time relative to a library's time changed; it decides nothing."""
    STEP_PREDICTED = "step_predicted"
    """What the changed time of a kernel costs a workload's step, computed and not measured."""
    CODE_CHANGED = "code_changed"
    """The machine code changed, and no fact that decides."""
    LAUNCH_CHANGED = "launch_changed"
    """The machine code is the same with another launch configuration."""
    TOOLCHAIN_CHANGED = "toolchain_changed"
    """Another compiler made the machine code, and no fact that decides changed."""
    TIME_PREDICTED = "time_predicted"
    """The cycle model predicts another time for the machine code; nothing was measured."""
    OFFSET_OVERFLOW = "offset_overflow"
    """A 32-bit offset overflows at a declared size, or the grid is too large."""
    OFFSET_LIMIT_CHANGED = "offset_limit_changed"
    """Offsets fit up to another size than before."""
    OPERATOR_COST_CHANGED = "operator_cost_changed"
    """The launcher moves other bytes in torch, or waits for the device more or less often."""
    ACCEPTED = "accepted"
    """Worse than before, and not worse than the baseline file accepts."""
    WORSE_THAN_ACCEPTED = "worse_than_accepted"
    """Worse than the baseline file accepts; compared with nothing else."""
    TARGET_LOST = "target_lost"
    """The base compiled for this target."""

    @property
    def url(self) -> str:
        """Page that explains the reason and what to do."""
        return f"{DOCUMENTATION_URL}how-to/reasons.html#{self}"


@dataclass(frozen=True)
class Thresholds:
    """Smallest changes worth reporting, as fractions, and error rates."""

    relative_change: float = 0.03
    """Pull request: change of a time. The whole interval must lie beyond it, so the smallest change
    that is reliably
    found is this plus half an interval: with 3 %, a slowdown of 5 %."""

    trend_relative_change: float = 0.05
    """History: step of a time. Points come from different jobs, days and clocks, whose small
    offsets do not average out, hence more than in a pull request."""

    drift_relative_change: float = 0.03
    """History: total of a slow drift. It rests on all values since it began, so it may be smaller
    than a step.
    """

    error_relative_change: float = 0.5
    """Change of a result's error. Another order of additions moves it by 10 to 20 %, and lost
    precision doubles it.
    """

    memory_relative_change: float = 0.05
    """Change of the peak memory of a launch. Memory is counted, so noise needs no threshold."""

    host_relative_change: float = 0.15
    """Change of the host time of a launch. Another machine, load or Python build moves it by 10 %.
    """

    false_discovery_rate: float = 0.05
    """Expected share of false ones among the changed times of a pull request, and among the alerts
    of a day.
    """

    environment_share: float = 0.5
    """Share of a runner class's time series that must change at one commit to be an environment
    event.
    """

    environment_min_series: int = 4
    """Fewer series that change together may be one change of code."""

    environment_min_kernels: int = 2
    """One kernel that changes at all its shapes is a change of that kernel."""


THRESHOLDS = Thresholds()


def exit_code(verdict: Verdict) -> int:
    """0: no regression; 1: a regression of time, result, machine code or targets; 2:
    inconclusive.
    """
    return {Verdict.REGRESSED: 1, Verdict.INCONCLUSIVE: 2}.get(verdict, 0)
