from typing import Any

import pytest

from roofwatch.ci.ab.clock import block_pairs, compare_cycles, is_clock_move
from roofwatch.ci.ab.compare import compare
from roofwatch.ci.gate import exit_code
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.pull_request import CaseJudgement, judge_pull_request
from roofwatch.collector.record.measurement import Measurement
from roofwatch.db.values import Verdict
from tests.builders import make_measurement
from tests.ci.values import QUIET, make_records, make_timed, watched

HOT = ("hw_thermal_slowdown",)


def timed(median_ns: float, **state: Any) -> Measurement:
    return watched(make_timed(median_ns=median_ns), **state)


def judged(base: Measurement, head: Measurement) -> CaseJudgement:
    (case,) = judge_pull_request(*make_records([base], [head])).cases
    return case


def moves(base: Measurement, head: Measurement) -> bool:
    pairs = block_pairs(base, head)
    times = compare([block.samples_ns for block in pairs.base], [block.samples_ns for block in pairs.head])
    cycles = compare_cycles(pairs, threshold=0.03)
    assert cycles is not None
    return is_clock_move(times, cycles)


# --- degraded blocks


def test_a_pair_with_a_degraded_block_on_either_side_is_left_out_with_its_reason() -> None:
    base = timed(1e6, degraded={1: HOT})
    head = timed(1e6, degraded={1: ("foreign_process",), 4: HOT})

    pairs = block_pairs(base, head)

    assert [(pair.position, pair.base, pair.head) for pair in pairs.left_out] == [
        (1, HOT, ("foreign_process",)),
        (4, (), HOT),
    ]
    assert pairs.base == tuple(base.blocks[position] for position in (0, 2, 3, 5))
    assert pairs.head == tuple(head.blocks[position] for position in (0, 2, 3, 5))


def test_blocks_that_nobody_watched_all_count() -> None:
    pairs = block_pairs(make_timed(), make_timed())

    assert len(pairs.base) == len(QUIET)
    assert not pairs.left_out
    assert compare_cycles(pairs, threshold=0.03) is None


def test_a_slow_block_of_a_hot_device_does_not_make_a_regression() -> None:
    slow = (1.0, 1.5, 1.0, 1.5, 1.0, 1.01)
    hot = watched(make_timed(levels=slow), degraded={1: HOT, 3: HOT})

    case = judged(timed(1e6), hot)

    assert case.verdict is Verdict.UNCHANGED
    assert case.comparison is not None
    assert case.comparison.block_count == 4
    assert [pair.position for pair in case.left_out] == [1, 3]


def test_a_real_slowdown_is_found_in_the_blocks_that_remain() -> None:
    case = judged(timed(1e6), timed(1.4e6, degraded={0: HOT}))

    assert (case.verdict, case.reason) == (Verdict.REGRESSED, Reason.BEYOND_THRESHOLD)


def test_where_too_few_blocks_remain_it_could_not_be_told() -> None:
    judgement = judge_pull_request(
        *make_records([timed(1e6)], [timed(2e6, degraded=dict.fromkeys(range(4), HOT))]),
    )
    (case,) = judgement.cases

    assert (case.verdict, case.reason) == (Verdict.INCONCLUSIVE, Reason.THROTTLED)
    assert str(case.detail) == "4 of 6 block pairs left out, by hw_thermal_slowdown"
    assert len(case.left_out) == 4
    assert exit_code(judgement) == 2


def test_where_no_block_remains_it_could_not_be_told() -> None:
    case = judged(timed(1e6, degraded=dict.fromkeys(range(6), ("foreign_process",))), timed(1e6))

    assert case.reason is Reason.THROTTLED


def test_few_blocks_of_a_device_that_was_itself_are_called_few() -> None:
    base, head = watched(make_measurement()), watched(make_measurement())

    assert judged(base, head).reason is Reason.TOO_FEW_BLOCKS


# --- clocks


@pytest.mark.parametrize(
    ("factor", "head_mhz", "verdict", "reason"),
    [
        (1.1, 1_800, Verdict.INCONCLUSIVE, Reason.CLOCK_MOVED),
        (1 / 1.1, 2_178, Verdict.INCONCLUSIVE, Reason.CLOCK_MOVED),
        (1.4, 1_800, Verdict.REGRESSED, Reason.BEYOND_THRESHOLD),
        (1.4, 1_980, Verdict.REGRESSED, Reason.BEYOND_THRESHOLD),
        (1.4, 2_178, Verdict.REGRESSED, Reason.BEYOND_THRESHOLD),
        (1.4, None, Verdict.REGRESSED, Reason.BEYOND_THRESHOLD),
        (1 / 1.4, 1_980, Verdict.IMPROVED, Reason.BEYOND_THRESHOLD),
        (1.0, 1_980, Verdict.UNCHANGED, Reason.WITHIN_THRESHOLD),
    ],
)
def test_a_move_in_time_counts_if_it_is_there_in_cycles_too(
    factor: float, head_mhz: float | None, verdict: Verdict, reason: Reason
) -> None:
    case = judged(timed(1e6), timed(1e6 * factor, sm_clock_mhz=head_mhz))

    assert (case.verdict, case.reason) == (verdict, reason)


def test_a_kernel_that_takes_as_long_at_a_lower_clock_has_not_improved() -> None:
    """Memory sets the time of many kernels, and has a clock of its own."""
    case = judged(timed(1e6), timed(1e6, sm_clock_mhz=1_700))

    assert case.verdict is Verdict.UNCHANGED
    assert case.cycles is not None
    assert case.cycles.comparison.verdict is Verdict.IMPROVED


def test_a_clock_that_moved_by_one_step_explains_nothing() -> None:
    base = timed(1e6)
    head = timed(1.036e6, sm_clock_mhz=1_965)

    assert judged(base, head).verdict is not Verdict.UNCHANGED
    assert not moves(base, head)


def test_swapped_sides_agree_on_what_the_clock_explains() -> None:
    for factor, head_mhz in ((1.1, 1_800), (1.4, 1_800), (1.05, 1_900), (0.9, 2_100)):
        base, head = timed(1e6), timed(1e6 * factor, sm_clock_mhz=head_mhz)

        assert moves(base, head) == moves(head, base)


def test_the_comment_says_which_clocks_and_what_is_left_in_cycles() -> None:
    detail = str(judged(timed(1e6), timed(1.1e6, sm_clock_mhz=1_800)).detail)

    assert detail.startswith("the SM clock moved from 1980 to 1800 MHz; in clock cycles the change is +0.0%")


def test_one_block_without_a_clock_leaves_the_decision_to_the_times() -> None:
    head = timed(1.1e6, sm_clock_mhz=1_800)
    last = head.blocks[-1].model_copy(update={"device_state": None})
    head = head.model_copy(update={"blocks": (*head.blocks[:-1], last)})

    case = judged(timed(1e6), head)

    assert case.cycles is None
    assert case.verdict is Verdict.REGRESSED
