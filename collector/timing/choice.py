"""Find out, before anything is measured, which timer this machine has: by timing something with it."""

from __future__ import annotations

from collections.abc import Collection

import torch

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.caches import last_level_cache_bytes
from roofwatch.collector.timing.method import ChosenMethod, TimingMethod, possible_methods
from roofwatch.collector.timing.rotation import Copies, copy_count
from roofwatch.collector.timing.stopwatch import Alone, Launch
from roofwatch.collector.timing.timing import make_stopwatch, timing_stream
from roofwatch.spec import UnsupportedError

_TRIAL_BYTES = 2**20


def choose_method(
    device: str,
    timer: Timer | None = None,
    cache: CacheState | None = None,
    touched_bytes: Collection[float] = (),
) -> ChosenMethod:
    """The best method that works here and fits what was asked for.

    Args:
        device: `cpu` or `cuda`.
        timer: Only this one; None takes the best.
        cache: Only with this; None takes the timer's usual one.
        touched_bytes: By a launch of each case that is to be timed; unknown if empty.

    Raises:
        TimerError: none does, or it can time none of these cases; the message says why, and the way out.
    """
    passed_over: list[str] = []
    for method in possible_methods(device, timer, cache):
        try:
            _try_out(method, device)
        except (TimerError, UnsupportedError, RuntimeError) as error:
            passed_over.append(str(error))
        else:
            _require_rotation(method, device, cache, touched_bytes)
            return ChosenMethod(method, tuple(passed_over))
    way_out = "" if timer is None else "; --timer auto takes what there is"
    raise TimerError("; ".join(passed_over) + way_out)


def _require_rotation(
    method: TimingMethod, device: str, asked: CacheState | None, touched_bytes: Collection[float]
) -> None:
    """Refuse to take turns on copies where no case has enough data for it: each would be `unsupported`, after all that
    comes before timing.

    Raises:
        TimerError: none has.
    """
    if method.cache is not CacheState.ROTATED or not touched_bytes:
        return
    cache_bytes = last_level_cache_bytes(device)
    refused = ""
    for touched in sorted(touched_bytes):
        try:
            copy_count(touched, cache_bytes)
        except UnsupportedError as error:
            refused = str(error)
        else:
            return
    option = f"--timer {method.timer}, which rotates" if asked is None else f"--cache {asked}"
    raise TimerError(f"{option}: no case that is to be timed touches enough for that; of the largest, {refused}")


def _try_out(method: TimingMethod, device: str) -> None:
    """Take a few samples, as it will be done later.

    Raises:
        TimerError: the timer or the cache state cannot be had.
        UnsupportedError: it cannot time even this.
        RuntimeError: the driver refuses.
    """

    def make() -> Launch:
        return torch.ones(_TRIAL_BYTES, dtype=torch.int8, device=device).neg_

    with timing_stream(device):
        stopwatch = make_stopwatch(
            make(), method, device=device, ranks=Alone(), copies=Copies(make, touched_bytes=_TRIAL_BYTES)
        )
        stopwatch.take(2, stopwatch.launches_for(stopwatch.rehearse()))
