from typing import Any

import pytest

from ci.group import ALL_KERNELS, Finding, Status, group_findings
from ci.history import unconfirmed
from ci.thresholds import Thresholds
from db.values import Cause, Regression, RegressionState, SeriesKey, Verdict
from tests.builders import CASE_ID, make_change_point, make_commit_ref, make_series_key
from tests.ci.values import SOFTMAX, SWIGLU


def make_finding(
    case_id: str = CASE_ID,
    *,
    implementation: str = "eager",
    status: Status = Status.UNCONFIRMED,
    cause: Cause = Cause.UNKNOWN,
    metric: str = "median_ns",
    number: int = 1,
    **fields: Any,
) -> Finding:
    key = make_series_key(metric, case_id=case_id, implementation=implementation)
    return Finding(make_change_point(number, series=key, **fields), cause, status)


def group(findings: list[Finding], *, quiet: int = 10) -> list[Regression]:
    """Group among `quiet` more time series that did not move."""
    keys: list[SeriesKey] = [finding.change.series for finding in findings if finding.is_time]
    keys += [make_series_key(implementation=f"quiet {number}") for number in range(quiet)]
    return group_findings(findings, time_series=keys, thresholds=Thresholds())


def test_findings_of_one_commit_kernel_and_verdict_are_one_regression() -> None:
    found = group([make_finding(), make_finding(implementation="compile", after=15_000.0)])

    assert len(found) == 1
    assert found[0].summary == (
        "rms_norm: time 10 µs to 15 µs (+50.0%) in rms_norm/n_rows=64,n_cols=128/float32/fwd · compile, "
        "and 1 more series"
    )
    assert [change.series.implementation for change in found[0].change_points] == ["compile", "eager"]


@pytest.mark.parametrize(
    "other",
    [make_finding(SOFTMAX), make_finding(number=2), make_finding(verdict=Verdict.IMPROVED, after=8_000.0)],
)
def test_another_kernel_commit_or_verdict_is_another_regression(other: Finding) -> None:
    assert len(group([make_finding(), other])) == 2


def test_a_regression_is_confirmed_by_any_of_its_findings() -> None:
    spill = make_finding(metric="local_bytes", status=Status.CONFIRMED, cause=Cause.CODE, before=0.0, after=48.0)

    (found,) = group([make_finding(), spill])

    assert found.is_confirmed
    assert found.cause is Cause.CODE
    assert "local memory per thread 0 B to 48 B" in found.summary


def test_what_was_refuted_does_not_stand_beside_what_was_not() -> None:
    refuted = make_finding(implementation="compile", status=Status.REFUTED, after=90_000.0)

    (found,) = group([make_finding(), refuted])

    assert found.state is RegressionState.OPEN
    assert [change.series.implementation for change in found.change_points] == ["eager"]


def test_a_regression_whose_findings_are_all_refuted_is_dismissed_and_still_told() -> None:
    (found,) = group([make_finding(status=Status.REFUTED)])

    assert found.state is RegressionState.DISMISSED
    assert not found.is_confirmed
    assert found.change_points


def test_the_worst_comes_first() -> None:
    found = group(
        [
            make_finding(number=1, status=Status.REFUTED, after=90_000.0),
            make_finding(number=2, verdict=Verdict.IMPROVED, after=2_000.0),
            make_finding(number=3, after=15_000.0),
            make_finding(number=4, after=30_000.0),
            make_finding(number=5, after=11_000.0, status=Status.CONFIRMED),
            make_finding(number=6, metric="rmse_ratio", before=1e-7, after=None, status=Status.CONFIRMED),
        ]
    )

    assert [regression.commit for regression in found] == [make_commit_ref(number) for number in (6, 5, 4, 3, 2, 1)]


# --- the environment


def moved_together(count: int = 6, **fields: Any) -> list[Finding]:
    kernels = (CASE_ID, SOFTMAX, SWIGLU)
    return [make_finding(kernels[number % 3], implementation=f"i{number}", **fields) for number in range(count)]


def test_half_of_the_series_moving_together_is_one_event_of_the_environment() -> None:
    (found,) = group(moved_together(6), quiet=6)

    assert found.kernel == ALL_KERNELS
    assert found.cause is Cause.RUNNER
    assert not found.is_confirmed
    assert "6 of 12 time series" in found.summary
    assert "by a factor of 1.20" in found.summary


def test_less_than_half_of_the_series_are_regressions_of_their_kernels() -> None:
    assert {found.kernel for found in group(moved_together(6), quiet=7)} == {"rms_norm", "softmax", "swiglu"}


def test_fewer_than_four_series_are_regressions_of_their_kernels() -> None:
    assert len(group(moved_together(3), quiet=0)) == 3


def test_one_kernel_at_all_its_shapes_is_no_event_of_the_environment() -> None:
    findings = [make_finding(implementation=f"i{number}") for number in range(8)]

    (found,) = group(findings, quiet=0)

    assert found.kernel == "rms_norm"


def test_a_pair_that_shows_the_move_rules_the_environment_out() -> None:
    findings = [*moved_together(5), make_finding(implementation="paired", status=Status.CONFIRMED)]

    assert ALL_KERNELS not in {found.kernel for found in group(findings, quiet=0)}


def test_a_pair_that_does_not_show_the_move_dismisses_the_event() -> None:
    findings = [*moved_together(5), make_finding(implementation="paired", status=Status.REFUTED)]

    (found,) = group(findings, quiet=0)

    assert found.kernel == ALL_KERNELS
    assert found.state is RegressionState.DISMISSED


def test_of_an_event_one_series_of_each_kernel_is_measured_again() -> None:
    found = group([*moved_together(6), make_finding(implementation="largest", after=30_000.0)], quiet=0)

    requests = unconfirmed(found)

    assert len(requests) == 3
    assert requests[0].implementation == "largest"


def test_an_event_on_two_machines_at_one_commit_is_told_once() -> None:
    findings = [
        Finding(
            make_change_point(
                series=make_series_key(case_id=case_id, implementation=f"i{number}", runner_class=runner_class)
            ),
            Cause.UNKNOWN,
            Status.UNCONFIRMED,
        )
        for runner_class in ("one machine", "another machine")
        for number, case_id in enumerate((CASE_ID, SOFTMAX, SWIGLU, CASE_ID))
    ]

    (found,) = group(findings, quiet=0)

    assert found.summary.startswith(
        "4 of 4 time series on another machine and 4 of 4 time series on one machine got slower together"
    )
