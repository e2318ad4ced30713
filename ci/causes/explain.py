"""Possible causes of a change: what else changed there, as suspects with odds and a sentence each.
Pure.

The runs just before a step are compared with those just after it. Whatever changed with the level
is a suspect; whatever is known not to have changed is excluded. Evidence gives a cause odds against
`unknown`, which has odds of 1. A weight is a cause's share of all odds, so no cause is certain.
docs/explanation/causes.md lists and argues the odds.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.ab.clock import GONE, clock_step
from roofwatch.ci.ab.compare import PairedEstimate
from roofwatch.ci.causes.evidence import Observation
from roofwatch.model.history import Cause, CommitRef, RunSetting, SeriesPoint, Suspect

NEAR_RUNS = 8
"""Runs on either side of a step that are compared."""

_AT_STEP = 9.0
"""Odds of a change exactly at the step: such commits are few, so coincidence is rare."""
_NEAR_STEP = 3.0
"""Odds of a change at a neighbouring commit that the series does not exclude."""
_PAIRED = 99.0
"""Odds of the code if base and head differed in one job, where nothing else was different."""
_CLOCK_EXPLAINS = 19.0
"""Odds of the clock if the change is gone in clock cycles."""
_OLD_CODE_CHANGED = 19.0
"""Odds of the runner if old code changed too and no other change of the environment is recorded."""
_CONTRADICTED = 1 / 9
"""Factor on the odds of a cause that a measurement of old code contradicts."""
_SAME_WORK = 1 / 3
"""Factor on the odds of the code if no hardware counter changed."""
_POSSIBLE = 1.0
"""Odds without evidence for or against."""
_MIN_WEIGHT = 0.02
"""A cause with less weight is not reported."""

_NamedValues = tuple[tuple[str, str], ...]
_SETTINGS: Mapping[Cause, Callable[[RunSetting], _NamedValues]] = {
    Cause.DRIVER: lambda setting: (("driver", setting.driver_version or "unknown"),),
    Cause.TOOLCHAIN: lambda setting: setting.toolchain,
    Cause.HARNESS: lambda setting: (("harness", setting.harness_version),),
    Cause.RUNNER: lambda setting: setting.machine,
}
"""The part of a run's setting that each cause changes."""


@dataclass(frozen=True)
class Odds:
    """Odds of one cause against `unknown`, with the evidence."""

    against_unknown: float
    sentence: str

    def updated(self, sentence: str, *, factor: float = 1.0, at_least: float = 0.0) -> "Odds":
        sentences = "; ".join(filter(None, (self.sentence, sentence)))
        return Odds(max(self.against_unknown * factor, at_least), sentences)


_Odds = dict[Cause, Odds]


@dataclass(frozen=True)
class CodeObservation:
    """How the machine code differs between both sides of a step."""

    changed_targets: int
    known_targets: int
    facts: str
    """Changed facts of one target, in words."""
    is_worse: bool
    """A decisive fact changed in the same direction as the time."""


@dataclass(frozen=True)
class ChangeContext:
    """One change of a series and the evidence about it."""

    before: Sequence[SeriesPoint]
    """The last runs of the old level."""
    after: Sequence[SeriesPoint]
    """The first runs of the new one."""
    log_change: float = math.inf
    candidates: frozenset[CommitRef] = frozenset()
    """Commits at which the change may lie."""
    code: CodeObservation | None = None
    """None if the machine code of a side is not known."""
    paired: PairedEstimate | None = None
    """Base against head in one job, if that confirmed the step."""
    counters: Observation | None = None
    launches: Observation | None = None
    """Launches that may explain the change; `has_changed` if they changed exactly at the step."""
    measured_again: Observation | None = None
    """Old commits, measured again during the new level."""
    sources: Observation | None = None
    """Whether the sources that an imported kernel uses changed, if they are known."""
    is_imported: bool = False
    """Whether another tool measured it, so that no machine code is recorded."""


def explain(context: ChangeContext) -> tuple[Suspect, ...]:
    """List the possible causes of a step of a time, the likeliest first; `unknown` is always among
    them.
    """
    odds: _Odds = {}
    flip = _autotune(context)
    if flip is not None:
        odds[Cause.AUTOTUNE] = flip
    # a pair shares one job, so nothing of the environment can differ
    if context.paired is None:
        odds |= _environment(context)
        clock = _clock(context)
        if clock is not None:
            odds[Cause.CLOCK] = clock
    code = _code(context, is_toolchain_suspected=Cause.TOOLCHAIN in odds)
    if context.counters is not None and code.against_unknown:
        factor = 1.0
        if context.paired is None and not context.counters.has_changed:
            factor = _SAME_WORK
        code = code.updated(context.counters.sentence, factor=factor)
    odds[Cause.CODE] = code
    if context.launches is not None:
        _add_launches(odds, context.launches, is_paired=context.paired is not None)
    if context.paired is None and context.measured_again is not None:
        _add_measured_again(odds, context.measured_again)
    if context.sources is not None:
        _add_sources(odds, context.sources)
    return weigh(odds)


def explain_drift(context: ChangeContext) -> tuple[Suspect, ...]:
    """List the possible causes of a slow drift: of everything recorded, only the clock drifts."""
    clock = _clock(context)
    if clock is None:
        return weigh({})
    return weigh({Cause.CLOCK: clock})


def explain_outcome(last: SeriesPoint, changed: SeriesPoint, sentence: str) -> tuple[Suspect, ...]:
    """List the possible causes of a new or fixed failure, from the runs on both sides of it."""
    odds = _environment(ChangeContext([last], [changed]))
    odds[Cause.CODE] = Odds(_AT_STEP, sentence)
    return weigh(odds)


def explain_bridge(
    before: Sequence[SeriesPoint], after: Sequence[SeriesPoint]
) -> tuple[Suspect, ...]:
    """List what changed between two groups of runs of one commit, whose code is the same."""
    odds: _Odds = {}
    for cause, suspect in _environment(ChangeContext(before, after)).items():
        odds[cause] = suspect.updated("the code was the same", at_least=_PAIRED)
    if not odds:
        odds[Cause.RUNNER] = Odds(_PAIRED, "the code was the same")
    return weigh(odds)


def explain_secondary(context: ChangeContext, metric: str) -> tuple[Suspect, ...]:
    """List the possible causes of a changed error, memory or host time of a launch.

    Equal machine code excludes nothing of the last two: the launcher allocates, and the host
    launches.
    """
    odds = _environment(context)
    is_toolchain_suspected = Cause.TOOLCHAIN in odds
    if metric == "peak_allocated_bytes":
        sentence = "the launcher allocates the memory, and the commit may have changed it"
        # another version of torch may allocate differently
        code = Odds(_POSSIBLE if is_toolchain_suspected else _AT_STEP, sentence)
    elif metric == "host_ns":
        sentence = (
            "the commit may have changed what the host does to launch it; the kernel on "
            "the device is not timed here"
        )
        code = Odds(_POSSIBLE, sentence)
    else:
        code = _code(context, is_toolchain_suspected=is_toolchain_suspected)
    return weigh({**odds, Cause.CODE: code})


# --- the code


def _code(context: ChangeContext, *, is_toolchain_suspected: bool) -> Odds:
    code = context.code
    if code is not None and not code.changed_targets:
        return Odds(
            0.0,
            f"machine code unchanged on all {code.known_targets} targets, so the kernel's code is "
            f"not it",
        )
    confirmation = ""
    if context.paired is not None:
        confirmation = (
            f"confirmed side by side in one job ({context.paired.relative_change:+.1%}), where "
            "only the commit differed"
        )
    if code is None and confirmation:
        return Odds(_PAIRED, confirmation)
    if code is None and context.is_imported:
        return Odds(
            _POSSIBLE,
            "the commit may have done it: roofwatch import --repository tells whether the sources "
            "changed",
        )
    if code is None:
        return Odds(
            _POSSIBLE,
            "the commit may have done it: no machine code of this implementation is recorded",
        )
    facts = "; registers, spills and shared memory unchanged"
    if code.facts:
        facts = f": {code.facts}"
    sentence = (
        f"machine code changed on {code.changed_targets} of {code.known_targets} targets{facts}"
    )
    if confirmation:
        return Odds(_PAIRED, f"{sentence}; {confirmation}")
    if is_toolchain_suspected:
        return Odds(_POSSIBLE, f"{sentence}, as expected from another compiler")
    if code.is_worse:
        return Odds(2 * _AT_STEP, sentence)
    return Odds(_AT_STEP, sentence)


def _add_launches(odds: _Odds, launches: Observation, *, is_paired: bool) -> None:
    """Suspect the host code, which equal machine code does not exclude, or the libraries of another
    toolchain.
    """
    code = odds.get(Cause.CODE, Odds(0.0, ""))
    if Cause.TOOLCHAIN in odds:
        odds[Cause.TOOLCHAIN] = odds[Cause.TOOLCHAIN].updated(launches.sentence)
        odds[Cause.CODE] = code.updated("", at_least=_POSSIBLE)
        return
    at_least = _NEAR_STEP
    if is_paired:
        at_least = _PAIRED
    elif launches.has_changed:
        at_least = _AT_STEP
    odds[Cause.CODE] = code.updated(launches.sentence, at_least=at_least)


def _add_sources(odds: _Odds, sources: Observation) -> None:
    """Suspect changed sources; of unchanged ones, the environment until something else is shown."""
    if sources.has_changed:
        odds[Cause.CODE] = Odds(_AT_STEP, sources.sentence)
        return
    odds[Cause.CODE] = Odds(0.0, sources.sentence)
    if not odds.keys() & _SETTINGS.keys():
        odds[Cause.RUNNER] = Odds(_AT_STEP, f"{sources.sentence}, so the environment may have")


# --- the autotuner


def _autotune(context: ChangeContext) -> Odds | None:
    old_choices = _choices(context.before)
    new_choices = _choices(context.after)
    for function, key in sorted(old_choices.keys() & new_choices.keys()):
        old_configurations = old_choices[function, key]
        new_configurations = new_choices[function, key]
        if old_configurations.isdisjoint(new_configurations):
            old_text = " or ".join(sorted(old_configurations))
            new_text = " or ".join(sorted(new_configurations))
            return Odds(
                _AT_STEP,
                f"the autotuner of {function} chose {new_text} after it, {old_text} before",
            )
    return None


def _choices(runs: Sequence[SeriesPoint]) -> dict[tuple[str, str], set[str]]:
    """Configurations that the autotuner chose, by function and key of its cache."""
    configurations: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for choice in run.choices:
            configurations[choice.function, choice.key].add(choice.configuration)
    return configurations


# --- the environment


def _environment(context: ChangeContext) -> _Odds:
    """Causes whose setting changed with the level, or near it."""
    causes: _Odds = {}
    for cause, read in _SETTINGS.items():
        old_settings = _settings_of(context.before, read)
        new_settings = _settings_of(context.after, read)
        if not old_settings or not new_settings:
            continue
        odds = _setting_change(old_settings, new_settings, context.candidates)
        if odds is not None:
            causes[cause] = odds
    return causes


_Settings = Sequence[tuple[CommitRef, Mapping[str, str]]]
"""Part of the setting of each run, with its commit."""


def _settings_of(
    runs: Sequence[SeriesPoint],
    read: Callable[[RunSetting], _NamedValues],
) -> _Settings:
    settings = [(run.commit, run.setting) for run in runs]
    return [(commit, dict(read(setting))) for commit, setting in settings if setting is not None]


def _setting_change(
    old_settings: _Settings, new_settings: _Settings, candidates: frozenset[CommitRef]
) -> Odds | None:
    at_step: list[str] = []
    near: list[str] = []
    _, last_old = old_settings[-1]
    _, first_new = new_settings[0]
    for name in {**last_old, **first_new}:
        old_values = [values.get(name) for _, values in old_settings]
        new_values = [values.get(name) for _, values in new_settings]
        if set(old_values).isdisjoint(new_values):
            at_step.append(_setting_text(name, old_values[-1], new_values[0]))
            continue
        changed_at = _commits_of_changes(name, [*old_settings, *new_settings])
        # once, for good, and at a commit where the change may lie
        if len(changed_at) == 1 and changed_at[0] in candidates:
            near.append(_setting_text(name, old_values[0], new_values[-1]))
    if at_step:
        return Odds(_AT_STEP, f"{', '.join(at_step)} with the first run of the new level")
    if near:
        return Odds(
            _NEAR_STEP, f"{', '.join(near)} at a neighbouring commit, where the step may also lie"
        )
    return None


def _setting_text(name: str, old_value: str | None, new_value: str | None) -> str:
    return f"{name} {old_value or 'unset'} → {new_value or 'unset'}"


def _commits_of_changes(name: str, settings: _Settings) -> list[CommitRef]:
    """The first commits of all runs whose value differs from that of the run before."""
    readings = [(commit, values.get(name)) for commit, values in settings]
    commits = []
    for (_, value), (next_commit, next_value) in pairwise(readings):
        if value != next_value:
            commits.append(next_commit)
    return commits


def _add_measured_again(odds: _Odds, again: Observation) -> None:
    surroundings = [cause for cause in (*_SETTINGS, Cause.CLOCK) if cause in odds]
    code = odds[Cause.CODE]
    # old code did not change, so the environment did not do it
    if not again.has_changed:
        for cause in surroundings:
            odds[cause] = odds[cause].updated(again.sentence, factor=_CONTRADICTED)
        if code.against_unknown:
            odds[Cause.CODE] = code.updated(again.sentence, at_least=_AT_STEP)
        return
    # old code changed too: the environment did it
    likeliest = max(
        surroundings, key=lambda cause: odds[cause].against_unknown, default=Cause.RUNNER
    )
    if likeliest in odds and odds[likeliest].against_unknown >= _AT_STEP:
        odds[likeliest] = odds[likeliest].updated(again.sentence)
    else:
        runner = odds.get(Cause.RUNNER, Odds(0.0, ""))
        odds[Cause.RUNNER] = runner.updated(again.sentence, at_least=_OLD_CODE_CHANGED)
    odds[Cause.CODE] = code.updated("", factor=_CONTRADICTED)


# --- the clock


def _clock(context: ChangeContext) -> Odds | None:
    throttled = _throttled(context)
    step = clock_step(context.before, context.after, context.log_change)
    if step is None or not step.is_opposed:
        if not throttled:
            return None
        return Odds(_AT_STEP, throttled)
    sentences = "; ".join(filter(None, [step.in_words(), throttled]))
    if step.share_in_cycles <= GONE:
        return Odds(_CLOCK_EXPLAINS, sentences)
    return Odds(_NEAR_STEP * min(1.0, 1 - step.share_in_cycles), sentences)


def _throttled(context: ChangeContext) -> str:
    """What throttled most runs of the slower level alone; empty if nothing did."""
    slower, faster = context.before, context.after
    if context.log_change > 0:
        slower, faster = context.after, context.before
    usual_reasons = {reason for run in faster for reason in run.degraded_by}
    new_reasons: set[str] = set()
    throttled_count = 0
    for run in slower:
        unusual = set(run.degraded_by) - usual_reasons
        throttled_count += bool(unusual)
        new_reasons |= unusual
    if 2 * throttled_count <= len(slower):
        return ""
    return (
        f"{throttled_count} of {len(slower)} runs on the slower level were held back by "
        f"{', '.join(sorted(new_reasons))}"
    )


# --- weights


def weigh(odds: Mapping[Cause, Odds]) -> tuple[Suspect, ...]:
    """Convert odds to suspects, the likeliest first, with `unknown` among them. Odds of 0 exclude a
    cause.
    """
    total = 1.0 + sum(cause_odds.against_unknown for cause_odds in odds.values())
    suspects: list[Suspect] = []
    excluded: list[str] = []
    for cause, cause_odds in odds.items():
        if cause_odds.against_unknown > 0:
            weight = cause_odds.against_unknown / total
            suspects.append(Suspect(cause, weight, cause_odds.sentence))
        elif cause_odds.sentence:
            excluded.append(cause_odds.sentence)
    unknown = "no recorded change coincides"
    if suspects:
        unknown = "unknown cause"
    sentence = "; ".join([unknown, *excluded])
    suspects.append(Suspect(Cause.UNKNOWN, 1.0 / total, sentence))
    return ranked(suspects)


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Sort by weight, the likeliest first; of equal weights, `unknown` first."""
    order = [Cause.UNKNOWN, *Cause]

    def rank(suspect: Suspect) -> tuple[float, int]:
        # weights that differ by rounding only are equal
        return -round(suspect.weight, 9), order.index(suspect.cause)

    return tuple(sorted(suspects, key=rank))


def cause_of(suspects: Sequence[Suspect]) -> Cause:
    if not suspects:
        return Cause.UNKNOWN
    return ranked(suspects)[0].cause


def combine(several: Sequence[Sequence[Suspect]]) -> tuple[Suspect, ...]:
    """Combine the suspects of many change points: the mean of their weights, each with its
    strongest sentence.
    """
    if not several:
        return weigh({})
    by_cause: dict[Cause, list[Suspect]] = defaultdict(list)
    for suspects in several:
        for suspect in suspects:
            by_cause[suspect.cause].append(suspect)
    combined = []
    for cause, same_cause in by_cause.items():
        weight = sum(suspect.weight for suspect in same_cause) / len(several)
        if weight < _MIN_WEIGHT and cause is not Cause.UNKNOWN:
            continue
        sentence = max(same_cause, key=lambda suspect: suspect.weight).sentence
        if len(same_cause) < len(several):
            sentence += f" ({len(same_cause)} of {len(several)} series)"
        combined.append(Suspect(cause, weight, sentence))
    return ranked(combined)
