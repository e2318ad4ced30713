"""Two runs side by side, as values, as a table and as files."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from roofwatch.ci.static.comparison import StaticChange, judge_static
from roofwatch.dashboard.comparison import (
    SHOWN,
    change_points_between,
    compare_runs,
    why_not_comparable,
)
from roofwatch.dashboard.components.evidence import code_columns, worst_first
from roofwatch.dashboard.components.table import frame_of
from roofwatch.dashboard.views.compare import comparison_columns, to_csv
from roofwatch.model.machine import Outcome
from roofwatch.model.provenance import LoadedFile, Origin
from tests.builders import (
    CASE_ID,
    make_change_point,
    make_commit_ref,
    make_regression,
    make_series_key,
    make_static_facts,
)
from tests.dashboard.values import make_measured_case, make_run_detail


def test_rows_are_sorted_by_relevance() -> None:
    def named(name: str, **fields: Any) -> Any:
        return make_measured_case(implementation=name, **fields)

    base = make_run_detail(
        0, cases=[named("judged"), named("broken"), named("faster"), named("slower"), named("same")]
    )
    head = make_run_detail(
        1,
        cases=[
            named("same"),
            named("slower", median_ns=12_000.0),
            named("faster", median_ns=5_000.0),
            named("broken", outcome=Outcome.TIMED_OUT, median_ns=None),
            named("new"),
            named("judged", median_ns=10_100.0),
        ],
    )
    change = make_change_point(1, series=make_series_key(implementation="judged"))
    rows = compare_runs(base, head, [make_regression(1, change_points=(change,))])
    assert [row.implementation for row in rows] == [
        "judged",
        "broken",
        "new",
        "faster",
        "slower",
        "same",
    ]


@pytest.mark.parametrize(
    ("base", "head", "found"),
    [(0, 1, False), (0, 2, True), (1, 3, True), (2, 3, False), (3, 0, False)],
)
def test_a_change_point_lies_between_only_after_the_base_and_up_to_the_head(
    base: int, head: int, found: bool
) -> None:
    between = change_points_between(
        make_commit_ref(base),
        make_commit_ref(head),
        [make_regression(2, change_points=(make_change_point(2),))],
    )
    assert bool(between) is found


@pytest.mark.parametrize(
    ("differing", "reason"),
    [({"runner_class": "another"}, "ran on"), ({"harness_version": "another"}, "by harness")],
)
def test_runs_that_differ_in_runner_class_or_harness_are_refused_with_the_reason(
    differing: dict[str, Any], reason: str
) -> None:
    base, head = make_run_detail(0), make_run_detail(1)
    head = replace(head, summary=replace(head.summary, **differing))
    assert reason in str(why_not_comparable(base, head))
    assert why_not_comparable(base, base) is None


def test_a_run_of_foreign_code_is_refused_with_the_module_and_its_place() -> None:
    base, head = make_run_detail(0), make_run_detail(1)
    installed = LoadedFile(module="qk.ops", path="qk/ops.py", origin=Origin.INSTALLED)
    head = replace(head, foreign_code=installed)

    refusal = str(why_not_comparable(base, head))

    assert "the head loaded qk.ops from the installed packages" in refusal


def compared(differing: dict[str, Any]) -> Any:
    matching = make_measured_case(implementation="matching", median_ns=10_000.0)
    other = make_measured_case(implementation="other", median_ns=10_000.0)
    head = [replace(matching, median_ns=11_000.0), replace(other, median_ns=4_000.0, **differing)]
    return compare_runs(
        make_run_detail(0, cases=[matching, other]), make_run_detail(1, cases=head), []
    )


@pytest.mark.parametrize(
    ("differing", "why"),
    [
        ({"timer": "graph", "cache": "cold"}, "timer cupti and graph; cache hot and cold"),
        ({"cache": "cold"}, "cache hot and cold"),
    ],
)
def test_a_case_timed_differently_has_no_change_but_a_reason_also_in_the_export(
    differing: dict[str, Any], why: str
) -> None:
    rows = compared(differing)
    matching, other = sorted(rows, key=lambda row: row.implementation)
    assert (other.refusal, other.relative_change) == (why, None)
    assert (matching.refusal, matching.relative_change) == ("", pytest.approx(0.1))
    assert [row.implementation for row in rows if SHOWN["not comparable"](row)] == ["other"]
    exported = pd.read_csv(io.BytesIO(to_csv(frame_of(rows, comparison_columns(rows)))))
    assert exported["change"].isna().tolist() == [False, True]
    assert exported["not compared"].fillna("").tolist() == ["", why]


def judged(moves: dict[str, dict[str, tuple[Any, Any]]]) -> tuple[StaticChange, ...]:
    """Judge targets by their facts before and after."""
    sides = [
        [
            make_static_facts(
                CASE_ID,
                target=target,
                code=f"{side}",
                **{name: both[side] for name, both in facts.items()},
            )
            for target, facts in moves.items()
        ]
        for side in (0, 1)
    ]
    return judge_static(*sides, base_toolchain={}, head_toolchain={}).changes


def test_changed_code_has_one_row_per_target_worst_first() -> None:
    rows = judged(
        {
            "sm_80": {"registers": (64, 72), "local_bytes": (0, 0)},
            "sm_120": {"registers": (64, 255), "local_bytes": (0, 96)},
            "sm_100": {"registers": (64, 64), "local_bytes": (0, 32)},
        }
    )
    frame = frame_of(worst_first(rows), code_columns(rows))
    assert frame["target"].tolist() == ["sm_100", "sm_120", "sm_80"]
    assert frame["judged"].tolist() == ["regressed", "regressed", "changed"]
    assert frame["registers"].tolist() == ["64", "64 → 255", "64 → 72"]
    assert frame["local memory"].tolist() == ["0 B → 32 B", "0 B → 96 B", "0 B"]


@pytest.mark.parametrize("beginning", ["=", "+", "-", "@", "\t"])
def test_exported_text_is_never_a_formula(beginning: str) -> None:
    csv = to_csv(pd.DataFrame({"kernel": [f"{beginning}1+1"]})).decode()

    assert f"'{beginning}1+1" in csv
