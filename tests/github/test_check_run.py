"""One check-run for each run, from its beginning to its end."""

import pytest

from ci.check_run import BEGUN, CheckRun, Conclusion
from ci.errors import GitHubError
from ci.github_event import Branch, RunOrder
from ci.posting import post_check_run, pull_request_of
from tests.builders import sha_of
from tests.github.stand_in import GitHubStandIn

SHA = sha_of(1)
RUN = RunOrder(10, 1)
FAILED = CheckRun(Conclusion.FAILURE, "regressed: 1 regressed", "### what\n\nand how much")
URL = "https://github.example/example/project/actions/runs/10"


def post(github: GitHubStandIn, check: CheckRun, order: RunOrder = RUN, name: str = "roofwatch") -> None:
    post_check_run(github.repository(), SHA, name, order, check, URL)


def test_the_check_run_that_is_in_progress_is_the_one_that_concludes(github: GitHubStandIn) -> None:
    post(github, BEGUN)
    (begun,) = github.check_runs.values()
    assert (begun["status"], begun["conclusion"], begun["head_sha"]) == ("in_progress", None, SHA)

    post(github, FAILED)

    (ended,) = github.check_runs.values()
    assert (ended["status"], ended["conclusion"]) == ("completed", "failure")
    assert ended["output"] == {"title": FAILED.title, "summary": FAILED.summary}
    assert ended["details_url"] == URL


def test_without_a_beginning_it_is_made_at_the_end(github: GitHubStandIn) -> None:
    post(github, FAILED)

    assert [each["conclusion"] for each in github.check_runs.values()] == ["failure"]


def test_a_beginning_that_comes_after_the_end_changes_nothing(github: GitHubStandIn) -> None:
    post(github, FAILED)
    post(github, BEGUN)

    assert [each["status"] for each in github.check_runs.values()] == ["completed"]


def test_another_attempt_and_another_name_have_check_runs_of_their_own(github: GitHubStandIn) -> None:
    post(github, FAILED)
    post(github, BEGUN, RunOrder(10, 2))
    post(github, BEGUN, name="roofwatch H200")

    assert len(github.check_runs) == 3


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_request_that_broke_leaves_one_check_run(github: GitHubStandIn, is_carried_out: bool) -> None:
    github.break_connection("checks/create", is_carried_out=is_carried_out)

    post(github, FAILED)

    assert [each["conclusion"] for each in github.check_runs.values()] == ["failure"]


def test_a_commit_that_github_does_not_have_is_said(github: GitHubStandIn) -> None:
    github.fail("checks/create", 422, f"No commit found for SHA: {SHA}")

    with pytest.raises(GitHubError, match="No commit found for SHA"):
        post(github, FAILED)


def test_the_pull_request_of_a_fork_is_found_by_its_commit(github: GitHubStandIn) -> None:
    branch = Branch("someone", "fix/faster")
    github.pull_requests = [
        {"number": number, "head": {"label": label, "sha": sha}}
        for number, label, sha in (
            (7, "someone:fix/faster", SHA),
            (8, "someone:other", SHA),
            (9, "someone:fix/faster", sha_of(2)),
        )
    ]

    assert pull_request_of(github.repository(), branch, SHA) == 7
    assert pull_request_of(github.repository(), branch, sha_of(3)) is None, "it has moved on"


def test_of_several_pull_requests_with_one_head_none_is_guessed(github: GitHubStandIn) -> None:
    github.pull_requests = [{"number": number, "head": {"label": "a:b", "sha": SHA}} for number in (7, 8)]

    with pytest.raises(GitHubError, match=r"several pull requests have the same head \(7, 8\)"):
        pull_request_of(github.repository(), Branch("a", "b"), SHA)
