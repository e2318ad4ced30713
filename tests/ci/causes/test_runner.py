"""Runs of unchanged code near a step: evidence for and against the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.history.history import analyse_series, judge_history
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Cause, Pair, RunSetting, Series, SeriesPoint, Suspect
from tests.builders import NOON, make_series_key
from tests.ci.values import make_pair, make_point, make_series, only, stepped

LATER = NOON + timedelta(hours=30)


def again(number: int, value: float, *, run: int = 1, hours: float = 0.0, **fields: object) -> SeriesPoint:
    """A commit measured once more, after all others."""
    return make_point(number, value, run=run, measured_at=LATER + timedelta(hours=hours, minutes=run), **fields)


def step_with(*more: SeriesPoint, pairs: Sequence[Pair] = (), **fields: object) -> TrendFinding:
    """A slowdown from 1 to 1.4 ms at commit 8 of 16, with runs that came later and calibrations."""
    points = [replace(point, **fields) for point in make_series(stepped()).points]  # type: ignore[arg-type]
    series = Series(make_series_key(), (*points, *more))
    (finding,) = analyse_series([series], SupportingEvidence(pairs), Thresholds()).findings
    return finding


def suspect(finding: TrendFinding, cause: Cause) -> Suspect | None:
    return next((suspect for suspect in finding.suspects if suspect.cause is cause), None)


def first(finding: TrendFinding) -> Suspect:
    return finding.suspects[0]


def test_old_code_that_takes_the_new_time_accuses_the_runner() -> None:
    finding = step_with(again(3, 1.4e6), again(3, 1.41e6, run=2), again(3, 1.39e6, run=3))

    assert finding.runner_changed is True
    assert first(finding).cause is Cause.RUNNER
    assert "(in 3 runs), take 1.4 ms instead of " in first(finding).sentence
    assert "there without the commit" in first(finding).sentence
    assert first(finding).weight < 1


def test_old_code_that_takes_the_old_time_accuses_the_commit() -> None:
    finding = step_with(again(3, 1e6))

    assert finding.runner_changed is False
    assert first(finding).cause is Cause.CODE
    assert "old commits, measured again after it (once), take 1 ms as before" in first(finding).sentence


@pytest.mark.parametrize(
    "late",
    [
        again(3, 1.2e6),  # between the two
        again(12, 1.4e6),  # new code
        make_point(3, 1.4e6, run=1),  # before the step
        make_point(15, 1.4e6, run=1),
    ],
)
def test_an_unclear_or_unrelated_run_is_no_evidence(late: SeriesPoint) -> None:
    assert step_with(late).runner_changed is None


def test_old_code_under_the_new_driver_separates_driver_and_commit() -> None:
    old, new = RunSetting("1", driver_version="570.86"), RunSetting("1", driver_version="570.124")
    points = [
        replace(point, setting=old if number < 8 else new) for number, point in enumerate(make_series(stepped()).points)
    ]

    def cause(late: SeriesPoint) -> Cause:
        series = Series(make_series_key(), (*points, late))
        (finding,) = analyse_series([series], SupportingEvidence(), Thresholds()).findings
        return first(finding).cause

    assert cause(again(3, 1.4e6, setting=new)) is Cause.DRIVER
    assert cause(again(3, 1e6, setting=new)) is Cause.CODE
    assert cause(again(3, 1e6, setting=old)) is Cause.DRIVER  # which says nothing of the new one


# --- calibrations


def calibration(number: int, *, noise: float, blocks: int = 18) -> Pair:
    """A commit measured against itself."""
    return make_pair(number, number, noise=noise, block_count=blocks, measured_at=NOON + timedelta(hours=number))


def test_other_noise_after_the_step_suspects_the_runner() -> None:
    finding = step_with(pairs=[calibration(5, noise=0.01), calibration(11, noise=0.05)])

    assert first(finding).cause is Cause.RUNNER
    assert "noise between blocks of one commit is 1." in first(finding).sentence
    assert first(finding).weight < 0.75


def test_equal_noise_is_evidence_against_the_runner() -> None:
    old, new = RunSetting("1", machine=(("os", "6.1"),)), RunSetting("1", machine=(("os", "6.8"),))
    points = tuple(
        replace(point, setting=old if number < 8 else new) for number, point in enumerate(make_series(stepped()).points)
    )
    series = Series(make_series_key(), points)
    calibrations = [calibration(number, noise=0.01, blocks=40) for number in (5, 11)]

    (alone,) = analyse_series([series], SupportingEvidence(), Thresholds()).findings
    (beside,) = analyse_series([series], SupportingEvidence(calibrations), Thresholds()).findings

    there, here = suspect(alone, Cause.RUNNER), suspect(beside, Cause.RUNNER)
    assert there is not None
    assert here is not None
    assert here.weight < there.weight
    assert "noise between blocks of one commit" in here.sentence


# --- the whole suite


def suite(*late: float) -> list[Series]:
    """Four series of two kernels that step together, each with commit 3 measured again."""
    return [
        Series(
            make_series_key(case_id=f"{kernel}/n={length}/float32/fwd"),
            (
                *make_series(stepped(seed=seed)).points,
                *(again(3, value, run=run) for run, value in enumerate(late, start=1)),
            ),
        )
        for seed, (kernel, length) in enumerate((kernel, length) for kernel in ("rope", "gelu") for length in (1, 2))
    ]


def test_a_suite_that_changed_is_an_environment_event_unless_old_code_stayed() -> None:
    event, moved = only(judge_history(suite())), only(judge_history(suite(1.4e6)))
    stayed = judge_history(suite(1e6))

    assert event.kernel == moved.kernel == "*"
    assert event.cause is moved.cause is Cause.RUNNER
    assert "there without the commit" in moved.suspects[0].sentence
    assert {found.cause for found in stayed} == {Cause.CODE}
    assert "*" not in {found.kernel for found in stayed}
