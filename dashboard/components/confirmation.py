"""Pairs of a commit that people asked runners to measure: which wait, run, and were measured."""

from collections.abc import Sequence

from roofwatch.ci.history.commit_rows import CommitEntry
from roofwatch.dashboard.wording import age_text, device_text, duration_text, escaped, shortened
from roofwatch.model.agenda import StoredJob
from roofwatch.model.record import utc_now

_NS_PER_S = 1e9


def requested_jobs(jobs: Sequence[StoredJob], row: CommitEntry) -> list[StoredJob]:
    """Return the jobs that people asked for about a commit, the newest of each runner class."""
    pairs = {(point.previous_commit.sha, point.commit.sha) for point in row.change_points}
    newest: dict[str, StoredJob] = {}
    # open jobs come first, then the newest
    for job in jobs:
        if job.is_requested and (job.base_sha, job.head_sha) in pairs:
            newest.setdefault(job.runner_class, job)
    return list(newest.values())


def request_mark(jobs: Sequence[StoredJob], row: CommitEntry) -> str:
    """Write in a word how far what was asked for is; empty if nothing is open."""
    open_jobs = [job for job in requested_jobs(jobs, row) if job.finished_at is None]
    if any(job.leased_until is not None for job in open_jobs):
        return "◐ running"
    if open_jobs:
        return "○ asked"
    return ""


def requests_html(jobs: Sequence[StoredJob], row: CommitEntry) -> str:
    """Write a line for each runner class that was asked to measure the pair."""
    lines = [_request_text(job) for job in requested_jobs(jobs, row)]
    return "".join(f"<p class=rw-note role=status>{escaped(line)}</p>" for line in lines)


def _request_text(job: StoredJob) -> str:
    device = device_text(job.runner_class)
    if job.finished_at is None and job.leased_until is not None:
        return f"Confirmation on {device}: ◐ a runner is measuring the pair."
    if job.finished_at is None:
        age = age_text(job.planned_at, now=utc_now())
        return f"Confirmation on {device}: ○ asked for {age}, waits for a runner."
    ended = age_text(job.finished_at, now=utc_now())
    if job.note is not None:
        reason = shortened(job.note, length=200)
        return f"Confirmation on {device}: ✗ could not be measured, {ended}: {reason}"
    duration = duration_text((job.spent_s or 0.0) * _NS_PER_S)
    return (
        f"Confirmation on {device}: ✓ measured {ended} in {duration}. The verdict counts it as "
        "soon as its records are stored."
    )
