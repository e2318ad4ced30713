"""Compares what is proven about offsets, and what calls cost in torch, of two commits.

An offset that overflows at a declared size, a smaller size that fits, more bytes and a new wait for
the device are regressions. Numbers of calls, launches and allocations explain a change and decide
nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from roofwatch.ci.judge.change import Change, subject_of
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
        """Whether an offset overflows."""
        return bool(self.values.get(_UNSAFE))

    @property
    def badness(self) -> dict[str, float]:
        """The facts as sizes that grow when they get worse."""
        sizes: dict[str, float] = {}
        for name, value in self.values.items():
            # a larger limit is better
            if name.startswith(_LARGEST):
                sizes[name] = 1 / max(value, 1)
            else:
                sizes[name] = float(value)
        return sizes


@dataclass(frozen=True)
class AnalysisEvidence:
    """Proofs about offsets, or costs in torch, of both sides."""

    base: Analysis | None
    head: Analysis


def analyses_of(
    proofs: Iterable[OverflowProof],
    costs: Iterable[OperatorCost],
) -> tuple[Analysis, ...]:
    of_proofs = map(_of_proof, proofs)
    return (*of_proofs, *map(_of_cost, costs))


def analyses_of_record(record: RunRecord) -> tuple[Analysis, ...]:
    return analyses_of(record.overflow_proofs, record.operator_costs)


def _of_proof(proof: OverflowProof) -> Analysis:
    """The largest safe size of each dimension, and whether an offset overflows."""
    values = {_UNSAFE: int(proof.proof is Proof.UNSAFE)}
    for limit in proof.limits:
        values[_LARGEST + limit.dimension] = limit.largest
    return Analysis(
        case_id=proof.case_id,
        implementation=proof.implementation,
        function=OFFSETS,
        values=values,
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
        reasons = [access.reason for access in proof.unproven]
        reason = proof.message or next(iter(reasons), "no access")
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
    words = [
        access.kind,
        access.pointer,
        access.function,
        access.reason,
    ]
    if access.file is not None:
        template += " ({}:{})"
        words += [access.file, str(access.line)]
    return Remark(template, tuple(words))


# --- judging


def judge_analyses(
    base: Sequence[Analysis],
    head: Sequence[Analysis],
) -> list[Change[AnalysisEvidence]]:
    """Judge what is known about offsets and operators; what decides nothing is left out."""
    base_by_subject = {subject_of(analysis): analysis for analysis in base}
    changes: list[Change[AnalysisEvidence]] = []
    for analysis in sorted(head, key=subject_of):
        change = judge_analysis(base_by_subject.get(subject_of(analysis)), analysis)
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
    if head.is_unsafe or was_unsafe:
        return _judge_overflow(base, head, was_unsafe=was_unsafe)
    if base is None:
        return None
    return _judge_limits(base, head)


def _judge_overflow(
    base: Analysis | None,
    head: Analysis,
    *,
    was_unsafe: bool,
) -> Change[AnalysisEvidence]:
    """Judge offsets that overflow at a declared size, of at least one side."""
    if not head.is_unsafe:
        verdict = Verdict.IMPROVED
        reason = Reason.FIXED
    # an old overflow is shown, and fails nobody's change
    elif was_unsafe:
        verdict = Verdict.UNCHANGED
        reason = Reason.ALREADY_FAILING
    else:
        verdict = Verdict.REGRESSED
        reason = Reason.OFFSET_OVERFLOW
    return _change(
        base,
        head,
        verdict,
        reason,
        detail=head.text,
    )


@dataclass(frozen=True)
class _SizeLimit:
    """Largest size of a dimension up to which offsets fit; None is no limit."""

    dimension: str
    base: int | None
    head: int | None


def _judge_limits(base: Analysis, head: Analysis) -> Change[AnalysisEvidence] | None:
    """Judge up to which sizes offsets fit."""
    smaller: list[_SizeLimit] = []
    larger: list[_SizeLimit] = []
    for dimension in sorted(base.searched & head.searched):
        limit = _SizeLimit(
            dimension=dimension,
            base=base.values.get(_LARGEST + dimension),
            head=head.values.get(_LARGEST + dimension),
        )
        if _is_smaller(limit.head, limit.base):
            smaller.append(limit)
        elif _is_smaller(limit.base, limit.head):
            larger.append(limit)
    if not smaller and not larger:
        return None
    verdict = Verdict.of_change(is_worse=bool(smaller))
    detail = _limits_in_words(smaller or larger)
    return _change(
        base,
        head,
        verdict,
        Reason.OFFSET_LIMIT_CHANGED,
        detail,
    )


def _change(
    base: Analysis | None,
    head: Analysis,
    verdict: Verdict,
    reason: Reason,
    detail: Remark,
) -> Change[AnalysisEvidence]:
    return Change(
        subject=subject_of(head),
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


def _limits_in_words(limits: Sequence[_SizeLimit]) -> Remark:
    parts: list[str] = []
    for limit in limits:
        if limit.base is None:
            parts.append(f"offsets fit at any {{}} → only up to {limit.head:,}")
        elif limit.head is None:
            parts.append(f"offsets fit up to {{}} = {limit.base:,} → at any size")
        else:
            sides = f"{limit.base:,} → {limit.head:,}"
            parts.append(f"offsets fit up to {{}} = {sides}")
    dimensions = tuple(limit.dimension for limit in limits)
    return Remark(", ".join(parts), dimensions)


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
    verdict = Verdict.of_change(is_worse=is_worse)
    detail = _cost_in_words(base, head)
    return _change(
        base,
        head,
        verdict,
        Reason.OPERATOR_COST_CHANGED,
        detail,
    )


def is_other_cost(
    name: str,
    base: float,
    head: float,
) -> bool:
    """Whether a count of a call differs by enough to decide."""
    return _is_more(base, head, name) or _is_more(head, base, name)


def _is_more(
    base: float,
    head: float,
    name: str,
) -> bool:
    """Whether a cost grew noticeably."""
    # a single wait stalls the whole queue, however small its share
    if name == "wait_count":
        return head > base
    return head > base * (1 + _MIN_CHANGE)


def _cost_in_words(base: Analysis, head: Analysis) -> Remark:
    """Both values of each cost that changed, and the first calls of operators that did."""
    parts: list[str] = []
    for name, phrase in _WORDS.items():
        base_value = base.values.get(name, 0)
        head_value = head.values.get(name, 0)
        if base_value != head_value:
            base_text = format_bytes(base_value)
            head_text = format_bytes(head_value)
            # all other costs are bytes
            if name == "wait_count":
                base_text = str(base_value)
                head_text = str(head_value)
            parts.append(phrase.format(base_text, head_text))
    words: list[str] = []
    for name, base_count, head_count in islice(_changed_calls(base, head), _MAX_NAMED):
        parts.append(f"{{}} {base_count} → {head_count}")
        words.append(name)
    return Remark(", ".join(parts), tuple(words))


def _changed_calls(base: Analysis, head: Analysis) -> Iterator[tuple[str, int, int]]:
    """Operators that are called more or less often, with both counts."""
    for name in sorted({*base.calls, *head.calls}):
        base_count = base.calls.get(name, 0)
        head_count = head.calls.get(name, 0)
        if base_count != head_count:
            yield name, base_count, head_count
