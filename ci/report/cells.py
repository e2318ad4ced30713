"""The cells of a comment's tables, as Markdown. Pure."""

import math
from collections.abc import Mapping, Set
from functools import partial
from typing import Any

from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.pairing import SideResult
from roofwatch.ci.messages import cell_code, code
from roofwatch.ci.static.analyses import AnalysisEvidence
from roofwatch.ci.static.comparison import (
    StaticChange,
    moved_facts_of,
    word_of,
)
from roofwatch.model.metrics import metric
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Reason, Verdict

_MAX_FACTS = 3
_WIDE = 0.2
_MAX_MESSAGE = 600


def half_width(case: Change[CaseEvidence]) -> str:
    """Write an interval as `±1.2%`, a wide one with both ends; empty if it has none."""
    if case.relative_interval is None:
        return ""
    low, high = case.relative_interval
    # too few blocks give no bounds
    if not math.isfinite(high - low):
        return ""
    half = (high - low) / 2
    # the interval of a ratio is not symmetric, which shows where it is wide
    if half > _WIDE:
        return f" ({percent(low)} to {percent(high)})"
    return f" ±{half:.1%}"


def medians_note(case: Change[CaseEvidence]) -> str:
    """Explain times whose ratio is not the change beside them."""
    comparison = case.evidence.comparison
    if comparison is None or comparison.change_of_medians is None:
        return ""
    return (
        f"<br>medians {percent(comparison.change_of_medians)}; the change is of neighbouring blocks"
    )


def percent(change: float) -> str:
    """Write a relative change with two or three digits: `+8.0%`, `+117%`."""
    # from there on, one decimal would round to 10.0%
    if abs(change) < 0.0995:
        return f"{change:+.1%}"
    return f"{change:+,.0%}"


def both_sides(
    name: str,
    base: float | None,
    head: float | None,
) -> str:
    """Values of base and head in the unit of their metric."""
    return f"{_side(name, base)} → {_side(name, head)}"


def _side(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return metric(name).format(value)


def roofline_text(case: Change[CaseEvidence]) -> str:
    """Share of the roofline on both sides; empty without a cost model."""
    base = case.evidence.base
    head = case.evidence.head
    if base is None or head is None:
        return ""
    # a case without a cost model has no roofline
    if base.utilisation is None or head.utilisation is None:
        return ""
    base_share = f"{base.utilisation:.0%}"
    head_share = f"{head.utilisation:.0%}"
    # equal as they are written, a reader sees no change
    if base_share == head_share:
        return head_share
    return f"{base_share} → {head_share}"


def outcome_text(case: Change[CaseEvidence]) -> str:
    """How a case ended, with how it ended before if that is news."""
    base = outcome_of(case.evidence.base)
    head = outcome_of(case.evidence.head)
    # that it worked before is what a reader expects
    if base in {head, "ok"}:
        return head
    return f"{base} → {head}"


def outcome_of(side: SideResult | None) -> str:
    """How one side ended; a dash if it has no result."""
    if side is None:
        return "–"
    return str(side.failure or side.measured or side.accuracy)


def message_of(case: Change[CaseEvidence]) -> str:
    """The explanation of a case, else the message of the side that failed."""
    if case.detail is not None:
        return case.detail.quoted(cell_code)
    # the base is the side that failed
    if case.reason is Reason.FIXED:
        side = case.evidence.base
    else:
        side = case.evidence.head
    if side is not None and side.message:
        return cell_code(side.message, limit=_MAX_MESSAGE)
    return ""


def bold(item: Change[Any], text: str) -> str:
    """Emphasise what regressed."""
    if item.verdict is not Verdict.REGRESSED:
        return text
    return f"**{text}**"


def code_change(change: StaticChange, failures: Set[str]) -> str:
    """Write what changed in a function, without a message that is one of the failures above."""
    word = word_of(change)
    # what blocks the merge is bold
    if change.verdict is Verdict.REGRESSED or change.reason is Reason.TARGET_LOST:
        word = f"**{word}**"
    detail = ""
    if change.detail is not None:
        detail = change.detail.quoted(partial(cell_code, limit=_MAX_MESSAGE))
    # the explanation of a verdict names the facts too, and why they matter
    is_explained = bool(detail) and change.verdict is not Verdict.UNCHANGED
    facts = moved_facts_of(change)
    if facts and not is_explained:
        return f"{word}: {_facts_text(facts)}"
    evidence = change.evidence
    if isinstance(evidence, AnalysisEvidence):
        return f"{word}: {detail}"
    if not evidence.has_compiled:
        base_outcome = _outcome_of_code(evidence.base)
        word += f": {base_outcome} → {_outcome_of_code(evidence.head)}"
    # the message stands in the table of results already
    head = evidence.head
    is_shown_above = head is not None and head.message in failures
    if is_shown_above or not detail:
        return word
    return f"{word}: {detail}"


def _facts_text(facts: Mapping[str, tuple[float, float]]) -> str:
    """Write the first facts that differ, which are the decisive ones."""
    texts: list[str] = []
    for name in list(facts)[:_MAX_FACTS]:
        base, head = facts[name]
        title = metric(name).title
        texts.append(f"{title} {both_sides(name, base, head)}")
    return ", ".join(texts)


def _outcome_of_code(side: StaticFacts | None) -> str:
    if side is None:
        return "–"
    return str(side.outcome)


def names_of(item: Change[Any]) -> str:
    """Case and implementation, quoted."""
    return f"{code(item.case_id)} {code(item.implementation)}"


def why_undecided(case: Change[CaseEvidence]) -> str:
    """The reason of an undecided case; empty for others."""
    claimed = case.evidence.claimed.text
    # it failed before, so this change is not to blame
    if case.reason is Reason.ALREADY_FAILING:
        return f"{claimed}: {outcome_text(case)} {message_of(case)}"
    if case.detail is not None:
        detail = case.detail.quoted(code)
        return f"{claimed}: {detail}"
    comparison = case.evidence.comparison
    if case.reason is Reason.NOISE and comparison is not None and comparison.more_blocks:
        more = f"needs about {comparison.more_blocks} more"
        return f"{claimed} (±{comparison.threshold:.0%}): {more}"
    if case.cause is not None:
        return f"{claimed}; cause: {case.cause}"
    return claimed
