"""One series of times judged commit by commit, as the service does it, without a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import zip_longest

from roofwatch.ci.ab.pair_evidence import PairEvidence
from roofwatch.ci.history.full_analysis import WholeLook, look_at_series
from roofwatch.ci.history.standing import Standing, advanced
from roofwatch.ci.history.standing_bytes import from_bytes, to_bytes
from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.queries.run_results_values import JudgedRun, News, NewTime
from tests.builders import CASE_ID, NOON, make_commit_ref
from tests.ci.values import RUNNER_CLASS, make_series

_THRESHOLDS = Thresholds()
_BLOCKS = 3


@dataclass(frozen=True)
class Followed:
    """What a series told from commit to commit."""

    findings: list[tuple[TrendFinding, ...]]
    """After each commit."""
    looks: list[int]
    """Numbers of commits at which the whole history was read."""


def follow(values: Sequence[float], spreads: Sequence[float] | None = None, *, name: str = CASE_ID) -> Followed:
    """Judge a series after each of its values; each of three blocks, if the distance between its quartiles is given."""
    known: Sequence[float | None] = spreads if spreads is not None else [None] * len(values)
    standing: Standing | None = None
    findings: list[tuple[TrendFinding, ...]] = []
    looks = []
    for number, value in enumerate(values):
        if standing is not None:
            standing = advanced(name, from_bytes(to_bytes(standing)), *_brought(number, value, known[number]))
        if standing is None:
            look = look_whole(values[: number + 1], known[: number + 1])
            standing = look.standing
            findings.append(look.findings)
            looks.append(number)
        else:
            findings.append(findings[-1])
    return Followed(findings, looks)


def look_whole(values: Sequence[float], spreads: Sequence[float | None] = ()) -> WholeLook:
    """Judge all of a series at once."""
    series = make_series(values)
    points = [
        point
        if spread is None or point.value is None
        else replace(
            point, low=point.value * (1 - spread / 2), high=point.value * (1 + spread / 2), block_count=_BLOCKS
        )
        for point, spread in zip_longest(series.points, spreads)
    ]
    return look_at_series([replace(series, points=tuple(points))], "", PairEvidence((), _THRESHOLDS), _THRESHOLDS)


def _brought(number: int, value: float, spread: float | None) -> tuple[News, dict[int, JudgedRun]]:
    commit = make_commit_ref(number)
    at = NOON + timedelta(hours=number)
    run = JudgedRun(
        number=number,
        place=commit.first_parent_count,
        sha=commit.sha,
        started_at=at,
        measured_on=at.date(),
        runner_class=RUNNER_CLASS,
        is_pair=False,
        series_count=1,
    )
    time = NewTime(number, RUNNER_CLASS, "", value, relative_spread=spread, block_count=_BLOCKS)
    return News(1, times=[time]), {number: run}
