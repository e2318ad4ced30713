"""Lengths of time against the slow way: counting every nanosecond."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.profiling.activities import length_ns, overlap_ns, union

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


def moments(given_intervals: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in given_intervals for moment in range(start, end)}


@settings(deadline=None)
@given(intervals)
def test_the_union_is_as_long_as_the_moments_in_any_interval(some: list[tuple[int, int]]) -> None:
    assert length_ns(union(some)) == len(moments(some))


@settings(deadline=None)
@given(intervals, intervals)
def test_the_overlap_is_as_long_as_the_moments_in_both(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    assert overlap_ns(union(some), union(others)) == len(moments(some) & moments(others))


@settings(deadline=None)
@given(intervals)
def test_what_is_joined_is_apart_and_in_order(some: list[tuple[int, int]]) -> None:
    apart = union(some)
    assert all(end < start for (_, end), (start, _) in pairwise(apart))
