"""Timers and cache states per device, and how many samples each preset takes."""

from dataclasses import dataclass
from enum import StrEnum

from roofwatch.model.errors import TimerError
from roofwatch.model.measurement import CacheState, Timer

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
"""The first is the default. Launches of a graph run back to back, so the cache cannot be
overwritten between them.
"""


@dataclass(frozen=True)
class TimingMethod:
    """Timer and cache state; one choice for a whole run."""

    timer: Timer
    cache: CacheState

    def __str__(self) -> str:
        return f"{self.timer}, {self.cache} cache"


@dataclass(frozen=True)
class ChosenMethod:
    """The chosen method, and why a better one was not available."""

    method: TimingMethod
    unavailable: tuple[str, ...] = ()
    """Better timers that are not available, with the reason."""

    def __str__(self) -> str:
        return "; ".join((f"timed by {self.method}", *self.unavailable))


def default_method(device: str) -> TimingMethod:
    """The method available on every device of this kind."""
    timer = _BY_DEVICE[_kind(device)][-1]
    return TimingMethod(timer, _CACHES[timer][0])


def possible_methods(
    device: str,
    timer: Timer | None = None,
    cache: CacheState | None = None,
) -> list[TimingMethod]:
    """Methods that fit the device and the request, best first; without a cache state, each timer
    with its default.

    Raises:
        TimerError: the request cannot be met.
    """
    on_device = _BY_DEVICE[_kind(device)]
    if timer is not None and timer not in on_device:
        raise TimerError(
            f"--timer {timer}: kernels run on {device} here, where the timer is "
            f"{' or '.join(on_device)}; leave --timer out"
        )
    timers = on_device if timer is None else (timer,)
    methods = [
        TimingMethod(candidate, cache or _CACHES[candidate][0])
        for candidate in timers
        if cache is None or cache in _CACHES[candidate]
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
        warmup_ms: Untimed launches first, at least three, with the same cache state.
        budget_ms: Time for timed launches and the work between them. Six samples are always taken.
        min_samples: Minimum number of samples before the interval may end the block.
        max_samples: Maximum number of samples.
        relative_width: End early once the 95 % interval of the median is this narrow, relative to
            the median.
        patience_ms: Minimum time before the interval may end the block.

    Source: nvbench's stdrel criterion (NVIDIA/nvbench:docs/cli_help.md), with the median instead of
    the mean.
    """

    warmup_ms: float = 30.0
    budget_ms: float = 300.0
    min_samples: int = 10
    max_samples: int = 1_000
    relative_width: float = 0.01
    patience_ms: float = 0.0


class Preset(StrEnum):
    SURVEY = "survey"
    """A whole suite: a tenth of a second of launches in each block."""
    QUICK = "quick"
    """A few changed kernels."""
    GATE = "gate"
    """Confirmation of a result."""


@dataclass(frozen=True)
class Effort:
    sampling: SamplingPlan
    block_count: int
    refuses_unfit_device: bool = False
    """Refuse a GPU with other processes or without persistence mode."""
    has_fresh_processes: bool = False
    """A new process per block, because properties of one process, such as memory placement, bias
    its blocks.
    """


EFFORTS = {
    Preset.SURVEY: Effort(SamplingPlan(warmup_ms=20, budget_ms=85), block_count=3),
    # At least half a second: a power-limited clock varies within tenths. nvbench requires 0.5 % of
    # the mean.
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
    # 3 s of warm-up and 3 s of samples reduced the spread between runs of an 8192³ matmul on a B200
    # from 13.9 % to
    # 1.7 % (facebookexperimental/triton: tlx_benchmark). 10,000 samples of a short kernel take one
    # second.
    Preset.GATE: Effort(
        sampling=SamplingPlan(
            warmup_ms=3_000,
            budget_ms=15_000,
            min_samples=1_000,
            max_samples=10_000,
            relative_width=0.005,
            patience_ms=3_000,
        ),
        block_count=10,
        refuses_unfit_device=True,
        has_fresh_processes=True,
    ),
}
