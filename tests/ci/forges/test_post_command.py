"""`roofwatch post` as a job runs it."""

from pathlib import Path

import pytest

from roofwatch.pull_requests.posting import report_on
from roofwatch.reporting.records import WORKLOADS_NAME
from tests.builders import sha_of
from tests.ci.forges.jobs import actions_variables, workflow_run_event
from tests.ci.forges.stand_in import TOKEN, GitHubStandIn
from tests.ci.situations import SITUATIONS, write_records
from tests.roofwatch.command import Done, roofwatch, started_roofwatch
from tests.roofwatch.extras import blocked_modules, only_with


@pytest.fixture
def records(tmp_path: Path) -> list[Path]:
    return write_records(tmp_path, SITUATIONS["regression"]())


def post(github: GitHubStandIn, folder: Path, *arguments: str | Path, **variables: str) -> Done:
    return roofwatch("post", *arguments, cwd=folder, **(job_variables(github, folder) | variables))


def job_variables(github: GitHubStandIn, folder: Path) -> dict[str, str]:
    event = {"pull_request": {"number": 7, "head": {"sha": sha_of(1)}}}
    given = actions_variables(github, "pull_request", event, folder / "event.json")
    ours = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_TOKEN": TOKEN}
    return given | ours


def test_all_places_where_a_report_is_posted_agree(
    github: GitHubStandIn, tmp_path: Path, records: list[Path]
) -> None:
    done = post(github, tmp_path, *records, "--json", "--name", "H200")

    assert done.status == 0, done.error
    expected = {
        "verdict": "regressed",
        "pull_request": 7,
        "comment": "posted",
        "check_run": "failure",
    }
    assert {key: done.parsed[key] for key in expected} == expected
    (comment,), (check_run,) = github.bodies, github.check_runs.values()
    header, _, rest = comment.partition("\n### ")
    assert header.startswith("<!-- roofwatch:report H200 -->\n<!-- roofwatch:state ")
    assert rest.startswith("❌ 2 of 3 benchmarks slower")
    assert check_run["name"] == "H200"
    assert (tmp_path / "summary.md").read_text().startswith("### ❌ 2 of 3 benchmarks slower")


def test_the_check_run_is_concluded_even_if_comments_may_not_be_read(
    github: GitHubStandIn, tmp_path: Path, records: list[Path]
) -> None:
    github.fail("list_comments", 403, "Resource not accessible by integration")

    done = post(github, tmp_path, *records)

    assert done.status == 2
    (check_run,) = github.check_runs.values()
    assert check_run["conclusion"] == "failure"


def test_a_dry_run_needs_neither_token_nor_github(
    github: GitHubStandIn, tmp_path: Path, records: list[Path]
) -> None:
    done = roofwatch(
        "post", *records, "--dry-run", "--output", tmp_path / "comment.md", cwd=tmp_path
    )

    assert done.status == 0, done.error
    assert "### ❌ 2 of 3 benchmarks slower" in done.output
    comment, text = (tmp_path / "comment.md").read_text(), done.output
    assert text.startswith(f"{comment}\ncheck-run: failure (2 of 3 benchmarks slower")
    assert github.requests == []


def test_workloads_that_came_with_the_records_predict_what_a_step_costs(tmp_path: Path) -> None:
    base, head = SITUATIONS["workload_step"]()
    write_records(tmp_path, (base.model_copy(update={"imported": ()}), head))
    elsewhere = base.environment.model_copy(update={"device_name": "another"})
    workloads = (None, base.model_copy(update={"environment": elsewhere}), base)

    found = []
    for record in workloads:
        if record is not None:
            record.write(tmp_path / WORKLOADS_NAME)
        judgement = report_on([tmp_path], None).judgement
        found.append(
            [step.evidence.kernel for step in judgement.step_predictions]
            if judgement is not None
            else None
        )
    assert found == [[], [], ["rms_norm"]]


@pytest.mark.parametrize(
    ("arguments", "variables", "reason"),
    [
        ([], {}, "give the records, or --begin without any"),
        (["--begin"], {"GITHUB_TOKEN": ""}, "GITHUB_TOKEN is not set"),
        (
            ["--begin"],
            {"GITHUB_REPOSITORY": "../evil"},
            "GITHUB_REPOSITORY or GITHUB_RUN_ID: '../evil'",
        ),
        (["--begin", "--name", "a --> b"], {}, "--name 'a --> b'"),
        (["--begin"], {"GITHUB_TOKEN": "another-token"}, "HTTP 401"),
    ],
)
def test_an_error_is_one_line_with_exit_status_2(
    github: GitHubStandIn,
    tmp_path: Path,
    arguments: list[str],
    variables: dict[str, str],
    reason: str,
) -> None:
    done = post(github, tmp_path, *arguments, **variables)

    assert done.status == 2
    assert reason in done.error
    assert done.error.count("\n") == 1
    assert "another-token" not in done.output + done.error


def test_a_skipped_measurement_concludes_the_check_as_skipped(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    (tmp_path / "records").mkdir()
    event = workflow_run_event("completed", sha_of(1), "skipped")
    variables = actions_variables(github, "workflow_run", event, tmp_path / "event.json") | {
        "GITHUB_TOKEN": TOKEN
    }

    done = roofwatch("post", "records", cwd=tmp_path, **variables)

    assert done.status == 0, done.error
    (check_run,) = github.check_runs.values()
    assert (check_run["conclusion"], check_run["output"]["title"]) == (
        "neutral",
        "skipped: not measured",
    )
    assert "a draft or a missing label" in check_run["output"]["summary"]
    assert github.bodies == []


def test_posting_needs_no_more_than_the_github_extra(
    github: GitHubStandIn, tmp_path: Path, records: list[Path]
) -> None:
    variables = job_variables(github, tmp_path) | only_with(tmp_path, "github")

    done = started_roofwatch("post", *records, cwd=tmp_path, **variables)

    assert {"numpy", "torch", "triton"} <= set(blocked_modules("github"))
    assert done.status == 0, done.error
    assert len(github.bodies) == len(github.check_runs) == 1
