"""Steps of errors, memory, host times and imported values as findings. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofwatch.ci.causes.explain import NEAR_RUNS, ChangeContext, explain, explain_secondary
from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.history.commit_changes import CompiledHistory
from roofwatch.ci.history.finding import TrendFinding, windows_between
from roofwatch.ci.history.imported_code import code_around
from roofwatch.ci.history.level_changes import describe_counts, make_change
from roofwatch.ci.history.steps import Timeline, find_value_steps, is_judged_import
from roofwatch.model.history import SeriesPoint
from roofwatch.model.verdict import Status

_MIN_SURE_RUNS = 2
"""Runs on either side that must have the same number."""


def value_findings(line: Timeline, compiled: CompiledHistory) -> Iterator[TrendFinding]:
    """The steps of a value. Those of another tool are never certain, for its noise is unknown."""
    steps = find_value_steps(line.key, line.values)
    chances: Sequence[float | None] = [None] * len(steps)
    if is_judged_import(line.key) and min(line.values) > 0:
        chances = chances_of_steps(line.values, steps)
    for step, chance in zip(steps, chances, strict=True):
        yield _value_finding(
            line,
            compiled,
            step,
            chance,
        )


def _value_finding(
    line: Timeline,
    compiled: CompiledHistory,
    step: Step,
    chance: float | None,
) -> TrendFinding:
    is_imported = is_judged_import(line.key)
    runs_before = line.runs(step.start, step.index)
    before = runs_before[-NEAR_RUNS:]
    after = line.runs(step.index, step.end)[:NEAR_RUNS]
    is_exact = not is_imported and _has_one_value(before) and _has_one_value(after)
    # an exact value has no noise to count errors in
    standard_errors = None
    if not is_exact and not math.isinf(step.standard_errors):
        standard_errors = step.standard_errors
    change = make_change(
        line=line,
        index=step.index,
        before=step.before,
        after=step.after,
        evidence=_describe_value_step(line, step, is_exact=is_exact),
        standard_errors=standard_errors,
    )
    candidates = step.candidates
    if is_exact:
        candidates = (step.index,)
    context = ChangeContext(
        before,
        after,
        candidates=frozenset(line.commits[position] for position in candidates),
    )
    if is_imported:
        sources = code_around(line, candidates)
        # the environment's, so no alert
        if sources is not None and not sources.has_changed:
            chance = None
        imported_context = replace(
            context,
            sources=sources,
            is_imported=True,
        )
        suspects = explain(imported_context)
    else:
        code = compiled.code_change(
            line.key,
            change.previous_commit,
            change.commit,
            change.verdict,
        )
        suspects = explain_secondary(replace(context, code=code), line.key.metric)
    if is_exact:
        finding = TrendFinding.at_commit(
            change=change,
            status=Status.CONFIRMED,
            suspects=suspects,
        )
    else:
        first = min(candidates)
        last = max(candidates)
        window, reach = windows_between(line.commits, first, last)
        finding = TrendFinding(
            change=change,
            status=Status.UNCONFIRMED,
            suspects=suspects,
            window=window,
            reach=reach,
        )
    measured_on = None
    if is_imported:
        measured_on = line.dates[step.index]
    return replace(
        finding,
        p_value=chance,
        measured_on=measured_on,
        outline=line.outline(step.index),
    )


def _describe_value_step(
    line: Timeline,
    step: Step,
    *,
    is_exact: bool,
) -> str:
    definition = line.key.definition
    before = definition.format(step.before)
    after = definition.format(step.after)
    levels = f"{before} to {after}"
    # errors and amounts may begin at 0
    if step.before > 0:
        relative_change = step.after / step.before - 1
        levels += f" ({relative_change:+.0%})"
    certainty = f"{step.standard_errors:.1f} standard errors"
    if is_exact:
        certainty = "the same in every run on either side"
    return f"{definition.title} {levels}, {describe_counts(step)}, {certainty}"


def _has_one_value(runs: Sequence[SeriesPoint]) -> bool:
    values = {point.value for point in runs}
    return len(runs) >= _MIN_SURE_RUNS and len(values) == 1
