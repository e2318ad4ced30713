"""Controls: what changes together with a library's row of the same run is the machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.ci.history.controls import (
    ControlLine,
    Controls,
    controls_among,
    library_events,
    settle_controls,
)
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.history import Cause, ChangePoint, CommitRef, SeriesKey, Suspect
from roofwatch.model.library import is_library, reference_among
from roofwatch.model.measurement import with_references
from roofwatch.model.metrics import RATIO_TO, Better, imported_key
from roofwatch.model.verdict import Status, Verdict
from tests.builders import PROJECT, make_measurement, make_record

SPEED = imported_key("speed", "ms", Better.LOWER)
RATIO = imported_key(f"speed{RATIO_TO}torch", "ratio", Better.LOWER)
UNKNOWN = (Suspect(Cause.CODE, 0.5, "the commit may have done it"), Suspect(Cause.UNKNOWN, 0.5, ""))


def commit(number: int) -> CommitRef:
    return CommitRef(
        sha=f"{number:040x}",
        first_parent_count=number,
        committed_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number),
        author="",
        subject="",
    )


def series_of(implementation: str, metric: str = SPEED) -> SeriesKey:
    return SeriesKey(
        project="p",
        case_id="softmax",
        implementation=implementation,
        metric=metric,
        runner_class="H100",
    )


def finding(
    implementation: str, after: float, *, number: int = 5, metric: str = SPEED
) -> TrendFinding:
    change = ChangePoint(
        series=series_of(implementation, metric),
        commit=commit(number),
        previous_commit=commit(number - 1),
        verdict=Verdict.REGRESSED if after > 1 else Verdict.IMPROVED,
        before=1.0,
        after=after,
        evidence="",
    )
    found = TrendFinding.at_commit(change, Status.UNCONFIRMED, UNKNOWN)
    return replace(found, p_value=0.001)


def controls(after: float = 1.0, *, number: int = 5, name: str = "torch") -> Controls:
    """A library's row that changes to `after` at a commit."""
    commits = [commit(place) for place in range(50)]
    values = [1.0 if place < number else after for place in range(50)]
    line = ControlLine(series_of(name), commits, values)
    return Controls({("softmax", name)}, {("p", "softmax", "H100"): [line]})


@pytest.mark.parametrize(
    "name",
    ["torch", "huggingface", "torch.compile", "cuBLAS", "sdpa_flash", "scaled_grouped_mm"],
)
def test_a_library_is_known_by_its_name(name: str) -> None:
    assert is_library(name)
    assert not is_library(f"{name} liger")


def test_the_reference_of_a_case_is_a_vendors_library_then_a_framework() -> None:
    assert reference_among(["torch_compile", "torch", "cublas"]) == "cublas"
    assert reference_among(["torch_compile", "torch"]) == "torch"
    assert reference_among([]) is None


def test_a_case_that_only_libraries_compute_has_no_control() -> None:
    assert controls_among([("a", "torch"), ("a", "triton"), ("b", "torch")]) == {("a", "torch")}


def test_a_change_that_a_control_shares_is_the_runners() -> None:
    (settled,), _ = settle_controls([finding("liger", 1.3)], controls(1.25))

    assert settled.suspects[0].cause is Cause.RUNNER
    assert settled.p_value is None
    assert "torch, measured in the same runs, changed by +25.0%" in settled.suspects[0].sentence


@pytest.mark.parametrize(
    "measured",
    [controls(1.05), controls(0.7), controls(1.3, number=40)],
    ids=["smaller", "opposite", "elsewhere"],
)
def test_a_control_that_changed_otherwise_explains_nothing(measured: Controls) -> None:
    (settled,), _ = settle_controls([finding("liger", 1.3)], measured)

    assert settled.suspects[0].cause is not Cause.RUNNER
    assert settled.p_value == 0.001


def test_a_quiet_control_is_named_beside_the_code() -> None:
    (settled,), _ = settle_controls([finding("liger", 1.3)], controls(1.01))

    (code,) = [one for one in settled.suspects if one.cause is Cause.CODE]
    assert code.sentence.endswith("torch, measured in the same runs, changed by +1.0%")


def test_a_slowdown_of_only_a_librarys_row_is_an_event_without_alert() -> None:
    settled, of_libraries = settle_controls([finding("torch", 1.4)], controls(1.4))
    (event,) = library_events(of_libraries, settled)

    assert settled == []
    assert event.kernel == "torch (library)"
    assert event.cause is Cause.TOOLCHAIN
    assert not event.is_alert
    assert "1 row of libraries got slower (torch), +40.0% in softmax" in event.summary


def test_a_slowdown_that_the_project_shares_is_no_event_of_the_library() -> None:
    settled, of_libraries = settle_controls(
        [finding("torch", 1.4), finding("liger", 1.4)], controls(1.4)
    )

    assert library_events(of_libraries, settled) == []


def test_a_ratio_that_changed_with_its_time_is_evidence_without_a_p_value() -> None:
    time, ratio = finding("liger", 1.3), finding("liger", 1.3, metric=RATIO)
    settled, _ = settle_controls([time, ratio], controls())

    assert [one.p_value for one in settled] == [0.001, None]


def test_a_ratio_that_changed_with_the_library_says_nothing_about_the_project() -> None:
    ratio = finding("liger", 0.7, metric=RATIO)
    settled, _ = settle_controls([finding("torch", 1.4), ratio], controls(1.4))

    assert settled == []


def test_a_ratio_that_changed_alone_is_a_finding() -> None:
    settled, _ = settle_controls([finding("liger", 1.06, metric=RATIO)], controls())

    assert [one.p_value for one in settled] == [0.001]


def test_a_ratio_whose_library_changed_without_a_finding_is_left_out() -> None:
    settled, _ = settle_controls([finding("liger", 0.9, metric=RATIO)], controls(1.1))

    assert settled == []


def test_memory_that_changes_with_a_librarys_is_the_benchmarks() -> None:
    memory = imported_key("memory", "MB", Better.LOWER)
    line = ControlLine(series_of("torch", memory), [commit(4), commit(5)], [1.0, 1.5])
    measured = Controls({("softmax", "torch")}, {("p", "softmax", "H100"): [line]})

    (settled,), _ = settle_controls([finding("liger", 1.5, metric=memory)], measured)

    assert settled.suspects[0].cause is Cause.HARNESS


def test_a_measured_time_that_moves_with_the_librarys_row_is_the_runners(store: Engine) -> None:
    for number in range(30):
        factor = 1.3 if number >= 15 else 1.0
        rows = [
            make_measurement(implementation=name, median_ns=(10_000 + 10 * (number % 3)) * factor)
            for name in ("triton", "torch")
        ]
        ingest_record(store, make_record(number, measurements=with_references(rows)))

    (regression,) = analyse_project(store, PROJECT)

    triton = [one for one in regression.change_points if one.series.implementation == "triton"]
    assert [one.series.metric for one in triton] == ["median_ns"]
    sentence = "torch, measured in the same runs, changed by +30.0% at the same place"
    assert any(one.cause is Cause.RUNNER for one in regression.suspects)
    assert any(sentence in one.sentence for one in regression.suspects)
