"""What a commit of the ledger is called in a title, a link and a list."""

import re
from collections.abc import Iterable

from roofwatch.ci.history.commit_rows import CommitEntry
from roofwatch.ci.history.finding import ALL_KERNELS
from roofwatch.dashboard.wording import device_text, headline_text
from roofwatch.model.history import ChangePoint
from roofwatch.model.verdict import Verdict

_PULL_REQUEST = re.compile(r"[(]?[#!](\d+)[)]?\s*$")


def kernel_text(kernel: str) -> str:
    if kernel == ALL_KERNELS:
        return "every kernel"
    return kernel


def headline_of(row: CommitEntry) -> str:
    """Write what a link of the row unfurls as: `gemm_fp8 +31.0% on B200 since #1317`."""
    worst = row.worst
    where = device_text(worst.series.runner_class)
    # machine code has no device
    on_device = ""
    if where:
        on_device = f" on {where}"
    kernel = kernel_text(worst.series.kernel)
    change = headline_text(worst)
    return f"{kernel} {change}{on_device} since {commit_name(row)}"


def once_a_commit(changes: Iterable[ChangePoint]) -> list[ChangePoint]:
    """Keep one change of each commit and verdict: that of the time if it changed."""
    by_subject: dict[tuple[str, Verdict], ChangePoint] = {}
    for change in changes:
        subject = change.commit.sha, change.verdict
        if subject not in by_subject or change.series.is_performance:
            by_subject[subject] = change
    return list(by_subject.values())


def commit_name(row: CommitEntry) -> str:
    """Return the number of the pull request, else the short sha."""
    number = _PULL_REQUEST.search(row.commit.subject)
    if number:
        return f"#{number[1]}"
    return row.commit.short_sha
