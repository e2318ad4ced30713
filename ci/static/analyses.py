"""Compares what is proven about offsets, and what calls cost in torch, of two commits.

An offset that overflows at a declared size, a smaller size that fits, more bytes and a new wait for
the device are regressions. Numbers of calls, launches and allocations explain a change and decide
nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.ci.messages import Remark
from roofwatch.model.metrics import format_bytes
from roofwatch.model.proofs import OPERATORS, OperatorCost, OverflowProof, Proof, UnprovenAccess
from roofwatch.model.record import RunRecord
from roofwatch.model.verdict import Reason, Verdict

OFFSETS = "pointer offsets"
EVERY_TARGET = "every target"
_UNSAFE = "unsafe"
_LARGEST = "largest "
_MIN_CHANGE = 0.01
"""Smallest change of bytes that decides: below it are flags and counters of a few elements."""
# more make the sentence unreadable
_MAX_NAMED = 4
_WORDS = {
    "moved_bytes": "bytes moved {} → {}",
    "peak_bytes": "memory of temporaries and results {} → {}",
    "wait_count": "waits for the device {} → {}",
}


@dataclass(frozen=True)
class Analysis:
    """Facts of one case and implementation with a direction, and what explains them."""

    case_id: str
    implementation: str
    function: str
    """`pointer offsets` or `torch operators`."""
    values: Mapping[str, int]
    """Lower is better, except for the largest size of a dimension."""
    searched: frozenset[str] = frozenset()
    """Dimensions whose largest size is known, or known to be without a limit."""
    text: Remark = field(default_factory=lambda: Remark(""), compare=False)
    calls: Mapping[str, int] = field(default_factory=dict)
    """Numbers that explain: calls of operators, launches, allocations."""
    target: str = EVERY_TARGET

    @property
    def is_unsafe(self) -> bool:
        return bool(self.values.get(_UNSAFE))

    @property
    def badness(self) -> dict[str, float]:
        """The facts as sizes that grow when they get worse."""
        return {
            name: 1 / max(value, 1) if name.startswith(_LARGEST) else float(value)
            for name, value in self.values.items()
        }


@dataclass(frozen=True)
class AnalysisEvidence:
    """Proofs about offsets, or costs in torch, of both sides."""

    base: Analysis | None
    head: Analysis


def analysis_subject(analysis: Analysis) -> ChangeSubject:
    return ChangeSubject(
        case_id=analysis.case_id,
        implementation=analysis.implementation,
        part=analysis.function,
        target=analysis.target,
    )


def analyses_of(
    proofs: Iterable[OverflowProof], costs: Iterable[OperatorCost]
) -> tuple[Analysis, ...]:
    return (*map(_of_proof, proofs), *map(_of_cost, costs))


def analyses_of_record(record: RunRecord) -> tuple[Analysis, ...]:
    return analyses_of(record.overflow_proofs, record.operator_costs)


def _of_proof(proof: OverflowProof) -> Analysis:
    values = {f"{_LARGEST}{limit.dimension}": limit.largest for limit in proof.limits}
    return Analysis(
        case_id=proof.case_id,
        implementation=proof.implementation,
        function=OFFSETS,
        values={_UNSAFE: int(proof.proof is Proof.UNSAFE), **values},
        searched=frozenset(proof.searched),
        text=describe_proof(proof),
    )


def _of_cost(cost: OperatorCost) -> Analysis:
    return Analysis(
        case_id=cost.case_id,
        implementation=cost.implementation,
        function=OPERATORS,
        values={name: getattr(cost, name) for name in _WORDS},
        calls={
            **cost.calls,
            "launches": cost.launch_count,
            "allocations": cost.allocation_count,
        },
    )


def describe_proof(proof: OverflowProof) -> Remark:
    """Say what overflows, or up to which sizes everything fits."""
    # one unsafe access is enough to be wrong
    unsafe = [access for access in proof.unproven if access.proof is Proof.UNSAFE]
    if unsafe:
        return _of_access(unsafe[0], "overflows: ")
    # an access that cannot be proven may still be safe
    if proof.proof is Proof.UNKNOWN:
        reason = proof.message or (proof.unproven[0].reason if proof.unproven else "no access")
        return Remark("cannot tell: {}", (reason,))
    if not proof.limits:
        return Remark(f"all {proof.access_count} accesses fit into 32 bits")
    sizes: list[str] = []
    words: list[str] = []
    for limit in proof.limits:
        sizes.append(f"{{}} = {limit.largest:,}")
        words.append(limit.dimension)
    return Remark(f"fits up to {', or '.join(sizes)}", tuple(words))


def _of_access(access: UnprovenAccess, prefix: str) -> Remark:
    template = f"{prefix}{{}} of {{}} in {{}}: {{}}"
    words = [access.kind, access.pointer, access.function, access.reason]
    if access.file is not None:
        template += " ({}:{})"
        words += [access.file, str(access.line)]
    return Remark(template, tuple(words))


# --- judging


def judge_analyses(
    base: Sequence[Analysis], head: Sequence[Analysis]
) -> list[Change[AnalysisEvidence]]:
    """Judge what is known about offsets and operators; what decides nothing is left out."""
    base_by_subject = {analysis_subject(analysis): analysis for analysis in base}
    changes: list[Change[AnalysisEvidence]] = []
    for analysis in sorted(head, key=analysis_subject):
        change = judge_analysis(base_by_subject.get(analysis_subject(analysis)), analysis)
        if change is not None:
            changes.append(change)
    return changes


def judge_analysis(base: Analysis | None, head: Analysis) -> Change[AnalysisEvidence] | None:
    """Judge the facts of one case; None if nothing that decides differs."""
    if head.function == OFFSETS:
        return _judge_offsets(base, head)
    if base is None:
        return None
    return _judge_cost(base, head)


def _judge_offsets(base: Analysis | None, head: Analysis) -> Change[AnalysisEvidence] | None:
    was_unsafe = base is not None and base.is_unsafe
    if head.is_unsafe:
        # an old overflow is shown, and fails nobody's change
        if was_unsafe:
            return _change(
                base=base,
                head=head,
                verdict=Verdict.UNCHANGED,
                reason=Reason.ALREADY_FAILING,
                detail=head.text,
            )
        return _change(
            base=base,
            head=head,
            verdict=Verdict.REGRESSED,
            reason=Reason.OFFSET_OVERFLOW,
            detail=head.text,
        )
    if was_unsafe:
        return _change(
            base=base, head=head, verdict=Verdict.IMPROVED, reason=Reason.FIXED, detail=head.text
        )
    if base is None:
        return None
    limits = [
        (dimension, base.values.get(_LARGEST + dimension), head.values.get(_LARGEST + dimension))
        for dimension in sorted(base.searched & head.searched)
    ]
    smaller = [limit for limit in limits if _is_smaller(limit[2], limit[1])]
    larger = [limit for limit in limits if _is_smaller(limit[1], limit[2])]
    if not (smaller or larger):
        return None
    verdict = Verdict.of_change(is_worse=bool(smaller))
    detail = _limits_in_words(smaller or larger)
    return _change(
        base=base, head=head, verdict=verdict, reason=Reason.OFFSET_LIMIT_CHANGED, detail=detail
    )


def _change(
    base: Analysis | None,
    head: Analysis,
    verdict: Verdict,
    reason: Reason,
    detail: Remark,
) -> Change[AnalysisEvidence]:
    return Change(
        subject=analysis_subject(head),
        metric=head.function,
        verdict=verdict,
        reason=reason,
        detail=detail,
        evidence=AnalysisEvidence(base, head),
    )


def _is_smaller(largest: int | None, other_limit: int | None) -> bool:
    """Return whether a limit is tighter than another; None is no limit."""
    if largest is None:
        return False
    return other_limit is None or largest < other_limit


def _limits_in_words(limits: Sequence[tuple[str, int | None, int | None]]) -> Remark:
    parts: list[str] = []
    words: list[str] = []
    for dimension, base, head in limits:
        if base is None:
            parts.append(f"offsets fit at any {{}} → only up to {head:,}")
        elif head is None:
            parts.append(f"offsets fit up to {{}} = {base:,} → at any size")
        else:
            parts.append(f"offsets fit up to {{}} = {base:,} → {head:,}")
        words.append(dimension)
    return Remark(", ".join(parts), tuple(words))


def _judge_cost(base: Analysis, head: Analysis) -> Change[AnalysisEvidence] | None:
    is_worse = False
    is_better = False
    for name in _WORDS:
        # a cost that one side lacks cannot be compared
        if name not in base.values or name not in head.values:
            continue
        base_cost = base.values[name]
        head_cost = head.values[name]
        is_worse = is_worse or _is_more(base_cost, head_cost, name)
        is_better = is_better or _is_more(head_cost, base_cost, name)
    if not is_worse and not is_better:
        return None
    return _change(
        base=base,
        head=head,
        verdict=Verdict.of_change(is_worse=is_worse),
        reason=Reason.OPERATOR_COST_CHANGED,
        detail=_cost_in_words(base, head),
    )


def is_other_cost(name: str, base: float, head: float) -> bool:
    """Whether a count of a call differs by enough to decide."""
    return _is_more(base, head, name) or _is_more(head, base, name)


def _is_more(base: float, head: float, name: str) -> bool:
    # a single wait stalls the whole queue, however small its share
    if name == "wait_count":
        return head > base
    return head > base * (1 + _MIN_CHANGE)


def _cost_in_words(base: Analysis, head: Analysis) -> Remark:
    parts: list[str] = []
    for name, phrase in _WORDS.items():
        base_value = base.values.get(name, 0)
        head_value = head.values.get(name, 0)
        if base_value != head_value:
            write = str if name == "wait_count" else format_bytes
            parts.append(phrase.format(write(base_value), write(head_value)))
    words: list[str] = []
    for name, base_count, head_count in islice(_changed_calls(base, head), _MAX_NAMED):
        parts.append(f"{{}} {base_count} → {head_count}")
        words.append(name)
    return Remark(", ".join(parts), tuple(words))


def _changed_calls(base: Analysis, head: Analysis) -> Iterator[tuple[str, int, int]]:
    for name in sorted({*base.calls, *head.calls}):
        base_count = base.calls.get(name, 0)
        head_count = head.calls.get(name, 0)
        if base_count != head_count:
            yield name, base_count, head_count
