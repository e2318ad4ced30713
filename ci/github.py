"""GitHub as results are told to it, through githubkit: the edge of `ci` to the network.

Every request is made as `ci.github_retry` says. One that could have been carried out although it broke is repeated here
only if carrying it out twice does no harm; else the caller looks first. The token is in no message.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from githubkit import GitHub
from githubkit.exception import RequestError, RequestFailed
from githubkit.response import Response

from ci.check_run import CheckRun
from ci.errors import GitHubError
from ci.github_event import TOKEN_VARIABLE, Branch
from ci.github_retry import MAX_WAIT_S, Failure
from ci.posting import FoundCheckRun, UncertainError
from ci.sticky_comment import Comment

_Answer = Response[Any, Any]

_VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
"""Of the interface: known to every GitHub Enterprise Server that is still supported."""
_PAGE = 100
_TIMEOUT_S = 30.0
_MAX_MESSAGE = 500
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_GONE = frozenset({404, 410})
_ADVICE = {
    401: "the token is not valid, or has expired",
    403: "the token may not do this: give the job `permissions:` with `pull-requests: write` and `checks: write`; "
    "the token of a pull request from a fork can only read, so post from a workflow_run job",
    404: "there is no such thing, or the token may not see it",
    422: "GitHub takes the request for wrong",
}


@dataclass(frozen=True)
class Clock:
    """The time, and how to let some of it pass."""

    now_s: Callable[[], float] = time.time
    """Seconds since 1970."""
    sleep_s: Callable[[float], None] = time.sleep


class GitHubRepository:
    """One repository on GitHub.com, GitHub Enterprise or a stand-in, seen with one token.

    Args:
        api_url: Of the REST interface, as `GITHUB_API_URL` has it; https, or http to this machine.
        repository: `owner/name`.
        token: Found in no message.
        clock: Given by tests.

    Raises:
        GitHubError: the URL would show the token to others.
    """

    def __init__(self, api_url: str, repository: str, token: str, *, clock: Clock | None = None) -> None:
        parts = urllib.parse.urlsplit(api_url)
        is_here = parts.hostname in _THIS_MACHINE
        if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
            raise GitHubError(
                f"{api_url[:200]}: plain http would show the token to others: GITHUB_API_URL must be https"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise GitHubError(f"{TOKEN_VARIABLE} holds what no token does: a space, a line break, or other than ASCII")
        self._owner, self._name = repository.split("/")
        self._token = token
        self._clock = clock or Clock()
        self._waited_s = 0.0
        self._github = GitHub(
            token,
            base_url=api_url,
            user_agent="roofwatch",
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            trust_env=not is_here,  # what is unprotected stays on this machine: no proxy gets to see it
            http_cache=False,
            auto_retry=False,
        )

    # --- comments

    def comments(self, number: int) -> list[Comment]:
        """All comments of a pull request, on however many pages."""

        def page_of(page: int) -> _Answer:
            return self._github.rest.issues.list_comments(
                self._owner, self._name, number, per_page=_PAGE, page=page, headers=_VERSION
            )

        return [
            Comment(int(found["id"]), str(found.get("body") or ""), _is_trusted(found))
            for answer in self._pages(f"list the comments of pull request {number}", page_of)
            for found in _listed(answer)
        ]

    def create_comment(self, number: int, body: str) -> int:
        """Post a comment; its id."""
        answer = self._once(
            f"comment on pull request {number}",
            lambda: self._github.rest.issues.create_comment(
                self._owner, self._name, number, body=body, headers=_VERSION
            ),
        )
        return int(_document(answer)["id"])

    def edit_comment(self, comment_id: int, body: str) -> bool:
        """Replace a comment's text; False if it is gone."""
        answer = self._again(
            f"edit comment {comment_id}",
            lambda: self._github.rest.issues.update_comment(
                self._owner, self._name, comment_id, body=body, headers=_VERSION
            ),
            allowed=_GONE,
        )
        return answer is not None

    def delete_comment(self, comment_id: int) -> None:
        """Remove a comment, if it is still there."""
        self._again(
            f"delete comment {comment_id}",
            lambda: self._github.rest.issues.delete_comment(self._owner, self._name, comment_id, headers=_VERSION),
            allowed=_GONE,
        )

    # --- pull requests

    def pull_requests_of(self, branch: Branch, head_sha: str) -> list[int]:
        """Numbers of the open pull requests whose head is that commit of that branch."""

        def page_of(page: int) -> _Answer:
            return self._github.rest.pulls.list(
                self._owner,
                self._name,
                state="open",
                head=f"{branch.owner}:{branch.name}",
                per_page=_PAGE,
                page=page,
                headers=_VERSION,
            )

        return [
            int(found["number"])
            for answer in self._pages("find the pull request", page_of)
            for found in _listed(answer)
            if found["head"]["sha"] == head_sha
        ]

    # --- check-runs

    def find_check_run(self, head_sha: str, name: str, external_id: str) -> FoundCheckRun | None:
        """The youngest check-run of that name and id on a commit."""

        def page_of(page: int) -> _Answer:
            return self._github.rest.checks.list_for_ref(
                self._owner,
                self._name,
                head_sha,
                check_name=name,
                filter_="all",
                per_page=_PAGE,
                page=page,
                headers=_VERSION,
            )

        ours = [
            found
            for answer in self._pages("list the check-runs of the commit", page_of)
            for found in _listed(answer, "check_runs")
            if found.get("external_id") == external_id
        ]
        youngest = max(ours, key=lambda found: int(found["id"]), default=None)
        if youngest is None:
            return None
        return FoundCheckRun(int(youngest["id"]), youngest["status"] == "completed")

    def create_check_run(self, head_sha: str, name: str, external_id: str, check: CheckRun, url: str | None) -> None:
        """Put a check-run on a commit."""
        data: Any = {"name": name, "head_sha": head_sha, "external_id": external_id, **_said(check, url)}
        self._once(
            "make a check-run",
            lambda: self._github.rest.checks.create(self._owner, self._name, data=data, headers=_VERSION),
        )

    def update_check_run(self, check_run_id: int, check: CheckRun, url: str | None) -> None:
        """Replace what a check-run says."""
        data: Any = _said(check, url)
        self._again(
            f"update check-run {check_run_id}",
            lambda: self._github.rest.checks.update(self._owner, self._name, check_run_id, data=data, headers=_VERSION),
        )

    # --- requests

    def _pages(self, what: str, page_of: Callable[[int], _Answer]) -> Iterator[_Answer]:
        page = 1
        while True:
            answer = self._again(what, partial(page_of, page))
            assert answer is not None
            yield answer
            if "next" not in answer.raw_response.links:
                return
            page += 1

    def _again(self, what: str, ask: Callable[[], _Answer], *, allowed: frozenset[int] = frozenset()) -> _Answer | None:
        """What GitHub answers, after as many attempts as it takes; None for a refusal that is allowed."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._answer(ask)
            except _FailedError as error:
                if error.failure.status in allowed:
                    return None
                self._wait_or_fail(what, error.failure, attempt)

    def _once(self, what: str, ask: Callable[[], _Answer]) -> _Answer:
        """What GitHub answers; `UncertainError` after a wait where it may have done it without saying so."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._answer(ask)
            except _FailedError as error:
                self._wait_or_fail(what, error.failure, attempt)
                if error.failure.is_uncertain:
                    raise UncertainError(what) from None

    def _answer(self, ask: Callable[[], _Answer]) -> _Answer:
        try:
            answer = ask()
        except RequestFailed as error:
            headers = {name.lower(): value for name, value in error.response.headers.items()}
            raise _FailedError(Failure(error.response.status_code, error.response.text, headers)) from None
        except RequestError as error:
            raise _FailedError(Failure(None, f"{type(error.exc).__name__}: {error.exc}")) from None
        if answer.is_redirect:
            raise _FailedError(Failure(answer.status_code, "it was moved: does GITHUB_REPOSITORY have its old name?"))
        return answer

    def _wait_or_fail(self, what: str, failure: Failure, attempt: int) -> None:
        wait_s = failure.wait_s(attempt, self._clock.now_s())
        if wait_s is None:
            tries = f" ({attempt} attempts)" if attempt > 1 else ""
            advice = "" if failure.is_limit else _ADVICE.get(failure.status or 0, "")
            raise GitHubError(
                f"GitHub: could not {what}{tries}: {self._quoted(failure)}{f'; {advice}' if advice else ''}"
            )
        if self._waited_s + wait_s > MAX_WAIT_S:
            raise GitHubError(
                f"GitHub: could not {what}: {self._quoted(failure)}; it asks to wait {wait_s:.0f} s, and this job "
                f"waits {MAX_WAIT_S:.0f} s in all: run it again later"
            )
        self._waited_s += wait_s
        self._clock.sleep_s(wait_s)

    def _quoted(self, failure: Failure) -> str:
        """In one line, short, and without the token if somebody repeats it."""
        status = "no answer" if failure.status is None else f"HTTP {failure.status}"
        text = failure.message.replace(self._token, "***")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return f"{status}: {line[:_MAX_MESSAGE]}"


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def _document(answer: _Answer) -> dict[str, Any]:
    """The object that GitHub answered with.

    Raises:
        GitHubError: it is none, so it was not GitHub's interface that answered.
    """
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise GitHubError(f"{answer.url.host} did not answer as GitHub does: is GITHUB_API_URL that of its interface?")
    return document


def _listed(answer: _Answer, name: str | None = None) -> list[Any]:
    """The list that GitHub answered with, or that is in its answer under a name."""
    listed: Any
    try:
        listed = answer.json() if name is None else _document(answer).get(name)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise GitHubError(f"{answer.url.host} did not answer as GitHub does: is GITHUB_API_URL that of its interface?")
    return listed


def _is_trusted(comment: Any) -> bool:
    user = comment.get("user") or {}
    return user.get("type") == "Bot" or comment.get("author_association") in _TRUSTED


def _said(check: CheckRun, url: str | None) -> dict[str, Any]:
    said: dict[str, Any] = {"output": {"title": check.title, "summary": check.summary}}
    if url is not None:
        said["details_url"] = url
    if check.conclusion is None:
        return said | {"status": "in_progress"}
    return said | {"status": "completed", "conclusion": check.conclusion.value}
