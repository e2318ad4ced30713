"""A series of times, each timer and cache state for itself: what two of them say does not compare. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from roofwatch.ci.ab.pair_evidence import PairEvidence
from roofwatch.ci.causes.compiled_changes import CompiledHistory
from roofwatch.ci.history.points import points_by_timing
from roofwatch.ci.history.supporting_series import Witnesses
from roofwatch.ci.history.time_steps import TimeSteps
from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import CommitRef, Series


@dataclass(frozen=True)
class TimedHistory:
    """One series of times, by all the ways in which it was timed."""

    by_timing: dict[str, TimeSteps]
    """By timer and cache state; what gave the newest time comes first, and what gave none is not there."""

    @classmethod
    def of(cls, series: Series, thresholds: Thresholds) -> TimedHistory:
        """Take a series of times apart."""
        return cls(
            {
                timing: TimeSteps(series.key, by_commit, thresholds)
                for timing, by_commit in points_by_timing(series).items()
            }
        )

    @property
    def dates(self) -> set[date]:
        """When a commit was first measured, in UTC."""
        return set[date]().union(*(steps.dates for steps in self.by_timing.values()))

    def findings(
        self, evidence: PairEvidence, compiled: CompiledHistory, witnesses: Witnesses
    ) -> Iterator[TrendFinding]:
        """Every step and drift. What two ways of timing show at one commit is told once, by the newer one."""
        told: set[CommitRef] = set()
        for steps in self.by_timing.values():
            findings = list(steps.findings(evidence, compiled, witnesses))
            yield from (finding for finding in findings if finding.change.commit not in told)
            told.update(finding.change.commit for finding in findings)
