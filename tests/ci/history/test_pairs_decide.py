"""A paired verdict is a regression at once, however short the history is."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.model.verdict import Verdict
from tests.builders import PROJECT, make_commit_ref, make_pair_of_records
from tests.ci.values import judge_history, make_pair, make_series, only, stepped
from tests.databases import ingest_all


def test_one_slower_pair_is_a_confirmed_alert_without_any_other_run() -> None:
    found = only(judge_history([make_series([10_000.0, 12_000.0])], [make_pair(0, 1, factor=1.2)]))

    assert (found.commit, found.verdict) == (make_commit_ref(1), Verdict.REGRESSED)
    assert found.is_confirmed
    assert found.is_alert
    assert found.typical_change == pytest.approx(0.2, abs=0.02)


def test_a_slower_pair_of_the_same_code_is_no_regression() -> None:
    series = make_series([10_000.0, 12_000.0])

    assert judge_history([series], [make_pair(0, 1, factor=1.2, is_same_code=True)]) == []


def test_an_unchanged_pair_is_no_regression() -> None:
    series = make_series([10_000.0, 12_000.0])

    assert judge_history([series], [make_pair(0, 1, factor=1.0)]) == []


def test_a_pair_of_a_commit_outside_the_branch_is_no_regression() -> None:
    series = make_series([10_000.0, 10_000.0])

    assert judge_history([series], [make_pair(0, 9, factor=1.5)]) == []


def test_the_pairs_of_a_bisection_name_the_first_commit_with_the_change() -> None:
    pairs = [
        make_pair(0, 8, factor=1.3),
        make_pair(0, 4, factor=1.0),
        make_pair(0, 6, factor=1.3),
        make_pair(0, 5, factor=1.0),
    ]
    values = [10_000.0] * 6 + [13_000.0] * 3

    found = only(judge_history([make_series(values)], pairs))

    (change,) = found.change_points
    assert found.commit == make_commit_ref(6)
    assert change.previous_commit == make_commit_ref(5)
    assert found.is_confirmed


def test_a_pair_over_several_commits_confirms_the_step_between_them() -> None:
    found = only(judge_history([make_series(stepped())], [make_pair(6, 8, factor=1.4)]))

    assert found.is_confirmed
    assert found.commit == make_commit_ref(8)


def test_a_stored_pair_is_a_regression_of_the_project(store: Engine) -> None:
    records = make_pair_of_records(3, 5, head_median_ns=15_000.0, block_count=8)
    ingest_all(store, *records)

    found = only(analyse_project(store, PROJECT))

    assert found.is_alert
    assert found.commit.sha == records[1].commit.sha
