"""What the difference of two steps says, in words: what a step is, the terms of the sum, and what
changed most.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from roofwatch.ci.ab.step_ledger import NOT_EXPLAINED, LedgerKind, LedgerRow, StepLedger
from roofwatch.ci.messages import count_of, short_name
from roofwatch.collector.profiling.steady import StepKind
from roofwatch.collector.profiling.steps import StepTimes
from roofwatch.model.metrics import format_ns

_FUSED = re.compile(r"(?:triton_[a-z]+|cpp|graph_\d+_cpp)_fused_(\w+?)_\d+$")
"""Name of a kernel that torch.compile wrote; it lists the operators inside."""


def what_a_step_is(ledger: StepLedger) -> str:
    """Say what the times are means of."""
    base = ledger.base
    head = ledger.head
    counts = f"{base.step_count} of the base, {head.step_count} of the head"
    # a record has means of calls, and no trace
    if not base.has_order:
        return (
            f"one call; the step is the measured median, the terms are means of the profiled "
            f"calls, {counts}"
        )
    if base.steps_are is StepKind.WHOLE:
        return (
            "the whole trace is one step, because not both traces have ProfilerStep markers, "
            "optimizer steps or the same repeated operators"
        )
    return f"mean of the steps, seen as {base.steps_are}: {counts}{_spread(base, head)}"


def _spread(base: StepTimes, head: StepTimes) -> str:
    """How long the shortest and the longest step of each side took."""
    if base.step_spread_ns is None or head.step_spread_ns is None:
        return ""
    ranges = []
    for shortest_ns, longest_ns in (base.step_spread_ns, head.step_spread_ns):
        ranges.append(f"{format_ns(shortest_ns)} to {format_ns(longest_ns)}")
    return f"; a step of the base took {ranges[0]}, of the head {ranges[1]}"


class Term(NamedTuple):
    """One term of the sum. Times are ns of one step."""

    name: str
    """Of the part of a step's time."""
    base_ns: float | None
    """None if the term has no value of a side."""
    head_ns: float | None
    change_ns: float


def terms(ledger: StepLedger) -> list[Term]:
    """List the step and the terms that its change is the sum of."""
    base = ledger.base
    head = ledger.head

    def sides(name: str) -> tuple[float, float]:
        base_ns = getattr(base, name) / base.step_count
        head_ns = getattr(head, name) / head.step_count
        return base_ns, head_ns

    return [
        Term(
            name="step",
            base_ns=ledger.base_step_ns,
            head_ns=ledger.head_step_ns,
            change_ns=ledger.step_change_ns,
        ),
        Term(
            name="busy, matched launches",
            base_ns=None,
            head_ns=None,
            change_ns=ledger.matched_ns,
        ),
        Term(
            name="+ added launches",
            base_ns=None,
            head_ns=ledger.added_ns,
            change_ns=ledger.added_ns,
        ),
        Term(
            name="- removed launches",
            base_ns=ledger.removed_ns,
            head_ns=None,
            change_ns=-ledger.removed_ns,
        ),
        Term(
            "+ gaps",
            *sides("gap_ns"),
            ledger.gap_change_ns,
        ),
        Term(
            "- overlap",
            *sides("overlap_ns"),
            -ledger.overlap_change_ns,
        ),
        Term(
            name="residual",
            base_ns=None,
            head_ns=None,
            change_ns=ledger.residual_ns,
        ),
    ]


def changed_rows(ledger: StepLedger) -> list[LedgerRow]:
    """List what was added or removed first, then what takes another time, the largest first."""
    # what matches and takes as long as before is no news
    rows = [row for row in ledger.rows if row.change_ns or row.change is not LedgerKind.MATCHED]
    return sorted(rows, key=lambda row: row.change is LedgerKind.MATCHED)


def kernels_text(row: LedgerRow) -> str:
    """For example `3 kernels -> 1: pow, mean, mul -> rms_norm`."""
    before = _names_text(row.base_names)
    after = _names_text(row.head_names)
    if row.change is LedgerKind.MATCHED:
        return before
    if row.change in {LedgerKind.ADDED, LedgerKind.REMOVED, LedgerKind.CODE_CHANGED}:
        return f"{row.change}: {before or after}"
    if row.change in {LedgerKind.RENAMED, LedgerKind.SAME_CODE}:
        return f"{row.change}: {before} -> {after}"
    return (
        f"{count_of(len(row.base_names), 'kernel')} -> {len(row.head_names)}: {before} -> {after}"
    )


def _names_text(names: Iterable[str]) -> str:
    """List names once each, with what torch.compile fused into them."""
    texts = []
    for name in dict.fromkeys(names):
        text = short_name(name)
        fused = _FUSED.match(name)
        if fused is not None:
            text += f" (torch.compile fused {fused[1]})"
        texts.append(text)
    return ", ".join(texts)


def sentences(ledger: StepLedger) -> Iterator[str]:
    """Say whether the sum explains the difference, and what is known of each side."""
    # the reader must know what the rows do not account for
    if not ledger.is_explained:
        share = None
        if ledger.step_change_ns:
            share = abs(ledger.residual_ns / ledger.step_change_ns)
        of_change = ""
        if share is not None:
            of_change = f", {share:.1%} of the change"
        yield (
            f"Not explained: the residual is {signed_ns(ledger.residual_ns)}{of_change} (limit "
            f"{NOT_EXPLAINED:.0%})."
        )
    for name, times in (("base", ledger.base), ("head", ledger.head)):
        yield from (f"{name}: {note}." for note in times.notes)


def signed_ns(ns: float) -> str:
    text = format_ns(ns + 0.0)  # never -0
    if ns > 0:
        return f"+{text}"
    return text
