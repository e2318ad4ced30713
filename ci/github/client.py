"""GitHub as results are told to it and as commands reach it, through githubkit: the edge of `ci` to the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofwatch.ci.github.annotations import Annotation
from roofwatch.ci.github.check_run import CheckRun
from roofwatch.ci.github.comment_command import WrittenComment
from roofwatch.ci.github.event import Branch
from roofwatch.ci.github.posting import Ends, FoundCheckRun
from roofwatch.ci.github.requests import PAGE_LENGTH, VERSION, Answer, Clock, GitHubRequests, document_of, listed_in
from roofwatch.ci.github.sticky_comment import Comment

_TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_WRITERS = frozenset({"admin", "write"})
"""`maintain` is told as `write`, `triage` as `read`."""
_GONE = frozenset({404, 410})


class GitHubRepository:
    """One repository on GitHub.com, GitHub Enterprise or a stand-in, seen with one token.

    Args:
        api_url: Of the REST interface, as `GITHUB_API_URL` has it; https, or http to this machine.
        repository: `owner/name`.
        token: Found in no message.
        clock: Given by tests.

    Raises:
        GitHubError: the URL would show the token to others. Every method raises it where GitHub refuses.
    """

    def __init__(self, api_url: str, repository: str, token: str, *, clock: Clock | None = None) -> None:
        self._requests = GitHubRequests(api_url, repository, token, clock=clock)
        self._named = (self._requests.owner, self._requests.name)

    # --- comments

    def comments(self, number: int) -> list[Comment]:
        """All comments of a pull request, on however many pages."""

        def page_of(page: int) -> Answer:
            return self._requests.rest.issues.list_comments(
                *self._named, number, per_page=PAGE_LENGTH, page=page, headers=VERSION
            )

        return [
            Comment(int(found["id"]), str(found.get("body") or ""), is_trusted(found), _person(found))
            for answer in self._requests.pages(f"list the comments of pull request {number}", page_of)
            for found in listed_in(answer)
        ]

    def create_comment(self, number: int, body: str) -> int:
        """Post a comment; its id."""
        answer = self._requests.once(
            f"comment on pull request {number}",
            lambda: self._requests.rest.issues.create_comment(*self._named, number, body=body, headers=VERSION),
        )
        return int(document_of(answer)["id"])

    def edit_comment(self, comment_id: int, body: str) -> bool:
        """Replace a comment's text; False if it is gone."""
        answer = self._requests.again(
            f"edit comment {comment_id}",
            lambda: self._requests.rest.issues.update_comment(*self._named, comment_id, body=body, headers=VERSION),
            allowed=_GONE,
        )
        return answer is not None

    def delete_comment(self, comment_id: int) -> None:
        """Remove a comment, if it is still there."""
        self._requests.again(
            f"delete comment {comment_id}",
            lambda: self._requests.rest.issues.delete_comment(*self._named, comment_id, headers=VERSION),
            allowed=_GONE,
        )

    # --- pull requests

    def pull_requests_of(self, branch: Branch, head_sha: str) -> list[int]:
        """Numbers of the open pull requests whose head is that commit of that branch."""

        def page_of(page: int) -> Answer:
            return self._requests.rest.pulls.list(
                *self._named,
                state="open",
                head=f"{branch.owner}:{branch.name}",
                per_page=PAGE_LENGTH,
                page=page,
                headers=VERSION,
            )

        return [
            int(found["number"])
            for answer in self._requests.pages("find the pull request", page_of)
            for found in listed_in(answer)
            if found["head"]["sha"] == head_sha
        ]

    # --- check-runs

    def check_runs(self, head_sha: str, name: str) -> list[FoundCheckRun]:
        """The check-runs of that name on a commit."""

        def page_of(page: int) -> Answer:
            return self._requests.rest.checks.list_for_ref(
                *self._named,
                head_sha,
                check_name=name,
                filter_="all",
                per_page=PAGE_LENGTH,
                page=page,
                headers=VERSION,
            )

        return [
            _found_check_run(found)
            for answer in self._requests.pages("list the check-runs of the commit", page_of)
            for found in listed_in(answer, "check_runs")
        ]

    def create_check_run(self, head_sha: str, name: str, external_id: str, check: CheckRun, url: str | None) -> int:
        """Put a check-run on a commit; its id."""
        data: Any = {"name": name, "head_sha": head_sha, "external_id": external_id, **_said(check, url)}
        answer = self._requests.once(
            "make a check-run",
            lambda: self._requests.rest.checks.create(*self._named, data=data, headers=VERSION),
        )
        return int(document_of(answer)["id"])

    def update_check_run(self, check_run_id: int, check: CheckRun, url: str | None) -> None:
        """Replace what a check-run says; annotations are added to those that it has."""
        data: Any = _said(check, url)
        self._requests.again(
            f"update check-run {check_run_id}",
            lambda: self._requests.rest.checks.update(*self._named, check_run_id, data=data, headers=VERSION),
        )

    # --- commands

    def written_comment(self, comment_id: int) -> WrittenComment | None:
        """A comment with who wrote it; None if it is gone."""
        answer = self._requests.again(
            f"read comment {comment_id}",
            lambda: self._requests.rest.issues.get_comment(*self._named, comment_id, headers=VERSION),
            allowed=_GONE,
        )
        return None if answer is None else _written(document_of(answer))

    def may_write(self, login: str) -> bool:
        """Whether somebody may write to the repository, as GitHub itself says."""
        answer = self._requests.again(
            "ask who may write to the repository",
            lambda: self._requests.rest.repos.get_collaborator_permission_level(*self._named, login, headers=VERSION),
            allowed=_GONE,
        )
        return answer is not None and document_of(answer).get("permission") in _WRITERS

    def ends_of(self, number: int) -> Ends:
        """The commits at the two ends of a pull request, as they are now."""
        answer = self._requests.again(
            f"read pull request {number}",
            lambda: self._requests.rest.pulls.get(*self._named, number, headers=VERSION),
        )
        assert answer is not None
        found = document_of(answer)
        return Ends(base_sha=str(found["base"]["sha"]), head_sha=str(found["head"]["sha"]))

    def react(self, comment_id: int, reaction: str) -> None:
        """Put a reaction below a comment; the same one again changes nothing."""
        data: Any = {"content": reaction}
        self._requests.again(
            f"react to comment {comment_id}",
            lambda: self._requests.rest.reactions.create_for_issue_comment(
                *self._named, comment_id, data=data, headers=VERSION
            ),
            allowed=_GONE,
        )

    def run_again(self, run_id: int) -> None:
        """Start all jobs of a run of a workflow once more. Raises `UncertainError` too."""
        self._requests.once(
            f"run {run_id} again",
            lambda: self._requests.rest.actions.re_run_workflow(*self._named, run_id, headers=VERSION),
        )

    def start_workflow(self, file_name: str, branch: str, inputs: Mapping[str, str]) -> None:
        """Start a workflow of a branch by hand. Raises `UncertainError` too."""
        data: Any = {"ref": branch, "inputs": dict(inputs)}
        self._requests.once(
            f"start the workflow {file_name}",
            lambda: self._requests.rest.actions.create_workflow_dispatch(
                *self._named, file_name, data=data, headers=VERSION
            ),
        )


def is_trusted(comment: Any) -> bool:
    """Whether whoever wrote a comment or an issue belongs to the repository, or is a bot."""
    user = comment.get("user") or {}
    return user.get("type") == "Bot" or comment.get("author_association") in _TRUSTED


def _said(check: CheckRun, url: str | None) -> dict[str, Any]:
    output: dict[str, Any] = {"title": check.title, "summary": check.summary}
    if check.annotations:
        output["annotations"] = [_beside(annotation) for annotation in check.annotations]
    said: dict[str, Any] = {"output": output}
    if url is not None:
        said["details_url"] = url
    if check.conclusion is None:
        return said | {"status": "in_progress"}
    return said | {"status": "completed", "conclusion": check.conclusion.value}


def _beside(annotation: Annotation) -> dict[str, Any]:
    return {
        "path": annotation.file,
        "start_line": annotation.line,
        "end_line": annotation.line,
        "annotation_level": annotation.level.value,
        "title": annotation.title,
        "message": annotation.message,
    }


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


def _person(comment: Any) -> str | None:
    user = comment.get("user") or {}
    return None if user.get("type") == "Bot" else str(user.get("login") or "")


def _written(found: Any) -> WrittenComment:
    return WrittenComment(
        comment_id=int(found["id"]),
        number=int(str(found["issue_url"]).rsplit("/", 1)[-1]),
        login=str((found.get("user") or {}).get("login") or ""),
        written_at=str(found["created_at"]),
        body=str(found.get("body") or ""),
    )
