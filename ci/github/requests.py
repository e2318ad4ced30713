"""Requests to GitHub's interface, through githubkit: how they are made, repeated and refused.

Every request is made as `roofwatch.ci.github.retry` says. One that could have been carried out although it broke is
repeated here
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
from githubkit.versions import RestVersionSwitcher

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.event import TOKEN_VARIABLE
from roofwatch.ci.github.posting import UncertainError
from roofwatch.ci.github.retry import MAX_WAIT_S, Failure

Answer = Response[Any, Any]

VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
"""Of the interface: known to every GitHub Enterprise Server that is still supported."""
PAGE_LENGTH = 100
_TIMEOUT_S = 30.0
_MAX_MESSAGE = 500
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_ADVICE = {
    401: "the token is not valid, or has expired",
    403: "the token may not do this: give the job `permissions:` with `pull-requests: write` and `checks: write`, and "
    "for commands `actions: write`; the token of a pull request from a fork can only read, so post from a workflow_run "
    "job",
    404: "there is no such thing, or the token may not see it",
    422: "GitHub takes the request for wrong",
}


@dataclass(frozen=True)
class Clock:
    """The time, and how to let some of it pass."""

    now_s: Callable[[], float] = time.time
    """Seconds since 1970."""
    sleep_s: Callable[[float], None] = time.sleep


class GitHubRequests:
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
        self.owner, self.name = repository.split("/")
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

    @property
    def rest(self) -> RestVersionSwitcher:
        """GitHub's requests by group, as githubkit has them."""
        return self._github.rest

    def pages(self, what: str, page_of: Callable[[int], Answer]) -> Iterator[Answer]:
        """All pages of a list."""
        page = 1
        while True:
            answer = self.again(what, partial(page_of, page))
            assert answer is not None
            yield answer
            if "next" not in answer.raw_response.links:
                return
            page += 1

    def again(self, what: str, ask: Callable[[], Answer], *, allowed: frozenset[int] = frozenset()) -> Answer | None:
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

    def once(self, what: str, ask: Callable[[], Answer]) -> Answer:
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

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
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


def document_of(answer: Answer) -> dict[str, Any]:
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


def listed_in(answer: Answer, name: str | None = None) -> list[Any]:
    """The list that GitHub answered with, or that is in its answer under a name."""
    listed: Any
    try:
        listed = answer.json() if name is None else document_of(answer).get(name)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise GitHubError(f"{answer.url.host} did not answer as GitHub does: is GITHUB_API_URL that of its interface?")
    return listed
