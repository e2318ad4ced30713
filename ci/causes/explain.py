"""Possible causes of a change: what else changed there, as suspects with odds and a sentence each.
Pure.

The runs just before a step are compared with those just after it. Whatever changed with the level
is a suspect; whatever is known not to have changed is excluded. Evidence gives a cause odds against
`unknown`, which has odds of 1. A weight is a cause's share of all odds, so no cause is certain.
docs/explanation/causes.md lists and argues the odds.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.clock import GONE, clock_step
from roofwatch.ci.ab.compare import PairedEstimate
from roofwatch.ci.causes.environment import SETTINGS, add_measured_again, environment_odds
from roofwatch.ci.causes.evidence import Observation
from roofwatch.ci.causes.odds import AT_STEP, NEAR_STEP, CauseOdds, Odds, weigh
from roofwatch.model.history import Cause, CommitRef, SeriesPoint, Suspect

NEAR_RUNS = 8
"""Runs on either side of a step that are compared."""

_PAIRED = 99.0
"""Odds of the code if base and head differed in one job, where nothing else was different."""
_CLOCK_EXPLAINS = 19.0
"""Odds of the clock if the change is gone in clock cycles."""
_SAME_WORK = 1 / 3
"""Factor on the odds of the code if no hardware counter changed."""
_POSSIBLE = 1.0
"""Odds without evidence for or against."""


@dataclass(frozen=True)
class CodeObservation:
    """How the machine code differs between both sides of a step."""

    changed_targets: int
    """Targets whose machine code differs."""
    known_targets: int
    """Targets whose machine code is known on both sides."""
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
    odds: CauseOdds = {}
    flip = _autotune(context)
    if flip is not None:
        odds[Cause.AUTOTUNE] = flip
    # a pair shares one job, so nothing of the environment can differ
    if context.paired is None:
        odds |= environment_odds(context.before, context.after, context.candidates)
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
        add_measured_again(odds, context.measured_again)
    if context.sources is not None:
        _add_sources(odds, context.sources)
    return weigh(odds)


def explain_drift(context: ChangeContext) -> tuple[Suspect, ...]:
    """List the possible causes of a slow drift: of everything recorded, only the clock drifts."""
    clock = _clock(context)
    if clock is None:
        return weigh({})
    return weigh({Cause.CLOCK: clock})


def explain_outcome(
    last: SeriesPoint,
    changed: SeriesPoint,
    sentence: str,
) -> tuple[Suspect, ...]:
    """List the possible causes of a new or fixed failure, from the runs on both sides of it."""
    odds = environment_odds([last], [changed])
    odds[Cause.CODE] = Odds(AT_STEP, sentence)
    return weigh(odds)


def explain_bridge(
    before: Sequence[SeriesPoint],
    after: Sequence[SeriesPoint],
) -> tuple[Suspect, ...]:
    """List what changed between two groups of runs of one commit, whose code is the same."""
    odds: CauseOdds = {}
    for cause, suspect in environment_odds(before, after).items():
        odds[cause] = suspect.updated("the code was the same", at_least=_PAIRED)
    if not odds:
        odds[Cause.RUNNER] = Odds(_PAIRED, "the code was the same")
    return weigh(odds)


def explain_secondary(context: ChangeContext, metric: str) -> tuple[Suspect, ...]:
    """List the possible causes of a changed error, memory or host time of a launch.

    Equal machine code excludes nothing of the last two: the launcher allocates, and the host
    launches.
    """
    odds = environment_odds(context.before, context.after, context.candidates)
    is_toolchain_suspected = Cause.TOOLCHAIN in odds
    if metric == "peak_allocated_bytes":
        sentence = "the launcher allocates the memory, and the commit may have changed it"
        # another version of torch may allocate differently
        against_unknown = AT_STEP
        if is_toolchain_suspected:
            against_unknown = _POSSIBLE
        code = Odds(against_unknown, sentence)
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
    """Odds that the code of the commit did it, from its machine code and a pair."""
    code = context.code
    if code is not None and not code.changed_targets:
        # odds of 0 exclude the cause
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
    # a pair that changed with other code leaves little doubt
    if confirmation:
        return Odds(_PAIRED, f"{sentence}; {confirmation}")
    # the compiler alone can change the code
    if is_toolchain_suspected:
        return Odds(_POSSIBLE, f"{sentence}, as expected from another compiler")
    if code.is_worse:
        return Odds(2 * AT_STEP, sentence)
    return Odds(AT_STEP, sentence)


def _add_launches(
    odds: CauseOdds,
    launches: Observation,
    *,
    is_paired: bool,
) -> None:
    """Suspect the host code, which equal machine code does not exclude, or the libraries of another
    toolchain.
    """
    code = odds.get(Cause.CODE, Odds(0.0, ""))
    # another toolchain brings other libraries, and these launch other kernels
    if Cause.TOOLCHAIN in odds:
        toolchain = odds[Cause.TOOLCHAIN]
        odds[Cause.TOOLCHAIN] = toolchain.updated(launches.sentence)
        odds[Cause.CODE] = code.updated("", at_least=_POSSIBLE)
        return
    at_least = NEAR_STEP
    if is_paired:
        at_least = _PAIRED
    elif launches.has_changed:
        at_least = AT_STEP
    odds[Cause.CODE] = code.updated(launches.sentence, at_least=at_least)


def _add_sources(odds: CauseOdds, sources: Observation) -> None:
    """Suspect changed sources; of unchanged ones, the environment until something else is shown."""
    if sources.has_changed:
        odds[Cause.CODE] = Odds(AT_STEP, sources.sentence)
        return
    odds[Cause.CODE] = Odds(0.0, sources.sentence)
    if not odds.keys() & SETTINGS.keys():
        odds[Cause.RUNNER] = Odds(AT_STEP, f"{sources.sentence}, so the environment may have")


# --- the autotuner


def _autotune(context: ChangeContext) -> Odds | None:
    """Suspect the autotuner if it chose another configuration at the step."""
    old_choices = _choices(context.before)
    new_choices = _choices(context.after)
    for function, key in sorted(old_choices.keys() & new_choices.keys()):
        old_configurations = old_choices[function, key]
        new_configurations = new_choices[function, key]
        # a configuration that both levels had is not what differs
        if old_configurations.isdisjoint(new_configurations):
            old_text = " or ".join(sorted(old_configurations))
            new_text = " or ".join(sorted(new_configurations))
            return Odds(
                AT_STEP,
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


# --- the clock


def _clock(context: ChangeContext) -> Odds | None:
    """Suspect the clock if it changed where the time did, or if runs were throttled."""
    throttled = _throttled(context)
    step = clock_step(context.before, context.after, context.log_change)
    if step is None or not step.is_opposed:
        if not throttled:
            return None
        return Odds(AT_STEP, throttled)
    sentences = "; ".join(filter(None, [step.in_words(), throttled]))
    # what is gone in clock cycles was the clock alone
    if step.share_in_cycles <= GONE:
        return Odds(_CLOCK_EXPLAINS, sentences)
    return Odds(NEAR_STEP * min(1.0, 1 - step.share_in_cycles), sentences)


def _throttled(context: ChangeContext) -> str:
    """What throttled most runs of the slower level alone; empty if nothing did."""
    slower = context.before
    faster = context.after
    if context.log_change > 0:
        slower = context.after
        faster = context.before
    usual_reasons = {reason for run in faster for reason in run.degraded_by}
    new_reasons: set[str] = set()
    throttled_count = 0
    for run in slower:
        unusual = set(run.degraded_by) - usual_reasons
        throttled_count += bool(unusual)
        new_reasons |= unusual
    # less than half of the runs do not move the median
    if 2 * throttled_count <= len(slower):
        return ""
    return (
        f"{throttled_count} of {len(slower)} runs on the slower level were held back by "
        f"{', '.join(sorted(new_reasons))}"
    )
