"""Bytes of the sectors that a tile's elements lie in."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from roofwatch.collector.compile.cycles.sectors import sector_bytes

SECTOR = 32


def bounds(lengths: list[int], strides: list[int | None], element_bytes: int = 4) -> list[float]:
    return list(
        sector_bytes(lengths, tuple(strides), element_bytes=element_bytes, sector_size=SECTOR)
    )


def counted_bytes(lengths: list[int], strides: list[int], element_bytes: int) -> int:
    """Count the sectors of all elements one by one."""
    sectors: set[int] = set()
    for indices in itertools.product(*map(range, lengths)):
        offset = sum(index * stride for index, stride in zip(indices, strides, strict=True))
        first = offset * element_bytes // SECTOR
        last = (offset * element_bytes + element_bytes - 1) // SECTOR
        sectors.update(range(first, last + 1))
    return SECTOR * len(sectors)


def test_neighbours_share_sectors() -> None:
    assert bounds([64, 128], [1024, 1]) == [64 * 128 * 4] * 2


def test_distant_elements_have_a_sector_each() -> None:
    assert bounds([128], [8]) == [128 * 32] * 2


def test_the_nearer_axis_decides_whatever_its_place() -> None:
    assert bounds([64, 128], [1, 1024]) == bounds([128, 64], [1024, 1])


def test_equal_addresses_count_once() -> None:
    assert bounds([64, 128], [0, 1]) == [128 * 4] * 2


def test_an_unknown_stride_leaves_a_range() -> None:
    assert bounds([128], [None]) == [128 * 4, 128 * 32]


def test_runs_longer_than_a_sector_need_no_known_distance() -> None:
    assert bounds([16, 64], [None, 1]) == [16 * 64 * 4] * 2


@given(
    lengths=st.lists(st.sampled_from([1, 2, 4, 16]), min_size=1, max_size=3),
    strides=st.lists(st.sampled_from([0, 1, 2, 4, 16, 64, 256]), min_size=3, max_size=3),
    element_bytes=st.sampled_from([1, 2, 4, 8]),
)
def test_known_strides_never_move_less_than_half_of_what_counting_finds(
    lengths: list[int], strides: list[int], element_bytes: int
) -> None:
    strides = strides[: len(lengths)]
    moved, most = sector_bytes(
        lengths, tuple(strides), element_bytes=element_bytes, sector_size=SECTOR
    )

    assert moved == most
    counted = counted_bytes(lengths, strides, element_bytes)
    # the run from the first to the last element fills sectors in part
    assert counted <= 2 * moved
