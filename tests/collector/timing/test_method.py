import pytest

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.method import TimingMethod, default_method, possible_methods


def test_a_gpu_has_three_timers_best_first() -> None:
    assert possible_methods("cuda") == [
        TimingMethod(Timer.CUPTI, CacheState.COLD),
        TimingMethod(Timer.CUDA_GRAPH, CacheState.ROTATED),
        TimingMethod(Timer.CUDA_EVENT, CacheState.COLD),
    ]


def test_a_request_selects_timers() -> None:
    assert possible_methods("cpu") == [default_method("cpu")] == [TimingMethod(Timer.PERF_COUNTER, CacheState.HOT)]
    assert possible_methods("cuda", Timer.CUDA_EVENT) == [TimingMethod(Timer.CUDA_EVENT, CacheState.COLD)]
    methods = possible_methods("cuda", cache=CacheState.COLD)

    assert [method.timer for method in methods] == [Timer.CUPTI, Timer.CUDA_EVENT]


def test_a_timer_of_another_device_is_refused() -> None:
    with pytest.raises(TimerError, match=r"cupti: .* on cpu here, where the timer is perf_counter"):
        possible_methods("cpu", Timer.CUPTI)


def test_a_graph_cannot_have_a_cold_cache() -> None:
    with pytest.raises(TimerError, match="cuda_graph offers rotated or hot; --timer cupti or cuda_event offers cold"):
        possible_methods("cuda", Timer.CUDA_GRAPH, CacheState.COLD)
