"""What changed in the environment of the runs around a step: driver, toolchain, harness, machine.
Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from roofwatch.ci.causes.evidence import Observation
from roofwatch.ci.causes.odds import AT_STEP, NEAR_STEP, CauseOdds, Odds
from roofwatch.model.history import Cause, CommitRef, RunSetting, SeriesPoint

_OLD_CODE_CHANGED = 19.0
"""Odds of the runner if old code changed too and no other change of the environment is recorded."""
_CONTRADICTED = 1 / 9
"""Factor on the odds of a cause that a measurement of old code contradicts."""

_NamedValues = tuple[tuple[str, str], ...]
SETTINGS: Mapping[Cause, Callable[[RunSetting], _NamedValues]] = {
    Cause.DRIVER: lambda setting: (("driver", setting.driver_version or "unknown"),),
    Cause.TOOLCHAIN: lambda setting: setting.toolchain,
    Cause.HARNESS: lambda setting: (("harness", setting.harness_version),),
    Cause.RUNNER: lambda setting: setting.machine,
}
"""The part of a run's setting that each cause changes."""


def environment_odds(
    before: Sequence[SeriesPoint],
    after: Sequence[SeriesPoint],
    candidates: frozenset[CommitRef] = frozenset(),
) -> CauseOdds:
    """Odds of the causes whose setting changed with the level, or near it.

    Args:
        before: The last runs of the old level.
        after: The first runs of the new one.
        candidates: Commits at which the change may lie.
    """
    causes: CauseOdds = {}
    for cause, read in SETTINGS.items():
        old_settings = _settings_of(before, read)
        new_settings = _settings_of(after, read)
        # a run of an older version may not have recorded the setting
        if not old_settings or not new_settings:
            continue
        odds = _setting_change(old_settings, new_settings, candidates)
        if odds is not None:
            causes[cause] = odds
    return causes


_Settings = Sequence[tuple[CommitRef, Mapping[str, str]]]
"""Part of the setting of each run, with its commit."""


def _settings_of(
    runs: Sequence[SeriesPoint],
    read: Callable[[RunSetting], _NamedValues],
) -> _Settings:
    """Read a part of the setting of each run that recorded one."""
    settings = [(run.commit, run.setting) for run in runs]
    recorded = [(commit, setting) for commit, setting in settings if setting is not None]
    return [(commit, dict(read(setting))) for commit, setting in recorded]


def _setting_change(
    old_settings: _Settings,
    new_settings: _Settings,
    candidates: frozenset[CommitRef],
) -> Odds | None:
    """Odds of a part of the setting that changed; None if it did not.

    Args:
        old_settings: Of the last runs of the old level, at least one.
        new_settings: Of the first runs of the new one, at least one.
        candidates: Commits at which the step may lie.
    """
    changed_at_step: list[str] = []
    changed_nearby: list[str] = []
    _, last_old = old_settings[-1]
    _, first_new = new_settings[0]
    for name in {**last_old, **first_new}:
        old_values = [values.get(name) for _, values in old_settings]
        new_values = [values.get(name) for _, values in new_settings]
        # no run of one level had a value of the other
        if set(old_values).isdisjoint(new_values):
            change = _setting_text(name, old_values[-1], new_values[0])
            changed_at_step.append(change)
            continue
        changed_at = _commits_of_changes(name, [*old_settings, *new_settings])
        # once, for good, and at a commit where the change may lie
        if len(changed_at) == 1 and changed_at[0] in candidates:
            change = _setting_text(name, old_values[0], new_values[-1])
            changed_nearby.append(change)
    if changed_at_step:
        listed = ", ".join(changed_at_step)
        return Odds(AT_STEP, f"{listed} with the first run of the new level")
    if changed_nearby:
        listed = ", ".join(changed_nearby)
        return Odds(
            NEAR_STEP,
            f"{listed} at a neighbouring commit, where the step may also lie",
        )
    return None


def _setting_text(
    name: str,
    old_value: str | None,
    new_value: str | None,
) -> str:
    """`name base → head`."""
    return f"{name} {old_value or 'unset'} → {new_value or 'unset'}"


def _commits_of_changes(name: str, settings: _Settings) -> list[CommitRef]:
    """The first commits of all runs whose value differs from that of the run before."""
    readings = [(commit, values.get(name)) for commit, values in settings]
    commits = []
    for (_, value), (next_commit, next_value) in pairwise(readings):
        if value != next_value:
            commits.append(next_commit)
    return commits


def add_measured_again(odds: CauseOdds, again: Observation) -> None:
    """Update the odds by what old commits did when they were measured again."""
    all_surroundings = (*SETTINGS, Cause.CLOCK)
    surroundings = [cause for cause in all_surroundings if cause in odds]
    code = odds[Cause.CODE]
    # old code did not change, so the environment did not do it
    if not again.has_changed:
        for cause in surroundings:
            odds[cause] = odds[cause].updated(again.sentence, factor=_CONTRADICTED)
        if code.against_unknown:
            odds[Cause.CODE] = code.updated(again.sentence, at_least=AT_STEP)
        return
    # old code changed too: the environment did it
    likeliest = max(
        surroundings,
        key=lambda cause: odds[cause].against_unknown,
        default=Cause.RUNNER,
    )
    if likeliest in odds:
        is_recorded = odds[likeliest].against_unknown >= AT_STEP
    else:
        is_recorded = False
    # what no record explains is the runner's
    if is_recorded:
        odds[likeliest] = odds[likeliest].updated(again.sentence)
    else:
        runner = odds.get(Cause.RUNNER, Odds(0.0, ""))
        odds[Cause.RUNNER] = runner.updated(again.sentence, at_least=_OLD_CODE_CHANGED)
    odds[Cause.CODE] = code.updated("", factor=_CONTRADICTED)
