"""`roofwatch diff`: read two traces or records, and show what made the step slower."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from roofwatch.ci import messages
from roofwatch.ci.ab.step_ledger import LedgerRow, StepLedger, find_ledger, ledgers_of_records
from roofwatch.ci.messages import short_name
from roofwatch.ci.report.step import (
    Term,
    changed_rows,
    kernels_text,
    sentences,
    signed_ns,
    terms,
    what_a_step_is,
)
from roofwatch.collector.profiling.profile_file import read_bytes
from roofwatch.collector.profiling.steps import HOST, StepTimes, has_markers, read_steps
from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.errors import ProfileError
from roofwatch.model.metrics import format_ns
from roofwatch.model.record import RunRecord
from roofwatch.pages import page
from roofwatch.terminal import make_table

_MOST_ROWS = 20
_MOST_GAPS = 5
_COLUMNS = ("change", "place", "launches", "base", "head", "change of the step")


def read_ledgers(base: Path, head: Path) -> list[StepLedger]:
    """Compare two traces on each device, or two records in each case and implementation that both
    profiled.

    Raises:
        ProfileError: a file is neither, the two are of different kinds, or they have nothing in
        common. RecordError: a record is not valid.
    """
    before, after = _read(base), _read(head)
    if isinstance(before, Trace) and isinstance(after, Trace):
        ledgers = _of_traces(before, after)
        missing = f"{base} and {head}: no device is in both traces"
    elif isinstance(before, RunRecord) and isinstance(after, RunRecord):
        ledgers = ledgers_of_records(before, after)
        missing = (
            f"{base} and {head}: no case is profiled in both records; measure both with "
            f"roofwatch run --profile"
        )
    else:
        raise ProfileError(
            f"{base} and {head}: one is a trace and the other a record; compare two of a kind"
        )
    if not ledgers:
        raise ProfileError(missing)
    return ledgers


def _read(path: Path) -> Trace | RunRecord:
    content = read_bytes(path)
    trace = Trace.read(content, str(path))
    if trace is not None:
        return trace
    if not content.lstrip().startswith(b"{"):
        raise ProfileError(f"{path}: neither a trace of torch.profiler nor a record")
    return RunRecord.from_json(content, name=str(path))


def _of_traces(base: Trace, head: Trace) -> list[StepLedger]:
    by_marker = has_markers(base) and has_markers(head)
    before, after = (read_steps(trace, by_marker=by_marker) for trace in (base, head))
    if len(before) == len(after) == 1 and (before[0].device == HOST) == (after[0].device == HOST):
        pairs = [(before[0], after[0])]  # the number of the GPU may differ
    else:
        by_device = {times.device: times for times in after}
        pairs = [(times, by_device[times.device]) for times in before if times.device in by_device]
    return [
        find_ledger(one, other, title="host" if one.device == HOST else f"GPU {one.device}")
        for one, other in pairs
    ]


def to_tables(ledger: StepLedger) -> Iterator[Table | str]:
    """A table of the terms, one of the launches that changed most, one of the gaps,
    and sentences.
    """
    yield f"{ledger.title}: {what_a_step_is(ledger)}"
    yield make_table(("", "base", "head", "change"), map(_term_cells, terms(ledger)), left=1)
    rows = changed_rows(ledger)
    if rows:
        shown = [_cells(row) for row in rows[:_MOST_ROWS]]
        yield make_table(
            _COLUMNS,
            shown,
            title=f"launches that changed most ({len(shown)} of {len(rows)})",
            left=3,
        )
    gaps = _gaps(ledger)
    if gaps:
        cells = [
            (short_name((row.head_names or row.base_names)[0]), row.place, signed_ns(ns))
            for row, ns in gaps
        ]
        yield make_table(("gaps before", "place", "change of the step"), cells, left=2)
    yield from sentences(ledger)


def to_html(ledgers: list[StepLedger], base: Path, head: Path) -> str:
    """Write the tables as one page."""
    lines = [f"# {messages.code(base.name)} → {messages.code(head.name)}", ""]
    for ledger in ledgers:
        term_rows = [
            [messages.code(cell or "") for cell in _term_cells(term)] for term in terms(ledger)
        ]
        rows = [
            [messages.code(cell, limit=400) for cell in _cells(row)] for row in changed_rows(ledger)
        ]
        lines += [f"## {messages.code(ledger.title)}", "", what_a_step_is(ledger), ""]
        lines += [
            *messages.table(("term", "base", "head", "change"), term_rows),
            "",
            *sentences(ledger),
            "",
        ]
        lines += [*messages.table(_COLUMNS, rows), ""] if rows else []
    return page(f"{base.name} and {head.name}", "\n".join(lines))


def to_json(ledgers: list[StepLedger]) -> list[dict[str, Any]]:
    """Times are in ns: of a side, totals over its steps; of changes and rows, those of one step."""
    return [
        {
            **_values(
                ledger,
                *StepLedger.__dataclass_fields__,
                "step_change_ns",
                "residual_ns",
                "is_explained",
            ),
            "base": _side(ledger.base),
            "head": _side(ledger.head),
            "rows": [
                _values(row, *LedgerRow.__dataclass_fields__, "change_ns") for row in ledger.rows
            ],
        }
        for ledger in ledgers
    ]


def _side(times: StepTimes) -> dict[str, Any]:
    names = ("device", "has_markers", "step_count", "step_ns", "launch_count", "busy_ns")
    more = ("stream_busy_ns", "overlap_ns", "gap_ns", "gap_after_last_ns", "notes")
    return _values(times, *names, *more)


def _values(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _gaps(ledger: StepLedger) -> list[tuple[LedgerRow, float]]:
    rows = sorted(ledger.rows, key=lambda row: -abs(row.gap_change_ns))
    return [(row, row.gap_change_ns) for row in rows[:_MOST_GAPS] if row.gap_change_ns]


def _term_cells(term: Term) -> tuple[str | None, ...]:
    base, head = (
        None if side_ns is None else format_ns(side_ns) for side_ns in (term.base_ns, term.head_ns)
    )
    return term.name, base, head, signed_ns(term.change_ns)


def _cells(row: LedgerRow) -> tuple[str, ...]:
    return (
        kernels_text(row),
        row.place,
        f"{row.base_launches:.4g} -> {row.head_launches:.4g}",
        format_ns(row.base_ns),
        format_ns(row.head_ns),
        signed_ns(row.change_ns),
    )
