"""What started a job of GitHub Actions: the run, the commit, the pull request or the comment. Pure.

Nothing here comes from a file that a pull request can write. In a job that `workflow_run` starts,
the event names the measured commit, and the pull request is found by that commit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.messages import ForgeError

TOKEN_VARIABLE = "GITHUB_TOKEN"  # noqa: S105  the name of the variable, not a token
REQUEST_VARIABLE = "ROOFWATCH_REQUEST"
_PULL_REQUEST_EVENTS = frozenset({"pull_request", "pull_request_target"})
# associations that GitHub gives to people with write access, or members
_TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
# becomes part of a path: no `..`
_REPOSITORY = re.compile(r"[\w-][\w.-]*/(?!\.+$)[\w.-]+", re.ASCII)
# SHA-1 or SHA-256
SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_QUEUE_REF = re.compile(
    r"(?:refs/heads/)?gh-readonly-queue/(?P<branch>.+)/pr-(?P<number>[1-9]\d{0,9})-[0-9a-f]{40,64}"
)
"""Branch that a merge queue makes to test a pull request."""
_URL = re.compile(r"https?://[\w.:/%~@+=-]+", re.ASCII)


@dataclass(frozen=True, order=True)
class RunOrder:
    """Orders runs of a workflow: an older run must not replace the report of a newer one."""

    run_id: int
    attempt: int
    """Of the same run, from 1 on."""

    def __str__(self) -> str:
        return f"{self.run_id}.{self.attempt}"


@dataclass(frozen=True)
class ActionsRun:
    api_url: str
    repository: str
    """`owner/name`."""
    order: RunOrder
    url: str | None
    """Its page; None if it cannot be a Markdown link."""


@dataclass(frozen=True)
class PullRequest:
    number: int
    base_branch: str | None = None


@dataclass(frozen=True)
class Job:
    """The run, commit and pull request that the results of a job belong to."""

    run: ActionsRun
    """The run that measured."""
    head_sha: str
    conclusion: str | None = None
    """How the run that measured ended; None if this job belongs to it."""
    pull_requests: tuple[PullRequest, ...] = ()
    """Those that the event names."""
    head_label: str | None = None
    """`owner:branch`, to find the pull requests if the event names none."""
    queued: PullRequest | None = None
    """The pull request that a merge queue tests, by the name of its branch."""

    @property
    def source_url(self) -> str | None:
        """Where the files of the commit are shown; None if the run has no page."""
        if self.run.url is None:
            return None
        project, on_gitlab, _ = self.run.url.partition("/-/")
        return f"{project.partition('/actions/')[0]}{on_gitlab or '/'}blob/{self.head_sha}"


@dataclass(frozen=True)
class Comment:
    comment_id: int
    number: int
    """Number of the pull request or issue."""
    body: str
    """As its author wrote it, untrusted."""
    login: str
    written_at: str
    """ISO 8601, UTC."""
    is_bot: bool = False
    is_trusted: bool = False
    """By a bot, or by a member of the repository."""
    updated_at: str = ""
    """Like `written_at`; empty if it is unknown."""


@dataclass(frozen=True)
class CommandRequest:
    """A job that a comment on a pull request started, or a label:
    its name is read like a comment.
    """

    run: ActionsRun
    """That carries out the command."""
    comment: Comment
    """Of a label, with the ID of the run in place of its own."""
    labelled_sha: str | None = None
    """Head commit when the label was added."""


class RequestedMeasurement(BaseModel):
    """What somebody with write access asked for: the command's job hands it to the job that
    measures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: Literal["run", "bisect"]
    number: int
    """Of the pull request."""
    head: str = Field(pattern=f"^{SHA.pattern}$")
    """The reviewed commit."""
    base: str
    """Target branch."""
    runner: str
    """Label of the runner; empty for the workflow's own."""
    series: str
    reply: str
    """Key of the reply with the result."""

    @property
    def is_queueable(self) -> bool:
        """Whether the queue of a service can measure it instead of a job of GitHub."""
        return self.verb == "run" and not self.runner


def job_of(variables: Mapping[str, str], event: Mapping[str, Any]) -> Job:
    """Determine the run, commit and pull request of a job by its variables and the document at
    `GITHUB_EVENT_PATH`.

    Raises:
        ForgeError: this is not a job of GitHub Actions, or the event is not valid.
    """
    run = _run_of(variables)
    name = variables.get("GITHUB_EVENT_NAME", "")
    requested = requested_measurement(variables)
    if requested is not None:
        pull_request = PullRequest(requested.number, requested.base)
        return Job(
            run,
            requested.head,
            pull_requests=(pull_request,),
        )
    try:
        if name == "workflow_run":
            return _after_another_run(run, event["workflow_run"])
        if name in _PULL_REQUEST_EVENTS:
            document = event["pull_request"]
            head_sha = _matched(SHA, document["head"]["sha"])
            return Job(
                run,
                head_sha,
                pull_requests=(to_pull_request(document),),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise _invalid_event(error) from None
    queue_ref = ""
    if name == "merge_group":
        queue_ref = _queue_ref_of(event)
    try:
        return Job(
            run,
            _matched(SHA, variables.get("GITHUB_SHA")),
            queued=queued_pull_request(queue_ref),
        )
    except ValueError as error:
        raise ForgeError(f"GITHUB_SHA: {error}; run this in a job of GitHub Actions") from None


def queued_pull_request(ref: str) -> PullRequest | None:
    """Return the pull request that a branch of a merge queue is for; None for another branch."""
    match = _QUEUE_REF.fullmatch(ref)
    if match is None:
        return None
    return PullRequest(number=int(match["number"]), base_branch=match["branch"])


def _queue_ref_of(event: Mapping[str, Any]) -> str:
    group = event.get("merge_group")
    if not isinstance(group, Mapping):
        return ""
    return str(group.get("head_ref", ""))


def requested_measurement(variables: Mapping[str, str]) -> RequestedMeasurement | None:
    """Return what the workflow's job for commands asked this job to measure; None if it is another
    job.

    Raises:
        ForgeError: it cannot be read.
    """
    text = variables.get(REQUEST_VARIABLE)
    try:
        if not text:
            return None
        return RequestedMeasurement.model_validate_json(text)
    except ValidationError as error:
        raise ForgeError(f"{REQUEST_VARIABLE} is not valid: {error.errors()[0]['msg']}") from None


def command_request(
    variables: Mapping[str, str],
    event: Mapping[str, Any],
) -> CommandRequest | None:
    """Return the comment or the label that started a job; None if it is not a new one on a pull
    request.

    Raises:
        ForgeError: this is not a job of GitHub Actions that a comment or a label started.
    """
    run = _run_of(variables)
    name = variables.get("GITHUB_EVENT_NAME")
    try:
        if name == "issue_comment":
            # a comment on an issue is about no pull request
            if event["action"] != "created" or "pull_request" not in event["issue"]:
                return None
            number = int(event["issue"]["number"])
            return CommandRequest(run, to_comment(event["comment"], number))
        if name == "pull_request_target" and event["action"] == "labeled":
            # a label says what its name says, as if its sender had written it
            document = event["pull_request"]
            label = {
                "id": run.order.run_id,
                "body": f"/{event['label']['name']}",
                "user": event["sender"],
                "created_at": document["updated_at"],
            }
            comment = to_comment(label, int(document["number"]))
            return CommandRequest(
                run=run,
                comment=comment,
                labelled_sha=_matched(SHA, document["head"]["sha"]),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise _invalid_event(error) from None
    raise ForgeError(
        "commands come from comments and labels: run this after issue_comment or "
        "pull_request_target"
    )


def to_comment(document: Any, number: int) -> Comment:
    """Read a comment of an event or of GitHub's REST API."""
    return Comment(
        comment_id=int(document["id"]),
        number=number,
        body=str(document["body"] or ""),
        login=str((document["user"] or {}).get("login") or ""),
        written_at=str(document["created_at"]),
        is_bot=_is_bot(document),
        is_trusted=is_trusted(document),
    )


def to_pull_request(document: Any) -> PullRequest:
    return PullRequest(int(document["number"]), (document.get("base") or {}).get("ref"))


def is_trusted(document: Any) -> bool:
    """Return whether a comment or an issue is by a bot or by a member of the repository."""
    return _is_bot(document) or document.get("author_association") in _TRUSTED


def _is_bot(document: Any) -> bool:
    return bool((document["user"] or {}).get("type") == "Bot")


def _run_of(variables: Mapping[str, str]) -> ActionsRun:
    try:
        repository = _matched(_REPOSITORY, variables.get("GITHUB_REPOSITORY"))
        order = RunOrder(
            int(variables.get("GITHUB_RUN_ID", "0")),
            int(variables.get("GITHUB_RUN_ATTEMPT", "1")),
        )
    except ValueError as error:
        raise ForgeError(
            f"GITHUB_REPOSITORY or GITHUB_RUN_ID: {error}; run this in a job of GitHub Actions"
        ) from None
    server = variables.get("GITHUB_SERVER_URL", "https://github.com")
    api_url = variables.get("GITHUB_API_URL") or "https://api.github.com"
    return ActionsRun(
        api_url=api_url,
        repository=repository,
        order=order,
        url=safe_link(f"{server}/{repository}/actions/runs/{order.run_id}"),
    )


def _after_another_run(run: ActionsRun, measuring_run: Mapping[str, Any]) -> Job:
    """The job of a workflow that follows the one that measured."""
    head_sha = _matched(SHA, measuring_run["head_sha"])
    named = []
    label = None
    queued = None
    if measuring_run["event"] == "merge_group":
        queued = queued_pull_request(str(measuring_run.get("head_branch", "")))
    if measuring_run["event"] in _PULL_REQUEST_EVENTS:
        # the list is empty for a fork
        documents = measuring_run.get("pull_requests") or ()
        # a branch may have moved on since it was measured
        named = [document for document in documents if document["head"]["sha"] == head_sha]
        owner = measuring_run["head_repository"]["owner"]["login"]
        label = f"{owner}:{measuring_run['head_branch']}"
    order = RunOrder(int(measuring_run["id"]), int(measuring_run.get("run_attempt", 1)))
    measured = replace(
        run,
        order=order,
        url=safe_link(str(measuring_run.get("html_url", ""))),
    )
    return Job(
        run=measured,
        head_sha=head_sha,
        conclusion=measuring_run.get("conclusion"),
        pull_requests=tuple(map(to_pull_request, named)),
        head_label=label,
        queued=queued,
    )


def _invalid_event(error: Exception) -> ForgeError:
    return ForgeError(
        f"the event of GITHUB_EVENT_PATH is not valid: {type(error).__name__}: {error}"
    )


def _matched(form: re.Pattern[str], value: Any) -> str:
    """Return a text of the event that has the expected form, or raise `ValueError`."""
    if not isinstance(value, str) or not form.fullmatch(value):
        start = str(value)[:100]
        raise ValueError(f"{start!r} is not valid")
    return value


def safe_link(url: str) -> str | None:
    """Return an address, or None if it cannot be a Markdown link."""
    if not _URL.fullmatch(url):
        return None
    return url
