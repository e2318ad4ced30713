"""The judged series of times of a project, and what some of them share. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from roofwatch.db.values import SeriesKey

_CASE_PARTS = 4
"""Kernel, shape, dtype, direction; other case ids have the kernel alone."""
MAX_NAMED_KERNELS = 3


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

    def merge(self, other: "Population") -> None:
        for kernel, kinds in other._by_kernel.items():
            self._by_kernel[kernel].update(kinds)
        self._by_class.update(other._by_class)

    def count_on(self, project: str, runner_class: str) -> int:
        return self._by_class[project, runner_class]

    def describe_family(self, changed: Collection[SeriesKey]) -> str:
        """Describe the smallest family with these series: those of their kernels that share what they all share.

        Returns:
            For example `all 12 bfloat16 triton series of attention` or `3 of 4 fwd series of softmax`; empty if nothing
            changed.
        """
        keys = set(changed)
        if not keys:
            return ""
        kernels = {(key.project, key.kernel) for key in keys}
        kinds = [(dict(traits), count) for kernel in kernels for traits, count in self._by_kernel[kernel].items()]
        shared = dict(set.intersection(*(set(_traits(key).items()) for key in keys)))
        traits = {name: value for name, value in shared.items() if any(kind.get(name) != value for kind, _ in kinds)}
        total = sum(count for kind, count in kinds if traits.items() <= kind.items())
        adjectives = [traits[name] for name in ("dtype", "direction", "implementation") if name in traits]
        where = f" on {traits['runner class']}" if "runner class" in traits else ""
        every = "the only" if len(keys) == 1 else f"all {len(keys)}"
        count = every if total <= len(keys) else f"{len(keys)} of {total}"
        names = sorted({key.kernel for key in keys})
        listed = ", ".join(names) if len(names) <= MAX_NAMED_KERNELS else f"{len(names)} kernels"
        return " ".join([count, *adjectives, "series of", listed]) + where


def _traits(key: SeriesKey) -> dict[str, str]:
    traits = {"implementation": key.implementation, "runner class": key.runner_class}
    parts = key.case_id.split("/")
    if len(parts) == _CASE_PARTS:
        traits |= {"dtype": parts[2], "direction": parts[3]}
    return traits
