"""What GitHub may answer, and what becomes of it."""

import logging

import pytest

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.client import GitHubRepository
from roofwatch.ci.github.event import RunOrder
from roofwatch.ci.github.posting import Done, post_comment
from roofwatch.ci.github.sticky_comment import body_of
from roofwatch.ci.report.comment import COMMENT_MARKER
from tests.github.stand_in import REPOSITORY, TOKEN, Answer, Failing, GitHubStandIn

BODY = body_of(f"{COMMENT_MARKER}\nslower\n", "roofwatch", RunOrder(10, 1))
LIST, CREATE, EDIT = "issues/list-comments", "issues/create-comment", "issues/update-comment"


def post(github: GitHubStandIn) -> Done:
    return post_comment(github.repository(), 7, BODY)


@pytest.mark.parametrize(
    ("status", "operation", "advice"),
    [
        (401, LIST, "the token is not valid"),
        (403, CREATE, "`pull-requests: write`"),
        (404, LIST, "the token may not see it"),
        (422, CREATE, "GitHub takes the request for wrong"),
    ],
)
def test_what_no_repetition_helps_is_said_at_once_with_the_way_out(
    github: GitHubStandIn, status: int, operation: str, advice: str
) -> None:
    github.fail(operation, status, f"this is why ({TOKEN})", times=9)

    with pytest.raises(GitHubError) as raised:
        post(github)

    assert f"HTTP {status}" in str(raised.value)
    assert "this is why (***)" in str(raised.value)
    assert advice in str(raised.value)
    assert github.waited_s == []


def test_a_token_that_github_does_not_know_is_said_and_not_shown(github: GitHubStandIn) -> None:
    with pytest.raises(GitHubError, match="HTTP 401") as raised:
        post_comment(github.repository(token="another-token"), 7, BODY)

    assert "another-token" not in str(raised.value)


@pytest.mark.parametrize("operation", [LIST, CREATE, EDIT])
def test_a_server_s_error_is_waited_out_longer_each_time(github: GitHubStandIn, operation: str) -> None:
    if operation == EDIT:
        github.add_comment(BODY.replace("slower", "fine"))
    github.fail(operation, 502, "bad gateway", times=3)

    assert post(github) is (Done.EDITED if operation == EDIT else Done.POSTED)

    # what may have been carried out is looked at before it is made again, so each look is a first one
    assert github.waited_s == ([1, 1, 1] if operation == CREATE else [1, 2, 4])
    assert github.bodies == [BODY]


def test_a_server_that_stays_away_ends_in_an_error_that_says_how_often_it_was_asked(github: GitHubStandIn) -> None:
    github.fail(LIST, 503, "unavailable", times=99)

    with pytest.raises(GitHubError, match=r"\(5 attempts\): HTTP 503"):
        post(github)

    assert github.waited_s == [1, 2, 4, 8]


@pytest.mark.parametrize("operation", [LIST, CREATE])
def test_a_secondary_limit_is_waited_out_as_long_as_it_says(github: GitHubStandIn, operation: str) -> None:
    github.fail(operation, 403, "You have exceeded a secondary rate limit", Retry_After="37")

    assert post(github) is Done.POSTED
    assert github.waited_s == [37]
    assert github.bodies == [BODY]


def test_a_secondary_limit_that_says_nothing_is_waited_out_for_a_minute(github: GitHubStandIn) -> None:
    github.fail(CREATE, 403, "You have exceeded a secondary rate limit. Please wait a few minutes.")
    github.fail(EDIT, 429, "too many requests")

    assert post(github) is Done.POSTED
    assert github.waited_s == [60]


def test_the_primary_limit_is_waited_out_until_it_ends(github: GitHubStandIn) -> None:
    resets_at = str(int(github.now_s) + 120)
    github.fail(CREATE, 403, "API rate limit exceeded", X_RateLimit_Remaining="0", X_RateLimit_Reset=resets_at)

    assert post(github) is Done.POSTED
    assert github.waited_s == [121]


def test_a_limit_that_lasts_longer_than_a_job_should_wait_ends_it(github: GitHubStandIn) -> None:
    resets_at = str(int(github.now_s) + 3_000)
    github.fail(LIST, 429, "API rate limit exceeded", X_RateLimit_Remaining="0", X_RateLimit_Reset=resets_at)

    with pytest.raises(GitHubError, match="it asks to wait 3001 s, and this job waits 900 s in all"):
        post(github)

    assert github.waited_s == []


def test_a_connection_that_breaks_is_tried_again(github: GitHubStandIn) -> None:
    github.break_connection(LIST, is_carried_out=True)

    assert post(github) is Done.POSTED


def test_where_nobody_listens_the_error_says_so() -> None:
    repository = GitHubRepository("http://127.0.0.1:9", REPOSITORY, TOKEN, clock=GitHubStandIn("").clock)

    with pytest.raises(GitHubError, match="no answer: ConnectError"):
        repository.comments(7)


@pytest.mark.parametrize("operation", [LIST, CREATE])
@pytest.mark.parametrize("body", [b"<html>Log in first</html>", b'"text"', b"[1]"])
def test_what_github_would_not_answer_is_taken_for_another_server_s(
    github: GitHubStandIn, operation: str, body: bytes
) -> None:
    github.failing.append(Failing(operation, Answer(200, body)))

    with pytest.raises(GitHubError, match="is GITHUB_API_URL that of its interface"):
        post(github)


def test_a_redirect_is_not_followed(github: GitHubStandIn) -> None:
    github.fail(LIST, 301, "Moved Permanently", Location="https://elsewhere.example")

    with pytest.raises(GitHubError, match="does GITHUB_REPOSITORY have its old name"):
        post(github)


@pytest.mark.parametrize("url", ["http://github.example/api/v3", "ftp://127.0.0.1", "github.example"])
def test_the_token_is_sent_nowhere_unprotected(url: str) -> None:
    with pytest.raises(GitHubError, match="plain http would show the token"):
        GitHubRepository(url, REPOSITORY, TOKEN)


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "tökén"])
def test_what_is_no_token_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(GitHubError, match="GITHUB_TOKEN holds what no token does") as raised:
        GitHubRepository("https://api.github.com", REPOSITORY, token)

    assert token not in str(raised.value)


def test_no_log_shows_the_token(github: GitHubStandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    github.fail(LIST, 502, f"echo: Authorization: token {TOKEN}")
    github.fail(CREATE, 403, f"denied to {TOKEN}")

    with pytest.raises(GitHubError) as raised:
        post(github)

    assert TOKEN not in caplog.text + str(raised.value) + repr(raised.value)
    assert raised.value.__cause__ is None
