"""How often planted causes are grouped, and planted steps bisected, as they should be.

    PYTHONPATH=. python bench/error_rates.py grouping [--seeds N] [--days N]
    PYTHONPATH=. python bench/error_rates.py bisection [--trials N]

`grouping` judges histories of 500 series over 300 commits with twelve causes: five of one series,
six of a family, and the driver; then it counts alerts on days without a change. `bisection` finds a
step in many histories, and compares the number of measurements with plain bisection. Exit status 1:
a target was missed.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from roofwatch.model.history import Series
from tests.builders import NOON, make_series_key
from tests.ci.planted import Score, plant, score
from tests.ci.simulated_bisection import (
    PLAIN_SAMPLES,
    Noise,
    Scenario,
    Trial,
    plain_bisection,
    search,
)
from tests.ci.values import judge_history, make_point

_DEFAULT = Scenario()
_SCENARIOS = (
    _DEFAULT,
    # Other kinds of noise.
    *(Scenario(kind=kind) for kind in Noise if kind is not Noise.STEADY),
    # Smaller and larger steps, and an improvement.
    Scenario(step=0.02),
    Scenario(step=0.05),
    Scenario(step=0.10),
    Scenario(step=-0.03),
    # Quieter and noisier machines.
    Scenario(step=0.03, noise=0.005),
    Scenario(step=0.05, noise=0.02),
    # Shorter and longer histories.
    Scenario(commit_count=8),
    Scenario(commit_count=512),
)
_METHODS: tuple[tuple[str, Callable[[Scenario, int], Trial]], ...] = (
    ("roofwatch", search),
    ("plain", plain_bisection),
)


def judge_bisection(arguments: argparse.Namespace) -> int:
    """The status is 1 unless a step of 3 % in 1 % noise over 64 commits is found in 95 % of the
    trials, with fewer than half of the measurements of a plain bisection with 10 samples per side.
    """
    print("| commits | step | noise | kind | by | correct | measurements, mean | 95th percentile |")
    print("|---|---|---|---|---|---|---|---|")
    default: list[Trial] = []
    for scenario in _SCENARIOS:
        for name, method in _METHODS:
            trials = [method(scenario, seed) for seed in range(arguments.trials)]
            # the scenario that the published claim is about
            if scenario == _DEFAULT and method is search:
                default = trials
            print(row(scenario, name, trials), flush=True)
    plain_count = 2 * PLAIN_SAMPLES * math.log2(_DEFAULT.commit_count)
    right_share = statistics.mean(trial.is_right for trial in default)
    mean_count = statistics.mean(trial.measurement_count for trial in default)
    print(
        f"\n3 % in 1 %: correct in {right_share:.1%}, {mean_count:.1f} measurements; "
        f"plain bisection takes {plain_count:.0f}"
    )
    is_met = right_share >= 0.95 and mean_count < plain_count / 2
    return 0 if is_met else 1


def row(scenario: Scenario, name: str, trials: list[Trial]) -> str:
    """One line of the table of bisections."""
    counts = sorted(trial.measurement_count for trial in trials)
    right_share = statistics.mean(trial.is_right for trial in trials)
    cells = [
        str(scenario.commit_count),
        f"{scenario.step:+.0%}",
        f"{scenario.noise:.1%}",
        scenario.kind,
        name,
        f"{right_share:.1%}",
        f"{statistics.mean(counts):.1f}",
        str(counts[int(0.95 * len(counts))]),
    ]
    return f"| {' | '.join(cells)} |"


def judge_grouping(arguments: argparse.Namespace) -> int:
    """The status is 1 unless the median history reports eleven causes once each, and at most one
    too many.
    """
    scores = [judge_planted(seed) for seed in range(1, arguments.seeds + 1)]
    found_counts = [planted.found for planted in scores]
    extra_counts = [len(planted.extra) for planted in scores]
    good_count = 0
    for planted in scores:
        if planted.found >= 11 and len(planted.extra) <= 1:
            good_count += 1
    print(
        f"{good_count} of {len(scores)} histories: at least 11 of 12 causes reported once each, "
        f"at most one too many"
    )
    mean_found = statistics.mean(found_counts)
    mean_extra = statistics.mean(extra_counts)
    print(f"mean: {mean_found:.2f} of 12 found, {mean_extra:.2f} too many")
    # Few degrees of freedom make outliers, autocorrelation makes slow drifts.
    for name, degrees, correlation in (
        ("normal", math.inf, 0.0),
        ("t, 5 degrees", 5, 0.0),
        ("t, 3 degrees", 3, 0.0),
        ("t, 5 degrees, autocorrelation 0.3", 5, 0.3),
        ("t, 5 degrees, autocorrelation 0.5", 5, 0.5),
    ):
        print_quiet_days(
            name=name,
            day_count=arguments.days,
            degrees=degrees,
            correlation=correlation,
        )
    median_found = statistics.median(found_counts)
    median_extra = statistics.median(extra_counts)
    if median_found >= 11 and median_extra <= 1:
        return 0
    return 1


def judge_planted(seed: int) -> Score:
    """Analyse one planted history and print what was reported."""
    history = plant(seed)
    # Processor time: other processes do not change it.
    started = time.process_time()
    alerts = [regression for regression in judge_history(history.series) if regression.is_alert]
    spent_s = time.process_time() - started
    result = score(history, alerts)
    print(
        f"seed {seed}: {result.found} of {result.cause_count} causes reported once, "
        f"{len(result.extra)} too many, "
        f"analysed in {spent_s:.1f} s",
        flush=True,
    )
    return result


def print_quiet_days(
    name: str,
    day_count: int,
    degrees: float,
    correlation: float,
) -> None:
    """Count alerts on days of 100 series without a change."""
    alerted_day_count = 0
    suspicion_count = 0
    for seed in range(day_count):
        regressions = judge_history(quiet_day(seed, degrees, correlation))
        suspicion_count += len(regressions)
        alerted_day_count += any(regression.is_alert for regression in regressions)
    print(
        f"{name}: {alerted_day_count} of {day_count} days of 100 series with an alert, "
        f"{suspicion_count / day_count:.2f} suspicions per day",
        flush=True,
    )


def quiet_day(
    seed: int,
    degrees: float,
    correlation: float,
    *,
    commit_count: int = 60,
) -> list[Series]:
    """A day of a hundred series without a step, with correlated or heavy-tailed noise."""
    rng = np.random.default_rng(seed)
    series: list[Series] = []
    # Keeps the width of the noise whatever the correlation.
    innovation = np.sqrt(1 - correlation**2)
    for number in range(100):
        if degrees == math.inf:
            steps = rng.normal(size=commit_count)
        else:
            steps = rng.standard_t(degrees, commit_count)
        values = steps.copy()
        for index in range(1, commit_count):
            carried_over = correlation * values[index - 1]
            values[index] = carried_over + innovation * steps[index]
        width = rng.uniform(0.01, 0.04)
        times_ns = 1e6 * np.exp(width * values)
        points = tuple(
            make_point(index, float(time_ns), measured_at=NOON)
            for index, time_ns in enumerate(times_ns)
        )
        key = make_series_key(case_id=f"kernel_{number}/n=1/float32/fwd")
        series.append(Series(key, points))
    return series


def main() -> int:
    parser = argparse.ArgumentParser(description="Error rates of grouping and of bisection.")
    parser.add_argument("what", choices=["grouping", "bisection"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--trials", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.what == "grouping":
        return judge_grouping(arguments)
    return judge_bisection(arguments)


if __name__ == "__main__":
    sys.exit(main())
