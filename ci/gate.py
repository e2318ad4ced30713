"""The exit status of a judgement."""

from __future__ import annotations

from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.db.values import Verdict


def exit_code(judgement: PullRequestJudgement) -> int:
    """0: no regression; 1: a regression of time, result, machine code or targets; 2: inconclusive."""
    return {Verdict.REGRESSED: 1, Verdict.INCONCLUSIVE: 2}.get(judgement.verdict, 0)
