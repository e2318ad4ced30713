"""Machine code in a pull-request comment: one table per target, and why the changes matter. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from roofwatch.ci.report.findings import VERDICT_ORDER
from roofwatch.ci.report.markdown import Section, code
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.ci.static.facts import FACTS, fact_values
from roofwatch.ci.verdicts import Reason
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Cause, Verdict

_CHANGED = {
    Reason.FIT_CHANGED: "occupancy",
    Reason.SPILLS_CHANGED: "memory per thread",
    Reason.TENSOR_CORES_CHANGED: "tensor cores",
    Reason.ACCESS_WIDTH_CHANGED: "access width",
}


def verdict_cell(verdict: Verdict) -> str:
    return f"**{verdict}**" if verdict is Verdict.REGRESSED else str(verdict)


def static_changes(judgement: PullRequestJudgement) -> list[Section]:
    """Write a table per target, that with the most severe change first."""
    by_target: dict[str, list[StaticJudgement]] = defaultdict(list)
    for item in judgement.static:
        by_target[item.target].append(item)
    ordered = sorted(by_target.items(), key=lambda pair: (min(map(_weight, pair[1])), pair[0]))
    return [_target_section(target, items, judgement.unchanged_by_target.get(target, 0)) for target, items in ordered]


def static_evidence(judgement: PullRequestJudgement) -> Section:
    """Write why changes matter, once for all targets with the same reason."""
    targets: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for item in sorted((item for item in judgement.static if item.is_listed), key=_weight):
        if item.detail is not None and item.has_compiled:
            row = {**_subject(item), "change": item.detail.quoted(code)}
            targets[tuple(row.items())].append(code(item.target))
    rows = [{**dict(row), "targets": ", ".join(found)} for row, found in targets.items()]
    return Section("Why the machine code matters", rows, is_folded=True)


def _subject(item: StaticJudgement) -> dict[str, str]:
    return {"kernel": code(item.function), "case": code(item.case_id), "implementation": code(item.implementation)}


def _target_section(target: str, items: Sequence[StaticJudgement], unchanged_count: int) -> Section:
    shown = sorted((item for item in items if item.is_listed), key=_weight)
    facts = [name for name in FACTS if any(name in item.moved_facts for item in shown)]
    has_outcomes = not all(item.has_compiled for item in shown)
    rows = [
        {
            "verdict": _word(item),
            **_subject(item),
            **({"outcome": _outcomes(item)} if has_outcomes else {}),
            **{metric(name).title: _cell(item, name) for name in facts},
        }
        for item in shown
    ]
    return Section(f"Machine code for {code(target)}", rows, text=_text(items, unchanged_count))


def _text(items: Sequence[StaticJudgement], unchanged_count: int) -> str | None:
    reasons = Counter(item.reason for item in items if not item.is_listed)
    new, removed = reasons[Reason.NEW_CASE], reasons[Reason.REMOVED_CASE]
    counts = {
        "identical": unchanged_count,
        "with changed machine code and unchanged metrics": reasons.total() - new - removed,
        "new": new,
        "removed": removed,
    }
    rest = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    sentences = [f"Not listed: {rest}."] if rest else []
    if any(item.verdict is Verdict.REGRESSED and item.has_compiled for item in items if item.is_listed):
        sentences.append("These metrics hint at a slowdown; they are not a measured time.")
    if any(item.cause is Cause.TOOLCHAIN for item in items):
        sentences.append("The toolchains differ, which may be the cause.")
    return " ".join(sentences) or None


def _word(item: StaticJudgement) -> str:
    is_bad = item.verdict is Verdict.REGRESSED or item.reason is Reason.TARGET_LOST
    word = f"**{item.word}**" if is_bad else item.word
    return f"{word}: {_CHANGED[item.reason]}" if item.reason in _CHANGED else word


def _outcomes(item: StaticJudgement) -> str:
    if item.has_compiled:
        return ""
    base, head = ("–" if side is None else str(side.outcome) for side in (item.base, item.head))
    message = "" if item.head is None or not item.head.message else f": {code(item.head.message)}"
    return f"{base} → {head}{message}"


def _cell(item: StaticJudgement, name: str) -> str:
    if not item.has_compiled:
        return ""
    base, head = _values(item.base), _values(item.head)
    old, new = (metric(name).format(side[name]) if name in side else "–" for side in (base, head))
    return old if base.get(name) == head.get(name) else f"**{old} → {new}**"


def _values(facts: StaticFacts | None) -> dict[str, float]:
    return {} if facts is None else fact_values(facts)


def _weight(item: StaticJudgement) -> tuple[int, float, str, str]:
    moved = item.moved_facts
    size = abs(_values(item.head)[moved[0]] - _values(item.base)[moved[0]]) if moved else 0.0
    return VERDICT_ORDER.index(item.verdict), -size, item.function, item.case_id
