"""An alert as an issue on GitHub: opened when it fires, commented on, closed when it is over. Pure.

An episode has one issue, found again by a hidden marker in its first line; each comment has a marker too, of its
message. So before anything is written, GitHub is asked whether it is there, and what was written by somebody who died
before they could say so is found. An issue or comment is ours if its author belongs to the repository or is a bot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from roofwatch.ci.alerts.text import Notice, to_markdown, to_title
from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.posting import UncertainError
from roofwatch.ci.github.sticky_comment import Comment
from roofwatch.db.alerts.values import AlertEvent

_ROUNDS = 4


@dataclass(frozen=True)
class Issue:
    number: int
    body: str
    is_open: bool
    is_trusted: bool


class Issues(Protocol):
    """A repository as far as alerts are told to it. Each may raise `GitHubError`."""

    def list_issues(self, labels: Sequence[str]) -> list[Issue]:
        """Open and closed, the newest first."""

    def create_issue(self, title: str, body: str, labels: Sequence[str]) -> int:
        """Its number. Raises `UncertainError` too."""

    def close_issue(self, number: int) -> None: ...

    def comments(self, number: int) -> list[Comment]: ...

    def create_comment(self, number: int, body: str) -> int:
        """Its id. Raises `UncertainError` too."""


LABEL = "roofwatch"
"""Of every issue, so that ours are found among thousands."""


def tell(issues: Issues, notice: Notice, key: str, labels: Sequence[str] = ()) -> None:
    """Say what a message says, unless it is said already.

    Args:
        issues: Where.
        notice: What.
        key: Of the message, the same in every attempt.
        labels: For a new issue, besides our own.

    Raises:
        GitHubError: GitHub refuses, or answers too badly.
    """
    marker = f"<!-- roofwatch:alert {notice.alert_id} {notice.episode} -->"
    issue = _find(issues, marker)
    if issue is None:
        if notice.event is AlertEvent.RESOLVED:
            return  # it was never opened here, or is gone: nothing is open
        body = f"{marker}\n{to_markdown(notice)}"
        _until_there(
            lambda: issues.create_issue(to_title(notice), body, (LABEL, *labels)), lambda: _find(issues, marker)
        )
        return
    if notice.event is AlertEvent.FIRED:
        return
    _comment(issues, issue.number, f"<!-- roofwatch:message {key} -->", to_markdown(notice))
    if notice.event is AlertEvent.RESOLVED and issue.is_open:
        issues.close_issue(issue.number)


def _comment(issues: Issues, number: int, marker: str, text: str) -> None:
    def find() -> Comment | None:
        return next((one for one in issues.comments(number) if one.is_trusted and _begins(one.body, marker)), None)

    if find() is None:
        _until_there(lambda: issues.create_comment(number, f"{marker}\n{text}"), find)


def _find(issues: Issues, marker: str) -> Issue | None:
    """The oldest of an episode: of two that were opened at once, all see the same one."""
    ours = [one for one in issues.list_issues((LABEL,)) if one.is_trusted and _begins(one.body, marker)]
    return min(ours, key=lambda issue: issue.number, default=None)


def _until_there(create: Callable[[], object], find: Callable[[], object | None]) -> None:
    """Create it; where it is not known whether that was carried out, look, and only then once more."""
    for _ in range(_ROUNDS):
        try:
            create()
        except UncertainError:
            if find() is not None:
                return
        else:
            return
    raise GitHubError(f"GitHub could not say in {_ROUNDS} attempts whether it took an alert")


def _begins(body: str, marker: str) -> bool:
    return body.split("\n", 1)[0].rstrip() == marker
