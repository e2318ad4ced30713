"""Compares the machine code of one suite under several versions of Triton."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.static.comparison import StaticComparison, StaticJudgement, compare_static
from roofwatch.ci.verdicts import Reason
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Verdict

_MACHINE_FAILURES = frozenset({Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT})
"""Failures that do not depend on the compiler; such functions are not compared."""


@dataclass(frozen=True)
class Build:
    """A suite compiled under one version of Triton."""

    triton: str
    facts: tuple[StaticFacts, ...]

    @property
    def failed(self) -> tuple[StaticFacts, ...]:
        return tuple(facts for facts in self.facts if facts.outcome.is_failure)

    @property
    def tried(self) -> tuple[StaticFacts, ...]:
        """All functions except those for which the machine lacked memory or time."""
        return tuple(facts for facts in self.facts if facts.outcome not in _MACHINE_FAILURES)

    @property
    def is_complete(self) -> bool:
        return len(self.tried) == len(self.facts)


@dataclass(frozen=True)
class Upgrade:
    """The change from one build to the next."""

    base: Build
    head: Build
    comparison: StaticComparison

    @property
    def title(self) -> str:
        return f"{self.base.triton} → {self.head.triton}"

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(facts.target for build in (self.base, self.head) for facts in build.facts))

    @property
    def worse(self) -> tuple[StaticJudgement, ...]:
        return self._judged(Verdict.REGRESSED)

    @property
    def better(self) -> tuple[StaticJudgement, ...]:
        return self._judged(Verdict.IMPROVED)

    def counts(self, target: str) -> dict[str, int]:
        items = [item for item in self.comparison.judged if item.target == target]
        verdicts = [item.verdict for item in items]
        return {
            "worse": verdicts.count(Verdict.REGRESSED),
            "better": verdicts.count(Verdict.IMPROVED),
            "other code": sum(item.reason in {Reason.TOOLCHAIN_CHANGED, Reason.LAUNCH_CHANGED} for item in items),
            "same code": self.comparison.unchanged_by_target.get(target, 0),
        }

    def _judged(self, verdict: Verdict) -> tuple[StaticJudgement, ...]:
        items = [item for item in self.comparison.judged if item.verdict is verdict]
        return tuple(sorted(items, key=lambda item: (item.reason.value, item.key)))


def judge_upgrades(builds: Sequence[Build]) -> tuple[Upgrade, ...]:
    """Compare every build with the one before it."""
    upgrades = []
    for base, head in pairwise(builds):
        compared = compare_static(
            base.tried, head.tried, base_toolchain={"triton": base.triton}, head_toolchain={"triton": head.triton}
        )
        upgrades.append(Upgrade(base, head, compared))
    return tuple(upgrades)


# --- tables


@dataclass(frozen=True)
class AuditTable:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def audit_tables(builds: Sequence[Build], upgrades: Sequence[Upgrade]) -> list[AuditTable]:
    """Return changes of each upgrade, failures, and the number of changed functions."""
    targets = list(dict.fromkeys(facts.target for build in builds for facts in build.facts))
    counts = [
        (upgrade.title, *(" / ".join(map(str, upgrade.counts(target).values())) for target in targets))
        for upgrade in upgrades
    ]
    failures: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for build in builds:
        for facts in build.failed:
            key = (facts.function, facts.case_id, f"{facts.outcome}: {facts.message}", build.triton)
            failures[key].append(facts.target)
    return [
        *map(_changes, upgrades),
        AuditTable(
            "Functions that did not compile",
            ("function", "case", "message", "Triton", "targets"),
            [(*key, ", ".join(found)) for key, found in failures.items()],
        ),
        AuditTable("Functions: worse / better / other code / same code", ("upgrade", *targets), counts),
    ]


def _changes(upgrade: Upgrade) -> AuditTable:
    targets: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for item in (*upgrade.worse, *upgrade.better):
        failed = next((side for side in (item.head, item.base) if side is not None and side.message), None)
        change = str(item.detail or item.reason) if failed is None else f"{failed.outcome}: {failed.message}"
        targets[item.word, item.function, item.case_id, change].append(item.target)
    rows = [(*key, ", ".join(found)) for key, found in targets.items()]
    return AuditTable(upgrade.title, ("verdict", "function", "case", "change", "targets"), rows)
