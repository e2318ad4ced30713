"""What a job of GitHub Actions is about: the repository, the commit and the pull request, read from the variables and
the event that Actions hands to every job. Pure.

Nothing here comes from a file that a pull request could have written: in a job that `workflow_run` starts, the event
names the commit that was measured, and the pull request is found by that commit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofwatch.ci.errors import GitHubError

TOKEN_VARIABLE = "GITHUB_TOKEN"  # noqa: S105  the name of the variable, not a token

_PULL_REQUEST_EVENTS = frozenset({"pull_request", "pull_request_target"})
_REPOSITORY = re.compile(r"[\w-][\w.-]*/(?!\.+$)[\w.-]+", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_URL = re.compile(r"https?://[\w.:/%~@+=-]+", re.ASCII)


@dataclass(frozen=True, order=True)
class RunOrder:
    """Which of two runs of a workflow is the newer: what an older one has to say comes too late."""

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
class Surroundings:
    """What every job of GitHub Actions has around it."""

    api_url: str
    repository: str
    """`owner/name`."""
    order: RunOrder
    """Of the job's own run."""
    server_url: str
    """Where people look."""

    @property
    def run_url(self) -> str:
        return f"{self.server_url}/{self.repository}/actions/runs/{self.order.run_id}"


@dataclass(frozen=True)
class Job:
    """What the results of a job belong to."""

    api_url: str
    repository: str
    """`owner/name`."""
    head_sha: str
    order: RunOrder
    """Of the run that measured."""
    run_url: str | None
    """Of the run that measured: its summary and its files."""
    conclusion: str | None = None
    """How the run that measured ended; None if this job belongs to it."""
    pull_request: int | None = None
    head_branch: Branch | None = None
    """Where to find the pull request by its commit, if the event does not name it; with neither there is none."""


def surroundings_of(variables: Mapping[str, str]) -> Surroundings:
    """Read what is around a job, whatever started it.

    Raises:
        GitHubError: this is no job of GitHub Actions.
    """
    repository = _needed(variables, "GITHUB_REPOSITORY", _REPOSITORY)
    try:
        order = RunOrder(int(variables.get("GITHUB_RUN_ID", "0")), int(variables.get("GITHUB_RUN_ATTEMPT", "1")))
    except ValueError:
        raise GitHubError("GITHUB_RUN_ID is no number: run this in a job of GitHub Actions, which sets it") from None
    return Surroundings(
        variables.get("GITHUB_API_URL") or "https://api.github.com",
        repository,
        order,
        variables.get("GITHUB_SERVER_URL", "https://github.com"),
    )


def job_of(variables: Mapping[str, str], event: Mapping[str, Any]) -> Job:
    """Read a job's surroundings.

    Args:
        variables: Of the environment: `GITHUB_API_URL`, `GITHUB_REPOSITORY`, `GITHUB_EVENT_NAME`, `GITHUB_SHA`, …
        event: The document at `GITHUB_EVENT_PATH`.

    Raises:
        GitHubError: this is no job of GitHub Actions, or an event without what it should have.
    """
    around = surroundings_of(variables)
    api_url, repository, order = around.api_url, around.repository, around.order
    name = variables.get("GITHUB_EVENT_NAME", "")
    try:
        if name == "workflow_run":
            return _after_another_run(api_url, repository, event["workflow_run"])
        if name in _PULL_REQUEST_EVENTS:
            asked = event["pull_request"]
            number, head_sha = int(asked["number"]), _sha(asked["head"]["sha"])
            return Job(api_url, repository, head_sha, order, _link(around.run_url), pull_request=number)
        return Job(api_url, repository, _needed(variables, "GITHUB_SHA", _SHA), order, _link(around.run_url))
    except (KeyError, TypeError, ValueError) as error:
        raise GitHubError(
            f"the event {name!r} of GITHUB_EVENT_PATH does not say what it should ({type(error).__name__}: {error}); "
            "run this in a job of GitHub Actions, started by pull_request or workflow_run"
        ) from None


def _after_another_run(api_url: str, repository: str, run: Mapping[str, Any]) -> Job:
    head_sha = _sha(run["head_sha"])
    number, branch = None, None
    if run["event"] in _PULL_REQUEST_EVENTS:
        # empty where the pull request comes from a fork
        named = [asked for asked in run.get("pull_requests") or () if asked["head"]["sha"] == head_sha]
        if len(named) == 1:
            number = int(named[0]["number"])
        else:
            branch = Branch(str(run["head_repository"]["owner"]["login"]), str(run["head_branch"]))
    return Job(
        api_url,
        repository,
        head_sha,
        RunOrder(int(run["id"]), int(run.get("run_attempt", 1))),
        _link(str(run.get("html_url", ""))),
        conclusion=run.get("conclusion"),
        pull_request=number,
        head_branch=branch,
    )


def _needed(variables: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    value = variables.get(name, "")
    if not form.fullmatch(value):
        raise GitHubError(f"{name} is {value[:100]!r}: run this in a job of GitHub Actions, which sets it, or set it")
    return value


def _sha(value: Any) -> str:
    if not isinstance(value, str) or not _SHA.fullmatch(value):
        raise ValueError(f"no commit: {str(value)[:100]!r}")
    return value


def _link(url: str) -> str | None:
    """The URL if it can stand in Markdown as it is."""
    return url if _URL.fullmatch(url) else None
