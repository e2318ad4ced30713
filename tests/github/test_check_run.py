"""One check-run for each run, from its beginning to its end."""

import math
from dataclasses import replace

import pytest

from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github.annotations import Annotation, Level
from roofwatch.ci.github.check_run import BEGUN, CheckRun, Conclusion
from roofwatch.ci.github.event import Branch, RunOrder
from roofwatch.ci.github.posting import post_check_run, pull_request_of
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


def annotated(count: int) -> CheckRun:
    beside = (Annotation(f"kernels/{number}.py", number + 1, Level.FAILURE, "f", "slower") for number in range(count))
    return replace(FAILED, annotations=tuple(beside))


@pytest.mark.parametrize("count", [0, 1, 50, 51, 100])
def test_annotations_are_sent_fifty_at_a_time_and_all_of_them_once(github: GitHubStandIn, count: int) -> None:
    post(github, BEGUN)
    post(github, annotated(count))

    (check_run,) = github.check_runs.values()
    assert [each["path"] for each in check_run["annotations"]] == [f"kernels/{number}.py" for number in range(count)]
    assert github.asked_for("checks/update") == max(1, math.ceil(count / 50))
    assert (check_run["conclusion"], check_run["output"]["title"]) == ("failure", FAILED.title)


def test_an_annotation_names_one_line_of_the_source(github: GitHubStandIn) -> None:
    post(github, annotated(1))

    (check_run,) = github.check_runs.values()
    assert check_run["annotations"] == [
        {
            "path": "kernels/0.py",
            "start_line": 1,
            "end_line": 1,
            "annotation_level": "failure",
            "title": "f",
            "message": "slower",
        }
    ]


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_of_a_request_that_broke_no_annotation_is_missing_or_there_twice(
    github: GitHubStandIn, is_carried_out: bool
) -> None:
    github.break_connection("checks/create", is_carried_out=is_carried_out)

    post(github, annotated(70))

    (check_run,) = github.check_runs.values()
    assert len(check_run["annotations"]) == 70


def test_the_check_run_is_found_on_the_third_page(github: GitHubStandIn) -> None:
    github.page_length = 2
    for run_id in range(1, 6):
        post(github, FAILED, RunOrder(run_id, 1))
    post(github, BEGUN)
    post(github, FAILED)

    assert [each["status"] for each in github.check_runs.values()] == ["completed"] * 6


@pytest.mark.parametrize(
    ("status", "operation", "advice"),
    [
        (401, "checks/list-for-ref", "the token is not valid"),
        (403, "checks/create", "`checks: write`"),
        (404, "checks/list-for-ref", "the token may not see it"),
        (422, "checks/create", "GitHub takes the request for wrong"),
    ],
)
def test_a_refused_check_run_is_said_at_once(github: GitHubStandIn, status: int, operation: str, advice: str) -> None:
    github.fail(operation, status, times=9)

    with pytest.raises(GitHubError, match=f"HTTP {status}") as raised:
        post(github, FAILED)

    assert advice in str(raised.value)
    assert github.waited_s == []


def test_limits_and_errors_of_a_server_are_waited_out_for_check_runs_too(github: GitHubStandIn) -> None:
    github.fail("checks/list-for-ref", 502)
    github.fail("checks/create", 403, "You have exceeded a secondary rate limit", Retry_After="20")
    github.fail("checks/update", 429, X_RateLimit_Remaining="0", X_RateLimit_Reset=str(int(github.now_s) + 30))

    post(github, annotated(60))

    assert github.waited_s == [1, 20, 10]
    (check_run,) = github.check_runs.values()
    assert len(check_run["annotations"]) == 60
