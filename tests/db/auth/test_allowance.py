"""A bucket gives what it has, once, whoever asks."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sqlalchemy import Engine, func, select

from roofwatch.db.auth.allowance import Bucket, Taken, take
from roofwatch.db.schema.access import AllowanceRow
from tests.builders import NOON

BUCKET = Bucket(per_s=2.0, most=10)


def test_a_new_bucket_is_full_and_gives_no_more_than_it_has(store: Engine) -> None:
    assert take(store, "a token", 4, BUCKET, NOON) == Taken(4, 0.0)
    assert take(store, "a token", 8, BUCKET, NOON) == Taken(6, 0.0)
    assert take(store, "a token", 1, BUCKET, NOON) == Taken(0, 0.5)
    assert take(store, "another", 1, BUCKET, NOON) == Taken(1, 0.0)


def test_what_was_taken_comes_back_in_time_up_to_what_the_bucket_holds(store: Engine) -> None:
    take(store, "a token", 10, BUCKET, NOON)

    assert take(store, "a token", 9, BUCKET, NOON + timedelta(seconds=1.75)).count == 3
    assert take(store, "a token", 99, BUCKET, NOON + timedelta(hours=1)).count == 10


def test_a_clock_that_is_behind_fills_nothing(store: Engine) -> None:
    take(store, "a token", 10, BUCKET, NOON)

    assert take(store, "a token", 1, BUCKET, NOON - timedelta(hours=1)).count == 0
    assert take(store, "a token", 9, BUCKET, NOON + timedelta(seconds=1)).count == 2


def test_many_at_once_get_no_more_than_there_is(store: Engine) -> None:
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: take(store, "a token", 3, BUCKET, NOON).count, range(8)))

    assert sum(taken) == 10


def test_who_has_not_asked_for_long_is_forgotten_when_somebody_new_comes(store: Engine) -> None:
    take(store, "a token", 10, BUCKET, NOON)
    take(store, "another", 1, BUCKET, NOON + timedelta(days=2))

    with store.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(AllowanceRow)) == 1
    assert take(store, "a token", 99, BUCKET, NOON + timedelta(days=2)).count == 10
