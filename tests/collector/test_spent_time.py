from collections.abc import Iterator

import pytest

from roofwatch.collector.run_plan import Activity, SpentTime
from roofwatch.records import time_spent
from tests.builders import make_record


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What the clock says next, in ns."""
    told: list[int] = []
    monkeypatch.setattr("roofwatch.collector.run_plan.time.monotonic_ns", lambda: told.pop(0))
    yield told
    assert told == []


def test_time_is_summed_by_activity(ticks: list[int]) -> None:
    spent = SpentTime()
    ticks += [0, 5, 10, 12, 20, 27]
    for activity in (Activity.CHECK, Activity.COMPILE, Activity.CHECK):
        with spent.on(activity):
            pass
    assert list(spent.total_ns.items()) == [("compile", 2), ("check", 12)]


def test_moving_time_between_activities_keeps_the_sum(ticks: list[int]) -> None:
    spent = SpentTime()
    ticks += [0, 10]
    with spent.on(Activity.OVERHEAD):
        pass
    spent.move(Activity.TIMING, 7, source=Activity.OVERHEAD)
    spent.move(Activity.WARM_UP, 7, source=Activity.OVERHEAD)
    assert spent.total_ns == {"warm_up": 3, "timing": 7}


def test_new_time_is_taken_once(ticks: list[int]) -> None:
    spent = SpentTime()
    spent.add_earlier({"check": 100})
    ticks += [0, 5]
    with spent.on(Activity.CHECK):
        pass
    assert spent.take_new() == {"check": 5}
    assert spent.take_new() == {}
    assert spent.total_ns == {"check": 105}


def test_the_time_spent_is_printed_in_one_line() -> None:
    record = make_record(spent_ns={"warm_up": 1_500_000_000, "timing": 8_500_000_000})
    assert time_spent(record) == "10 s: warm-up 15%, timing 85%"
    assert time_spent(make_record()) == "time spent: not recorded"
