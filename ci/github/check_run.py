"""A judgement as a check-run on a pull request's commit, with annotations beside the source. Pure.

It fails only on what is confirmed and relevant: a slowdown whose whole interval lies beyond the threshold, a wrong
result, a case that fails now, machine code that got worse, a lost target. If the data cannot decide, it is neutral with
the reason: a check that fails for no reason is soon ignored.

Paths and lines come from a record that anybody may have written. A record refuses paths out of the repository, and
GitHub shows annotations as plain text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from roofwatch.ci.report.comment import VERDICT_TITLES, next_step, tally
from roofwatch.ci.report.findings import REASON_WORDS, Finding, list_findings
from roofwatch.ci.report.markdown import code, plain
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.collector.record.record import SourceLine
from roofwatch.db.values import Verdict

MAX_SUMMARY_BYTES = 65_000
"""GitHub takes 65,535 characters."""
MAX_ANNOTATIONS = 100
"""Nobody reads more; GitHub takes 50 at a time, and any number in all."""
_MAX_TITLE = 200
_MAX_FINDINGS = 10
"""Listed beside one function."""
_MAX_TEXT = 400


class Conclusion(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


_CONCLUSIONS = {
    Verdict.REGRESSED: Conclusion.FAILURE,
    Verdict.INCONCLUSIVE: Conclusion.NEUTRAL,
    Verdict.IMPROVED: Conclusion.SUCCESS,
    Verdict.UNCHANGED: Conclusion.SUCCESS,
}


class Level(StrEnum):
    FAILURE = "failure"
    NOTICE = "notice"


@dataclass(frozen=True)
class Annotation:
    """A remark beside one line of the head's source."""

    file: str
    line: int
    level: Level
    title: str
    message: str
    """Plain text."""

    def to_json(self) -> dict[str, Any]:
        """As GitHub's REST API takes it."""
        return {
            "path": self.file,
            "start_line": self.line,
            "end_line": self.line,
            "annotation_level": self.level.value,
            "title": self.title,
            "message": self.message,
        }


@dataclass(frozen=True)
class CheckRun:
    """What is shown beside a commit."""

    conclusion: Conclusion | None
    """None while it is in progress."""
    title: str
    summary: str
    """Markdown."""
    annotations: tuple[Annotation, ...] = ()

    def to_json(self, url: str | None) -> dict[str, Any]:
        """As GitHub's REST API takes it, with a link to its details."""
        output: dict[str, Any] = {"title": self.title, "summary": self.summary}
        if self.annotations:
            output["annotations"] = [annotation.to_json() for annotation in self.annotations]
        fields: dict[str, Any] = {"output": output, "status": "in_progress"}
        if self.conclusion is not None:
            fields |= {"status": "completed", "conclusion": self.conclusion.value}
        return fields if url is None else fields | {"details_url": url}


BEGUN = CheckRun(None, "measuring", "Base and head are being measured against each other.")


def concluded(judgement: PullRequestJudgement, summary: str) -> CheckRun:
    """The check-run of a judgement.

    Args:
        judgement: What was found.
        summary: Markdown that says it, of at most `MAX_SUMMARY_BYTES`.
    """
    conclusion, more = _CONCLUSIONS[judgement.verdict], tally(judgement)
    if judgement.verdict is Verdict.INCONCLUSIVE:
        more, summary = _why_inconclusive(judgement), f"Next: {next_step(judgement)}\n\n{summary}"
    title = f"{VERDICT_TITLES[judgement.verdict]}: {more}"
    title = title if len(title) <= _MAX_TITLE else f"{title[: _MAX_TITLE - 1]}…"
    return CheckRun(conclusion, title, summary, annotations_of(judgement))


def not_measured(reason: str) -> CheckRun:
    """The check-run where there is nothing to judge; the reason may quote others."""
    summary = f"Nothing was compared: {code(reason, limit=1_000)}."
    return CheckRun(Conclusion.NEUTRAL, "could not tell: not measured", summary)


def annotations_of(judgement: PullRequestJudgement) -> tuple[Annotation, ...]:
    """An annotation for each function that a finding is about: regressions first, then improvements."""
    by_line: dict[SourceLine, list[Finding]] = defaultdict(list)
    for finding in list_findings(judgement):
        if finding.line is not None and finding.verdict in {Verdict.REGRESSED, Verdict.IMPROVED}:
            by_line[finding.line].append(finding)
    found = [_annotation(line, findings) for line, findings in by_line.items()]
    return tuple(sorted(found, key=lambda one: one.level is not Level.FAILURE)[:MAX_ANNOTATIONS])


def _annotation(line: SourceLine, findings: Sequence[Finding]) -> Annotation:
    worse = [finding for finding in findings if finding.verdict is Verdict.REGRESSED]
    shown = worse or findings
    texts = [plain(f"{finding.name}: {finding.text}", limit=_MAX_TEXT) for finding in shown[:_MAX_FINDINGS]]
    if len(shown) > _MAX_FINDINGS:
        texts.append(f"and {len(shown) - _MAX_FINDINGS} more")
    title = f"{plain(line.function, limit=100)}: {len(shown)} {'regressed' if worse else 'improved'}"
    return Annotation(line.file, line.line, Level.FAILURE if worse else Level.NOTICE, title, "\n".join(texts))


def _why_inconclusive(judgement: PullRequestJudgement) -> str:
    """The most frequent reason, quoting nobody."""
    if judgement.refusals:
        return "the records, or their times, are not comparable"
    items: list[CaseJudgement | StaticJudgement] = [*judgement.cases, *judgement.static]
    reasons = Counter(item.reason for item in items if item.verdict is Verdict.INCONCLUSIVE)
    for reason, count in reasons.most_common():
        if reason in REASON_WORDS:
            return f"{REASON_WORDS[reason]} ({count} of {len(items)})"
    return tally(judgement)
