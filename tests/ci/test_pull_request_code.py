"""What the machine code of a pull request is judged by."""

from typing import Any

import pytest

from roofwatch.ci.gate import exit_code
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.collector.record.machine import Outcome
from roofwatch.db.values import Verdict
from tests.builders import make_static_facts
from tests.ci.values import SWIGLU, make_records, make_timed


def only_static(judgement: PullRequestJudgement) -> StaticJudgement:
    (item,) = judgement.static
    return item


def judge_static(base: Any, head: Any) -> PullRequestJudgement:
    return judge_pull_request(*make_records([make_timed(), *base], [make_timed(), *head]))


def test_equal_machine_code_is_counted_and_not_listed() -> None:
    facts = [make_static_facts(), make_static_facts(target="gfx942")]

    judgement = judge_static(facts, facts)

    assert judgement.static == ()
    assert judgement.unchanged_by_target == {"gfx942": 1, "sm_90": 1}
    assert judgement.counts["unchanged"] == 3


@pytest.mark.parametrize(
    ("fields", "verdict", "reason"),
    [
        ({"local_bytes": 48}, Verdict.REGRESSED, Reason.SPILLS_MOVED),
        ({"spilled_registers": 4}, Verdict.REGRESSED, Reason.SPILLS_MOVED),
        ({"registers": 255, "shared_bytes": 9_999}, Verdict.UNCHANGED, Reason.CODE_MOVED),
        ({}, Verdict.UNCHANGED, Reason.CODE_MOVED),
    ],
)
def test_machine_code_that_moved_is_judged_by_memory_per_thread(
    fields: dict[str, Any], verdict: Verdict, reason: Reason
) -> None:
    judgement = judge_static(
        [make_static_facts(spilled_registers=0)], [make_static_facts(code="b", **{"spilled_registers": 0} | fields)]
    )

    item = only_static(judgement)
    assert (item.verdict, item.reason) == (verdict, reason)
    assert exit_code(judgement) == (1 if verdict is Verdict.REGRESSED else 0)


def test_fewer_spills_are_an_improvement() -> None:
    judgement = judge_static([make_static_facts(local_bytes=48)], [make_static_facts(code="b")])

    assert only_static(judgement).verdict is Verdict.IMPROVED


def test_a_target_that_no_longer_compiles_is_lost() -> None:
    judgement = judge_static([make_static_facts()], [make_static_facts(outcome=Outcome.COMPILE_ERROR)])

    assert only_static(judgement).reason is Reason.TARGET_LOST
    assert exit_code(judgement) == 1


def test_a_target_that_is_not_compiled_any_more_could_not_be_told() -> None:
    both = [make_static_facts(), make_static_facts(target="gfx942")]

    judgement = judge_static(both, both[:1])

    item = only_static(judgement)
    assert (item.target, item.reason) == ("gfx942", Reason.TARGET_LOST)
    assert exit_code(judgement) == 2


def test_a_target_that_compiles_again_is_an_improvement() -> None:
    judgement = judge_static([make_static_facts(outcome=Outcome.COMPILE_ERROR)], [make_static_facts()])

    assert only_static(judgement).reason is Reason.FIXED


def test_a_target_that_never_compiled_is_nobodys_fault() -> None:
    facts = [make_static_facts(outcome=Outcome.UNSUPPORTED)]

    judgement = judge_static(facts, facts)

    assert judgement.static == ()
    assert judgement.unchanged_by_target == {}


def test_a_renamed_function_is_compared_with_what_it_was() -> None:
    judgement = judge_static([make_static_facts(function="_old")], [make_static_facts(function="_new")])

    assert judgement.static == ()
    assert judgement.unchanged_by_target == {"sm_90": 1}


def test_two_functions_that_became_one_are_no_loss() -> None:
    judgement = judge_static(
        [make_static_facts(function="_one"), make_static_facts(function="_two", code="b")],
        [make_static_facts(function="_one")],
    )

    assert only_static(judgement).reason is Reason.REMOVED_CASE
    assert exit_code(judgement) == 0


def test_a_new_function_is_new_unless_it_fails() -> None:
    new = judge_static([], [make_static_facts()])
    failing = judge_static([], [make_static_facts(outcome=Outcome.COMPILE_ERROR)])

    assert only_static(new).reason is Reason.NEW_CASE
    assert exit_code(new) == 0
    assert only_static(failing).reason is Reason.FAILED
    assert exit_code(failing) == 1


def test_the_functions_of_a_removed_case_are_not_told_twice() -> None:
    base: list[Any] = [make_timed(), make_timed(SWIGLU), make_static_facts(SWIGLU)]

    judgement = judge_pull_request(*make_records(base, [make_timed()]))

    assert judgement.static == ()
