"""Counters and profiles around a step as evidence about its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.history.history import analyse_series
from roofwatch.model.history import Cause, RunSetting, Series, SeriesPoint, Suspect
from roofwatch.model.results import Counters, ProfiledActivity
from roofwatch.model.stored_results import CountedRun, ProfiledRun
from tests.builders import (
    CASE_ID,
    NOON,
    make_activity,
    make_commit_ref,
    make_profile,
    make_series_key,
)
from tests.ci.values import (
    RUNNER_CLASS,
    judge_history,
    make_point,
    make_series,
    make_static_series,
    only,
    stepped,
)

COUNTED_BEFORE = {
    "dram_bytes": 1e6,
    "instruction_count": 5e3,
    "stall_long_scoreboard_share": 0.2,
    "duration_ns": 1e4,
}
COUNTED_AFTER = COUNTED_BEFORE | {
    "dram_bytes": 1.31e6,
    "stall_long_scoreboard_share": 0.4,
    "duration_ns": 1.4e4,
}


def counted(number: int, values: Mapping[str, float]) -> CountedRun:
    counters = Counters(
        case_id=CASE_ID, implementation="torch", function="kernel", values=dict(values)
    )
    return CountedRun(CASE_ID, "torch", RUNNER_CLASS, make_commit_ref(number), (counters,))


def counted_step(*runs: CountedRun) -> TrendFinding:
    """A slowdown at commit 8 of 16, with what was counted."""
    series = make_series(stepped())
    (finding,) = analyse_series([series], SupportingEvidence(counted=runs)).findings
    return finding


def suspect(finding: TrendFinding, cause: Cause) -> Suspect:
    return next(suspect for suspect in finding.suspects if suspect.cause is cause)


def test_changed_counters_are_listed_by_size() -> None:
    finding = counted_step(counted(3, COUNTED_BEFORE), counted(12, COUNTED_AFTER))
    sentence = suspect(finding, Cause.CODE).sentence

    assert "stall long scoreboard 20% to 40%, dram bytes +31%" in sentence
    assert "duration" not in sentence
    assert "instruction" not in sentence


def test_equal_counters_are_evidence_against_the_code() -> None:
    same, nothing_counted = (
        counted_step(counted(3, COUNTED_BEFORE), counted(12, COUNTED_BEFORE)),
        counted_step(),
    )

    assert suspect(same, Cause.CODE).weight < suspect(nothing_counted, Cause.CODE).weight
    assert "the same within 2 %" in suspect(same, Cause.CODE).sentence


FAST, SLOW = "sm90_xmma_gemm_bf16_128x128", "cutlass_80_tensorop_bf16_s16816gemm_64x64"
BODY = make_activity("_norm", total_ns=1_000)
BEFORE, AFTER = (
    (make_activity(FAST, total_ns=9_000), BODY),
    (make_activity(SLOW, total_ns=14_000), BODY),
)
AT_THE_STEP = 7, 8
"""The last commit of the old level and the first of the new one."""


def profiled(number: int, *rows: ProfiledActivity, implementation: str = "torch") -> ProfiledRun:
    return ProfiledRun(
        RUNNER_CLASS,
        make_commit_ref(number),
        make_profile(CASE_ID, *rows, implementation=implementation),
    )


def profiled_step(*runs: ProfiledRun, others: Sequence[Series] = (), **newer: Any) -> TrendFinding:
    """A step at commit 8 of 16 with profiles; the setting may change there too."""
    times = make_series(stepped(factor=1.4))

    def set_up(point: SeriesPoint) -> SeriesPoint:
        plain = RunSetting("1", "570.86", toolchain=(("torch", "2.11.0"),), machine=())
        is_newer = point.commit.first_parent_count > make_commit_ref(7).first_parent_count
        return replace(point, setting=replace(plain, **newer) if is_newer else plain)

    series = replace(times, points=tuple(set_up(point) for point in times.points))
    found = analyse_series([series, *others], SupportingEvidence(profiled=runs))
    (finding,) = [one for one in found.findings if one.change.series.metric == "median_ns"]
    return finding


def test_a_replaced_kernel_at_the_step_suspects_the_code() -> None:
    old, new = AT_THE_STEP
    first = profiled_step(profiled(old, *BEFORE), profiled(new, *AFTER)).suspects[0]

    assert first.cause is Cause.CODE
    assert first.weight == pytest.approx(0.9)
    assert f"kernel changed: {SLOW} instead of {FAST} (93% of a call after)" in first.sentence
    assert "no machine code of this implementation is recorded" in first.sentence


def test_other_launches_suspect_the_code_despite_equal_machine_code() -> None:
    """The kernel is the same, and runs twice."""
    code = [make_static_series("registers", [32.0] * 16, "a" * 16, implementation="torch")]
    once, twice = make_activity("_norm", count=3), make_activity("_norm", count=6, total_ns=6_000)
    runs = [profiled(at, row) for at, row in zip(AT_THE_STEP, (once, twice), strict=True)]

    excluded, lifted = profiled_step(others=code), profiled_step(*runs, others=code)

    assert Cause.CODE not in {one.cause for one in excluded.suspects}
    assert suspect(lifted, Cause.CODE).weight == pytest.approx(0.9)
    assert "machine code unchanged on all 1 targets" in suspect(lifted, Cause.CODE).sentence
    assert "_norm: 1 → 2 in a call (100% of a call after)" in suspect(lifted, Cause.CODE).sentence


@pytest.mark.parametrize(
    "runs",
    [
        (profiled(3, *BEFORE), profiled(5, *AFTER)),
        (profiled(7, *BEFORE), profiled(8, *BEFORE)),
        (
            profiled(7, *BEFORE, implementation="triton"),
            profiled(8, *AFTER, implementation="triton"),
        ),
        (profiled(7, *BEFORE), profiled(8, *BEFORE, make_activity("_fill", total_ns=900))),
    ],
    ids=["old-level", "the-same", "another-implementation", "too-small-a-share"],
)
def test_launches_that_do_not_explain_the_step_are_no_evidence(runs: Sequence[ProfiledRun]) -> None:
    assert profiled_step(*runs).suspects == profiled_step().suspects


# --- old code, measured again


LATER = NOON + timedelta(hours=30)


def again(number: int, value: float, *, run: int = 1, **fields: object) -> SeriesPoint:
    """A commit measured once more, after all others."""
    return make_point(number, value, run=run, measured_at=LATER + timedelta(minutes=run), **fields)


def step_with(*more: SeriesPoint) -> TrendFinding:
    """A slowdown from 1 to 1.4 ms at commit 8 of 16, with runs that came later."""
    series = Series(make_series_key(), (*make_series(stepped()).points, *more))
    (finding,) = analyse_series([series], SupportingEvidence()).findings
    return finding


def test_old_code_that_takes_the_new_time_accuses_the_runner() -> None:
    finding = step_with(again(3, 1.4e6), again(3, 1.41e6, run=2), again(3, 1.39e6, run=3))

    assert finding.runner_changed is True
    assert finding.suspects[0].cause is Cause.RUNNER
    assert "(in 3 runs), take 1.4 ms instead of " in finding.suspects[0].sentence
    assert "there without the commit" in finding.suspects[0].sentence
    assert finding.suspects[0].weight < 1


def test_old_code_that_takes_the_old_time_accuses_the_commit() -> None:
    finding = step_with(again(3, 1e6))

    assert finding.runner_changed is False
    assert finding.suspects[0].cause is Cause.CODE
    assert (
        "old commits, measured again after it (once), take 1 ms as before"
        in finding.suspects[0].sentence
    )


@pytest.mark.parametrize(
    "late",
    [
        again(3, 1.2e6),  # between the two
        again(12, 1.4e6),  # new code
        make_point(3, 1.4e6, run=1),  # before the step
        make_point(15, 1.4e6, run=1),
    ],
)
def test_a_run_that_cannot_tell_is_no_evidence(late: SeriesPoint) -> None:
    assert step_with(late).runner_changed is None


def test_old_code_under_the_new_driver_tells_the_driver_from_the_commit() -> None:
    old, new = RunSetting("1", driver_version="570.86"), RunSetting("1", driver_version="570.124")
    points = [
        replace(point, setting=old if number < 8 else new)
        for number, point in enumerate(make_series(stepped()).points)
    ]

    def cause(late: SeriesPoint) -> Cause:
        series = Series(make_series_key(), (*points, late))
        (finding,) = analyse_series([series], SupportingEvidence()).findings
        return finding.suspects[0].cause

    assert cause(again(3, 1.4e6, setting=new)) is Cause.DRIVER
    assert cause(again(3, 1e6, setting=new)) is Cause.CODE
    assert cause(again(3, 1e6, setting=old)) is Cause.DRIVER  # which says nothing of the new one


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
        for seed, (kernel, length) in enumerate(
            (kernel, length) for kernel in ("rope", "gelu") for length in (1, 2)
        )
    ]


def test_a_suite_that_changed_is_an_event_unless_old_code_stayed() -> None:
    event, moved = only(judge_history(suite())), only(judge_history(suite(1.4e6)))
    stayed = judge_history(suite(1e6))

    assert event.kernel == moved.kernel == "*"
    assert event.cause is moved.cause is Cause.RUNNER
    assert "there without the commit" in moved.suspects[0].sentence
    assert {found.cause for found in stayed} == {Cause.CODE}
    assert "*" not in {found.kernel for found in stayed}
