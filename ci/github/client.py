"""A client for comments, check-runs, issues and workflows of one GitHub repository, through
githubkit.
"""

import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any

import httpx
from githubkit import GitHub
from githubkit.exception import GitHubException, RateLimitExceeded, RequestError, RequestFailed
from githubkit.response import Response
from githubkit.retry import RetryOption

from roofwatch.ci.github.check_run import CheckRun
from roofwatch.ci.github.event import (
    TOKEN_VARIABLE,
    Comment,
    Job,
    PullRequest,
    RunOrder,
    is_trusted,
    to_comment,
    to_pull_request,
)
from roofwatch.ci.messages import (
    ForgeError,
    NotFoundError,
    UncertainError,
    may_carry_secrets,
    on_one_line,
)

MAX_ATTEMPTS = 5
MAX_WAIT_S = 900.0
"""In all. The next run can post the comment."""
_VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
_PAGE_LENGTH = 100
_MAX_PAGES = 100
_TIMEOUT_S = 30.0
_SECONDARY_LIMIT_S = 60.0
_LONG_WAIT_S = 10.0
_MAX_MESSAGE = 500
_WRITERS = frozenset({"admin", "write"})
"""GitHub reports `maintain` as `write` and `triage` as `read`."""
_GONE = frozenset({404, 410})
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
_EXTERNAL_ID = re.compile(r"roofwatch:(\d{1,18})\.(\d{1,9})", re.ASCII)
_Request = Callable[..., Response[Any]]
_log = logging.getLogger("roofwatch.github")


@dataclass(frozen=True)
class Issue:
    number: int
    body: str
    is_open: bool
    is_trusted: bool


@dataclass(frozen=True)
class FoundCheckRun:
    check_run_id: int
    is_completed: bool
    order: RunOrder | None
    """The run that it is about; None if it is not ours."""
    conclusion: str | None
    title: str
    summary: str
    url: str | None
    started_at: str
    """ISO 8601, UTC."""


class GitHubRepository:
    """One repository on GitHub.com or GitHub Enterprise.

    Requests are repeated after rate limits, server errors and broken connections. A POST that may
    have been carried out raises `UncertainError` instead. Every method raises `ForgeError` if
    GitHub refuses.

    Args:
        api_url: Of the REST API, as in `GITHUB_API_URL`; https, or http to this machine.
        repository: `owner/name`.
        token: Never part of a message.
    """

    starts_jobs_for_comments = True

    def __init__(self, api_url: str, repository: str, token: str) -> None:
        if not may_carry_secrets(api_url):
            raise ForgeError(
                f"GITHUB_API_URL {api_url[:200]!r} must be https: plain http would reveal the token"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ForgeError(
                f"{TOKEN_VARIABLE} is not a token: it has a space, a line break, or is not ASCII"
            )
        self._named = tuple(repository.split("/"))
        self._token = token
        self._waited_s = 0.0
        self._github = GitHub(
            token,
            base_url=api_url,
            user_agent="roofwatch",
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            trust_env=api_url.startswith(
                "https:"
            ),  # no proxy sees a token that is sent over plain http
            http_cache=False,
            ssl_verify=_trusted_certificates(),
            auto_retry=self._retry,
        )
        self._rest = self._github.rest  # a weak reference

    # --- comments and issues; to GitHub a pull request is an issue

    def comments(self, number: int) -> list[Comment]:
        return [
            to_comment(one, number) for one in self._list(self._rest.issues.list_comments, number)
        ]

    def create_comment(self, number: int, body: str) -> Comment:
        return to_comment(self._call(self._rest.issues.create_comment, number, body=body), number)

    def edit_comment(self, comment: Comment, body: str) -> bool:
        """Replace a comment's text; False if it was deleted."""
        return (
            self._find(self._rest.issues.update_comment, comment.comment_id, body=body) is not None
        )

    def delete_comment(self, comment: Comment) -> None:
        self._find(self._rest.issues.delete_comment, comment.comment_id)

    def react(self, comment_id: int, reaction: str) -> None:
        """Add a reaction to a comment; repeating it changes nothing."""
        self._find(
            self._rest.reactions.create_for_issue_comment, comment_id, data={"content": reaction}
        )

    def list_issues(self, label: str) -> list[Issue]:
        """List open and closed issues with a label, the newest first."""
        found = self._list(self._rest.issues.list_for_repo, state="all", labels=label)
        return [
            Issue(
                int(one["number"]),
                str(one.get("body") or ""),
                one["state"] == "open",
                is_trusted(one),
            )
            for one in found
            if "pull_request" not in one
        ]

    def create_issue(self, title: str, body: str, labels: Sequence[str]) -> None:
        self._call(self._rest.issues.create, title=title, body=body, labels=list(labels))

    def close_issue(self, number: int) -> None:
        self._find(self._rest.issues.update, number, state="closed", state_reason="completed")

    # --- pull requests and check-runs

    def pull_requests(self, job: Job) -> Sequence[PullRequest]:
        """Return the pull requests that a job is about; none if they were closed, or their branch
        moved.
        """
        if job.pull_requests or job.head_label is None:
            return job.pull_requests
        found = self._list(self._rest.pulls.list, state="open", head=job.head_label)
        return [to_pull_request(one) for one in found if one["head"]["sha"] == job.head_sha]

    def queued_pull_requests(self, job: Job) -> Sequence[PullRequest]:
        """Return the pull request that a merge queue tests; none if it has another target branch.

        A queue tests each pull request on top of those before it, which are its base.
        """
        if job.queued is None:
            return ()
        found = self._find(self._rest.pulls.get, job.queued.number)
        if found is None:
            return ()
        pull_request = to_pull_request(found)
        return () if pull_request != job.queued else (pull_request,)

    def branch_and_head(self, number: int) -> tuple[str, str]:
        """Return the target branch and the head commit of a pull request."""
        found = self._call(self._rest.pulls.get, number)
        return str(found["base"]["ref"]), str(found["head"]["sha"])

    def check_runs(self, head_sha: str, name: str) -> list[FoundCheckRun]:
        """List the check-runs of that name on a commit."""
        chosen = {"check_name": name, "filter_": "all"}
        found = self._list(self._rest.checks.list_for_ref, head_sha, **chosen, key="check_runs")
        return [_found_check_run(one) for one in found]

    def create_check_run(self, fields: Mapping[str, Any]) -> int:
        """Create a check-run from the fields of GitHub's REST API; return its ID."""
        return int(self._call(self._rest.checks.create, data=fields)["id"])

    def update_check_run(self, check_run_id: int, fields: Mapping[str, Any]) -> None:
        """Replace fields of a check-run; annotations are added to the existing ones."""
        self._call(self._rest.checks.update, check_run_id, data=fields)

    def conclude(
        self, head_sha: str, name: str, order: RunOrder, check: CheckRun, url: str | None
    ) -> None:
        """Leave one check-run of a run on a commit: the one in progress becomes the one that
        concludes.

        A run that is older than one with a conclusion changes nothing, unless its own check-run is
        in progress.
        """
        check_runs = self.check_runs(head_sha, name)
        found = _newest(check_runs, order)
        is_late = any(
            one.is_completed and one.order is not None and one.order > order for one in check_runs
        )
        if (found is None or found.is_completed) and (
            is_late or (found is not None and check.conclusion is None)
        ):
            return
        if found is not None and found.is_completed:
            check = replace(check, annotations=())  # it has them
        first, *more = check.requests(url)
        if found is not None:
            check_run_id = found.check_run_id
            self.update_check_run(check_run_id, first)
        else:
            new = {"name": name, "head_sha": head_sha, "external_id": f"roofwatch:{order}"} | first
            try:
                check_run_id = self.create_check_run(new)
            except UncertainError:
                created = _newest(self.check_runs(head_sha, name), order)
                check_run_id = (
                    self.create_check_run(new) if created is None else created.check_run_id
                )
        for batch in more:
            self.update_check_run(check_run_id, batch)

    # --- permissions, runs and files

    def may_write(self, login: str) -> bool:
        found = self._find(self._rest.repos.get_collaborator_permission_level, login)
        return found is not None and found.get("permission") in _WRITERS

    def run_again(self, run_id: int) -> None:
        self._call(self._rest.actions.re_run_workflow, run_id)

    # --- requests

    def _list(
        self, request: _Request, *arguments: Any, key: str | None = None, **fields: Any
    ) -> list[dict[str, Any]]:
        """Return all items of a paginated list; some lists are below a key."""
        found: list[dict[str, Any]] = []
        for page in range(1, _MAX_PAGES + 1):
            answer = self._answer(request, *arguments, **fields, per_page=_PAGE_LENGTH, page=page)
            found += _json_of(answer) if key is None else _json_of(answer)[key]
            if "next" not in answer.raw_response.links:
                return found
        raise ForgeError(f"GitHub: {answer.url.path} has more than {_MAX_PAGES} pages")

    def _find(self, request: _Request, *arguments: Any, **fields: Any) -> Any:
        """Return the JSON of an answer; None if the object does not exist."""
        try:
            return self._call(request, *arguments, **fields)
        except NotFoundError:
            return None

    def _call(self, request: _Request, *arguments: Any, **fields: Any) -> Any:
        """Return the JSON of an answer; None without content."""
        answer = self._answer(request, *arguments, **fields)
        return _json_of(answer) if answer.content else None

    def _answer(self, request: _Request, *arguments: Any, **fields: Any) -> Response[Any]:
        try:
            answer = request(*self._named, *arguments, **fields, headers=_VERSION)
        except RequestError as error:
            if isinstance(error, RequestFailed) and error.response.status_code in _GONE:
                raise NotFoundError(f"GitHub: {self._explained(error)}") from None
            if _is_uncertain(error) and not _is_repeatable(error):
                time.sleep(1.0)  # until GitHub lists the result
                raise UncertainError(
                    f"GitHub: {self._explained(error)}; it is unknown whether this was done"
                ) from None
            raise ForgeError(f"GitHub: {self._explained(error)}") from None
        if answer.is_redirect:
            raise ForgeError(
                f"GitHub: {answer.url.path} has moved; is GITHUB_REPOSITORY an old name?"
            )
        return answer

    def _retry(self, error: GitHubException, retry_count: int) -> RetryOption:
        """Decide whether githubkit repeats a request, and when.

        Source: GitHub's "Best practices for using the REST API".
        """
        wait_s = _limit_wait_s(error)
        if wait_s is None and _is_uncertain(error) and _is_repeatable(error):
            wait_s = 2.0**retry_count
        if (
            wait_s is None
            or retry_count + 1 >= MAX_ATTEMPTS
            or self._waited_s + wait_s > MAX_WAIT_S
        ):
            return RetryOption(False)
        if wait_s >= _LONG_WAIT_S:
            _log.warning("GitHub limits the rate of requests: waiting %.0f s", wait_s)
        self._waited_s += wait_s
        return RetryOption(True, timedelta(seconds=wait_s))

    def _explained(self, error: RequestError[Any]) -> str:
        if not isinstance(error, RequestFailed):
            return f"no answer: {self._quoted(f'{type(error.exc).__name__}: {error.exc}')}"
        status = error.response.status_code
        request = f"{error.request.method} {error.request.url.path}"
        text = f"{request}: HTTP {status}: {self._quoted(_message_of(error.response))}"
        wait_s = _limit_wait_s(error)
        if wait_s is not None:
            return (
                f"{text}; the rate limit needs {wait_s:.0f} s, and this job waits "
                f"{MAX_WAIT_S:.0f} s at most"
            )
        return f"{text}; {_ADVICE[status]}" if status in _ADVICE else text

    def _quoted(self, text: str) -> str:
        return on_one_line(text.replace(self._token, "***"))[:_MAX_MESSAGE]


def _newest(check_runs: Sequence[FoundCheckRun], order: RunOrder) -> FoundCheckRun | None:
    ours = [one for one in check_runs if one.order == order]
    return max(ours, key=lambda one: one.check_run_id, default=None)


@cache
def _trusted_certificates() -> ssl.SSLContext:
    # loading them takes 60 ms, and githubkit makes a client for each request
    return httpx.create_ssl_context()


def _limit_wait_s(error: GitHubException) -> float | None:
    """Return the seconds to wait for a rate limit; None for other errors."""
    if isinstance(error, RateLimitExceeded):
        return error.retry_after.total_seconds() + 1.0  # clocks differ
    if isinstance(error, RequestFailed):
        status, text = error.response.status_code, error.response.text
        if status == 429 or (status == 403 and "rate limit" in text.lower()):
            return _SECONDARY_LIMIT_S
    return None


def _is_uncertain(error: GitHubException) -> bool:
    return not isinstance(error, RequestFailed) or error.response.status_code in {
        500,
        502,
        503,
        504,
    }


def _is_repeatable(error: GitHubException) -> bool:
    request = (
        error.exc.request
        if isinstance(error, RequestError) and isinstance(error.exc, httpx.HTTPError)
        else None
    )
    return request is None or request.method != "POST" or request.url.path.endswith("/reactions")


def _json_of(answer: Response[Any]) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise ForgeError(
            f"{answer.url.host} is not GitHub's API: is GITHUB_API_URL correct?"
        ) from None


def _message_of(answer: Response[Any]) -> str:
    """Return the words of a refusal: GitHub's message and its errors, or the text of an answer that
    is not JSON.
    """
    try:
        found = answer.json()
        errors = [
            one if isinstance(one, str) else one.get("message") or one
            for one in found.get("errors") or ()
        ]
        return "; ".join(map(str, [found["message"], *errors]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return str(answer.text)


def _found_check_run(found: Mapping[str, Any]) -> FoundCheckRun:
    output, ours = found.get("output") or {}, _EXTERNAL_ID.fullmatch(found.get("external_id") or "")
    return FoundCheckRun(
        int(found["id"]),
        found["status"] == "completed",
        order=RunOrder(int(ours[1]), int(ours[2])) if ours else None,
        conclusion=found.get("conclusion"),
        title=str(output.get("title") or ""),
        summary=str(output.get("summary") or ""),
        url=found.get("details_url"),
        started_at=str(found.get("started_at") or ""),
    )
