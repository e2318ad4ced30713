"""Commands in comments: permissions, effects and acceptances."""

from pathlib import Path
from typing import Any

import pytest

from roofwatch.ci.github.acceptance import MAX_BOUNDS
from roofwatch.ci.github.check_run import BEGUN, post_check_run
from roofwatch.ci.github.commands import CommandError, carry_out, parse_command
from roofwatch.ci.github.event import ActionsRun, CommandRequest, Comment, Job, PullRequest, RunOrder
from roofwatch.collector.record.record import RunRecord
from roofwatch.posting import Posted, post, report_on
from tests.builders import CASE_ID, make_static_facts, sha_of
from tests.ci.github.jobs import actions_variables, comment_event
from tests.ci.github.stand_in import REPOSITORY, TOKEN, GitHubStandIn
from tests.ci.situations import SITUATIONS, head_timed
from tests.ci.values import SOFTMAX, make_records, make_timed
from tests.roofwatch.command import roofwatch

PREFIX = "/roofwatch"
HEAD, BASE = sha_of(1), sha_of(0)
NUMBER = 7
URL = "https://github.example/example/project/actions/runs/10"


@pytest.fixture
def github(github: GitHubStandIn) -> GitHubStandIn:
    """With one pull request, one person who may write and one who may not."""
    github.pull_requests = [{"number": NUMBER, "head": {"label": "o:b", "sha": HEAD}, "base": {"sha": BASE}}]
    github.permissions = {"maintainer": "write", "owner": "admin", "reader": "read"}
    return github


def request(github: GitHubStandIn, body: str, login: str = "maintainer") -> CommandRequest:
    """The request of a job that a new comment started."""
    user = {"login": login, "type": "User"}
    comment_id = github.add_comment(body, number=NUMBER, user=user, author_association="COLLABORATOR")
    comment = Comment(comment_id, NUMBER, body, login, "2026-01-02T03:04:05Z")
    return CommandRequest(ActionsRun(github.url, REPOSITORY, RunOrder(500, 1), None), comment, "main")


def write_comment(github: GitHubStandIn, body: str, login: str = "maintainer") -> tuple[str, str | None]:
    """The answer and the reaction."""
    reply = carry_out(github.repository(), request(github, body, login), "roofwatch")
    return reply.line, reply.reaction


def post_report(github: GitHubStandIn, folder: Path, situation: str = "regression", run_id: int = 10) -> Posted:
    return post_records(github, folder, *SITUATIONS[situation](), run_id=run_id)


def post_records(github: GitHubStandIn, folder: Path, base: RunRecord, head: RunRecord, run_id: int = 10) -> Posted:
    files = [folder / "base.json", folder / "head.json"]
    base.write(files[0])
    head.write(files[1])
    job = Job(ActionsRun(github.url, REPOSITORY, RunOrder(run_id, 1), URL), HEAD, pull_requests=(PullRequest(NUMBER),))
    report = report_on(files, None, job)
    return post(github.repository(), job, report, "roofwatch", with_comment=True, with_check=True)


def report_comment(github: GitHubStandIn) -> str:
    (found,) = [body for body in github.bodies if body.startswith("<!-- roofwatch:report -->")]
    return found


def newest_check_run(github: GitHubStandIn) -> dict[str, Any]:
    return github.check_runs[max(github.check_runs)]


# --- accept


def test_an_accepted_slowdown_is_neutral_with_author_date_and_reason(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path)
    assert newest_check_run(github)["conclusion"] == "failure"

    line, reaction = write_comment(github, f"{PREFIX} accept  the new layout costs this\nand more")

    sentence = "**Accepted** by `maintainer` on `2026-01-02`: `the new layout costs this`."
    assert reaction == "+1"
    assert line.startswith("Accepted by `maintainer`")
    assert f"\n> {sentence} It holds until something else is found.\n" in report_comment(github)
    check_run = newest_check_run(github)
    assert (check_run["conclusion"], check_run["output"]["title"]) == (
        "neutral",
        "accepted: 2 of 3 benchmarks slower · worst +40% (rms_norm); 1 unchanged",
    )
    assert check_run["output"]["summary"].startswith(sentence)
    assert "| time | benchmark |" in check_run["output"]["summary"]

    write_comment(github, f"{PREFIX} accept a better reason", "owner")

    assert report_comment(github).count("**Accepted**") == 1
    assert "by `owner` on `2026-01-02`: `a better reason`" in report_comment(github)


def test_a_slowdown_that_became_larger_than_what_was_accepted_is_not_accepted(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    faster = [head_timed(median_ns=1.2e6), head_timed(SOFTMAX, median_ns=1.08e6)]
    post_records(github, tmp_path, *make_records([make_timed(), make_timed(SOFTMAX)], faster), run_id=10)
    write_comment(github, f"{PREFIX} accept it is meant")

    assert post_report(github, tmp_path, run_id=11).check_run == "failure"


def test_the_most_findings_that_can_be_accepted_fit_into_a_comment(github: GitHubStandIn, tmp_path: Path) -> None:
    facts = [make_static_facts(target=f"sm_{number}") for number in range(MAX_BOUNDS + 1)]
    spilled = [make_static_facts(target=one.target, code="b", local_bytes=123_456) for one in facts]
    post_records(github, tmp_path, *make_records(facts[1:], spilled[1:]))

    assert write_comment(github, f"{PREFIX} accept {'x' * 300}")[1] == "+1"
    assert post_records(github, tmp_path, *make_records(facts[1:], spilled[1:]), run_id=11).check_run == "neutral"

    post_records(github, tmp_path, *make_records(facts, spilled), run_id=12)
    assert "at most 400 findings" in write_comment(github, f"{PREFIX} accept it is meant")[0]


@pytest.mark.slow
def test_an_acceptance_holds_for_the_same_findings_in_later_runs(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path)
    write_comment(github, f"{PREFIX} accept it is meant")

    again = post_report(github, tmp_path, run_id=11)
    assert (again.check_run, again.accepted_by) == ("neutral", "maintainer")
    assert "> **Accepted** by `maintainer`" in report_comment(github)

    other = post_report(github, tmp_path, "incorrect", run_id=12)
    assert (other.check_run, other.accepted_by) == ("failure", None)
    assert "Accepted" not in report_comment(github)

    assert post_report(github, tmp_path, run_id=13).check_run == "failure", (
        "it is forgotten once something else was found"
    )


def test_an_acceptance_ends_when_its_comment_is_deleted_or_its_author_may_no_longer_write(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    post_report(github, tmp_path)
    write_comment(github, f"{PREFIX} accept it is meant")
    github.permissions["maintainer"] = "read"
    assert post_report(github, tmp_path, run_id=11).check_run == "failure"

    write_comment(github, f"{PREFIX} accept it is meant", "owner")
    assert post_report(github, tmp_path, run_id=12).check_run == "neutral"
    del github.comments[max(key for key, each in github.comments.items() if each["body"].startswith(PREFIX))]
    assert post_report(github, tmp_path, run_id=13).check_run == "failure"


def test_the_state_of_a_comment_without_write_access_is_ignored(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path)
    write_comment(github, f"{PREFIX} accept it is meant")
    marked = report_comment(github)
    first = min(github.comments)
    github.comments[first] = github.comments[first] | {
        "body": marked,
        "user": {"login": "reader", "type": "User"},
        "author_association": "COLLABORATOR",
    }

    assert post_report(github, tmp_path, run_id=11).check_run == "failure"


def test_only_a_regression_of_the_newest_commit_can_be_accepted(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path, "improvement")
    assert write_comment(github, f"{PREFIX} accept it is meant") == (
        "No regression is reported on this pull request.",
        "confused",
    )
    post_report(github, tmp_path, run_id=11)
    github.pull_requests[0]["head"]["sha"] = sha_of(9)

    line, reaction = write_comment(github, f"{PREFIX} accept it is meant")

    assert reaction == "confused"
    assert line.startswith(f"The report is of `{HEAD[:8]}`")
    assert "Accepted" not in report_comment(github)


# --- rerun and bisect


def test_rerun_repeats_the_measuring_run(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path, run_id=4_242)

    line, reaction = write_comment(github, f"{PREFIX} rerun")

    assert (github.run_again, reaction) == ([4_242], "+1")
    assert "is being measured again" in line
    begun = newest_check_run(github)
    assert (begun["status"], begun["external_id"]) == ("in_progress", "roofwatch:4242.2")


def test_only_a_finished_run_is_started_again(github: GitHubStandIn) -> None:
    line, reaction = write_comment(github, f"{PREFIX} rerun")
    post_check_run(github.repository(), HEAD, "roofwatch", RunOrder(10, 1), BEGUN, URL)

    assert ("was not measured yet" in line, reaction) == (True, "confused")
    assert write_comment(github, f"{PREFIX} rerun") == ("The measurement is still running.", "confused")
    assert github.run_again == []


@pytest.mark.parametrize(
    ("rest", "series"),
    [("", f"{CASE_ID}/eager"), (" softmax/n=1/float32/fwd triton", "softmax/n=1/float32/fwd/triton")],
)
def test_bisect_searches_the_commits_of_the_pull_request(
    github: GitHubStandIn, tmp_path: Path, rest: str, series: str
) -> None:
    post_report(github, tmp_path)

    line, reaction = write_comment(github, f"{PREFIX} bisect{rest}")

    inputs = {"series": series, "base": BASE, "head": HEAD, "number": "7"}
    assert github.started == [{"workflow": "bisect.yml", "ref": "main", "inputs": inputs}]
    assert (f"`{series}`" in line, reaction) == (True, "+1")


# --- permissions


@pytest.mark.parametrize(
    ("login", "body"),
    [("reader", "accept because"), ("stranger", "accept because"), ("reader", "rerun"), ("reader", "x")],
)
def test_without_write_access_there_is_a_reaction_and_no_reply(
    github: GitHubStandIn, tmp_path: Path, login: str, body: str
) -> None:
    post_report(github, tmp_path)
    before = len(github.comments)

    line, reaction = write_comment(github, f"{PREFIX} {body}", login)

    assert (reaction, line) == ("-1", f"`{login}` may not write to the repository")
    assert len(github.comments) == before + 1, "their own"
    assert newest_check_run(github)["conclusion"] == "failure"
    assert (github.run_again, github.started) == ([], [])


def test_other_comments_are_ignored_and_an_invalid_command_is_answered(github: GitHubStandIn) -> None:
    reply = carry_out(github.repository(), request(github, "looks good"), "roofwatch")
    assert (reply.verb, reply.reaction, github.requests) == (None, None, [])

    line, reaction = write_comment(github, f"{PREFIX} aprove")

    assert ("unknown command; there are" in line, reaction) == (True, "confused")


def test_the_command_line_carries_out_the_comment_of_its_event(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path)
    comment = github.comments[request(github, f"{PREFIX} accept it is meant").comment.comment_id]
    event, file = comment_event(comment), tmp_path / "event.json"
    variables = actions_variables(github, "issue_comment", event, file) | {"GITHUB_TOKEN": TOKEN}

    done = roofwatch("command", "--json", cwd=tmp_path, **variables)

    assert (done.status, done.parsed["verb"], done.parsed["reaction"]) == (0, "accept", "+1"), done.error
    assert "> **Accepted** by `maintainer`" in report_comment(github)


# --- parsing


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("", "unknown command; there are"),
        (" aprove", "unknown command; there are"),
        (" accept  \nbecause", "a reason is missing"),
        (" rerun now", "takes no arguments"),
        (" bisect --good x", "name a case and an implementation"),
        (f" bisect {'x' * 301}", "name a case and an implementation"),
    ],
)
def test_an_invalid_command_is_refused_with_the_right_form(rest: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        parse_command(f"/roofwatch{rest}")
