"""What records say about a branch, for the agenda."""

from __future__ import annotations

from roofwatch.ci.agenda import make_agenda
from roofwatch.model.agenda import JobKind
from roofwatch.model.history import Cause
from roofwatch.model.machine import Environment
from roofwatch.model.record import RunRecord
from roofwatch.watch.state import KnownHistory, read_history
from tests.builders import (
    NOON,
    make_blocks,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
)

KERNELS = ("rms_norm", "softmax", "matmul", "rotary")
GPU = make_environment(device_kind="cuda", device_name="GPU A", driver_version="580.65")
UPGRADED = GPU.model_copy(update={"driver_version": "590.12"})


def nightly(number: int, environment: Environment = GPU, factor: float = 1.0) -> RunRecord:
    noise = 1 + 0.002 * (number % 3)
    measurements = [
        make_measurement(
            f"{kernel}/n=64/float32/fwd", blocks=make_blocks([10_000.0 * noise * factor] * 3)
        )
        for kernel in KERNELS
    ]
    return make_record(number, measurements=measurements, environment=environment)


def read(*records: RunRecord, environment: Environment = GPU, count: int = 12) -> KnownHistory:
    commits = [make_commit_ref(number) for number in range(count)]
    return read_history(records, commits, environment)


def test_only_records_of_the_machine_on_the_branch_count() -> None:
    other_machine = nightly(1, GPU.model_copy(update={"device_name": "GPU B"}))

    history = read(nightly(0), other_machine, nightly(20))

    assert history.state.measured == {make_commit_ref(0).sha}


BEFORE_UPGRADE = [nightly(number) for number in range(10)]
AFTER_UPGRADE = nightly(10, UPGRADED, factor=1.25)


def test_a_new_driver_is_bridged_at_the_last_commit_of_the_old_one() -> None:
    planned = read(*BEFORE_UPGRADE, AFTER_UPGRADE, environment=UPGRADED, count=11)
    jobs = make_agenda(planned.state, now=NOON)

    (bridge,) = [job for job in jobs if job.kind is JobKind.BRIDGE]
    assert bridge.head == make_commit_ref(9)
    assert len(bridge.subjects) == len(KERNELS)
    assert bridge.reason.startswith("driver 580.65 to 590.12")
    assert planned.state.suspects == ()


def test_a_bridged_driver_is_known() -> None:
    late = nightly(9, UPGRADED, factor=1.25)
    late = late.model_copy(
        update={
            "started_at": AFTER_UPGRADE.started_at,
            "finished_at": AFTER_UPGRADE.finished_at,
        }
    )

    bridged = read(*BEFORE_UPGRADE, AFTER_UPGRADE, late, environment=UPGRADED, count=11)

    assert bridged.state.bridges == ()
    assert bridged.state.suspects == ()
    (event,) = bridged.regressions
    assert (event.kernel, event.cause, event.is_alert) == ("*", Cause.DRIVER, True)


def from_sources(digest: str, record: RunRecord) -> RunRecord:
    return record.model_copy(update={"source_digests": {"rms_norm": digest}})


def pair(
    base: int, head: int, factor: float = 1.0, sources: tuple[str, str] = ("first", "first")
) -> tuple[RunRecord, RunRecord]:
    records = make_pair_of_records(
        base, head, head_median_ns=10_000.0 * factor, block_count=8, environment=GPU
    )
    return from_sources(sources[0], records[0]), from_sources(sources[1], records[1])


def kinds_of(*records: RunRecord) -> list[JobKind]:
    return [job.kind for job in make_agenda(read(*records).state, now=NOON)]


def test_an_open_regression_whose_kernel_changed_again_is_measured_against_its_commit() -> None:
    confirmed = [
        *pair(3, 4, 1.3, ("first", "slow")),
        *pair(3, 4, 1.3, ("first", "slow")),
        *(make_record(number, environment=GPU) for number in (0, 1, 2, 5)),
    ]
    run = make_record(11, measurements=[make_measurement()], environment=GPU)
    repaired, same = from_sources("repaired", run), from_sources("slow", run)
    decided = pair(5, 11, sources=("slow", "repaired"))

    jobs = make_agenda(read(*confirmed, repaired).state, now=NOON)

    (recover,) = [job for job in jobs if job.kind is JobKind.RECOVER]
    assert (recover.base, recover.head) == (make_commit_ref(4), make_commit_ref(11))
    assert recover.reason == f"rms_norm changed again at {make_commit_ref(11).short_sha}"
    assert JobKind.RECOVER not in kinds_of(*confirmed, same)
    assert JobKind.RECOVER not in kinds_of(*confirmed, repaired, *decided)


def test_a_case_is_calibrated_by_a_pair_of_one_commit() -> None:
    runs = [make_record(number, environment=GPU) for number in range(12)]

    (calibrate,) = make_agenda(read(*runs).state, now=NOON)

    assert calibrate.kind is JobKind.CALIBRATE
    assert calibrate.base == calibrate.head == make_commit_ref(11)
    assert len(calibrate.subjects) == 1
    assert kinds_of(*runs, *pair(11, 11)) == []


def test_a_case_that_the_newest_commits_do_not_have_needs_no_calibration() -> None:
    gone = make_record(0, measurements=[make_measurement("gone/n=1/float32/fwd")], environment=GPU)
    runs = [make_record(number, environment=GPU) for number in range(1, 40)]

    state = read(gone, *runs, count=40).state

    assert {case_id.partition("/")[0] for case_id, _ in state.timed_at} == {"rms_norm"}
