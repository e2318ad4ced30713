"""The agenda of a runner class, and where its time of the last 30 days went. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from roofwatch.model.agenda import JobKind, StoredJob


@dataclass(frozen=True, kw_only=True)
class SpentOnKind:
    """The jobs of one kind that were done."""

    kind: JobKind
    job_count: int
    spent_s: float
    share: float
    """Of the time of all jobs, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class AgendaSummary:
    """What the runners of a class do next, and what they did."""

    open_jobs: tuple[StoredJob, ...]
    """Planned and taken ones, the most valuable first."""
    spent: tuple[SpentOnKind, ...]
    """The most expensive kind first."""

    @property
    def expected_s(self) -> float:
        return sum(job.expected_s for job in self.open_jobs)

    @property
    def spent_s(self) -> float:
        return sum(kind.spent_s for kind in self.spent)


def summarise_agenda(jobs: Iterable[StoredJob], runner_class: str) -> AgendaSummary:
    """Sum up the jobs of one runner class.

    Args:
        jobs: Open ones and those that were done in the last 30 days, as `list_jobs` returns them.
        runner_class: Whose jobs count.
    """
    own_jobs = [job for job in jobs if job.runner_class == runner_class]
    return AgendaSummary(
        open_jobs=tuple(job for job in own_jobs if job.finished_at is None),
        spent=_spent_by_kind(own_jobs),
    )


def _spent_by_kind(jobs: Iterable[StoredJob]) -> tuple[SpentOnKind, ...]:
    seconds: dict[JobKind, list[float]] = defaultdict(list)
    for job in jobs:
        if job.spent_s is not None:
            seconds[JobKind(job.kind)].append(job.spent_s)
    total_s = sum(sum(spent) for spent in seconds.values())
    by_kind = [
        SpentOnKind(
            kind=kind,
            job_count=len(spent),
            spent_s=sum(spent),
            share=sum(spent) / total_s if total_s else 0.0,
        )
        for kind, spent in seconds.items()
    ]
    return tuple(sorted(by_kind, key=lambda kind: -kind.spent_s))
