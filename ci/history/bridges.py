"""Bridges: a commit measured with two drivers or toolchains shows what the software changed. Pure.

The source code is the same on both sides, so the difference belongs to the environment.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.ci.causes.explain import explain_bridge
from roofwatch.ci.changepoint.noise import deviation_of_differences, difference_error
from roofwatch.ci.changepoint.student import two_sided_p
from roofwatch.ci.history.finding import TrendFinding, windows_between
from roofwatch.ci.history.steps import Timeline, first_software
from roofwatch.model.history import ChangePoint, CommitRef, RunSetting, SeriesPoint
from roofwatch.model.verdict import THRESHOLDS, Status, Verdict

# fewer runs have no spread to compare with
_MIN_FOR_NOISE = 4
_NOISE_VALUES = 60
"""Values before the bridge that show the noise."""


@dataclass(frozen=True)
class MeasuredBridge:
    """One commit with the software before a change, and with the software after it."""

    commit: CommitRef
    before: Sequence[SeriesPoint]
    after: Sequence[SeriesPoint]

    @property
    def log_change(self) -> float:
        """ln(new / old) of the median in both environments."""
        new_level = _median(self.after)
        return math.log(new_level / _median(self.before))


def _median(runs: Sequence[SeriesPoint]) -> float:
    return statistics.median(run.value for run in runs if run.value is not None)


def find_bridges(line: Timeline) -> Iterator[MeasuredBridge]:
    """List the last commit of each software that was measured with the next one too."""
    last_bridges: dict[object, MeasuredBridge] = {}
    for commit, runs in line.points.items():
        before = first_software(runs)
        others = [run for run in runs if run not in before]
        # one software alone bridges nothing
        if not others:
            continue
        after = first_software(others)
        setting = after[0].setting
        new_software = None
        if setting is not None:
            new_software = setting.software
        # a later bridge to the same software replaces the earlier one
        last_bridges[new_software] = MeasuredBridge(
            commit=commit,
            before=before,
            after=after,
        )
    yield from last_bridges.values()


def values_across_bridges(line: Timeline) -> list[float]:
    """The values of a series as if the software that measured its first commit had measured all."""
    log_changes = {bridge.commit: bridge.log_change for bridge in find_bridges(line)}
    values: list[float] = []
    offset = 0.0
    for commit, value in zip(line.commits, line.values, strict=True):
        values.append(value * math.exp(-offset))
        offset += log_changes.get(commit, 0.0)
    return values


def bridge_findings(line: Timeline) -> Iterator[TrendFinding]:
    """Find the bridges over which a time changed by more than its noise."""
    smallest_log_change = math.log1p(THRESHOLDS.trend_relative_change)
    for bridge in find_bridges(line):
        log_change = abs(bridge.log_change)
        values_ns = _values_before(line, bridge)
        error = difference_error(
            deviation=_deviation(values_ns),
            base_count=len(bridge.before),
            head_count=len(bridge.after),
        )
        # a few runs still tell more than none
        degrees = max(_MIN_FOR_NOISE, len(values_ns) - 1)
        p_value = two_sided_p(log_change / error, degrees)
        is_sure = p_value <= THRESHOLDS.false_discovery_rate
        if is_sure and log_change >= smallest_log_change:
            yield _finding(line, bridge, p_value)


def _deviation(values_ns: Sequence[float]) -> float:
    """Standard deviation of the log time of a run, at least a sixth of the smallest change."""
    floor = math.log1p(THRESHOLDS.trend_relative_change) / 6
    if len(values_ns) < _MIN_FOR_NOISE:
        return floor
    logs = np.log(np.asarray(values_ns))
    return max(floor, deviation_of_differences(logs))


def _values_before(line: Timeline, bridge: MeasuredBridge) -> list[float]:
    """The newest values up to the commit of a bridge, which show the noise."""
    end = line.commits.index(bridge.commit) + 1
    start = max(0, end - _NOISE_VALUES)
    return line.values[start:end]


def _has_software(runs: Iterable[SeriesPoint], setting: RunSetting | None) -> bool:
    """Whether one of the runs had the software of a setting."""
    if setting is None:
        return False
    settings = [run.setting for run in runs if run.setting is not None]
    return any(known_setting.software == setting.software for known_setting in settings)


def _finding(
    line: Timeline,
    bridge: MeasuredBridge,
    p_value: float,
) -> TrendFinding:
    """Report a bridge as a change at the first later commit that has the new software."""
    before = _median(bridge.before)
    after = _median(bridge.after)
    new_software = bridge.after[0].setting
    later = (
        commit
        for commit in line.commits
        if commit > bridge.commit and _has_software(line.points[commit], new_software)
    )
    commit = next(later, bridge.commit)
    time = line.key.definition
    is_worse = time.is_worse(base=before, head=after)
    relative_change = after / before - 1
    change = ChangePoint(
        series=line.key,
        commit=commit,
        previous_commit=bridge.commit,
        verdict=Verdict.of_change(is_worse=is_worse),
        before=before,
        after=after,
        evidence=(
            f"the same commit, {bridge.commit.short_sha}, takes {time.format(before)} in "
            f"{len(bridge.before)} runs before and {time.format(after)} in {len(bridge.after)} "
            f"after the change ({relative_change:+.1%})"
        ),
        standard_errors=None,
    )
    window, reach = windows_between(
        commits=[bridge.commit, commit],
        first=1,
        last=1,
    )
    index = line.commits.index(commit)
    return TrendFinding(
        change=change,
        status=Status.UNCONFIRMED,
        suspects=explain_bridge(bridge.before, bridge.after),
        window=window,
        reach=reach,
        p_value=p_value,
        measured_on=min(run.measured_at for run in bridge.after).date(),
        runner_changed=True,
        is_bridge=True,
        outline=line.outline(index),
    )
