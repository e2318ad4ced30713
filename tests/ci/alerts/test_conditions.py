"""What rules report: regressions, levels and silent runners."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from roofwatch.ci.alerts.conditions import (
    MessageContext,
    level_conditions,
    regression_conditions,
    report_interval,
    silence_conditions,
)
from roofwatch.ci.alerts.rules import LevelRule, RegressionRule, SilenceRule
from roofwatch.db.alerts.values import AlertCondition
from roofwatch.db.auth.values import Triage, TriagedRegression, TriageState
from roofwatch.db.queries.results import MeasuredCase
from roofwatch.db.values import Cause, ChangePoint, RegressionState, Suspect, Verdict
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_change_point,
    make_commit_ref,
    make_regression,
    make_series_key,
)
from tests.dashboard.values import make_measured_case

HERE = MessageContext(PROJECT, NOON + timedelta(days=1), dashboard_url="https://dash.example")
ID = UUID(int=1)
SLOWER = RegressionRule(name="slower", kind="regression", channels=("chat",), min_relative_change=0.1)


def reported(rule: RegressionRule = SLOWER, context: MessageContext = HERE, **fields: Any) -> list[AlertCondition]:
    triage = Triage(ID, fields.pop("triage", TriageState.NEW), "A Person", "why")
    return regression_conditions(
        rule,
        [TriagedRegression(str(triage.regression_id), make_regression(1, **{"is_alert": True, **fields}), triage)],
        context,
    )


def change(metric: str, before: float, after: float | None) -> ChangePoint:
    return make_change_point(1, series=make_series_key(metric), before=before, after=after)


SMALL = change("median_ns", 10_000.0, 10_500.0)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"triage": TriageState.ACKNOWLEDGED},
        {"change_points": (make_change_point(1, after=None),)},  # it ceased to work
        {"change_points": (change("peak_allocated_bytes", 100.0, 120.0),)},
        {"change_points": (change("peak_allocated_bytes", 0.0, 4_096.0),)},
    ],
)
def test_a_sure_regression_is_reported(fields: dict[str, Any]) -> None:
    assert len(reported(**fields)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"is_alert": False},
        {"verdict": Verdict.IMPROVED},
        {"verdict": Verdict.INCONCLUSIVE},
        {"state": RegressionState.DISMISSED},
        {"recovered_at": make_commit_ref(4)},
        {"change_points": (SMALL,)},
        {"change_points": (change("peak_allocated_bytes", 100.0, 106.0),)},
        {"change_points": (SMALL, change("host_ns", 5_000.0, 9_000.0))},  # the host's time makes no time larger
        *({"triage": state} for state in (TriageState.EXPECTED, TriageState.FIXED, TriageState.INVALID)),
    ],
)
def test_uncertain_improved_dismissed_small_or_triaged_regressions_are_not_reported(fields: dict[str, Any]) -> None:
    assert reported(**fields) == []


def test_a_rule_reports_its_kernels_tags_and_runners_alone() -> None:
    tagged = MessageContext(PROJECT, HERE.now, tags={CASE_ID: frozenset({"decode", "70b"})})

    def reports(**fields: object) -> bool:
        return bool(reported(SLOWER.model_copy(update=fields), tagged))

    assert reports(kernels=("rms_*",), tags=("decode",))
    assert not reports(kernels=("flash_*",))
    assert not reports(tags=("decode", "8b"))
    assert not reports(runners=("*H200*",))


def test_a_message_has_commit_suspects_and_links() -> None:
    suspects = (Suspect(Cause.CODE, 0.75, "the machine code changed"),)
    (one,) = reported(suspects=suspects)

    facts = {fact.name: fact.text for fact in one.message.facts}
    base, head = make_commit_ref(0), make_commit_ref(1)
    assert facts["Range"] == f"{base.short_sha}..{head.short_sha}"
    assert facts["Since"] == f"{head.short_sha} Change number 1 (Test Author, 2026-03-01)"
    assert facts["Suspect: code (75%)"] == "the machine code changed"
    opened = "https://dash.example/regression?project=example%2Fproject&regression=00000000-0000-0000-0000-000000000001"
    assert one.message.links[0].url == opened
    assert one.message.links[1].url.startswith("https://dash.example/trends?project=example%2Fproject&kernel=rms_norm&")
    assert one.cause == str(ID)


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_a_nightly_runner_is_silent_after_several_nights_and_not_before() -> None:
    interval = report_interval(reversed([NOON + DAY * night for night in range(10)]))

    assert (interval.last_at, interval.usual_gap) == (NOON + DAY * 9, DAY)
    assert not interval.is_silent(NOON + DAY * 11)
    assert interval.is_silent(NOON + DAY * 12)


def nightly(count: int) -> list[datetime]:
    return [NOON + timedelta(days=day) for day in range(count)]


@pytest.mark.parametrize(
    ("fields", "silent_after_days"),
    [({"after_hours": 36}, 1.5), ({}, 3)],
)
def test_a_runner_is_silent_after_the_time_of_the_rule(fields: dict[str, float], silent_after_days: float) -> None:
    rule = SilenceRule(name="silent", kind="silence", channels=("chat",), **fields)
    last = nightly(10)[-1]

    def is_reported(days: float) -> bool:
        at = MessageContext(PROJECT, last + timedelta(days=days))
        return bool(silence_conditions(rule, {"runner": nightly(10)}, at))

    assert not is_reported(silent_after_days - 0.01)
    assert is_reported(silent_after_days)


def make_measured(value: float = 0.5, case_id: str = "rms_norm/n=1/float32/fwd", **fields: Any) -> MeasuredCase:
    """A case at a utilisation; it moves 64 kB in 10 us."""
    return make_measured_case(case_id, utilisation=value, rmse_ratio=value, memory_bytes=64_000.0, **fields)


def runs(*values: float, **fields: Any) -> dict[str, list[list[MeasuredCase]]]:
    return {"gpu": [[make_measured(value, **fields)] for value in values]}


OBJECTIVE = LevelRule(name="roof", kind="level", channels=("chat",), metric="utilisation", at_least=0.6)


def test_the_median_of_the_newest_runs_counts() -> None:
    assert len(level_conditions(OBJECTIVE, runs(0.8, 0.5, 0.5), HERE)) == 1
    assert level_conditions(OBJECTIVE, runs(0.8, 0.8, 0.1), HERE) == []


@pytest.mark.parametrize(
    ("metric", "limit", "sentence", "title"),
    [
        (
            *("memory_bytes_per_s", {"at_least": 7e9}, "6.4 GB/s, below the limit of 7 GB/s"),
            "memory rate below 7 GB/s",
        ),
        ("host_ns", {"at_most": 8_000}, "9 µs, above the limit of 8 µs", "host time of a launch above 8 µs"),
        (
            *("peak_allocated_bytes", {"at_most": 2**20}, "2 MiB, above the limit of 1 MiB"),
            "peak allocated memory above 1 MiB",
        ),
    ],
)
def test_a_level_beyond_its_limit_is_reported_in_its_unit(
    metric: str, limit: dict[str, float], sentence: str, title: str
) -> None:
    rule = LevelRule.model_validate(
        {"name": "limit", "kind": "level", "channels": ("chat",), "metric": metric, "runs": 3, **limit}
    )
    measured = runs(0.5, host_ns=9_000.0, peak_allocated_bytes=2.0**21)

    (one,) = level_conditions(rule, measured, HERE)

    assert one.message.facts[2].text == f"rms_norm/n=1/float32/fwd · eager: {sentence}"
    assert one.message.title == f"rms_norm: {title} in 1 case on gpu"
    met = rule.model_copy(update={"at_least": limit.get("at_least") and 6e9, "at_most": limit.get("at_most") and 3e6})
    assert level_conditions(met, measured, HERE) == []


def test_an_error_that_grows_slowly_is_compared_with_older_runs() -> None:
    rule = LevelRule(name="error", kind="level", channels=("chat",), metric="rmse_ratio", grown_by=0.5)

    assert level_conditions(rule, runs(*[1.0] * 10, 1.2, 1.4, 1.4), HERE) == []
    assert len(level_conditions(rule, runs(*[1.0] * 10, 1.4, 1.6, 1.8, 2.0), HERE)) == 1
    assert level_conditions(rule, runs(1.0, 9.0, 9.0), HERE) == [], "too few runs to know what is usual"


def test_cases_of_one_kernel_on_one_runner_are_one_alert() -> None:
    both = [make_measured(0.1), make_measured(0.1, "rms_norm/n=2/float32/fwd")]
    other = [make_measured(0.1, "gemm/n=1/float32/fwd")]

    conditions = level_conditions(OBJECTIVE, {"a": [both], "b": [both, other]}, HERE)

    assert sorted(one.cause for one in conditions) == ["gemm\nb", "rms_norm\na", "rms_norm\nb"]
