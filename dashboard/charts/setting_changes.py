"""Where the setting of a series changed: versions, driver, machine, timer and cache state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.db.values import CommitRef, RunSetting, Series, SeriesPoint


@dataclass(frozen=True)
class SettingChange:
    """From this commit on, runs of a runner class were measured with another setting."""

    commit: CommitRef
    words: tuple[str, ...]
    """One text per change, such as `triton 3.6.0 → 3.7.0`."""


def setting_changes(series: Iterable[Series]) -> list[SettingChange]:
    """Find the changes over all runs of some series, ordered by commit, without duplicates.

    Settings are followed per runner class, timings per series, because cases of one run may differ in timing.
    """
    by_class: dict[str, dict[str, SeriesPoint]] = {}
    found: list[SettingChange] = []
    for one in series:
        by_class.setdefault(one.key.runner_class, {}).update({point.run_id: point for point in one.points})
        for before, after in pairwise(point for point in one.points if point.timing):
            if before.timing != after.timing:
                found.append(SettingChange(after.commit, (f"timed by {before.timing} → {after.timing}",)))
    for points in by_class.values():
        known = [point for point in points.values() if point.setting is not None]
        known.sort(key=lambda point: (point.commit, point.measured_at))
        for before, after in pairwise(known):
            if before.setting is not None and after.setting is not None and before.setting != after.setting:
                found.append(SettingChange(after.commit, tuple(_differences(before.setting, after.setting))))
    return sorted(dict.fromkeys(found), key=lambda change: change.commit)


def _differences(before: RunSetting, after: RunSetting) -> Iterator[str]:
    was, now = _named(before), _named(after)
    for name in dict.fromkeys([*was, *now]):
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
