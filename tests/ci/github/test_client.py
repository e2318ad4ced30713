"""What a job is about, when to ask again, and which comment to edit: the pure parts of telling GitHub."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.event import Branch, RunOrder, job_of
from roofwatch.ci.github.retry import MAX_ATTEMPTS, Failure
from roofwatch.ci.github.sticky_comment import Comment, Plan, body_of, is_name, make_plan, without_marker
from roofwatch.ci.report.comment import COMMENT_MARKER
from tests.builders import sha_of
from tests.github.jobs import workflow_run_event

HEAD = sha_of(1)
ORDERS = [RunOrder(run_id, 1) for run_id in (10, 11, 12)]


# --- the event


def variables(**given: str) -> dict[str, str]:
    defaults = {
        "GITHUB_API_URL": "https://github.example/api/v3",
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "example/project",
        "GITHUB_RUN_ID": "10",
        "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_SHA": sha_of(5),
    }
    return defaults | given


def test_a_pull_request_event_names_its_number_and_its_head_not_the_merge_commit() -> None:
    event = {"pull_request": {"number": 7, "head": {"sha": HEAD}}}

    job = job_of(variables(GITHUB_EVENT_NAME="pull_request"), event)

    assert (job.pull_request, job.head_sha, job.order) == (7, HEAD, RunOrder(10, 2))
    assert job.api_url == "https://github.example/api/v3"
    assert job.run_url == "https://github.example/example/project/actions/runs/10"


def test_after_a_fork_s_workflow_the_pull_request_is_found_by_its_branch() -> None:
    event = workflow_run_event("completed", HEAD, "failure")

    job = job_of(variables(GITHUB_EVENT_NAME="workflow_run"), event)

    assert (job.pull_request, job.head_branch) == (None, Branch("someone", "slower"))
    assert (job.head_sha, job.order, job.conclusion) == (HEAD, RunOrder(4_242, 1), "failure")


def test_after_a_workflow_of_the_repository_itself_the_event_names_the_pull_request() -> None:
    named = [{"number": 7, "head": {"sha": HEAD}}, {"number": 8, "head": {"sha": sha_of(2)}}]

    job = job_of(
        variables(GITHUB_EVENT_NAME="workflow_run"), workflow_run_event("completed", HEAD, pull_requests=named)
    )

    assert (job.pull_request, job.head_branch) == (7, None)


@pytest.mark.parametrize("event", ["push", "schedule", "workflow_dispatch"])
def test_where_there_is_no_pull_request_there_is_the_commit(event: str) -> None:
    job = job_of(variables(GITHUB_EVENT_NAME=event), {})

    assert (job.pull_request, job.head_branch, job.head_sha) == (None, None, sha_of(5))


def test_a_push_that_started_the_other_workflow_has_no_pull_request() -> None:
    event = workflow_run_event("completed", HEAD, event="push")

    job = job_of(variables(GITHUB_EVENT_NAME="workflow_run"), event)

    assert (job.pull_request, job.head_branch) == (None, None)


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
def test_an_event_that_does_not_say_what_it_should_is_refused(name: str, event: dict[str, Any]) -> None:
    with pytest.raises(GitHubError, match="does not say what it should"):
        job_of(variables(GITHUB_EVENT_NAME=name), event)


@pytest.mark.parametrize("repository", ["", "project", "../evil", "a/..", "a/b/c", "a/b?x=1"])
def test_what_is_no_repository_is_refused(repository: str) -> None:
    with pytest.raises(GitHubError, match="GITHUB_REPOSITORY is"):
        job_of(variables(GITHUB_REPOSITORY=repository, GITHUB_EVENT_NAME="push"), {})


def test_a_link_that_would_not_stay_one_in_markdown_is_left_out() -> None:
    event = workflow_run_event("completed", HEAD, html_url="https://github.example) [click](https://evil.example")

    assert job_of(variables(GITHUB_EVENT_NAME="workflow_run"), event).run_url is None


# --- asking again


@pytest.mark.parametrize(
    ("failure", "wait_s"),
    [
        (Failure(None, "the connection broke"), 1.0),
        (Failure(502, "bad gateway"), 1.0),
        (Failure(503, "busy", {"retry-after": "9"}), 9.0),
        (Failure(429, "busy"), 60.0),
        (Failure(403, "secondary rate limit"), 60.0),
        (Failure(403, "secondary rate limit", {"retry-after": "5"}), 5.0),
        (Failure(403, "", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "130"}), 31.0),
        (Failure(403, "", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "50"}), 1.0),
        (Failure(403, "", {"x-ratelimit-remaining": "12"}), None),
        (Failure(400, "no"), None),
        (Failure(401, "no"), None),
        (Failure(404, "no"), None),
        (Failure(422, "no"), None),
        (Failure(501, "no"), None),
    ],
)
def test_how_long_to_wait_follows_from_what_github_said(failure: Failure, wait_s: float | None) -> None:
    assert failure.wait_s(1, now_s=100.0) == wait_s


def test_each_wait_for_a_server_is_twice_the_last_and_there_is_an_end() -> None:
    waits = [Failure(502, "").wait_s(attempt, now_s=0.0) for attempt in range(1, MAX_ATTEMPTS + 1)]

    assert waits == [1, 2, 4, 8, None]


@pytest.mark.parametrize("text", ["soon", "", "-5", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_wait_that_is_no_number_is_never_negative_or_an_error(text: str) -> None:
    wait_s = Failure(429, "", {"retry-after": text}).wait_s(1, now_s=0.0)

    assert wait_s is not None
    assert wait_s >= 0


# --- which comment


def said(text: str, order: RunOrder) -> str:
    return body_of(f"{COMMENT_MARKER}\n{text}\n", "roofwatch", order)


def comment(comment_id: int, order: RunOrder, text: str = "slower") -> Comment:
    return Comment(comment_id, said(text, order), is_trusted=True)


def test_the_marks_are_invisible_and_the_rest_is_the_comment() -> None:
    lines = said("slower", ORDERS[0]).splitlines()

    assert lines == ["<!-- roofwatch:report -->", "<!-- roofwatch:run 10.1 -->", "slower"]
    assert without_marker(f"{COMMENT_MARKER}\nslower\n") == "slower\n"


@given(present=st.lists(st.sampled_from(ORDERS), max_size=4), order=st.sampled_from(ORDERS))
def test_what_is_left_is_never_more_than_one_that_is_older_or_of_this_run(
    present: list[RunOrder], order: RunOrder
) -> None:
    comments = [comment(comment_id, of, "earlier") for comment_id, of in enumerate(present)]

    plan = make_plan(comments, said("now", order))

    assert plan.is_new == (not present)
    left = [each for each in comments if each.comment_id not in plan.delete]
    newer = [of for of in present if of > order]
    assert (plan.edit is None) == (not present or bool(newer))
    assert [each.comment_id for each in left][:1] == [each.comment_id for each in comments][:1]
    assert len(left) <= 1 + len(newer)
    assert not any(present[comment_id] > order for comment_id in plan.delete), "it may be all that the newer run left"


def test_a_comment_from_before_runs_were_marked_is_older_than_any() -> None:
    old = Comment(5, f"{COMMENT_MARKER}\nslower\n", is_trusted=True)

    assert make_plan([old], said("now", ORDERS[0])) == Plan(edit=5, is_new=False, delete=())


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
def test_a_name_is_short_and_closes_no_mark(name: str, expected: bool) -> None:
    assert is_name(name) is expected
