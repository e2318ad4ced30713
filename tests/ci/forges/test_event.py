"""What a job of GitHub Actions is about."""

from typing import Any

import pytest

from roofwatch.ci.forges.event import Comment, PullRequest, RunOrder, command_request, job_of
from roofwatch.ci.messages import ForgeError
from tests.builders import sha_of
from tests.ci.forges.jobs import comment_event, workflow_run_event

HEAD = sha_of(1)
COMMENT = Comment(5, 7, "/roofwatch rerun", "maintainer", "2026-01-02T03:04:05Z", is_trusted=True)


def variables(event_name: str, **given: str) -> dict[str, str]:
    defaults = {
        "GITHUB_API_URL": "https://github.example/api/v3",
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "example/project",
        "GITHUB_RUN_ID": "10",
        "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_SHA": sha_of(5),
        "GITHUB_EVENT_NAME": event_name,
    }
    return defaults | given


def event_of_comment(**fields: Any) -> dict[str, Any]:
    comment = {"id": COMMENT.comment_id, "body": COMMENT.body, "user": {"login": COMMENT.login}}
    return comment_event(
        comment | {"created_at": COMMENT.written_at, "author_association": "OWNER"}, **fields
    )


def test_a_pull_request_event_is_about_its_head_not_the_merge_commit() -> None:
    job = job_of(
        variables("pull_request"),
        {"pull_request": {"number": 7, "head": {"sha": HEAD}, "base": {"ref": "main"}}},
    )

    assert (job.pull_requests, job.head_sha, job.run.order) == (
        (PullRequest(7, "main"),),
        HEAD,
        RunOrder(10, 2),
    )
    assert job.run.api_url == "https://github.example/api/v3"
    assert job.run.url == "https://github.example/example/project/actions/runs/10"


def test_after_a_workflow_of_a_fork_the_pull_request_is_found_by_its_branch() -> None:
    job = job_of(variables("workflow_run"), workflow_run_event("completed", HEAD, "failure"))

    assert (job.pull_requests, job.head_label) == ((), "someone:slower")
    assert (job.head_sha, job.run.order, job.conclusion) == (HEAD, RunOrder(4_242, 1), "failure")


def test_after_a_workflow_of_the_repository_itself_the_event_names_the_pull_request() -> None:
    named = [{"number": 7, "head": {"sha": HEAD}}, {"number": 8, "head": {"sha": sha_of(2)}}]

    job = job_of(
        variables("workflow_run"), workflow_run_event("completed", HEAD, pull_requests=named)
    )

    assert job.pull_requests == (PullRequest(7),)


@pytest.mark.parametrize("is_after", [False, True], ids=["in the run", "after the run"])
def test_a_merge_queue_names_its_pull_request_in_the_branch(is_after: bool) -> None:
    branch = f"gh-readonly-queue/releases/1.0/pr-7-{sha_of(0)}"
    name, event = "merge_group", {"merge_group": {"head_ref": f"refs/heads/{branch}"}}
    if is_after:
        name, event = (
            "workflow_run",
            workflow_run_event("completed", HEAD, event="merge_group", head_branch=branch),
        )

    job = job_of(variables(name, GITHUB_SHA=HEAD), event)

    assert (job.head_sha, job.pull_requests) == (HEAD, ())
    assert job.queued == PullRequest(7, "releases/1.0")


@pytest.mark.parametrize(
    ("event", "branch"),
    [
        ("pull_request", f"gh-readonly-queue/main/pr-7-{sha_of(0)}"),
        ("merge_group", f"gh-readonly-queue/main/pr-7x-{sha_of(0)}"),
        ("merge_group", "main"),
    ],
)
def test_only_the_branch_of_a_merge_queue_names_one(event: str, branch: str) -> None:
    found = workflow_run_event("completed", HEAD, event=event, head_branch=branch)

    assert job_of(variables("workflow_run"), found).queued is None


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("pull_request", {}),
        ("pull_request", {"pull_request": {"number": "seven", "head": {"sha": HEAD}}}),
        ("pull_request", {"pull_request": {"number": 7, "head": {"sha": "main; rm -rf /"}}}),
        ("workflow_run", {"workflow_run": None}),
        ("workflow_run", workflow_run_event("completed", "HEAD")),
    ],
)
def test_an_invalid_event_is_refused(name: str, event: dict[str, Any]) -> None:
    with pytest.raises(ForgeError, match="GITHUB_EVENT_PATH is not valid"):
        job_of(variables(name), event)


@pytest.mark.parametrize("repository", ["", "project", "../evil", "a/..", "a/b/c", "a/b?x=1"])
def test_a_malformed_repository_is_refused(repository: str) -> None:
    with pytest.raises(ForgeError, match="GITHUB_REPOSITORY"):
        job_of(variables("push", GITHUB_REPOSITORY=repository), {})


def test_only_a_new_comment_on_a_pull_request_is_a_command() -> None:
    found = command_request(variables("issue_comment"), event_of_comment())

    assert found is not None
    assert found.comment == COMMENT
    assert (
        command_request(variables("issue_comment"), event_of_comment(issue={"number": 7})) is None
    )
    assert command_request(variables("issue_comment"), event_of_comment(action="edited")) is None
    with pytest.raises(ForgeError, match="commands come from comments"):
        command_request(variables("pull_request"), {})
    with pytest.raises(ForgeError, match="GITHUB_EVENT_PATH is not valid"):
        command_request(
            variables("issue_comment"), {"action": "created", "issue": {"pull_request": {}}}
        )
