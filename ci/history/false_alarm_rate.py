"""How often the service itself was wrong: of the regressions that it told, those that were none. Pure.

Told is every regression that a reader could see open; improvements are not. It was false where a paired measurement did
not find it again (it is dismissed), or where a person called it invalid. It was true where it was confirmed, or where a
person acknowledged it, expected it or fixed it. The rest is not decided yet, and counts for neither.

The interval is Wilson's (Wilson 1927, Probable inference, the law of succession, and statistical inference), which
holds for few decisions too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import datetime

from roofwatch.db.values import Regression, RegressionState, Verdict

Key = tuple[str, str, str, str]
_Z_95 = 1.959964
"""Quantile of the normal distribution for an interval of 95 %."""


@dataclass(frozen=True)
class FalseAlarms:
    told_count: int
    refuted_count: int
    """Measured again in pairs and not there."""
    invalid_count: int
    """Called none by a person, and not refuted."""
    true_count: int
    """Confirmed by a measurement, or taken as real by a person."""

    @property
    def false_count(self) -> int:
        return self.refuted_count + self.invalid_count

    @property
    def decided_count(self) -> int:
        return self.false_count + self.true_count

    @property
    def rate(self) -> float | None:
        """False ones among those decided; None before any is."""
        return self.false_count / self.decided_count if self.decided_count else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the rate, with 95 %."""
        rate, count = self.rate, self.decided_count
        if rate is None:
            return None
        spread = _Z_95**2 / count
        centre = (rate + spread / 2) / (1 + spread)
        half = _Z_95 * math.sqrt(rate * (1 - rate) / count + spread / (4 * count)) / (1 + spread)
        return max(centre - half, 0.0), min(centre + half, 1.0)


def count_false_alarms(
    regressions: Iterable[Regression],
    *,
    called_none: Set[Key],
    called_real: Set[Key],
    since: datetime | None,
) -> FalseAlarms:
    """Count what was told.

    Args:
        regressions: All that were judged; improvements are left out.
        called_none: Those that a person called none, by `Regression.key`.
        called_real: Those that a person acknowledged, expected or fixed.
        since: Of the commits that count; None for all.
    """
    told = [
        one
        for one in regressions
        if one.verdict is Verdict.REGRESSED and (since is None or one.commit.committed_at >= since)
    ]
    standing = [one for one in told if one.state is not RegressionState.DISMISSED]
    real = [one for one in standing if one.key not in called_none and (one.is_confirmed or one.key in called_real)]
    return FalseAlarms(
        told_count=len(told),
        refuted_count=len(told) - len(standing),
        invalid_count=sum(one.key in called_none for one in standing),
        true_count=len(real),
    )
