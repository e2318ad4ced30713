"""What of two runs is not compared, case by case, and why."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import Engine

from roofwatch.collector.record.measurement import CacheState
from roofwatch.dashboard.comparison import Order, Shown, compare_runs, in_order
from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import make_blocks, make_measurement, make_record
from tests.dashboard.conftest import OpenView
from tests.dashboard.test_views import table
from tests.dashboard.values import make_failed_case, make_measured_case, make_run_detail


def compared(differing: dict[str, Any]) -> Any:
    alike = make_measured_case(implementation="alike", median_ns=10_000.0)
    other = make_measured_case(implementation="other", median_ns=10_000.0)
    head = [replace(alike, median_ns=11_000.0), replace(other, median_ns=4_000.0, **differing)]
    return compare_runs(make_run_detail(0, cases=[alike, other]), make_run_detail(1, cases=head), [])


@pytest.mark.parametrize(
    ("differing", "why"),
    [
        ({"timer": "graph"}, "timer cupti and graph"),
        ({"timer": "graph", "cache": "cold"}, "timer cupti and graph; cache hot and cold"),
        ({"cache": "cold"}, "cache hot and cold"),
    ],
)
def test_a_case_that_was_timed_in_another_way_has_no_change_and_says_why(differing: dict[str, Any], why: str) -> None:
    rows = {row.implementation: row for row in compared(differing)}
    assert (rows["other"].refusal, rows["other"].relative_change) == (why, None)
    assert (rows["alike"].refusal, rows["alike"].relative_change) == ("", pytest.approx(0.1))


def test_what_is_not_compared_takes_no_place_among_what_moved_and_can_be_listed_alone() -> None:
    rows = compared({"cache": "cold"})
    for order in (Order.RELEVANCE, Order.SLOWER, Order.FASTER):
        assert [row.implementation for row in in_order(rows, order)] == ["alike", "other"]
    assert [row.implementation for row in rows if Shown.REFUSED.admits(row)] == ["other"]


def test_of_a_side_without_a_time_nothing_is_refused() -> None:
    base = make_run_detail(0, cases=[make_measured_case()])
    head = make_run_detail(1, cases=[make_failed_case()])
    (row,) = compare_runs(base, head, [])
    assert (row.refusal, row.relative_change) == ("", None)


def test_runs_on_two_runner_classes_have_no_change_in_any_case() -> None:
    base = make_run_detail(0, cases=[make_measured_case()])
    head = make_run_detail(1, cases=[make_measured_case(median_ns=1.0)], runner_class="another")
    (row,) = compare_runs(base, head, [])
    assert row.relative_change is None
    assert "another" in row.refusal


def test_the_page_leaves_the_change_out_and_says_why(open_view: OpenView, store: Engine) -> None:
    for number, cache, median_ns in ((0, CacheState.HOT, 10_000.0), (1, CacheState.COLD, 4_000.0)):
        blocks = make_blocks([median_ns] * 2)
        ingest_record(store, make_record(number, measurements=[make_measurement(cache=cache, blocks=blocks)]))
    app = open_view("compare")

    rows = table(app, "not compared")
    assert rows["change"].isna().all()
    assert rows["not compared"].tolist() == ["cache hot and cold"]
    assert "1 of 1 cases are not comparable" in app.warning[0].value


def test_what_is_exported_has_no_change_where_the_page_has_none() -> None:
    from roofwatch.dashboard.export import to_csv
    from roofwatch.dashboard.views.compare import _written

    exported = pd.read_csv(io.BytesIO(_written(compared({"cache": "cold"}), to_csv)))
    assert exported["relative change"].isna().tolist() == [False, True]
    assert exported["not compared"].fillna("").tolist() == ["", "cache hot and cold"]
