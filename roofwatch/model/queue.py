"""Jobs of the queue: commands that people send to runners that have the device."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

QUEUED_COMMANDS = ("run", "ab", "check", "submit", "diagnose", "profile", "ncu", "watch")
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
class TakenJob:
    """A job that a runner holds."""

    job_id: UUID
    project: str
    command: tuple[str, ...]
    folder: str
    limit_s: float
    """The runner ends the job after this time."""
