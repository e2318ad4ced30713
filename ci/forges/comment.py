"""Keep one comment on a pull request or an issue, with hidden state and possibly an acceptance.

The first line of a comment is a hidden marker, the second its hidden state. A comment is ours if it
has both and its author is a bot or belongs to the repository; a person may quote the marker alone.
If two jobs post at the same time, the next run merges the comments.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from roofwatch.ci.forges.acceptance import Acceptance, Findings
from roofwatch.ci.forges.check_run import Conclusion
from roofwatch.ci.forges.event import Comment, RunOrder
from roofwatch.ci.messages import ForgeError, UncertainError, code

if TYPE_CHECKING:
    from roofwatch.ci.forges.client import GitHubRepository
    from roofwatch.ci.forges.gitlab import GitLabProject

Forge: TypeAlias = "GitHubRepository | GitLabProject"
"""What reports are posted to. Every method may raise `ForgeError`."""
COMMENT_MARKER = "<!-- roofwatch:report -->"
"""First line of every comment with a report, by which it is found for an update."""
DEFAULT_NAME = "roofwatch"
# two jobs may write the same comment at once
_MAX_ATTEMPTS = 6
_ACCEPTED = "> **Accepted** "
_NAME = re.compile(r"[\w. ()/+-]{1,60}", re.ASCII)
# read back from a comment that anybody with write access can edit
_STATE = re.compile(r"<!-- roofwatch:state ([A-Za-z0-9+/=]{1,24000}) -->")


class PartState(BaseModel):
    """One runner or suite of a report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    head_sha: str
    order: RunOrder
    conclusion: Conclusion
    title: str
    line_count: int = 0
    """Lines of its text in the comment."""


class CommentState(BaseModel):
    """What a comment of ours stores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: RunOrder
    """The run that it reports."""
    findings: Findings | None = None
    acceptance: Acceptance | None = None
    parts: tuple[PartState, ...] = ()


class CommentAction(StrEnum):
    POSTED = "posted"
    EDITED = "edited"
    LEFT = "left as it is"


def check_name(name: str) -> None:
    """Raise `ForgeError` unless it can be the name of a report: it is part of a marker and of a
    check-run's name.
    """
    if not _NAME.fullmatch(name) or "--" in name:
        raise ForgeError(
            f"--name {name[:100]!r}: use at most 60 letters, digits, spaces and . ( ) / + -"
        )


def report_marker(name: str) -> str:
    """The hidden first line of a report, which finds the comment again."""
    if name == DEFAULT_NAME:
        return COMMENT_MARKER
    return f"<!-- roofwatch:report {name} -->"


def compose(
    marker: str,
    state: CommentState,
    text: str,
) -> str:
    """Write a comment with its marker and state."""
    encoded = base64.b64encode(state.model_dump_json().encode()).decode()
    return f"{marker}\n<!-- roofwatch:state {encoded} -->\n{text.strip()}\n"


def read_state(body: str) -> CommentState:
    """Read the state of a comment; the oldest possible run if it has none."""
    lines = body.splitlines()
    match = None
    if len(lines) > 1:
        match = _STATE.fullmatch(lines[1].rstrip())
    with contextlib.suppress(ValidationError, binascii.Error):
        if match is not None:
            return CommentState.model_validate_json(base64.b64decode(match[1]))
    return CommentState(order=RunOrder(0, 0))


def with_acceptance(
    body: str,
    acceptance: Acceptance,
    sentence: str,
) -> str:
    """Record an acceptance in a comment of ours, in place of an earlier one."""
    state = read_state(body).model_copy(update={"acceptance": acceptance})
    marker, _, *lines = without_acceptance(body).splitlines()
    headings = (index for index, line in enumerate(lines) if line.startswith("### "))
    heading = next(headings, 0)
    lines[heading + 1 : heading + 1] = [
        "",
        f"{_ACCEPTED}{sentence}. It holds until something else is found.",
    ]
    return compose(marker, state, "\n".join(lines))


def without_acceptance(body: str) -> str:
    """Remove what `with_acceptance` added to the text."""
    lines: list[str] = []
    for line in body.splitlines():
        if line.startswith(_ACCEPTED):
            lines.pop()  # the blank line before it
        else:
            lines.append(line)
    return "\n".join(lines)


def accepted_by(comment: Comment, reason: str) -> str:
    """Write who accepted, when and why, as Markdown."""
    date = code(comment.written_at[:10])
    person = code(comment.login)
    return f"by {person} on {date}: {code(reason, limit=200)}"


def post_comment(
    repository: Forge,
    number: int,
    body: str,
    *,
    is_silent: bool = False,
) -> CommentAction:
    """Leave one comment with a marker on a pull request or an issue, with the newest run's text.

    Without a state every run may replace it. A silent one updates an earlier comment, but posts
    none.

    Raises:
        ForgeError: GitHub refuses.
    """
    order = read_state(body).order
    uncertain = None
    for _ in range(_MAX_ATTEMPTS):
        ours = _with_marker(repository.comments(number), _kind(body))
        if not ours:
            if is_silent:
                return CommentAction.LEFT
            try:
                repository.create_comment(number, body)
            except UncertainError as error:  # look for it before posting again
                uncertain = error
                continue
            return CommentAction.POSTED
        oldest, *others = ours
        if any(read_state(comment.body).order > order for comment in ours):
            return CommentAction.LEFT
        for comment in others:  # two jobs posted at the same time
            repository.delete_comment(comment)
        if oldest.body.split() == body.split():  # GitHub may change line endings
            if uncertain:
                return CommentAction.POSTED
            return CommentAction.LEFT
        if repository.edit_comment(oldest, body):
            return CommentAction.EDITED
    reason = "is something deleting it?"
    if uncertain is not None:
        reason = str(uncertain)
    raise ForgeError(
        f"#{number} has no comment after {_MAX_ATTEMPTS} attempts to post one: {reason}"
    )


def find_report(
    repository: Forge,
    number: int,
    name: str,
) -> Comment | None:
    """Return the comment of a report whose state can be trusted: by a bot, or by someone with write
    access.
    """
    comments = repository.comments(number)
    reports = _with_marker(comments, (report_marker(name), True))
    ours = next(iter(reports), None)
    if ours is None or ours.is_bot or repository.may_write(ours.login):
        return ours
    return None


def _with_marker(comments: Sequence[Comment], kind: tuple[str, bool]) -> list[Comment]:
    """Return our comments of a kind, the oldest first."""
    # anybody may paste a marker
    trusted = [comment for comment in comments if comment.is_trusted]
    ours = [comment for comment in trusted if _kind(comment.body) == kind]
    return sorted(ours, key=lambda comment: comment.comment_id)


def _kind(body: str) -> tuple[str, bool]:
    """The marker in the first line, and whether a state follows it."""
    # a shorter comment has no second line
    padded = [*body.splitlines(), "", ""]
    first, second, *_ = padded
    return first.rstrip(), _STATE.fullmatch(second.rstrip()) is not None
