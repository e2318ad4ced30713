"""Where the minutes of a runner class went."""

from __future__ import annotations

from datetime import timedelta

import pytest

from roofwatch.ci.watching.agenda_summary import summarise_agenda
from roofwatch.model.agenda import JobKind, StoredJob
from tests.builders import NOON, sha_of


def job(
    kind: JobKind, spent_s: float | None = None, runner_class: str = "H200", number: int = 1
) -> StoredJob:
    return StoredJob(
        key=f"{kind}:{number}",
        kind=kind,
        reason="",
        expected_s=60.0,
        base_sha=None,
        head_sha=sha_of(number),
        runner_class=runner_class,
        spent_s=spent_s,
        planned_at=NOON,
        leased_until=None,
        finished_at=None if spent_s is None else NOON + timedelta(seconds=spent_s),
    )


def test_the_most_expensive_kind_of_job_comes_first_with_its_share() -> None:
    jobs = [
        job(JobKind.FILL),
        job(JobKind.NEW, 100.0),
        job(JobKind.CONFIRM, 250.0, number=2),
        job(JobKind.NEW, 50.0, number=3),
        job(JobKind.NEW, 1_000.0, runner_class="another"),
    ]

    summary = summarise_agenda(jobs, "H200")

    assert [planned.kind for planned in summary.open_jobs] == [JobKind.FILL]
    assert summary.expected_s == 60.0
    assert summary.spent_s == 400.0
    assert [(spent.kind, spent.job_count, spent.spent_s) for spent in summary.spent] == [
        (JobKind.CONFIRM, 1, 250.0),
        (JobKind.NEW, 2, 150.0),
    ]
    assert sum(spent.share for spent in summary.spent) == pytest.approx(1.0)


def test_a_runner_class_without_jobs_has_an_empty_summary() -> None:
    summary = summarise_agenda([], "H200")

    assert (summary.open_jobs, summary.spent, summary.spent_s) == ((), (), 0)
