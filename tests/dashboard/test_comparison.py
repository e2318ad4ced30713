from dataclasses import replace
from typing import Any

import pytest

from roofwatch.collector.record.machine import Outcome
from roofwatch.dashboard.comparison import (
    Order,
    change_points_between,
    changed_facts,
    compare_runs,
    in_order,
    why_not_comparable,
)
from roofwatch.db.values import RegressionState
from tests.builders import make_change_point, make_commit_ref, make_regression, make_series_key
from tests.dashboard.values import make_failed_case, make_measured_case, make_run_detail, make_static_row


def test_the_relative_change_is_that_of_the_medians_shown() -> None:
    base = make_run_detail(0, cases=[make_measured_case(median_ns=10_000.0)])
    head = make_run_detail(1, cases=[make_measured_case(median_ns=12_000.0)])
    (row,) = compare_runs(base, head, [])
    assert row.relative_change == pytest.approx(0.2)


def test_a_large_difference_without_a_stored_judgement_has_no_verdict() -> None:
    base = make_run_detail(0, cases=[make_measured_case(median_ns=10_000.0)])
    head = make_run_detail(1, cases=[make_measured_case(median_ns=90_000.0)])
    (row,) = compare_runs(base, head, [])
    assert row.change_points == ()


def test_judged_comes_before_broken_before_one_sided_before_moved() -> None:
    def named(name: str, **fields: Any) -> Any:
        return make_measured_case(implementation=name, **fields)

    base = make_run_detail(0, cases=[named("judged"), named("broken"), named("faster"), named("slower"), named("same")])
    head = make_run_detail(
        1,
        cases=[
            named("same"),
            named("slower", median_ns=12_000.0),
            named("faster", median_ns=5_000.0),
            make_failed_case(implementation="broken"),
            named("new"),
            named("judged", median_ns=10_100.0),
        ],
    )
    change = make_change_point(1, series=make_series_key(implementation="judged"))
    rows = compare_runs(base, head, [make_regression(1, change_points=(change,))])
    assert [row.implementation for row in rows] == ["judged", "broken", "new", "faster", "slower", "same"]
    assert [row.implementation for row in in_order(rows, Order.SLOWER)][:2] == ["slower", "judged"]
    # what has no change comes last, whichever is asked for first
    assert [row.implementation for row in in_order(rows, Order.FASTER)] == [
        *("faster", "same", "judged", "slower"),
        *("broken", "new"),
    ]
    assert in_order(rows, Order.RELEVANCE) == rows


def test_what_exists_on_one_side_only_has_no_change() -> None:
    base = make_run_detail(0, cases=[make_measured_case(implementation="gone")])
    head = make_run_detail(1, cases=[make_measured_case(implementation="new")])
    rows = {row.implementation: row for row in compare_runs(base, head, [])}
    assert (rows["gone"].head, rows["new"].base) == (None, None)
    assert rows["gone"].relative_change is None


@pytest.mark.parametrize(
    ("base", "head", "found"), [(0, 1, False), (0, 2, True), (1, 3, True), (2, 3, False), (3, 0, False)]
)
def test_a_change_point_lies_between_only_after_the_base_and_up_to_the_head(base: int, head: int, found: bool) -> None:
    between = change_points_between(
        make_commit_ref(base), make_commit_ref(head), [make_regression(2, change_points=(make_change_point(2),))]
    )
    assert bool(between) is found


def test_a_dismissed_change_point_is_no_verdict() -> None:
    dismissed = make_regression(1, state=RegressionState.DISMISSED)
    assert change_points_between(make_commit_ref(0), make_commit_ref(1), [dismissed]) == []


def test_verdicts_of_another_runner_class_are_not_shown() -> None:
    change = make_change_point(1, series=make_series_key(runner_class="another"))
    base, head = (make_run_detail(number, cases=[make_measured_case()]) for number in (0, 1))
    (row,) = compare_runs(base, head, [make_regression(1, change_points=(change,))])
    assert row.change_points == ()


@pytest.mark.parametrize(
    ("differing", "reason"),
    [({"runner_class": "another"}, "measured on"), ({"harness_version": "another"}, "by harness")],
)
def test_runs_that_differ_in_runner_class_or_harness_are_refused_with_the_reason(
    differing: dict[str, Any], reason: str
) -> None:
    base = make_run_detail(0).summary
    head = replace(make_run_detail(1).summary, **differing)
    assert reason in str(why_not_comparable(base, head))
    assert why_not_comparable(base, base) is None


def test_equal_machine_code_on_every_target_is_said() -> None:
    rows = [make_static_row(target="sm_80"), make_static_row(target="sm_90")]
    case = make_measured_case(implementation="triton")
    base = make_run_detail(0, cases=[case], static_rows=rows)
    (row,) = compare_runs(base, make_run_detail(1, cases=[case], static_rows=rows), [])
    assert row.code_change == "same everywhere"


def test_the_targets_whose_machine_code_changed_are_named() -> None:
    case = make_measured_case(implementation="triton")
    base = make_run_detail(
        0, cases=[case], static_rows=[make_static_row(target="sm_80"), make_static_row(target="sm_90")]
    )
    head = make_run_detail(
        1,
        cases=[case],
        static_rows=[make_static_row(target="sm_80"), make_static_row(target="sm_90", code="second")],
    )
    (row,) = compare_runs(base, head, [])
    assert row.code_change == "changed on 1 of 2: sm_90"


def test_changed_facts_are_named_with_both_numbers() -> None:
    before, now = make_static_row(), make_static_row(code="second", registers=64, local_bytes=128)
    assert changed_facts(before, now) == "code changed, registers 32 → 64, local bytes 0 → 128"
    assert changed_facts(before, before) == "same machine code"
    assert changed_facts(None, now) == "new"


def test_a_compilation_that_fails_now_is_a_change_of_outcome() -> None:
    failed = make_static_row(outcome=Outcome.COMPILE_ERROR, code_hash=None)
    assert changed_facts(make_static_row(), failed) == "ok → compile error"
