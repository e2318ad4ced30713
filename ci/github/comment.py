"""Keep one comment on a pull request or an issue, with hidden state and possibly an acceptance.

The first line of a comment is a hidden marker, the second its hidden state. A comment is ours if it has our marker and
its author is a bot or belongs to the repository. Two jobs may both post: the oldest comment stays and gets the newest
run's text, the others are deleted, so that one comment is left in every order of events.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, ValidationError

from roofwatch.ci.errors import GitHubError, UncertainError
from roofwatch.ci.github.client import GitHubRepository
from roofwatch.ci.github.event import Comment, RunOrder
from roofwatch.ci.report.comment import COMMENT_MARKER
from roofwatch.ci.report.markdown import code

DEFAULT_NAME = "roofwatch"
_MAX_ROUNDS = 6
_ACCEPTED = "> **Accepted** "
_NAME = re.compile(r"[\w. ()/+-]{1,60}", re.ASCII)
_STATE = re.compile(r"<!-- roofwatch:state ([A-Za-z0-9+/=]{1,8000}) -->")


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Findings(_Document):
    """The regressions of a report, as far as needed to compare them with those of another report."""

    digest: str
    """Of which cases, functions and metrics regressed and why, without numbers."""
    low: float
    """Lower end of the interval of the worst slowdown, as a relative change; 0 if no time regressed."""
    high: float
    head_sha: str
    worst: tuple[str, str] | None = None
    """Case and implementation of the worst slowdown."""


class Acceptance(_Document):
    """Which comment accepted which findings. Its author, date and reason are read from that comment each time."""

    comment_id: int
    digest: str
    high: float

    def covers(self, findings: Findings) -> bool:
        """Tell whether the same things regressed, and none noticeably more."""
        return self.digest == findings.digest and findings.low <= self.high


class CommentState(_Document):
    """What a comment of ours stores."""

    order: RunOrder
    """The run that it reports."""
    findings: Findings | None = None
    acceptance: Acceptance | None = None


class CommentAction(StrEnum):
    """What happened to a comment."""

    POSTED = "posted"
    EDITED = "edited"
    LEFT = "left as it is"


@dataclass(frozen=True)
class CommentPlan:
    """How to get from the existing comments to one."""

    edit: int | None
    is_new: bool
    """There is none, so post one."""
    delete: tuple[int, ...]


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a report: it is part of a marker and of a check-run's name."""
    return _NAME.fullmatch(text) is not None and "--" not in text


def report_marker(name: str) -> str:
    return COMMENT_MARKER if name == DEFAULT_NAME else f"<!-- roofwatch:report {name} -->"


def compose(marker: str, state: CommentState, text: str) -> str:
    """Write a comment with its marker and state."""
    encoded = base64.b64encode(state.model_dump_json().encode()).decode()
    return f"{marker}\n<!-- roofwatch:state {encoded} -->\n{text.strip()}\n"


def read_state(body: str) -> CommentState:
    """Read the state of a comment; the oldest possible run if it has none."""
    lines = body.splitlines()
    found = _STATE.fullmatch(lines[1].rstrip()) if len(lines) > 1 else None
    with contextlib.suppress(ValidationError, binascii.Error):
        if found is not None:
            return CommentState.model_validate_json(base64.b64decode(found[1]))
    return CommentState(order=RunOrder(0, 0))


def with_acceptance(body: str, acceptance: Acceptance, sentence: str) -> str:
    """Record an acceptance in a comment of ours, in place of an earlier one."""
    state = read_state(body).model_copy(update={"acceptance": acceptance})
    marker, _, *lines = body.splitlines()
    lines = [line for line in lines if not line.startswith(_ACCEPTED)]
    heading = next((index for index, line in enumerate(lines) if line.startswith("### ")), 0)
    lines[heading + 1 : heading + 1] = ["", f"{_ACCEPTED}{sentence}. It holds until something else is found."]
    return compose(marker, state, "\n".join(lines))


def accepted_by(comment: Comment, reason: str) -> str:
    """Say who accepted, when and why, as Markdown."""
    return f"by {code(comment.login)} on {code(comment.written_at[:10])}: {code(reason, limit=200)}"


def post_comment(repository: GitHubRepository, number: int, body: str, *, is_silent: bool = False) -> CommentAction:
    """Leave one comment with a marker on a pull request or an issue, with the newest run's text.

    Args:
        repository: The repository.
        number: Of the pull request or issue.
        body: As `compose` writes it; without a state every run may replace it.
        is_silent: Update an earlier comment, but post none.

    Raises:
        GitHubError: GitHub refuses.
    """
    created: dict[int, Comment] = {}
    for _ in range(_MAX_ROUNDS):
        listed = {comment.comment_id: comment for comment in repository.comments(number)}
        plan = plan_comment(
            [*(created | listed).values()], body, is_silent=is_silent
        )  # a new one may not be listed yet
        if plan.is_new:
            with contextlib.suppress(UncertainError):
                comment = repository.create_comment(number, body)
                created[comment.comment_id] = comment
            continue  # look again: another job may have posted too
        for comment_id in plan.delete:
            repository.delete_comment(comment_id)
        if plan.edit is None:
            return CommentAction.POSTED if created else CommentAction.LEFT
        if repository.edit_comment(plan.edit, body):
            return CommentAction.EDITED
        created.pop(plan.edit, None)  # it was deleted: look again
    raise GitHubError(f"#{number} has no comment after {_MAX_ROUNDS} attempts to post one; is something deleting it?")


def plan_comment(comments: Sequence[Comment], body: str, *, is_silent: bool = False) -> CommentPlan:
    """Plan how to have one comment with the newest run's text; arguments as in `post_comment`."""
    order = read_state(body).order
    ours = _with_marker(comments, _first_line(body))
    if not ours:
        return CommentPlan(edit=None, is_new=not is_silent, delete=())
    oldest, *younger = ours
    is_late = any(read_state(comment.body).order > order for comment in ours)
    is_equal = oldest.body.split() == body.split()  # GitHub may change line endings
    # a newer run that posted a second comment merges the two itself
    delete = tuple(comment.comment_id for comment in younger if read_state(comment.body).order <= order)
    return CommentPlan(edit=None if is_late or is_equal else oldest.comment_id, is_new=False, delete=delete)


def find_report(repository: GitHubRepository, number: int, name: str) -> Comment | None:
    """Return the comment of a report whose state can be trusted: by a bot, or by someone with write access."""
    ours = next(iter(_with_marker(repository.comments(number), report_marker(name))), None)
    if ours is None or ours.is_bot or repository.may_write(ours.login):
        return ours
    return None


def _with_marker(comments: Sequence[Comment], marker: str) -> list[Comment]:
    """Return our comments with that marker, the oldest first."""
    ours = [comment for comment in comments if comment.is_trusted and _first_line(comment.body) == marker]
    return sorted(ours, key=lambda comment: comment.comment_id)


def _first_line(body: str) -> str:
    return body.split("\n", 1)[0].rstrip()
