"""One suite compiled under several versions of Triton: what each upgrade does to its machine code. Pure.

What is worse is for `ci/static/facts.py` to say. An upgrade also moves what decides nothing by itself, registers for
example; that is summed up over all functions here, since it shows which way a compiler goes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.reason import Reason
from roofwatch.ci.static.comparison import Place, StaticComparison, StaticJudgement, compare_static, place_of
from roofwatch.ci.static.facts import FACTS, fact_values
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Verdict

_NOT_FAILURES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
_OF_THE_MACHINE = frozenset({Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT})
"""Say nothing of a compiler: what was not compiled for such a reason is not compared."""


@dataclass(frozen=True)
class Build:
    """A suite as one version of Triton compiled it."""

    triton: str
    versions: dict[str, str]
    """Of what else was there, by name."""
    facts: tuple[StaticFacts, ...]

    @property
    def compilers(self) -> dict[str, str]:
        """What the functions say compiled them, by name; several versions of one where targets differ in it."""
        found: dict[str, dict[str, None]] = {}
        for facts in self.facts:
            for name, version in facts.toolchain.items():
                found.setdefault(name, {})[version] = None
        return {name: ", ".join(sorted(versions)) for name, versions in sorted(found.items())}

    @property
    def failed(self) -> tuple[StaticFacts, ...]:
        """What should have compiled, and did not."""
        return tuple(facts for facts in self.facts if facts.outcome not in _NOT_FAILURES)

    @property
    def is_whole(self) -> bool:
        """Whether the machine could try all of it."""
        return all(facts.outcome not in _OF_THE_MACHINE for facts in self.facts)

    @property
    def tried(self) -> tuple[StaticFacts, ...]:
        """What a compiler answered for."""
        return tuple(facts for facts in self.facts if facts.outcome not in _OF_THE_MACHINE)

    @property
    def compile_s(self) -> float:
        """Time that compiling took, as far as it is known."""
        return sum(sum(facts.compile_ns.values()) for facts in self.facts) / 1e9


@dataclass(frozen=True)
class Move:
    """A fact of one function, before and after; neither is zero."""

    place: Place
    fact: str
    before: float
    after: float


@dataclass(frozen=True)
class Drift:
    """One fact over all functions that both versions compile for a target, whose machine code differs."""

    target: str
    fact: str
    more_count: int
    fewer_count: int
    same_count: int
    mean_ratio: float | None
    """Geometric mean of after / before; None where one is zero."""
    most: Move | None
    """The one by the largest factor."""


@dataclass(frozen=True)
class Upgrade:
    """From one build to another."""

    base: Build
    head: Build
    comparison: StaticComparison

    @property
    def worse(self) -> tuple[StaticJudgement, ...]:
        return self._judged(Verdict.REGRESSED)

    @property
    def better(self) -> tuple[StaticJudgement, ...]:
        return self._judged(Verdict.IMPROVED)

    @property
    def occupancy_moved(self) -> tuple[StaticJudgement, ...]:
        """Functions of which only the number of warps that can be resident moved; the most lost first."""
        moved = [item for item in self._judged(Verdict.UNCHANGED) if _occupancy_change(item)]
        return tuple(sorted(moved, key=lambda item: (_occupancy_change(item), item.place)))

    def counts(self, target: str) -> dict[str, int]:
        """Functions of a target: `worse`, `better`, `other code` and `same code`."""
        items = [item for item in self.comparison.judged if item.target == target]
        verdicts = [item.verdict for item in items]
        return {
            "worse": verdicts.count(Verdict.REGRESSED),
            "better": verdicts.count(Verdict.IMPROVED),
            "other code": sum(item.reason in {Reason.TOOLCHAIN_MOVED, Reason.LAUNCH_MOVED} for item in items),
            "same code": self.comparison.unchanged_by_target.get(target, 0),
        }

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(facts.target for build in (self.base, self.head) for facts in build.facts))

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """Facts that moved at least once, target by target."""
        return tuple(drift for target in self.targets for drift in self._drifts(target))

    @property
    def compile_time_ratio(self) -> float | None:
        """Head / base of the time to compile what both compiled and timed; None where nothing is."""
        base, head = (
            {place_of(facts): sum(facts.compile_ns.values()) for facts in side.facts} for side in (self.base, self.head)
        )
        both = [place for place, time_ns in base.items() if time_ns and head.get(place)]
        return sum(head[place] for place in both) / sum(base[place] for place in both) if both else None

    def _judged(self, verdict: Verdict) -> tuple[StaticJudgement, ...]:
        return tuple(sorted((item for item in self.comparison.judged if item.verdict is verdict), key=_order))

    def _drifts(self, target: str) -> Iterator[Drift]:
        pairs = [
            (item.place, fact_values(item.base), fact_values(item.head))
            for item in self.comparison.judged
            if item.target == target and item.base is not None and item.head is not None
        ]
        for fact in FACTS:
            known = [(place, old[fact], new[fact]) for place, old, new in pairs if fact in old and fact in new]
            if any(old != new for _, old, new in known):
                yield _drift(target, fact, known)


def judge_upgrades(builds: Sequence[Build]) -> tuple[Upgrade, ...]:
    """Every build against the one before it."""
    return tuple(_upgrade(base, head) for base, head in pairwise(builds))


def judge_whole_way(builds: Sequence[Build]) -> Upgrade | None:
    """The last build against the first; None where that is a single upgrade, which is judged already."""
    return _upgrade(builds[0], builds[-1]) if len(builds) > 2 else None


def _upgrade(base: Build, head: Build) -> Upgrade:
    comparison = compare_static(
        base.tried, head.tried, base_toolchain={"triton": base.triton}, head_toolchain={"triton": head.triton}
    )
    return Upgrade(base, head, comparison)


def _order(item: StaticJudgement) -> tuple[str, Place]:
    return item.reason.value, item.place


def _occupancy_change(item: StaticJudgement) -> float:
    if item.base is None or item.head is None:
        return 0.0
    before, after = item.base.theoretical_occupancy, item.head.theoretical_occupancy
    return 0.0 if before is None or after is None else after - before


def _drift(target: str, fact: str, known: Sequence[tuple[Place, float, float]]) -> Drift:
    logs = [
        (math.log(after / before), Move(place, fact, before, after))
        for place, before, after in known
        if before and after
    ]
    most = max((entry for entry in logs if entry[0]), key=lambda entry: abs(entry[0]), default=None)
    return Drift(
        target=target,
        fact=fact,
        more_count=sum(after > before for _, before, after in known),
        fewer_count=sum(after < before for _, before, after in known),
        same_count=sum(after == before for _, before, after in known),
        mean_ratio=math.exp(statistics.fmean(log for log, _ in logs)) if len(logs) == len(known) else None,
        most=None if most is None else most[1],
    )
