"""Issues for regressions, on a fake GitHub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from roofwatch.ci.forges.regression_issues import LABEL, synchronise
from roofwatch.ci.messages import ForgeError
from roofwatch.ci.watching.issues import plan_issues
from roofwatch.ci.watching.news import News, NewsKind
from tests.builders import sha_of
from tests.ci.forges.stand_in import GitHubStandIn, open_github


@pytest.fixture
def github() -> Iterator[GitHubStandIn]:
    with open_github() as stand_in:
        yield stand_in


def news(kind: NewsKind = NewsKind.REGRESSED, number: int = 4, *kernels: str) -> News:
    return News(
        kind=kind,
        kernels=kernels or ("rms_norm",),
        sha=sha_of(number),
        subject="Unroll `the` loop <!-- x -->",
        base_count=3,
        head_count=4,
        text="+31.0% on 4 series",
    )


def post(github: GitHubStandIn, *told: News, owners: Sequence[str] = ()) -> list[str]:
    issues = plan_issues(told, lambda _: owners)
    return list(synchronise(github.repository(), issues, ["performance"]))


def test_a_regression_opens_one_issue(github: GitHubStandIn) -> None:
    post(github, news())
    post(github, news())

    (issue,) = github.issues.values()
    assert issue["title"] == f"Slower since {sha_of(4)[:8]}: rms_norm"
    assert [label["name"] for label in issue["labels"]] == [LABEL, "performance"]
    assert "+31.0% on 4 series" in issue["body"]
    assert "`Unroll 'the' loop <!-- x -->`" in issue["body"], "a commit's subject is no markup"


def test_a_suspicion_opens_none(github: GitHubStandIn) -> None:
    assert post(github, news(NewsKind.UNCONFIRMED)) == []
    assert github.issues == {}


def test_users_among_the_owners_are_assigned(github: GitHubStandIn) -> None:
    post(github, news(), owners=["@someone", "@example/team", "a@example.org"])

    (issue,) = github.issues.values()
    assert issue["assignees"] == ["someone"]
    assert "@example/team" in issue["body"]


def test_an_owner_that_cannot_be_assigned_costs_no_issue(github: GitHubStandIn) -> None:
    github.fail("create_issue", 422, "assignees are invalid")
    post(github, news(), owners=["@gone"])

    (issue,) = github.issues.values()
    assert issue["assignees"] == []


def test_a_located_commit_is_told_once(github: GitHubStandIn) -> None:
    post(github, news())
    post(github, news(), news(NewsKind.LOCATED))
    post(github, news(), news(NewsKind.LOCATED))

    (comment,) = github.comments.values()
    assert sha_of(4) in comment["body"]


def test_recovery_closes_the_issue(github: GitHubStandIn) -> None:
    post(github, news())
    done = post(github, news(), news(NewsKind.RECOVERED))

    (issue,) = github.issues.values()
    assert issue["state"] == "closed"
    assert len(done) == 1
    assert post(github, news(), news(NewsKind.RECOVERED)) == []


def test_a_closed_issue_is_not_opened_again(github: GitHubStandIn) -> None:
    post(github, news())
    (issue,) = github.issues.values()
    issue["state"] = "closed"

    assert post(github, news(), news(NewsKind.LOCATED)) == []
    assert len(github.issues) == 1
    assert github.comments == {}


def test_a_regression_that_is_over_opens_none(github: GitHubStandIn) -> None:
    assert post(github, news(), news(NewsKind.RECOVERED)) == []
    assert github.issues == {}


def test_a_strangers_issue_with_our_marker_is_ignored(github: GitHubStandIn) -> None:
    post(github, news())
    (issue,) = github.issues.values()
    issue["user"] = {"login": "stranger", "type": "User"}

    assert len(post(github, news())) == 1
    assert len(github.issues) == 2


def test_the_next_run_continues_after_an_error(github: GitHubStandIn) -> None:
    github.fail("create_issue", 403, "no permission", times=5)
    with pytest.raises(ForgeError, match="no permission"):
        post(github, news())
    github.failing.clear()

    assert len(post(github, news())) == 1
    assert len(github.issues) == 1
