"""Which series moved, among all that are alike: in words, with the scale they share. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.db.values import SeriesKey

_CASE_PARTS = 4
"""Kernel, shape, dtype, direction: other case ids say the kernel alone."""
_NAMED_KERNELS = 3
_TIME = "median_ns"
_Kernel = tuple[str, str]
"""Project and kernel."""


@dataclass(frozen=True)
class Scale:
    """By how much times moved together."""

    typical_change: float
    """Median relative change."""
    spread: float | None
    """Half the distance between the quartiles; None below three changes."""

    def __str__(self) -> str:
        around = "" if self.spread is None else f" ± {self.spread:.1%}"
        return f"{self.typical_change:+.1%}{around}"


def scale_of(log_changes: Sequence[float]) -> Scale | None:
    """What changes have in common; None where there are none."""
    if not log_changes:
        return None
    typical = math.expm1(statistics.median(log_changes))
    if len(log_changes) < 3:
        return Scale(typical, None)
    low, _, high = statistics.quantiles(map(math.expm1, log_changes), n=4, method="inclusive")
    return Scale(typical, (high - low) / 2)


@dataclass(frozen=True)
class Family:
    """Series of times that share something, and their kernels."""

    count: int
    """Of those that were judged."""
    kernels: frozenset[_Kernel]
    telling: Mapping[str, str]
    """What they share and others of their kernels do not, by name."""

    def holds(self, series: SeriesKey) -> bool:
        """Whether a series that was judged is of it."""
        return (
            series.metric == _TIME
            and (series.project, series.kernel) in self.kernels
            and self.telling.items() <= _traits(series).items()
        )


class Population:
    """All series of times that were judged, moved or not: how many there are of each kind. None of them is kept, as
    there may be a hundred thousand.
    """

    def __init__(self, series: Iterable[SeriesKey] = ()) -> None:
        """Count some series, each of which comes once."""
        self._by_kernel: dict[_Kernel, Counter[frozenset[tuple[str, str]]]] = defaultdict(Counter)
        self._by_class: Counter[tuple[str, str]] = Counter()
        for key in series:
            self.add(key)

    def add(self, key: SeriesKey) -> None:
        """Count one more."""
        self._by_kernel[key.project, key.kernel][frozenset(_traits(key).items())] += 1
        self._by_class[key.project, key.runner_class] += 1

    def merge(self, other: Population) -> None:
        """Count all that another one counted."""
        for kernel, kinds in other._by_kernel.items():
            self._by_kernel[kernel].update(kinds)
        self._by_class.update(other._by_class)

    def count_on(self, project: str, runner_class: str) -> int:
        """Series of one project and runner class."""
        return self._by_class[project, runner_class]

    def alike(self, moved: Collection[SeriesKey]) -> Family:
        """The smallest family that holds these series: all of their kernels that share what they all share."""
        kernels = frozenset((key.project, key.kernel) for key in moved)
        kinds = [(dict(traits), count) for kernel in kernels for traits, count in self._kinds_of(kernel).items()]
        shared = _shared([_traits(key) for key in moved])
        telling = {
            name: value for name, value in shared.items() if any(traits.get(name) != value for traits, _ in kinds)
        }
        return Family(
            count=sum(count for traits, count in kinds if telling.items() <= traits.items()),
            kernels=kernels,
            telling=telling,
        )

    def family(self, moved: Collection[SeriesKey]) -> str:
        """Name that family, by what its series share and others of their kernels do not.

        Returns:
            For example `all 12 bfloat16 triton series of attention` or `3 of 4 fwd series of softmax`; empty if nothing
            moved.
        """
        keys = set(moved)
        if not keys:
            return ""
        family = self.alike(keys)
        telling = family.telling
        adjectives = [telling[name] for name in ("dtype", "direction", "implementation") if name in telling]
        where = f" on {telling['runner class']}" if "runner class" in telling else ""
        every = "the only" if len(keys) == 1 else f"all {len(keys)}"
        count = every if family.count <= len(keys) else f"{len(keys)} of {family.count}"
        return " ".join([count, *adjectives, "series of", _listed(sorted({key.kernel for key in keys}))]) + where

    def _kinds_of(self, kernel: _Kernel) -> Mapping[frozenset[tuple[str, str]], int]:
        return self._by_kernel.get(kernel, {})


def kernels_in_words(kernels: Iterable[str]) -> str:
    """One name, or several: `rms_norm + softmax`."""
    names = sorted(set(kernels))
    if len(names) <= _NAMED_KERNELS:
        return " + ".join(names)
    return f"{' + '.join(names[: _NAMED_KERNELS - 1])} + {len(names) - _NAMED_KERNELS + 1} more"


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _NAMED_KERNELS:
        return ", ".join(names)
    return f"{len(names)} kernels"


def _traits(key: SeriesKey) -> dict[str, str]:
    traits = {"implementation": key.implementation, "runner class": key.runner_class}
    parts = key.case_id.split("/")
    if len(parts) == _CASE_PARTS:
        traits |= {"dtype": parts[2], "direction": parts[3]}
    return traits


def _shared(traits: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for name, value in traits[0].items() if all(one.get(name) == value for one in traits)}
