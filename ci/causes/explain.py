"""Why a time stepped: what else changed there, as suspects with odds and a sentence with numbers each. Pure.

The runs just before the step are held against those just after it. What changed with the level is a suspect; what
changed elsewhere, or came and went while the level stayed, is none; what is on record as unchanged is excluded.
docs/explanation/verdicts.md has the odds and argues them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.ab.clock import GONE, clock_step
from roofwatch.ci.ab.compare import Comparison
from roofwatch.ci.causes.evidence import CountedStep, LaunchedStep
from roofwatch.ci.causes.runner_evidence import RunnerEvidence, RunnerMove
from roofwatch.ci.causes.suspects import Odds, weigh
from roofwatch.db.values import Cause, CommitRef, RunSetting, SeriesPoint, Suspect

NEAR_RUNS = 8
"""Runs on either side that are looked at: a level's own, and near enough to share what else went on."""

_CHANGED_WITH_IT = 9.0
"""Odds of what changed exactly where the level did: commits with such a change are few, so coincidence is rare."""
_CHANGED_BESIDE_IT = 3.0
"""Odds of what changed at a neighbouring commit that the series does not exclude."""
_SEEN_SIDE_BY_SIDE = 99.0
"""Odds of the code when base and head differed in one job: nothing else was different."""
_EXPLAINED_BY_CLOCK = 19.0
"""Odds of the clock when the change is gone in clock cycles."""
_THERE_WITHOUT_IT = 19.0
"""Odds of the runner when old code shows the change too, and nothing else of the environment is on record."""
_SAID_OTHERWISE = 1 / 9
"""Factor on the odds of whatever a measurement of old code speaks against: the odds of what changes with a step, turned
round."""
_SAME_NOISE = 1 / 2
"""Factor on the odds of the runner where its noise is as before: half of what moves a level leaves the noise alone."""
_SAME_WORK = 1 / 3
"""Factor on the odds of the code when no hardware counter moved: the same work in another order is rare."""
_POSSIBLE = 1.0
"""Odds of what nothing speaks for or against."""


_SURROUNDINGS: Mapping[Cause, Callable[[RunSetting], tuple[tuple[str, str], ...]]] = {
    Cause.DRIVER: lambda setting: (("driver", setting.driver_version or "unknown"),),
    Cause.TOOLCHAIN: lambda setting: setting.toolchain,
    Cause.HARNESS: lambda setting: (("harness", setting.harness_version),),
    Cause.RUNNER: lambda setting: setting.machine,
}
"""Causes that a run's setting may show, and what of it."""


@dataclass(frozen=True)
class CodeChange:
    """What is known of the machine code on both sides of a step."""

    changed_targets: int
    known_targets: int
    facts: str
    """What changed of the target that says most, in words; empty if nothing did."""
    is_worse: bool
    """A fact that decides by itself changed the way the time did."""


@dataclass(frozen=True)
class ChangeContext:
    """One change of a series and what lies around it."""

    before: Sequence[SeriesPoint]
    """The last runs of the old level."""
    after: Sequence[SeriesPoint]
    """The first runs of the new one."""
    log_change: float
    candidates: frozenset[CommitRef]
    """Commits that may have done it."""
    code: CodeChange | None
    """None where no machine code is known on both sides."""
    paired: Comparison | None = None
    """Base against head, measured side by side, if they differed as the step says."""
    counted: CountedStep | None = None
    """Hardware counters of both levels, where both were read."""
    launched: LaunchedStep | None = None
    """What calls launched on both levels, where both were profiled."""
    runner: RunnerEvidence | None = None
    """What the runner showed of itself, by code that did not change."""


def explain(context: ChangeContext) -> tuple[Suspect, ...]:
    """Possible causes of a step, the likeliest first; `unknown` is always among them."""
    odds: dict[Cause, Odds] = {}
    flip = _autotune(context)
    if flip is not None:
        odds[Cause.AUTOTUNE] = flip
    if context.paired is None:
        odds |= dict(_environment(context))
        clock = _clock(context)
        if clock is not None:
            odds[Cause.CLOCK] = clock
    odds[Cause.CODE] = _with_counters(_code(context, is_toolchain_suspected=Cause.TOOLCHAIN in odds), context)
    odds = _with_launches(odds, context)
    if context.paired is None and context.runner is not None:
        odds = _with_runner(odds, context.runner)
    return weigh(odds)


def explain_drift(
    before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], log_change: float
) -> tuple[Suspect, ...]:
    """Possible causes of a slow drift, which no one commit has made: of what is recorded, the clock alone drifts."""
    clock = _clock(ChangeContext(before, after, log_change, frozenset(), None))
    return weigh({} if clock is None else {Cause.CLOCK: clock})


def explain_outcome(before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], sentence: str) -> tuple[Suspect, ...]:
    """Possible causes of something that began or ceased to work."""
    context = ChangeContext(before[-NEAR_RUNS:], after[:NEAR_RUNS], math.inf, frozenset(), None)
    return weigh({**dict(_environment(context)), Cause.CODE: Odds(_CHANGED_WITH_IT, sentence)})


def explain_error(context: ChangeContext) -> tuple[Suspect, ...]:
    """Possible causes of an error that grew or shrank: as of a time, but that no clock changes a result."""
    odds = dict(_environment(context))
    return weigh({**odds, Cause.CODE: _code(context, is_toolchain_suspected=Cause.TOOLCHAIN in odds)})


def explain_memory(context: ChangeContext) -> tuple[Suspect, ...]:
    """Possible causes of memory that a launch takes more or less of: its launcher asks for it, in Python, so the same
    machine code excludes nothing.
    """
    odds = dict(_environment(context))
    is_other_allocator = Cause.TOOLCHAIN in odds
    sentence = "what a launch allocates is what its launcher asks for, which the commit may have changed"
    return weigh({**odds, Cause.CODE: Odds(_POSSIBLE if is_other_allocator else _CHANGED_WITH_IT, sentence)})


def explain_host(context: ChangeContext) -> tuple[Suspect, ...]:
    """Possible causes of a host that takes longer or shorter to issue a launch: never the kernel on the device."""
    sentence = "the commit may have changed what the host does to launch it; the kernel on the device is not timed here"
    return weigh({**dict(_environment(context)), Cause.CODE: Odds(_POSSIBLE, sentence)})


# --- the code


def _code(context: ChangeContext, *, is_toolchain_suspected: bool) -> Odds:
    code, paired = context.code, context.paired
    if code is not None and not code.changed_targets:
        return Odds(0.0, f"machine code unchanged on all {code.known_targets} targets, so the kernel's code is not it")
    again = ""
    if paired is not None:
        again = f"seen again side by side in one job ({paired.relative_change:+.1%}), where only the commit differed"
    if code is None:
        unrecorded = "the commit may have done it: no machine code of this implementation is recorded"
        return Odds(_SEEN_SIDE_BY_SIDE, again) if again else Odds(_POSSIBLE, unrecorded)
    moved = f"machine code changed on {code.changed_targets} of {code.known_targets} targets"
    moved += f": {code.facts}" if code.facts else ", and no fact of it moved"
    if again:
        return Odds(_SEEN_SIDE_BY_SIDE, f"{moved}; {again}")
    if is_toolchain_suspected:
        return Odds(_POSSIBLE, f"{moved}, as another compiler's would")
    return Odds(2 * _CHANGED_WITH_IT if code.is_worse else _CHANGED_WITH_IT, moved)


def _with_counters(code: Odds, context: ChangeContext) -> Odds:
    """What the counters say of it: other work is the code's doing, and where they say the same work, something else is
    likelier, unless the code differed side by side.
    """
    counted = context.counted
    if counted is None or not code.against_unknown:
        return code
    share = 1.0 if counted.changes or context.paired is not None else _SAME_WORK
    return Odds(code.against_unknown * share, f"{code.sentence}; {counted.in_words()}")


def _with_launches(odds: dict[Cause, Odds], context: ChangeContext) -> dict[Cause, Odds]:
    """What profiles say of it: other launches, if they take enough of a call, are the doing of what runs on the host,
    which the same machine code does not exclude. Where the toolchain changed, its libraries may have chosen them.
    """
    launched = context.launched
    if launched is None or not launched.may_explain(context.log_change):
        return odds
    code = odds.get(Cause.CODE, Odds(0.0, ""))
    toolchain = odds.get(Cause.TOOLCHAIN)
    if toolchain is not None:
        return odds | {
            Cause.TOOLCHAIN: _and(toolchain, launched.in_words()),
            Cause.CODE: _and(code, "", least=_POSSIBLE),
        }
    least = _CHANGED_WITH_IT if launched.is_at_the_step else _CHANGED_BESIDE_IT
    if context.paired is not None:
        least = _SEEN_SIDE_BY_SIDE
    return odds | {Cause.CODE: _and(code, launched.in_words(), least=least)}


# --- the autotuner


def _autotune(context: ChangeContext) -> Odds | None:
    there, here = _choices(context.before), _choices(context.after)
    for function, key in sorted(there.keys() & here.keys()):
        old, new = there[function, key], here[function, key]
        if old.isdisjoint(new):
            chosen, before = (" or ".join(sorted(side)) for side in (new, old))
            return Odds(_CHANGED_WITH_IT, f"the autotuner of {function} chose {chosen} after it, {before} before")
    return None


def _choices(runs: Sequence[SeriesPoint]) -> dict[tuple[str, str], set[str]]:
    """Configurations by function and key."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for choice in run.choices:
            found[choice.function, choice.key].add(choice.configuration)
    return found


# --- the environment


def _environment(context: ChangeContext) -> Iterator[tuple[Cause, Odds]]:
    """Causes of which the setting changed with the level, or beside it."""
    for cause, read in _SURROUNDINGS.items():
        there, here = (
            [(run.commit, dict(read(run.setting))) for run in runs if run.setting is not None]
            for runs in (context.before, context.after)
        )
        if there and here and (found := _setting_change(there, here, context.candidates)) is not None:
            yield cause, found


_Settings = Sequence[tuple[CommitRef, Mapping[str, str]]]


def _setting_change(there: _Settings, here: _Settings, candidates: frozenset[CommitRef]) -> Odds | None:
    exact, beside = [], []
    for name in {**there[-1][1], **here[0][1]}:
        old, new = ([values.get(name) for _, values in side] for side in (there, here))
        if set(old).isdisjoint(new):
            exact.append(f"{name} {old[-1] or 'unset'} → {new[0] or 'unset'}")
            continue
        readings = [(commit, values.get(name)) for commit, values in (*there, *here)]
        changes = [commit for (_, value), (commit, next_value) in pairwise(readings) if value != next_value]
        # once, for good, and at a commit that may have done it
        if len(changes) == 1 and changes[0] in candidates:
            beside.append(f"{name} {old[0] or 'unset'} → {new[-1] or 'unset'}")
    if exact:
        return Odds(_CHANGED_WITH_IT, f"{', '.join(exact)} with the first run of the new level")
    if beside:
        return Odds(_CHANGED_BESIDE_IT, f"{', '.join(beside)} at a neighbouring commit, where the step may as well lie")
    return None


# --- the runner


def _with_runner(odds: Mapping[Cause, Odds], runner: RunnerEvidence) -> dict[Cause, Odds]:
    """What code that did not change says: of the runner's noise first, then of the step itself."""
    weighed = dict(odds)
    floor, again = runner.floor, runner.again
    own = weighed.get(Cause.RUNNER, Odds(0.0, ""))
    if floor is not None and floor.has_moved:
        weighed[Cause.RUNNER] = _and(own, floor.in_words(), least=_CHANGED_BESIDE_IT)
    elif floor is not None and floor.has_stayed and Cause.RUNNER in weighed:
        weighed[Cause.RUNNER] = _and(own, floor.in_words(), factor=_SAME_NOISE)
    if again is None:
        return weighed
    surroundings = [cause for cause in (*_SURROUNDINGS, Cause.CLOCK) if cause in weighed]
    if again.move is RunnerMove.STAYED:
        for cause in surroundings:
            weighed[cause] = _and(weighed[cause], again.in_words(), factor=_SAID_OTHERWISE)
        code = weighed.get(Cause.CODE)
        if code is not None and code.against_unknown:
            weighed[Cause.CODE] = _and(code, again.in_words(), least=_CHANGED_WITH_IT)
        return weighed
    likeliest = max(surroundings, key=lambda cause: weighed[cause].against_unknown, default=Cause.RUNNER)
    if weighed.get(likeliest, own).against_unknown < _CHANGED_WITH_IT:
        likeliest = Cause.RUNNER
        weighed[likeliest] = _and(weighed.get(likeliest, own), again.in_words(), least=_THERE_WITHOUT_IT)
    else:
        weighed[likeliest] = _and(weighed[likeliest], again.in_words())
    if Cause.CODE in weighed:
        weighed[Cause.CODE] = _and(weighed[Cause.CODE], "", factor=_SAID_OTHERWISE)
    return weighed


def _and(odds: Odds, sentence: str, *, factor: float = 1.0, least: float = 0.0) -> Odds:
    """Odds that something more is known of."""
    told = "; ".join(part for part in (odds.sentence, sentence) if part)
    return Odds(max(odds.against_unknown * factor, least), told)


# --- the clock


def _clock(context: ChangeContext) -> Odds | None:
    held_back = _held_back(context)
    step = clock_step(context.before, context.after, context.log_change)
    if step is None or not step.is_opposed:
        return None if held_back is None else Odds(_CHANGED_WITH_IT, held_back)
    told = "; ".join(filter(None, [step.in_words(), held_back]))
    if step.share_in_cycles <= GONE:
        return Odds(_EXPLAINED_BY_CLOCK, told)
    return Odds(_CHANGED_BESIDE_IT * min(1.0, 1 - step.share_in_cycles), told)


def _held_back(context: ChangeContext) -> str | None:
    """What held the device back on the slower level alone."""
    slower, faster = (context.after, context.before) if context.log_change > 0 else (context.before, context.after)
    usual = {reason for point in faster for reason in point.degraded_by}
    held = [point for point in slower if set(point.degraded_by) - usual]
    if 2 * len(held) <= len(slower):
        return None
    reasons = sorted({reason for point in held for reason in point.degraded_by} - usual)
    return f"{len(held)} of {len(slower)} runs on the slower level were held back by {', '.join(reasons)}"
