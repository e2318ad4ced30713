"""The one comment on a pull request: found again, edited, never posted twice. Pure: what is done is the caller's.

A comment is ours if it begins with the marker and whoever wrote it may write here anyhow: a bot, or somebody whom the
repository trusts. So nobody else's comment is edited because it begins with our marker.

Two jobs may look at the same time, find nothing, and both post. Each looks again after it has posted; of several, the
oldest stays, the others are deleted, and the oldest gets what the newest run has to say. Both jobs choose the same one,
whoever comes first, so one comment is left in every order of events. A job that dies in between leaves two; the next
run removes one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.github.event import RunOrder
from roofwatch.ci.report.comment import COMMENT_MARKER

_ORDER = re.compile(r"<!-- roofwatch:run (\d{1,18})\.(\d{1,9}) -->")
_NAME = re.compile(r"[\w. ()/+-]{1,60}", re.ASCII)
DEFAULT_NAME = "roofwatch"


@dataclass(frozen=True)
class Comment:
    """A comment on a pull request."""

    comment_id: int
    body: str
    is_trusted: bool
    """A bot's, or of somebody who belongs to the repository."""
    person: str | None = None
    """Who wrote it, where that is no bot."""


@dataclass(frozen=True)
class Plan:
    """What makes one comment of those that are there."""

    edit: int | None
    """Comment to edit; None to leave what is there."""
    is_new: bool
    """Post one, as there is none."""
    delete: tuple[int, ...]


def is_name(text: str) -> bool:
    """Whether a report may be called that: it goes into a hidden mark and into the name of a check-run."""
    return _NAME.fullmatch(text) is not None and "--" not in text


def marker_of(name: str) -> str:
    """First line of the comment of a report, by which it is found again."""
    return COMMENT_MARKER if name == DEFAULT_NAME else f"<!-- roofwatch:report {name} -->"


def body_of(comment: str, name: str, order: RunOrder, *hidden: str) -> str:
    """A comment as `roofwatch.ci.report.comment` writes it, marked with its report and its run.

    Args:
        comment: Markdown, below its marker.
        name: Of the report.
        order: Of the run that measured.
        hidden: More lines that only we read.
    """
    assert comment.startswith(COMMENT_MARKER)
    header = "\n".join([marker_of(name), f"<!-- roofwatch:run {order} -->", *hidden])
    return f"{header}{comment.removeprefix(COMMENT_MARKER)}"


def answer_to(comment_id: int, text: str, order: RunOrder) -> str:
    """A comment that answers one, found again if the job that posts it is run twice."""
    return f"<!-- roofwatch:answer {comment_id} -->\n<!-- roofwatch:run {order} -->\n{text}\n"


def find_ours(comments: Sequence[Comment], name: str) -> Comment | None:
    """The comment of a report; the oldest, should there be several for a moment."""
    ours = [comment for comment in comments if comment.is_trusted and _first_line(comment.body) == marker_of(name)]
    return min(ours, key=lambda comment: comment.comment_id, default=None)


def without_marker(comment: str) -> str:
    """A comment as `roofwatch.ci.report.comment` writes it, for where nobody looks for it again."""
    return comment.removeprefix(COMMENT_MARKER).lstrip("\n")


def make_plan(comments: Sequence[Comment], body: str, *, is_silent: bool = False) -> Plan:
    """How to have one comment that says what the newest run has to say.

    Args:
        comments: All comments of the pull request.
        body: Of `body_of`: what this run has to say.
        is_silent: It is not worth a comment of its own, only a correction of an earlier one.
    """
    order = _order_of(body)
    ours = sorted(
        (comment for comment in comments if comment.is_trusted and _first_line(comment.body) == _first_line(body)),
        key=lambda comment: comment.comment_id,
    )
    if not ours:
        return Plan(edit=None, is_new=not is_silent, delete=())
    oldest, *younger = ours
    is_late = any(_order_of(comment.body) > order for comment in ours)
    is_said = oldest.body.split() == body.split()  # GitHub may end lines otherwise
    # a newer run that posted a second comment makes one of them itself
    return Plan(
        edit=None if is_late or is_said else oldest.comment_id,
        is_new=False,
        delete=tuple(comment.comment_id for comment in younger if _order_of(comment.body) <= order),
    )


def _first_line(body: str) -> str:
    return body.split("\n", 1)[0].rstrip()


def _order_of(body: str) -> RunOrder:
    lines = body.splitlines()
    found = _ORDER.fullmatch(lines[1].rstrip()) if len(lines) > 1 else None
    return RunOrder(int(found[1]), int(found[2])) if found else RunOrder(0, 0)
