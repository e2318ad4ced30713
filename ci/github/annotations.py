"""What a check-run says beside the source: one annotation for each function that a finding is about. Pure.

Paths and lines come from a record that anybody may have written. `roofwatch.collector.record.record` lets none
pass that
leads out
of the repository, and GitHub shows what is said there as plain text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.ci.report.markdown import plain
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.sections import REASON_WORDS, worst_first
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.collector.record.record import SourceLine
from roofwatch.db.values import Verdict

MAX_ANNOTATIONS = 100
"""Nobody reads more; GitHub takes 50 at a time, and any number in all."""
_MAX_FINDINGS = 10
"""Told of one function."""


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


def annotations_of(judgement: PullRequestJudgement) -> tuple[Annotation, ...]:
    """Beside which lines what is to be said: regressions first, the gravest of them first, then improvements."""
    places = SourcePlaces(judgement.source_lines)
    told: dict[SourceLine, list[tuple[Verdict, str]]] = defaultdict(list)
    for line, verdict, text in _findings(judgement, places):
        told[line].append((verdict, text))
    made = [_annotation(line, findings) for line, findings in told.items()]
    return tuple(sorted(made, key=lambda each: each.level is not Level.FAILURE)[:MAX_ANNOTATIONS])


class SourcePlaces:
    """The lines of each implementation.

    Args:
        lines: Of a record, in its order: what is called comes before what is compiled for it.
    """

    def __init__(self, lines: Sequence[SourceLine]) -> None:
        self._lines: Mapping[tuple[str, str], list[SourceLine]] = defaultdict(list)
        for line in lines:
            self._lines[line.kernel, line.implementation].append(line)

    def of(self, case_id: str, implementation: str, function: str | None = None) -> SourceLine | None:
        """Where a function stands; of none in particular, the only one that is compiled, else what is called."""
        # a kernel's name holds no slash, its cases' ids begin with it
        lines = self._lines.get((case_id.split("/", 1)[0], implementation), [])
        jitted = [line for line in lines if line.is_jitted]
        named = [line for line in jitted if line.function == function]
        return next(iter(named or (jitted if len(jitted) == 1 else lines)), None)


def _findings(judgement: PullRequestJudgement, places: SourcePlaces) -> Iterator[tuple[SourceLine, Verdict, str]]:
    told = (Verdict.REGRESSED, Verdict.IMPROVED)
    for case in worst_first(case for case in judgement.cases if case.verdict in told):
        line = places.of(case.case_id, case.implementation)
        if line is not None:
            yield line, case.verdict, _case_text(case)
    for item in judgement.static:
        line = places.of(item.case_id, item.implementation, item.function)
        if item.verdict in told and line is not None:
            yield line, item.verdict, _static_text(item)

    for move in judgement.secondary_changes:
        line = places.of(move.case_id, move.implementation)
        if move.verdict in told and line is not None:
            yield line, move.verdict, f"{plain(move.case_id)} {plain(move.implementation)}: {move.in_words}"


def _case_text(case: CaseJudgement) -> str:
    name = f"{plain(case.case_id)} {plain(case.implementation)}"
    if case.comparison is not None:
        low, high = case.comparison.relative_interval
        return f"{name}: time {case.comparison.relative_change:+.1%} (95 % interval {low:+.1%} to {high:+.1%})"
    message = case.head.message if case.head is not None and case.verdict is Verdict.REGRESSED else None
    return f"{name}: {REASON_WORDS.get(case.reason, case.reason)}" + (f": {plain(message)}" if message else "")


def _static_text(item: StaticJudgement) -> str:
    what = str(item.reason).replace("_", " ") if item.detail is None else item.detail.quoted(plain)
    return f"{plain(item.case_id)} {plain(item.implementation)} for {plain(item.target)}: {what}"


def _annotation(line: SourceLine, findings: Sequence[tuple[Verdict, str]]) -> Annotation:
    worse = [text for verdict, text in findings if verdict is Verdict.REGRESSED]
    is_worse = bool(worse)
    texts = worse or [text for _, text in findings]
    word = "regressed" if is_worse else "improved"
    more = [f"and {len(texts) - _MAX_FINDINGS} more"] if len(texts) > _MAX_FINDINGS else []
    return Annotation(
        line.file,
        line.line,
        Level.FAILURE if is_worse else Level.NOTICE,
        f"{plain(line.function, limit=100)}: {len(texts)} {word}",
        "\n".join([*texts[:_MAX_FINDINGS], *more]),
    )
