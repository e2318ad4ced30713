"""What binds a kernel that got slower, before and after: a diagnosis of both sides, and what the second adds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofwatch.ci.diagnosis.diagnose import diagnose
from roofwatch.ci.diagnosis.evidence import RecordEvidence
from roofwatch.ci.diagnosis.finding import Finding, Limit, Weight
from roofwatch.ci.message import Remark
from roofwatch.collector.record.record import RunRecord

_MAX_FINDINGS = 3
_TELLING = frozenset({Weight.BINDING, Weight.CAUSE})


@dataclass(frozen=True)
class LimitMove:
    """One case and implementation at the two ends of a change."""

    case_id: str
    implementation: str
    base: Limit
    head: Limit
    headline: Remark
    """Why it is the head's."""
    news: tuple[Remark, ...]
    """What the head shows and the base does not, the most telling first."""


def limit_moves(base: RunRecord, head: RunRecord, subjects: Iterable[tuple[str, str]]) -> tuple[LimitMove, ...]:
    """Diagnose cases at both ends; those of which the head's limit is not known, and nothing is new, are left out.

    Args:
        base: Record that has each of them.
        head: The same.
        subjects: Case and implementation.
    """
    before, after = RecordEvidence(base), RecordEvidence(head)
    moves = (_move(before, after, *subject) for subject in subjects)
    return tuple(move for move in moves if move.head is not Limit.UNDETERMINED or move.news)


def _move(base: RecordEvidence, head: RecordEvidence, case_id: str, implementation: str) -> LimitMove:
    before, after = (diagnose(each.of(case_id, implementation)) for each in (base, head))
    known = {finding.rule for finding in before.findings}
    news = [each for each in after.findings if each.rule not in known and each.weight in _TELLING]
    return LimitMove(
        case_id, implementation, before.limit, after.limit, after.headline, tuple(map(_said, news[:_MAX_FINDINGS]))
    )


def _said(finding: Finding) -> Remark:
    return Remark(f"{finding.title}: {finding.evidence.template}", finding.evidence.words)
