"""The series of times of a project, and families of series that share something. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from roofwatch.db.values import SeriesKey

_CASE_PARTS = 4
"""Kernel, shape, dtype, direction; other case ids have the kernel alone."""
MAX_NAMED_KERNELS = 3


@dataclass(frozen=True)
class Family:
    """Series of times that share traits, and their kernels."""

    count: int
    kernels: frozenset[tuple[str, str]]
    """Project and kernel."""
    traits: Mapping[str, str]
    """What they share and others of their kernels do not, by name."""

    def holds(self, series: SeriesKey) -> bool:
        return (
            series.metric == "median_ns"
            and (series.project, series.kernel) in self.kernels
            and self.traits.items() <= _traits(series).items()
        )


class Population:
    """Counts of all judged series of times, changed or not, by their traits."""

    def __init__(self, series: Iterable[SeriesKey] = ()) -> None:
        self._by_kernel: dict[tuple[str, str], Counter[frozenset[tuple[str, str]]]] = defaultdict(Counter)
        self._by_class: Counter[tuple[str, str]] = Counter()
        for key in series:
            self.add(key)

    def add(self, key: SeriesKey) -> None:
        self._by_kernel[key.project, key.kernel][frozenset(_traits(key).items())] += 1
        self._by_class[key.project, key.runner_class] += 1

    def merge(self, other: Population) -> None:
        for kernel, kinds in other._by_kernel.items():
            self._by_kernel[kernel].update(kinds)
        self._by_class.update(other._by_class)

    def count_on(self, project: str, runner_class: str) -> int:
        return self._by_class[project, runner_class]

    def family_of(self, changed: Collection[SeriesKey]) -> Family:
        """Find the smallest family with all these series: those of their kernels that share what they all share."""
        kernels = frozenset((key.project, key.kernel) for key in changed)
        kinds = [(dict(traits), n) for kernel in kernels for traits, n in self._by_kernel.get(kernel, {}).items()]
        shared = dict(set.intersection(*(set(_traits(key).items()) for key in changed)))
        traits = {name: value for name, value in shared.items() if any(kind.get(name) != value for kind, _ in kinds)}
        count = sum(n for kind, n in kinds if traits.items() <= kind.items())
        return Family(count, kernels, traits)

    def describe_family(self, changed: Collection[SeriesKey]) -> str:
        """Describe the family of some series.

        Returns:
            For example `all 12 bfloat16 triton series of attention` or `3 of 4 fwd series of softmax`; empty if nothing
            changed.
        """
        keys = set(changed)
        if not keys:
            return ""
        family = self.family_of(keys)
        adjectives = [family.traits[name] for name in ("dtype", "direction", "implementation") if name in family.traits]
        where = f" on {family.traits['runner class']}" if "runner class" in family.traits else ""
        every = "the only" if len(keys) == 1 else f"all {len(keys)}"
        count = every if family.count <= len(keys) else f"{len(keys)} of {family.count}"
        kernels = sorted({key.kernel for key in keys})
        names = ", ".join(kernels) if len(kernels) <= MAX_NAMED_KERNELS else f"{len(kernels)} kernels"
        return " ".join([count, *adjectives, "series of", names]) + where


def _traits(key: SeriesKey) -> dict[str, str]:
    traits = {"implementation": key.implementation, "runner class": key.runner_class}
    parts = key.case_id.split("/")
    if len(parts) == _CASE_PARTS:
        traits |= {"dtype": parts[2], "direction": parts[3]}
    return traits
