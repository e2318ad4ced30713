"""Judge made-up series value by value, as the service does, beside a judgement of the whole after every value.

    python bench/judging_on.py [--series N]

Series with and without steps in nine kinds of noise. Prints, for each kind, how many end with the same steps told as by
a judgement of all of them, how much later a step is told, and how much of the history is read meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.detector_series import planted_series
from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.ci.thresholds import Thresholds
from tests.ci.following import follow, look_whole

_NEAR = 5
"""Commits by which two steps may differ and be the same."""
_LIMITS = Thresholds()


@dataclass(frozen=True)
class Outcome:
    is_same: bool
    """In the end the same steps are told, to the commit."""
    is_alike: bool
    """The same, to five commits."""
    delays: list[int]
    """Commits by which each step is told later than by a judgement of all after every commit."""
    values: int
    values_read: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--series", type=int, default=315)
    arguments = parser.parse_args()
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    for number, planted in enumerate(itertools.islice(planted_series(2027), arguments.series)):
        outcomes[planted.kind].append(compare(planted.values.tolist(), f"series {number}"))
    for kind, own in outcomes.items():
        print(f"{kind:18} {_summary(own)}")
    print(f"{'all':18} {_summary(list(itertools.chain(*outcomes.values())))}")


def compare(values: list[float], name: str) -> Outcome:
    followed = follow(values, name=name)
    told = [sorted(map(_place, findings)) for findings in followed.findings]
    whole = sorted(map(_place, look_whole(values).findings))
    at_once = [_steps_of(values[: number + 1]) for number in range(len(values))]
    firsts = [(_first(told, step), _first(at_once, step)) for step in whole]
    return Outcome(
        is_same=told[-1] == whole,
        is_alike=len(told[-1]) == len(whole)
        and all(abs(one - other) <= _NEAR for one, other in zip(told[-1], whole, strict=True)),
        delays=[max(0, first - best) for first, best in firsts if first is not None and best is not None],
        values=len(values),
        values_read=sum(number + 1 for number in followed.looks),
    )


def _place(finding: TrendFinding) -> int:
    return finding.change.commit.first_parent_count - 1


def _steps_of(values: list[float]) -> list[int]:
    steps = find_change_points(values, min_relative_change=_LIMITS.trend_relative_change)
    return [step.index for step in steps]


def _first(told: Sequence[Sequence[int]], step: int) -> int | None:
    """The commit from which on the step is told to the end."""
    since = None
    for number, places in enumerate(told):
        if not any(abs(place - step) <= _NEAR for place in places):
            since = None
        elif since is None:
            since = number
    return since


def _summary(outcomes: Sequence[Outcome]) -> str:
    delays = [delay for one in outcomes for delay in one.delays] or [0]
    read = sum(one.values_read for one in outcomes) / sum(one.values for one in outcomes)
    return (
        f"{len(outcomes):3} series: the same in the end {np.mean([one.is_same for one in outcomes]):4.0%}, to "
        f"{_NEAR} commits {np.mean([one.is_alike for one in outcomes]):4.0%}; {len(delays)} steps told at the same "
        f"commit {np.mean(np.array(delays) == 0):4.0%}, 95 % within {np.quantile(delays, 0.95):.0f}; each value read "
        f"{read:.1f} times"
    )


if __name__ == "__main__":
    main()
