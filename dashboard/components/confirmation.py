"""Pairs of a commit that people asked runners to measure: which wait, run, and were measured."""

from collections.abc import Sequence

from roofwatch.ci.history.commit_rows import CommitEntry
from roofwatch.dashboard.wording import age_text, device_text, duration_text, escaped, shortened
from roofwatch.model.agenda import StoredJob
from roofwatch.model.record import utc_now

_NS_PER_S = 1e9


def requested_jobs(jobs: Sequence[StoredJob], row: CommitEntry) -> list[StoredJob]:
    """Return the jobs that people asked for about a commit, the newest of each runner class."""
    pairs: set[tuple[str, str]] = set()
    for point in row.change_points:
        pairs.add((point.previous_commit.sha, point.commit.sha))
    newest: dict[str, StoredJob] = {}
    # open jobs come first, then the newest
    for job in jobs:
        is_about_row = (job.base_sha, job.head_sha) in pairs
        if job.is_requested and is_about_row:
            newest.setdefault(job.runner_class, job)
    return list(newest.values())


def request_mark(jobs: Sequence[StoredJob], row: CommitEntry) -> str:
    """Write in a word how far what was asked for is; empty if nothing is open."""
    requested = requested_jobs(jobs, row)
    open_jobs = [job for job in requested if job.finished_at is None]
    is_running = any(job.leased_until is not None for job in open_jobs)
    if is_running:
        return "◐ running"
    if open_jobs:
        return "○ asked"
    return ""


def requests_html(jobs: Sequence[StoredJob], row: CommitEntry) -> str:
    """Write a line for each runner class that was asked to measure the pair."""
    lines: list[str] = []
    for job in requested_jobs(jobs, row):
        text = escaped(_request_text(job))
        lines.append(f"<p class=rw-note role=status>{text}</p>")
    return "".join(lines)


def _request_text(job: StoredJob) -> str:
    device = device_text(job.runner_class)
    now = utc_now()
    if job.finished_at is None and job.leased_until is not None:
        return f"Confirmation on {device}: ◐ a runner is measuring the pair."
    if job.finished_at is None:
        age = age_text(job.planned_at, now=now)
        return f"Confirmation on {device}: ○ asked for {age}, waits for a runner."
    ended = age_text(job.finished_at, now=now)
    if job.note is not None:
        reason = shortened(job.note, length=200)
        return f"Confirmation on {device}: ✗ could not be measured, {ended}: {reason}"
    spent_s = job.spent_s or 0.0
    duration = duration_text(spent_s * _NS_PER_S)
    return (
        f"Confirmation on {device}: ✓ measured {ended} in {duration}. The verdict counts it as "
        "soon as its records are stored."
    )
