"""Issues and files of a repository on GitHub."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from roofwatch.ci.alerts.issue import Issue
from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.client import GitHubRepository, is_trusted
from roofwatch.ci.github.requests import PAGE_LENGTH, VERSION, Answer, Clock, GitHubRequests, document_of, listed_in
from roofwatch.ci.github.sticky_comment import Comment
from roofwatch.ci.report.codeowners import PLACES

_GONE = frozenset({404, 410})


class GitHubIssues:
    """One repository, seen with one token; as `roofwatch.ci.github.client.GitHubRepository`, which it asks for
    comments.
    """

    def __init__(self, api_url: str, repository: str, token: str, *, clock: Clock | None = None) -> None:
        self._requests = GitHubRequests(api_url, repository, token, clock=clock)
        self._repository = GitHubRepository(api_url, repository, token, clock=clock)
        self._named = (self._requests.owner, self._requests.name)

    def list_issues(self, labels: Sequence[str]) -> list[Issue]:
        """Issues with all of these labels, open and closed, on however many pages."""

        def page_of(page: int) -> Answer:
            return self._requests.rest.issues.list_for_repo(
                *self._named,
                state="all",
                labels=",".join(labels),
                per_page=PAGE_LENGTH,
                page=page,
                headers=VERSION,
            )

        return [
            Issue(int(found["number"]), str(found.get("body") or ""), found["state"] == "open", is_trusted(found))
            for answer in self._requests.pages("list the issues", page_of)
            for found in listed_in(answer)
            if "pull_request" not in found
        ]

    def create_issue(self, title: str, body: str, labels: Sequence[str]) -> int:
        """Open an issue; its number."""
        answer = self._requests.once(
            "open an issue",
            lambda: self._requests.rest.issues.create(
                *self._named, title=title, body=body, labels=list(labels), headers=VERSION
            ),
        )
        return int(document_of(answer)["number"])

    def close_issue(self, number: int) -> None:
        """Close an issue, if it is still there."""
        self._requests.again(
            f"close issue {number}",
            lambda: self._requests.rest.issues.update(
                *self._named, number, state="closed", state_reason="completed", headers=VERSION
            ),
            allowed=_GONE,
        )

    def comments(self, number: int) -> list[Comment]:
        """All comments of an issue."""
        return self._repository.comments(number)

    def create_comment(self, number: int, body: str) -> int:
        """Comment on an issue; the comment's id."""
        return self._repository.create_comment(number, body)

    def read_codeowners(self) -> str | None:
        """The text of CODEOWNERS on the default branch, from the first of the places where GitHub looks for it."""
        for path in PLACES:
            text = self._read_file(path)
            if text is not None:
                return text
        return None

    def _read_file(self, path: str) -> str | None:
        answer = self._requests.again(
            f"read {path}",
            lambda: self._requests.rest.repos.get_content(*self._named, path, headers=VERSION),
            allowed=_GONE,
        )
        if answer is None:
            return None
        document = document_of(answer)
        if document.get("encoding") != "base64":
            raise GitHubError(f"GitHub: {path} is no file that it would show")
        return base64.b64decode(str(document.get("content") or "")).decode(errors="replace")
