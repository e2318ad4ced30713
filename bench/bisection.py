"""Bisect a planted step in many synthetic histories, compared with plain bisection.

    PYTHONPATH=. python bench/bisection.py [--trials N]

Prints how often each step and noise gives the right commit, and the number of measurements on both sides. Exit status 1
unless a step of 3 % in 1 % noise over 64 commits is found in at least 95 % of the trials, with fewer than half of the
measurements of a plain bisection with 10 samples per side.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable

from tests.ci.simulated_bisection import (
    PLAIN_SAMPLES,
    Noise,
    Scenario,
    Trial,
    plain_bisection,
    search,
)

_DEFAULT = Scenario()
_SCENARIOS = (
    _DEFAULT,
    *(Scenario(kind=kind) for kind in Noise if kind is not Noise.STEADY),
    Scenario(step=0.02),
    Scenario(step=0.05),
    Scenario(step=0.10),
    Scenario(step=-0.03),
    Scenario(step=0.03, noise=0.005),
    Scenario(step=0.05, noise=0.02),
    Scenario(commit_count=8),
    Scenario(commit_count=512),
)
_METHODS: tuple[tuple[str, Callable[[Scenario, int], Trial]], ...] = (
    ("roofwatch", search),
    ("plain", plain_bisection),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Accuracy and cost of bisection.")
    parser.add_argument("--trials", type=int, default=200)
    trial_count = parser.parse_args().trials
    print("| commits | step | noise | kind | by | correct | measurements, mean | 95th percentile |")
    print("|---|---|---|---|---|---|---|---|")
    default: list[Trial] = []
    for scenario in _SCENARIOS:
        for name, method in _METHODS:
            trials = [method(scenario, seed) for seed in range(trial_count)]
            if scenario == _DEFAULT and method is search:
                default = trials
            print(row(scenario, name, trials), flush=True)
    budget = 2 * PLAIN_SAMPLES * math.log2(_DEFAULT.commit_count)
    right = statistics.mean(trial.is_right for trial in default)
    mean = statistics.mean(trial.measurement_count for trial in default)
    print(f"\n3 % in 1 %: correct in {right:.1%}, {mean:.1f} measurements; plain bisection takes {budget:.0f}")
    return 0 if right >= 0.95 and mean < budget / 2 else 1


def row(scenario: Scenario, name: str, trials: list[Trial]) -> str:
    counts = sorted(trial.measurement_count for trial in trials)
    right = statistics.mean(trial.is_right for trial in trials)
    return (
        f"| {scenario.commit_count} | {scenario.step:+.0%} | {scenario.noise:.1%} | {scenario.kind} | {name} "
        f"| {right:.1%} | {statistics.mean(counts):.1f} | {counts[int(0.95 * len(counts))]} |"
    )


if __name__ == "__main__":
    sys.exit(main())
