import time
from pathlib import Path

import pytest

from collector.device.clock_lock import Clock
from collector.device.device_watch import DeviceWatch
from collector.device.join import Window
from collector.errors import CollectorError
from collector.nursery import Nursery
from collector.protocol import Mode
from collector.run import collect_run
from collector.suite_run import RunPlan, SuiteRun
from collector.workers import Workers
from roofwatch.arguments import suite_at
from tests.builders import make_environment
from tests.collector.nvml import MIG_UUID, OTHER_UUID, UUID, calls_in, replay_everywhere, replayed

GPU = make_environment(device_kind="cuda", device_name="Example GPU")


def without_waiting(_: float) -> None:
    """Readings come by themselves, one after each wait."""


def watch_of(recording: str) -> DeviceWatch:
    return DeviceWatch(nvml=replayed(recording), wait=without_waiting)


def begun(recording: str, lock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DeviceWatch, Path]:
    calls = replay_everywhere(recording, tmp_path, monkeypatch)
    return DeviceWatch(lock, wait=without_waiting), calls


def whole_run() -> Window:
    """Whatever has been seen so far."""
    return Window(0, time.monotonic_ns())


def test_what_is_seen_stands_in_the_telemetry_when_the_watch_is_over() -> None:
    with watch_of("normal") as watch:
        assert watch.begin(GPU, UUID) == GPU
        state = watch.state(whole_run(), launch_count=10)
    telemetry = watch.telemetry

    assert state is not None
    assert state.sm_clock_mhz == 1980
    assert telemetry is not None
    assert (telemetry.status, telemetry.message) == ("ok", None)
    assert len(telemetry.offset_ms) >= 2
    assert set(telemetry.sm_clock_mhz) == {1980}
    assert set(telemetry.foreign_process_count) == {0}


def test_two_runs_share_one_watch_of_the_device_that_torch_uses() -> None:
    with watch_of("two_gpus") as watch:
        watch.begin(GPU, OTHER_UUID)
        first = watch.telemetry
        watch.begin(GPU, OTHER_UUID)
        second = watch.telemetry

    assert first is not None
    assert second is not None
    assert first.started_at == second.started_at
    assert second.sm_clock_mhz[0] == 1755


@pytest.mark.parametrize(
    ("recording", "uuid", "status", "words"),
    [
        ("no_driver", UUID, "unavailable", "is NVIDIA's driver installed"),
        ("not_permitted", UUID, "not_permitted", "this user may not"),
        ("mig", MIG_UUID, "unsupported", "MIG slice"),
        ("two_gpus", None, "unavailable", "2 devices"),
    ],
)
def test_a_device_that_cannot_be_watched_is_measured_all_the_same(
    recording: str, uuid: str | None, status: str, words: str
) -> None:
    with watch_of(recording) as watch:
        environment = watch.begin(GPU, uuid)
        state = watch.state(whole_run(), launch_count=10)
    telemetry = watch.telemetry

    assert environment == GPU
    assert state is None
    assert telemetry is not None
    assert telemetry.status == status
    assert words in str(telemetry.message)
    assert telemetry.offset_ms == ()


def test_what_is_not_offered_is_said() -> None:
    with watch_of("older_driver") as watch:
        watch.begin(GPU, UUID)
    with watch_of("other_pid_namespace") as contained:
        contained.begin(GPU, UUID)

    assert "nvmlDeviceGetTotalEnergyConsumption" in str(watch.telemetry and watch.telemetry.message)
    assert "does not tell whose" in str(contained.telemetry and contained.telemetry.message)


def test_a_device_that_is_lost_does_not_end_the_run() -> None:
    with watch_of("lost") as watch:
        watch.begin(GPU, UUID)
        for _ in range(5):
            watch.state(whole_run(), launch_count=10)
    telemetry = watch.telemetry

    assert telemetry is not None
    assert len(telemetry.offset_ms) == 3
    assert "GPU is lost" in str(telemetry.message)


def test_a_cpu_is_not_watched_and_has_no_clock_to_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watch_of("normal") as watch:
        watch.begin(make_environment(), None)
        assert watch.state(whole_run(), launch_count=10) is None
    assert watch.telemetry is None

    locking, calls = begun("locked", 1500, tmp_path, monkeypatch)
    with locking, pytest.raises(CollectorError, match="a CPU has no clock"):
        locking.begin(make_environment(), None)
    assert calls_in(calls) == []


def test_nothing_is_locked_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = replay_everywhere("locked", tmp_path, monkeypatch)

    with DeviceWatch(wait=without_waiting) as watch:
        environment = watch.begin(GPU, UUID)

    assert environment.clock_mode == "free"
    assert calls_in(calls) == []


def test_a_clock_that_holds_is_part_of_the_environment_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, calls = begun("locked", 1500, tmp_path, monkeypatch)
    with watch:
        environments = [watch.begin(GPU, UUID) for _ in range(2)]
        during = len(calls_in(calls))
        state = watch.state(whole_run(), launch_count=10)

    assert {(found.clock_mode, found.locked_sm_clock_mhz) for found in environments} == {("locked", 1500)}
    assert "clock locked at 1500 MHz" in environments[0].runner_class
    assert during == 1
    assert len(calls_in(calls)) == 2
    assert state is not None


def test_a_clock_that_does_not_hold_ends_the_run_and_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, calls = begun("lock_not_held", 1965, tmp_path, monkeypatch)

    with watch, pytest.raises(CollectorError, match=r"held at 1965 MHz and is at 830 MHz \(sw_power_cap\)"):
        watch.begin(GPU, UUID)

    assert [call[0] for call in calls_in(calls)] == ["nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"]


def test_a_clock_is_given_back_when_the_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, calls = begun("locked", 1500, tmp_path, monkeypatch)

    def fail() -> None:
        with watch:
            watch.begin(GPU, UUID)
            raise RuntimeError("a full disk, say")

    with pytest.raises(RuntimeError, match="full disk"):
        fail()

    assert len(calls_in(calls)) == 2


def test_a_device_that_cannot_be_read_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, calls = begun("mig", 1500, tmp_path, monkeypatch)

    with watch, pytest.raises(CollectorError, match="MIG slice"):
        watch.begin(GPU, MIG_UUID)

    assert calls_in(calls) == []


def test_every_block_has_what_was_seen_of_the_device_meanwhile() -> None:
    suite = suite_at(Path(__file__).parents[2] / "suites" / "bench_good.py", "example")
    plan = RunPlan(targets=(), device="cpu")
    with (
        Nursery() as nursery,
        Workers(nursery, suite.source, Mode.DEVICE, device="cpu", thread_count=1) as workers,
        watch_of("power_cap") as watch,
    ):
        watch.begin(GPU, UUID)  # a recording of a GPU, beside kernels on a CPU
        run = SuiteRun(suite.source, plan, watch=watch)
        run.select(workers.start())
        run.describe_machine(workers)
        run.check(workers, lambda _: None)
        for subject in run.to_time:
            run.take_block(workers, subject)
    record = run.record(suite.commit, suite.project)
    states = [block.device_state for measured in record.measurements for block in measured.blocks]

    assert states
    assert {(state is not None and state.clock_event_reasons) for state in states} == {("sw_power_cap",)}
    assert all(state is not None and state.reading_count > 0 and not state.degraded_by for state in states)
    assert record.telemetry is not None
    assert record.telemetry.clock_event_reasons[0] == ("sw_power_cap",)


@pytest.mark.gpu
def test_a_run_on_a_gpu_joins_clocks_and_power_to_its_blocks() -> None:
    suite = suite_at(None, "example")

    with Nursery() as nursery:
        plan = RunPlan(kernels=("rms_norm",), targets=(), device="cuda", block_count=2)
        record = collect_run(suite, plan, nursery=nursery)
    states = [block.device_state for measured in record.measurements for block in measured.blocks]

    assert record.environment.is_persistence_on is not None
    assert record.telemetry is not None
    assert record.telemetry.status == "ok"
    assert all(state is not None and state.reading_count > 0 and state.sm_clock_mhz for state in states)
