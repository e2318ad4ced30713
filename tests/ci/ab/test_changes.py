"""What a launch takes beside its time on the device, base against head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from roofwatch.ci.ab.changes import Change, find_accuracy_changes, find_counter_changes
from roofwatch.ci.gate import exit_code
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.comment import tally, to_markdown
from roofwatch.ci.report.interchange import to_junit, to_sarif
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState, Measurement, MemoryUse, Timer
from roofwatch.collector.record.results import Accuracy
from roofwatch.comparison_tables import judgement_tables
from roofwatch.db.values import Verdict
from tests.builders import make_accuracy, make_environment, make_tensor_error
from tests.ci.values import QUIET, SOFTMAX, make_counters, make_records, make_timed

MIB = 2**20


def taking(peak_bytes: int) -> Measurement:
    memory = MemoryUse(peak_allocated_bytes=peak_bytes, peak_reserved_bytes=4 * MIB, allocation_count=1)
    return make_timed(SOFTMAX, memory=memory, timer=Timer.CUPTI)


def launched_in(host_ns: float, levels: Sequence[float] = QUIET, case_id: str = SOFTMAX) -> Measurement:
    """The host takes so long, block by block in noise; the device as long as ever."""
    timed = make_timed(case_id, timer=Timer.CUPTI)
    blocks = [
        block.model_copy(update={"host_ns": host_ns * level}) for block, level in zip(timed.blocks, levels, strict=True)
    ]
    return timed.model_copy(update={"blocks": tuple(blocks)})


def judge(base: Measurement, head: Measurement, **fields: object) -> PullRequestJudgement:
    return judge_pull_request(*make_records([base], [head], **fields))  # type: ignore[arg-type]  # as it is given


def only(judgement: PullRequestJudgement) -> Change:
    (move,) = judgement.secondary_changes
    return move


@pytest.mark.parametrize("is_paired", [True, False])
def test_a_launch_that_takes_more_memory_is_a_regression_with_or_without_a_pair(*, is_paired: bool) -> None:
    judgement = judge(taking(MIB), taking(2 * MIB), is_paired=is_paired)

    move = only(judgement)
    assert (move.verdict, move.reason, move.relative_change) == (Verdict.REGRESSED, Reason.MEMORY_MOVED, 1.0)
    assert move.in_words == "peak allocated memory 1 MiB → 2 MiB (+100.0%)"
    assert judgement.counts["regressed"] == 1
    assert exit_code(judgement) == 1


def test_less_memory_is_an_improvement_and_less_than_a_twentieth_is_nothing() -> None:
    improved = judge(taking(2 * MIB), taking(MIB))

    assert only(improved).verdict is improved.verdict is Verdict.IMPROVED
    assert judge(taking(100 * MIB), taking(104 * MIB)).secondary_changes == ()
    assert only(judge(taking(100 * MIB), taking(106 * MIB))).verdict is Verdict.REGRESSED


def test_what_another_torch_counts_is_shown_and_decides_nothing() -> None:
    judgement = judge(
        taking(MIB), taking(2 * MIB), head_fields={"environment": make_environment(torch_version="2.14.0")}
    )

    assert (only(judgement).verdict, only(judgement).reason) == (Verdict.UNCHANGED, Reason.TOOLCHAIN_MOVED)
    assert exit_code(judgement) == 0


def test_memory_of_another_device_another_cache_state_or_a_wrong_result_is_not_compared() -> None:
    other = {"environment": make_environment(device_name="Other CPU")}
    assert judge(taking(MIB), taking(2 * MIB), head_fields=other).secondary_changes == ()

    rotated = taking(2 * MIB).model_copy(update={"cache": CacheState.ROTATED})
    assert judge(taking(MIB), rotated).secondary_changes == ()

    wrong = make_accuracy(SOFTMAX, outcome=Outcome.INCORRECT)
    records = make_records([taking(MIB)], [taking(2 * MIB), wrong])
    assert judge_pull_request(*records).secondary_changes == ()


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.5, Verdict.REGRESSED), (1 / 1.5, Verdict.IMPROVED), (1.1, None), (1.0, None)]
)
def test_the_hosts_time_is_judged_by_the_blocks_of_a_pair(factor: float, verdict: Verdict | None) -> None:
    judgement = judge(launched_in(5_000), launched_in(5_000 * factor, QUIET[::-1]))

    assert [move.verdict for move in judgement.secondary_changes] == ([] if verdict is None else [verdict])
    (case,) = judgement.cases
    assert (case.verdict, case.reason) == (Verdict.UNCHANGED, Reason.WITHIN_THRESHOLD)
    if verdict is not None:
        move = only(judgement)
        assert move.reason is Reason.HOST_MOVED
        assert move.relative_interval is not None
        assert move.relative_interval[0] < factor - 1 < move.relative_interval[1]


def test_hosts_of_two_jobs_or_in_noise_or_half_known_say_nothing() -> None:
    assert judge(launched_in(5_000), launched_in(9_000), is_paired=False).secondary_changes == ()

    loud = (1.0, 2.3, 0.6, 1.9, 0.5, 2.2)
    assert judge(launched_in(5_000, loud), launched_in(7_000, loud[::-1])).secondary_changes == ()

    half = launched_in(9_000)
    cut = half.blocks[0].model_copy(update={"host_ns": None})
    half = half.model_copy(update={"blocks": (cut, *half.blocks[1:])})
    assert judge(launched_in(5_000), half).secondary_changes == ()


def test_reports_say_that_it_is_the_host_and_not_the_kernel() -> None:
    judgement = judge(launched_in(5_000), launched_in(8_000, QUIET[::-1]))

    comment = to_markdown(judgement)
    assert "### roofwatch: regressed\n" in comment
    assert "memory and host of a launch 1 regressed" in comment
    assert "| **regressed** | host time of a launch |" in comment
    assert "#### Time" not in comment
    assert "/roofwatch accept" in comment
    assert (
        '<failure message="regressed: the host\'s time of a launch moved, not the kernel on the device">'
        in to_junit(judgement)
    )
    assert '"ruleId": "host_moved"' in to_sarif(judgement, version="1")
    assert [str(table.title) for table in judgement_tables(judgement)] == ["memory and host time"]


def accuracy_changes(
    base: Accuracy, head: Accuracy, *, of_head: dict[str, Any] | None = None
) -> list[tuple[Reason, str]]:
    found = find_accuracy_changes(*make_records([base], [head], head_fields=of_head), relative_change=0.5)
    return [(move.reason, move.part) for move in found]


@pytest.mark.parametrize(
    ("base", "head", "reason"),
    [
        (1e-6, 1e-6, None),
        (1e-6, 1.4e-6, None),
        (1e-6, 1.6e-6, Reason.LESS_ACCURATE),
        (1.6e-6, 1e-6, Reason.MORE_ACCURATE),
        (0.0, 1e-6, Reason.LESS_ACCURATE),
        (1e-6, 0.0, Reason.MORE_ACCURATE),
        (0.0, 0.0, None),
        (1e-9, 1e-7, None),
        (1e-9, 2e-7, Reason.LESS_ACCURATE),
    ],
)
def test_an_error_that_half_as_much_was_added_to_is_told_unless_one_rounding_is_as_large(
    base: float, head: float, reason: Reason | None
) -> None:
    found = accuracy_changes(make_accuracy(rmse_ratio=base), make_accuracy(rmse_ratio=head))

    assert found == ([] if reason is None else [(reason, "out")])


def test_each_result_is_compared_with_itself() -> None:
    def checked(out: float, grad: float) -> Accuracy:
        return make_accuracy(
            tensors=(make_tensor_error(rmse_ratio=out), make_tensor_error(tensor="grad_x", rmse_ratio=grad))
        )

    assert accuracy_changes(checked(5e-6, 1e-6), checked(5e-6, 4e-6)) == [(Reason.LESS_ACCURATE, "grad_x")]
    assert accuracy_changes(checked(5e-6, 1e-6), checked(1e-6, 5e-6)) == [
        (Reason.LESS_ACCURATE, "grad_x"),
        (Reason.MORE_ACCURATE, "out"),
    ]


def test_errors_of_another_device_do_not_compare_and_those_of_the_interpreter_do() -> None:
    other = {"environment": make_environment(device_name="Other CPU")}
    base, head = make_accuracy(rmse_ratio=1e-7), make_accuracy(rmse_ratio=1e-5)

    assert accuracy_changes(base, head, of_head=other) == []
    interpreted = [one.model_copy(update={"executor": "interpreter"}) for one in (base, head)]
    assert accuracy_changes(*interpreted, of_head=other) == [(Reason.LESS_ACCURATE, "out")]
    assert accuracy_changes(base, interpreted[1]) == []


def test_it_is_told_and_fails_nothing() -> None:
    base, head = make_records(
        [make_timed(), make_accuracy(rmse_ratio=1e-7)], [make_timed(), make_accuracy(rmse_ratio=8e-6)]
    )

    judgement = judge_pull_request(base, head)

    assert judgement.verdict is Verdict.UNCHANGED
    assert exit_code(judgement) == 0
    assert tally(judgement) == "1 unchanged; 1 result less accurate"
    assert "| less accurate | `rms_norm/" in to_markdown(judgement)
    assert "| 1.00e-07 → 8.00e-06 | × 80 |" in to_markdown(judgement)


def counter_changes(base: dict[str, float], head: dict[str, float]) -> list[tuple[str, float]]:
    found = find_counter_changes([make_counters(values=base)], [make_counters(values=head)])
    return [(move.metric, round(move.relative_change, 4)) for move in found]


def test_what_moved_most_comes_first_and_a_halving_counts_as_much_as_a_doubling() -> None:
    base = {"dram_bytes": 100.0, "duration_ns": 100.0, "registers_per_thread": 64.0, "l2_bytes": 1_000.0}
    head = {"dram_bytes": 150.0, "duration_ns": 40.0, "registers_per_thread": 128.0, "l2_bytes": 1_010.0}

    assert counter_changes(base, head) == [("duration_ns", -0.6), ("registers_per_thread", 1.0), ("dram_bytes", 0.5)]


def test_what_was_not_there_before_grew_without_limit_and_comes_first() -> None:
    found = counter_changes(
        {"a_bytes": 0.0, "b_bytes": 1.0, "c_bytes": 0.0}, {"a_bytes": 5.0, "b_bytes": 9.0, "c_bytes": 0.0}
    )
    assert found == [("a_bytes", math.inf), ("b_bytes", 8.0)]


def test_shares_near_nothing_and_counters_of_one_side_alone_are_no_moves() -> None:
    assert (
        counter_changes({"stall_drain_share": 0.001, "x_bytes": 1.0}, {"stall_drain_share": 0.009, "y_bytes": 1.0})
        == []
    )
    assert counter_changes({"stall_drain_share": 0.001}, {"stall_drain_share": 0.02}) == [("stall_drain_share", 19.0)]


def test_kernels_are_paired_by_name_and_turn_whatever_runs_between_them() -> None:
    base = [make_counters(launch_index=at, values={"duration_ns": time_ns}) for at, time_ns in ((0, 10.0), (1, 20.0))]
    between = make_counters(function="_other", launch_index=1, values={"duration_ns": 99.0})
    head = [base[0], between, make_counters(launch_index=2, values={"duration_ns": 30.0})]

    (move,) = find_counter_changes(base, head)

    assert (move.launch_index, move.base, move.head) == (2, 20.0, 30.0)
