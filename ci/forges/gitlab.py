"""A merge request's notes and a pipeline's status on GitLab, through python-gitlab.

GitLab starts no job for a comment, so each report looks for new comments that accept its findings.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import gitlab
import requests

from roofwatch.ci.forges.check_run import CheckRun, Conclusion
from roofwatch.ci.forges.event import (
    SHA,
    ActionsRun,
    Comment,
    Job,
    PullRequest,
    RunOrder,
    safe_link,
)
from roofwatch.ci.messages import (
    ForgeError,
    NotFoundError,
    UncertainError,
    may_carry_secrets,
    on_one_line,
)
from roofwatch.model.files import JsonObject

TOKEN_VARIABLE = "GITLAB_TOKEN"  # noqa: S105  the name of the variable, not a token
_DEVELOPER = 30
"""Access level of people who may push."""
# access level of GitLab's members API
_MAINTAINER = 40
_TIMEOUT_S = 30.0
_MAX_MESSAGE = 500
_STATES = {
    None: "running",
    Conclusion.SUCCESS: "success",
    # GitLab has no neutral state; the description says what is undecided
    Conclusion.NEUTRAL: "success",
    Conclusion.FAILURE: "failed",
}
_ADVICE = {
    401: f"{TOKEN_VARIABLE} is not valid, or has expired",
    403: f"{TOKEN_VARIABLE} needs the scope api and the role Developer",
    404: f"it does not exist, or {TOKEN_VARIABLE} may not see it",
}
_Found = TypeVar("_Found")


def job_of(variables: Mapping[str, str]) -> Job:
    """Determine the pipeline, commit and merge request of a job from GitLab's predefined variables.

    Raises:
        ForgeError: this is not a job of GitLab CI, or its pipeline belongs to a fork.
    """
    project = variables.get("CI_PROJECT_ID", "")
    target = variables.get("CI_MERGE_REQUEST_PROJECT_ID")
    number = variables.get("CI_MERGE_REQUEST_IID")
    # in a pipeline for merged results, CI_COMMIT_SHA is the merge
    head_sha = variables.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or variables.get(
        "CI_COMMIT_SHA",
        "",
    )
    try:
        order = RunOrder(
            int(variables.get("CI_PIPELINE_ID", "")),
            int(variables.get("CI_JOB_ID", "")),
        )
        pull_requests: tuple[PullRequest, ...] = ()
        if number:
            branch = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
            pull_requests = (PullRequest(int(number), branch),)
    except ValueError as error:
        raise ForgeError(
            f"CI_PIPELINE_ID, CI_JOB_ID or CI_MERGE_REQUEST_IID: {error}; is this GitLab CI?"
        ) from None
    if not project.isdecimal() or not SHA.fullmatch(head_sha):
        raise ForgeError(
            "CI_PROJECT_ID or CI_COMMIT_SHA is not set: run this in a job of GitLab CI"
        )
    if target not in {None, project}:
        raise ForgeError(
            "this pipeline belongs to the fork, which may not write to the merge request: review "
            "the change and press Run pipeline in the merge request"
        )
    page = safe_link(variables.get("CI_PIPELINE_URL", ""))
    run = ActionsRun(
        api_url=variables.get("CI_SERVER_URL", ""),
        repository=project,
        order=order,
        url=page,
    )
    return Job(
        run,
        head_sha,
        pull_requests=pull_requests,
    )


class GitLabProject:
    """One project on GitLab.com or an own server, with the token of a job's variables.

    Raises:
        ForgeError: there is no token, or it would be sent over plain http.
    """

    starts_jobs_for_comments = False
    number_mark = "!"

    def __init__(self, job: Job, variables: Mapping[str, str]) -> None:
        token = variables.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise ForgeError(
                f"{TOKEN_VARIABLE} is not set: make a project access token, and a CI/CD variable "
                f"with it"
            )
        # the token may write to the project
        if not may_carry_secrets(job.run.api_url):
            raise ForgeError(
                f"CI_SERVER_URL {job.run.api_url[:200]!r} must be https: http would reveal the "
                f"token"
            )
        self._token = token
        self._sha = variables.get("CI_COMMIT_SHA") or job.head_sha
        self._gitlab = gitlab.Gitlab(
            job.run.api_url,
            private_token=token,
            ssl_verify=variables.get("CI_SERVER_TLS_CA_FILE") or True,
            timeout=_TIMEOUT_S,
            retry_transient_errors=True,
            user_agent="roofwatch",
        )
        # not fetched, only addressed: that saves a request
        self._project = self._gitlab.projects.get(job.run.repository, lazy=True)
        self._own_id: int | None = None
        self._author_ids: dict[str, int] = {}

    def pull_requests(self, job: Job) -> Sequence[PullRequest]:
        return job.pull_requests

    def queued_pull_requests(self, _job: Job) -> Sequence[PullRequest]:
        """Return none: the pipeline of a merge train is that of its merge request."""
        return ()

    def comments(self, number: int) -> list[Comment]:
        def read() -> list[Any]:
            notes = self._notes(number).list(
                iterator=True,
                sort="asc",
                per_page=100,
            )
            return list(notes)

        comments: list[Comment] = []
        for note in self._call(read):
            attributes = note.attributes
            # the text of an internal note must not appear in a report, which everybody sees
            if not (attributes.get("system") or attributes.get("internal")):
                comments.append(self._to_comment(attributes, number))
        return comments

    def create_comment(self, number: int, body: str) -> Comment:
        def create() -> Any:
            return self._notes(number).create(
                {"body": _without_commands(body)},
                retry_transient_errors=False,
            )

        return self._to_comment(self._call(create, is_repeatable=False).attributes, number)

    def edit_comment(self, comment: Comment, body: str) -> bool:
        """Replace a comment's text; False if it was deleted."""
        change = {"body": _without_commands(body)}
        notes = self._notes(comment.number)
        edited = self._find(lambda: notes.update(comment.comment_id, change))
        return edited is not None

    def delete_comment(self, comment: Comment) -> None:
        self._find(lambda: self._notes(comment.number).delete(comment.comment_id))

    def may_write(self, login: str) -> bool:
        """Return whether the author of a listed comment has the role Developer or a higher one."""
        return self._access_level(login) >= _DEVELOPER

    def may_administer(self, login: str) -> bool:
        """Return whether the author of a listed comment has the role Maintainer or Owner."""
        return self._access_level(login) >= _MAINTAINER

    def _access_level(self, login: str) -> int:
        if login not in self._author_ids:
            return 0
        member = self._find(lambda: self._project.members_all.get(self._author_ids[login]))
        if member is None or member.state != "active":
            return 0
        return int(member.access_level)

    def author(self, number: int) -> str:
        """Return the login of who opened a merge request."""
        merge_request = self._call(lambda: self._project.mergerequests.get(number))
        author = merge_request.attributes.get("author") or {}
        return str(author.get("username") or "")

    def conclude(
        self,
        head_sha: str,
        name: str,
        order: RunOrder,
        check: CheckRun,
        url: str | None,
    ) -> None:
        """Set the status of this name in the pipeline."""
        # the status belongs to the commit of the pipeline, which may be a merge of the head
        del head_sha
        status: JsonObject = {
            "name": name,
            "state": _STATES[check.conclusion],
            "description": check.title,
            "pipeline_id": order.run_id,
        }
        if url is not None:
            status["target_url"] = url
        commit = self._project.commits.get(self._sha, lazy=True)
        try:
            self._call(lambda: commit.statuses.create(status))
        except ForgeError as error:
            if "Cannot transition status" not in str(error):  # it has this state
                raise

    def _notes(self, number: int) -> Any:
        return self._project.mergerequests.get(number, lazy=True).notes

    def _to_comment(self, note: Mapping[str, Any], number: int) -> Comment:
        """Read a note; only those with our token's author count as ours."""
        if self._own_id is None:
            tokens = self._gitlab.personal_access_tokens
            self._own_id = int(self._call(lambda: tokens.get("self")).user_id)
        author = note["author"]
        self._author_ids[str(author["username"])] = int(author["id"])
        is_ours = author["id"] == self._own_id
        return Comment(
            comment_id=int(note["id"]),
            number=number,
            body=str(note["body"] or ""),
            login=str(author["username"]),
            written_at=str(note["created_at"]),
            is_bot=is_ours,
            is_trusted=is_ours,
            updated_at=str(note["updated_at"]),
        )

    def _find(self, request: Callable[[], Any]) -> Any:
        """Return the answer to a request; None if the object does not exist."""
        try:
            return self._call(request)
        except NotFoundError:
            return None

    def _call(self, request: Callable[[], _Found], *, is_repeatable: bool = True) -> _Found:
        try:
            return request()
        except gitlab.exceptions.GitlabError as error:
            self._refuse(error, error.response_code, is_uncertain=not is_repeatable)
        except requests.RequestException as error:
            self._refuse(error, None, is_uncertain=not is_repeatable)

    def _refuse(
        self,
        error: Exception,
        status: int | None,
        *,
        is_uncertain: bool,
    ) -> NoReturn:
        """Raise the error that fits a status, or no answer, without the token."""
        # an error may quote the request with its headers
        description = f"{type(error).__name__}: {error}"
        message = description.replace(self._token, "***")
        short_message = on_one_line(message)[:_MAX_MESSAGE]
        text = f"GitLab: {short_message}"
        if status in _ADVICE:
            text += f"; {_ADVICE[status]}"
        if status == 404:
            raise NotFoundError(text) from None
        if is_uncertain and (status is None or status >= 500):
            time.sleep(1.0)  # until GitLab lists the result
            raise UncertainError(f"{text}; it is unknown whether this was done") from None
        raise ForgeError(text) from None


def _without_commands(body: str) -> str:
    """Indent lines that GitLab would carry out as quick actions, such as `/close`."""
    return re.sub(r"(?m)^/", " /", body)
