from datetime import timedelta

import pytest

from roofwatch.ci.alerts.silence import rhythm_of
from tests.builders import NOON

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_a_nightly_runner_is_silent_after_several_nights_and_not_before() -> None:
    rhythm = rhythm_of([NOON + DAY * night for night in range(10)])

    assert (rhythm.last_at, rhythm.usual_gap) == (NOON + DAY * 9, DAY)
    assert not rhythm.is_silent(NOON + DAY * 11)
    assert rhythm.is_silent(NOON + DAY * 12)


def test_weekends_are_part_of_the_rhythm() -> None:
    nights = [NOON + DAY * day for day in range(28) if day % 7 < 5]
    rhythm = rhythm_of(nights)

    assert not rhythm.is_silent(nights[-1] + DAY * 4)
    assert rhythm.is_silent(nights[-1] + DAY * 9)


def test_runs_that_follow_each_other_within_minutes_are_no_rhythm() -> None:
    rhythm = rhythm_of([NOON + timedelta(seconds=20) * number for number in range(10)])

    assert not rhythm.is_silent(rhythm.last_at + timedelta(minutes=50))
    assert rhythm.is_silent(rhythm.last_at + HOUR)


def test_a_runner_of_few_results_is_never_called_silent() -> None:
    rhythm = rhythm_of([NOON, NOON + HOUR])

    assert (rhythm.usual_gap, rhythm.silent_from) == (None, None)
    assert not rhythm.is_silent(NOON + DAY * 1_000)


def test_the_order_of_the_results_does_not_matter() -> None:
    times = [NOON + HOUR * number for number in (3, 0, 4, 1, 5, 2)]

    assert rhythm_of(times) == rhythm_of(sorted(times))


def test_without_results_there_is_no_rhythm() -> None:
    with pytest.raises(ValueError, match="one result at least"):
        rhythm_of([])
