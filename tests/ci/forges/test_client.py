"""The GitHub client with errors and rate limits."""

import json
import logging
import time
from dataclasses import replace

import pytest

from roofwatch.ci.forges.check_run import BEGUN
from roofwatch.ci.forges.client import GitHubRepository
from roofwatch.ci.forges.comment import (
    COMMENT_MARKER,
    CommentAction,
    CommentState,
    compose,
    post_comment,
)
from roofwatch.ci.forges.event import RunOrder
from roofwatch.ci.forges.rest import MAX_WAIT_S
from roofwatch.ci.messages import ForgeError
from tests.ci.forges.stand_in import REPOSITORY, TOKEN, Failing, GitHubStandIn
from tests.http_server import Answer

BODY = compose(COMMENT_MARKER, CommentState(order=RunOrder(10, 1)), "slower")
LIST, CREATE, EDIT = "list_comments", "create_comment", "update_comment"


def post(github: GitHubStandIn) -> CommentAction:
    return post_comment(github.repository(), 7, BODY)


REFUSALS = [
    (401, LIST, "the token is not valid"),
    (403, CREATE, "`pull-requests: write`"),
    (404, LIST, "the token may not see it"),
    (422, CREATE, "GitHub rejects the request as invalid"),
]


def refusal_of(github: GitHubStandIn, status: int, operation: str) -> ForgeError:
    """Post to a GitHub that refuses an operation each time."""
    github.fail(operation, status, f"this is why ({TOKEN})", times=9)
    with pytest.raises(ForgeError) as raised:
        post(github)
    return raised.value


@pytest.mark.parametrize(("status", "operation", "advice"), REFUSALS)
def test_a_refusal_is_reported_with_the_way_out(
    github: GitHubStandIn, status: int, operation: str, advice: str
) -> None:
    error = refusal_of(github, status, operation)

    assert f"HTTP {status}" in str(error)
    assert "this is why (***)" in str(error)
    assert advice in str(error)


@pytest.mark.parametrize(("status", "operation", "advice"), REFUSALS)
def test_a_refusal_is_reported_at_once(
    github: GitHubStandIn, waits_s: list[float], *, status: int, operation: str, advice: str
) -> None:
    refusal_of(github, status, operation)

    assert waits_s == []


@pytest.mark.parametrize(("status", "operation", "advice"), REFUSALS)
def test_a_refusal_is_reported_without_the_token(
    github: GitHubStandIn,
    caplog: pytest.LogCaptureFixture,
    *,
    status: int,
    operation: str,
    advice: str,
) -> None:
    caplog.set_level(logging.DEBUG)

    error = refusal_of(github, status, operation)

    assert TOKEN not in caplog.text + repr(error)
    assert error.__cause__ is None


@pytest.mark.parametrize("operation", [LIST, CREATE, EDIT])
def test_a_server_error_is_waited_out_longer_each_time(
    github: GitHubStandIn, waits_s: list[float], operation: str
) -> None:
    if operation == EDIT:
        github.add_comment(BODY.replace("slower", "fine"))
    github.fail(operation, 502, "bad gateway", times=3)

    assert post(github) is (CommentAction.EDITED if operation == EDIT else CommentAction.POSTED)

    # a POST that may have been carried out is not repeated before its result was looked for
    assert waits_s == [4, 8, 16]
    assert github.bodies == [BODY]


@pytest.mark.parametrize(
    ("status", "message", "headers", "wait_s"),
    [
        (403, "You have exceeded a secondary rate limit", {"Retry-After": "37"}, 38),
        (403, "You have exceeded a secondary rate limit", {}, 60),
        (429, "too many requests", {}, 60),
        (
            403,
            "API rate limit exceeded",
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "+120"},
            121,
        ),
    ],
)
@pytest.mark.parametrize("operation", [LIST, CREATE])
def test_a_rate_limit_is_waited_for(
    *,
    github: GitHubStandIn,
    waits_s: list[float],
    operation: str,
    status: int,
    message: str,
    headers: dict[str, str],
    wait_s: float,
) -> None:
    given = {
        name: str(int(time.time()) + int(text)) if text[0] == "+" else text
        for name, text in headers.items()
    }
    github.fail(operation, status, message, headers=given)

    assert post(github) is CommentAction.POSTED
    assert waits_s == pytest.approx([wait_s], abs=2)
    assert github.bodies == [BODY]


def test_a_long_wait_is_logged(
    github: GitHubStandIn, waits_s: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    github.fail(LIST, 429, "too many requests")
    github.fail(LIST, 502, "bad gateway")

    post(github)

    assert len(waits_s) == 2
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "GitHub limits the rate of requests: waiting 60 s"
    ]


VALIDATION = {
    "message": "Validation Failed",
    "errors": [{"message": "body is too long"}, "and more"],
    "status": "422",
}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Answer(200, b"[]", {"Link": '<{url}/next>; rel="next"'}), "has more than 100 pages"),
        (Answer(200, b"<html>Log in first</html>"), "is GITHUB_API_URL correct"),
        (
            Answer(301, b"{}", {"Location": "https://elsewhere.example"}),
            "is GITHUB_REPOSITORY an old name",
        ),
        (
            Answer(422, json.dumps(VALIDATION).encode()),
            "422: Validation Failed; body is too long; and more; GitHub",
        ),
        (
            Answer(429, b"{}", {"Retry-After": "3000"}),
            f"needs 3001 s, and this job waits {MAX_WAIT_S:.0f} s at most",
        ),
    ],
    ids=["list without end", "not GitHub", "redirect", "refusal", "long rate limit"],
)
def test_an_answer_that_cannot_be_used_ends_the_job_at_once(
    github: GitHubStandIn, waits_s: list[float], answer: Answer, complaint: str
) -> None:
    headers = {name: value.replace("{url}", github.url) for name, value in answer.headers.items()}
    github.failing.append(Failing(LIST, replace(answer, headers=headers), times=1_000))

    with pytest.raises(ForgeError, match=complaint):
        post(github)

    assert waits_s == []


def test_a_comment_that_github_never_takes_is_reported_as_github_s_failure(
    github: GitHubStandIn, waits_s: list[float]
) -> None:
    github.fail(CREATE, 502, "bad gateway", times=99)

    with pytest.raises(
        ForgeError, match=r"POST /repos/example/project/issues/7/comments: HTTP 502: bad gateway;"
    ):
        post(github)

    assert waits_s == [4, 8, 16, 32, 64]


def test_a_check_run_is_tried_six_times_over_two_minutes(
    github: GitHubStandIn, waits_s: list[float]
) -> None:
    """It was tried twice within two seconds."""
    github.fail("create_check_run", 500, "oops", times=5)

    github.repository().conclude("0" * 40, "roofwatch", RunOrder(10, 1), BEGUN, None)

    assert waits_s == [4, 8, 16, 32, 64]


def test_a_check_run_that_was_tried_six_times_is_posted_once(
    github: GitHubStandIn, waits_s: list[float]
) -> None:
    github.fail("create_check_run", 500, "oops", times=5)

    github.repository().conclude("0" * 40, "roofwatch", RunOrder(10, 1), BEGUN, None)

    assert len(github.check_runs) == 1


@pytest.mark.parametrize(
    "url", ["http://github.example/api/v3", "ftp://127.0.0.1", "github.example"]
)
def test_the_token_is_not_sent_over_plain_http(url: str) -> None:
    with pytest.raises(ForgeError, match="plain http would reveal the token"):
        GitHubRepository(url, REPOSITORY, TOKEN)
