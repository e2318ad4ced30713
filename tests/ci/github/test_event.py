"""What a job of GitHub Actions is about, and the command in a comment."""

from typing import Any

import pytest

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.event import (
    Branch,
    Command,
    CommandError,
    RunOrder,
    Verb,
    WrittenComment,
    command_request,
    is_name,
    job_of,
    parse_command,
)
from tests.builders import sha_of
from tests.ci.github.jobs import workflow_run_event

HEAD = sha_of(1)
COMMENT = WrittenComment(5, 7, "maintainer", "2026-01-02T03:04:05Z", "/roofwatch rerun")


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


def comment_event(**fields: Any) -> dict[str, Any]:
    return {
        "action": "created",
        "issue": {"number": COMMENT.number, "pull_request": {"url": "https://api.github.example/pulls/7"}},
        "comment": {
            "id": COMMENT.comment_id,
            "body": COMMENT.body,
            "user": {"login": COMMENT.login},
            "created_at": COMMENT.written_at,
            "author_association": "OWNER",
        },
        "repository": {"default_branch": "main"},
    } | fields


def test_a_pull_request_event_names_its_number_and_its_head_not_the_merge_commit() -> None:
    job = job_of(variables("pull_request"), {"pull_request": {"number": 7, "head": {"sha": HEAD}}})

    assert (job.pull_request, job.head_sha, job.run.order) == (7, HEAD, RunOrder(10, 2))
    assert job.run.api_url == "https://github.example/api/v3"
    assert job.run.url == "https://github.example/example/project/actions/runs/10"


def test_after_a_workflow_of_a_fork_the_pull_request_is_found_by_its_branch() -> None:
    job = job_of(variables("workflow_run"), workflow_run_event("completed", HEAD, "failure"))

    assert (job.pull_request, job.head_branch) == (None, Branch("someone", "slower"))
    assert (job.head_sha, job.run.order, job.conclusion) == (HEAD, RunOrder(4_242, 1), "failure")


def test_after_a_workflow_of_the_repository_itself_the_event_names_the_pull_request() -> None:
    named = [{"number": 7, "head": {"sha": HEAD}}, {"number": 8, "head": {"sha": sha_of(2)}}]

    job = job_of(variables("workflow_run"), workflow_run_event("completed", HEAD, pull_requests=named))

    assert (job.pull_request, job.head_branch) == (7, None)


@pytest.mark.parametrize("event", ["push", "schedule", "workflow_dispatch"])
def test_without_a_pull_request_there_is_the_commit(event: str) -> None:
    job = job_of(variables(event), {})
    after = job_of(variables("workflow_run"), workflow_run_event("completed", HEAD, event=event))

    assert (job.pull_request, job.head_branch, job.head_sha) == (None, None, sha_of(5))
    assert (after.pull_request, after.head_branch, after.head_sha) == (None, None, HEAD)


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
def test_an_event_of_another_form_is_refused(name: str, event: dict[str, Any]) -> None:
    with pytest.raises(GitHubError, match="does not say what it should"):
        job_of(variables(name), event)


@pytest.mark.parametrize("repository", ["", "project", "../evil", "a/..", "a/b/c", "a/b?x=1"])
def test_a_malformed_repository_is_refused(repository: str) -> None:
    with pytest.raises(GitHubError, match="GITHUB_REPOSITORY is"):
        job_of(variables("push", GITHUB_REPOSITORY=repository), {})


def test_a_link_that_would_not_stay_one_in_markdown_is_left_out() -> None:
    event = workflow_run_event("completed", HEAD, html_url="https://github.example) [click](https://evil.example")

    assert job_of(variables("workflow_run"), event).run.url is None


def test_only_a_new_comment_on_a_pull_request_is_a_command() -> None:
    found = command_request(variables("issue_comment"), comment_event())

    assert found is not None
    assert (found.comment, found.default_branch) == (COMMENT, "main")
    assert command_request(variables("issue_comment"), comment_event(issue={"number": 7})) is None
    assert command_request(variables("issue_comment"), comment_event(action="edited")) is None
    with pytest.raises(GitHubError, match="commands come from comments"):
        command_request(variables("pull_request"), {})
    with pytest.raises(GitHubError, match="does not say what it should"):
        command_request(variables("issue_comment"), {"action": "created", "issue": {"pull_request": {}}})


def test_a_reason_is_the_rest_of_the_line_cut_to_what_can_be_shown() -> None:
    assert parse_command("  /roofwatch   accept  a   b \r\n c") == Command(Verb.ACCEPT, "a b")
    cut = parse_command(f"/roofwatch accept {'x' * 900}")
    assert cut is not None
    assert len(cut.rest) == 200


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("", "that is no command; there are"),
        (" aprove", "that is no command; there are"),
        (" accept  \nbecause", "say why it is accepted"),
        (" rerun now", "takes nothing behind it"),
        (" bisect --good x", "name a case and an implementation"),
        (f" bisect {'x' * 301}", "name a case and an implementation"),
    ],
)
def test_what_begins_like_a_command_and_is_none_says_how_to_write_one(rest: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        parse_command(f"/roofwatch{rest}")


@pytest.mark.parametrize("body", ["looks good", "I would /roofwatch accept", "> /roofwatch rerun", "/roofwatchful", ""])
def test_other_comments_are_no_commands(body: str) -> None:
    assert parse_command(body) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("roofwatch", True),
        ("H200 (nightly)", True),
        ("", False),
        ("a --> b", False),
        ("a\nb", False),
        ("x" * 61, False),
    ],
)
def test_a_name_is_short_and_closes_no_marker(name: str, expected: bool) -> None:
    assert is_name(name) is expected
