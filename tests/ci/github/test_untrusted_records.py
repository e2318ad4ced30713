"""Reports of untrusted records."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.ci.github.check_run import Conclusion
from roofwatch.ci.github.event import ActionsRun, Job, PullRequest, RunOrder
from roofwatch.collector.record.record import RunRecord
from roofwatch.posting import post, report_on
from tests.builders import make_commit, sha_of
from tests.ci.github.stand_in import REPOSITORY, GitHubStandIn
from tests.ci.situations import SITUATIONS

HEAD = sha_of(1)
URL = "https://github.example/example/project/actions/runs/10"


def a_job(github: GitHubStandIn, **fields: object) -> Job:
    job = Job(
        ActionsRun(github.url, REPOSITORY, RunOrder(10, 1), URL), HEAD, "success", pull_requests=(PullRequest(7),)
    )
    return replace(job, **fields)  # type: ignore[arg-type]  # fields of a job


def write(folder: Path, base: RunRecord, head: RunRecord) -> list[Path]:
    base.write(folder / "nested" / "base-1.json.gz")
    head.write(folder / "nested" / "head-1.json.gz")
    return [folder]


@pytest.mark.parametrize(
    ("situation", "conclusion", "comments"),
    [
        ("regression", "failure", 1),
        ("improvement", "success", 1),
        ("all_well", "success", 0),
        ("inconclusive", "neutral", 0),
        ("removed", "neutral", 1),
    ],
)
def test_a_comment_is_posted_only_if_something_changed_or_is_suspicious(
    github: GitHubStandIn, tmp_path: Path, situation: str, conclusion: str, comments: int
) -> None:
    report = report_on(write(tmp_path, *SITUATIONS[situation]()), None, a_job(github))
    post(github.repository(), a_job(github), report, "roofwatch", with_comment=True, with_check=True)

    (check_run,) = github.check_runs.values()
    assert (check_run["conclusion"], len(github.comments)) == (conclusion, comments)


def test_records_of_another_commit_are_refused(github: GitHubStandIn, tmp_path: Path) -> None:
    report = report_on(write(tmp_path, *SITUATIONS["all_well"]()), None, a_job(github, head_sha=sha_of(9)))

    assert report.is_refused
    assert report.check.conclusion is Conclusion.NEUTRAL
    assert f"the record is of commit {HEAD}, the event is about {sha_of(9)}" in report.check.summary


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not a record", "not a complete JSON document"),
        (b'{"schema_version": "9.0", "run_id": "x"}', "schema version 9.0 is not known here"),
        (b"\x1f\x8b damaged", "damaged or incomplete"),
        (b'{"schema_version": "1.2", "run_id": "`@everyone` <script>"}', "problem(s) in all"),
    ],
)
def test_an_invalid_record_is_reported_in_a_code_span(
    github: GitHubStandIn, tmp_path: Path, content: bytes, reason: str
) -> None:
    paths = write(tmp_path, *SITUATIONS["all_well"]())
    (tmp_path / "nested" / "head-1.json.gz").write_bytes(content)

    report = report_on(paths, None, a_job(github))

    assert report.is_refused
    assert reason in report.check.summary
    assert report.check.summary.count("`") == 2


def test_without_records_the_check_run_says_how_the_run_ended(github: GitHubStandIn, tmp_path: Path) -> None:
    report = report_on([tmp_path / "from-the-pull-request"], None, a_job(github, conclusion="cancelled"))
    posted = post(github.repository(), a_job(github), report, "roofwatch", with_comment=True, with_check=True)

    assert not report.is_refused
    assert (posted.check_run, posted.comments) == ("neutral", {})
    (check_run,) = github.check_runs.values()
    assert "the run that measured ended as cancelled" in check_run["output"]["summary"]


def test_a_link_in_the_folder_is_not_followed(github: GitHubStandIn, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write(secret, *SITUATIONS["all_well"]())
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "linked").symlink_to(secret)
    (folder / "base-1.json.gz").symlink_to(secret / "nested" / "base-1.json.gz")

    report = report_on([folder], None, a_job(github))

    assert "no record in" in str(report.problem)


def test_two_records_of_one_side_and_a_broken_baseline_are_refused(github: GitHubStandIn, tmp_path: Path) -> None:
    base, _ = SITUATIONS["all_well"]()
    one_side = report_on(write(tmp_path, base, base), None, a_job(github))
    (tmp_path / "roofwatch-static.toml").write_text("this is not a baseline")
    without_baseline = report_on(write(tmp_path, *SITUATIONS["static_spill"]()), None, a_job(github))

    assert "a pair of base and head" in str(one_side.problem)
    assert without_baseline.is_refused
    assert "roofwatch-static.toml" in str(without_baseline.problem)


def test_the_pull_request_comes_from_the_event_not_from_the_record(github: GitHubStandIn, tmp_path: Path) -> None:
    base, head = SITUATIONS["regression"]()
    claiming = head.model_copy(
        update={"commit": make_commit(1, subject="pull request 8", branch="refs/pull/8/merge", is_dirty=True)}
    )

    job = a_job(github)
    report = report_on(write(tmp_path, base, claiming), None, job)
    post(github.repository(), job, report, "roofwatch", with_comment=True, with_check=False)

    assert [comment["number"] for comment in github.comments.values()] == [7]


@pytest.mark.parametrize(("base_branch", "commented"), [("release", [8]), (None, [7, 8]), ("elsewhere", [7, 8])])
def test_several_pull_requests_with_one_head_get_their_result(
    github: GitHubStandIn, tmp_path: Path, base_branch: str | None, commented: list[int]
) -> None:
    head = {"label": "someone:slower", "sha": HEAD}
    github.pull_requests = [
        {"number": number, "head": head, "base": {"ref": branch}} for number, branch in ((7, "main"), (8, "release"))
    ]
    base, changed = SITUATIONS["regression"]()
    base = base.model_copy(update={"commit": base.commit.model_copy(update={"branch": base_branch})})
    job = a_job(github, pull_requests=(), head_label="someone:slower")

    report = report_on(write(tmp_path, base, changed), None, job)
    posted = post(github.repository(), job, report, "roofwatch", with_comment=True, with_check=True)

    assert sorted(posted.comments) == [str(number) for number in commented]
    assert sorted(one["number"] for one in github.comments.values()) == commented
    assert [each["conclusion"] for each in github.check_runs.values()] == ["failure"]
