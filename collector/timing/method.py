"""How many samples are taken, and how timers and caches are named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.measurement import CacheState, Timer

_BY_DEVICE = {
    "cpu": (Timer.PERF_COUNTER,),
    "cuda": (Timer.CUPTI, Timer.CUDA_GRAPH, Timer.CUDA_EVENT),
}
"""Best first."""

_CACHES = {
    Timer.PERF_COUNTER: (CacheState.HOT, CacheState.COLD, CacheState.ROTATED),
    Timer.CUPTI: (CacheState.COLD, CacheState.HOT, CacheState.ROTATED),
    Timer.CUDA_GRAPH: (CacheState.ROTATED, CacheState.HOT),
    Timer.CUDA_EVENT: (CacheState.COLD, CacheState.HOT, CacheState.ROTATED),
}
"""The first is what is taken unless another is asked for. A graph runs its launches back to back: a cache could be
overwritten between them only within what is timed.
"""


@dataclass(frozen=True)
class TimingMethod:
    """How a run takes its times: one choice for all of its measurements."""

    timer: Timer
    cache: CacheState

    def __str__(self) -> str:
        return f"{self.timer}, {self.cache} cache"


@dataclass(frozen=True)
class ChosenMethod:
    """What a run takes, and why nothing better."""

    method: TimingMethod
    passed_over: tuple[str, ...] = ()
    """Better timers that are not there, each with the reason."""

    @property
    def was_a_choice(self) -> bool:
        """Whether it could have been another: a CPU has but one timer."""
        return self.method != default_method("cpu")

    def __str__(self) -> str:
        return "; ".join((f"timed by {self.method}", *self.passed_over))


def default_method(device: str) -> TimingMethod:
    """What every device of its kind offers."""
    timer = _BY_DEVICE[_kind(device)][-1]
    return TimingMethod(timer, _CACHES[timer][0])


def possible_methods(device: str, timer: Timer | None = None, cache: CacheState | None = None) -> list[TimingMethod]:
    """What fits the device and what was asked for, best first.

    Args:
        device: `cpu` or `cuda`.
        timer: Only this one; None takes any.
        cache: Only with this; None takes the timer's usual one.

    Raises:
        TimerError: what was asked for does not go together.
    """
    on_device = _BY_DEVICE[_kind(device)]
    if timer is not None and timer not in on_device:
        raise TimerError(
            f"--timer {timer}: kernels run on {device} here, where the timer is {' or '.join(on_device)}; "
            "leave --timer out"
        )
    timers = on_device if timer is None else (timer,)
    methods = [
        TimingMethod(each, cache or _CACHES[each][0]) for each in timers if cache is None or cache in _CACHES[each]
    ]
    if not methods:
        raise TimerError(
            f"--cache {cache}: {timer} offers {' or '.join(_CACHES[timers[0]])}; "
            f"--timer {Timer.CUPTI} or {Timer.CUDA_EVENT} offers {cache}"
        )
    return methods


def _kind(device: str) -> str:
    return "cuda" if device.startswith("cuda") else "cpu"


@dataclass(frozen=True)
class SamplingPlan:
    """When a block of samples ends.

    Args:
        warmup_ms: Untimed running first, and at least three launches, under the cache state that counts.
        budget_ms: Time for timed launches, with what is done between them. Six samples, of which the median has an
            interval, are taken even if they last longer.
        min_samples: The interval ends nothing before there are so many: one of fewer is too rough to stop by.
        max_samples: More teach nothing and fill the record.
        relative_width: Stop early once the 95 % interval of the median is this narrow, relative to it.
        patience_ms: The interval ends nothing before so much of the budget is spent.
        patience_samples: Nor before there are so many.

    Source: stopping at a relative width of the interval is nvbench's stdrel criterion with the median in place of
    the mean (NVIDIA/nvbench:docs/cli_help.md).
    """

    warmup_ms: float = 30.0
    budget_ms: float = 300.0
    min_samples: int = 10
    max_samples: int = 1_000
    relative_width: float = 0.01
    patience_ms: float = 0.0
    patience_samples: int = 0


class Preset(StrEnum):
    """How much a measurement may cost, by what it is for."""

    SURVEY = "survey"
    """A whole suite: where is what. The quick cases of the suite that comes with roofwatch take a GPU a minute."""
    QUICK = "quick"
    """A few kernels that a change touches."""
    GATE = "gate"
    """What is to be confirmed, whatever it costs."""


@dataclass(frozen=True)
class Effort:
    """What a preset stands for."""

    sampling: SamplingPlan
    block_count: int
    refuses_unfit_device: bool = False
    """One that others use, or that is not kept awake: what is to be confirmed cannot be confirmed there."""
    has_fresh_processes: bool = False
    """For each block: what one process happens to have, such as where its memory lies, is in all of its blocks."""


EFFORTS = {
    Preset.SURVEY: Effort(SamplingPlan(warmup_ms=20, budget_ms=85), block_count=3),
    # Half a second at least: a clock that is governed by power goes up and down within tenths of one. 0.5 % is what
    # nvbench asks of the mean. 15 s let a noisy case end.
    Preset.QUICK: Effort(
        SamplingPlan(
            warmup_ms=50,
            budget_ms=15_000,
            min_samples=30,
            max_samples=5_000,
            relative_width=0.005,
            patience_ms=500,
        ),
        block_count=3,
    ),
    # 3 s of warm-up and 3 s of samples took the spread between runs of an 8192 cubed product on a B200 from 13.9 % to
    # 1.7 % (facebookexperimental/triton: tlx_benchmark); ten blocks give what lies between them an interval.
    # A sample of a short kernel takes 0.1 ms with what is done around it, so 10 000 last a second: less than 3 s, but
    # the clock has settled in the warm-up by then.
    Preset.GATE: Effort(
        SamplingPlan(
            warmup_ms=3_000,
            budget_ms=15_000,
            min_samples=30,
            max_samples=10_000,
            relative_width=0.005,
            patience_ms=3_000,
            patience_samples=1_000,
        ),
        block_count=10,
        refuses_unfit_device=True,
        has_fresh_processes=True,
    ),
}
