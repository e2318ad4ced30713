"""Which times of one case are comparable."""

from __future__ import annotations

from roofwatch.ci.ab.comparable import differences_of, refuse_timing
from roofwatch.collector.record.measurement import CacheState, Measurement, Timer
from tests.builders import make_blocks, make_environment, make_measurement


def timed(timer: Timer = Timer.CUPTI, cache: CacheState = CacheState.HOT, *, launches: int = 8) -> Measurement:
    return make_measurement(
        timer=timer, cache=cache, launches_per_sample=launches, blocks=make_blocks([1e3] * (launches - 5))
    )


def test_another_timer_cache_state_or_number_of_launches_refuses_blocks() -> None:
    usual = timed()

    assert refuse_timing(usual, usual) is None
    assert str(refuse_timing(usual, timed(launches=7))) == "launches per sample 8 and 7; blocks 3 and 2"
    other = timed(Timer.CUDA_EVENT, CacheState.COLD)
    assert str(refuse_timing(usual, other)) == "timer cupti and cuda_event; cache hot and cold"


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
