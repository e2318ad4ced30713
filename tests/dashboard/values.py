"""Results of queries, for views and charts without a database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import plotly.graph_objects as go

from roofwatch.model.history import Series, SeriesKey, SeriesPoint
from roofwatch.model.machine import Outcome
from roofwatch.model.stored_results import FleetRun, MeasuredCase, RunDetail, RunSummary
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_commit_ref,
    make_environment,
    make_series_key,
)
from tests.dashboard.gpu_history import gpu, gpu_ceilings

HOSTILE = (
    "<img src=x "
    "onerror=globalThis.wasRun=1><script>globalThis.wasRun=1</script>[a](javascript:globalThis.wasRun=1) "
    ":red[x] $x$ `y` **z** \u202e"
)


def trace(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def names(figure: go.Figure) -> list[str]:
    return [trace.name for trace in figure.data]


def as_html(figure: go.Figure) -> str:
    return str(figure.to_json()).replace("\\u003c", "<")


def make_point(number: int, value: float | None = 10_000.0, **fields: Any) -> SeriesPoint:
    """Make a point of the numbered commit; without a value, its run crashed."""
    defaults: dict[str, Any] = {
        "commit": make_commit_ref(number),
        "run_id": f"run {number}",
        "measured_at": NOON + timedelta(hours=number),
        "outcome": Outcome.CRASHED if value is None else Outcome.OK,
        "value": value,
        "low": None if value is None else value * 0.9,
        "high": None if value is None else value * 1.2,
    }
    return SeriesPoint(**defaults | fields)


def make_series(values: Sequence[float | None], *, key: SeriesKey | None = None) -> Series:
    """Make one point per commit, in order."""
    points = tuple(make_point(number, value) for number, value in enumerate(values))
    return Series(key or make_series_key(), points)


def make_measured_case(case_id: str = CASE_ID, **fields: Any) -> MeasuredCase:
    kernel, _, dtype, direction = case_id.split("/")
    defaults: dict[str, Any] = {
        "case_id": case_id,
        "kernel": kernel,
        "family": "normalisation",
        "shape": {"n_rows": 64, "n_cols": 128},
        "dtype": dtype,
        "direction": direction,
        "flop_count": 40_000.0,
        "memory_bytes": 20_000.0,
        "implementation": "torch",
        "outcome": Outcome.OK,
        "message": None,
        "median_ns": 10_000.0,
        "low_ns": 9_000.0,
        "high_ns": 11_000.0,
        "sample_count": 30,
        "bound": "memory",
        "utilisation": 0.25,
        "rmse_ratio": 1e-7,
        "accuracy_outcome": Outcome.OK,
        "timer": "cupti",
        "cache": "hot",
    }
    return MeasuredCase(**defaults | fields)


def make_run_detail(
    number: int,
    cases: Sequence[MeasuredCase] = (),
) -> RunDetail:
    """Make the run of a commit."""
    started_at = NOON + timedelta(hours=number)
    summary = RunSummary(
        run_id=f"run {number}",
        project=PROJECT,
        commit=make_commit_ref(number),
        runner_class=make_environment().runner_class,
        device_name="Example CPU",
        started_at=started_at,
        finished_at=started_at + timedelta(minutes=5),
        harness_version="1",
        is_dirty=False,
        outcome_counts={"ok": len(cases)},
    )
    return RunDetail(summary, (), tuple(cases), ())


def make_fleet_run(number: int = 0, **fields: Any) -> FleetRun:
    """Make a run of half an hour."""
    started_at = NOON + timedelta(hours=number)
    defaults: dict[str, Any] = {
        "run_id": f"run {number}",
        "commit": make_commit_ref(number),
        "environment": gpu(),
        "started_at": started_at,
        "finished_at": started_at + timedelta(minutes=30),
        "harness_version": "1",
        "is_dirty": False,
        "outcome_counts": {},
        "spent_ns": {},
        "ceilings": gpu_ceilings(),
    }
    given = defaults | fields
    machine = given["environment"]
    return FleetRun(
        project=PROJECT, runner_class=machine.runner_class, device_name=machine.device_name, **given
    )
