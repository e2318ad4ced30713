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


def test_records_of_other_machines_and_branches_are_left_out() -> None:
    other_machine = nightly(1, GPU.model_copy(update={"device_name": "GPU B"}))

    history = read(nightly(0), other_machine, nightly(20))

    assert history.state.measured == {make_commit_ref(0).sha}


def test_a_new_driver_is_bridged_at_the_last_commit_of_the_old_one_and_then_known() -> None:
    before = [nightly(number) for number in range(10)]
    after = nightly(10, UPGRADED, factor=1.25)
    late = nightly(9, UPGRADED, factor=1.25)
    late = late.model_copy(
        update={"started_at": after.started_at, "finished_at": after.finished_at}
    )

    planned = read(*before, after, environment=UPGRADED, count=11)
    bridged = read(*before, after, late, environment=UPGRADED, count=11)
    jobs = make_agenda(planned.state, now=NOON)

    (bridge,) = [job for job in jobs if job.kind is JobKind.BRIDGE]
    assert bridge.head == make_commit_ref(9)
    assert len(bridge.subjects) == len(KERNELS)
    assert bridge.reason.startswith("driver 580.65 to 590.12")
    assert bridged.state.bridges == ()
    assert planned.state.suspects == bridged.state.suspects == ()
    (event,) = bridged.regressions
    assert (event.kernel, event.cause, event.is_alert) == ("*", Cause.DRIVER, True)
