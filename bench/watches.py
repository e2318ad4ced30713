"""What somebody saw who watched series value by value: how soon each step, and how many alarms without one.

Series have one step at most. An alarm is false if the step has not come yet; the step is found by the first alarm
after it that places it within five values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.detectors import Detector

Floats = NDArray[np.float64]
Alarm = tuple[int, int]
"""Values seen when it was raised, and where it says the level begins."""

WARM_UP = 30
"""Values before the first alarm."""
_MARGIN = 5
_FALSE_ALARMS = 1.5e-3
"""Per value that is judged, as promised online."""
_NEVER = 10**6


@dataclass(frozen=True)
class Watched:
    """What is true of a series."""

    kind: str
    step: int | None
    """None: the level stays."""
    count: int
    """Of values."""

    @property
    def stable_count(self) -> int:
        """Values before anything happens."""
        return self.count if self.step is None else self.step


@dataclass
class Watch:
    """What one watcher saw over all series of a kind."""

    delays: list[int] = field(default_factory=list)
    false_alarms: int = 0
    stable_count: int = 0

    def share(self, within: int) -> float:
        """Of the steps, found after so many values of the new level."""
        return sum(delay <= within for delay in self.delays) / len(self.delays)


def together(watches: Iterable[Watch]) -> Watch:
    """Of all kinds."""
    total = Watch()
    for one in watches:
        total.delays += one.delays
        total.false_alarms += one.false_alarms
        total.stable_count += one.stable_count
    return total


def print_watches(name: str, watches: Sequence[Watch]) -> None:
    """A row: found within 5 / 10 values by each watcher, then the false alarms of each in 1000 values."""
    shares = [f"{one.share(5):.2f} / {one.share(10):.2f}" for one in watches]
    alarms = [f"{1000 * one.false_alarms / one.stable_count:.1f}" for one in watches]
    print(f"| {name} | {' | '.join(shares)} | {', '.join(alarms)} |", flush=True)


def our_alarms(values: Floats) -> list[Alarm]:
    """Of the detector that the service uses."""
    detector, alarms = Detector(), dict[int, int]()
    for seen in range(WARM_UP, len(values) + 1):
        for place, _ in detector(values[:seen]):
            alarms.setdefault(place, seen)
    return [(seen, place) for place, seen in alarms.items()]


def watch(series: Sequence[Watched], alarms: Sequence[list[Alarm]]) -> dict[str, Watch]:
    """What was seen, by kind."""
    watches = {one.kind: Watch() for one in series}
    for one, raised in zip(series, alarms, strict=True):
        own, stable = watches[one.kind], one.stable_count
        own.stable_count += stable - WARM_UP + 1
        own.false_alarms += sum(seen <= stable for seen, _ in raised)
        if one.step is not None:
            near = [seen - stable for seen, place in raised if seen > stable and abs(place - stable) <= _MARGIN]
            own.delays.append(min(near, default=_NEVER))
    return watches


def watch_at_rate(series: Sequence[Watched], evidence: Sequence[Floats]) -> dict[str, Watch]:
    """At the least threshold that keeps the promised rate of false alarms over all kinds.

    Args:
        series: What is true of each.
        evidence: Of each, after every value, the log likelihood ratio of a level that began 1, 2, ... values ago, shape
            [values, window].
    """
    low, high = 0.0, 40.0
    for _ in range(13):
        middle = (low + high) / 2
        total = together(watch(series, [_oracle_alarms(one, middle) for one in evidence]).values())
        low, high = (middle, high) if total.false_alarms > _FALSE_ALARMS * total.stable_count else (low, middle)
    return watch(series, [_oracle_alarms(one, high) for one in evidence])


def _oracle_alarms(evidence: Floats, threshold: float) -> list[Alarm]:
    """It begins anew after each alarm."""
    alarms: list[Alarm] = []
    begins = 0
    for position in range(WARM_UP - 1, len(evidence)):
        ratios = evidence[position, : position + 1 - begins]
        if len(ratios) and ratios.max() >= threshold:
            alarms.append((position + 1, position - int(ratios.argmax())))
            begins = position + 1
    return alarms
