"""Which timers and cache states there are on a device, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass

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
