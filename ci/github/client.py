"""The client of GitHub: one repository as comments, check-runs, issues and commands need it, through githubkit."""

from __future__ import annotations

import base64
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
from githubkit import GitHub
from githubkit.exception import GitHubException, RateLimitExceeded, RequestError, RequestFailed
from githubkit.response import Response
from githubkit.retry import RetryOption

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.check_run import CheckRun
from roofwatch.ci.github.event import TOKEN_VARIABLE, Branch, WrittenComment

MAX_ATTEMPTS = 5
MAX_WAIT_S = 900.0
"""A job that waits longer costs more than the comment is worth; the next run posts it."""
_VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
"""Of the REST API: known to every GitHub Enterprise Server that is still supported."""
_PAGE_LENGTH = 100
_TIMEOUT_S = 30.0
_SECONDARY_LIMIT_S = 60.0
_MAX_MESSAGE = 500
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_WRITERS = frozenset({"admin", "write"})
"""GitHub reports `maintain` as `write` and `triage` as `read`."""
_GONE = frozenset({404, 410})
_ADVICE = {
    401: "the token is not valid, or has expired",
    403: "the token may not do this: give the job `permissions:` with `pull-requests: write` and `checks: write`, and "
    "for commands `actions: write`; the token of a pull request from a fork can only read, so post from a workflow_run "
    "job",
    404: "there is no such thing, or the token may not see it",
    422: "GitHub takes the request for wrong",
}


_Request = Callable[..., Response[Any]]


class UncertainError(Exception):
    """Whether a request was carried out is not known; enough time has passed to look."""


@dataclass(frozen=True)
class Comment:
    """A comment on a pull request or an issue."""

    comment_id: int
    body: str
    is_trusted: bool
    """A bot's, or of somebody who belongs to the repository."""
    person: str | None = None
    """Who wrote it, unless a bot did."""


@dataclass(frozen=True)
class Issue:
    number: int
    body: str
    is_open: bool
    is_trusted: bool


@dataclass(frozen=True)
class FoundCheckRun:
    """A check-run as it stands on GitHub."""

    check_run_id: int
    is_completed: bool
    external_id: str
    conclusion: str | None
    title: str
    summary: str
    url: str | None


@dataclass(frozen=True)
class PullRequestEnds:
    """The commits at the two ends of a pull request."""

    base_sha: str
    head_sha: str


class GitHubRepository:
    """One repository on GitHub.com or GitHub Enterprise, seen with one token.

    Requests are repeated after rate limits, server errors and broken connections; a POST only where nothing can have
    been carried out, else `UncertainError` is raised. Every method raises `GitHubError` if GitHub refuses.

    Args:
        api_url: Of the REST API, as in `GITHUB_API_URL`; https, or http to this machine.
        repository: `owner/name`.
        token: Appears in no message.

    Raises:
        GitHubError: the URL would show the token to others.
    """

    def __init__(self, api_url: str, repository: str, token: str) -> None:
        parts = urllib.parse.urlsplit(api_url)
        is_local = parts.hostname in _LOOPBACK
        if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
            raise GitHubError(
                f"{api_url[:200]}: plain http would show the token to others: GITHUB_API_URL must be https"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise GitHubError(f"{TOKEN_VARIABLE} holds what no token does: a space, a line break, or other than ASCII")
        self._named = tuple(repository.split("/"))
        self._token = token
        self._waited_s = 0.0
        self._github = GitHub(
            token,
            base_url=api_url,
            user_agent="roofwatch",
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            trust_env=not is_local,  # no proxy sees a token that is sent over plain http
            http_cache=False,
            auto_retry=self._retry,
        )
        self._rest = self._github.rest  # a weak reference

    # --- comments and issues; to GitHub a pull request is an issue

    def comments(self, number: int) -> list[Comment]:
        found = self._list(self._rest.issues.list_comments, number)
        return [Comment(int(one["id"]), str(one.get("body") or ""), _is_trusted(one), _person(one)) for one in found]

    def create_comment(self, number: int, body: str) -> int:
        """Comment on a pull request or an issue; the comment's id. Raises `UncertainError` too."""
        return int(self._document(self._rest.issues.create_comment, number, body=body)["id"])

    def edit_comment(self, comment_id: int, body: str) -> bool:
        """Replace a comment's text; False if it is gone."""
        return self._call(self._rest.issues.update_comment, comment_id, body=body, allowed=_GONE) is not None

    def delete_comment(self, comment_id: int) -> None:
        """Delete a comment, if it is still there."""
        self._call(self._rest.issues.delete_comment, comment_id, allowed=_GONE)

    def written_comment(self, comment_id: int) -> WrittenComment | None:
        """A comment with its author; None if it is gone."""
        answer = self._call(self._rest.issues.get_comment, comment_id, allowed=_GONE)
        if answer is None:
            return None
        found = _document_of(answer)
        return WrittenComment(
            comment_id=int(found["id"]),
            number=int(str(found["issue_url"]).rsplit("/", 1)[-1]),
            login=str((found.get("user") or {}).get("login") or ""),
            written_at=str(found["created_at"]),
            body=str(found.get("body") or ""),
        )

    def react(self, comment_id: int, reaction: str) -> None:
        """Put a reaction below a comment; the same one again changes nothing."""
        data = {"content": reaction}
        self._call(self._rest.reactions.create_for_issue_comment, comment_id, data=data, allowed=_GONE)

    def list_issues(self, labels: Sequence[str]) -> list[Issue]:
        """Open and closed issues that have all of these labels, the newest first."""
        return [
            Issue(int(one["number"]), str(one.get("body") or ""), one["state"] == "open", _is_trusted(one))
            for one in self._list(self._rest.issues.list_for_repo, state="all", labels=",".join(labels))
            if "pull_request" not in one
        ]

    def create_issue(self, title: str, body: str, labels: Sequence[str]) -> int:
        """Open an issue; its number. Raises `UncertainError` too."""
        return int(self._document(self._rest.issues.create, title=title, body=body, labels=list(labels))["number"])

    def close_issue(self, number: int) -> None:
        """Close an issue, if it is still there."""
        change = {"state": "closed", "state_reason": "completed"}
        self._call(self._rest.issues.update, number, **change, allowed=_GONE)

    # --- pull requests and check-runs

    def pull_requests_of(self, branch: Branch, head_sha: str) -> list[int]:
        """Numbers of the open pull requests whose head is that commit of that branch."""
        found = self._list(self._rest.pulls.list, state="open", head=f"{branch.owner}:{branch.name}")
        return [int(one["number"]) for one in found if one["head"]["sha"] == head_sha]

    def ends_of(self, number: int) -> PullRequestEnds:
        """The current base and head of a pull request."""
        found = self._document(self._rest.pulls.get, number)
        return PullRequestEnds(base_sha=str(found["base"]["sha"]), head_sha=str(found["head"]["sha"]))

    def check_runs(self, head_sha: str, name: str) -> list[FoundCheckRun]:
        """The check-runs of that name on a commit."""
        chosen = {"check_name": name, "filter_": "all"}
        found = self._list(self._rest.checks.list_for_ref, head_sha, **chosen, key="check_runs")
        return [_found_check_run(one) for one in found]

    def create_check_run(self, head_sha: str, name: str, external_id: str, check: CheckRun, url: str | None) -> int:
        """Put a check-run on a commit; its id. Raises `UncertainError` too."""
        data = {"name": name, "head_sha": head_sha, "external_id": external_id, **check.to_json(url)}
        return int(self._document(self._rest.checks.create, data=data)["id"])

    def update_check_run(self, check_run_id: int, check: CheckRun, url: str | None) -> None:
        """Replace the contents of a check-run; annotations are added to those that it has."""
        self._call(self._rest.checks.update, check_run_id, data=check.to_json(url))

    # --- permissions, workflows and files

    def may_write(self, login: str) -> bool:
        """Whether somebody may write to the repository."""
        answer = self._call(self._rest.repos.get_collaborator_permission_level, login, allowed=_GONE)
        return answer is not None and _document_of(answer).get("permission") in _WRITERS

    def run_again(self, run_id: int) -> None:
        """Start all jobs of a workflow run once more. Raises `UncertainError` too."""
        self._call(self._rest.actions.re_run_workflow, run_id)

    def start_workflow(self, file_name: str, branch: str, inputs: Mapping[str, str]) -> None:
        """Dispatch a workflow of a branch. Raises `UncertainError` too."""
        data = {"ref": branch, "inputs": dict(inputs)}
        self._call(self._rest.actions.create_workflow_dispatch, file_name, data=data)

    def read_file(self, path: str) -> str | None:
        """The text of a file on the default branch; None if there is none."""
        answer = self._call(self._rest.repos.get_content, path, allowed=_GONE)
        if answer is None:
            return None
        document = _document_of(answer)
        if document.get("encoding") != "base64":
            raise GitHubError(f"GitHub: {path} is no file that it would show")
        return base64.b64decode(str(document.get("content") or "")).decode(errors="replace")

    # --- requests

    def _document(self, request: _Request, *arguments: Any, **fields: Any) -> dict[str, Any]:
        answer = self._call(request, *arguments, **fields)
        assert answer is not None, "no refusal was allowed"
        return _document_of(answer)

    def _list(self, request: _Request, *arguments: Any, key: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """All items of a paginated list, which the answer holds itself or under a key."""
        found: list[dict[str, Any]] = []
        page: int | None = 1
        while page is not None:
            answer = self._call(request, *arguments, **fields, per_page=_PAGE_LENGTH, page=page)
            assert answer is not None, "no refusal was allowed"
            found += _items_of(answer, key)
            page = page + 1 if "next" in answer.raw_response.links else None
        return found

    def _call(
        self, request: _Request, *arguments: Any, allowed: frozenset[int] = frozenset(), **fields: Any
    ) -> Response[Any] | None:
        """GitHub's answer; None for a refusal with an allowed status."""
        try:
            answer = request(*self._named, *arguments, **fields, headers=_VERSION)
        except RequestError as error:
            if isinstance(error, RequestFailed) and error.response.status_code in allowed:
                return None
            if _is_uncertain(error) and not _is_repeatable(error):
                time.sleep(1.0)
                raise UncertainError from None
            raise GitHubError(f"GitHub: {self._explained(error)}") from None
        if answer.is_redirect:
            raise GitHubError(f"GitHub: {answer.url.path} was moved: does GITHUB_REPOSITORY have its old name?")
        return answer

    def _retry(self, error: GitHubException, retry_count: int) -> RetryOption:
        """Whether githubkit makes a request again, and when.

        Source: GitHub's "Best practices for using the REST API". A server error or a broken connection is tried again
        after 1, 2, 4 and 8 s.
        """
        wait_s = _limit_wait_s(error)
        if wait_s is None and _is_uncertain(error) and _is_repeatable(error):
            wait_s = 2.0**retry_count
        if wait_s is None or retry_count + 1 >= MAX_ATTEMPTS or self._waited_s + wait_s > MAX_WAIT_S:
            return RetryOption(False)
        self._waited_s += wait_s
        return RetryOption(True, timedelta(seconds=wait_s))

    def _explained(self, error: RequestError[Any]) -> str:
        if not isinstance(error, RequestFailed):
            return f"no answer: {self._quoted(f'{type(error.exc).__name__}: {error.exc}')}"
        status, asked = error.response.status_code, f"{error.request.method} {error.request.url.path}"
        text = f"{asked}: HTTP {status}: {self._quoted(error.response.text)}"
        wait_s = _limit_wait_s(error)
        if wait_s is not None:
            return f"{text}; it asks to wait {wait_s:.0f} s, and this job waits {MAX_WAIT_S:.0f} s in all: run it later"
        return f"{text}; {_ADVICE[status]}" if status in _ADVICE else text

    def _quoted(self, text: str) -> str:
        """Foreign text on one line, short, and without the token if somebody repeats it."""
        shown = "".join(c if c.isprintable() else " " for c in text.replace(self._token, "***"))
        return " ".join(shown.split())[:_MAX_MESSAGE]


def _limit_wait_s(error: GitHubException) -> float | None:
    """Seconds that a rate limit asks to wait; None if the error is no rate limit."""
    if isinstance(error, RateLimitExceeded):
        return error.retry_after.total_seconds() + 1.0  # clocks differ
    if isinstance(error, RequestFailed):
        status, text = error.response.status_code, error.response.text
        if status == 429 or (status == 403 and "rate limit" in text.lower()):
            return _SECONDARY_LIMIT_S
    return None


def _is_uncertain(error: GitHubException) -> bool:
    """Whether the request may have been carried out although it failed."""
    return not isinstance(error, RequestFailed) or error.response.status_code in {500, 502, 503, 504}


def _is_repeatable(error: GitHubException) -> bool:
    """Whether carrying the request out twice does no harm."""
    request = error.exc.request if isinstance(error, RequestError) and isinstance(error.exc, httpx.HTTPError) else None
    return request is None or request.method != "POST" or request.url.path.endswith("/reactions")


def _document_of(answer: Response[Any]) -> dict[str, Any]:
    document = _json_of(answer)
    if not isinstance(document, dict):
        raise _not_github(answer)
    return document


def _items_of(answer: Response[Any], key: str | None) -> list[dict[str, Any]]:
    items = _json_of(answer) if key is None else _document_of(answer).get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _not_github(answer)
    return items


def _json_of(answer: Response[Any]) -> Any:
    """None if it is no JSON."""
    try:
        return answer.json()
    except ValueError:
        return None


def _not_github(answer: Response[Any]) -> GitHubError:
    return GitHubError(f"{answer.url.host} did not answer as GitHub does: is GITHUB_API_URL that of its interface?")


def _is_trusted(found: Any) -> bool:
    """Whether the author of a comment or an issue belongs to the repository, or is a bot."""
    return _person(found) is None or found.get("author_association") in _TRUSTED


def _person(found: Any) -> str | None:
    user = found.get("user") or {}
    return None if user.get("type") == "Bot" else str(user.get("login") or "")


def _found_check_run(found: Any) -> FoundCheckRun:
    output = found.get("output") or {}
    return FoundCheckRun(
        int(found["id"]),
        found["status"] == "completed",
        external_id=str(found.get("external_id") or ""),
        conclusion=found.get("conclusion"),
        title=str(output.get("title") or ""),
        summary=str(output.get("summary") or ""),
        url=found.get("details_url"),
    )
