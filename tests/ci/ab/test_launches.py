"""Launches and autotuner choices that differ between base and head."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from roofwatch.ci.ab.launches import LaunchEvidence, compare_profiles, find_flips
from roofwatch.ci.ab.side_by_side import side_by_side
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.measurement import Autotuning
from roofwatch.model.results import ProfiledActivity
from roofwatch.model.verdict import Reason, Verdict
from tests.builders import (
    CASE_ID,
    make_activity,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_profile,
    make_static_facts,
)
from tests.ci.values import make_choice, make_records, make_timed

OLD, NEW = (
    "ampere_fp16_s16816gemm_fp16_128x64_tn",
    "void cutlass::Kernel2<cutlass_80_tensorop_f16>(Params)",
)


def moves(
    base: list[ProfiledActivity],
    head: list[ProfiledActivity],
    *,
    base_left_out: int = 0,
    head_left_out: int = 0,
) -> list[Change[LaunchEvidence]]:
    return compare_profiles(
        make_profile(CASE_ID, *base, left_out_count=base_left_out),
        make_profile(CASE_ID, *head, left_out_count=head_left_out),
    )


def names_of(changes: Iterable[Change[LaunchEvidence]]) -> list[tuple[str, str]]:
    return [(change.evidence.base_name, change.evidence.head_name) for change in changes]


def test_a_kernel_that_replaces_another_is_one_change() -> None:
    (move,) = moves(
        [make_activity(OLD), make_activity("body")], [make_activity(NEW), make_activity("body")]
    )

    assert move.evidence.share == 0.5
    assert str(move.detail) == f"kernel changed: {NEW} instead of {OLD}"


def test_changed_launches_are_reported_the_longest_first() -> None:
    base = [make_activity("body", count=3), make_activity("gone", count=6, total_ns=2_000)]
    head = [
        make_activity("body", count=6, total_ns=6_000),
        make_activity("Memcpy DtoD", kind="memcpy", total_ns=2_000),
    ]

    assert [str(move.detail) for move in moves(base, head)] == [
        "body: 1 → 2 in a call",
        "gone is gone, 2 in a call before",
        "Memcpy DtoD is new, 1 in a call",
    ]


@pytest.mark.parametrize(
    ("base_left_out", "head_left_out", "names"),
    [(1, 0, [("old", "")]), (0, 1, [("", "now")]), (1, 1, [])],
)
def test_an_incomplete_profile_hides_kernels_of_one_side(
    base_left_out: int, head_left_out: int, names: list[tuple[str, str]]
) -> None:
    found = moves(
        [make_activity("old", count=6)],
        [make_activity("now")],
        base_left_out=base_left_out,
        head_left_out=head_left_out,
    )

    assert names_of(found) == names


def test_a_comparison_reports_launches_without_changing_the_verdict() -> None:
    base, head = make_pair_of_records(block_count=8, head_median_ns=12_000.0)
    before, after = (
        [make_profile(CASE_ID, make_activity(name), implementation="torch")] for name in (OLD, NEW)
    )
    there, here = (
        record.model_copy(update={"profiles": tuple(found)})
        for record, found in ((base, before), (head, after))
    )

    judged = judge_pull_request(there, here)

    assert judged.verdict is judge_pull_request(base, head).verdict is Verdict.REGRESSED
    assert names_of(judged.launch_changes) == [(OLD, NEW)]
    assert side_by_side(there, here, CASE_ID, "torch").launches == judged.launch_changes
    elsewhere = there.model_copy(update={"environment": make_environment(thread_count=64)})
    assert judge_pull_request(elsewhere, here).launch_changes == (), (
        "another device has other kernels"
    )


@pytest.mark.parametrize(
    ("head_rows", "choice", "reason"),
    [
        ([make_activity(count=6, total_ns=6_000)], 64, Reason.BEYOND_THRESHOLD),
        (
            [make_activity(), make_activity("Memcpy DtoD", kind="memcpy", total_ns=1_000)],
            64,
            Reason.BEYOND_THRESHOLD,
        ),
        (
            [make_activity(), make_activity("Memcpy DtoD", kind="memcpy", total_ns=100)],
            64,
            Reason.SAME_MACHINE_CODE,
        ),
        ([make_activity()], 128, Reason.BEYOND_THRESHOLD),
    ],
    ids=["twice", "another copy", "a copy too short", "another choice of the autotuner"],
)
def test_what_runs_besides_machine_code_may_explain_a_slowdown(
    head_rows: list[ProfiledActivity], choice: int, reason: Reason
) -> None:
    gpu = make_environment(device_kind="cuda", device_name="H200", compute_capability="9.0")
    tuned = make_timed(implementation="triton", autotuning=(make_choice(64),))
    slower = make_timed(implementation="triton", median_ns=1.3e6, autotuning=(make_choice(choice),))
    base, head = make_records(
        [tuned, make_static_facts()],
        [slower, make_static_facts()],
        base_fields={"environment": gpu, "profiles": (make_profile(),)},
        head_fields={"environment": gpu, "profiles": (make_profile(CASE_ID, *head_rows),)},
    )

    (case,) = judge_pull_request(base, head).cases

    assert case.reason is reason


TIMES = {64: 12.6, 128: 12.8}


def sentences(base: list[Autotuning], head: list[Autotuning]) -> list[str]:
    sides = (make_measurement(autotuning=tuple(choices)) for choices in (base, head))
    return [str(flip) for flip in find_flips(*sides)]


def test_processes_that_chose_differently_have_flipped_only_if_none_chose_as_the_other_side() -> (
    None
):
    wavering = [make_choice(64, times_us=TIMES), make_choice(128)]

    assert sentences([make_choice(128)], wavering) == []
    assert sentences([make_choice(256)], wavering) == [
        "the autotuner of _kernel chose BLOCK=64 or BLOCK=128 instead of BLOCK=256; its own "
        "timings: 12.6 µs, and the "
        "other was not tried"
    ]
