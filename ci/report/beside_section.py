"""What a pull-request comment says of what a launch takes beside its time on the device. Pure."""

from __future__ import annotations

import math

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.report.markdown import Section, code
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import Verdict


def beside_section(judgement: PullRequestJudgement) -> Section:
    """A row for each metric that moved, the worst first."""
    return Section(
        "Memory and host of a launch",
        ("verdict", "what", "case", "implementation", "base → head", "change (95 % interval)"),
        [
            (
                f"**{move.verdict}**" if move.verdict is Verdict.REGRESSED else str(move.verdict),
                metric(move.metric).title,
                code(move.case_id),
                code(move.implementation),
                " → ".join(metric(move.metric).format(side) for side in (move.base, move.head)),
                _change(move),
            )
            for move in judgement.secondary_changes
        ],
        text="Of the time of a kernel on the device this says nothing: that is judged apart.",
    )


def _change(move: Change) -> str:
    if math.isinf(move.relative_change):
        return "nothing before"
    if move.relative_interval is None:
        return f"{move.relative_change:+.1%}"
    low, high = move.relative_interval
    return f"{move.relative_change:+.1%} ({low:+.1%} to {high:+.1%})"
