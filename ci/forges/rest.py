"""Requests to GitHub's REST API for one repository: retries, rate limits, pages and errors."""

import logging
import ssl
import time
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx

from roofwatch.ci.forges.event import TOKEN_VARIABLE
from roofwatch.ci.messages import (
    ForgeError,
    NotFoundError,
    UncertainError,
    may_carry_secrets,
    on_one_line,
)
from roofwatch.model.files import JsonObject

MAX_ATTEMPTS = 6
FIRST_WAIT_S = 4.0
"""Doubled after each attempt, so that six attempts take two minutes."""
MAX_WAIT_S = 900.0
"""For rate limits, in all. The next run can post the comment."""
# GitHub supports a version for two years after the next
_API_VERSION = "2022-11-28"
# GitHub's maximum
_PAGE_LENGTH = 100
# 10,000 items: more is a loop
_MAX_PAGES = 100
_TIMEOUT_S = 30.0
# GitHub's advice where an answer names no time
_SECONDARY_LIMIT_S = 60.0
# from here on a reader of the log should know why nothing happens
_LONG_WAIT_S = 10.0
_MAX_MESSAGE = 500
_GONE = frozenset({404, 410})
_SERVER_ERRORS = frozenset({500, 502, 503, 504})
_ADVICE = {
    401: "the token is not valid, or has expired",
    403: "the token may not do this: give the job `permissions:` with `pull-requests: write` and "
    "`checks: write`, and "
    "for commands `actions: write`; the token of a pull request from a fork can only read, so "
    "post from a workflow_run "
    "job",
    404: "it does not exist, or the token may not see it",
    422: "GitHub rejects the request as invalid",
}
_log = logging.getLogger("roofwatch.github")


class GitHubRequests:
    """Sends requests about one repository on GitHub.com or GitHub Enterprise.

    Requests are repeated after rate limits, server errors and broken connections. A POST that may
    have been carried out raises `UncertainError` instead. Every method raises `ForgeError` if
    GitHub refuses.

    Args:
        api_url: Of the REST API, as in `GITHUB_API_URL`; https, or http to this machine.
        repository: `owner/name`.
        token: Never part of a message.
    """

    def __init__(
        self,
        api_url: str,
        repository: str,
        token: str,
    ) -> None:
        if not may_carry_secrets(api_url):
            raise ForgeError(
                f"GITHUB_API_URL {api_url[:200]!r} must be https: plain http would reveal the token"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ForgeError(
                f"{TOKEN_VARIABLE} is not a token: it has a space, a line break, or is not ASCII"
            )
        # it logs every URL at a level that people turn on
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._token = token
        self._waited_s = 0.0
        self._uncertain_count = 0
        self._client = httpx.Client(
            base_url=f"{api_url.rstrip('/')}/repos/{quote(repository)}/",
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {token}",
                "User-Agent": "roofwatch",
                "X-GitHub-Api-Version": _API_VERSION,
            },
            timeout=_TIMEOUT_S,
            # no proxy sees a token that is sent over plain http
            trust_env=api_url.startswith("https:"),
            verify=_trusted_certificates(),
        )

    def list(self, path: str, *, key: str | None = None, **query: Any) -> list[JsonObject]:
        """Return all items of a paginated list; some lists are below a key."""
        items: list[JsonObject] = []
        for page in range(1, _MAX_PAGES + 1):
            parameters = query | {"per_page": _PAGE_LENGTH, "page": page}
            answer = self._answer("GET", path, params=parameters)
            document = _json_of(answer)
            if key is None:
                items += document
            else:
                items += document[key]
            # the header names the next page, if there is one
            if "next" not in answer.links:
                return items
        raise ForgeError(f"GitHub: {answer.url.path} has more than {_MAX_PAGES} pages")

    def find(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
    ) -> Any:
        """Return the JSON of an answer; None if the object does not exist."""
        try:
            return self.call(method, path, body)
        except NotFoundError:
            return None

    def call(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
    ) -> Any:
        """Return the JSON of an answer; None without content."""
        answer = self._answer(method, path, json=body)
        if not answer.content:
            return None
        return _json_of(answer)

    def _answer(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Return a successful answer, after up to six attempts."""
        request = self._client.build_request(method, path, **content)
        # repeating such a POST adds nothing: a reaction exists once
        is_repeatable = method != "POST" or path.endswith("/reactions")
        for attempt in range(1, MAX_ATTEMPTS + 1):
            error: Exception | None = None
            answer: httpx.Response | None = None
            try:
                answer = self._client.send(request)
            except (httpx.HTTPError, httpx.InvalidURL) as raised:
                error = raised
            if answer is not None and answer.is_success:
                if not is_repeatable:
                    self._uncertain_count = 0
                return answer
            is_uncertain = answer is None or answer.status_code in _SERVER_ERRORS
            if is_uncertain and not is_repeatable:
                self._wait_to_look_for_it()
                words = self._explained(request, answer, error)
                raise UncertainError(f"GitHub: {words}; it is unknown whether this was done")
            limit_s = None
            if answer is not None:
                limit_s = _limit_wait_s(answer)
            is_last = attempt == MAX_ATTEMPTS
            if is_last or not self._waits(attempt, limit_s, is_uncertain=is_uncertain):
                break
        if answer is not None and answer.is_redirect:
            raise ForgeError(
                f"GitHub: {answer.url.path} has moved; is GITHUB_REPOSITORY an old name?"
            )
        words = self._explained(request, answer, error)
        if answer is not None and answer.status_code in _GONE:
            raise NotFoundError(f"GitHub: {words}")
        raise ForgeError(f"GitHub: {words}")

    def _wait_to_look_for_it(self) -> None:
        """Wait until GitHub lists the result of a request, longer each time in a row."""
        if self._uncertain_count < MAX_ATTEMPTS - 1:
            time.sleep(FIRST_WAIT_S * 2.0**self._uncertain_count)
        self._uncertain_count += 1

    def _waits(
        self,
        attempt: int,
        limit_s: float | None,
        *,
        is_uncertain: bool,
    ) -> bool:
        """Wait before the next attempt; return whether there is one.

        Source: GitHub's "Best practices for using the REST API".
        """
        wait_s = limit_s
        if wait_s is None:
            # GitHub did answer, and a repetition would get the same answer
            if not is_uncertain:
                return False
            wait_s = FIRST_WAIT_S * 2.0 ** (attempt - 1)
        elif self._waited_s + wait_s > MAX_WAIT_S:
            # a job waits only so long in all
            return False
        else:
            self._waited_s += wait_s
            if wait_s >= _LONG_WAIT_S:
                _log.warning("GitHub limits the rate of requests: waiting %.0f s", wait_s)
        time.sleep(wait_s)
        return True

    def _explained(
        self,
        request: httpx.Request,
        answer: httpx.Response | None,
        error: Exception | None,
    ) -> str:
        """Say what was refused, the reason that GitHub gave, and what to do about it."""
        if answer is None:
            failure = f"{type(error).__name__}: {error}"
            return f"no answer: {self._quoted(failure)}"
        status = answer.status_code
        refused = f"{request.method} {request.url.path}: HTTP {status}"
        text = f"{refused}: {self._quoted(_message_of(answer))}"
        wait_s = _limit_wait_s(answer)
        if wait_s is not None:
            return (
                f"{text}; the rate limit needs {wait_s:.0f} s, and this job waits "
                f"{MAX_WAIT_S:.0f} s at most"
            )
        if status in _ADVICE:
            return f"{text}; {_ADVICE[status]}"
        return text

    def _quoted(self, text: str) -> str:
        return on_one_line(text.replace(self._token, "***"))[:_MAX_MESSAGE]


@cache
def _trusted_certificates() -> ssl.SSLContext:
    # loading them takes 60 ms
    return httpx.create_ssl_context()


def _limit_wait_s(answer: httpx.Response) -> float | None:
    """Return the seconds to wait for a rate limit; None for other answers."""
    is_limited = answer.status_code == 429 or (
        answer.status_code == 403 and "rate limit" in answer.text.lower()
    )
    if not is_limited:
        return None
    retry_after = answer.headers.get("Retry-After", "")
    # clocks differ, so a second more
    if retry_after.isdecimal():
        return float(retry_after) + 1.0
    reset_at = answer.headers.get("X-RateLimit-Reset", "")
    if answer.headers.get("X-RateLimit-Remaining") == "0" and reset_at.isdecimal():
        return max(0.0, float(reset_at) - time.time()) + 1.0
    return _SECONDARY_LIMIT_S


def _json_of(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise ForgeError(
            f"{answer.url.host} is not GitHub's API: is GITHUB_API_URL correct?"
        ) from None


def _words_of(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return str(error)


def _message_of(answer: httpx.Response) -> str:
    """Return the words of a refusal: GitHub's message and its errors, or the text of an answer that
    is not JSON.
    """
    try:
        document = answer.json()
        errors = document.get("errors") or ()
        message = str(document["message"])
        return "; ".join([message, *map(_words_of, errors)])
    except (ValueError, KeyError, TypeError, AttributeError):
        return answer.text
