"""Histories with one step on a synthetic machine, for the search and for a plain bisection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from roofwatch.ci.bisect.search import Measure, SearchEnd, SearchPlan, compare_ends, next_move
from roofwatch.model.triage import BisectionCommit, CommitStatus
from tests.builders import make_commit_ref

PLAIN_SAMPLES = 10
"""What a plain bisection takes on each side of a step."""
_DRIFT_PER_SAMPLE = 0.003
_SPIKY_DEGREES = 3
_SPELL = 25
"""Samples until the noise is another."""


class Noise(StrEnum):
    STEADY = "steady"
    """Normal."""
    SPIKY = "spiky"
    """Student's, of three degrees of freedom."""
    DRIFTING_LEVEL = "drifting level"
    """Normal, on a machine whose speed walks at random, 0.3 % from one sample to the next."""
    DRIFTING_NOISE = "drifting noise"
    """Normal, from half to twice as much, another in each spell."""


@dataclass(frozen=True)
class Scenario:
    commit_count: int = 64
    step: float = 0.03
    noise: float = 0.01
    """Standard deviation of a sample over its level."""
    kind: Noise = Noise.STEADY


@dataclass(frozen=True)
class Trial:
    is_right: bool
    measurement_count: int
    """On both sides, including the check of the ends."""


class Machine:
    """Measures commits, one sample after the other."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._rng = np.random.default_rng(seed)
        self.change = int(self._rng.integers(scenario.commit_count))
        """The first slow commit."""
        self._speed = 0.0
        self.sample_count = 0

    def sample(self, commit: int) -> float:
        """The logarithm of one time of a commit; of the good end for −1."""
        scenario, rng = self._scenario, self._rng
        noise = scenario.noise
        if scenario.kind is Noise.DRIFTING_NOISE:
            noise *= (0.5, 1.0, 2.0)[(self.sample_count // _SPELL) % 3]
        if scenario.kind is Noise.DRIFTING_LEVEL:
            self._speed += rng.normal(0, _DRIFT_PER_SAMPLE)
        spread = (
            rng.standard_t(_SPIKY_DEGREES) / math.sqrt(_SPIKY_DEGREES / (_SPIKY_DEGREES - 2))
            if scenario.kind is Noise.SPIKY
            else rng.normal()
        )
        self.sample_count += 1
        return (
            math.log1p(scenario.step) * (commit >= self.change)
            + self._speed
            + noise * float(spread)
        )

    def pair(self, commit: int) -> float:
        """ln(commit / good) of two samples side by side, in an order drawn at random."""
        if self._rng.random() < 0.5:
            good = self.sample(-1)
            return self.sample(commit) - good
        return self.sample(commit) - self.sample(-1)


def search(scenario: Scenario, seed: int) -> Trial:
    """Search as `roofwatch bisect` does."""
    machine, plan = Machine(scenario, seed), SearchPlan()
    last = scenario.commit_count - 1
    pairs: list[list[float]] = [[] for _ in range(scenario.commit_count)]
    while missing := compare_ends(pairs[last], plan):
        if isinstance(missing, SearchEnd):
            return Trial(False, machine.sample_count)
        pairs[last] += [machine.pair(last) for _ in range(missing)]
    found = finish(machine, [1.0] * scenario.commit_count, pairs, plan)
    return Trial(found.first == found.last == machine.change, machine.sample_count)


def finish(
    machine: Machine,
    weights: list[float],
    pairs: list[list[float]],
    plan: SearchPlan,
    unmeasurable: tuple[int, ...] = (),
) -> SearchEnd:
    """Search when the ends are known to differ; adds to the pairs of each commit."""
    at: int | None = None
    while True:
        commits = [
            BisectionCommit(
                make_commit_ref(position),
                0.0,
                CommitStatus.SKIPPED if position in unmeasurable else CommitStatus.OPEN,
                log_ratios=tuple(pairs[position]),
                weight=weight,
            )
            for position, weight in enumerate(weights)
        ]
        move = next_move(commits, plan, current=at)
        if not isinstance(move, Measure):
            return move
        assert move.position not in unmeasurable
        at = move.position
        pairs[at] += [machine.pair(at) for _ in range(move.pair_count)]


def plain_bisection(scenario: Scenario, seed: int) -> Trial:
    """Take ten samples of the good end, then ten of the commit, at each step; the middle between
    the ends decides.
    """
    machine = Machine(scenario, seed)
    low, high = -1, scenario.commit_count - 1
    base = _median(machine, -1)
    edge = (_median(machine, high) - base) / 2
    while high - low > 1:
        middle = (low + high) // 2
        base = _median(machine, -1)
        if (_median(machine, middle) - base) / edge > 1:  # the step may be down
            high = middle
        else:
            low = middle
    return Trial(high == machine.change, machine.sample_count)


def _median(machine: Machine, commit: int) -> float:
    return float(np.median([machine.sample(commit) for _ in range(PLAIN_SAMPLES)]))
