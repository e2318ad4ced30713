"""Plant causes in many made-up histories and say what is told of them; then judge nights in which nothing happened.

    python bench/grouping.py [--seeds N] [--nights N]

Each seed is 500 series of 300 commits with twelve causes: five of one series, six of a family, and the driver. Prints
for each what was told as alerts, how the cost of grouping grows with the change points, and the rate of false alerts.
Exit status 1 unless, at the median, eleven causes are told as one regression each and at most one is told too many.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace

import numpy as np

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.families import Population
from roofwatch.ci.history.finding import TrendFinding, Window
from roofwatch.ci.history.group import group_findings
from roofwatch.ci.history.history import analyse_series, judge_history
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Series, SeriesKey
from tests.builders import NOON, make_commit_ref, make_series_key
from tests.ci.planted import Score, plant, score
from tests.ci.values import make_point


def main() -> int:
    parser = argparse.ArgumentParser(description="What is told of planted causes, and of nights without any.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--nights", type=int, default=200)
    arguments = parser.parse_args()
    scores = [judge_planted(seed) for seed in range(1, arguments.seeds + 1)]
    found, extra = [one.found for one in scores], [len(one.extra) for one in scores]
    are_well = sum(one.found >= 11 and len(one.extra) <= 1 for one in scores)
    print(f"{are_well} of {len(scores)} histories: at least 11 of 12 causes told once each, at most one told too many")
    print(f"mean: {statistics.mean(found):.2f} of 12 found, {statistics.mean(extra):.2f} too many")
    print_cost()
    for name, degrees, correlation in (
        ("normal", 1e9, 0.0),
        ("t, 5 degrees", 5, 0.0),
        ("t, 3 degrees", 3, 0.0),
        ("neighbours correlated by 0.3", 5, 0.3),
        ("neighbours correlated by 0.5", 5, 0.5),
    ):
        print_null_nights(name, arguments.dates, degrees, correlation)
    return 0 if statistics.median(found) >= 11 and statistics.median(extra) <= 1 else 1


def judge_planted(seed: int) -> Score:
    """Judge one planted history and print what was told."""
    history = plant(seed)
    started = time.process_time()
    alerts = [found for found in judge_history(history.series) if found.is_alert]
    spent_s = time.process_time() - started
    result = score(history, alerts)
    print(
        f"seed {seed}: {result.found} of {result.cause_count} causes told once, {len(result.extra)} too many, "
        f"judged in {spent_s:.1f} s",
        flush=True,
    )
    return result


def print_cost() -> None:
    """How long grouping takes for more and more change points, those of one history beside each other."""
    limits = Thresholds()
    planted = plant(1).series
    found = analyse_series(planted, SupportingEvidence(), limits).findings
    keys = [one.key for one in planted if one.key.metric == "median_ns"]
    for copies in (1, 2, 4, 8, 16):
        # the same history over and over, each time of other kernels and later commits
        findings = [_moved(finding, copy) for copy in range(copies) for finding in found]
        time_series = [_renamed(key, copy) for copy in range(copies) for key in keys]
        started = time.process_time()
        group_findings(findings, population=Population(time_series), thresholds=limits)
        spent_s = time.process_time() - started
        count = len(findings)
        print(
            f"grouping {count} change points: {spent_s * 1e3:.0f} ms, {spent_s / count * 1e6:.0f} µs each", flush=True
        )


def _moved(finding: TrendFinding, copy: int) -> TrendFinding:
    by = 300 * copy
    change = finding.change
    return replace(
        finding,
        change=replace(
            change,
            series=_renamed(change.series, copy),
            commit=make_commit_ref(change.commit.first_parent_count - 1 + by),
            previous_commit=make_commit_ref(change.previous_commit.first_parent_count - 1 + by),
        ),
        window=Window(finding.window.first + by, finding.window.last + by),
        reach=Window(finding.reach.first + by, finding.reach.last + by),
    )


def _renamed(key: SeriesKey, copy: int) -> SeriesKey:
    return replace(key, case_id=f"{copy}_{key.case_id}", runner_class=f"machine {copy}")


def print_null_nights(name: str, night_count: int, degrees: float, correlation: float) -> None:
    """How often a night of 100 series in which nothing happened alerts somebody."""
    alerted = told = 0
    for seed in range(night_count):
        found = judge_history(null_night(seed, degrees, correlation))
        told += len(found)
        alerted += any(one.is_alert for one in found)
    print(
        f"{name}: {alerted} of {night_count} null nights of 100 series alert somebody, "
        f"{told / night_count:.2f} suspicions a night",
        flush=True,
    )


def null_night(seed: int, degrees: float, correlation: float, *, commit_count: int = 60) -> list[Series]:
    rng = np.random.default_rng(seed)
    series = []
    for number in range(100):
        steps = rng.normal(size=commit_count) if degrees > 1e6 else rng.standard_t(degrees, commit_count)
        values = steps.copy()
        for place in range(1, commit_count):
            values[place] = correlation * values[place - 1] + np.sqrt(1 - correlation**2) * steps[place]
        values = 1e6 * np.exp(rng.uniform(0.01, 0.04) * values)
        points = tuple(make_point(place, float(value), measured_at=NOON) for place, value in enumerate(values))
        series.append(Series(make_series_key(case_id=f"kernel_{number}/n=1/float32/fwd"), points))
    return series


if __name__ == "__main__":
    sys.exit(main())
