"""Which series moved, among all that are alike: in words, with the scale they share. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from db.values import SeriesKey

_CASE_PARTS = 4
"""Kernel, shape, dtype, direction: other case ids say the kernel alone."""
_NAMED_KERNELS = 3


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


class Population:
    """All series of times that were judged, moved or not."""

    def __init__(self, series: Iterable[SeriesKey]) -> None:
        self._by_kernel: dict[tuple[str, str], list[SeriesKey]] = defaultdict(list)
        for key in series:
            self._by_kernel[key.project, key.kernel].append(key)

    def alike(self, moved: Collection[SeriesKey]) -> frozenset[SeriesKey]:
        """The smallest family that holds these series: all of their kernels that share what they all share."""
        telling = self._telling(moved)
        return frozenset(key for key in self._of_kernels(moved) if telling.items() <= _traits(key).items())

    def family(self, moved: Collection[SeriesKey]) -> str:
        """Name that family, by what its series share and others of their kernels do not.

        Returns:
            For example `all 12 bfloat16 triton series of attention` or `3 of 4 fwd series of softmax`; empty if nothing
            moved.
        """
        keys = set(moved)
        if not keys:
            return ""
        telling = self._telling(keys)
        total = len(self.alike(keys))
        adjectives = [telling[name] for name in ("dtype", "direction", "implementation") if name in telling]
        where = f" on {telling['runner class']}" if "runner class" in telling else ""
        every = "the only" if len(keys) == 1 else f"all {len(keys)}"
        count = every if total <= len(keys) else f"{len(keys)} of {total}"
        return " ".join([count, *adjectives, "series of", _listed(sorted({key.kernel for key in keys}))]) + where

    def _of_kernels(self, moved: Collection[SeriesKey]) -> list[SeriesKey]:
        of = sorted({(key.project, key.kernel) for key in moved})
        return [key for kernel in of for key in self._by_kernel[kernel]]

    def _telling(self, moved: Collection[SeriesKey]) -> dict[str, str]:
        shared = _shared([_traits(key) for key in moved])
        others = [_traits(key) for key in self._of_kernels(moved)]
        return {name: value for name, value in shared.items() if any(traits.get(name) != value for traits in others)}


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
