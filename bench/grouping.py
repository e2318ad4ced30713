"""Plant causes in synthetic histories and count what is reported; then count alerts on days without a change.

    PYTHONPATH=. python bench/grouping.py [--seeds N] [--days N]

Each seed is 500 series of 300 commits with twelve causes: five of one series, six of a family, and the driver. Exit
status 1 unless the median history reports eleven causes as one regression each, and at most one regression too many.
"""

import argparse
import statistics
import sys
import time

import numpy as np

from roofwatch.ci.history.history import judge_history
from roofwatch.db.values import Series
from tests.builders import NOON, make_series_key
from tests.ci.planted import Score, plant, score
from tests.ci.values import make_point


def main() -> int:
    parser = argparse.ArgumentParser(description="What is reported of planted causes, and of days without a change.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--days", type=int, default=200)
    arguments = parser.parse_args()
    scores = [judge_planted(seed) for seed in range(1, arguments.seeds + 1)]
    found, extra = [one.found for one in scores], [len(one.extra) for one in scores]
    good_count = sum(one.found >= 11 and len(one.extra) <= 1 for one in scores)
    print(f"{good_count} of {len(scores)} histories: at least 11 of 12 causes reported once each, at most one too many")
    print(f"mean: {statistics.mean(found):.2f} of 12 found, {statistics.mean(extra):.2f} too many")
    for name, degrees, correlation in (
        ("normal", 1e9, 0.0),
        ("t, 5 degrees", 5, 0.0),
        ("t, 3 degrees", 3, 0.0),
        ("t, 5 degrees, autocorrelation 0.3", 5, 0.3),
        ("t, 5 degrees, autocorrelation 0.5", 5, 0.5),
    ):
        print_quiet_days(name, arguments.days, degrees, correlation)
    return 0 if statistics.median(found) >= 11 and statistics.median(extra) <= 1 else 1


def judge_planted(seed: int) -> Score:
    """Analyse one planted history and print what was reported."""
    history = plant(seed)
    started = time.process_time()
    alerts = [found for found in judge_history(history.series) if found.is_alert]
    spent_s = time.process_time() - started
    result = score(history, alerts)
    print(
        f"seed {seed}: {result.found} of {result.cause_count} causes reported once, {len(result.extra)} too many, "
        f"analysed in {spent_s:.1f} s",
        flush=True,
    )
    return result


def print_quiet_days(name: str, day_count: int, degrees: float, correlation: float) -> None:
    """Count alerts on days of 100 series without a change."""
    alerted = suspicions = 0
    for seed in range(day_count):
        found = judge_history(quiet_day(seed, degrees, correlation))
        suspicions += len(found)
        alerted += any(one.is_alert for one in found)
    print(
        f"{name}: {alerted} of {day_count} days of 100 series with an alert, "
        f"{suspicions / day_count:.2f} suspicions per day",
        flush=True,
    )


def quiet_day(seed: int, degrees: float, correlation: float, *, commit_count: int = 60) -> list[Series]:
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
