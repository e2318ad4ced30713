"""What the difference of two steps says, in words: what a step is, the terms of the sum, and what
changed most.
"""

from collections.abc import Iterator
from typing import NamedTuple

from roofwatch.ci.ab.step_ledger import NOT_EXPLAINED, LedgerKind, LedgerRow, StepLedger
from roofwatch.ci.messages import count_of, short_name
from roofwatch.model.metrics import format_ns


def what_a_step_is(ledger: StepLedger) -> str:
    """Say what the times are means of."""
    base, head = ledger.base, ledger.head
    counts = f"{base.step_count} of the base, {head.step_count} of the head"
    if not base.has_order:
        return (
            f"one call; the step is the measured median, the terms are means of the profiled "
            f"calls, {counts}"
        )
    if not base.has_markers:
        return "the whole trace is one step, because not both traces have ProfilerStep markers"
    return f"mean of the steps between ProfilerStep markers, {counts}"


class Term(NamedTuple):
    """One term of the sum. Times are ns of one step."""

    name: str
    base_ns: float | None
    """None if the term has no value of a side."""
    head_ns: float | None
    change_ns: float


def terms(ledger: StepLedger) -> list[Term]:
    """List the step and the terms that its change is the sum of."""
    base, head = ledger.base, ledger.head

    def sides(name: str) -> tuple[float, float]:
        return getattr(base, name) / base.step_count, getattr(head, name) / head.step_count

    return [
        Term("step", ledger.base_step_ns, ledger.head_step_ns, ledger.step_change_ns),
        Term("busy, matched launches", None, None, ledger.matched_ns),
        Term("+ added launches", None, ledger.added_ns, ledger.added_ns),
        Term("- removed launches", ledger.removed_ns, None, -ledger.removed_ns),
        Term("+ gaps", *sides("gap_ns"), ledger.gap_change_ns),
        Term("- overlap", *sides("overlap_ns"), -ledger.overlap_change_ns),
        Term("residual", None, None, ledger.residual_ns),
    ]


def changed_rows(ledger: StepLedger) -> list[LedgerRow]:
    return [row for row in ledger.rows if row.change_ns or row.change is not LedgerKind.MATCHED]


def kernels_text(row: LedgerRow) -> str:
    """For example `3 kernels -> 1: pow, mean, mul -> rms_norm`."""
    before, after = (
        ", ".join(dict.fromkeys(map(short_name, names)))
        for names in (row.base_names, row.head_names)
    )
    if row.change is LedgerKind.MATCHED:
        return before
    if row.change in {LedgerKind.ADDED, LedgerKind.REMOVED, LedgerKind.CODE_CHANGED}:
        return f"{row.change}: {before or after}"
    if row.change in {LedgerKind.RENAMED, LedgerKind.SAME_CODE}:
        return f"{row.change}: {before} -> {after}"
    return (
        f"{count_of(len(row.base_names), 'kernel')} -> {len(row.head_names)}: {before} -> {after}"
    )


def sentences(ledger: StepLedger) -> Iterator[str]:
    """Say whether the sum explains the difference, and what is known of each side."""
    if not ledger.is_explained:
        share = abs(ledger.residual_ns / ledger.step_change_ns) if ledger.step_change_ns else None
        of_change = "" if share is None else f", {share:.1%} of the change"
        yield (
            f"Not explained: the residual is {signed_ns(ledger.residual_ns)}{of_change} (limit "
            f"{NOT_EXPLAINED:.0%})."
        )
    for name, times in (("base", ledger.base), ("head", ledger.head)):
        yield from (f"{name}: {note}." for note in times.notes)


def signed_ns(ns: float) -> str:
    return ("+" if ns > 0 else "") + format_ns(ns + 0.0)  # never -0
