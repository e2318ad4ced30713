"""Which times of one case are comparable."""

from __future__ import annotations

from roofwatch.ci.ab.comparable import Timing, differences_of, refuse_medians, refuse_timing
from roofwatch.collector.record.measurement import CacheState, Measurement, Timer
from tests.builders import make_blocks, make_environment, make_measurement


def timed(timer: Timer = Timer.CUPTI, cache: CacheState = CacheState.HOT, *, launches: int = 8) -> Measurement:
    return make_measurement(
        timer=timer, cache=cache, launches_per_sample=launches, blocks=make_blocks([1e3] * (launches - 5))
    )


def timing_of(measured: Measurement) -> Timing:
    return Timing(measured.timer, measured.cache)


def test_other_launches_per_sample_refuse_blocks_but_not_medians() -> None:
    usual, slower = timed(), timed(launches=7)

    assert refuse_medians(timing_of(usual), timing_of(slower)) is None
    assert str(refuse_timing(usual, slower)) == "launches per sample 8 and 7; blocks 3 and 2"


def test_another_timer_or_cache_state_refuses_blocks_and_medians() -> None:
    usual, other = timed(), timed(Timer.CUDA_EVENT, CacheState.COLD)

    refusal = "timer cupti and cuda_event; cache hot and cold"
    assert str(refuse_medians(timing_of(usual), timing_of(other))) == str(refuse_timing(usual, other)) == refusal
    assert refuse_timing(usual, usual) is None


def test_the_toolchain_comes_first_and_may_move_times() -> None:
    newer = make_environment(os="Linux 6.9", torch_version="2.14.0", cuda_version="13.1")
    found = differences_of([make_environment(), newer])

    assert [(one.name, one.may_move_times) for one in found] == [
        ("torch version", True),
        ("cuda version", True),
        ("os", False),
    ]
    assert found[0].values == ("2.13.0", "2.14.0")
    assert found[1].values == ("not known", "13.1")
