"""What started a job of GitHub Actions: the run, the commit, the pull request, and the command in a comment. Pure.

Nothing here comes from a file that a pull request could have written: in a job that `workflow_run` starts, the event
names the commit that was measured, and the pull request is found by that commit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from roofwatch.ci.errors import GitHubError

TOKEN_VARIABLE = "GITHUB_TOKEN"  # noqa: S105  the name of the variable, not a token
DEFAULT_NAME = "roofwatch"
COMMAND_PREFIX = "/roofwatch"
USAGE = "`/roofwatch accept <reason>`, `/roofwatch rerun` or `/roofwatch bisect [<case> <implementation>]`"
MAX_REASON = 200
"""Characters; more is cut, so that the comment that shows the reason can always be posted."""
MAX_SERIES = 300

_PULL_REQUEST_EVENTS = frozenset({"pull_request", "pull_request_target"})
_REPOSITORY = re.compile(r"[\w-][\w.-]*/(?!\.+$)[\w.-]+", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_URL = re.compile(r"https?://[\w.:/%~@+=-]+", re.ASCII)
_NAME = re.compile(r"[\w. ()/+-]{1,60}", re.ASCII)


@dataclass(frozen=True, order=True)
class RunOrder:
    """Which of two runs of a workflow is newer: what the older one has to say is out of date."""

    run_id: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.run_id}.{self.attempt}"


@dataclass(frozen=True)
class Branch:
    """A branch in one of the repositories that a pull request may come from."""

    owner: str
    name: str


@dataclass(frozen=True)
class ActionsRun:
    """A run of GitHub Actions."""

    api_url: str
    repository: str
    """`owner/name`."""
    order: RunOrder
    url: str | None
    """Its page; None if it cannot stand in Markdown as it is."""


@dataclass(frozen=True)
class Job:
    """What the results of a job belong to."""

    run: ActionsRun
    """The run that measured."""
    head_sha: str
    conclusion: str | None = None
    """How the run that measured ended; None if this job belongs to it."""
    pull_request: int | None = None
    head_branch: Branch | None = None
    """Where to find the pull request by its commit, if the event does not name it; with neither there is none."""


@dataclass(frozen=True)
class WrittenComment:
    """A comment with its author."""

    comment_id: int
    number: int
    """Of its pull request."""
    login: str
    written_at: str
    """ISO 8601, in UTC, as GitHub writes times."""
    body: str


@dataclass(frozen=True)
class CommandRequest:
    """A job that a comment on a pull request started."""

    run: ActionsRun
    """Its own."""
    comment: WrittenComment
    default_branch: str


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
    """A comment begins like a command, and is none. The text quotes nobody."""


def is_name(text: str) -> bool:
    """Whether a report may be called that: it goes into a hidden marker and into the name of a check-run."""
    return _NAME.fullmatch(text) is not None and "--" not in text


def job_of(variables: Mapping[str, str], event: Mapping[str, Any]) -> Job:
    """What a job is about.

    Args:
        variables: Of the environment: `GITHUB_API_URL`, `GITHUB_REPOSITORY`, `GITHUB_EVENT_NAME`, `GITHUB_SHA`, …
        event: The document at `GITHUB_EVENT_PATH`.

    Raises:
        GitHubError: this is no job of GitHub Actions, or an event without what it should have.
    """
    run, name = _run_of(variables), variables.get("GITHUB_EVENT_NAME", "")
    try:
        if name == "workflow_run":
            return _after_another_run(run, event["workflow_run"])
        if name in _PULL_REQUEST_EVENTS:
            found = event["pull_request"]
            return Job(run, _sha(found["head"]["sha"]), pull_request=int(found["number"]))
    except (KeyError, TypeError, ValueError) as error:
        raise GitHubError(
            f"the event {name!r} of GITHUB_EVENT_PATH does not say what it should ({type(error).__name__}: {error}); "
            "run this in a job of GitHub Actions, started by pull_request or workflow_run"
        ) from None
    return Job(run, _required(variables, "GITHUB_SHA", _SHA))


def command_request(variables: Mapping[str, str], event: Mapping[str, Any]) -> CommandRequest | None:
    """The comment that started a job; None if it is not a new one on a pull request. Arguments are those of `job_of`.

    Raises:
        GitHubError: this is no job of GitHub Actions that a comment started.
    """
    run = _run_of(variables)
    if variables.get("GITHUB_EVENT_NAME") != "issue_comment":
        raise GitHubError("commands come from comments: run this in a job that issue_comment starts")
    try:
        if event["action"] != "created" or "pull_request" not in event["issue"]:
            return None
        found = event["comment"]
        comment = WrittenComment(
            comment_id=int(found["id"]),
            number=int(event["issue"]["number"]),
            login=str(found["user"]["login"]),
            written_at=str(found["created_at"]),
            body=str(found["body"] or ""),
        )
        return CommandRequest(run, comment, str(event["repository"]["default_branch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise GitHubError(
            f"the event of GITHUB_EVENT_PATH does not say what it should ({type(error).__name__}: {error})"
        ) from None


def parse_command(body: str) -> Command | None:
    """The command in the first line of a comment; None where it has none.

    Raises:
        CommandError: it begins like a command, and is none.
    """
    words = (body.strip().splitlines() or [""])[0].split()
    if not words or words[0] != COMMAND_PREFIX:
        return None
    verb = words[1] if len(words) > 1 else ""
    if verb not in list(Verb):
        raise CommandError(f"that is no command; there are {USAGE}")
    rest = " ".join(words[2:])
    if verb == Verb.ACCEPT and not rest:
        raise CommandError(f"say why it is accepted: `{COMMAND_PREFIX} accept <reason>`")
    if verb == Verb.RERUN and rest:
        raise CommandError(f"`{COMMAND_PREFIX} rerun` takes nothing behind it")
    if verb == Verb.BISECT and (len(rest) > MAX_SERIES or not rest.isprintable() or rest.startswith("-")):
        raise CommandError(
            "name a case and an implementation, as the table has them: `/roofwatch bisect <case> <implementation>`"
        )
    return Command(Verb(verb), rest[:MAX_REASON] if verb == Verb.ACCEPT else rest)


def _run_of(variables: Mapping[str, str]) -> ActionsRun:
    repository = _required(variables, "GITHUB_REPOSITORY", _REPOSITORY)
    try:
        order = RunOrder(int(variables.get("GITHUB_RUN_ID", "0")), int(variables.get("GITHUB_RUN_ATTEMPT", "1")))
    except ValueError:
        raise GitHubError("GITHUB_RUN_ID is no number: run this in a job of GitHub Actions, which sets it") from None
    server = variables.get("GITHUB_SERVER_URL", "https://github.com")
    api_url = variables.get("GITHUB_API_URL") or "https://api.github.com"
    return ActionsRun(api_url, repository, order, _link(f"{server}/{repository}/actions/runs/{order.run_id}"))


def _after_another_run(run: ActionsRun, other: Mapping[str, Any]) -> Job:
    head_sha = _sha(other["head_sha"])
    number, branch = None, None
    if other["event"] in _PULL_REQUEST_EVENTS:
        # empty where the pull request comes from a fork
        named = [found for found in other.get("pull_requests") or () if found["head"]["sha"] == head_sha]
        if len(named) == 1:
            number = int(named[0]["number"])
        else:
            branch = Branch(str(other["head_repository"]["owner"]["login"]), str(other["head_branch"]))
    order = RunOrder(int(other["id"]), int(other.get("run_attempt", 1)))
    measured = replace(run, order=order, url=_link(str(other.get("html_url", ""))))
    return Job(measured, head_sha, other.get("conclusion"), number, branch)


def _required(variables: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    value = variables.get(name, "")
    if not form.fullmatch(value):
        raise GitHubError(f"{name} is {value[:100]!r}: run this in a job of GitHub Actions, which sets it, or set it")
    return value


def _sha(value: Any) -> str:
    if not isinstance(value, str) or not _SHA.fullmatch(value):
        raise ValueError(f"no commit: {str(value)[:100]!r}")
    return value


def _link(url: str) -> str | None:
    return url if _URL.fullmatch(url) else None
