"""What is known about each runner class, as tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo

import pandas as pd

from roofwatch.ci.ab.comparable import ComparabilityClass, differences_of
from roofwatch.ci.ab.noise_floor import DETECTABLE_AT, RunnerNoise
from roofwatch.ci.alerts.conditions import ReportInterval, report_interval
from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.collector.record.machine import Environment
from roofwatch.dashboard.charts.runners import ceiling_name
from roofwatch.dashboard.components.table import NO_VALUE
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.wording import VERDICT_MARKS, duration_text, rate_text, written
from roofwatch.db.queries.results import FleetRun, KernelCost
from roofwatch.db.values import Regression, SeriesKey


def by_runner_class(runs: Sequence[FleetRun]) -> dict[str, list[FleetRun]]:
    """Group runs by runner class, most recent result first."""
    found: defaultdict[str, list[FleetRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.started_at, reverse=True):
        found[run.runner_class].append(run)
    return dict(found)


def health_table(
    runs: Mapping[str, Sequence[FleetRun]],
    costs: Sequence[KernelCost],
    noise: Mapping[str, RunnerNoise],
    *,
    now: datetime,
    zone: tzinfo,
) -> pd.DataFrame:
    """Return one row per runner class: last result, interval, throttling and noise."""
    measured, degraded = Counter[str](), Counter[str]()
    for cost in costs:
        measured[cost.run_id] += cost.measurement_count
        degraded[cost.run_id] += cost.degraded_count
    rows = []
    for runner_class, own in runs.items():
        interval = report_interval(run.finished_at for run in own)
        count = sum(measured[run.run_id] for run in own)
        known = noise.get(runner_class)
        rows.append(
            {
                "runner class": runner_class,
                "runs": len(own),
                "last result": written(interval.last_at, zone),
                "usually every": (
                    NO_VALUE if interval.usual_gap is None else duration_text(interval.usual_gap.total_seconds() * 1e9)
                ),
                "state": interval_text(interval, now),
                "throttled or shared": sum(degraded[run.run_id] for run in own) / count if count else None,
                "noise floor": None if known is None else known.median_floor,
                "false alarms": (
                    "never calibrated" if known is None else f"{known.false_alarm_count} of {known.comparison_count}"
                ),
            }
        )
    return pd.DataFrame(rows)


def interval_text(interval: ReportInterval, now: datetime) -> str:
    """Describe whether results arrive as usual."""
    if interval.silent_from is None:
        return "○ too few results to tell"
    return "✕ silent" if interval.is_silent(now) else "✓ as usual"


def narrowed_noise(noise: RunnerNoise, filters: Filters) -> RunnerNoise:
    """Keep the noise of filtered cases; false alarms stay those of whole calibrations."""
    return replace(noise, cases=tuple(case for case in noise.cases if filters.admits_case(case.case_id)))


def noise_table(noise: RunnerNoise) -> pd.DataFrame:
    """Return one row per case and implementation, noisiest first."""
    return pd.DataFrame(
        {
            "case": [case.case_id for case in noise.cases],
            "implementation": [case.implementation for case in noise.cases],
            "blocks": [case.block_count for case in noise.cases],
            "noise floor": [case.noise_floor for case in noise.cases],
            **{
                f"detectable with {blocks} blocks": [case.detectable_change.get(blocks) for case in noise.cases]
                for blocks in DETECTABLE_AT
            },
            "A/A verdict": ["◆ false alarm" if case.is_false_alarm else "✓ none" for case in noise.cases],
        }
    )


def moves_table(key: SeriesKey, regressions: Sequence[Regression]) -> pd.DataFrame:
    """List stored steps and drifts of one series."""
    return pd.DataFrame(
        [
            {
                "what": "drift" if change.is_gradual else "step",
                "verdict": VERDICT_MARKS[change.verdict].text,
                "cause": str(regression.cause),
                "state": str(regression.state),
                "commit": change.commit.short_sha,
                "subject": change.commit.subject,
                "evidence": change.evidence,
            }
            for regression in regressions
            for change in regression.change_points
            if change.series == key
        ]
    )


def ceilings_table(runs: Sequence[FleetRun]) -> pd.DataFrame:
    """List the newest ceilings next to the range of all and the datasheet."""
    seen: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for ceiling in run.ceilings:
            if ceiling.source == "measured":
                seen[ceiling_name(ceiling)].append(ceiling.per_s)
    newest = next((run for run in runs if run.ceilings), None)
    rows = []
    for ceiling in newest.ceilings if newest is not None else ():
        if ceiling.source == "datasheet" or newest is None:
            continue
        published = compare_with_datasheet([ceiling], newest.environment.device_name)
        every = seen[ceiling_name(ceiling)]
        rows.append(
            {
                "ceiling": ceiling_name(ceiling),
                "newest": rate_text(ceiling.resource, ceiling.per_s),
                "lowest": rate_text(ceiling.resource, min(every)),
                "highest": rate_text(ceiling.resource, max(every)),
                "datasheet": rate_text(ceiling.resource, published[0].published_per_s) if published else "not known",
                "share of datasheet": ceiling.per_s / published[0].published_per_s if published else None,
            }
        )
    return pd.DataFrame(rows)


def classes_table(runs: Sequence[FleetRun], zone: tzinfo) -> pd.DataFrame:
    """Return one row per group of comparable runs."""
    classes: defaultdict[ComparabilityClass, list[FleetRun]] = defaultdict(list)
    for run in runs:
        classes[ComparabilityClass(run.runner_class, run.harness_version)].append(run)
    return pd.DataFrame(
        [
            {
                "runner class": one.runner_class,
                "harness": one.harness_version,
                "runs": len(own),
                "environments": len(distinct_environments(own)),
                "first": written(min(run.started_at for run in own), zone),
                "last": written(max(run.started_at for run in own), zone),
            }
            for one, own in classes.items()
        ]
    )


def distinct_environments(runs: Sequence[FleetRun]) -> list[tuple[Environment, list[FleetRun]]]:
    """Return environments with their runs, that of the newest run first."""
    found: dict[str, tuple[Environment, list[FleetRun]]] = {}
    for run in sorted(runs, key=lambda run: run.started_at, reverse=True):
        found.setdefault(run.environment.model_dump_json(), (run.environment, []))[1].append(run)
    return list(found.values())


def differences_table(runs: Sequence[FleetRun], zone: tzinfo) -> pd.DataFrame:
    """Return facts that differ between environments, one column per environment."""
    environments = distinct_environments(runs)
    titles = [
        f"{number}: {len(own)} run{'' if len(own) == 1 else 's'}, last {written(own[0].started_at, zone)}"
        for number, (_, own) in enumerate(environments, start=1)
    ]
    differences = differences_of([environment for environment, _ in environments])
    return pd.DataFrame(
        {
            "what": [one.name for one in differences],
            "may move times": ["◆ toolchain" if one.may_move_times else "" for one in differences],
            **{title: [one.values[at] for one in differences] for at, title in enumerate(titles)},
        }
    )
