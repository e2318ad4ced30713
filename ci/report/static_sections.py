"""What a pull-request comment says of machine code: one table per target, and why what moved matters. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from roofwatch.ci.reason import Reason
from roofwatch.ci.report.findings import VERDICT_ORDER
from roofwatch.ci.report.markdown import Section, code
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.ci.static.facts import FACTS, fact_values
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Cause, Verdict

_WHAT = {
    Reason.ROOM_MOVED: "room",
    Reason.SPILLS_MOVED: "memory per thread",
    Reason.TENSOR_CORES_MOVED: "tensor cores",
    Reason.ACCESS_WIDTH_MOVED: "width of accesses",
}


def static_changes(judgement: PullRequestJudgement) -> list[Section]:
    """A table per target of what moved, the target with the gravest change first."""
    by_target: dict[str, list[StaticJudgement]] = defaultdict(list)
    for item in judgement.static:
        by_target[item.target].append(item)
    ordered = sorted(by_target.items(), key=lambda pair: (min(map(_weight, pair[1])), pair[0]))
    return [_target_section(target, items, judgement.unchanged_by_target.get(target, 0)) for target, items in ordered]


def static_evidence(judgement: PullRequestJudgement) -> Section:
    """A sentence for what moved and why that matters, once for all targets that it holds for."""
    targets: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for item in sorted((item for item in judgement.static if item.is_told), key=_weight):
        if item.detail is not None and item.has_compiled:
            cells = (code(item.function), code(item.case_id), code(item.implementation), item.detail.quoted(code))
            targets[cells].append(code(item.target))
    return Section(
        "Why the machine code matters",
        ("kernel", "case", "implementation", "what moved", "on"),
        [(*cells, ", ".join(found)) for cells, found in targets.items()],
        is_folded=True,
    )


def _target_section(target: str, items: Sequence[StaticJudgement], unchanged_count: int) -> Section:
    shown = sorted((item for item in items if item.is_told), key=_weight)
    changed = {name for item in shown for name in item.moved_facts}
    facts = [name for name in FACTS if name in changed]
    outcome = ["outcome"] if any(not item.has_compiled for item in shown) else []
    return Section(
        f"Machine code for {code(target)}",
        ("verdict", "kernel", "case", "implementation", *outcome, *(metric(name).title for name in facts)),
        [
            (
                _word(item),
                code(item.function),
                code(item.case_id),
                code(item.implementation),
                *([_outcomes(item)] if outcome else []),
                *(_cell(item, name) for name in facts),
            )
            for item in shown
        ],
        text=_remarks(items, unchanged_count),
    )


def _remarks(items: Sequence[StaticJudgement], unchanged_count: int) -> str | None:
    reasons = Counter(item.reason for item in items if not item.is_told)
    new, gone = reasons[Reason.NEW_CASE], reasons[Reason.REMOVED_CASE]
    counts = {
        "with the same machine code": unchanged_count,
        "with new machine code and the same facts": reasons.total() - new - gone,
        "new": new,
        "gone": gone,
    }
    rest = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    remarks = [f"Not listed: {rest}."] if rest else []
    if any(item.verdict is Verdict.REGRESSED and item.has_compiled for item in items if item.is_told):
        remarks.append("What the compiler made hints at a slowdown; it is not a measured time.")
    if any(item.cause is Cause.TOOLCHAIN for item in items):
        remarks.append("Base and head were compiled by different toolchains, which may have moved what moved.")
    return " ".join(remarks) or None


def _word(item: StaticJudgement) -> str:
    is_bad = item.verdict is Verdict.REGRESSED or item.reason is Reason.TARGET_LOST
    word = f"**{item.word}**" if is_bad else item.word
    return f"{word}: {_WHAT[item.reason]}" if item.reason in _WHAT else word


def _outcomes(item: StaticJudgement) -> str:
    if item.has_compiled:
        return ""
    there, here = ("–" if side is None else str(side.outcome) for side in (item.base, item.head))
    message = "" if item.head is None or not item.head.message else f": {code(item.head.message)}"
    return f"{there} → {here}{message}"


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
