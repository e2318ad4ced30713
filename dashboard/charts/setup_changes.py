"""Where driver, toolchain, harness or timing of a series changed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.model.history import CommitRef, RunSetting, Series, SeriesPoint

_PointsByRun = dict[str, SeriesPoint]


@dataclass(frozen=True)
class SetupMark:
    """From this commit on, runs of a runner class were measured with another setting."""

    commit: CommitRef
    words: tuple[str, ...]
    """One text per change, such as `triton 3.6.0 → 3.7.0`."""


def setting_changes(series: Iterable[Series]) -> list[SetupMark]:
    """Find the changes over all runs of some series, ordered by commit, without duplicates.

    Settings are followed per runner class, timings per series, because cases of one run may differ
    in timing.
    """
    changes: list[SetupMark] = []
    points_by_class: defaultdict[str, _PointsByRun] = defaultdict(dict)
    for line in series:
        changes += _timing_changes(line.points)
        for point in line.points:
            # every case of a run has the same setting, so one point stands for the run
            points_by_run = points_by_class[line.key.runner_class]
            points_by_run[point.run_id] = point
    for points_by_run in points_by_class.values():
        changes += _setting_changes(points_by_run.values())
    # several series may show the same change
    distinct_changes = dict.fromkeys(changes)
    return sorted(distinct_changes, key=lambda change: change.commit)


def _setting_changes(points: Iterable[SeriesPoint]) -> Iterator[SetupMark]:
    """Find the changes of a runner class, by one point of each run."""
    previous: RunSetting | None = None
    in_order = sorted(points, key=lambda point: (point.commit, point.measured_at))
    for point in in_order:
        # imported runs know no setting, which is no change
        if point.setting is None:
            continue
        if previous is not None and previous != point.setting:
            differences = _differences(previous, point.setting)
            yield SetupMark(point.commit, tuple(differences))
        previous = point.setting


def _timing_changes(points: Iterable[SeriesPoint]) -> Iterator[SetupMark]:
    """Find the changes of how a series was timed."""
    timed = [point for point in points if point.timing]
    for previous, point in pairwise(timed):
        if previous.timing != point.timing:
            text = f"timed by {previous.timing} → {point.timing}"
            yield SetupMark(point.commit, (text,))


def _differences(previous: RunSetting, setting: RunSetting) -> Iterator[str]:
    """Write each value that differs, such as `driver 570.1 → 580.2`."""
    old_values = _named(previous)
    new_values = _named(setting)
    # a setting may appear or vanish
    for name in old_values | new_values:
        old_value = old_values.get(name)
        new_value = new_values.get(name)
        if old_value != new_value:
            yield f"{name} {old_value or 'none'} → {new_value or 'none'}"


def _named(setting: RunSetting) -> dict[str, str | None]:
    return {
        "harness": setting.harness_version,
        "driver": setting.driver_version,
        "compute capability": setting.compute_capability,
        **dict(setting.toolchain),
        **dict(setting.machine),
    }
