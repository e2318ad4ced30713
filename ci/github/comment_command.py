"""What somebody asks for in a comment on a pull request: `/roofwatch accept <reason>`, `rerun` or `bisect`. Pure.

The text is a stranger's until GitHub has said what its author may do. Nothing of it is taken for more than it is: one
of three words, and behind it a reason or the name of a series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.event import Surroundings, surroundings_of

PREFIX = "/roofwatch"
USAGE = f"`{PREFIX} accept <reason>`, `{PREFIX} rerun` or `{PREFIX} bisect [<case> <implementation>]`"
MAX_REASON = 200
"""Characters; what is longer is cut, so that the comment that shows it can always be posted."""
MAX_SERIES = 300


class Verb(StrEnum):
    ACCEPT = "accept"
    RERUN = "rerun"
    BISECT = "bisect"


@dataclass(frozen=True)
class Command:
    verb: Verb
    rest: str
    """The reason, or the series; empty where none was given."""


class CommandError(Exception):
    """It begins like a command, and is none. The text is ours alone."""


@dataclass(frozen=True)
class WrittenComment:
    """A comment and who wrote it."""

    comment_id: int
    number: int
    """Of its pull request."""
    login: str
    written_at: str
    """As GitHub writes times: ISO 8601, in UTC."""
    body: str


@dataclass(frozen=True)
class Asked:
    """A job of GitHub Actions that a comment on a pull request started."""

    surroundings: Surroundings
    comment: WrittenComment
    default_branch: str


def parse_command(body: str) -> Command | None:
    """What a comment asks for, in its first line; None where it asks for nothing.

    Raises:
        CommandError: it begins like a command, and is none.
    """
    words = (body.strip().splitlines() or [""])[0].split()
    if not words or words[0] != PREFIX:
        return None
    verb = words[1] if len(words) > 1 else ""
    if verb not in list(Verb):
        raise CommandError(f"that is no command; there are {USAGE}")
    rest = " ".join(words[2:])
    if verb == Verb.ACCEPT and not rest:
        raise CommandError(f"say why it is accepted: `{PREFIX} accept <reason>`")
    if verb == Verb.RERUN and rest:
        raise CommandError(f"`{PREFIX} rerun` takes nothing behind it")
    if verb == Verb.BISECT and (len(rest) > MAX_SERIES or not rest.isprintable() or rest.startswith("-")):
        raise CommandError(
            f"name a case and an implementation, as the table has them: `{PREFIX} bisect <case> <implementation>`"
        )
    return Command(Verb(verb), rest[:MAX_REASON] if verb == Verb.ACCEPT else rest)


def asked_in(variables: Mapping[str, str], event: Mapping[str, Any]) -> Asked | None:
    """The comment that started a job; None if it is not a new one on a pull request.

    Args:
        variables: Of the environment, as for `roofwatch.ci.github.event.job_of`.
        event: The document at `GITHUB_EVENT_PATH`.

    Raises:
        GitHubError: this is no job of GitHub Actions that a comment started.
    """
    surroundings = surroundings_of(variables)
    if variables.get("GITHUB_EVENT_NAME") != "issue_comment":
        raise GitHubError("commands come from comments: run this in a job that issue_comment starts")
    try:
        if event["action"] != "created" or "pull_request" not in event["issue"]:
            return None
        said = event["comment"]
        comment = WrittenComment(
            comment_id=int(said["id"]),
            number=int(event["issue"]["number"]),
            login=str(said["user"]["login"]),
            written_at=str(said["created_at"]),
            body=str(said["body"] or ""),
        )
        return Asked(surroundings, comment, str(event["repository"]["default_branch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise GitHubError(
            f"the event of GITHUB_EVENT_PATH does not say what it should ({type(error).__name__}: {error})"
        ) from None
