"""Brings the issues of a repository in line with the regressions that a watch has told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from roofwatch.ci.forges.comment import post_comment
from roofwatch.ci.messages import ForgeError, UncertainError
from roofwatch.ci.watching.issues import RegressionIssue

if TYPE_CHECKING:
    from roofwatch.ci.forges.client import GitHubRepository, Issue

LABEL = "roofwatch-regression"
"""Of every issue; by it they are found again."""


def synchronise(
    repository: GitHubRepository,
    issues: Sequence[RegressionIssue],
    labels: Sequence[str],
) -> Iterator[str]:
    """Open, comment on and close issues on GitHub; yields what was done.

    An issue that a person closed is not opened again, and none is opened for a regression that is
    over.

    Raises:
        ForgeError: GitHub refuses; what was done so far stays, and the next call continues.
    """
    # a stranger may write our marker into an issue of theirs
    existing = [issue for issue in repository.list_issues(LABEL) if issue.is_trusted]
    for planned in issues:
        issue = _with_marker(existing, planned.marker)
        # found and over between two calls: nobody has to act
        if issue is None and planned.is_over:
            continue
        if issue is None:
            number = _open(repository, planned, labels)
            yield f"opened issue #{number}: {planned.title}"
        elif issue.is_open:
            number = issue.number
        else:
            # a person closed it
            continue
        for comment in planned.comments:
            post_comment(repository, number, comment)
        if planned.is_over:
            repository.close_issue(number)
            yield f"closed issue #{number}: {planned.title}"


def _open(
    repository: GitHubRepository,
    planned: RegressionIssue,
    labels: Sequence[str],
) -> int:
    body = f"{planned.marker}\n{planned.body}"
    all_labels = (LABEL, *labels)
    try:
        return repository.create_issue(
            planned.title,
            body,
            all_labels,
            planned.assignees,
        )
    except UncertainError:
        raise
    except ForgeError:
        if not planned.assignees:
            raise
        # an owner may have left the organisation: the issue matters more than its assignee
        return repository.create_issue(planned.title, body, all_labels)


def _with_marker(issues: Sequence[Issue], marker: str) -> Issue | None:
    matching: list[Issue] = []
    for issue in issues:
        first_line, _, _ = issue.body.partition("\n")
        if first_line.rstrip() == marker:
            matching.append(issue)
    # two runners at the same time may both have opened one: the first counts
    return min(
        matching,
        key=lambda issue: issue.number,
        default=None,
    )
