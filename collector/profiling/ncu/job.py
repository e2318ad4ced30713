"""What the process that Nsight Compute looks into is told, and what it answers: one file each."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.protocol import Failure


class NcuJob(BaseModel):
    """Make one call of one case under the profiler's eyes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: SuiteSource
    case_id: str
    implementation: str
    device: str
    warm_up_count: int
    """Calls before the one that counts: they compile, tune and fill caches unseen."""
    answer: Path
    """Where the answer goes."""


class NcuAnswer(BaseModel):
    """How the call ended; the file is not there where the process died."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    failure: Failure | None = None
