"""Two runs side by side, as values, as a table and as files."""

from __future__ import annotations

import io
import statistics
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.ci.static.comparison import StaticChange, judge_static
from roofwatch.dashboard.comparison import (
    ComparedRow,
    Group,
    change_points_between,
    differences,
    geomean_of,
    rows_of,
    summarise,
    why_not_comparable,
)
from roofwatch.dashboard.components.compare_files import frame_of_rows, to_csv
from roofwatch.dashboard.components.evidence import code_columns, worst_first
from roofwatch.dashboard.components.table import frame_of
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Better, imported_key
from roofwatch.model.provenance import LoadedFile, Origin
from roofwatch.model.stored_results import ImportedPair
from tests.builders import (
    CASE_ID,
    make_blocks,
    make_change_point,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_regression,
    make_series_key,
    make_static_facts,
)
from tests.dashboard.values import make_measured_case, make_run_detail


def named(name: str, **fields: Any) -> Any:
    return make_measured_case(implementation=name, **fields)


def test_what_two_separate_runs_cannot_decide_is_a_group_of_its_own() -> None:
    base = make_run_detail(0, cases=[named("broken"), named("slower"), named("same")])
    head = make_run_detail(
        1,
        cases=[
            named("same"),
            named("slower", median_ns=14_000.0),
            named("broken", outcome=Outcome.TIMED_OUT, median_ns=None),
            named("new"),
        ],
    )
    rows = rows_of(base, head, [])

    assert [(row.key.implementation, row.group) for row in rows] == [
        ("broken", Group.BROKEN),
        ("slower", Group.CANNOT_SAY),
        ("new", Group.CANNOT_SAY),
        ("same", Group.CANNOT_SAY),
    ]


def test_the_groups_are_those_of_the_command_line() -> None:
    """Neighbouring runs of one machine, of which a user's command said that it cannot tell."""
    base_record, head_record = (
        make_record(number, measurements=[make_measurement(blocks=make_blocks(blocks_ns))])
        for number, blocks_ns in enumerate(
            ([50_900.0, 48_000.0, 71_000.0], [63_500.0, 52_000.0, 64_000.0])
        )
    )
    judgement = judge_pull_request(base_record, head_record)
    sides = [
        make_run_detail(number, cases=[make_measured_case(median_ns=median_ns)])
        for number, median_ns in enumerate((50_900.0, 63_500.0))
    ]
    (row,) = rows_of(sides[0], sides[1], [], judgement=judgement)
    (case,) = judgement.cases

    assert (row.group, row.verdict) == (Group.CANNOT_SAY, case.verdict)
    assert row.claim == case.evidence.claim
    assert case.evidence.comparison is not None
    assert row.interval == case.evidence.comparison.relative_interval
    low, high = row.interval
    assert low < 0 < high


def test_a_confirmed_pair_is_slower_with_its_interval() -> None:
    base_record, head_record = make_pair_of_records(head_median_ns=13_000.0, block_count=12)
    judgement = judge_pull_request(base_record, head_record)
    sides = [
        make_run_detail(number, cases=[make_measured_case(median_ns=median_ns)])
        for number, median_ns in enumerate((10_000.0, 13_000.0))
    ]
    (row,) = rows_of(sides[0], sides[1], [], judgement=judgement)

    assert row.group is Group.SLOWER
    assert row.change == pytest.approx(0.3)


FOUND = make_change_point(1, series=make_series_key(implementation="judged"))
"""A change that the history found."""


def rows_with_found_change() -> list[ComparedRow]:
    cases = [named(name) for name in ("a", "judged")]
    return rows_of(
        make_run_detail(0, cases=cases),
        make_run_detail(1, cases=cases),
        [make_regression(1, change_points=(FOUND,))],
    )


def test_changes_that_the_history_found_come_first() -> None:
    rows = rows_with_found_change()
    assert [row.key.implementation for row in rows] == ["judged", "a"]
    assert rows[0].change_points == (FOUND,)


def test_changes_that_the_history_found_are_counted() -> None:
    rows = rows_with_found_change()
    assert (summarise(rows).worse_found, summarise(rows).better_found) == (1, 0)


def test_the_geomean_of_a_runner_has_an_interval_over_its_cases() -> None:
    changes = (0.10, 0.20, 0.30)
    base = [named(f"{number}", median_ns=10_000.0) for number in range(3)]
    head = [
        named(f"{number}", median_ns=10_000.0 * (1 + change))
        for number, change in enumerate(changes)
    ]
    rows = rows_of(make_run_detail(0, cases=base), make_run_detail(1, cases=head), [])
    geomean = geomean_of(rows)

    assert geomean is not None
    assert geomean.change == pytest.approx(statistics.geometric_mean([1.1, 1.2, 1.3]) - 1)
    assert geomean.interval is not None
    low, high = geomean.interval
    assert low < 0.10 < geomean.change < 0.30 < high
    of_two = geomean_of(rows[:2])
    assert of_two is not None
    assert of_two.interval is None


def test_a_rate_that_rises_is_a_time_that_falls_in_the_mean() -> None:
    pair = ImportedPair(
        case_id="gemm/M=1/any/fwd",
        implementation="mine",
        metric=imported_key("rate", "TFLOP/s", Better.HIGHER),
        base_outcome=Outcome.OK,
        base=100.0,
        head_outcome=Outcome.OK,
        head=200.0,
    )
    rows = rows_of(make_run_detail(0), make_run_detail(1), [], imported=[pair])

    geomean = geomean_of(rows)
    assert geomean is not None
    assert geomean.change == pytest.approx(-0.5)
    assert rows[0].group is Group.CANNOT_SAY
    assert rows[0].change == pytest.approx(1.0)


def test_the_median_share_of_the_roof_stands_beside_that_of_the_base() -> None:
    sides = [
        make_run_detail(number, cases=[named("a", utilisation=share), named("b", utilisation=None)])
        for number, share in enumerate((0.7, 0.6))
    ]
    assert summarise(rows_of(sides[0], sides[1], [])).roofs == (0.7, 0.6)


def test_another_driver_is_named_because_it_may_explain_a_change() -> None:
    old, new = (
        replace(make_run_detail(number), environment=make_environment(driver_version=version))
        for number, version in enumerate(("570.1", "580.2"))
    )
    assert differences(old, new) == ["driver 570.1 → 580.2"]
    assert differences(old, old) == []


@pytest.mark.parametrize(
    ("base", "head", "found"),
    [(0, 1, False), (0, 2, True), (1, 3, True), (2, 3, False), (3, 0, False)],
)
def test_a_change_point_lies_between_only_after_the_base_up_to_the_head(
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
def test_runs_of_different_setups_are_refused_with_the_reason(
    differing: dict[str, Any], reason: str
) -> None:
    base, head = make_run_detail(0), make_run_detail(1)
    head = replace(head, summary=replace(head.summary, **differing))
    assert reason in str(why_not_comparable(base, head))
    assert why_not_comparable(base, base) is None


def test_a_run_of_foreign_code_is_refused_with_the_origin_of_its_module() -> None:
    base, head = make_run_detail(0), make_run_detail(1)
    installed = LoadedFile(module="qk.ops", path="qk/ops.py", origin=Origin.INSTALLED)
    head = replace(head, foreign_code=installed)

    refusal = str(why_not_comparable(base, head))

    assert "the head loaded qk.ops from the installed packages" in refusal


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
    matching, other = named("matching"), named("other")
    head = [replace(matching, median_ns=11_000.0), replace(other, median_ns=4_000.0, **differing)]
    rows = rows_of(make_run_detail(0, cases=[matching, other]), make_run_detail(1, cases=head), [])

    exported = pd.read_csv(io.BytesIO(to_csv(frame_of_rows(rows)))).set_index("implementation")
    assert exported.loc["matching", "relative change"] == pytest.approx(0.1)
    assert exported["relative change"].isna().to_dict() == {"matching": False, "other": True}
    assert exported.loc["other", "not compared"] == why


def test_the_export_has_numbers_in_columns_of_their_own() -> None:
    base_record, head_record = make_pair_of_records(head_median_ns=13_000.0, block_count=12)
    sides = [
        make_run_detail(number, cases=[make_measured_case(median_ns=median_ns, utilisation=share)])
        for number, median_ns, share in ((0, 10_000.0, 0.6), (1, 13_000.0, 0.46))
    ]
    rows = rows_of(sides[0], sides[1], [], judgement=judge_pull_request(base_record, head_record))
    frame = frame_of_rows(rows)

    for name in ("base", "head", "relative change", "interval low", "interval high"):
        assert pd.api.types.is_float_dtype(frame[name]), name
    (row,) = frame.to_dict("records")
    assert row["interval low"] <= row["relative change"] <= row["interval high"]
    assert (row["base share of achievable"], row["head share of achievable"]) == (0.6, 0.46)
    assert (row["unit"], row["group"]) == ("ns", "slower")


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
