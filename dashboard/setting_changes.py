"""Where what a series was measured with changed: versions, driver, machine, timer and cache state. Pure; nothing is
judged by it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.db.values import CommitRef, RunSetting, Series, SeriesPoint


@dataclass(frozen=True)
class SettingChange:
    """From this commit on the runs of a runner class were measured with something else."""

    commit: CommitRef
    words: tuple[str, ...]
    """`triton 3.6.0 → 3.7.0`, one for each thing that changed."""


def setting_changes(series: Iterable[Series]) -> list[SettingChange]:
    """Over all runs behind some series, in the order of commits; each runner class is followed by itself, and the way
    of timing in each series, as the cases of a run may differ in it. What several series tell alike is told once.
    """
    by_class: dict[str, dict[str, SeriesPoint]] = {}
    timings: list[SettingChange] = []
    for one in series:
        by_class.setdefault(one.key.runner_class, {}).update({point.run_id: point for point in one.points})
        timings += _timing_changes(one.points)
    found = [change for points in by_class.values() for change in _changes(points.values())]
    return sorted(dict.fromkeys(found + timings), key=lambda change: change.commit)


def _timing_changes(points: Iterable[SeriesPoint]) -> Iterator[SettingChange]:
    timed = [point for point in points if point.timing]
    for before, after in pairwise(timed):
        if before.timing != after.timing:
            yield SettingChange(after.commit, (f"timed by {before.timing} → {after.timing}",))


def _changes(points: Iterable[SeriesPoint]) -> Iterator[SettingChange]:
    before: RunSetting | None = None
    for point in sorted(points, key=lambda point: (point.commit, point.measured_at)):
        if point.setting is None:
            continue
        if before is not None and before != point.setting:
            yield SettingChange(point.commit, tuple(_words(before, point.setting)))
        before = point.setting


def _words(before: RunSetting, after: RunSetting) -> Iterator[str]:
    was, now = _named(before), _named(after)
    for name in [*was, *(name for name in now if name not in was)]:
        if was.get(name) != now.get(name):
            yield f"{name} {was.get(name) or 'none'} → {now.get(name) or 'none'}"


def _named(setting: RunSetting) -> dict[str, str | None]:
    return {
        "harness": setting.harness_version,
        "driver": setting.driver_version,
        "compute capability": setting.compute_capability,
        **dict(setting.toolchain),
        **dict(setting.machine),
    }
