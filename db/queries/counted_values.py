"""What hardware counters said, as values."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.collector.record.results import Counters
from roofwatch.db.values import CommitRef


@dataclass(frozen=True)
class CountedRun:
    """The counters that one run read of one case and implementation."""

    case_id: str
    implementation: str
    runner_class: str
    commit: CommitRef
    counters: tuple[Counters, ...]
    """Of each kernel launch, in order."""
