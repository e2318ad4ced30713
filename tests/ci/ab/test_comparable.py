"""Which times of one case compare, block by block and as bare medians."""

from roofwatch.ci.ab.comparable import Timing, refuse_medians, refuse_timing
from roofwatch.collector.record.measurement import CacheState, Measurement, Timer
from tests.builders import make_blocks, make_measurement


def timed(timer: Timer = Timer.CUPTI, cache: CacheState = CacheState.HOT, *, launches: int = 8) -> Measurement:
    return make_measurement(
        timer=timer, cache=cache, launches_per_sample=launches, blocks=make_blocks([1e3] * (launches - 5))
    )


def timing_of(measured: Measurement) -> Timing:
    return Timing(measured.timer, measured.cache)


def test_fewer_launches_in_a_sample_are_what_a_slower_kernel_has_and_refuse_a_verdict_alone() -> None:
    usual, slower = timed(), timed(launches=7)

    assert refuse_medians(timing_of(usual), timing_of(slower)) is None
    assert str(refuse_timing(usual, slower)) == "launches per sample 8 and 7; blocks 3 and 2"


def test_another_timer_or_cache_state_refuses_both() -> None:
    usual, other = timed(), timed(Timer.CUDA_EVENT, CacheState.COLD)

    said = "timer cupti and cuda_event; cache hot and cold"
    assert str(refuse_medians(timing_of(usual), timing_of(other))) == str(refuse_timing(usual, other)) == said
    assert refuse_timing(usual, usual) is None
