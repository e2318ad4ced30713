"""What Triton's autotuner tries and chooses while a case is called.

Triton from 3.8 on tells a listener of every choice it makes by measuring, with each configuration's time:
`knobs.autotuning.listener`. Before that, and for a choice that the process remembers from an earlier call, it is read
from the `Autotuner` itself, whose `cache`, `configs_timings` and `bench_time` have been the same since 3.2.

Of what torch.compile tunes nothing is told: inductor has an autotuner of its own.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from roofwatch.collector.record.measurement import AutotuneTiming, Autotuning

_NS_PER_MS, _NS_PER_S = 1e6, 1e9
_MAX_NAME, _MAX_KEY = 500, 2_000


class AutotuneRecorder:
    """Remembers all that was tuned in this process, and tells what one case used of it."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Autotuning] = {}
        """By the function itself, for files may use one name, and key."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[Autotuning]]:
        """Give a list into which each choice is put that is made, or used again, within the block; once each."""
        import triton
        from triton.runtime.autotuner import Autotuner

        used: dict[tuple[int, str], Autotuning] = {}
        found: list[Autotuning] = []
        original = Autotuner.run

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            with self._reading(tuner, used):
                return original(tuner, *args, **kwargs)

        with contextlib.ExitStack() as stack:
            if hasattr(triton.knobs.autotuning, "listener"):
                stack.callback(setattr, triton.knobs.autotuning, "listener", triton.knobs.autotuning.listener)
                triton.knobs.autotuning.listener = self.listen
            stack.callback(setattr, Autotuner, "run", original)
            Autotuner.run = run
            yield found
        found.extend(used.values())

    def listen(
        self,
        *,
        fn: Any,
        key: Any,
        best_config: Any,
        configs_timings: Mapping[Any, Any] | None,
        duration: float | None,
        cache_hit: bool,
        **_: Any,
    ) -> None:
        """Triton's `knobs.autotuning.listener`: one choice; seconds in all, milliseconds of each configuration."""
        function = _body_of(fn)
        tuned = Autotuning(
            function=function.__name__[:_MAX_NAME],
            key=_text_of(key),
            chosen=_plain_config(best_config),
            timings=tuple(
                AutotuneTiming(configuration=_plain_config(config), time_ns=_time_ns(times))
                for config, times in (configs_timings or {}).items()
            ),
            duration_ns=max(0, round((duration or 0.0) * _NS_PER_S)),  # Triton's clock may be set back
            is_cached=cache_hit,
        )
        self._known[id(function), tuned.key] = tuned

    @contextlib.contextmanager
    def _reading(self, tuner: Any, used: dict[tuple[int, str], Autotuning]) -> Iterator[None]:
        """Look which entry of its cache a tuner takes, and whether it was there before."""
        cache, bench_time = tuner.cache, getattr(tuner, "bench_time", None)
        watched = _WatchedCache(cache)
        tuner.cache = watched
        try:
            yield
        finally:
            tuner.cache = cache
            cache.update(watched)
        if not watched.taken:
            return  # one configuration alone is no choice
        key = watched.taken[-1]
        name = (id(_body_of(tuner)), _text_of(key))
        if name not in self._known:
            is_new = key in watched.added
            duration = getattr(tuner, "bench_time", None)
            # a choice that comes from the disk leaves the time of the measuring before as it was
            was_measured = is_new and duration is not bench_time
            self.listen(
                fn=tuner,
                key=key,
                best_config=cache[key],
                configs_timings=getattr(tuner, "configs_timings", None) if is_new else None,
                duration=duration if was_measured else None,
                cache_hit=not was_measured,
            )
        used[name] = self._known[name]


class _WatchedCache(dict[Any, Any]):
    """A tuner's cache that notes what is taken from it and put into it."""

    def __init__(self, cache: Mapping[Any, Any]) -> None:
        super().__init__(cache)
        self.taken: list[Any] = []
        self.added: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        self.taken.append(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.added.add(key)
        super().__setitem__(key, value)


def merged(known: Iterable[Autotuning], new: Iterable[Autotuning]) -> tuple[Autotuning, ...]:
    """Choices of several processes: one entry for each function, key and configuration that was chosen, so that there
    are two of a key that was not decided in the same way each time. The entry with timings is kept.
    """
    found: dict[tuple[str, str, str], Autotuning] = {}
    for each in (*known, *new):
        name = (each.function, each.key, repr(sorted(each.chosen.items())))
        if name not in found or (each.timings and not found[name].timings):
            found[name] = each
    return tuple(found.values())


def _body_of(function: Any) -> FunctionType:
    """The Python function in a jitted one, however wrapped."""
    while not isinstance(function, FunctionType):
        function = function.fn
    return function


def _text_of(key: Any) -> str:
    parts = key if isinstance(key, (tuple, list)) else (key,)
    return ", ".join(map(str, parts))[:_MAX_KEY]


def _plain_config(config: Any) -> dict[str, str | int | float | bool | None]:
    return {
        name: value if isinstance(value, (str, int, float, bool)) else str(value)
        for name, value in config.all_kwargs().items()
        if value is not None
    }


def _time_ns(times: Any) -> float | None:
    """The median, which comes first of several quantiles; None where the configuration could not run."""
    time_ms = float(times[0] if isinstance(times, (tuple, list)) else times)
    return time_ms * _NS_PER_MS if math.isfinite(time_ms) and time_ms > 0 else None
