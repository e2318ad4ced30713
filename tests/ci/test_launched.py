"""What a case launches at the head that it did not at the base."""

from __future__ import annotations

import math

import pytest

from roofwatch.ci.ab.launches import LaunchChange, LaunchMove, find_launch_moves, may_explain
from roofwatch.ci.ab.side_by_side import side_by_side
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.record.results import ProfiledActivity
from roofwatch.db.values import Verdict
from tests.builders import (
    CASE_ID,
    make_activity,
    make_environment,
    make_pair_of_records,
    make_profile,
    make_static_facts,
)
from tests.ci.values import make_records, make_timed

OLD, NEW = "ampere_fp16_s16816gemm_fp16_128x64_tn", "void cutlass::Kernel2<cutlass_80_tensorop_f16>(Params)"


def moves(
    base: list[ProfiledActivity], head: list[ProfiledActivity], *, base_left_out: int = 0, head_left_out: int = 0
) -> tuple[LaunchMove, ...]:
    return find_launch_moves(
        [make_profile(CASE_ID, *base, left_out_count=base_left_out)],
        [make_profile(CASE_ID, *head, left_out_count=head_left_out)],
    )


def test_the_same_launches_are_no_move_however_long_they_take() -> None:
    assert moves([make_activity(total_ns=3_000)], [make_activity(total_ns=9_000)]) == ()


def test_another_kernel_of_a_library_is_told_as_that() -> None:
    (move,) = moves([make_activity(OLD), make_activity("body")], [make_activity(NEW), make_activity("body")])

    assert (move.change, move.share) == (LaunchChange.LIBRARY_KERNEL, 0.5)
    assert str(move.remark) == f"library kernel changed: {NEW} instead of {OLD}"


def test_kernels_of_libraries_are_paired_by_how_long_they_take() -> None:
    base = [make_activity("cublas_b", total_ns=10), make_activity("cublas_a", total_ns=900)]
    head = [make_activity("cudnn_x", total_ns=800), make_activity("cudnn_y", total_ns=20)]

    found = moves(sorted(base, key=lambda row: -row.total_ns), head)

    assert [(move.base_name, move.name) for move in found] == [("cublas_a", "cudnn_x"), ("cublas_b", "cudnn_y")]


def test_a_collective_takes_the_place_of_no_product() -> None:
    ring, tree = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllReduce_Sum_f32_TREE_LL"
    base = [make_activity(ring, total_ns=900), make_activity(OLD, total_ns=300)]
    head = [make_activity(NEW, total_ns=800), make_activity(tree, total_ns=100)]

    assert {(move.base_name, move.name) for move in moves(base, head)} == {(ring, tree), (OLD, NEW)}
    assert {move.change for move in moves(base[:1], head[:1])} == {LaunchChange.NEW, LaunchChange.GONE}


def test_what_is_new_gone_or_launched_more_often_is_told_the_longest_first() -> None:
    base = [make_activity("body", count=3), make_activity("gone", count=6, total_ns=2_000)]
    head = [make_activity("body", count=6, total_ns=6_000), make_activity("Memcpy DtoD", kind="memcpy", total_ns=2_000)]

    assert [(move.change, str(move.remark)) for move in moves(base, head)] == [
        (LaunchChange.COUNT, "body: 1 → 2 in a call"),
        (LaunchChange.GONE, "gone is gone, 2 in a call before"),
        (LaunchChange.NEW, "Memcpy DtoD is new, 1 in a call"),
    ]


def test_one_kernel_of_a_library_that_only_came_is_new() -> None:
    (move,) = moves([make_activity("body")], [make_activity("body"), make_activity(NEW)])

    assert move.change is LaunchChange.NEW


@pytest.mark.parametrize(("base_left_out", "head_left_out", "told"), [(1, 0, ["gone"]), (0, 1, ["new"]), (1, 1, [])])
def test_what_may_be_among_what_was_left_out_is_neither_new_nor_gone(
    base_left_out: int, head_left_out: int, told: list[str]
) -> None:
    found = moves(
        [make_activity("old")], [make_activity("now")], base_left_out=base_left_out, head_left_out=head_left_out
    )

    assert [move.change.value for move in found] == told


def test_of_the_operators_of_a_cpu_only_torch_s_own_are_compared() -> None:
    base = [make_activity(name, kind="operator", device="cpu") for name in ("aten::mm", "Torch-Compiled Region: 0/0")]
    head = [make_activity(name, kind="operator", device="cpu") for name in ("aten::bmm", "Torch-Compiled Region: 0/7")]

    assert {move.name for move in moves(base, head)} == {"aten::mm", "aten::bmm"}


def test_a_comparison_tells_it_and_decides_nothing_by_it() -> None:
    base, head = make_pair_of_records(block_count=8, head_median_ns=12_000.0)
    before, after = ([make_profile(CASE_ID, make_activity(name), implementation="eager")] for name in (OLD, NEW))
    there, here = (
        record.model_copy(update={"profiles": tuple(found)}) for record, found in ((base, before), (head, after))
    )

    judged = judge_pull_request(there, here)

    assert judged.verdict is judge_pull_request(base, head).verdict is Verdict.REGRESSED
    assert [move.change for move in judged.launch_moves] == [LaunchChange.LIBRARY_KERNEL]
    assert side_by_side(there, here, CASE_ID, "eager").launches == judged.launch_moves
    markdown = to_markdown(judged)
    assert "What cases launch otherwise" in markdown
    assert f"library kernel changed: `{NEW}` instead of `{OLD}`" in markdown
    elsewhere = there.model_copy(update={"environment": make_environment(thread_count=64)})
    assert judge_pull_request(elsewhere, here).launch_moves == (), "another device has other kernels"


@pytest.mark.parametrize(
    ("head_rows", "reason"),
    [
        ([make_activity(count=6, total_ns=6_000)], Reason.BEYOND_THRESHOLD),
        ([make_activity(), make_activity("Memcpy DtoD", kind="memcpy", total_ns=1_000)], Reason.BEYOND_THRESHOLD),
        ([make_activity(), make_activity("Memcpy DtoD", kind="memcpy", total_ns=100)], Reason.SAME_MACHINE_CODE),
        ([make_activity(total_ns=9_000)], Reason.SAME_MACHINE_CODE),
    ],
    ids=["twice", "a-copy-beside-it", "a-copy-too-short", "the-same-for-longer"],
)
def test_a_kernel_of_equal_machine_code_may_be_slower_by_what_is_launched_otherwise(
    head_rows: list[ProfiledActivity], reason: Reason
) -> None:
    gpu = make_environment(device_kind="cuda", device_name="H200", compute_capability="9.0")
    base, head = make_records(
        [make_timed(implementation="triton"), make_static_facts()],
        [make_timed(implementation="triton", median_ns=1.3e6), make_static_facts()],
        base_fields={"environment": gpu, "profiles": (make_profile(),)},
        head_fields={"environment": gpu, "profiles": (make_profile(CASE_ID, *head_rows),)},
    )

    (case,) = judge_pull_request(base, head).cases

    assert case.reason is reason


@pytest.mark.parametrize(
    ("head", "log_change", "explains"),
    [
        (make_activity("new", total_ns=1_000), math.log(1.4), True),
        (make_activity("new", total_ns=1_000), math.log(3.0), False),
        (make_activity("new", total_ns=1_000), -math.log(1.4), False),
    ],
    ids=["enough", "too-short", "the-other-way"],
)
def test_what_moved_explains_a_time_if_it_takes_half_of_what_came_or_more(
    head: ProfiledActivity, log_change: float, explains: bool
) -> None:
    """A quarter of the calls at the head: of a time that grew by 1.4 a share of 0.29 came, by 3 of 0.67."""
    body = make_activity("body")
    assert may_explain(moves([body], [body, head]), log_change) is explains
    assert may_explain(moves([body, head], [body]), -log_change) is explains
    assert not may_explain((), log_change)
