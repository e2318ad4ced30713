"""A judgement to a process's exit status."""

from __future__ import annotations

from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.db.values import Verdict


def exit_code(judgement: PullRequestJudgement) -> int:
    """0 fine, 1 regression (a slowdown, a wrong result, a failure, a spill or a lost target), 2 could not tell."""
    return {Verdict.REGRESSED: 1, Verdict.INCONCLUSIVE: 2}.get(judgement.verdict, 0)
