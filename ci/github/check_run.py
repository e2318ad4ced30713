"""What a check-run on a pull request's commit says: a judgement to a conclusion, a title and a summary. Pure.

It fails only on what is confirmed and relevant: a slowdown whose whole interval lies beyond the threshold, a result
that became wrong, a case that fails now, machine code that got worse, a target that is lost. What cannot be told is
neutral, with the reason: a check that fails for no reason is soon ignored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.ci.github.annotations import Annotation, annotations_of
from roofwatch.ci.report.comment import next_step, tally
from roofwatch.ci.report.markdown import code
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.sections import REASON_WORDS
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.db.values import Verdict

MAX_SUMMARY_BYTES = 65_000
"""GitHub takes 65,535 characters."""
_MAX_TITLE = 200


class Conclusion(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


@dataclass(frozen=True)
class CheckRun:
    """What is shown beside a commit."""

    conclusion: Conclusion | None
    """None while it is in progress."""
    title: str
    summary: str
    """Markdown."""
    annotations: tuple[Annotation, ...] = ()
    """Beside lines of the source."""


BEGUN = CheckRun(None, "measuring", "Base and head are being measured against each other.")


def concluded(judgement: PullRequestJudgement, summary: str) -> CheckRun:
    """The check-run of a judgement.

    Args:
        judgement: What was found.
        summary: Markdown that tells it, of at most `MAX_SUMMARY_BYTES`.
    """
    beside = annotations_of(judgement)
    if judgement.verdict is Verdict.REGRESSED:
        return CheckRun(Conclusion.FAILURE, _title("regressed", tally(judgement)), summary, beside)
    if judgement.verdict is Verdict.INCONCLUSIVE:
        title = _title("could not tell", why_inconclusive(judgement))
        return CheckRun(Conclusion.NEUTRAL, title, f"Next: {next_step(judgement)}\n\n{summary}", beside)
    word = "improved" if judgement.verdict is Verdict.IMPROVED else "no regression"
    return CheckRun(Conclusion.SUCCESS, _title(word, tally(judgement)), summary, beside)


def not_measured(reason: str) -> CheckRun:
    """The check-run where there is nothing to judge; the reason may quote others."""
    return CheckRun(
        Conclusion.NEUTRAL, "could not tell: not measured", f"Nothing was compared: {code(reason, limit=1_000)}."
    )


def why_inconclusive(judgement: PullRequestJudgement) -> str:
    """The most frequent reason, in words of ours alone."""
    if judgement.refusals:
        return "the records, or their times, are not comparable"
    items: list[CaseJudgement | StaticJudgement] = [*judgement.cases, *judgement.static]
    reasons = Counter(item.reason for item in items if item.verdict is Verdict.INCONCLUSIVE)
    told = [(count, reason) for reason, count in reasons.most_common() if reason in REASON_WORDS]
    if not told:
        return tally(judgement)
    count, reason = told[0]
    return f"{REASON_WORDS[reason]} ({count} of {len(items)})"


def _title(word: str, more: str) -> str:
    title = f"{word}: {more}"
    return title if len(title) <= _MAX_TITLE else f"{title[: _MAX_TITLE - 1]}…"
