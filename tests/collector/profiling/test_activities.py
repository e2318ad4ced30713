"""Lengths of time compared with counting every nanosecond."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.profiling.activities import length_ns, overlap_ns, union

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


def moments(some: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in some for moment in range(start, end)}


@settings(deadline=None)
@given(intervals, intervals)
def test_union_and_overlap_equal_counting_every_nanosecond(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    disjoint = union(some)
    assert length_ns(disjoint) == len(moments(some))
    assert all(end < start for (_, end), (start, _) in pairwise(disjoint))
    assert overlap_ns(disjoint, union(others)) == len(moments(some) & moments(others))
