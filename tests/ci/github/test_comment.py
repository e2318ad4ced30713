"""One comment on a pull request, whatever happens meanwhile."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.client import GitHubRepository
from roofwatch.ci.github.comment import (
    CommentAction,
    CommentPlan,
    CommentState,
    compose,
    is_name,
    plan_comment,
    post_comment,
    report_marker,
)
from roofwatch.ci.github.event import Comment, RunOrder
from roofwatch.ci.report.comment import COMMENT_MARKER
from tests.ci.github.stand_in import REPOSITORY, TOKEN, GitHubStandIn

NUMBER = 7
FIRST, SECOND, THIRD = (RunOrder(run_id, 1) for run_id in (10, 11, 12))


def said(text: str, order: RunOrder = FIRST, name: str = "roofwatch") -> str:
    return compose(report_marker(name), CommentState(order=order), text)


def post(github: GitHubStandIn, text: str, order: RunOrder = FIRST, *, is_silent: bool = False) -> CommentAction:
    return post_comment(github.repository(), NUMBER, said(text, order), is_silent=is_silent)


def comment_of(comment_id: int, body: str) -> Comment:
    return Comment(comment_id, NUMBER, body, "bot", "2026-01-02T03:04:05Z", is_bot=True, is_trusted=True)


def test_a_comment_is_posted_once_and_edited_from_then_on(github: GitHubStandIn) -> None:
    assert post(github, "slower") is CommentAction.POSTED
    assert post(github, "fine again", SECOND) is CommentAction.EDITED

    assert github.bodies == [said("fine again", SECOND)]
    assert github.asked_for("issues/create-comment") == 1


def test_the_comment_is_found_on_the_third_page(github: GitHubStandIn) -> None:
    github.page_length = 10
    for count in range(24):
        github.add_comment(f"comment {count}", user={"login": "someone", "type": "User"})
    ours = github.add_comment(said("slower"))

    assert post(github, "fine again", SECOND) is CommentAction.EDITED

    assert github.comments[ours]["body"] == said("fine again", SECOND)
    assert len(github.comments) == 25


def test_comments_of_strangers_other_pull_requests_and_other_reports_are_left_alone(github: GitHubStandIn) -> None:
    others = [
        github.add_comment(said("slower"), number=8),
        github.add_comment(said("slower", name="H200")),
        github.add_comment(said("slower"), user={"login": "someone", "type": "User"}),
        github.add_comment(f"> {said('slower')}"),
    ]
    before = [github.comments[number]["body"] for number in others]

    assert post(github, "here") is CommentAction.POSTED

    assert [github.comments[number]["body"] for number in others] == before


def test_what_is_not_worth_a_comment_corrects_one_and_posts_none(github: GitHubStandIn) -> None:
    assert post(github, "nothing changed", is_silent=True) is CommentAction.LEFT
    assert github.bodies == []

    post(github, "slower", SECOND)
    assert post(github, "nothing changed", THIRD, is_silent=True) is CommentAction.EDITED
    assert github.bodies == [said("nothing changed", THIRD)]


def test_the_same_again_asks_for_no_edit(github: GitHubStandIn) -> None:
    github.add_comment(said("slower").replace("\n", "\r\n"))

    assert post(github, "slower") is CommentAction.LEFT
    assert github.asked_for("issues/update-comment") == 0


def test_an_older_run_that_comes_late_changes_nothing(github: GitHubStandIn) -> None:
    post(github, "fine again", SECOND)

    assert post(github, "slower", FIRST) is CommentAction.LEFT
    assert github.bodies == [said("fine again", SECOND)]


def test_a_comment_that_is_deleted_before_it_is_edited_is_posted_anew(github: GitHubStandIn) -> None:
    github.add_comment(said("slower"))
    github.before["issues/update-comment"] = github.comments.clear

    assert post(github, "fine again", SECOND) is CommentAction.POSTED
    assert github.bodies == [said("fine again", SECOND)]


def test_a_comment_that_can_never_be_edited_ends_in_an_error(github: GitHubStandIn) -> None:
    github.add_comment(said("slower"))
    github.fail("issues/update-comment", 404, times=20)

    with pytest.raises(GitHubError, match="is something deleting it"):
        post(github, "fine again", SECOND)


def test_two_jobs_that_both_found_nothing_leave_one_comment(github: GitHubStandIn) -> None:
    both_have_looked = threading.Barrier(2)

    class Simultaneous(GitHubRepository):
        def create_comment(self, number: int, body: str) -> Comment:
            both_have_looked.wait(timeout=30)
            return super().create_comment(number, body)

    jobs = [(Simultaneous(github.url, REPOSITORY, TOKEN), said(f"run {order}", order)) for order in (FIRST, SECOND)]
    threads = [threading.Thread(target=post_comment, args=(repository, NUMBER, body)) for repository, body in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert github.asked_for("issues/create-comment") == 2
    assert github.bodies == [said(f"run {SECOND}", SECOND)]


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_post_that_broke_is_repeated_only_if_it_was_not_carried_out(
    github: GitHubStandIn, waits_s: list[float], is_carried_out: bool
) -> None:
    github.break_connection("issues/create-comment", is_carried_out=is_carried_out)

    post(github, "slower")

    assert waits_s == [1]
    assert github.bodies == [said("slower")]
    assert github.asked_for("issues/create-comment") == (1 if is_carried_out else 2)


def test_a_comment_that_is_not_listed_yet_is_not_posted_again(github: GitHubStandIn) -> None:
    class Lagging(GitHubRepository):
        def comments(self, number: int) -> list[Comment]:
            return super().comments(number)[:0]

    assert post_comment(Lagging(github.url, REPOSITORY, TOKEN), NUMBER, said("slower")) is CommentAction.POSTED
    assert github.bodies == [said("slower")]


@given(
    present=st.lists(st.sampled_from([FIRST, SECOND, THIRD]), max_size=4), order=st.sampled_from([FIRST, SECOND, THIRD])
)
def test_at_most_one_comment_is_left_that_is_older_or_of_this_run(present: list[RunOrder], order: RunOrder) -> None:
    comments = [comment_of(number, said("earlier", of)) for number, of in enumerate(present)]

    plan = plan_comment(comments, said("now", order))

    assert plan.is_new == (not present)
    left = [one for one in comments if one.comment_id not in plan.delete]
    newer = [of for of in present if of > order]
    assert (plan.edit is None) == (not present or bool(newer))
    assert left[:1] == comments[:1]
    assert len(left) <= 1 + len(newer)
    assert not any(present[comment_id] > order for comment_id in plan.delete), "it may be all that the newer run left"


def test_a_comment_without_a_run_is_older_than_any() -> None:
    old = comment_of(5, f"{COMMENT_MARKER}\nslower\n")

    assert plan_comment([old], said("now")) == CommentPlan(edit=5, is_new=False, delete=())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("H200 (nightly)", True), ("", False), ("a --> b", False), ("a\nb", False), ("x" * 61, False)],
)
def test_a_name_is_short_and_closes_no_marker(name: str, expected: bool) -> None:
    assert is_name(name) is expected
