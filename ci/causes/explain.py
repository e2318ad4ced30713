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
from roofwatch.ci.ab.compare import Comparison
from roofwatch.ci.causes.evidence import Evidence
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

_SETTINGS: Mapping[Cause, Callable[[RunSetting], tuple[tuple[str, str], ...]]] = {
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
class CodeChange:
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
    code: CodeChange | None = None
    """None if the machine code of a side is not known."""
    paired: Comparison | None = None
    """Base against head in one job, if that confirmed the step."""
    counters: Evidence | None = None
    launches: Evidence | None = None
    """Launches that may explain the change; `has_changed` if they changed exactly at the step."""
    measured_again: Evidence | None = None
    """Old commits, measured again during the new level."""
    sources: Evidence | None = None
    """Whether the sources that an imported kernel uses changed, if they are known."""


def explain(context: ChangeContext) -> tuple[Suspect, ...]:
    """List the possible causes of a step of a time, the likeliest first; `unknown` is always among
    them.
    """
    odds: _Odds = {}
    flip = _autotune(context)
    if flip is not None:
        odds[Cause.AUTOTUNE] = flip
    if context.paired is None:
        odds |= _environment(context)
        clock = _clock(context)
        if clock is not None:
            odds[Cause.CLOCK] = clock
    code = _code(context, is_toolchain_suspected=Cause.TOOLCHAIN in odds)
    if context.counters is not None and code.against_unknown:
        is_same_work = not context.counters.has_changed and context.paired is None
        code = code.updated(context.counters.sentence, factor=_SAME_WORK if is_same_work else 1.0)
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
    return weigh({} if clock is None else {Cause.CLOCK: clock})


def explain_outcome(before: SeriesPoint, after: SeriesPoint, sentence: str) -> tuple[Suspect, ...]:
    """List the possible causes of a new or fixed failure."""
    return weigh(
        {**_environment(ChangeContext([before], [after])), Cause.CODE: Odds(_AT_STEP, sentence)}
    )


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
    code, paired = context.code, context.paired
    if code is not None and not code.changed_targets:
        return Odds(
            0.0,
            f"machine code unchanged on all {code.known_targets} targets, so the kernel's code is "
            f"not it",
        )
    again = ""
    if paired is not None:
        again = (
            f"confirmed side by side in one job ({paired.relative_change:+.1%}), where only "
            f"the commit differed"
        )
    if code is None:
        unrecorded = (
            "the commit may have done it: no machine code of this implementation is recorded"
        )
        return Odds(_PAIRED, again) if again else Odds(_POSSIBLE, unrecorded)
    changed = f"machine code changed on {code.changed_targets} of {code.known_targets} targets"
    changed += (
        f": {code.facts}" if code.facts else "; registers, spills and shared memory unchanged"
    )
    if again:
        return Odds(_PAIRED, f"{changed}; {again}")
    if is_toolchain_suspected:
        return Odds(_POSSIBLE, f"{changed}, as expected from another compiler")
    return Odds(2 * _AT_STEP if code.is_worse else _AT_STEP, changed)


def _add_launches(odds: _Odds, launches: Evidence, *, is_paired: bool) -> None:
    """Suspect the host code, which equal machine code does not exclude, or the libraries of another
    toolchain.
    """
    code = odds.get(Cause.CODE, Odds(0.0, ""))
    if Cause.TOOLCHAIN in odds:
        odds[Cause.TOOLCHAIN] = odds[Cause.TOOLCHAIN].updated(launches.sentence)
        odds[Cause.CODE] = code.updated("", at_least=_POSSIBLE)
    else:
        at_least = _PAIRED if is_paired else _AT_STEP if launches.has_changed else _NEAR_STEP
        odds[Cause.CODE] = code.updated(launches.sentence, at_least=at_least)


def _add_sources(odds: _Odds, sources: Evidence) -> None:
    """Suspect changed sources; of unchanged ones, the environment until something else is shown."""
    if sources.has_changed:
        odds[Cause.CODE] = Odds(_AT_STEP, sources.sentence)
        return
    odds[Cause.CODE] = Odds(0.0, sources.sentence)
    if not odds.keys() & _SETTINGS.keys():
        odds[Cause.RUNNER] = Odds(_AT_STEP, f"{sources.sentence}, so the environment may have")


# --- the autotuner


def _autotune(context: ChangeContext) -> Odds | None:
    before, after = _choices(context.before), _choices(context.after)
    for function, key in sorted(before.keys() & after.keys()):
        old, new = before[function, key], after[function, key]
        if old.isdisjoint(new):
            chosen, earlier = (" or ".join(sorted(side)) for side in (new, old))
            return Odds(
                _AT_STEP, f"the autotuner of {function} chose {chosen} after it, {earlier} before"
            )
    return None


def _choices(runs: Sequence[SeriesPoint]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for choice in run.choices:
            found[choice.function, choice.key].add(choice.configuration)
    return found


# --- the environment


def _environment(context: ChangeContext) -> _Odds:
    """Causes whose setting changed with the level, or near it."""
    found = {}
    for cause, read in _SETTINGS.items():
        before, after = (
            [(run.commit, dict(read(run.setting))) for run in runs if run.setting is not None]
            for runs in (context.before, context.after)
        )
        if (
            before
            and after
            and (odds := _setting_change(before, after, context.candidates)) is not None
        ):
            found[cause] = odds
    return found


_Settings = Sequence[tuple[CommitRef, Mapping[str, str]]]


def _setting_change(
    before: _Settings, after: _Settings, candidates: frozenset[CommitRef]
) -> Odds | None:
    at_step, near = [], []
    for name in {**before[-1][1], **after[0][1]}:
        old, new = ([values.get(name) for _, values in side] for side in (before, after))
        if set(old).isdisjoint(new):
            at_step.append(f"{name} {old[-1] or 'unset'} → {new[0] or 'unset'}")
            continue
        readings = [(commit, values.get(name)) for commit, values in (*before, *after)]
        changes = [
            commit for (_, value), (commit, next_value) in pairwise(readings) if value != next_value
        ]
        # once, for good, and at a commit where the change may lie
        if len(changes) == 1 and changes[0] in candidates:
            near.append(f"{name} {old[0] or 'unset'} → {new[-1] or 'unset'}")
    if at_step:
        return Odds(_AT_STEP, f"{', '.join(at_step)} with the first run of the new level")
    if near:
        return Odds(
            _NEAR_STEP, f"{', '.join(near)} at a neighbouring commit, where the step may also lie"
        )
    return None


def _add_measured_again(odds: _Odds, again: Evidence) -> None:
    surroundings = [cause for cause in (*_SETTINGS, Cause.CLOCK) if cause in odds]
    code = odds[Cause.CODE]
    if not again.has_changed:
        for cause in surroundings:
            odds[cause] = odds[cause].updated(again.sentence, factor=_CONTRADICTED)
        if code.against_unknown:
            odds[Cause.CODE] = code.updated(again.sentence, at_least=_AT_STEP)
        return
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
        return Odds(_AT_STEP, throttled) if throttled else None
    sentences = "; ".join(filter(None, [step.in_words(), throttled]))
    if step.share_in_cycles <= GONE:
        return Odds(_CLOCK_EXPLAINS, sentences)
    return Odds(_NEAR_STEP * min(1.0, 1 - step.share_in_cycles), sentences)


def _throttled(context: ChangeContext) -> str:
    """What throttled most runs of the slower level alone; empty if nothing did."""
    slower, faster = (
        (context.after, context.before)
        if context.log_change > 0
        else (context.before, context.after)
    )
    usual = {reason for point in faster for reason in point.degraded_by}
    held = [point for point in slower if set(point.degraded_by) - usual]
    if 2 * len(held) <= len(slower):
        return ""
    reasons = sorted({reason for point in held for reason in point.degraded_by} - usual)
    return (
        f"{len(held)} of {len(slower)} runs on the slower level were held back by "
        f"{', '.join(reasons)}"
    )


# --- weights


def weigh(odds: Mapping[Cause, Odds]) -> tuple[Suspect, ...]:
    """Convert odds to suspects, the likeliest first, with `unknown` among them. Odds of 0 exclude a
    cause.
    """
    likely = {cause: one for cause, one in odds.items() if one.against_unknown > 0}
    total = 1.0 + sum(one.against_unknown for one in likely.values())
    suspects = [
        Suspect(cause, one.against_unknown / total, one.sentence) for cause, one in likely.items()
    ]
    excluded = [one.sentence for one in odds.values() if one.against_unknown <= 0 and one.sentence]
    unknown = "unknown cause" if likely else "no recorded change coincides"
    return ranked([*suspects, Suspect(Cause.UNKNOWN, 1.0 / total, "; ".join([unknown, *excluded]))])


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Sort by weight, the likeliest first; of equal weights, `unknown` first."""
    order = [Cause.UNKNOWN, *Cause]
    return tuple(sorted(suspects, key=lambda one: (-round(one.weight, 9), order.index(one.cause))))


def cause_of(suspects: Sequence[Suspect]) -> Cause:
    return ranked(suspects)[0].cause if suspects else Cause.UNKNOWN


def combine(several: Sequence[Sequence[Suspect]]) -> tuple[Suspect, ...]:
    """Combine the suspects of many change points: the mean of their weights, each with its
    strongest sentence.
    """
    if not several:
        return weigh({})
    by_cause: dict[Cause, list[Suspect]] = defaultdict(list)
    for suspect in (suspect for suspects in several for suspect in suspects):
        by_cause[suspect.cause].append(suspect)
    combined = []
    for cause, own in by_cause.items():
        weight = sum(suspect.weight for suspect in own) / len(several)
        if weight >= _MIN_WEIGHT or cause is Cause.UNKNOWN:
            sentence = max(own, key=lambda suspect: suspect.weight).sentence
            note = "" if len(own) == len(several) else f" ({len(own)} of {len(several)} series)"
            combined.append(Suspect(cause, weight, sentence + note))
    return ranked(combined)
