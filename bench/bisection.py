"""Name the commit of a step in many made-up histories, with a plain bisection beside it.

    PYTHONPATH=. python bench/bisection.py [--trials N]

Prints for each step and noise how often the right commit was named and with how many measurements, those of both sides
and of the check of the ends counted. Exit status 1 unless of 64 commits a step of 3 % in noise of 1 % is named rightly
95 times in 100 or more, with fewer than half of what the steps of a plain bisection take with 10 samples a side.
"""

from __future__ import annotations

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
    plain_bisection_with_one_base,
    search,
)

_ASKED = Scenario()
_SCENARIOS = (
    _ASKED,
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
_WAYS: tuple[tuple[str, Callable[[Scenario, int], Trial]], ...] = (
    ("roofwatch", search),
    ("plain", plain_bisection),
    ("plain, good end once", plain_bisection_with_one_base),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="How surely, and with how little, a commit is named.")
    parser.add_argument("--trials", type=int, default=200)
    trial_count = parser.parse_args().trials
    print("| commits | step | noise | kind | by | right | measurements, mean | 95 in 100 below |")
    print("|---|---|---|---|---|---|---|---|")
    asked: list[Trial] = []
    for scenario in _SCENARIOS:
        for name, way in _WAYS:
            trials = [way(scenario, seed) for seed in range(trial_count)]
            if scenario == _ASKED and way is search:
                asked = trials
            print(row(scenario, name, trials), flush=True)
    budget = 2 * PLAIN_SAMPLES * math.log2(_ASKED.commit_count)
    right = statistics.mean(trial.is_right for trial in asked)
    mean = statistics.mean(trial.measurement_count for trial in asked)
    print(
        f"\n3 % in 1 %: right in {right:.1%}, {mean:.1f} measurements; the steps of a plain bisection take {budget:.0f}"
    )
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
