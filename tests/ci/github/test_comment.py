"""Keeping one comment on a pull request."""

import pytest

from roofwatch.ci.github.comment import (
    CommentAction,
    CommentState,
    compose,
    is_name,
    post_comment,
    report_marker,
)
from roofwatch.ci.github.event import RunOrder
from tests.ci.github.stand_in import GitHubStandIn

NUMBER = 7
FIRST, SECOND, THIRD = (RunOrder(run_id, 1) for run_id in (10, 11, 12))


def comment_body(text: str, order: RunOrder = FIRST, name: str = "roofwatch") -> str:
    return compose(report_marker(name), CommentState(order=order), text)


def post(github: GitHubStandIn, text: str, order: RunOrder = FIRST, *, is_silent: bool = False) -> CommentAction:
    return post_comment(github.repository(), NUMBER, comment_body(text, order), is_silent=is_silent)


def test_a_comment_is_posted_once_and_edited_from_then_on(github: GitHubStandIn) -> None:
    assert post(github, "slower") is CommentAction.POSTED
    assert post(github, "fine again", SECOND) is CommentAction.EDITED

    assert github.bodies == [comment_body("fine again", SECOND)]
    assert github.requests.count("create_comment") == 1


def test_the_comment_is_found_on_the_third_page(github: GitHubStandIn) -> None:
    github.page_length = 10
    for count in range(24):
        github.add_comment(f"comment {count}", user={"login": "someone", "type": "User"})
    ours = github.add_comment(comment_body("slower"))

    assert post(github, "fine again", SECOND) is CommentAction.EDITED

    assert github.comments[ours]["body"] == comment_body("fine again", SECOND)
    assert len(github.comments) == 25


def test_comments_of_strangers_other_pull_requests_and_other_reports_are_left_alone(github: GitHubStandIn) -> None:
    others = [
        github.add_comment(comment_body("slower"), number=8),
        github.add_comment(comment_body("slower", name="H200")),
        github.add_comment(comment_body("slower"), user={"login": "someone", "type": "User"}),
        github.add_comment(f"> {comment_body('slower')}"),
        github.add_comment(f"{report_marker('roofwatch')}\n### pasted by a maintainer"),
    ]
    before = [github.comments[number]["body"] for number in others]

    assert post(github, "here") is CommentAction.POSTED

    assert [github.comments[number]["body"] for number in others] == before


def test_a_silent_report_updates_a_comment_but_posts_none(github: GitHubStandIn) -> None:
    assert post(github, "nothing changed", is_silent=True) is CommentAction.LEFT
    assert github.bodies == []

    post(github, "slower", SECOND)
    assert post(github, "nothing changed", THIRD, is_silent=True) is CommentAction.EDITED
    assert github.bodies == [comment_body("nothing changed", THIRD)]


def test_a_late_older_run_changes_nothing(github: GitHubStandIn) -> None:
    post(github, "fine again", SECOND)

    assert post(github, "slower", FIRST) is CommentAction.LEFT
    assert github.bodies == [comment_body("fine again", SECOND)]


def test_two_comments_of_simultaneous_jobs_become_one(github: GitHubStandIn) -> None:
    oldest = github.add_comment(comment_body("one", FIRST))
    github.add_comment(comment_body("two", SECOND))

    post(github, "three", THIRD)

    assert list(github.comments) == [oldest]
    assert github.bodies == [comment_body("three", THIRD)]


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_broken_post_is_repeated_only_if_it_was_not_carried_out(
    github: GitHubStandIn, waits_s: list[float], is_carried_out: bool
) -> None:
    github.break_connection("create_comment", is_carried_out=is_carried_out)

    post(github, "slower")

    assert waits_s == [1]
    assert github.bodies == [comment_body("slower")]
    assert github.requests.count("create_comment") == (1 if is_carried_out else 2)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("H200 (nightly)", True), ("", False), ("a --> b", False), ("a\nb", False), ("x" * 61, False)],
)
def test_a_name_is_short_and_closes_no_marker(name: str, expected: bool) -> None:
    assert is_name(name) is expected
