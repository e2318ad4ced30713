"""Which counters moved between two records."""

import math

import pytest

from roofwatch.ci.ab.changes import Change, find_counter_changes
from tests.ci.values import make_counters


def moves(base: dict[str, float], head: dict[str, float]) -> list[tuple[str, float]]:
    found = find_counter_changes([make_counters(values=base)], [make_counters(values=head)])
    return [(move.metric, round(move.relative_change, 4)) for move in found]


def test_what_moved_most_comes_first_and_a_halving_counts_as_much_as_a_doubling() -> None:
    base = {"dram_bytes": 100.0, "duration_ns": 100.0, "registers_per_thread": 64.0, "l2_bytes": 1_000.0}
    head = {"dram_bytes": 150.0, "duration_ns": 40.0, "registers_per_thread": 128.0, "l2_bytes": 1_010.0}

    assert moves(base, head) == [("duration_ns", -0.6), ("registers_per_thread", 1.0), ("dram_bytes", 0.5)]


def test_swapping_the_sides_keeps_the_order_and_turns_the_signs() -> None:
    one, other = {"a_bytes": 100.0, "b_bytes": 100.0}, {"a_bytes": 120.0, "b_bytes": 70.0}

    there, back = moves(one, other), moves(other, one)

    assert [name for name, _ in there] == [name for name, _ in back] == ["b_bytes", "a_bytes"]
    assert [change > 0 for _, change in there] == [change < 0 for _, change in back]


def test_what_moves_no_more_than_two_runs_of_one_kernel_is_left_out() -> None:
    assert moves({"dram_bytes": 100.0}, {"dram_bytes": 101.9}) == []
    assert moves({"dram_bytes": 100.0}, {"dram_bytes": 102.1}) == [("dram_bytes", 0.021)]


def test_what_was_not_there_before_grew_without_limit_and_comes_first() -> None:
    found = moves({"a_bytes": 0.0, "b_bytes": 1.0, "c_bytes": 0.0}, {"a_bytes": 5.0, "b_bytes": 9.0, "c_bytes": 0.0})
    assert found == [("a_bytes", math.inf), ("b_bytes", 8.0)]


def test_shares_near_nothing_and_counters_of_one_side_alone_are_no_moves() -> None:
    assert moves({"stall_drain_share": 0.001, "x_bytes": 1.0}, {"stall_drain_share": 0.009, "y_bytes": 1.0}) == []
    assert moves({"stall_drain_share": 0.001}, {"stall_drain_share": 0.02}) == [("stall_drain_share", 19.0)]


def test_kernels_are_paired_by_name_and_turn_whatever_runs_between_them() -> None:
    base = [make_counters(launch_index=at, values={"duration_ns": time_ns}) for at, time_ns in ((0, 10.0), (1, 20.0))]
    between = make_counters(function="_other", launch_index=1, values={"duration_ns": 99.0})
    head = [base[0], between, make_counters(launch_index=2, values={"duration_ns": 30.0})]

    (move,) = find_counter_changes(base, head)

    assert (move.launch_index, move.base, move.head) == (2, 20.0, 30.0)


@pytest.mark.parametrize(("base", "head"), [(0.0, 0.0), (3.0, 3.0)])
def test_what_stayed_has_not_moved(base: float, head: float) -> None:
    move = Change("k/n=1/float32/fwd", "triton", "dram_bytes", base, head)
    assert (move.relative_change, move.log_ratio) == (0.0, 0.0)
