"""Controls: what changes together with a library's row of the same run is the machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from roofwatch.ci.history.controls import is_control, settle_controls
from roofwatch.ci.history.finding import Status, TrendFinding
from roofwatch.model.history import Cause, ChangePoint, CommitRef, SeriesKey, Suspect
from roofwatch.model.metrics import Better, imported_key
from roofwatch.model.verdict import Verdict

SPEED = imported_key("speed", "ms", Better.LOWER)


def commit(number: int) -> CommitRef:
    return CommitRef(
        sha=f"{number:040x}",
        first_parent_count=number,
        committed_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number),
        author="",
        subject="",
    )


def finding(implementation: str, after: float, *, number: int = 5) -> TrendFinding:
    series = SeriesKey(
        project="p",
        case_id="softmax",
        implementation=implementation,
        metric=SPEED,
        runner_class="H100",
    )
    change = ChangePoint(
        series=series,
        commit=commit(number),
        previous_commit=commit(number - 1),
        verdict=Verdict.REGRESSED if after > 1 else Verdict.IMPROVED,
        before=1.0,
        after=after,
        evidence="",
    )
    unknown = (Suspect(Cause.UNKNOWN, 1.0, ""),)
    return TrendFinding.at_commit(change, Status.UNCONFIRMED, unknown)


@pytest.mark.parametrize("name", ["torch", "huggingface", "torch.compile", "cuBLAS", "eager"])
def test_a_library_is_a_control_by_its_name(name: str) -> None:
    assert is_control(finding(name, 1.2).change.series)
    assert not is_control(finding(f"{name} liger", 1.2).change.series)


def test_a_change_that_a_control_shares_is_the_runners() -> None:
    (settled,) = settle_controls([finding("liger", 1.3), finding("torch", 1.25)])

    assert settled.change.series.implementation == "liger"
    assert settled.suspects[0].cause is Cause.RUNNER
    assert "torch, measured in the same runs, changed by +25.0%" in settled.suspects[0].sentence


@pytest.mark.parametrize(
    "control",
    [finding("torch", 1.05), finding("torch", 0.7), finding("torch", 1.3, number=40)],
    ids=["smaller", "opposite", "elsewhere"],
)
def test_a_control_that_changed_otherwise_explains_nothing(control: TrendFinding) -> None:
    (settled,) = settle_controls([finding("liger", 1.3), control])

    assert settled.suspects[0].cause is Cause.UNKNOWN
