"""What `bench/store_scale.py` makes of the times it takes."""

import os
import time
from dataclasses import replace

import pytest

from bench.processor_time import spent_ns
from bench.store_scale import Result, Spread, Times, Took, conclusion

TOOK = Took(database_ms=Spread(10.0, 20.0), whole_ms=Spread(70.0, 90.0), server_ms=Spread(5.0, 8.0))
OF_ONE_MILLION = Result(
    1_000_000, trend=TOOK, comparison=TOOK, bytes_per_measurement=118.0, bytes_shared_per_measurement=11.0
)


def test_growth_is_how_many_times_as_long_the_largest_store_takes() -> None:
    slower = replace(TOOK, database_ms=Spread(12.0, 23.0), server_ms=Spread(5.5, 10.0))
    of_ten = replace(OF_ONE_MILLION, measurement_count=10_000_000, trend=slower)

    trend, comparison, _ = conclusion([OF_ONE_MILLION, OF_ONE_MILLION, of_ten]).splitlines()

    assert trend.startswith("trend: with 10 times the measurements p50 is 1.20 times as long, p95 1.15 times")
    assert trend.endswith("23.0 ms (target 50 ms); of the server's processor 1.10 and 1.25 times")
    assert "p50 is 1.00 times as long, p95 1.00 times" in comparison


def test_half_of_the_times_are_below_the_first_percentile_that_is_told() -> None:
    hundred = [float(each) for each in range(1, 101)]
    took = Times(database=hundred, whole=[2 * each for each in hundred], server=hundred[::-1]).spreads()
    assert took.database_ms == took.server_ms
    assert (took.database_ms.p50, round(took.database_ms.p95, 6)) == (50.5, 95.05)
    assert took.whole_ms.p50 == 101.0


def test_processor_time_of_a_process_is_what_it_says_itself() -> None:
    before_ns, before_s = spent_ns(os.getpid()), time.thread_time()
    while time.thread_time() < before_s + 0.2:
        sum(range(1_000))
    spent_s = (spent_ns(os.getpid()) - before_ns) / 1e9
    assert spent_s == pytest.approx(time.thread_time() - before_s, abs=0.05)
