import os
import time
from operator import attrgetter
from pathlib import Path

import pytest

from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.device.device_state import BlockWindow
from roofwatch.collector.device.telemetry import Sampler, join_telemetry
from roofwatch.collector.runs.journal import ALONE, Journal, make_header
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import RunPlan, Steps
from roofwatch.collector.runs.suite_run import SuiteRun
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.configuration.arguments import suite_at
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Telemetry
from roofwatch.model.record import RunRecord
from roofwatch.model.timing_method import SamplingPlan
from roofwatch.model.worker_protocol import WorkerSettings
from tests.builders import make_environment
from tests.collector.conftest import suite_of
from tests.collector.nvml import MIG_UUID, OTHER_UUID, UUID, calls_in, replay_everywhere, replayed
from tests.collector.replayed_nvml import ReplayedNvml

pytestmark = pytest.mark.usefixtures("forked_servers")

PLAN = RunPlan(
    targets=(), device="cpu", sampling=SamplingPlan(warmup_ms=1, budget_ms=2, max_samples=20)
)
GPU = make_environment(device_kind="cuda", device_name="Example GPU")


def no_wait(_: float) -> None:
    pass


def session_of(recording: str) -> DeviceSession:
    return DeviceSession(nvml=replayed(recording), wait=no_wait)


def telemetry_of(session: DeviceSession) -> Telemetry:
    assert session.telemetry is not None
    return session.telemetry


def begun(
    recording: str, lock_mhz: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[DeviceSession, Path]:
    calls = replay_everywhere(recording, tmp_path, monkeypatch)
    return DeviceSession(lock_mhz, wait=no_wait), calls


def whole_run() -> BlockWindow:
    return BlockWindow(0, time.monotonic_ns())


def test_readings_of_the_gpu_that_torch_uses_are_shared_by_two_runs() -> None:
    with session_of("two_gpus") as session:
        assert [session.begin(GPU, OTHER_UUID) for _ in range(2)] == [GPU, GPU]
        state = session.state(whole_run(), launch_count=10)
    telemetry = telemetry_of(session)

    assert state is not None
    assert state.sm_clock_mhz == 1755
    assert (telemetry.status, telemetry.message) == ("ok", None)
    assert len(telemetry.offset_ms) >= 2
    assert set(telemetry.sm_clock_mhz) == {1755}


@pytest.mark.parametrize(
    ("recording", "uuid", "status", "words"),
    [
        ("no_driver", UUID, "unavailable", "install NVIDIA's driver"),
        ("not_permitted", UUID, "not_permitted", "Insufficient Permissions"),
        ("mig", MIG_UUID, "unsupported", "MIG slice"),
        ("normal", None, "unavailable", "neither the UUID nor the PCI address"),
    ],
)
def test_a_device_without_telemetry_is_measured_anyway(
    recording: str, uuid: str | None, status: str, words: str
) -> None:
    with session_of(recording) as session:
        environment = session.begin(GPU, uuid)
        state = session.state(whole_run(), launch_count=10)
    telemetry = telemetry_of(session)

    assert (environment, state) == (GPU, None)
    assert telemetry.status == status
    assert words in str(telemetry.message)
    assert telemetry.offset_ms == ()


def test_a_device_that_is_lost_does_not_end_the_run() -> None:
    with session_of("lost") as session:
        session.begin(GPU, UUID)
        for _ in range(5):
            session.state(whole_run(), launch_count=10)
    telemetry = telemetry_of(session)

    assert len(telemetry.offset_ms) == 3
    assert "GPU is lost" in str(telemetry.message)


def test_a_cpu_has_no_telemetry() -> None:
    with session_of("normal") as session:
        session.begin(make_environment(), None)
        assert session.state(whole_run(), launch_count=10) is None
    assert session.telemetry is None


def test_a_cpu_has_no_clock_to_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locking, calls = begun("locked", 1500, tmp_path, monkeypatch)
    with locking, pytest.raises(CollectorError, match="a CPU has no clock"):
        locking.begin(make_environment(), None)
    assert calls_in(calls) == []


def test_a_locked_clock_is_recorded_then_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, calls = begun("locked", 1500, tmp_path, monkeypatch)
    with session:
        environments = [session.begin(GPU, UUID) for _ in range(2)]
        during = len(calls_in(calls))
        state = session.state(whole_run(), launch_count=10)

    assert {(found.clock_mode, found.locked_sm_clock_mhz) for found in environments} == {
        ("locked", 1500)
    }
    assert "clock locked at 1500 MHz" in environments[0].runner_class
    assert during == 1
    assert len(calls_in(calls)) == 2
    assert state is not None


def test_a_lock_that_does_not_hold_is_reset_when_it_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, calls = begun("lock_not_held", 1965, tmp_path, monkeypatch)

    with (
        session,
        pytest.raises(CollectorError, match=r"locked at 1965 MHz but is 830 MHz \(sw_power_cap\)"),
    ):
        session.begin(GPU, UUID)

    assert [call[0] for call in calls_in(calls)] == [
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
    ]


def measured(
    suite: SuiteAt,
    session: DeviceSession,
    subject_count: int | None = None,
    journal: Journal | None = None,
) -> RunRecord:
    """A run of kernels on a CPU, beside a recording of a GPU; only so many subjects are timed."""
    with (
        session,
        ForkServer() as fork_server,
        WorkerPool(
            fork_server, WorkerSettings(source=suite.source, device="cpu", thread_count=1)
        ) as workers,
    ):
        session.begin(GPU, UUID)
        run = SuiteRun(suite, PLAN, workers, session, Steps(lambda _: None), journal)
        run.load()
        run.describe_machine()
        run.check(workers, run.to_check, worker_count=1)
        for subject in run.to_time[:subject_count]:
            if run.lacks_block(subject, 0):
                run.take_block(subject)
    return run.record()


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.slow
def test_a_resumed_run_keeps_the_telemetry_of_each_process_with_a_state_of_every_block(
    tmp_path: Path, is_torn: bool
) -> None:
    suite = suite_of("bench_good.py")
    path, header = tmp_path / "record.json.journal", make_header({ALONE: suite}, PLAN)
    with Journal(path, header) as journal:
        before = measured(suite, session_of("normal"), 1, journal)
    if is_torn:  # killed while it wrote the block
        path.write_bytes(path.read_bytes()[:-20])

    with Journal(path, header, is_resumed=True) as journal:
        after = measured(
            suite, DeviceSession(earlier=journal.seen, nvml=replayed("power_cap")), None, journal
        )
        journalled = join_telemetry(journal.seen)

    states = [
        block.device_state for measurement in after.measurements for block in measurement.blocks
    ]
    own_states = states if is_torn else states[1:]  # the first process took the first block
    # on a busy machine, the sampling thread may miss a short block
    read_states = [state for state in own_states if state and state.reading_count > 0]
    assert {state.clock_event_reasons for state in read_states} == {("sw_power_cap",)}
    assert all(state and not state.degraded_by for state in states)
    # what was not read is not claimed
    assert all(state and (state.reading_count or state.sm_clock_mhz is None) for state in states)
    assert before.telemetry is not None
    assert after.telemetry is not None
    assert after.telemetry.clock_event_reasons[-1] == ("sw_power_cap",)
    readings, own_count = after.telemetry, after.telemetry.sm_clock_mhz.index(None)
    assert readings.sm_clock_mhz[own_count + 1] == 1410, "of the time in between nothing is known"
    assert 0 < own_count <= len(before.telemetry.offset_ms)
    assert readings.started_at == before.telemetry.started_at
    assert readings.offset_ms[:own_count] == before.telemetry.offset_ms[:own_count]
    assert list(readings.offset_ms) == sorted(readings.offset_ms)
    assert 1980 not in readings.sm_clock_mhz[own_count:]
    assert after.ceilings == before.ceilings
    # what was seen after the last block alone is not in the journal
    assert journalled.offset_ms == readings.offset_ms[: len(journalled.offset_ms)]
    assert len(journalled.offset_ms) > own_count


@pytest.fixture
def without_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings are taken only on request, so each test controls which one comes next."""
    monkeypatch.setattr(Sampler, "start", lambda _: None)


@pytest.mark.usefixtures("without_thread")
def test_a_hot_device_cools_by_ten_degrees_before_it_is_measured() -> None:
    messages: list[str] = []
    with session_of("cools_down") as session:
        session.begin(GPU, UUID)
        for _ in range(3):
            session.cool_down(messages.append)
    telemetry = telemetry_of(session)

    assert messages == ["heat throttles the GPU at 88 °C: waiting up to 180 s for it to cool down"]
    assert list(telemetry.temperature_c) == [88, 86, 84, 82, 80, 78]
    assert telemetry.message == "waited 5 s for the GPU to cool down"


@pytest.mark.usefixtures("without_thread")
def test_a_block_is_degraded_after_one_vain_wait_for_a_hot_device() -> None:
    messages: list[str] = []
    nvml = replayed("thermal")
    for _ in range(4):  # cool enough at first
        nvml.nvmlDeviceGetCurrentClocksEventReasons(UUID)
    with DeviceSession(nvml=nvml, wait=no_wait) as session:
        session.begin(GPU, UUID)
        for _ in range(3):
            session.cool_down(messages.append)
        state = session.state(whole_run(), launch_count=10)

    assert len(messages) == 1
    assert state is not None
    assert "hw_thermal_slowdown" in state.degraded_by
    assert telemetry_of(session).message == "waited 180 s for the GPU to cool down, without success"


def with_a_foreign_process() -> ReplayedNvml:
    nvml = replayed("foreign_process")
    while list(map(attrgetter("pid"), nvml.nvmlDeviceGetComputeRunningProcesses(UUID))) == [
        os.getpid()
    ]:
        pass
    return nvml


def test_an_unfit_device_is_refused_with_remedies() -> None:
    asleep = GPU.model_copy(update={"is_persistence_on": False})
    refusing = DeviceSession(nvml=with_a_foreign_process(), unfit="refuse")
    with refusing, pytest.raises(CollectorError) as refusal:
        refusing.begin(asleep, UUID)

    assert str(refusal.value) == (
        "results on this GPU are not reliable: persistence mode is off (switch it on as root: "
        "`nvidia-smi -pm 1`); "
        "1 other process uses it (list them: `nvidia-smi`); fix this, or measure anyway with "
        "--device-check warn"
    )


def test_a_warning_about_an_unfit_device_is_in_the_record() -> None:
    with DeviceSession(nvml=with_a_foreign_process(), unfit="warn") as session:
        session.begin(GPU, UUID)

    assert (
        session.warning
        == "results on this GPU are not reliable: 1 other process uses it (list them: `nvidia-smi`)"
    )
    assert telemetry_of(session).message == session.warning


@pytest.mark.parametrize("recording", ["normal", "other_pid_namespace", "no_driver"])
def test_a_device_not_known_to_be_unfit_is_not_refused(recording: str) -> None:
    with DeviceSession(nvml=replayed(recording), unfit="refuse") as session:
        session.begin(GPU, UUID)
    with DeviceSession(nvml=with_a_foreign_process()) as trusting:
        trusting.begin(GPU, UUID)

    assert session.warning is None
    assert trusting.warning is None


@pytest.mark.gpu
def test_a_run_on_a_gpu_has_a_device_state_in_every_block() -> None:
    suite = suite_at(None, "example")

    with ForkServer() as fork_server:
        plan = RunPlan(kernels=("rms_norm",), targets=(), device="cuda", block_count=2)
        (record,) = measure([suite], plan, fork_server=fork_server)
    states = [block.device_state for measured in record.measurements for block in measured.blocks]

    assert record.environment.is_persistence_on is not None
    assert record.telemetry is not None
    assert record.telemetry.status == "ok"
    assert all(
        state is not None and state.reading_count > 0 and state.sm_clock_mhz for state in states
    )
