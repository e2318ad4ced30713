"""Several runners or suites of one commit: one comment and one check."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.ci.forges.event import ActionsRun, Job, PullRequest, RunOrder
from roofwatch.pull_requests.posting import Posted, post, report_on, reports_on
from tests.builders import sha_of
from tests.ci.forges.stand_in import REPOSITORY, GitHubStandIn
from tests.ci.situations import SITUATIONS, write_records

HEAD = sha_of(1)


def job(github: GitHubStandIn, run_id: int = 10) -> Job:
    run = ActionsRun(github.url, REPOSITORY, RunOrder(run_id, 1), None)
    return Job(run, HEAD, pull_requests=(PullRequest(7, "main"),))


def post_parts(
    github: GitHubStandIn,
    folder: Path,
    parts: dict[str, str],
    *expected: str,
    run_id: int = 10,
) -> Posted:
    """Post situations by name of the artifact, as a job takes artifacts over."""
    for name, situation in parts.items():
        artifact = folder / f"roofwatch-records-{name}"
        artifact.mkdir(parents=True)
        write_records(artifact, SITUATIONS[situation]())
    current = job(github, run_id)
    reports = reports_on(folder, lambda path: report_on([path], current), expected)
    return post(
        github.repository(),
        current,
        reports,
        "roofwatch",
        with_comment=True,
        with_check=True,
        expected=expected,
    )


def test_two_runners_share_a_report_the_worst_first(github: GitHubStandIn, tmp_path: Path) -> None:
    """Two folders in one artifact were neutral: needs a pair of base and head."""
    posted = post_parts(github, tmp_path, {"hosted": "improvement", "h200": "regression"})

    (body,), (check,) = github.bodies, github.check_runs.values()
    assert (posted.check_run, check["conclusion"]) == ("failure", "failure")
    assert check["output"]["title"].startswith("h200: 2 of 3 benchmarks slower")
    assert body.index("#### `h200`: ❌") < body.index("#### `hosted`: ✅")
    assert body.count("\n### ") == 1


def test_the_result_of_another_job_for_the_same_commit_joins_the_report(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    post_parts(github, tmp_path / "first", {"pull-request": "improvement"})
    alone = github.bodies[0]

    joined = post_parts(
        github, tmp_path / "second", {"h200": "regression", "x": "improvement"}, run_id=20
    )
    fixed = post_parts(
        github, tmp_path / "third", {"h200": "improvement", "x": "improvement"}, run_id=30
    )

    (body,) = github.bodies
    assert "####" not in alone
    assert (joined.check_run, fixed.check_run) == ("failure", "success")
    assert [body.count(f"#### `{name}`") for name in ("default", "h200", "x")] == [1, 1, 1]
    assert "slower" not in body


@pytest.mark.parametrize("named", ["hosted", "h200"])
def test_what_is_missing_is_no_success(github: GitHubStandIn, tmp_path: Path, named: str) -> None:
    parts = {"hosted": "improvement", "other": "improvement"}
    posted = post_parts(github, tmp_path / "first", parts, "hosted", "h200")

    assert posted.check_run == "neutral"
    assert "**Missing:** `h200`: no result of this commit yet." in github.bodies[0]

    later = post_parts(
        github, tmp_path / "later", {named: "improvement"}, "hosted", "h200", run_id=20
    )

    assert later.check_run == ("success" if named == "h200" else "neutral")


def report_of_broken(github: GitHubStandIn, folder: Path, ended: str) -> Posted:
    """Report on a measurement that ended with four lines in its journal."""
    artifact = folder / "roofwatch-records-pull-request"
    artifact.mkdir()
    (artifact / "base-0-head-1.journal").write_text("{}\n" * 4)
    current = replace(job(github), conclusion=ended)
    reports = reports_on(folder, lambda path: report_on([path], current))
    return post(
        github.repository(), current, reports, "roofwatch", with_comment=True, with_check=True
    )


@pytest.mark.parametrize(
    ("ended", "comment_count"), [("failure", 1), ("timed_out", 1), ("cancelled", 0)]
)
def test_a_measurement_that_broke_is_a_comment(
    github: GitHubStandIn, tmp_path: Path, ended: str, comment_count: int
) -> None:
    """A gate that stopped working looked like one that passes."""
    posted = report_of_broken(github, tmp_path, ended)

    assert (posted.check_run, len(github.bodies)) == ("neutral", comment_count)


@pytest.mark.parametrize("ended", ["failure", "timed_out", "cancelled"])
def test_the_check_of_a_measurement_that_broke_says_what_was_journalled(
    github: GitHubStandIn, tmp_path: Path, ended: str
) -> None:
    report_of_broken(github, tmp_path, ended)

    (check,) = github.check_runs.values()
    assert "its artifact has a journal with 3 results" in check["output"]["summary"]
