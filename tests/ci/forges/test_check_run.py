"""Check-runs and comments: conclusion, annotations, one of each."""

import math
from dataclasses import replace

import pytest

from roofwatch.ci.forges.check_run import (
    BEGUN,
    Annotation,
    CheckRun,
    Conclusion,
    annotations_of,
    concluded,
)
from roofwatch.ci.forges.comment import (
    CommentAction,
    CommentState,
    check_name,
    compose,
    post_comment,
    report_marker,
)
from roofwatch.ci.forges.event import ActionsRun, Job, PullRequest, RunOrder
from roofwatch.ci.messages import ForgeError
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.record import RunRecord
from roofwatch.model.source_line import SourceLine
from tests.builders import CASE_ID, make_source_line, make_static_facts, sha_of
from tests.ci.forges.stand_in import REPOSITORY, GitHubStandIn
from tests.ci.situations import SITUATIONS

SHA = sha_of(1)
RUN = RunOrder(10, 1)
FAILED = CheckRun(Conclusion.FAILURE, "regressed: 1 regressed", "### what\n\nand how much")
URL = "https://github.example/example/project/actions/runs/10"


def post(
    github: GitHubStandIn, check: CheckRun, order: RunOrder = RUN, name: str = "roofwatch"
) -> None:
    github.repository().conclude(SHA, name, order, check, URL)


def test_a_repeated_post_updates_its_check_run_without_repeating_annotations(
    github: GitHubStandIn,
) -> None:
    post(github, annotated(2))
    post(github, replace(annotated(2), conclusion=Conclusion.NEUTRAL))

    (check_run,) = github.check_runs.values()
    assert (check_run["conclusion"], len(check_run["annotations"])) == ("neutral", 2)


def test_a_late_older_run_decides_nothing(github: GitHubStandIn) -> None:
    post(github, FAILED, RunOrder(11, 1))
    post(github, replace(FAILED, conclusion=Conclusion.SUCCESS), RUN)

    (check_run,) = github.check_runs.values()
    assert check_run["conclusion"] == "failure"


def test_the_pull_request_of_a_fork_is_found_by_its_commit(github: GitHubStandIn) -> None:
    heads = [
        (7, "someone:fix/faster", SHA),
        (8, "someone:other", SHA),
        (9, "someone:fix/faster", sha_of(2)),
    ]
    github.pull_requests = [
        {"number": number, "head": {"label": label, "sha": sha}} for number, label, sha in heads
    ]
    job = Job(ActionsRun(github.url, REPOSITORY, RUN, URL), SHA, head_label="someone:fix/faster")

    assert github.repository().pull_requests(job) == [PullRequest(7)]
    assert github.repository().pull_requests(replace(job, head_sha=sha_of(3))) == [], (
        "it has moved on"
    )


def annotated(count: int) -> CheckRun:
    made = (
        Annotation(f"kernels/{number}.py", number + 1, True, "f", "slower")
        for number in range(count)
    )
    return replace(FAILED, annotations=tuple(made))


@pytest.mark.parametrize("count", [0, 50, 51])
def test_the_check_run_in_progress_concludes_with_annotations_in_batches_of_fifty(
    github: GitHubStandIn, count: int
) -> None:
    post(github, BEGUN)
    (check_run,) = github.check_runs.values()
    assert (check_run["status"], check_run["conclusion"], check_run["head_sha"]) == (
        "in_progress",
        None,
        SHA,
    )

    post(github, annotated(count))

    assert list(github.check_runs.values()) == [check_run]
    assert (check_run["status"], check_run["details_url"]) == ("completed", URL)
    assert [each["path"] for each in check_run["annotations"]] == [
        f"kernels/{number}.py" for number in range(count)
    ]
    assert github.requests.count("update_check_run") == max(1, math.ceil(count / 50))
    assert check_run["conclusion"] == "failure"
    assert check_run["output"] == {"title": FAILED.title, "summary": FAILED.summary}


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_broken_request_leaves_one_check_run_with_each_annotation_once(
    github: GitHubStandIn, waits_s: list[float], is_carried_out: bool
) -> None:
    github.break_connection("create_check_run", is_carried_out=is_carried_out)

    post(github, annotated(70))

    assert waits_s == [4]
    (check_run,) = github.check_runs.values()
    assert (check_run["conclusion"], len(check_run["annotations"])) == ("failure", 70)


# --- the conclusion


def test_a_title_of_hostile_names_is_one_short_line() -> None:
    title = concluded(judge_pull_request(*SITUATIONS["hostile_names"]()), "").title

    assert len(title) <= 200
    assert title.isprintable()


# --- annotations


def annotations(records: tuple[RunRecord, RunRecord], *lines: SourceLine) -> tuple[Annotation, ...]:
    base, head = records
    return annotations_of(judge_pull_request(base, head.model_copy(update={"source_lines": lines})))


def test_a_slowdown_is_annotated_where_its_code_is() -> None:
    kernel = make_source_line(function="_rms_norm_kernel", line=3, is_jitted=True)
    other = make_source_line(function="_b", line=5, is_jitted=True)

    (called,) = annotations(SITUATIONS["regression"](), make_source_line())
    (compiled,) = annotations(SITUATIONS["regression"](), make_source_line(), kernel)
    (of_several,) = annotations(SITUATIONS["regression"](), make_source_line(), kernel, other)

    assert (called.file, called.line, called.is_failure) == ("kernels/rms_norm.py", 12, True)
    assert called.title == "rms_norm_torch: 1 regressed"
    assert called.message.startswith(f"{CASE_ID} torch: slower: time +40.")
    assert (compiled.line, of_several.line) == (3, 12)


def test_worse_machine_code_is_annotated_at_its_function() -> None:
    function = make_static_facts().function
    lines = [
        make_source_line(implementation="triton"),
        make_source_line(implementation="triton", function="_other", line=30, is_jitted=True),
        make_source_line(implementation="triton", function=function, line=20, is_jitted=True),
    ]

    (found,) = annotations(SITUATIONS["static_toolchain"](), *lines)

    assert (found.line, found.title) == (20, f"{function}: 1 regressed")
    assert "for sm_90: " in found.message


NUMBER = 7
FIRST, SECOND, THIRD = (RunOrder(run_id, 1) for run_id in (10, 11, 12))


def comment_body(text: str, order: RunOrder = FIRST, name: str = "roofwatch") -> str:
    return compose(report_marker(name), CommentState(order=order), text)


def post_one(
    github: GitHubStandIn, text: str, order: RunOrder = FIRST, *, is_silent: bool = False
) -> CommentAction:
    return post_comment(github.repository(), NUMBER, comment_body(text, order), is_silent=is_silent)


def test_the_comment_is_found_on_the_third_page(github: GitHubStandIn) -> None:
    github.page_length = 10
    for count in range(24):
        github.add_comment(f"comment {count}", user={"login": "someone", "type": "User"})
    ours = github.add_comment(comment_body("slower"))

    assert post_one(github, "fine again", SECOND) is CommentAction.EDITED

    assert github.comments[ours]["body"] == comment_body("fine again", SECOND)
    assert len(github.comments) == 25


def test_no_comment_but_the_report_s_own_is_written(
    github: GitHubStandIn,
) -> None:
    others = [
        github.add_comment(comment_body("slower"), number=8),
        github.add_comment(comment_body("slower", name="H200")),
        github.add_comment(comment_body("slower"), user={"login": "someone", "type": "User"}),
        github.add_comment(f"> {comment_body('slower')}"),
        github.add_comment(f"{report_marker('roofwatch')}\n### pasted by a maintainer"),
    ]
    before = [github.comments[number]["body"] for number in others]

    assert post_one(github, "here") is CommentAction.POSTED

    assert [github.comments[number]["body"] for number in others] == before


def test_a_silent_report_updates_a_comment_but_posts_none(github: GitHubStandIn) -> None:
    assert post_one(github, "nothing changed", is_silent=True) is CommentAction.LEFT
    assert github.bodies == []

    post_one(github, "slower", SECOND)
    assert post_one(github, "nothing changed", THIRD, is_silent=True) is CommentAction.EDITED
    assert github.bodies == [comment_body("nothing changed", THIRD)]


def test_a_late_older_run_changes_nothing(github: GitHubStandIn) -> None:
    post_one(github, "fine again", SECOND)

    assert post_one(github, "slower", FIRST) is CommentAction.LEFT
    assert github.bodies == [comment_body("fine again", SECOND)]


def test_two_comments_of_simultaneous_jobs_become_one(github: GitHubStandIn) -> None:
    oldest = github.add_comment(comment_body("one", FIRST))
    github.add_comment(comment_body("two", SECOND))

    post_one(github, "three", THIRD)

    assert list(github.comments) == [oldest]
    assert github.bodies == [comment_body("three", THIRD)]


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_broken_post_is_repeated_only_if_it_was_not_carried_out(
    github: GitHubStandIn, waits_s: list[float], is_carried_out: bool
) -> None:
    github.break_connection("create_comment", is_carried_out=is_carried_out)

    post_one(github, "slower")

    assert waits_s == [4]
    assert github.bodies == [comment_body("slower")]
    assert github.requests.count("create_comment") == (1 if is_carried_out else 2)


def test_a_plain_name_is_accepted() -> None:
    check_name("H200 (nightly)")


@pytest.mark.parametrize("name", ["", "a --> b", "a\nb", "x" * 61])
def test_a_name_that_could_end_a_marker_is_refused(name: str) -> None:
    with pytest.raises(ForgeError, match="--name"):
        check_name(name)
