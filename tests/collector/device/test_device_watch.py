import os
import time
from operator import attrgetter
from pathlib import Path

import pytest

from roofwatch.arguments import suite_at
from roofwatch.collector.device.clock_lock import Clock
from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.device.nvml import NvmlBinding
from roofwatch.collector.device.readings import Window
from roofwatch.collector.device.telemetry import Sampler, joined
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.outbox.journal import ALONE, Journal, make_header
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import WorkerSettings
from roofwatch.collector.workers.worker_pool import WorkerPool
from tests.builders import make_environment
from tests.collector.nvml import MIG_UUID, OTHER_UUID, UUID, calls_in, replay_everywhere, replayed

pytestmark = pytest.mark.usefixtures("forked_servers")

PLAN = RunPlan(targets=(), device="cpu", sampling=SamplingPlan(warmup_ms=1, budget_ms=2, max_samples=20))
GPU = make_environment(device_kind="cuda", device_name="Example GPU")


def without_waiting(_: float) -> None:
    """Readings come by themselves, one after each wait."""


@pytest.fixture
def suite() -> SuiteAt:
    return suite_at(Path(__file__).parents[2] / "suites" / "bench_good.py", "example")


def watch_of(recording: str) -> DeviceSession:
    return DeviceSession(nvml=replayed(recording), wait=without_waiting)


def begun(recording: str, lock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DeviceSession, Path]:
    calls = replay_everywhere(recording, tmp_path, monkeypatch)
    return DeviceSession(lock, wait=without_waiting), calls


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

    with DeviceSession(wait=without_waiting) as watch:
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


def measured(
    suite: SuiteAt, watch: DeviceSession, subject_count: int | None = None, journal: Journal | None = None
) -> RunRecord:
    """A run of kernels on a CPU, beside a recording of a GPU; only so many subjects are timed."""
    with (
        watch,
        ForkServer() as fork_server,
        WorkerPool(fork_server, WorkerSettings(source=suite.source, device="cpu", thread_count=1)) as workers,
    ):
        watch.begin(GPU, UUID)
        run = SuiteRun(suite.source, PLAN, journal, watch)
        run.select(workers.start())
        run.describe_machine(workers)
        run.check(workers, lambda _: None)
        for subject in run.to_time[:subject_count]:
            if not run.block_count(subject):
                run.take_block(workers, subject)
    return run.record(suite.commit, suite.project)


@pytest.mark.slow
def test_every_block_has_what_was_seen_of_the_device_meanwhile(suite: SuiteAt) -> None:
    record = measured(suite, watch_of("power_cap"))
    states = [block.device_state for measurement in record.measurements for block in measurement.blocks]

    assert states
    assert {(state is not None and state.clock_event_reasons) for state in states} == {("sw_power_cap",)}
    assert all(state is not None and state.reading_count > 0 and not state.degraded_by for state in states)
    assert record.telemetry is not None
    assert record.telemetry.clock_event_reasons[0] == ("sw_power_cap",)


@pytest.mark.slow
def test_every_ceiling_has_what_was_seen_of_the_device_meanwhile(suite: SuiteAt) -> None:
    record = measured(suite, watch_of("normal"), 0)

    assert record.telemetry is not None
    assert len(record.telemetry.at_ceilings) == len(record.ceilings)
    assert {state.sm_clock_mhz for state in record.telemetry.at_ceilings} == {1980}
    assert {state.energy_per_launch_j for state in record.telemetry.at_ceilings} == {None}


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.slow
def test_a_run_that_was_cut_short_keeps_what_each_of_its_processes_saw(
    suite: SuiteAt, tmp_path: Path, is_torn: bool
) -> None:
    path, header = tmp_path / "record.json.journal", make_header({ALONE: suite}, PLAN)
    with Journal(path, header) as journal:
        before = measured(suite, watch_of("normal"), 1, journal)
    if is_torn:  # killed while it wrote the block
        path.write_bytes(path.read_bytes()[:-20])

    with Journal(path, header, is_resumed=True) as journal:
        after = measured(suite, DeviceSession(earlier=journal.seen, nvml=replayed("power_cap")), None, journal)
        journalled = joined(journal.seen)

    assert before.telemetry is not None
    assert after.telemetry is not None
    told, own_count = after.telemetry, after.telemetry.sm_clock_mhz.index(None)
    assert told.sm_clock_mhz[own_count + 1] == 1410, "of the time in between nothing is known"
    assert 0 < own_count <= len(before.telemetry.offset_ms)
    assert told.started_at == before.telemetry.started_at
    assert told.offset_ms[:own_count] == before.telemetry.offset_ms[:own_count]
    assert list(told.offset_ms) == sorted(told.offset_ms)
    assert 1980 not in told.sm_clock_mhz[own_count:]
    assert told.at_ceilings == before.telemetry.at_ceilings
    # what was seen after the last block alone is not in the journal
    assert journalled.offset_ms == told.offset_ms[: len(journalled.offset_ms)]
    assert len(journalled.offset_ms) > own_count


@pytest.fixture
def reads_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread reads beside, so that each reading of a recording is there when its time has come."""
    monkeypatch.setattr(Sampler, "start", lambda _: None)


@pytest.mark.usefixtures("reads_when_asked")
def test_a_device_that_heat_holds_back_is_waited_for_until_it_is_cooler_by_ten_degrees() -> None:
    told: list[str] = []
    with watch_of("cools_down") as watch:
        watch.begin(GPU, UUID)
        for _ in range(3):
            watch.cool_down(told.append)
    telemetry = watch.telemetry

    assert told == ["the device is held back by heat at 88 °C: waiting for it to cool, 180 s at the most"]
    assert telemetry is not None
    assert list(telemetry.temperature_c) == [88, 86, 84, 82, 80, 78]
    assert telemetry.message == "waited once for it to cool, 5 s in all"


@pytest.mark.usefixtures("reads_when_asked")
def test_a_device_that_stays_hot_is_waited_for_once_and_measured_as_degraded() -> None:
    told: list[str] = []
    nvml = replayed("thermal")
    for _ in range(4):  # cool enough at first
        nvml.nvmlDeviceGetCurrentClocksEventReasons(UUID)
    with DeviceSession(nvml=nvml, wait=without_waiting) as watch:
        watch.begin(GPU, UUID)
        for _ in range(3):
            watch.cool_down(told.append)
        state = watch.state(whole_run(), launch_count=10)

    assert len(told) == 1
    assert state is not None
    assert "hw_thermal_slowdown" in state.degraded_by
    assert watch.telemetry is not None
    assert watch.telemetry.message == "waited once for it to cool, 180 s in all, in vain"


@pytest.mark.usefixtures("reads_when_asked")
def test_nobody_waits_for_a_device_that_is_at_its_power_limit() -> None:
    told: list[str] = []
    with watch_of("power_cap") as watch:
        watch.cool_down(told.append)
        watch.begin(GPU, UUID)
        watch.cool_down(told.append)

    assert told == []


def with_a_neighbour() -> NvmlBinding:
    nvml = replayed("foreign_process")
    while list(map(attrgetter("pid"), nvml.nvmlDeviceGetComputeRunningProcesses(UUID))) == [os.getpid()]:
        pass
    return nvml


def test_nothing_is_confirmed_beside_others_or_on_a_device_that_is_not_kept_awake() -> None:
    asleep = GPU.model_copy(update={"is_persistence_on": False})
    refusing = DeviceSession(nvml=with_a_neighbour(), unfit="refuse")
    with refusing, pytest.raises(CollectorError) as refusal:
        refusing.begin(asleep, UUID)

    assert str(refusal.value) == (
        "nothing should be confirmed on this device: its persistence mode is off (`nvidia-smi -pm 1`, as root, "
        "switches it on); 1 other process uses it (`nvidia-smi` lists them); put that right, or measure all the same "
        "with --unfit-device warn"
    )


def test_whoever_asks_is_only_warned_and_the_record_says_so() -> None:
    with DeviceSession(nvml=with_a_neighbour(), unfit="warn") as watch:
        watch.begin(GPU, UUID)

    assert watch.warning == (
        "nothing should be confirmed on this device: 1 other process uses it (`nvidia-smi` lists them)"
    )
    assert watch.telemetry is not None
    assert watch.telemetry.message == watch.warning


@pytest.mark.parametrize("recording", ["normal", "other_pid_namespace", "no_driver"])
def test_a_device_that_is_fit_or_of_which_that_is_not_known_is_not_refused(recording: str) -> None:
    with DeviceSession(nvml=replayed(recording), unfit="refuse") as watch:
        watch.begin(GPU, UUID)
    with DeviceSession(nvml=with_a_neighbour()) as trusting:
        trusting.begin(GPU, UUID)

    assert watch.warning is None
    assert trusting.warning is None


@pytest.mark.gpu
def test_a_run_on_a_gpu_joins_clocks_and_power_to_its_blocks() -> None:
    suite = suite_at(None, "example")

    with ForkServer() as fork_server:
        plan = RunPlan(kernels=("rms_norm",), targets=(), device="cuda", block_count=2)
        record = collect_run(suite, plan, fork_server=fork_server)
    states = [block.device_state for measured in record.measurements for block in measured.blocks]

    assert record.environment.is_persistence_on is not None
    assert record.telemetry is not None
    assert record.telemetry.status == "ok"
    assert all(state is not None and state.reading_count > 0 and state.sm_clock_mhz for state in states)
