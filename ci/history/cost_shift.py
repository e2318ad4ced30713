"""Shares of a workload's step that changed: evidence about a change of the step, else a note. Pure.

A share also changes if another kernel of the step does, so it is judged by the time of the step. If that did not change
too, the kernels traded places (renamed, fused, tuned), which is a note and never an alert.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.verdicts import Reason
from roofwatch.db.values import SeriesKey, Verdict

COST_SHIFT_NOTE = f"; {Reason.COST_SHIFT}: the time of the step did not change"


def settle_shares(findings: Iterable[TrendFinding]) -> Iterator[TrendFinding]:
    """Judge changes of shares by changes of their step at the same place.

    A share that changed with the step in the same direction stays, without a p-value: the time decides on the alert.
    One that changed in the other direction only follows from the step, and is dropped. The rest are notes.
    """
    everything = list(findings)
    steps: dict[tuple[str, ...], list[TrendFinding]] = defaultdict(list)
    for finding in everything:
        if finding.is_time and not finding.is_clock_move:
            steps[_step_of(finding.change.series)].append(finding)
    for finding in everything:
        if not finding.is_share:
            yield finding
            continue
        near = [step for step in steps[_step_of(finding.change.series)] if step.reach.touches(finding.reach)]
        if not near:
            change = finding.change
            note = replace(change, verdict=Verdict.INCONCLUSIVE, evidence=change.evidence + COST_SHIFT_NOTE)
            yield replace(finding, change=note, p_value=None)
        elif any(step.change.verdict is finding.change.verdict for step in near):
            yield replace(finding, p_value=None)


def _step_of(series: SeriesKey) -> tuple[str, ...]:
    return series.project, series.case_id, series.implementation, series.runner_class
