"""Keep one comment and one check-run of a report on a pull request. Raises `GitHubError` if GitHub refuses.

A comment is ours if its first line is our marker and its author is a bot or belongs to the repository, so nobody else's
comment is edited because it begins with our marker. No request is blindly repeated: if it is not known whether it was
carried out, what is there is read again first.

Two jobs may look at the same time, find nothing, and both post. Each looks again after it has posted: the oldest
comment stays and gets the newest run's text, the others are deleted. Both jobs choose the same one, so one comment is
left in every order of events. A job that dies in between leaves two; the next run removes one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.check_run import CheckRun
from roofwatch.ci.github.client import Comment, FoundCheckRun, GitHubRepository, UncertainError
from roofwatch.ci.github.event import DEFAULT_NAME, Branch, RunOrder
from roofwatch.ci.report.comment import COMMENT_MARKER

_MAX_ROUNDS = 6
_ANNOTATIONS_AT_ONCE = 50
_ORDER = re.compile(r"<!-- roofwatch:run (\d{1,18})\.(\d{1,9}) -->")
_EXTERNAL_ID = re.compile(r"roofwatch:(\d{1,18})\.(\d{1,9})", re.ASCII)


class CommentAction(StrEnum):
    """What became of a comment."""

    POSTED = "posted"
    EDITED = "edited"
    LEFT = "left as it is"


@dataclass(frozen=True)
class CommentPlan:
    """How to get from the comments that are there to one."""

    edit: int | None
    """Comment to edit; None to leave what is there."""
    is_new: bool
    """Post one, as there is none."""
    delete: tuple[int, ...]


def post_comment(repository: GitHubRepository, number: int, body: str, *, is_silent: bool = False) -> CommentAction:
    """Leave one comment with a marker on a pull request or an issue, with the newest run's text.

    Args:
        repository: Where.
        number: Of the pull request or the issue.
        body: Its first line is the marker; the second may name the run, as `body_of` writes it.
        is_silent: Correct an earlier comment, but post none.
    """
    created: dict[int, Comment] = {}
    for _ in range(_MAX_ROUNDS):
        listed = {comment.comment_id: comment for comment in repository.comments(number)}
        # what was just posted may not be listed yet, and must not be posted again
        plan = plan_comment([*(created | listed).values()], body, is_silent=is_silent)
        if plan.is_new:
            with contextlib.suppress(UncertainError):
                comment_id = repository.create_comment(number, body)
                created[comment_id] = Comment(comment_id, body, is_trusted=True)
            continue  # another job may have done the same: look again
        for comment_id in plan.delete:
            repository.delete_comment(comment_id)
        if plan.edit is None:
            return CommentAction.POSTED if created else CommentAction.LEFT
        if repository.edit_comment(plan.edit, body):
            return CommentAction.EDITED
        created.pop(plan.edit, None)  # deleted meanwhile: look again
    raise GitHubError(f"#{number} has no comment after {_MAX_ROUNDS} attempts to post one; does something delete it?")


def plan_comment(comments: Sequence[Comment], body: str, *, is_silent: bool = False) -> CommentPlan:
    """How to have one comment that says what the newest run has to say; arguments are those of `post_comment`."""
    order = _order_of(body)
    ours = _with_marker(comments, _first_line(body))
    if not ours:
        return CommentPlan(edit=None, is_new=not is_silent, delete=())
    oldest, *younger = ours
    is_late = any(_order_of(comment.body) > order for comment in ours)
    is_said = oldest.body.split() == body.split()  # GitHub may end lines otherwise
    # a newer run that posted a second comment makes one of them itself
    return CommentPlan(
        edit=None if is_late or is_said else oldest.comment_id,
        is_new=False,
        delete=tuple(comment.comment_id for comment in younger if _order_of(comment.body) <= order),
    )


def find_comment(repository: GitHubRepository, number: int, name: str) -> Comment | None:
    """The comment of a report; the oldest, should there be several for a moment."""
    return next(iter(_with_marker(repository.comments(number), _marker(name))), None)


def body_of(comment: str, name: str, order: RunOrder, *hidden: str) -> str:
    """A comment as `roofwatch.ci.report.comment` writes it, marked with its report and its run.

    Args:
        comment: Markdown, below its marker.
        name: Of the report.
        order: Of the run that measured.
        hidden: More lines that only we read.
    """
    assert comment.startswith(COMMENT_MARKER)
    header = "\n".join([_marker(name), _order_line(order), *hidden])
    return f"{header}{comment.removeprefix(COMMENT_MARKER)}"


def reply_to(comment_id: int, text: str, order: RunOrder) -> str:
    """A comment that answers one, found again if the job that posts it is run twice."""
    return f"<!-- roofwatch:answer {comment_id} -->\n{_order_line(order)}\n{text}\n"


def post_check_run(
    repository: GitHubRepository, head_sha: str, name: str, order: RunOrder, check: CheckRun, url: str | None
) -> None:
    """Leave one check-run on a commit: the one in progress becomes the one that concludes.

    Args:
        repository: Where.
        head_sha: The commit.
        name: Of the check-run; a rule of the repository may require it.
        order: Of the run that measured, by which its check-run is found again.
        check: Its contents.
        url: Of the run that measured.
    """
    external_id = f"roofwatch:{order}"
    first, *more = _in_batches(check)
    is_first_look = True
    for _ in range(_MAX_ROUNDS):
        found = _youngest(repository.check_runs(head_sha, name), external_id)
        if found is not None and not found.is_completed:
            check_run_id = found.check_run_id
            repository.update_check_run(check_run_id, first, url)
        elif found is not None and check.conclusion is None:
            return  # the end has come before the beginning
        elif found is not None and not is_first_look:
            check_run_id = found.check_run_id  # it was carried out after all
        else:
            is_first_look = False
            try:
                check_run_id = repository.create_check_run(head_sha, name, external_id, first, url)
            except UncertainError:
                continue
        for batch in more:
            repository.update_check_run(check_run_id, batch, url)
        return
    raise GitHubError(f"GitHub could not say whether it made the check-run {name!r}; run this job again")


def run_of(check_run: FoundCheckRun) -> RunOrder | None:
    """The run whose check-run it is; None if it is none of ours."""
    found = _EXTERNAL_ID.fullmatch(check_run.external_id)
    return RunOrder(int(found[1]), int(found[2])) if found else None


def pull_request_of(repository: GitHubRepository, branch: Branch, head_sha: str) -> int | None:
    """The open pull request of a branch at a commit; None if it has moved on or was closed.

    Raises:
        GitHubError: there are several, so which was measured is not known.
    """
    numbers = repository.pull_requests_of(branch, head_sha)
    if len(numbers) > 1:
        listed = ", ".join(map(str, numbers))
        raise GitHubError(f"several pull requests have the same head ({listed}); close all but one, or merge them")
    return numbers[0] if numbers else None


def _marker(name: str) -> str:
    return COMMENT_MARKER if name == DEFAULT_NAME else f"<!-- roofwatch:report {name} -->"


def _with_marker(comments: Sequence[Comment], marker: str) -> list[Comment]:
    """Our comments with that marker, the oldest first."""
    ours = [comment for comment in comments if comment.is_trusted and _first_line(comment.body) == marker]
    return sorted(ours, key=lambda comment: comment.comment_id)


def _first_line(body: str) -> str:
    return body.split("\n", 1)[0].rstrip()


def _order_line(order: RunOrder) -> str:
    return f"<!-- roofwatch:run {order} -->"


def _order_of(body: str) -> RunOrder:
    lines = body.splitlines()
    found = _ORDER.fullmatch(lines[1].rstrip()) if len(lines) > 1 else None
    return RunOrder(int(found[1]), int(found[2])) if found else RunOrder(0, 0)


def _youngest(found: Sequence[FoundCheckRun], external_id: str) -> FoundCheckRun | None:
    ours = [one for one in found if one.external_id == external_id]
    return max(ours, key=lambda one: one.check_run_id, default=None)


def _in_batches(check: CheckRun) -> list[CheckRun]:
    """The same, each with as many annotations as GitHub takes in one request."""
    starts = range(0, max(1, len(check.annotations)), _ANNOTATIONS_AT_ONCE)
    return [replace(check, annotations=check.annotations[at : at + _ANNOTATIONS_AT_ONCE]) for at in starts]
