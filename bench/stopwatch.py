"""Where the time of a call goes: each named function's own, without that of others with a name that it calls."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

_NO_MORE = object()


class Stopwatch:
    def __init__(self) -> None:
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        """By the name of the step."""
        self._running: list[str] = []
        self._since_s = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time of the block, without that of steps in it."""
        self._stop()
        self._running.append(name)
        try:
            yield
        finally:
            self._stop()
            self._running.pop()

    @contextmanager
    def watch(self, places: dict[tuple[Any, str], str]) -> Iterator[None]:
        """Count calls of functions, given by what has them and their name there, as steps; of a generator, what it
        takes to the next value.
        """
        kept = {place: getattr(*place) for place in places}
        for (owner, attribute), name in places.items():
            setattr(owner, attribute, self._watched(kept[owner, attribute], name))
        try:
            yield
        finally:
            for (owner, attribute), function in kept.items():
                setattr(owner, attribute, function)

    def _watched(self, function: Any, name: str) -> Any:
        @functools.wraps(function)
        def watched(*arguments: Any, **named: Any) -> Any:
            with self.step(name):
                made = function(*arguments, **named)
            return self._each(made, name) if isinstance(made, Generator) else made

        return watched

    def _each(self, values: Iterator[Any], name: str) -> Iterator[Any]:
        while True:
            with self.step(name):
                value = next(values, _NO_MORE)
            if value is _NO_MORE:
                return
            yield value

    def _stop(self) -> None:
        """Count what has passed to who was running."""
        now_s = time.perf_counter()
        if self._running:
            self.spent_s[self._running[-1]] += now_s - self._since_s
        self._since_s = now_s
