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
from roofwatch.ci.history.finding import Status, TrendFinding, windows_between
from roofwatch.ci.history.steps import Timeline, first_software
from roofwatch.model.history import ChangePoint, CommitRef, RunSetting, SeriesPoint
from roofwatch.model.verdict import THRESHOLDS, Verdict

# fewer runs have no spread to compare with
_MIN_FOR_NOISE = 4
_NOISE_VALUES = 60
"""Values before the bridge that show the noise."""


@dataclass(frozen=True)
class Bridge:
    """One commit with the software before a change, and with the software after it."""

    commit: CommitRef
    before: Sequence[SeriesPoint]
    after: Sequence[SeriesPoint]

    @property
    def log_change(self) -> float:
        return math.log(_median(self.after) / _median(self.before))


def _median(runs: Sequence[SeriesPoint]) -> float:
    return statistics.median(run.value for run in runs if run.value is not None)


def find_bridges(line: Timeline) -> Iterator[Bridge]:
    """List the last commit of each software that was measured with the next one too."""
    last: dict[object, Bridge] = {}
    for commit, runs in line.points.items():
        before = first_software(runs)
        others = [run for run in runs if run not in before]
        # one software alone bridges nothing
        if not others:
            continue
        after = first_software(others)
        setting = after[0].setting
        # a later bridge between the same two replaces the earlier one
        last[None if setting is None else setting.software] = Bridge(
            commit=commit, before=before, after=after
        )
    yield from last.values()


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
    smallest = math.log1p(THRESHOLDS.trend_relative_change)
    for bridge in find_bridges(line):
        log_change = bridge.log_change
        deviation = _deviation(line, bridge)
        error = difference_error(deviation, len(bridge.before), len(bridge.after))
        p_value = two_sided_p(abs(log_change) / error, _degrees(line, bridge))
        if abs(log_change) >= smallest and p_value <= THRESHOLDS.false_discovery_rate:
            yield _finding(line, bridge, p_value)


def _deviation(line: Timeline, bridge: Bridge) -> float:
    """Standard deviation of the log time of a run, before the bridge."""
    values = _values_before(line, bridge)
    floor = math.log1p(THRESHOLDS.trend_relative_change) / 6
    if len(values) < _MIN_FOR_NOISE:
        return floor
    return max(floor, deviation_of_differences(np.log(np.asarray(values))))


def _values_before(line: Timeline, bridge: Bridge) -> list[float]:
    end = line.commits.index(bridge.commit) + 1
    return line.values[max(0, end - _NOISE_VALUES) : end]


def _degrees(line: Timeline, bridge: Bridge) -> int:
    return max(_MIN_FOR_NOISE, len(_values_before(line, bridge)) - 1)


def _has_software(runs: Iterable[SeriesPoint], setting: RunSetting | None) -> bool:
    """Whether one of the runs had the software of a setting."""
    if setting is None:
        return False
    settings = [run.setting for run in runs if run.setting is not None]
    return any(known_setting.software == setting.software for known_setting in settings)


def _finding(line: Timeline, bridge: Bridge, p_value: float) -> TrendFinding:
    before = _median(bridge.before)
    after = _median(bridge.after)
    software = bridge.after[0].setting
    later = [
        commit
        for commit in line.commits
        if commit > bridge.commit and _has_software(line.points[commit], software)
    ]
    commit = bridge.commit
    if later:
        commit = later[0]
    time = line.key.definition
    is_worse = time.is_worse(base=before, head=after)
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
            f"after the change ({after / before - 1:+.1%})"
        ),
        standard_errors=None,
    )
    commits = [bridge.commit, commit]
    window, reach = windows_between(commits=commits, first=1, last=1)
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
