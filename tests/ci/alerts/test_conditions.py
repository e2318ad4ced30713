"""What rules report: regressions, metrics and silent runners."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from roofwatch.ci.alerts.coverage import (
    coverage,
    coverage_text,
    is_idle,
    why_never_firing,
)
from roofwatch.ci.alerts.kinds import Rule, conditions_at
from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import MetricRule, RegressionRule
from roofwatch.ci.alerts.silence import SilenceRule
from roofwatch.model.alert import AlertCondition
from roofwatch.model.history import Cause, ChangePoint, RegressionState, Suspect
from roofwatch.model.machine import Outcome
from roofwatch.model.stored_results import CaseOption, MeasuredCase, RunnerRun
from roofwatch.model.triage import Triage, TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict
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

NOW = NOON + timedelta(days=1)
COSTS = {"flop_per_s": 1e6, "memory_bytes_per_s": 64_000.0, "bus_bytes_per_s": None}
FACTS = CaseOption(CASE_ID, "rms_norm", "float32", "normalisation", ("decode", "70b"), COSTS)
HERE = ProjectState(PROJECT, cases={CASE_ID: FACTS}, dashboard_url="https://dash.example")
ID = UUID(int=1)
CHANNELS: dict[str, Any] = {"name": "rule", "channels": ("chat",)}
SLOWER = RegressionRule.model_validate(
    {"kind": "regression", "min_relative_change": "10%", **CHANNELS}
)


def reported(rule: Rule = SLOWER, **fields: Any) -> list[AlertCondition]:
    triage = Triage(ID, fields.pop("triage", TriageState.NEW), "A Person", "why")
    regression = make_regression(1, **{"is_alert": True, **fields})
    return conditions_at(
        rule, replace(HERE, regressions=[TriagedRegression(str(ID), regression, triage)]), NOW
    )


def test_an_unconfirmed_regression_says_how_many_alerts_of_the_project_were_real() -> None:
    def real_and_false(real: int, false: int) -> str:
        triages = [TriageState.NEW, *[TriageState.FIXED] * real, *[TriageState.INVALID] * false]
        regressions = [
            TriagedRegression(
                str(number),
                make_regression(number, is_alert=True),
                Triage(UUID(int=number), triage),
            )
            for number, triage in enumerate(triages, start=1)
        ]
        (one,) = conditions_at(SLOWER, replace(HERE, regressions=regressions), NOW)
        return next(
            fact.text for fact in one.message.facts if fact.name == "Probability that it is real"
        )

    assert real_and_false(0, 0) == "50%; 0 of 0 earlier alerts were real"
    assert real_and_false(30, 0) == "88%; 30 of 30 earlier alerts were real"
    assert real_and_false(0, 30) == "12%; 0 of 30 earlier alerts were real"
    assert "Probability that it is real" not in [
        fact.name for fact in reported(is_confirmed=True)[0].message.facts
    ]


def metric_rule(metric: str, **fields: Any) -> MetricRule:
    return MetricRule.model_validate({"kind": "throughput", "metric": metric, **CHANNELS, **fields})


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
        {
            "change_points": (SMALL, change("host_ns", 5_000.0, 9_000.0))
        },  # the host's time makes no time larger
        *(
            {"triage": state}
            for state in (TriageState.EXPECTED, TriageState.FIXED, TriageState.INVALID)
        ),
    ],
)
def test_what_needs_no_person_is_not_reported(
    fields: dict[str, Any],
) -> None:
    assert reported(**fields) == []


def test_a_rule_reports_only_what_its_patterns_select() -> None:
    def reports(**fields: object) -> bool:
        return bool(reported(SLOWER.model_copy(update=fields)))

    assert reports(kernels=("rms_*",), families=("norm*",), tags=("decode",))
    assert not reports(kernels=("flash_*",))
    assert not reports(families=("attention",))
    assert not reports(tags=("decode", "8b"))
    assert not reports(runners=("*H200*",))


def test_a_drop_of_throughput_at_a_change_is_told_in_rates() -> None:
    """The time grew from 10 to 12 µs, so the rate fell by 16.7 %."""
    (one,) = reported(metric_rule("flop_per_s", drops_by="16%", against="change"))

    assert reported(metric_rule("flop_per_s", drops_by="17%", against="change")) == []
    assert one.cause == reported()[0].cause
    (rate,) = one.message.changes
    assert (rate.metric, rate.before) == ("flop_per_s", 1e11)
    assert rate.relative_change == pytest.approx(1 / 1.2 - 1)


def test_a_time_is_told_once_although_its_ratio_to_the_library_moved_with_it() -> None:
    ratio = change("ratio_to_reference", 1.0, 1.2)
    slower = make_change_point(1)
    (both,) = reported(change_points=(slower, ratio))
    (alone,) = reported(change_points=(ratio,))

    assert [told.metric for told in both.message.changes] == ["median_ns"]
    assert [told.metric for told in alone.message.changes] == ["ratio_to_reference"]


def test_a_message_names_the_range_until_one_commit_is_known() -> None:
    point = make_change_point(5, previous_commit=make_commit_ref(1))
    (one,) = reported(commit=make_commit_ref(5), change_points=(point,))

    facts = {fact.name: fact.text for fact in one.message.facts}
    base, head = make_commit_ref(1), make_commit_ref(5)
    assert facts["Since"] == f"one of 4 commits after {base.short_sha}, up to {head.short_sha}"
    assert (one.message.base_sha, one.message.head_sha) == (base.sha, head.sha)


def test_a_message_says_where_a_regression_began() -> None:
    suspects = (
        Suspect(Cause.CODE, 0.75, "the machine code changed"),
        Suspect(Cause.UNKNOWN, 0.25, "not recorded"),
    )
    (one,) = reported(suspects=suspects)

    facts = {fact.name: fact.text for fact in one.message.facts}
    base, head = make_commit_ref(0), make_commit_ref(1)
    assert facts["Range"] == f"{base.short_sha}..{head.short_sha}"
    assert facts["Since"] == f"{head.short_sha} Change number 1 (Test Author, 2026-03-01)"
    assert {name: text for name, text in facts.items() if "Suspect" in name} == {
        "Suspect: code (75%)": "the machine code changed"
    }
    opened = "https://dash.example/regression?project=example%2Fproject&regression=00000000-0000-0000-0000-000000000001"
    assert one.message.links[0].url == opened
    assert one.message.links[1].url.startswith(
        "https://dash.example/trends?project=example%2Fproject&kernel=rms_norm&"
    )
    assert one.cause == str(ID)
    assert (one.message.base_sha, one.message.head_sha, one.message.kernels) == (
        base.sha,
        head.sha,
        ("rms_norm",),
    )
    assert one.message.changes[0].relative_change == pytest.approx(0.2)
    assert "Example CPU" in one.message.title


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def nightly(count: int, gpu: str = "GPU A", first: int = 0) -> list[RunnerRun]:
    days = range(first, first + count)
    return [
        RunnerRun(uuid4(), gpu, NOON + timedelta(days=day), "1", make_commit_ref(day))
        for day in days
    ]


@pytest.mark.parametrize(("fields", "silent_after_days"), [({"after_hours": 36}, 1.5), ({}, 3)])
def test_a_runner_is_silent_after_the_time_of_the_rule(
    fields: dict[str, float], silent_after_days: float
) -> None:
    rule = SilenceRule(kind="silence", **CHANNELS, **fields)
    state = ProjectState(PROJECT, runs={"GPU A, driver 580": nightly(10)})
    last = NOON + timedelta(days=9)

    (one,) = conditions_at(rule, state, last + timedelta(days=silent_after_days))
    assert [fact.name for fact in one.message.facts] == ["Last result", "Usual interval"]
    assert one.message.facts[1].text == "24.0 hours"
    assert conditions_at(rule, state, last + timedelta(days=silent_after_days - 0.01)) == []


UPGRADED = {"GPU A, driver 580": nightly(20), "GPU A, driver 590": nightly(11, first=20)}


def test_of_two_runners_only_the_one_that_never_reported_is_silent() -> None:
    rule = SilenceRule(kind="silence", runners=("*B200*", "*GPU A*"), **CHANNELS)

    (one,) = conditions_at(rule, ProjectState(PROJECT, runs=UPGRADED), NOON + timedelta(days=30))

    assert "*B200*" in one.message.title


def measured(metric: str, value: float, case_id: str = CASE_ID, **fields: Any) -> MeasuredCase:
    """A case that has this value of a metric."""
    cost = COSTS.get(metric)
    if cost is not None:
        fields["median_ns"] = cost / value * 1e9
    else:
        fields |= {metric: value, "accuracy_outcome": Outcome.OK}
    return make_measured_case(case_id, **fields)


def judged(
    rule: MetricRule, *values: float, cases: Sequence[str] = (CASE_ID,), **fields: Any
) -> list[AlertCondition]:
    """What a rule reports after hourly runs; all cases of a run have the same value."""
    runs = [
        RunnerRun(uuid4(), "GPU A", NOON + timedelta(hours=n), "1", make_commit_ref(n))
        for n in range(len(values))
    ]
    found = [[measured(rule.metric, value, case) for case in cases] for value in values]
    results = dict(zip((run.run_id for run in runs), found, strict=True))
    facts = dict.fromkeys(cases, FACTS)
    given = {
        "runs": {"GPU A, driver 580": runs},
        "results": results.__getitem__,
        "cases": facts,
        **fields,
    }
    return conditions_at(rule, replace(HERE, **given), NOW)


def test_the_median_of_the_newest_runs_counts() -> None:
    roof = metric_rule("utilisation", at_least="60%")

    (one,) = judged(roof, 0.8, 0.8, 0.8, 0.5, 0.5, 0.5, 0.5)
    assert (one.message.base_sha, one.message.head_sha) == (
        make_commit_ref(2).sha,
        make_commit_ref(3).sha,
    )
    assert judged(roof, 0.8, 0.8, 0.1) == []


@pytest.mark.parametrize(
    ("metric", "limit", "value", "title"),
    [
        (
            "memory_bytes_per_s",
            {"at_least": 7e9},
            6.4e9,
            "memory rate below 7 GB/s: 6.4 GB/s, in 1 case on",
        ),
        ("host_ns", {"at_most": 8_000}, 9_000.0, "host time of a launch above 8 µs: 9 µs"),
        (
            "peak_allocated_bytes",
            {"at_most": 2**20},
            2.0**21,
            "peak allocated memory above 1 MiB: 2 MiB",
        ),
    ],
)
def test_a_level_beyond_its_limit_is_reported_in_its_unit(
    metric: str, limit: dict[str, float], value: float, title: str
) -> None:
    (one,) = judged(metric_rule(metric, **limit), value)

    assert title in one.message.title
    assert judged(metric_rule(metric, **limit), next(iter(limit.values()))) == []


def test_a_limit_that_was_always_exceeded_blames_no_commit() -> None:
    """It named the oldest commit in view and its author."""
    (always,) = judged(metric_rule("utilisation", at_least="60%"), *[0.5] * 4)
    (since,) = judged(metric_rule("utilisation", at_least="60%"), *[0.8] * 3, *[0.5] * 4)

    assert (always.message.base_sha, always.message.head_sha) == (None, None)
    assert [change.is_limit for change in always.message.changes] == [True]
    authors = make_commit_ref(0).author, make_commit_ref(0).short_sha
    texts = [always.message.title, *(fact.text for fact in always.message.facts)]
    assert not [text for text in texts if any(author in text for author in authors)]
    assert since.message.head_sha == make_commit_ref(3).sha


def test_excluded_implementations_raise_no_alert() -> None:
    limit = metric_rule("utilisation", at_least="60%")
    excluded = metric_rule("utilisation", at_least="60%", exclude_implementations=["tor*"])
    other = metric_rule("utilisation", at_least="60%", exclude_implementations=["cudnn"])

    counts = [len(judged(rule, *[0.5] * 4)) for rule in (limit, excluded, other)]

    assert counts == [1, 0, 1]


def test_a_rate_is_compared_with_the_days_before() -> None:
    drop = metric_rule("flop_per_s", drops_by="5%", against="14 days")

    (one,) = judged(drop, *[6e14] * 10, 5.6e14, 5.6e14, 5.6e14)

    assert one.message.title.startswith(
        "rms_norm: compute rate fell 6.7%, 600 TFLOP/s to 560 TFLOP/s, in 1 case on "
    )
    assert one.message.head_sha == make_commit_ref(10).sha
    assert one.message.base_sha == make_commit_ref(9).sha
    assert judged(drop, *[6e14] * 10, 5.8e14, 5.8e14, 5.8e14) == []
    assert judged(drop, 6e14, 5.6e14, 5.6e14) == [], "nothing to compare with"
    assert (
        judged(
            metric_rule("flop_per_s", drops_by="5%", against="0.1 days"), *[6e14] * 5, *[5.6e14] * 6
        )
        == []
    )


def test_a_rate_is_compared_with_a_tag() -> None:
    drop = metric_rule("flop_per_s", drops_by="5%", against="v1.2")
    values = (6e14, *[5.6e14] * 20)

    assert len(judged(drop, *values, commits={"v1.2": make_commit_ref(0).sha})) == 1
    assert judged(drop, *values, commits={"v1.2": make_commit_ref(1).sha}) == []
    assert judged(drop, *values) == []


def test_an_error_that_grows_slowly_is_compared_with_older_runs() -> None:
    rule = metric_rule("rmse_ratio", grows_by="50%")

    assert judged(rule, *[1.0] * 10, 1.2, 1.4, 1.4) == []
    assert len(judged(rule, *[1.0] * 10, 1.4, 1.6, 1.8, 2.0)) == 1


def reports_drop(runs: Sequence[RunnerRun], **fields: Any) -> bool:
    """Whether a rule reports a drop of the newest three of ten runs, which have these fields."""
    old_cases = [measured("flop_per_s", 6e14)]
    new_cases = [measured("flop_per_s", 5e14, **fields)]
    results = {run.run_id: old_cases for run in runs[:7]}
    results |= {run.run_id: new_cases for run in runs[7:]}
    state = replace(HERE, runs={"GPU A, driver 580": runs}, results=results.__getitem__)
    drop = metric_rule("flop_per_s", drops_by="5%")
    return bool(conditions_at(drop, state, NOON + timedelta(days=10)))


def test_values_of_another_timer_are_not_compared() -> None:
    runs = nightly(10)

    assert reports_drop(runs)
    assert not reports_drop(runs, timer="cuda_event")


def test_values_of_another_harness_are_not_compared() -> None:
    runs = nightly(10)
    newer_runs = [replace(run, harness_version="2") for run in runs[7:]]

    assert not reports_drop([*runs[:7], *newer_runs])


def test_the_geometric_mean_of_a_family_is_one_alert() -> None:
    """Twelve kernels lost 4 % each."""
    mean = metric_rule("flop_per_s", drops_by="3%", over="geomean", families=["norm*"])
    cases = [f"norm_{n}/n=1/float32/fwd" for n in range(12)]

    (one,) = judged(mean, *[6e14] * 10, *[5.76e14] * 3, cases=cases)

    assert one.message.title.startswith(
        "norm*: compute rate fell 4.0%, 600 TFLOP/s to 576 TFLOP/s, over 12 cases"
    )
    assert (
        judged(
            mean.model_copy(update={"drops_by": 0.05}), *[6e14] * 10, *[5.76e14] * 3, cases=cases
        )
        == []
    )
    assert (
        judged(
            mean.model_copy(update={"families": ("attention",)}),
            *[6e14] * 10,
            *[5.76e14] * 3,
            cases=cases,
        )
        == []
    )


def test_cases_of_one_kernel_on_one_device_are_one_alert() -> None:
    runs = {"a": nightly(1, "GPU A"), "a2": nightly(1, "GPU A"), "b": nightly(1, "GPU B")}
    cases = [
        measured("flop_per_s", 1e9, case)
        for case in (CASE_ID, CASE_ID.replace("64", "65"), "gemm/n=1/f/fwd")
    ]
    state = replace(
        HERE, runs=runs, results=lambda _: cases, cases={case.case_id: FACTS for case in cases}
    )

    conditions = conditions_at(metric_rule("flop_per_s", at_least=1e10), state, NOW)

    assert len({one.cause for one in conditions}) == len(conditions) == 4


def test_levels_of_a_driver_that_was_replaced_end() -> None:
    low = metric_rule("flop_per_s", at_least=6e14)
    old = {run.run_id for run in UPGRADED["GPU A, driver 580"]}
    state = replace(
        HERE, results=lambda run: [measured("flop_per_s", 5e14 if run in old else 7e14)]
    )

    def reports(runs: dict[str, list[RunnerRun]], day: int) -> bool:
        return bool(conditions_at(low, replace(state, runs=runs), NOON + timedelta(days=day)))

    alone = {"GPU A, driver 580": UPGRADED["GPU A, driver 580"]}
    assert reports(UPGRADED, 20)
    assert not reports(UPGRADED, 30)
    assert reports(alone, 30), "a broken machine is not a new driver"
    assert not reports(alone, 60)


def test_a_rule_that_compares_with_an_unmeasured_commit_can_never_fire() -> None:
    state = replace(HERE, commits={"v1.2": make_commit_ref(0).sha})

    def reasons(against: str) -> list[str]:
        return why_never_firing(metric_rule("flop_per_s", drops_by="5%", against=against), [state])

    assert reasons("14 days") == reasons("v1.2") == reasons("change") == []
    assert reasons("14dayz") == [
        "rule 'rule' can never fire: against = '14dayz' was never measured"
    ]


def test_a_rule_that_matches_nothing_says_what_exists() -> None:
    cases = {f"{kernel}/n=1/f/fwd": FACTS for kernel in ("gemm", "softmax", "rms_norm")}
    state = ProjectState(PROJECT, cases=cases, runs={"GPU A, 80 GiB, driver 580": nightly(1)})

    def covered(**fields: Any) -> str | None:
        found = coverage(
            metric_rule(fields.pop("metric", "flop_per_s"), at_least=1, **fields), state
        )
        return coverage_text(found) if is_idle(found) else None

    assert covered() is None
    assert (
        covered(kernels=["flashattn_*"])
        == "matches 0 of 3 kernels: gemm, rms_norm, softmax, 1 of 1 runner"
    )
    assert covered(runners=["H100"]) == "matches 3 of 3 kernels, 0 of 1 runner: GPU A"
    assert "0 of 3 kernels" in (covered(metric="bus_bytes_per_s") or "")
