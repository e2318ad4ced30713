"""A process that stores records says how often Python looks for cycles."""

import gc
from collections.abc import Iterator

import pytest

from roofwatch.cycles import look_for_cycles_seldom


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def test_a_record_is_read_without_looking_for_cycles_a_hundred_times() -> None:
    look_for_cycles_seldom()

    before = gc.get_stats()[0]["collections"]
    record = [{"block": number} for number in range(150_000)]
    looked = gc.get_stats()[0]["collections"] - before

    assert len(record) == 150_000
    assert looked <= 2


def test_cycles_are_still_found() -> None:
    look_for_cycles_seldom()

    assert gc.isenabled()
    assert 0 < gc.get_threshold()[0] < 10**6
