"""What profiles of calls said over a history, as values."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.collector.record.results import CaseProfile
from roofwatch.db.values import CommitRef


@dataclass(frozen=True)
class ProfiledRun:
    """The profile that one run has of one case and implementation."""

    runner_class: str
    commit: CommitRef
    profile: CaseProfile
