"""Record which configurations Triton's autotuner tries and chooses while a case is called.

The choices are read from the `Autotuner`, whose `cache`, `configs_timings` and `bench_time` are the
same since Triton
3.2. The autotuner of torch.compile is not recorded.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from roofwatch.model.machine import Configuration
from roofwatch.model.measurement import AutotuneTiming, Autotuning

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_MAX_NAME_LENGTH = 500
_MAX_KEY_LENGTH = 2_000


class AutotuneRecorder:
    """Remembers all choices of this process, and returns those that a case used."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Autotuning] = {}
        """By ID of the Python function and key."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[Autotuning]]:
        """Return a list that holds, after the block, each choice made or used in it once."""
        from triton.runtime.autotuner import Autotuner

        used: dict[tuple[int, str], Autotuning] = {}
        choices: list[Autotuning] = []
        original = Autotuner.run

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            with self._recording(tuner, used):
                return original(tuner, *args, **kwargs)

        Autotuner.run = run
        try:
            yield choices
        finally:
            Autotuner.run = original
        choices.extend(used.values())

    @contextlib.contextmanager
    def _recording(self, tuner: Any, used: dict[tuple[int, str], Autotuning]) -> Iterator[None]:
        """Record which cache entry a tuner uses, and whether the entry is new."""
        cache = tuner.cache
        earlier_duration_s = getattr(tuner, "bench_time", None)
        watched = _WatchedCache(cache)
        tuner.cache = watched
        try:
            yield
        finally:
            tuner.cache = cache
            cache.update(watched)
        if not watched.taken:
            return  # a single configuration is no choice
        key = watched.taken[-1]
        function = function_of(tuner)
        name = (id(function), key_text(key))
        if name not in self._known:
            timings: Mapping[Any, Any] = {}
            duration_s = None
            if key in watched.added:
                timings = getattr(tuner, "configs_timings", None) or {}
                duration_s = getattr(tuner, "bench_time", None)
            # A choice read from disk leaves the time of the last benchmark unchanged.
            if duration_s is earlier_duration_s:
                duration_s = None
            self._known[name] = Autotuning(
                function=function.__name__[:_MAX_NAME_LENGTH],
                key=name[1],
                chosen=plain_config(cache[key]),
                timings=tuple(_timing(config, times) for config, times in timings.items()),
                duration_ns=max(0, round((duration_s or 0.0) * _NS_PER_S)),
            )
        used[name] = self._known[name]


class _WatchedCache(dict[Any, Any]):
    """A tuner's cache that records which keys are read and written."""

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


def merged(earlier: Iterable[Autotuning], new: Iterable[Autotuning]) -> tuple[Autotuning, ...]:
    """Merge the choices of several processes: one entry per function, key and chosen configuration,
    if possible with timings.
    """
    by_key: dict[tuple[str, str, str], Autotuning] = {}
    for choice in (*earlier, *new):
        key = (choice.function, choice.key, repr(sorted(choice.chosen.items())))
        # The process that chose knows the timings; others read the choice from its cache.
        if key not in by_key or (choice.timings and not by_key[key].timings):
            by_key[key] = choice
    return tuple(by_key.values())


def function_of(tuner: Any) -> FunctionType:
    """The Python function of a tuner; heuristics and other decorators may lie between them."""
    function = tuner
    while not isinstance(function, FunctionType):
        function = function.fn
    return function


def key_text(key: Any) -> str:
    """An autotuner's key as a record can hold it."""
    if isinstance(key, (tuple, list)):
        parts = key
    else:
        parts = (key,)
    return ", ".join(map(str, parts))[:_MAX_KEY_LENGTH]


def plain_config(config: Any) -> Configuration:
    """The options of a `triton.Config` as a record can hold them."""
    plain: Configuration = {}
    for name, value in config.all_kwargs().items():
        if isinstance(value, (str, int, float, bool)):
            plain[name] = value
        elif value is not None:
            # Options of newer versions may be objects.
            plain[name] = str(value)
    return plain


def _timing(config: Any, times: Any) -> AutotuneTiming:
    return AutotuneTiming(configuration=plain_config(config), time_ns=_time_ns(times))


def _time_ns(times: Any) -> float | None:
    """Median time, the first of several quantiles; None if the configuration could not run."""
    if isinstance(times, (tuple, list)):
        median_ms = times[0]
    else:
        median_ms = times
    time_ms = float(median_ms)
    if math.isfinite(time_ms) and time_ms > 0:
        return time_ms * _NS_PER_MS
    return None
