"""The timers of a GPU on a stand-in for one, on a made-up clock: what comes in which order, what is
in a sample.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from roofwatch.collector.timing import memory
from roofwatch.collector.timing.cuda_timers import BusyDevice, EventStopwatch, GraphStopwatch
from roofwatch.collector.timing.cupti import CuptiStopwatch
from roofwatch.collector.timing.memory import CacheFlush, Rotation
from roofwatch.collector.timing.stopwatch import ALONE, Ranks, Sample
from roofwatch.model.measurement import CacheState
from roofwatch.spec import UnsupportedError
from tests.collector.timing.cuda import StandInGpu
from tests.collector.timing.stand_in_cupti import StandIn, kernel, recorder_of

KERNEL_NS, ISSUE_NS, FLUSH_NS = 7_000, 3_000, 90_000


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandInGpu:
    gpu = StandInGpu()
    gpu.install(monkeypatch)
    return gpu


def events_of(
    gpu: StandInGpu, issue_ns: int = ISSUE_NS, cache: CacheState = CacheState.COLD
) -> EventStopwatch:
    return EventStopwatch(
        lambda: gpu.launch("mine", KERNEL_NS, issue_ns),
        cache,
        lambda: gpu.launch("flush", FLUSH_NS),
        ALONE,
    )


# --- events


def test_launches_are_queued_before_the_device_begins(gpu: StandInGpu) -> None:
    events_of(gpu).take(2, 1)

    assert gpu.happened == ["spin", *["flush", "event", "mine", "event"] * 2, "wait"]


def test_events_enclose_only_the_launch(gpu: StandInGpu) -> None:
    samples = events_of(gpu).take(2, 1)

    assert samples == [Sample(busy_ns=KERNEL_NS, host_ns=ISSUE_NS)] * 2


def test_a_sample_is_the_mean_of_several_launches(gpu: StandInGpu) -> None:
    stopwatch = events_of(gpu, cache=CacheState.HOT)

    assert stopwatch.launches_for(KERNEL_NS) == 8  # 50 µs and more
    assert events_of(gpu).launches_for(KERNEL_NS) == 1, (
        "a second one would find the first one's data"
    )
    assert stopwatch.take(1, 8) == [Sample(busy_ns=KERNEL_NS, host_ns=ISSUE_NS)]
    assert gpu.happened.count("mine") == 8


# --- the device, held


def test_an_early_start_is_repeated_with_half_the_work_behind_a_longer_spin(
    gpu: StandInGpu,
) -> None:
    samples = events_of(gpu, issue_ns=1_000_000).take(50, 1)

    # 50 launches take the host 50 ms, then 25 and 12; a spin of 5 ms is too short, so is one of 10,
    # and 19.2 is not
    assert [spin_ns / 1e6 for spin_ns in gpu.spins_ns[:3]] == [5, 10, 19.2]
    assert len(samples) == 50
    assert {sample.busy_ns for sample in samples} == {KERNEL_NS}


def test_a_synchronising_call_is_timed_without_queueing(gpu: StandInGpu) -> None:
    def launch() -> None:
        gpu.launch("mine", KERNEL_NS, ISSUE_NS)
        gpu.synchronize()

    stopwatch = EventStopwatch(launch, CacheState.HOT, lambda: None, ALONE)
    samples = stopwatch.take(3, 1)

    assert len(gpu.spins_ns) == 4
    assert samples[-1].busy_ns >= KERNEL_NS + ISSUE_NS
    before = len(gpu.spins_ns)
    stopwatch.take(2, 1)
    assert len(gpu.spins_ns) == before
    assert stopwatch.has_host_gaps


class HastyCompanion(Ranks):
    """Another rank, whose device ran early the first time."""

    def __init__(self) -> None:
        self.said: list[float] = []

    def align(self) -> None:
        pass

    def slowest_ns(self, elapsed_ns: float) -> float:
        self.said.append(elapsed_ns)
        return 1.0 if len(self.said) == 1 else elapsed_ns


def test_all_ranks_repeat_an_early_start(gpu: StandInGpu) -> None:
    companion = HastyCompanion()
    device = BusyDevice(companion)

    assert not device.queue(lambda: gpu.launch("mine", KERNEL_NS), 1)
    assert device.queue(lambda: gpu.launch("mine", KERNEL_NS), 1)
    assert companion.said == [0.0, 0.0], "this one's never was"
    assert gpu.spins_ns[1] == 4 * gpu.spins_ns[0]
    assert device.max_queued == 25


# --- graphs


def test_a_graph_holds_each_copy_equally_often(gpu: StandInGpu) -> None:
    copies = Rotation([lambda: gpu.launch("mine", KERNEL_NS, ISSUE_NS)] * 3)
    stopwatch = GraphStopwatch(copies, CacheState.ROTATED, lambda: None, ALONE)
    rehearsed_ns = stopwatch.rehearse()
    launches = stopwatch.launches_for(KERNEL_NS)
    gpu.happened.clear()
    samples = stopwatch.take(2, launches)

    assert rehearsed_ns == KERNEL_NS + ISSUE_NS
    assert launches == 144  # 143 take a millisecond, and three copies take turns
    replay = ["spin", "event", "graph of 144", "event", "wait"]
    assert gpu.happened == ["graph of 144", "wait", *replay * 2], (
        "the first replay uploads it, and counts for nothing"
    )
    assert samples == [Sample(busy_ns=KERNEL_NS, host_ns=ISSUE_NS)] * 2


def test_a_failed_capture_names_other_timers(gpu: StandInGpu) -> None:
    def launch() -> None:
        gpu.launch("mine", KERNEL_NS)
        gpu.synchronize()

    stopwatch = GraphStopwatch(launch, CacheState.HOT, lambda: None, ALONE)
    with pytest.raises(UnsupportedError) as refused:
        stopwatch.take(1, 2)

    assert str(refused.value) == (
        "this launch cannot be captured in a CUDA graph (CUDA error: operation not permitted when "
        "stream is capturing)"
        "; --timer cupti or cuda_event can time it"
    )
    assert gpu.captured is None


# --- CUPTI


def recorded_by_cupti(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Have CUPTI's stand-in record what the device does, on the same clock."""
    cupti = StandIn(records_per_buffer=3)
    gpu.on_kernel = lambda name, start, end: cupti.run(kernel(name, start, end))

    def read_clock() -> int:
        gpu.host_ns += 200
        return gpu.host_ns - 100

    monkeypatch.setattr(cupti, "get_timestamp", read_clock, raising=False)
    monkeypatch.setattr("roofwatch.collector.timing.cupti.recorder", lambda: recorder_of(cupti))
    return cupti


def test_cupti_times_a_launch_on_an_idle_device_without_the_flush(
    gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_by_cupti(gpu, monkeypatch)

    def launch() -> None:
        gpu.launch("first", KERNEL_NS, ISSUE_NS)
        gpu.launch("second", KERNEL_NS, 5 * ISSUE_NS)

    stopwatch = CuptiStopwatch(
        launch, CacheState.COLD, lambda: gpu.launch("flush", FLUSH_NS), ALONE
    )
    samples = stopwatch.take(2, 1)

    assert gpu.happened == ["flush", "wait", "first", "second", "wait"] * 2
    expected = Sample(
        busy_ns=2 * KERNEL_NS,
        span_ns=5 * ISSUE_NS + KERNEL_NS,  # the device waits while the host issues the second
        host_ns=6 * ISSUE_NS,
        launch_delay_ns=100 + ISSUE_NS,
        kernels=("first", "second"),
    )
    assert samples == [expected] * 2


@pytest.mark.parametrize("lost_count", [1, 2])
def test_a_batch_is_repeated_if_cupti_lost_the_records_of_a_launch(
    gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch, lost_count: int
) -> None:
    cupti = recorded_by_cupti(gpu, monkeypatch)
    to_lose = ["mine"] * lost_count

    def record(name: str, start: int, end: int) -> None:
        if name in to_lose:
            to_lose.remove(name)
        else:
            cupti.run(kernel(name, start, end))

    gpu.on_kernel = record
    stopwatch = CuptiStopwatch(
        lambda: gpu.launch("mine", KERNEL_NS), CacheState.HOT, lambda: None, ALONE
    )

    samples = stopwatch.take(1, 1)

    assert [sample.busy_ns for sample in samples] == [KERNEL_NS]
    assert gpu.happened.count("mine") == lost_count + 1


def test_a_launch_that_never_uses_the_gpu_is_refused(
    gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_by_cupti(gpu, monkeypatch)
    stopwatch = CuptiStopwatch(lambda: None, CacheState.HOT, lambda: None, ALONE)

    with pytest.raises(UnsupportedError, match="no GPU activity in 3 of 3 launches"):
        stopwatch.take(3, 1)


# --- what is set aside in the L2


@pytest.mark.parametrize(
    ("set_aside_bytes", "expected"),
    [(0, ["overwritten", "read"]), (4096, ["released", "overwritten", "read"])],
)
def test_a_flush_releases_persisting_lines_before_it_leaves_clean_ones(
    set_aside_bytes: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    sizes: list[int] = []

    def zeros(shape: Any, **_: object) -> SimpleNamespace:
        if shape != ():
            sizes.append(shape * torch.float32.itemsize)
        return SimpleNamespace(zero_=lambda: happened.append("overwritten"))

    def total(read: object, **_: object) -> None:
        assert read is flush._read, "other memory than the overwritten"
        happened.append("read")

    def reset() -> int:
        happened.append("released")
        return 0

    def limit(result: Any, name: int) -> int:
        assert name == 6, "CU_LIMIT_PERSISTING_L2_CACHE_SIZE"
        result._obj.value = set_aside_bytes
        return 0

    driver = SimpleNamespace(cuCtxResetPersistingL2Cache=reset, cuCtxGetLimit=limit)
    monkeypatch.setattr(memory, "_driver", lambda: driver)
    monkeypatch.setattr(memory, "last_level_cache_bytes", lambda _: 64)
    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setattr(torch, "sum", total)
    flush = CacheFlush("cuda")
    flush()

    assert sizes == [128, 128]
    assert happened == expected
