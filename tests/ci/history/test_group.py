"""Findings of one cause are one regression, with one size and one recovery."""

from __future__ import annotations

from typing import Any

import pytest

from roofwatch.ci.causes.odds import Odds, weigh
from roofwatch.ci.history.finding import ALL_KERNELS, TrendFinding, Window
from roofwatch.ci.history.group import group_findings
from roofwatch.ci.history.history import unconfirmed
from roofwatch.ci.history.regression import Population, note_recoveries
from roofwatch.model.history import (
    Cause,
    ChangePoint,
    CommitRef,
    Regression,
    RegressionState,
    SeriesKey,
)
from roofwatch.model.verdict import Status, Verdict
from tests.builders import (
    CASE_ID,
    make_change_point,
    make_commit_ref,
    make_regression,
    make_series_key,
)
from tests.ci.values import SOFTMAX, SWIGLU


def make_finding(
    case_id: str = CASE_ID,
    *,
    implementation: str = "torch",
    status: Status = Status.UNCONFIRMED,
    cause: Cause = Cause.UNKNOWN,
    metric: str = "median_ns",
    number: int = 1,
    around: int = 0,
    runner_class: str = "one machine",
    **fields: Any,
) -> TrendFinding:
    """A change point at the numbered commit; `around` is how many commits it may lie off, on either
    side. What is not confirmed may err by one more.
    """
    key = make_series_key(
        metric, case_id=case_id, implementation=implementation, runner_class=runner_class
    )
    place = make_commit_ref(number).first_parent_count
    slack = around if status is Status.CONFIRMED else around + 1
    return TrendFinding(
        change=make_change_point(number, series=key, **fields),
        status=status,
        suspects=weigh({} if cause is Cause.UNKNOWN else {cause: Odds(9.0, f"it was the {cause}")}),
        window=Window(place - around, place + around),
        reach=Window(place - slack, place + slack),
    )


def group(findings: list[TrendFinding], *, quiet: int = 10) -> list[Regression]:
    """Group among `quiet` more time series that did not move."""
    keys: list[SeriesKey] = [
        finding.change.series for finding in findings if finding.is_performance
    ]
    keys += [
        make_series_key(implementation=f"quiet {number}", runner_class="one machine")
        for number in range(quiet)
    ]
    grouped = group_findings(findings, population=Population(keys))
    return [regression for regression, _ in grouped]


def test_findings_that_share_all_but_the_implementation_are_one_regression() -> None:
    found = group([make_finding(), make_finding(implementation="compile", after=15_000.0)])

    assert len(found) == 1
    assert found[0].summary == (
        "rms_norm: time 10 µs to 15 µs (+50.0%) in rms_norm/n_rows=64,n_cols=128/float32/fwd · "
        "compile, "
        "and 1 more series"
    )
    assert [change.series.implementation for change in found[0].change_points] == [
        "compile",
        "torch",
    ]


@pytest.mark.parametrize(
    "other",
    [
        make_finding(SOFTMAX, after=30_000.0),
        make_finding(implementation="compile", number=8),
        make_finding(verdict=Verdict.IMPROVED, after=8_000.0),
    ],
    ids=["another scale of another kernel", "another commit", "the other way"],
)
def test_another_cause_is_another_regression(other: TrendFinding) -> None:
    assert len(group([make_finding(), other])) == 2


def test_the_worst_comes_first() -> None:
    found = group(
        [
            make_finding(number=10, status=Status.REFUTED, after=90_000.0),
            make_finding(number=20, verdict=Verdict.IMPROVED, after=2_000.0),
            make_finding(number=30, after=15_000.0),
            make_finding(number=40, after=30_000.0),
            make_finding(number=50, after=11_000.0, status=Status.CONFIRMED),
            make_finding(
                number=60, metric="rmse_ratio", before=1e-7, after=None, status=Status.CONFIRMED
            ),
        ]
    )

    assert [regression.commit for regression in found] == [
        make_commit_ref(number) for number in (60, 50, 40, 30, 20, 10)
    ]


def test_the_best_evidence_comes_first_not_the_largest_change() -> None:
    (found,) = group(
        [
            make_finding(
                runner_class="elsewhere", number=1, after=20_000.0, standard_errors=9.0, around=1
            ),
            make_finding(
                runner_class="throttled",
                after=18_000.0,
                standard_errors=40.0,
                degraded_by=("heat",),
            ),
            make_finding(runner_class="no code", after=16_000.0, standard_errors=30.0),
            make_finding(
                runner_class="surest", after=12_500.0, standard_errors=28.0, has_code=True
            ),
            make_finding(
                runner_class="less sure", after=13_000.0, standard_errors=12.0, has_code=True
            ),
        ]
    )

    assert [change.series.runner_class for change in found.change_points] == [
        "surest",
        "less sure",
        "no code",
        "elsewhere",
        "throttled",
    ]
    assert "10 µs to 12.5 µs (+25.0%)" in found.summary


def test_the_gravest_kind_of_change_comes_first() -> None:
    metrics = ["peak_allocated_bytes", "local_bytes", "median_ns", "rmse_ratio"]
    (found,) = group(
        [
            make_finding(metric=one, after=None if one == "rmse_ratio" else 12_000.0)
            for one in metrics
        ]
    )

    assert [change.series.metric for change in found.change_points] == metrics[::-1]


# --- one cause, placed differently on every series


def test_windows_that_share_a_commit_are_one_regression_at_that_commit() -> None:
    (found,) = group(
        [
            make_finding(implementation="a", number=5, around=3),
            make_finding(implementation="b", number=7, around=1),
            make_finding(implementation="c", number=8),
        ]
    )

    assert found.commit == make_commit_ref(8)
    assert {change.commit for change in found.change_points} == {
        make_commit_ref(number) for number in (5, 7, 8)
    }


def test_kernels_with_one_size_at_one_commit_are_one_regression() -> None:
    (found,) = group([make_finding(), make_finding(SOFTMAX, after=12_100.0)])

    assert found.kernel == "rms_norm + softmax"
    assert found.typical_change == pytest.approx(0.205, abs=1e-4)


def test_a_family_is_named_by_what_its_series_share() -> None:
    moved = [
        make_finding(f"rms_norm/n={length}/bfloat16/fwd", after=10_800.0 + length)
        for length in (1, 2, 3)
    ]
    still = [
        make_series_key(case_id=f"rms_norm/n={length}/float32/fwd", runner_class="one machine")
        for length in (1, 2)
    ]
    keys = [*(finding.change.series for finding in moved), *still]

    ((found, _),) = group_findings(moved, population=Population(keys))

    assert found.family == "all 3 bfloat16 series of rms_norm"
    assert found.change_spread == pytest.approx(0.00005)
    assert found.summary.endswith("typically +8.0% ± 0.0% on all 3 bfloat16 series of rms_norm")


# --- the environment


def moved_together(count: int = 6, **fields: Any) -> list[TrendFinding]:
    """Each kernel by a factor of its own, as no single change of code would."""
    kernels = ((CASE_ID, 12_000.0), (SOFTMAX, 15_000.0), (SWIGLU, 11_000.0))
    return [
        make_finding(
            kernels[number % 3][0],
            implementation=f"i{number}",
            **{"after": kernels[number % 3][1]} | fields,
        )
        for number in range(count)
    ]


def test_half_of_the_series_moving_together_is_one_event_of_the_environment() -> None:
    (found,) = group(moved_together(6), quiet=6)

    assert found.kernel == ALL_KERNELS
    assert found.cause is Cause.RUNNER
    assert not found.is_confirmed
    assert "6 of 12 time series" in found.summary
    assert "typically by +20.0%" in found.summary


def test_a_confirming_pair_rules_out_the_environment() -> None:
    findings = [*moved_together(5), make_finding(implementation="paired", status=Status.CONFIRMED)]

    assert ALL_KERNELS not in {found.kernel for found in group(findings, quiet=0)}


def test_a_refuting_pair_dismisses_the_event() -> None:
    findings = [*moved_together(5), make_finding(implementation="paired", status=Status.REFUTED)]

    (found,) = group(findings, quiet=0)

    assert found.kernel == ALL_KERNELS
    assert found.state is RegressionState.DISMISSED


def test_of_an_event_one_series_of_each_kernel_is_measured_again() -> None:
    found = group(
        [*moved_together(6), make_finding(implementation="largest", after=30_000.0)], quiet=0
    )

    steps = unconfirmed(found)

    assert len(steps) == 3
    assert steps[0].series.implementation == "largest"


def test_an_event_on_two_runner_classes_is_one_regression() -> None:
    findings = [
        make_finding(case_id, implementation=f"i{number}", runner_class=runner_class)
        for runner_class in ("one machine", "another machine")
        for number, case_id in enumerate((CASE_ID, SOFTMAX, SWIGLU, CASE_ID))
    ]

    (found,) = group(findings, quiet=0)

    assert found.summary.startswith(
        "4 of 4 time series on another machine and 4 of 4 time series on one machine got slower "
        "together"
    )


RMS_NORM = make_series_key()


def step_of(
    number: int, before: float | None, after: float | None, *, series: object = RMS_NORM
) -> ChangePoint:
    return make_change_point(number, series=series, before=before, after=after)


def improvement(number: int, after: float | None, **fields: object) -> Regression:
    point = make_change_point(number, verdict=Verdict.IMPROVED, before=12_000.0, after=after)
    return make_regression(
        number, **{"verdict": Verdict.IMPROVED, "change_points": (point,), **fields}
    )


def recovery(*regressions: Regression) -> CommitRef | None:
    """Of the first."""
    return note_recoveries(regressions)[0].recovered_at


def test_a_time_that_returns_to_its_old_level_has_recovered_at_that_commit() -> None:
    assert recovery(make_regression(1), improvement(5, 10_100.0)) == make_commit_ref(5)


def test_a_recovery_needs_most_of_the_series() -> None:
    keys = [make_series_key(implementation=name) for name in "abcde"]
    worse = make_regression(
        1, change_points=tuple(make_change_point(1, series=key) for key in keys)
    )

    def back(count: int) -> Regression:
        points = [
            make_change_point(
                4, series=key, verdict=Verdict.IMPROVED, before=12_000.0, after=10_000.0
            )
            for key in keys[:count]
        ]
        return make_regression(4, verdict=Verdict.IMPROVED, change_points=tuple(points))

    assert recovery(worse, back(3)) is None
    assert recovery(worse, back(4)) == make_commit_ref(4)
