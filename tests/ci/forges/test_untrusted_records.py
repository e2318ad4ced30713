"""Reports of untrusted records."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.ci.forges.check_run import Conclusion
from roofwatch.ci.forges.event import ActionsRun, Job, PullRequest, RunOrder
from roofwatch.ci.report.not_measured import FILE_NAME, NotMeasured
from roofwatch.model.record import RunRecord
from roofwatch.pull_requests.posting import post, report_on
from tests.builders import make_commit, sha_of
from tests.ci.forges.stand_in import REPOSITORY, GitHubStandIn
from tests.ci.situations import HOSTILE, SITUATIONS

HEAD = sha_of(1)
URL = "https://github.example/example/project/actions/runs/10"


def a_job(github: GitHubStandIn, **fields: object) -> Job:
    job = Job(
        ActionsRun(github.url, REPOSITORY, RunOrder(10, 1), URL),
        HEAD,
        "success",
        pull_requests=(PullRequest(7),),
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
def test_a_comment_is_posted_only_if_there_is_something_to_see(
    github: GitHubStandIn, tmp_path: Path, situation: str, conclusion: str, comments: int
) -> None:
    report = report_on(write(tmp_path, *SITUATIONS[situation]()), a_job(github))
    post(
        github.repository(),
        a_job(github),
        {"": report},
        "roofwatch",
        with_comment=True,
        with_check=True,
    )

    (check_run,) = github.check_runs.values()
    assert (check_run["conclusion"], len(github.comments)) == (conclusion, comments)


def test_records_of_another_commit_are_refused(github: GitHubStandIn, tmp_path: Path) -> None:
    report = report_on(
        write(tmp_path, *SITUATIONS["all_well"]()), a_job(github, head_sha=sha_of(9))
    )

    assert report.is_refused
    assert report.check.conclusion is Conclusion.NEUTRAL
    assert f"the record is of commit {HEAD}, the event is about {sha_of(9)}" in report.check.summary
    assert "fetch-depth: 0" in report.check.summary


def test_the_merge_commit_that_github_checks_out_belongs_to_its_pull_request(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    base, head = SITUATIONS["regression"]()
    merge = head.commit.model_copy(update={"sha": sha_of(8), "parents": (sha_of(0), HEAD)})
    paths = write(tmp_path, base, head.model_copy(update={"commit": merge}))

    assert report_on(paths, a_job(github)).judgement is not None
    assert report_on(paths, a_job(github, head_sha=sha_of(0))).is_refused


def test_the_error_of_a_head_that_cannot_be_loaded_is_inert(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    fence = "```\n# Merged! @everyone\n```"
    note = NotMeasured.of(make_commit(1), f"head: Traceback\n{fence}\n{HOSTILE}", "head")
    (tmp_path / FILE_NAME).write_text(note.model_dump_json())

    report = report_on([tmp_path], a_job(github))
    posted = post(
        github.repository(),
        a_job(github),
        {"": report},
        "roofwatch",
        with_comment=True,
        with_check=True,
    )

    assert (posted.check_run, posted.comments) == ("failure", {"7": "posted"})
    (comment,) = github.bodies
    _, block, rest = comment.split("```")
    assert "@everyone" in block
    assert rest.strip() == ""
    assert comment.count("`") == 6 + 2, "the fences, and the commit"


def test_a_comment_is_replaced_once_no_kernel_is_touched(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    job = a_job(github)
    (tmp_path / FILE_NAME).write_text(NotMeasured.of(make_commit(1)).model_dump_json())
    report = report_on([tmp_path], job)
    posted = post(
        github.repository(), job, {"": report}, "roofwatch", with_comment=True, with_check=True
    )
    assert (posted.check_run, github.bodies) == ("success", [])

    regressed = report_on(write(tmp_path / "before", *SITUATIONS["regression"]()), job)
    post(
        github.repository(), job, {"": regressed}, "roofwatch", with_comment=True, with_check=False
    )
    later = a_job(github, run=replace(job.run, order=RunOrder(11, 1)))
    post(github.repository(), later, {"": report}, "roofwatch", with_comment=True, with_check=True)

    (comment,) = github.bodies
    assert comment.rstrip().endswith(
        f"**roofwatch: no kernel touched** (`{HEAD[:8]}`): nothing to measure."
    )


@pytest.mark.parametrize("content", [b"not JSON", b'{"format": 1, "head": {}}', b"[" * 200_000])
def test_an_invalid_note_is_refused(github: GitHubStandIn, tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)

    report = report_on([tmp_path], a_job(github))

    assert report.is_refused
    assert report.check.conclusion is Conclusion.NEUTRAL


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

    report = report_on(paths, a_job(github))

    assert report.is_refused
    assert reason in report.check.summary
    assert report.check.summary.count("`") == 2


def test_without_records_the_check_run_says_how_the_run_ended(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    report = report_on([tmp_path / "from-the-pull-request"], a_job(github, conclusion="cancelled"))
    posted = post(
        github.repository(),
        a_job(github),
        {"": report},
        "roofwatch",
        with_comment=True,
        with_check=True,
    )

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

    report = report_on([folder], a_job(github))

    assert "no record in" in str(report.problem)


def test_two_records_of_one_side_are_refused(github: GitHubStandIn, tmp_path: Path) -> None:
    base, _ = SITUATIONS["all_well"]()

    refused = report_on(write(tmp_path, base, base), a_job(github))

    assert "a pair of base and head" in str(refused.problem)


def test_a_broken_baseline_is_refused(github: GitHubStandIn, tmp_path: Path) -> None:
    (tmp_path / "roofwatch-static.toml").write_text("this is not a baseline")

    refused = report_on(write(tmp_path, *SITUATIONS["static_spill"]()), a_job(github))

    assert refused.is_refused
    assert "roofwatch-static.toml" in str(refused.problem)


def test_the_pull_request_comes_from_the_event_not_from_the_record(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    base, head = SITUATIONS["regression"]()
    claiming = head.model_copy(
        update={
            "commit": make_commit(
                1, subject="pull request 8", branch="refs/pull/8/merge", is_dirty=True
            )
        }
    )

    job = a_job(github)
    report = report_on(write(tmp_path, base, claiming), job)
    post(github.repository(), job, {"": report}, "roofwatch", with_comment=True, with_check=False)

    assert [comment["number"] for comment in github.comments.values()] == [7]


@pytest.mark.parametrize(
    ("base_branch", "commented"), [("release", [8]), (None, [7, 8]), ("elsewhere", [7, 8])]
)
def test_several_pull_requests_with_one_head_get_their_result(
    github: GitHubStandIn, tmp_path: Path, base_branch: str | None, commented: list[int]
) -> None:
    head = {"label": "someone:slower", "sha": HEAD}
    github.pull_requests = [
        {"number": number, "head": head, "base": {"ref": branch}}
        for number, branch in ((7, "main"), (8, "release"))
    ]
    base, changed = SITUATIONS["regression"]()
    base = base.model_copy(
        update={"commit": base.commit.model_copy(update={"branch": base_branch})}
    )
    job = a_job(github, pull_requests=(), head_label="someone:slower")

    report = report_on(write(tmp_path, base, changed), job)
    posted = post(
        github.repository(), job, {"": report}, "roofwatch", with_comment=True, with_check=True
    )

    assert sorted(posted.comments) == [str(number) for number in commented]
    assert sorted(one["number"] for one in github.comments.values()) == commented
    assert [each["conclusion"] for each in github.check_runs.values()] == ["failure"]
