"""Why a time stepped: what else changed there, as suspects with odds and a sentence with numbers each. Pure.

The runs just before the step are held against those just after it. What changed with the level is a suspect; what
changed elsewhere, or came and went while the level stayed, is none; what is on record as unchanged is excluded.
docs/analysis.md has the odds and argues them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roofwatch.ci.ab.clock import MIN_CLOCK_MOVE
from roofwatch.ci.ab.compare import Comparison
from roofwatch.ci.causes.clock_step import GONE
from roofwatch.ci.causes.counter_evidence import CountedStep
from roofwatch.ci.causes.launch_evidence import LaunchedStep
from roofwatch.ci.causes.runner_evidence import RunnerEvidence, RunnerMove
from roofwatch.ci.causes.suspects import Odds, weigh
from roofwatch.db.values import Cause, CommitRef, RunSetting, SeriesPoint, Suspect, TunedChoice

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
class CodeMove:
    """What is known of the machine code on both sides of a step."""

    changed_targets: int
    known_targets: int
    facts: str
    """What moved of the target that says most, in words; empty if nothing did."""
    is_worse: bool
    """A fact that decides by itself moved the way the time did."""


@dataclass(frozen=True)
class Around:
    """One step of a time and what lies around it."""

    before: Sequence[SeriesPoint]
    """The last runs of the old level."""
    after: Sequence[SeriesPoint]
    """The first runs of the new one."""
    log_change: float
    candidates: frozenset[CommitRef]
    """Commits that may have done it."""
    code: CodeMove | None
    """None where no machine code is known on both sides."""
    paired: Comparison | None = None
    """Base against head, measured side by side, if they differed as the step says."""
    counted: CountedStep | None = None
    """Hardware counters of both levels, where both were read."""
    launched: LaunchedStep | None = None
    """What calls launched on both levels, where both were profiled."""
    runner: RunnerEvidence | None = None
    """What the runner showed of itself, by code that did not change."""


def explain(around: Around) -> tuple[Suspect, ...]:
    """Possible causes of a step, the likeliest first; `unknown` is always among them."""
    odds: dict[Cause, Odds] = {}
    flip = _autotune(around)
    if flip is not None:
        odds[Cause.AUTOTUNE] = flip
    if around.paired is None:
        odds |= dict(_environment(around))
        clock = _clock(around)
        if clock is not None:
            odds[Cause.CLOCK] = clock
    code = _code(around, is_toolchain_suspected=Cause.TOOLCHAIN in odds)
    if code is not None:
        odds[Cause.CODE] = _with_counters(code, around)
    odds = _with_launches(odds, around)
    if around.paired is None and around.runner is not None:
        odds = _with_runner(odds, around.runner)
    return weigh(odds)


def explain_drift(
    before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], log_change: float
) -> tuple[Suspect, ...]:
    """Possible causes of a slow drift, which no one commit has made: of what is recorded, the clock alone drifts."""
    clock = _clock(Around(before, after, log_change, frozenset(), None))
    return weigh({} if clock is None else {Cause.CLOCK: clock})


def explain_outcome(before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], sentence: str) -> tuple[Suspect, ...]:
    """Possible causes of something that began or ceased to work."""
    around = Around(before[-NEAR_RUNS:], after[:NEAR_RUNS], math.inf, frozenset(), None)
    return weigh({**dict(_environment(around)), Cause.CODE: Odds(_CHANGED_WITH_IT, sentence)})


def explain_error(around: Around) -> tuple[Suspect, ...]:
    """Possible causes of an error that grew or shrank: as of a time, but that no clock changes a result."""
    odds = dict(_environment(around))
    code = _code(around, is_toolchain_suspected=Cause.TOOLCHAIN in odds)
    return weigh(odds if code is None else {**odds, Cause.CODE: code})


def explain_memory(around: Around) -> tuple[Suspect, ...]:
    """Possible causes of memory that a launch takes more or less of: its launcher asks for it, in Python, so the same
    machine code excludes nothing.
    """
    odds = dict(_environment(around))
    is_other_allocator = Cause.TOOLCHAIN in odds
    sentence = "what a launch allocates is what its launcher asks for, which the commit may have changed"
    return weigh({**odds, Cause.CODE: Odds(_POSSIBLE if is_other_allocator else _CHANGED_WITH_IT, sentence)})


def explain_host(around: Around) -> tuple[Suspect, ...]:
    """Possible causes of a host that takes longer or shorter to issue a launch: never the kernel on the device."""
    sentence = "the commit may have changed what the host does to launch it; the kernel on the device is not timed here"
    return weigh({**dict(_environment(around)), Cause.CODE: Odds(_POSSIBLE, sentence)})


# --- the code


def _code(around: Around, *, is_toolchain_suspected: bool) -> Odds | None:
    code, paired = around.code, around.paired
    if code is not None and not code.changed_targets:
        return Odds(0.0, f"machine code unchanged on all {code.known_targets} targets, so the kernel's code is not it")
    again = ""
    if paired is not None:
        again = f"seen again side by side in one job ({paired.relative_change:+.1%}), where only the commit differed"
    if code is None:
        return Odds(_SEEN_SIDE_BY_SIDE, again) if again else _unrecorded_code()
    moved = f"machine code changed on {code.changed_targets} of {code.known_targets} targets"
    moved += f": {code.facts}" if code.facts else ", and no fact of it moved"
    if again:
        return Odds(_SEEN_SIDE_BY_SIDE, f"{moved}; {again}")
    if is_toolchain_suspected:
        return Odds(_POSSIBLE, f"{moved}, as another compiler's would")
    return Odds(2 * _CHANGED_WITH_IT if code.is_worse else _CHANGED_WITH_IT, moved)


def _with_counters(code: Odds, around: Around) -> Odds:
    """What the counters say of it: other work is the code's doing, and where they say the same work, something else is
    likelier, unless the code differed side by side.
    """
    counted = around.counted
    if counted is None or not code.against_unknown:
        return code
    share = 1.0 if counted.moves or around.paired is not None else _SAME_WORK
    return Odds(code.against_unknown * share, f"{code.sentence}; {counted.in_words()}")


def _with_launches(odds: dict[Cause, Odds], around: Around) -> dict[Cause, Odds]:
    """What profiles say of it: other launches, if they take enough of a call, are the doing of what runs on the host,
    which the same machine code does not exclude. Where the toolchain changed, its libraries may have chosen them.
    """
    launched = around.launched
    if launched is None or not launched.may_explain(around.log_change):
        return odds
    code = odds.get(Cause.CODE, Odds(0.0, ""))
    toolchain = odds.get(Cause.TOOLCHAIN)
    if toolchain is not None:
        return odds | {
            Cause.TOOLCHAIN: _and(toolchain, launched.in_words()),
            Cause.CODE: _and(code, "", least=_POSSIBLE),
        }
    least = _CHANGED_WITH_IT if launched.is_at_the_step else _CHANGED_BESIDE_IT
    if around.paired is not None:
        least = _SEEN_SIDE_BY_SIDE
    return odds | {Cause.CODE: _and(code, launched.in_words(), least=least)}


def _unrecorded_code() -> Odds:
    return Odds(_POSSIBLE, "the commit may have done it: no machine code of this implementation is recorded")


# --- the autotuner


def _autotune(around: Around) -> Odds | None:
    there = [point.choices for point in around.before if point.choices]
    here = [point.choices for point in around.after if point.choices]
    if not there or not here:
        return None
    for function, key in sorted({(choice.function, choice.key) for choice in here[0]}):
        old = {text for choices in there for text in _chosen(choices, function, key)}
        new = {text for choices in here for text in _chosen(choices, function, key)}
        if old and new and old.isdisjoint(new):
            sentence = f"the autotuner of {function} chose {_either(new)} after it, {_either(old)} before"
            return Odds(_CHANGED_WITH_IT, sentence)
    return None


def _chosen(choices: Sequence[TunedChoice], function: str, key: str) -> list[str]:
    return [choice.configuration for choice in choices if (choice.function, choice.key) == (function, key)]


def _either(configurations: set[str]) -> str:
    return " or ".join(sorted(configurations))


# --- the environment


def _environment(around: Around) -> Iterator[tuple[Cause, Odds]]:
    """Causes of which the setting changed with the level, or beside it."""
    for cause, read in _SURROUNDINGS.items():
        found = _moved(around, read)
        if found is not None:
            yield cause, found


def _moved(around: Around, read: Callable[[RunSetting], tuple[tuple[str, str], ...]]) -> Odds | None:
    there = [(point.commit, dict(read(point.setting))) for point in around.before if point.setting is not None]
    here = [(point.commit, dict(read(point.setting))) for point in around.after if point.setting is not None]
    if not there or not here:
        return None
    exact, beside = [], []
    for name in {**there[-1][1], **here[0][1]}:
        old, new = [values.get(name) for _, values in there], [values.get(name) for _, values in here]
        if set(old).isdisjoint(new):
            exact.append(f"{name} {_value(old[-1])} → {_value(new[0])}")
        elif _changed_beside(around, [*zip([commit for commit, _ in there], old, strict=True)], here, name):
            beside.append(f"{name} {_value(old[0])} → {_value(new[-1])}")
    if exact:
        return Odds(_CHANGED_WITH_IT, f"{', '.join(exact)} with the first run of the new level")
    if beside:
        return Odds(_CHANGED_BESIDE_IT, f"{', '.join(beside)} at a neighbouring commit, where the step may as well lie")
    return None


def _changed_beside(
    around: Around,
    there: Sequence[tuple[CommitRef, str | None]],
    here: Sequence[tuple[CommitRef, dict[str, str]]],
    name: str,
) -> bool:
    """Whether it changed once, for good, and at a commit that may have done it."""
    readings = [*there, *((commit, values.get(name)) for commit, values in here)]
    changes = [commit for (_, old), (commit, new) in pairwise(readings) if old != new]
    return len(changes) == 1 and changes[0] in around.candidates


def _value(value: str | None) -> str:
    return "unset" if value is None else value


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


def _clock(around: Around) -> Odds | None:
    there = [point.sm_clock_mhz for point in around.before if point.sm_clock_mhz]
    here = [point.sm_clock_mhz for point in around.after if point.sm_clock_mhz]
    held_back = _held_back(around)
    if not there or not here:
        return None if held_back is None else Odds(_CHANGED_WITH_IT, held_back)
    before_mhz, after_mhz = statistics.median(there), statistics.median(here)
    clock_log_change = math.log(after_mhz / before_mhz)
    in_cycles = around.log_change + clock_log_change
    left = in_cycles * math.copysign(1.0, around.log_change)
    moved = f"the SM clock moved from {before_mhz:.0f} to {after_mhz:.0f} MHz"
    told = f"{moved}: in clock cycles the change is {math.expm1(in_cycles):+.1%}"
    told += f"; {held_back}" if held_back else ""
    if abs(clock_log_change) < math.log1p(MIN_CLOCK_MOVE) or clock_log_change * around.log_change > 0:
        return None if held_back is None else Odds(_CHANGED_WITH_IT, held_back)
    if left <= GONE * abs(around.log_change):
        return Odds(_EXPLAINED_BY_CLOCK, told)
    share = min(1.0, abs(clock_log_change) / abs(around.log_change))
    return Odds(_CHANGED_BESIDE_IT * share, told)


def _held_back(around: Around) -> str | None:
    """What held the device back on the slower level alone."""
    slower, faster = (around.after, around.before) if around.log_change > 0 else (around.before, around.after)
    usual = {reason for point in faster for reason in point.degraded_by}
    held = [point for point in slower if set(point.degraded_by) - usual]
    if 2 * len(held) <= len(slower):
        return None
    reasons = sorted({reason for point in held for reason in point.degraded_by} - usual)
    return f"{len(held)} of {len(slower)} runs on the slower level were held back by {', '.join(reasons)}"
