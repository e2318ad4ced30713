"""Commands in comments: permissions, effects and acceptances."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roofwatch.ci.forges.check_run import BEGUN
from roofwatch.ci.forges.command_syntax import CommandError, commands_in, parse_command
from roofwatch.ci.forges.commands import CommandReply, carry_out
from roofwatch.ci.forges.event import (
    ActionsRun,
    CommandRequest,
    Comment,
    Job,
    PullRequest,
    RunOrder,
    command_request,
    job_of,
)
from roofwatch.model.acceptance import MAX_BOUNDS
from roofwatch.model.claim import AcceptBy
from roofwatch.model.record import RunRecord
from roofwatch.model.results import StaticFacts
from roofwatch.pull_requests.posting import Posted, post, report_on
from tests.builders import CASE_ID, make_static_facts, sha_of
from tests.ci.forges.jobs import actions_variables, comment_event, label_event
from tests.ci.forges.stand_in import REPOSITORY, TOKEN, GitHubStandIn
from tests.ci.situations import SITUATIONS, write_records
from tests.ci.values import make_records
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.bisection.slowed_repository import BENCHMARK, QUICK, SERIES, SLOW
from tests.roofwatch.command import roofwatch

PREFIX = "/roofwatch"
HEAD = sha_of(1)
NUMBER = 7
URL = "https://github.example/example/project/actions/runs/10"
RUN_URL = "https://github.example/example/project/actions/runs/500"


@pytest.fixture
def github(github: GitHubStandIn) -> GitHubStandIn:
    """With one pull request, one person who may write and one who may not."""
    github.pull_requests = [
        {"number": NUMBER, "head": {"label": "o:b", "sha": HEAD}, "base": {"ref": "main"}}
    ]
    github.permissions = {"maintainer": "write", "owner": "admin", "reader": "read"}
    return github


def request(github: GitHubStandIn, body: str, login: str = "maintainer") -> CommandRequest:
    """The request of a job that a new comment started."""
    user = {"login": login, "type": "User"}
    comment_id = github.add_comment(
        body, number=NUMBER, user=user, author_association="COLLABORATOR"
    )
    comment = Comment(comment_id, NUMBER, body, login, "2026-01-02T03:04:05Z")
    return CommandRequest(ActionsRun(github.url, REPOSITORY, RunOrder(500, 1), RUN_URL), comment)


def write_comment(
    github: GitHubStandIn, body: str, login: str = "maintainer"
) -> tuple[str, str | None]:
    """The answer and the reaction."""
    reply = carry_out(github.repository(), request(github, body, login), "roofwatch")
    return reply.line, reply.reaction


def post_report(
    github: GitHubStandIn, folder: Path, situation: str = "regression", run_id: int = 10
) -> Posted:
    return post_records(github, folder, *SITUATIONS[situation](), run_id=run_id)


def post_records(
    github: GitHubStandIn, folder: Path, base: RunRecord, head: RunRecord, run_id: int = 10
) -> Posted:
    job = Job(
        ActionsRun(github.url, REPOSITORY, RunOrder(run_id, 1), URL),
        HEAD,
        pull_requests=(PullRequest(NUMBER),),
    )
    report = report_on(write_records(folder, (base, head)), job)
    return post(
        github.repository(), job, {"": report}, "roofwatch", with_comment=True, with_check=True
    )


def report_comment(github: GitHubStandIn) -> str:
    (found,) = [body for body in github.bodies if body.startswith("<!-- roofwatch:report -->")]
    return found


def newest_check_run(github: GitHubStandIn) -> dict[str, Any]:
    return github.check_runs[max(github.check_runs)]


# --- accept


def test_an_accepted_slowdown_is_neutral_with_who_accepted_it(
    github: GitHubStandIn, tmp_path: Path
) -> None:
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


def test_the_most_findings_that_can_be_accepted_fit_into_a_comment(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    facts = [make_static_facts(target=f"sm_{number}") for number in range(MAX_BOUNDS + 1)]
    spilled = [make_static_facts(target=one.target, code="b", local_bytes=123_456) for one in facts]
    post_records(github, tmp_path, *make_records(facts[1:], spilled[1:]))

    assert write_comment(github, f"{PREFIX} accept {'x' * 300}")[1] == "+1"
    assert (
        post_records(github, tmp_path, *make_records(facts[1:], spilled[1:]), run_id=11).check_run
        == "neutral"
    )


def test_more_findings_than_bounds_are_accepted_by_kernel(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    def spilling(local_bytes: int) -> list[StaticFacts]:
        return [
            make_static_facts(
                target=f"sm_{number}", code=f"spills {local_bytes}", local_bytes=local_bytes
            )
            for number in range(MAX_BOUNDS + 1)
        ]

    base, head = spilling(0), spilling(64)
    post_records(github, tmp_path, *make_records(base, head))

    assert write_comment(github, f"{PREFIX} accept it is meant")[1] == "+1"
    later = [make_records(base, head), make_records(base, [*head[1:], *spilling(65)[:1]])]
    checks = [
        post_records(github, tmp_path, *records, run_id=run_id).check_run
        for run_id, records in enumerate(later, start=11)
    ]
    assert checks == ["neutral", "failure"]


@pytest.mark.parametrize(
    ("situation", "check"), [("removed_benchmark", "success"), ("all_removed", "neutral")]
)
def test_removed_benchmarks_can_be_accepted(
    github: GitHubStandIn, tmp_path: Path, situation: str, check: str
) -> None:
    posted = post_report(github, tmp_path, situation)

    _, reaction = write_comment(github, f"{PREFIX} accept it moved to another suite")
    again = post_report(github, tmp_path, situation, run_id=11)
    also_slower = post_report(github, tmp_path, "regression", run_id=12)

    assert (posted.check_run, reaction) == (check, "+1")
    assert (again.check_run, again.accepted_by) == (check, "maintainer")
    assert (also_slower.check_run, also_slower.accepted_by) == ("failure", None)


@pytest.mark.parametrize(
    ("situation", "branch", "expected"),
    [
        ("regression", "main", ("neutral", "maintainer")),
        ("incorrect", "main", ("failure", None)),
        ("regression", "releases", ("failure", None)),
    ],
    ids=["accepted", "something else", "another target branch"],
)
def test_an_accepted_regression_passes_the_merge_queue(
    github: GitHubStandIn,
    tmp_path: Path,
    situation: str,
    branch: str,
    expected: tuple[str, str | None],
) -> None:
    post_report(github, tmp_path)
    write_comment(github, f"{PREFIX} accept it is meant")
    reported = report_comment(github)
    base, head = SITUATIONS[situation]()
    queued = head.model_copy(update={"commit": head.commit.model_copy(update={"sha": sha_of(8)})})
    variables = actions_variables(
        github,
        "merge_group",
        {"merge_group": {"head_ref": f"refs/heads/gh-readonly-queue/{branch}/pr-7-{sha_of(0)}"}},
        tmp_path / "event.json",
    )
    job = job_of(
        variables | {"GITHUB_SHA": sha_of(8)}, json.loads((tmp_path / "event.json").read_text())
    )
    report = report_on(write_records(tmp_path, (base, queued)), job)

    posted = post(
        github.repository(), job, {"": report}, "roofwatch", with_comment=True, with_check=True
    )

    assert (posted.check_run, posted.accepted_by) == expected
    assert newest_check_run(github)["head_sha"] == sha_of(8)
    assert report_comment(github) == reported


@pytest.mark.slow
def test_an_acceptance_holds_for_the_same_findings_in_later_runs(
    github: GitHubStandIn, tmp_path: Path
) -> None:
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


def test_an_acceptance_lasts_as_long_as_its_comment_of_a_maintainer(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    post_report(github, tmp_path)
    write_comment(github, f"{PREFIX} accept it is meant")
    github.permissions["maintainer"] = "read"
    assert post_report(github, tmp_path, run_id=11).check_run == "failure"

    write_comment(github, f"{PREFIX} accept it is meant", "owner")
    assert post_report(github, tmp_path, run_id=12).check_run == "neutral"
    del github.comments[
        max(key for key, each in github.comments.items() if each["body"].startswith(PREFIX))
    ]
    assert post_report(github, tmp_path, run_id=13).check_run == "failure"


def test_the_state_of_a_comment_without_write_access_is_ignored(
    github: GitHubStandIn, tmp_path: Path
) -> None:
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


def test_only_a_regression_of_the_newest_commit_can_be_accepted(
    github: GitHubStandIn, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("refused", ["create_check_run", "create_comment"])
def test_what_cannot_be_posted_keeps_nothing_else_from_being_posted(
    github: GitHubStandIn, waits_s: list[float], tmp_path: Path, refused: str
) -> None:
    """A check run that failed with 500 took the comment with it."""
    github.fail(refused, 500, "oops", times=99)

    posted = post_report(github, tmp_path)

    is_comment = refused == "create_comment"
    subject = "the comment on 7" if is_comment else "the check"
    assert (len(github.bodies), len(github.check_runs)) == ((0, 1) if is_comment else (1, 0))
    (reason,) = posted.missing
    assert reason.startswith(f"{subject}: ")
    assert waits_s == [4, 8, 16, 32, 64]


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
    github.repository().conclude(HEAD, "roofwatch", RunOrder(10, 1), BEGUN, URL)

    assert ("was not measured yet" in line, reaction) == (True, "confused")
    assert write_comment(github, f"{PREFIX} rerun") == (
        "The measurement is still running.",
        "confused",
    )
    assert github.run_again == []


@pytest.mark.parametrize(
    ("line", "verb", "series", "runner"),
    [
        (f"bisect at {HEAD[:8]}", "bisect", f"{CASE_ID}/torch", ""),
        (
            f"bisect softmax/n=1/float32/fwd triton at {HEAD}",
            "bisect",
            "softmax/n=1/float32/fwd/triton",
            "",
        ),
        (
            f"bisect softmax/n=1/float32/fwd triton on h100 at {HEAD[:8]}",
            "bisect",
            "softmax/n=1/float32/fwd/triton",
            "h100",
        ),
        (f"run {HEAD[:8]}", "run", "", ""),
        (f"run h100 {HEAD}", "run", "", "h100"),
    ],
)
def test_a_command_hands_the_reviewed_commit_to_the_job_that_measures(
    github: GitHubStandIn, tmp_path: Path, line: str, verb: str, series: str, runner: str
) -> None:
    post_report(github, tmp_path)

    asked = request(github, f"{PREFIX} {line}")
    reply = carry_out(github.repository(), asked, "roofwatch")

    (found,) = reply.requests
    assert (found.verb, found.series, found.runner) == (verb, series, runner)
    assert (found.number, found.head, found.base) == (NUMBER, HEAD, "main")
    assert reply.reaction == "+1"
    assert f"([run]({RUN_URL}))" in reply.line
    assert any(reply.line in body for body in github.bodies)


def test_a_measurement_needs_a_reviewed_commit(github: GitHubStandIn, tmp_path: Path) -> None:
    """A commit counted as seen if it was pushed two minutes before the comment."""
    post_report(github, tmp_path)
    later = sha_of(9)
    github.pull_requests[0]["head"]["sha"] = later
    github.repository().conclude(later, "roofwatch", RunOrder(11, 1), BEGUN, URL)

    def answer(line: str) -> CommandReply:
        asked = request(github, f"{PREFIX} {line}")
        return carry_out(github.repository(), asked, "roofwatch")

    unnamed, another = answer("run h100"), answer(f"run h100 {HEAD[:8]}")
    search = answer("bisect a/b triton on h100")
    named = answer(f"run h100 {later[:8]}")
    review(github, "maintainer", HEAD)
    reviewed_before = answer("run h100")
    review(github, "maintainer", later)
    reviewed = answer("run h100")

    for refused in (unnamed, another, search, reviewed_before):
        assert (refused.reaction, refused.requests) == ("confused", ())
    assert f"`/roofwatch run h100 {later[:8]}`" in unnamed.line
    assert f"`/roofwatch bisect a/b triton on h100 at {later[:8]}`" in search.line
    for done in (named, reviewed):
        assert [asked.head for asked in done.requests] == [later]


def review(github: GitHubStandIn, login: str, commit: str) -> None:
    github.reviews.append({"number": NUMBER, "user": {"login": login}, "commit_id": commit})


def label(
    github: GitHubStandIn, name: str, login: str = "maintainer", head_sha: str = HEAD
) -> CommandReply:
    variables = {
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_EVENT_NAME": "pull_request_target",
        "GITHUB_RUN_ID": "500",
    }
    asked = command_request(variables, label_event(name, head_sha, login))
    assert asked is not None
    return carry_out(github.repository(), asked, "roofwatch")


def test_a_label_asks_for_a_run_of_the_reviewed_commit_that_was_labelled(
    github: GitHubStandIn,
) -> None:
    refused = label(github, "roofwatch run h100", head_sha=sha_of(3))
    github.comments.clear()
    review(github, "maintainer", sha_of(3))
    reply = label(github, "roofwatch run h100", head_sha=sha_of(3))

    assert refused.requests == ()
    assert [(one.verb, one.runner, one.head) for one in reply.requests] == [
        ("run", "h100", sha_of(3))
    ]
    assert github.reactions == []
    (body,) = github.bodies
    assert f"Measuring `{sha_of(3)[:8]}` on `h100`" in body


def test_a_label_by_somebody_without_write_access_does_nothing(github: GitHubStandIn) -> None:
    assert label(github, "roofwatch run h100", "reader").requests == ()
    assert github.bodies == []


def test_a_label_cannot_accept(github: GitHubStandIn) -> None:
    assert "A label cannot accept" in label(github, "roofwatch accept because").line


def test_each_command_of_a_comment_gets_an_answer(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path)

    reply = carry_out(
        github.repository(),
        request(github, f"{PREFIX} rerun\n{PREFIX} aprove\n\n{PREFIX} bisect at {HEAD[:8]}"),
        "roofwatch",
    )

    first, second, third = reply.line.splitlines()
    assert first.startswith("- `/roofwatch rerun`: `")
    assert second.startswith("- `/roofwatch aprove`: unknown command")
    assert third.startswith(f"- `/roofwatch bisect at {HEAD[:8]}`: Searching")
    assert (reply.verbs, reply.reaction, len(reply.requests)) == (
        ("rerun", "bisect"),
        "confused",
        1,
    )
    assert github.run_again == [10]


@pytest.mark.parametrize("operation", ["rerun_workflow", "list_check_runs"])
def test_the_refusal_of_github_is_answered(
    github: GitHubStandIn, tmp_path: Path, operation: str
) -> None:
    post_report(github, tmp_path)
    github.fail(operation, 403, "This run was created over a month ago")

    line, reaction = write_comment(github, f"{PREFIX} rerun")

    assert reaction == "confused"
    assert line.startswith("GitHub refused: `")
    assert "created over a month ago" in line
    assert line in github.bodies[-1]


# --- results


def result_of(github: GitHubStandIn, folder: Path, verb: str, **fields: Any) -> str:
    """The answer of the job after a requested measurement."""
    asked = {
        "verb": verb,
        "number": NUMBER,
        "head": HEAD,
        "base": "main",
        "runner": "h100",
        "series": "a/b/c/d/e",
    }
    variables = actions_variables(
        github, "issue_comment", {}, folder.parent / "event.json", run_id=500
    ) | {
        "GITHUB_TOKEN": TOKEN,
        "ROOFWATCH_REQUEST": json.dumps(asked | {"reply": "1001.0"} | fields),
    }
    done = roofwatch("command", folder, "--json", cwd=folder, **variables)
    assert done.status == 0, done.error
    return str(done.parsed["answer"])


def test_a_requested_run_is_reported_like_any_other(github: GitHubStandIn, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    write_records(folder, SITUATIONS["regression"]())

    result_of(github, folder, "run")

    assert newest_check_run(github)["conclusion"] == "failure"
    assert "### ❌ " in report_comment(github)


def test_a_requested_run_is_answered_with_its_headline(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    write_records(folder, SITUATIONS["regression"]())

    answer = result_of(github, folder, "run")

    title = newest_check_run(github)["output"]["title"]
    assert title.startswith("h100: 2 of 3 benchmarks slower")
    words = title.removeprefix("h100: ")
    assert answer == f"`{HEAD[:8]}` on `h100` ([run]({RUN_URL})): `{words}`"
    assert any(
        body.startswith("<!-- roofwatch:result 1001.0 -->") and answer in body
        for body in github.bodies
    )


def test_a_run_of_a_commit_that_is_no_longer_the_newest_leaves_the_comment(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    post_report(github, tmp_path)
    before = report_comment(github)
    github.pull_requests[0]["head"]["sha"] = sha_of(9)
    folder = tmp_path / "records"
    write_records(folder, SITUATIONS["improvement"]())

    result_of(github, folder, "run")

    assert newest_check_run(github)["conclusion"] == "success"
    assert report_comment(github) == before


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        (
            '{"summary": ["6ed5ca80 is the first slower commit: *x* @all (A)", "a/b: +22%"]}',
            "`6ed5ca80 is the first",
        ),
        ('{"summary": 7}', "the search for the commit failed"),
        (f'{{"summary": {"[" * 100_000}', "the search for the commit failed"),
        (None, "the search for the commit failed"),
    ],
)
def test_the_result_of_a_bisection_is_a_reply_in_code_spans(
    github: GitHubStandIn, tmp_path: Path, document: str | None, answer: str
) -> None:
    if document is not None:
        (tmp_path / "bisection.json").write_text(document)

    found = result_of(github, tmp_path, "bisect")

    assert f"([run]({RUN_URL})): {answer}" in found
    assert found in github.bodies[-1]
    assert "@all" not in re.sub("`[^`]*`", "", found)


# --- permissions


@pytest.mark.parametrize(
    ("login", "body"),
    [
        ("reader", "accept because"),
        ("stranger", "accept because"),
        ("reader", "rerun"),
        ("reader", "x"),
    ],
)
def test_without_write_access_there_is_only_a_reaction(
    github: GitHubStandIn, tmp_path: Path, login: str, body: str
) -> None:
    post_report(github, tmp_path)
    before = len(github.comments)

    line, reaction = write_comment(github, f"{PREFIX} {body}", login)

    assert (reaction, line) == ("-1", f"`{login}` may not write to the repository")
    assert len(github.comments) == before + 1, "their own"
    assert newest_check_run(github)["conclusion"] == "failure"
    assert github.run_again == []


def test_other_comments_are_ignored(github: GitHubStandIn) -> None:
    reply = carry_out(github.repository(), request(github, "looks good"), "roofwatch")

    assert (reply.verbs, reply.reaction, github.requests) == ((), None, [])


def test_an_invalid_command_is_answered(github: GitHubStandIn) -> None:
    line, reaction = write_comment(github, f"{PREFIX} aprove")

    assert "unknown command; there are" in line
    assert reaction == "confused"


def test_the_command_line_carries_out_the_comment_of_its_event(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    post_report(github, tmp_path)
    comment = github.comments[request(github, f"{PREFIX} accept it is meant").comment.comment_id]
    event, file = comment_event(comment), tmp_path / "event.json"
    variables = actions_variables(github, "issue_comment", event, file) | {"GITHUB_TOKEN": TOKEN}

    done = roofwatch("command", "--json", cwd=tmp_path, **variables)

    assert (done.status, done.parsed["verbs"], done.parsed["reaction"]) == (0, ["accept"], "+1"), (
        done.error
    )
    assert "> **Accepted** by `maintainer`" in report_comment(github)


# --- parsing


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("", "unknown command; there are"),
        (" aprove", "unknown command; there are"),
        (" accept  ", "a reason is missing"),
        (" run h100 main", "name a label of the runner"),
        (" run h100;x", "name a label of the runner"),
        (" bisect x on $(x)", "name a case and an implementation"),
        (" rerun now", "takes no arguments"),
        (" bisect --good x", "name a case and an implementation"),
        (f" bisect {'x' * 301}", "name a case and an implementation"),
    ],
)
def test_an_invalid_command_is_refused_with_the_right_form(rest: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        parse_command(f"/roofwatch{rest}")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("/roofwatch rerun", ["/roofwatch rerun"]),
        (
            "\n/roofwatch rerun  \nthanks\n/roofwatch bisect",
            ["/roofwatch rerun", "/roofwatch bisect"],
        ),
        ("    /roofwatch rerun", []),
        ("```\n/roofwatch rerun\n```", []),
        (
            "/roofwatch rerun\n```\n/roofwatch bisect\n```\n\n    /roofwatch bisect",
            ["/roofwatch rerun"],
        ),
        ("> /roofwatch rerun", []),
        ("- /roofwatch rerun", []),
        ("<!-- \n/roofwatch rerun -->", []),
        ("`/roofwatch rerun`", []),
        ("please\n/roofwatch rerun", []),
        ("/roofwatchrerun\n/roofwatch rerun", []),
        ("", []),
    ],
)
def test_only_plain_lines_are_commands(body: str, found: list[str]) -> None:
    assert commands_in(body) == found


@pytest.mark.slow
def test_a_bisection_on_request_answers_with_the_commit(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    folder, shas = make_repository(tmp_path / "young"), []
    for text in (QUICK, f"{SLOW}\nOTHER = 1", f"{SLOW}\nOTHER = 2"):
        (folder / "work.py").write_text(text)
        shas.append(commit_all(folder))
    (folder / "bench_total.py").write_text(BENCHMARK)  # only the head has it
    head = commit_all(folder)
    github.pull_requests[0]["head"]["sha"] = head
    github.repository().conclude(head, "roofwatch", RunOrder(11, 1), BEGUN, URL)

    asked = carry_out(
        github.repository(),
        request(github, f"{PREFIX} bisect {SERIES} torch at {head[:8]}"),
        "roofwatch",
    )
    (order,) = asked.requests
    ends = (
        "--good",
        shas[0],
        "--bad",
        order.head,
        "--suite-from",
        "head",
        "--device",
        "cpu",
        "--output",
        tmp_path,
    )
    found = roofwatch(
        "bisect", "bench_total.py", "--series", order.series, *ends, "--json", cwd=folder
    )
    assert found.status == 0, found.error
    records = tmp_path / "records"
    records.mkdir()
    (records / "bisection.json").write_text(found.output)
    answer = result_of(github, records, **order.model_dump())

    assert f"`{shas[1]}" in answer
    assert answer in github.bodies[-1]


# --- who may accept


@pytest.mark.parametrize(
    ("login", "accept_by", "is_accepted"),
    [
        ("maintainer", AcceptBy.REVIEWER, False),
        ("owner", AcceptBy.REVIEWER, True),
        ("maintainer", AcceptBy.ANYONE, True),
        ("maintainer", AcceptBy.ADMIN, False),
        ("owner", AcceptBy.ADMIN, True),
    ],
)
def test_the_author_alone_accepts_only_where_the_settings_say_so(
    github: GitHubStandIn, tmp_path: Path, *, login: str, accept_by: AcceptBy, is_accepted: bool
) -> None:
    """An author with write access accepted their own regression."""
    github.pull_requests[0]["user"] = {"login": "maintainer"}
    post_report(github, tmp_path)
    asked = request(github, f"{PREFIX} accept it is meant", login)

    reply = carry_out(github.repository(), asked, "roofwatch", accept_by)

    assert (reply.reaction == "+1") == is_accepted
    assert ("Accepted" in report_comment(github)) == is_accepted
    if not is_accepted:
        assert "Not accepted: " in reply.line


def test_an_acceptance_ends_when_the_settings_no_longer_allow_it(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    post_report(github, tmp_path)
    write_comment(github, f"{PREFIX} accept it is meant")
    assert post_report(github, tmp_path, run_id=11).check_run == "neutral"

    github.pull_requests[0]["user"] = {"login": "maintainer"}

    assert post_report(github, tmp_path, run_id=12).check_run == "failure"


def test_a_wrong_result_is_accepted_only_by_name(github: GitHubStandIn, tmp_path: Path) -> None:
    post_report(github, tmp_path, "incorrect")

    refused, reaction = write_comment(github, f"{PREFIX} accept it is meant")
    assert (reaction, "`/roofwatch accept --wrong-result <reason>`" in refused) == (
        "confused",
        True,
    )
    assert "Accepted" not in report_comment(github)

    write_comment(github, f"{PREFIX} accept --wrong-result the old one was wrong")
    again = post_report(github, tmp_path, "incorrect", run_id=11)

    assert (again.check_run, again.accepted_by) == ("neutral", "maintainer")
    assert "`the old one was wrong`" in report_comment(github)
