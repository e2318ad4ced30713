"""Jobs of the queue: commands that people send to runners that have the device."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

WATCH = "watch"
QUEUED_COMMANDS = ("run", "ab", "check", "submit", "diagnose", "profile", "ncu", WATCH)
"""Commands that a runner carries out for a client: those that measure and send nothing."""
MAX_JOB_S = 3_600.0
"""A runner ends a job that takes longer."""
HEARTBEAT_S = 10.0
"""Longest time between two reports of a runner about its job."""
MAX_LINES = 5_000
"""Lines of progress that are kept of one job."""
MAX_LINE_CHARACTERS = 1_000
MAX_CONTENT_BYTES = 64 * 2**20
"""Largest tree and largest result of a job that a client and a runner send."""


MAX_REQUESTED_PAIRS = 10
"""Pairs that people asked for and one watch measures."""
MAX_NOTE_CHARACTERS = 300
REPORT_FILE = "watch/report.json"
"""Where a watch writes its report for the runner of a queue, in its folder of records."""
# control characters would change lines of the log and the terminal
NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]


class JobOutcome(StrEnum):
    """How a job ended."""

    DONE = "done"
    """The command ended, with some exit status."""
    CANCELLED = "cancelled"
    LOST = "lost"
    """Each runner that took it stopped reporting."""


class JobPriority(StrEnum):
    """Waiting jobs of a higher priority start first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, kw_only=True)
class QueueRequest:
    """What a person asks of a runner class."""

    runner_class: str
    command: tuple[str, ...]
    """Words after `roofwatch`."""
    folder: str = ""
    """In which the command runs, relative to the tree."""
    priority: JobPriority = JobPriority.NORMAL


@dataclass(frozen=True, kw_only=True)
class QueueForecast:
    """What earlier jobs of the same command say about a new one."""

    expected_s: float | None
    """Median duration; None without such a job."""
    ahead_count: int
    """Unfinished jobs that are before it."""
    ahead_s: float | None
    """Their expected duration together, if each is known."""


@dataclass(frozen=True, kw_only=True)
class QueuedJob(QueueRequest):
    """A job as the queue has it."""

    job_id: UUID
    project: str
    requested_by: str
    requested_at: datetime
    attempt_count: int
    """Times that a runner took it."""
    runner: str | None
    """Name of the machine that took it last."""
    started_at: datetime | None
    leased_until: datetime | None
    finished_at: datetime | None
    outcome: JobOutcome | None
    exit_status: int | None
    spent_s: float | None
    is_cancelled: bool
    """Somebody asked to cancel it."""
    line_count: int

    @property
    def state(self) -> str:
        """`waiting`, `running`, or how it ended."""
        if self.outcome is not None:
            return str(self.outcome)
        return "waiting" if self.leased_until is None else "running"


@dataclass(frozen=True, kw_only=True)
class RequestedPair:
    """Two commits that a person wants to have measured."""

    base_sha: str
    head_sha: str


class AnsweredPair(BaseModel, frozen=True, extra="forbid"):
    """A pair that was measured, or that cannot be."""

    base_sha: Sha
    head_sha: Sha
    spent_s: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    note: Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS, pattern=NO_CONTROLS)] | None = None
    """Why nothing was measured."""


class WatchReport(BaseModel, frozen=True, extra="forbid"):
    """What a watch tells the queue: who measured, and which of the pairs that were asked for."""

    runner_class: Annotated[str, Field(min_length=1, max_length=500, pattern=NO_CONTROLS)]
    """As in records, such as `NVIDIA H100 80GB HBM3, 80 GiB, 700 W`."""
    pairs: Annotated[tuple[AnsweredPair, ...], Field(max_length=MAX_REQUESTED_PAIRS)]


@dataclass(frozen=True, kw_only=True)
class TakenJob:
    """A job that a runner holds."""

    job_id: UUID
    project: str
    command: tuple[str, ...]
    folder: str
    limit_s: float
    """The runner ends the job after this time."""
    pairs: tuple[RequestedPair, ...] = ()
    """What people asked for; a watch measures it first."""
