"""Tell a pull request what was found: one comment, one check-run. What GitHub is, is the caller's: a `Repository`.

Posting is never simply repeated. Whether a request that broke was carried out is not known, so what is there is looked
at anew before anything is posted again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.check_run import CheckRun
from roofwatch.ci.github.event import Branch, RunOrder
from roofwatch.ci.github.sticky_comment import Comment, make_plan

_MAX_ROUNDS = 6
_EXTERNAL_ID = re.compile(r"roofwatch:(\d{1,18})\.(\d{1,9})", re.ASCII)
_ANNOTATIONS_AT_ONCE = 50


class UncertainError(Exception):
    """Whether a request was carried out is not known; enough time has passed to look."""


@dataclass(frozen=True)
class FoundCheckRun:
    """A check-run of ours that is there already."""

    check_run_id: int
    is_completed: bool
    external_id: str = ""
    conclusion: str | None = None
    title: str = ""
    summary: str = ""
    url: str | None = None


@dataclass(frozen=True)
class Ends:
    """The commits at the two ends of a pull request."""

    base_sha: str
    """Of the branch that it shall go into."""
    head_sha: str


class Repository(Protocol):
    """A repository on GitHub as far as results are told to it. Each may raise `GitHubError`."""

    def comments(self, number: int) -> list[Comment]: ...

    def create_comment(self, number: int, body: str) -> int:
        """Its id. Raises `UncertainError` too."""

    def edit_comment(self, comment_id: int, body: str) -> bool:
        """False if it is gone."""

    def delete_comment(self, comment_id: int) -> None:
        """Gone already is as good."""

    def pull_requests_of(self, branch: Branch, head_sha: str) -> list[int]:
        """Numbers of the open pull requests whose head is that commit of that branch."""

    def check_runs(self, head_sha: str, name: str) -> list[FoundCheckRun]: ...

    def create_check_run(self, head_sha: str, name: str, external_id: str, check: CheckRun, url: str | None) -> int:
        """Its id. Raises `UncertainError` too."""

    def update_check_run(self, check_run_id: int, check: CheckRun, url: str | None) -> None:
        """Annotations are added to those that it has."""


class Done(StrEnum):
    """What became of a comment."""

    POSTED = "posted"
    EDITED = "edited"
    LEFT = "left as it is"


def post_comment(repository: Repository, number: int, body: str, *, is_silent: bool = False) -> Done:
    """Leave one comment of this report on a pull request, with what the newest run has to say.

    Args:
        repository: Where.
        number: Of the pull request.
        body: Of `roofwatch.ci.github.sticky_comment.body_of`.
        is_silent: Correct an earlier comment, but post none.

    Raises:
        GitHubError: GitHub refuses, or answers too badly.
    """
    created: dict[int, Comment] = {}
    for _ in range(_MAX_ROUNDS):
        listed = {comment.comment_id: comment for comment in repository.comments(number)}
        # what was just posted may not be listed yet, and must not be posted again
        plan = make_plan([*(created | listed).values()], body, is_silent=is_silent)
        if plan.is_new:
            with contextlib.suppress(UncertainError):
                comment_id = repository.create_comment(number, body)
                created[comment_id] = Comment(comment_id, body, is_trusted=True)
            continue  # another job may have done the same: look again
        for comment_id in plan.delete:
            repository.delete_comment(comment_id)
        if plan.edit is None:
            return Done.POSTED if created else Done.LEFT
        if repository.edit_comment(plan.edit, body):
            return Done.EDITED
        created.pop(plan.edit, None)  # deleted meanwhile: look again
    raise GitHubError(
        f"pull request {number} has no comment after {_MAX_ROUNDS} attempts to post one; does something delete it?"
    )


def post_check_run(
    repository: Repository, head_sha: str, name: str, order: RunOrder, check: CheckRun, url: str | None
) -> None:
    """Leave one check-run of a run on a commit: the one that says it is in progress becomes the one that concludes.

    Args:
        repository: Where.
        head_sha: The commit.
        name: What a rule of the repository may require.
        order: Of the run that measured: its check-run is found again by it.
        check: What it says.
        url: Of the run that measured.

    Raises:
        GitHubError: GitHub refuses, or answers too badly.
    """
    external_id = external_id_of(order)
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


def external_id_of(order: RunOrder) -> str:
    """By which the check-run of a run is found again."""
    return f"roofwatch:{order}"


def run_of(external_id: str) -> RunOrder | None:
    """The run whose check-run has that mark; None if it is none of ours."""
    found = _EXTERNAL_ID.fullmatch(external_id)
    return RunOrder(int(found[1]), int(found[2])) if found else None


def _youngest(found: Sequence[FoundCheckRun], external_id: str) -> FoundCheckRun | None:
    ours = [each for each in found if each.external_id == external_id]
    return max(ours, key=lambda each: each.check_run_id, default=None)


def _in_batches(check: CheckRun) -> list[CheckRun]:
    """The same, each with as many annotations as GitHub takes in one request."""
    starts = range(0, max(1, len(check.annotations)), _ANNOTATIONS_AT_ONCE)
    return [replace(check, annotations=check.annotations[at : at + _ANNOTATIONS_AT_ONCE]) for at in starts]


def pull_request_of(repository: Repository, branch: Branch, head_sha: str) -> int | None:
    """The open pull request of a branch at a commit; None if it has moved on or was closed.

    Raises:
        GitHubError: there are several, so which was measured is not known.
    """
    numbers: Sequence[int] = repository.pull_requests_of(branch, head_sha)
    if len(numbers) > 1:
        listed = ", ".join(map(str, numbers))
        raise GitHubError(f"several pull requests have the same head ({listed}); close all but one, or merge them")
    return numbers[0] if numbers else None
