"""A client for comments, check-runs, issues and workflows of one GitHub repository."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from roofwatch.ci.forges.check_run import CheckRun
from roofwatch.ci.forges.event import (
    Comment,
    Job,
    PullRequest,
    RunOrder,
    is_trusted,
    to_comment,
    to_pull_request,
)
from roofwatch.ci.forges.rest import MAX_ATTEMPTS, GitHubRequests
from roofwatch.ci.messages import UncertainError

_WRITERS = frozenset({"admin", "write"})
"""GitHub reports `maintain` as `write` and `triage` as `read`."""
_EXTERNAL_ID = re.compile(r"roofwatch:(\d{1,18})\.(\d{1,9})", re.ASCII)


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
    """None while it runs."""
    title: str
    summary: str
    url: str | None
    started_at: str
    """ISO 8601, UTC."""


class GitHubRepository:
    """One repository on GitHub.com or GitHub Enterprise.

    Every method raises `ForgeError` if GitHub refuses; `GitHubRequests` has the arguments.
    """

    starts_jobs_for_comments = True
    number_mark = "#"
    """Before the number of a pull request."""

    def __init__(
        self,
        api_url: str,
        repository: str,
        token: str,
    ) -> None:
        self._requests = GitHubRequests(
            api_url,
            repository,
            token,
        )

    # --- comments and issues; to GitHub a pull request is an issue

    def comments(self, number: int) -> list[Comment]:
        documents = self._requests.list(f"issues/{number}/comments")
        return [to_comment(document, number) for document in documents]

    def create_comment(self, number: int, body: str) -> Comment:
        path = f"issues/{number}/comments"
        document = self._requests.call("POST", path, {"body": body})
        return to_comment(document, number)

    def edit_comment(self, comment: Comment, body: str) -> bool:
        """Replace a comment's text; False if it was deleted."""
        path = f"issues/comments/{comment.comment_id}"
        return self._requests.find("PATCH", path, {"body": body}) is not None

    def delete_comment(self, comment: Comment) -> None:
        self._requests.find("DELETE", f"issues/comments/{comment.comment_id}")

    def react(self, comment_id: int, reaction: str) -> None:
        """Add a reaction to a comment; repeating it changes nothing."""
        path = f"issues/comments/{comment_id}/reactions"
        self._requests.find("POST", path, {"content": reaction})

    def list_issues(self, label: str) -> list[Issue]:
        """List open and closed issues with a label, the newest first."""
        documents = self._requests.list(
            "issues",
            state="all",
            labels=label,
        )
        return [
            Issue(
                number=int(document["number"]),
                body=str(document.get("body") or ""),
                is_open=document["state"] == "open",
                is_trusted=is_trusted(document),
            )
            for document in documents
            if "pull_request" not in document
        ]

    def create_issue(
        self,
        title: str,
        body: str,
        labels: Sequence[str],
        assignees: Sequence[str] = (),
    ) -> int:
        """Open an issue and return its number; assignees are logins."""
        fields = {
            "title": title,
            "body": body,
            "labels": list(labels),
            "assignees": list(assignees),
        }
        return int(self._requests.call("POST", "issues", fields)["number"])

    def close_issue(self, number: int) -> None:
        fields = {"state": "closed", "state_reason": "completed"}
        self._requests.find("PATCH", f"issues/{number}", fields)

    # --- pull requests and check-runs

    def pull_requests(self, job: Job) -> Sequence[PullRequest]:
        """Return the pull requests that a job is about; none if they were closed, or their branch
        moved.
        """
        if job.pull_requests or job.head_label is None:
            return job.pull_requests
        documents = self._requests.list(
            "pulls",
            state="open",
            head=job.head_label,
        )
        return [
            to_pull_request(document)
            for document in documents
            if document["head"]["sha"] == job.head_sha
        ]

    def queued_pull_requests(self, job: Job) -> Sequence[PullRequest]:
        """Return the pull request that a merge queue tests; none if it has another target branch.

        A queue tests each pull request on top of those before it, which are its base.
        """
        if job.queued is None:
            return ()
        document = self._requests.find("GET", f"pulls/{job.queued.number}")
        if document is None:
            return ()
        # the queue may have moved on since the job began
        pull_request = to_pull_request(document)
        if pull_request != job.queued:
            return ()
        return (pull_request,)

    def branch_and_head(self, number: int) -> tuple[str, str]:
        """Return the target branch and the head commit of a pull request."""
        document = self._requests.call("GET", f"pulls/{number}")
        branch = str(document["base"]["ref"])
        head_sha = str(document["head"]["sha"])
        return branch, head_sha

    def check_runs(self, head_sha: str, name: str) -> list[FoundCheckRun]:
        """List the check-runs of that name on a commit."""
        path = f"commits/{quote(head_sha)}/check-runs"
        documents = self._requests.list(
            path,
            key="check_runs",
            check_name=name,
            filter="all",
        )
        return [_found_check_run(document) for document in documents]

    def create_check_run(self, fields: Mapping[str, Any]) -> int:
        """Create a check-run from the fields of GitHub's REST API; return its ID."""
        return int(self._requests.call("POST", "check-runs", dict(fields))["id"])

    def update_check_run(self, check_run_id: int, fields: Mapping[str, Any]) -> None:
        """Replace fields of a check-run; annotations are added to the existing ones."""
        self._requests.call("PATCH", f"check-runs/{check_run_id}", dict(fields))

    def conclude(
        self,
        head_sha: str,
        name: str,
        order: RunOrder,
        check: CheckRun,
        url: str | None,
    ) -> None:
        """Leave one check-run of a run on a commit: the one in progress becomes the one that
        concludes.

        A run that is older than one with a conclusion changes nothing, unless its own check-run is
        in progress.
        """
        check_runs = self.check_runs(head_sha, name)
        newest = _newest(check_runs, order)
        is_late = any(_is_later(check_run, order) for check_run in check_runs)
        if (newest is None or newest.is_completed) and (
            is_late or (newest is not None and check.conclusion is None)
        ):
            return
        if newest is not None and newest.is_completed:
            check = replace(check, annotations=())  # it has them
        first, *more = check.requests(url)
        if newest is not None:
            check_run_id = newest.check_run_id
            self.update_check_run(check_run_id, first)
        else:
            new = {
                "name": name,
                "head_sha": head_sha,
                "external_id": f"roofwatch:{order}",
            } | first
            check_run_id = self._create_once(new, order)
        for batch in more:
            self.update_check_run(check_run_id, batch)

    def _create_once(self, fields: Mapping[str, Any], order: RunOrder) -> int:
        """Create the check-run of a run, and look for it before each further attempt."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return self.create_check_run(fields)
            except UncertainError:
                # GitHub may have created it before the answer was lost
                same_name = self.check_runs(fields["head_sha"], fields["name"])
                created = _newest(same_name, order)
                if created is not None:
                    return created.check_run_id
                if attempt == MAX_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    # --- permissions and runs

    def may_write(self, login: str) -> bool:
        document = self._permission(login)
        return document is not None and document.get("permission") in _WRITERS

    def _permission(self, login: str) -> Any:
        return self._requests.find("GET", f"collaborators/{quote(login, safe='')}/permission")

    def may_administer(self, login: str) -> bool:
        document = self._permission(login)
        return document is not None and document.get("permission") == "admin"

    def author(self, number: int) -> str:
        """Return the login of who opened a pull request."""
        document = self._requests.call("GET", f"pulls/{number}")
        return str((document.get("user") or {}).get("login") or "")

    def reviewed_commits(self, number: int, login: str) -> set[str]:
        """Return the commits of a pull request on which somebody submitted a review."""
        documents = self._requests.list(f"pulls/{number}/reviews")
        return {
            str(document["commit_id"])
            for document in documents
            if (document.get("user") or {}).get("login") == login
        }

    def run_again(self, run_id: int) -> None:
        self._requests.call("POST", f"actions/runs/{run_id}/rerun")


def _is_later(check_run: FoundCheckRun, order: RunOrder) -> bool:
    """Return whether a newer run has concluded."""
    if not check_run.is_completed:
        return False
    if check_run.order is None:
        return False
    return check_run.order > order


def _newest(check_runs: Sequence[FoundCheckRun], order: RunOrder) -> FoundCheckRun | None:
    ours = [check_run for check_run in check_runs if check_run.order == order]
    return max(
        ours,
        key=lambda check_run: check_run.check_run_id,
        default=None,
    )


def _found_check_run(document: Mapping[str, Any]) -> FoundCheckRun:
    output = document.get("output") or {}
    ours = _EXTERNAL_ID.fullmatch(document.get("external_id") or "")
    # a check-run of another program has no order
    order = None
    if ours is not None:
        order = RunOrder(int(ours[1]), int(ours[2]))
    return FoundCheckRun(
        check_run_id=int(document["id"]),
        is_completed=document["status"] == "completed",
        order=order,
        conclusion=document.get("conclusion"),
        title=str(output.get("title") or ""),
        summary=str(output.get("summary") or ""),
        url=document.get("details_url"),
        started_at=str(document.get("started_at") or ""),
    )
