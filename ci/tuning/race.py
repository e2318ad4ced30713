"""Sequential elimination: times configurations in rounds, and drops those that are slower. Pure.

A round has one block of samples of each configuration that is left, in random order. After some of
the rounds, each is compared with the leader by the log ratios of the blocks of the same rounds, as
`ci/ab/compare.py` does, and dropped if the whole interval lies above 0. The error rate is divided
by the number of configurations (Bonferroni), and each analysis takes half of what is left of it, so
the fastest is dropped by chance in at most 5 % of races.

Sources: Maron and Moore, Hoeffding Races (1994); Birattari et al., A Racing Algorithm for
Configuring Metaheuristics (2002); Lan and DeMets (1983) for the spending.
"""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from roofwatch.ci.ab.compare import ERROR_RATE, MIN_BLOCKS, PairedEstimate, compare

MARGIN = 0.01
"""A difference that nobody would change a configuration for."""
_GROWTH = 1.5
"""Rounds of one analysis over those of the one before."""

Entrant = TypeVar("Entrant", bound=Hashable)


@dataclass(frozen=True)
class Dropped:
    """Why an entrant left the race."""

    round_count: int
    comparison: PairedEstimate
    """With the leader of that round as the base."""

    @property
    def in_words(self) -> str:
        low, high = (math.exp(bound) for bound in self.comparison.log_interval)
        ratio = math.exp(self.comparison.log_ratio)
        interval = f"{low:.3g} to {high:.3g}"
        return f"{ratio:.3g}x slower ({interval}) after {self.round_count} rounds"


class Race(Generic[Entrant]):
    """The entrants that are left, and the samples of their blocks."""

    def __init__(
        self,
        entrants: Sequence[Entrant],
        *,
        error_rate: float = ERROR_RATE,
        margin: float = MARGIN,
    ) -> None:
        self.blocks: dict[Entrant, list[Sequence[float]]] = {entrant: [] for entrant in entrants}
        self.remaining = list(entrants)
        self.dropped: dict[Entrant, Dropped] = {}
        self.round_count = 0
        self._error_rate = error_rate / max(len(entrants) - 1, 1)
        self._margin = margin
        self._next_look = MIN_BLOCKS
        self._is_tied = False

    def add_round(self, samples_ns: Mapping[Entrant, Sequence[float]]) -> None:
        """Add one block of each entrant that is left; what has no block failed, and leaves."""
        self.remaining = [entrant for entrant in self.remaining if samples_ns.get(entrant)]
        for entrant in self.remaining:
            self.blocks[entrant].append(samples_ns[entrant])
        self.round_count += 1
        if self.round_count >= self._next_look and self.remaining:
            self._next_look = math.ceil(self.round_count * _GROWTH)
            self._eliminate()

    @property
    def leader(self) -> Entrant | None:
        """The one with the smallest mean log time."""
        return min(
            self.remaining,
            key=self._mean_log_ns,
            default=None,
        )

    @property
    def is_over(self) -> bool:
        """Whether one is left, or those that are left differ by less than the margin."""
        has_winner = len(self.remaining) < 2
        return has_winner or self._is_tied

    def median_ns(self, entrant: Entrant) -> float | None:
        """Median of the medians of its blocks."""
        medians = [statistics.median(block) for block in self.blocks[entrant]]
        if not medians:
            return None
        return statistics.median(medians)

    def _eliminate(self) -> None:
        """Drop what is surely slower than the leader, and look whether the rest is tied."""
        # half of what is left at each look, so the sum of all looks stays below the error rate
        self._error_rate /= 2
        leader = self.leader
        assert leader is not None
        survivors = [leader]
        self._is_tied = True
        for entrant in self.remaining:
            if entrant == leader:
                continue
            comparison = self._compare(leader, entrant, self._error_rate)
            # the whole interval is slower than the leader
            if comparison.log_interval[0] > 0:
                self.dropped[entrant] = Dropped(self.round_count, comparison)
                continue
            survivors.append(entrant)
            # a wrong tie costs less than the margin, so it takes no part of the error rate
            tie = self._compare(leader, entrant, ERROR_RATE)
            self._is_tied &= tie.log_interval[1] < math.log1p(self._margin)
        self.remaining = survivors

    def _compare(
        self,
        leader: Entrant,
        entrant: Entrant,
        error_rate: float,
    ) -> PairedEstimate:
        """The leader as base, another entrant as head."""
        return compare(
            self.blocks[leader],
            self.blocks[entrant],
            threshold=self._margin,
            error_rate=error_rate,
        )

    def _mean_log_ns(self, entrant: Entrant) -> float:
        """Mean logarithm of the medians of its blocks; infinite without any."""
        medians = [statistics.median(block) for block in self.blocks[entrant]]
        if medians:
            return statistics.fmean(map(math.log, medians))
        return math.inf
