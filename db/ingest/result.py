"""What becomes of a record that is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OnConflict(StrEnum):
    """What becomes of a run that is sent again with other content."""

    REFUSE = "refuse"
    REPLACE = "replace"


@dataclass(frozen=True)
class IngestResult:
    run_id: str
    project: str
    content_hash: str
    was_new: bool
    """False where the run was stored before: the very same record, unless it was replaced."""
    was_replaced: bool = False
    """It was stored with other content, which is gone."""
