import weakref

import pytest

from roofwatch.collector.timing.caches import Rotation, copy_count
from roofwatch.spec import UnsupportedError

MIB = 2**20


@pytest.mark.parametrize(
    ("touched_bytes", "count"),
    [(200 * MIB, 2), (100 * MIB, 2), (99 * MIB, 3), (50 * MIB, 4), (MIB, 200), (0, 2)],
)
def test_copies_are_two_at_least_and_together_twice_the_cache(touched_bytes: int, count: int) -> None:
    assert copy_count(touched_bytes, cache_bytes=100 * MIB) == count


def test_data_so_small_that_copies_without_end_would_fit_is_not_rotated() -> None:
    with pytest.raises(UnsupportedError, match="--cache hot or cold"):
        copy_count(1_000, cache_bytes=50 * MIB)


def test_launches_take_turns() -> None:
    called: list[int] = []
    rotation = Rotation([lambda number=number: called.append(number) for number in range(3)])  # type: ignore[misc]

    for _ in range(7):
        rotation()

    assert called == [0, 1, 2, 0, 1, 2, 0]
    assert rotation.count == 3


class Result:
    pass


def test_a_result_is_kept_until_its_launch_comes_round_again_and_no_longer() -> None:
    made: list[weakref.ref[Result]] = []

    def launch() -> Result:
        result = Result()
        made.append(weakref.ref(result))
        return result

    rotation = Rotation([launch, launch, launch])
    for _ in range(4):
        rotation()

    assert [result() is not None for result in made] == [False, False, True, True]
