"""`roofwatch diff`: read two traces or records, and show what made the step slower."""

from collections.abc import Iterable, Iterator
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
from roofwatch.collector.profiling.steady import StepKind
from roofwatch.collector.profiling.steps import HOST, StepTimes, read_steps, step_kind
from roofwatch.collector.profiling.trace import Trace
from roofwatch.console.terminal import make_table
from roofwatch.model.errors import ProfileError
from roofwatch.model.metrics import format_ns
from roofwatch.model.record import RunRecord
from roofwatch.profiles.report import text_or_none
from roofwatch.reporting.pages import page

# A terminal shows the rows that matter; the HTML page and JSON have all.
_MOST_ROWS = 20
_MOST_GAPS = 5
_COLUMNS = ("change", "place", "launches", "base", "head", "change of the step")


def read_ledgers(base: Path, head: Path) -> list[StepLedger]:
    """Compare two traces on each device, or two records in each case and implementation that both
    profiled.

    Raises:
        ProfileError: a file is neither, the two are of different kinds, or they have nothing in
            common.
        RecordError: a record is not valid.
    """
    base_document = _read(base)
    head_document = _read(head)
    if isinstance(base_document, Trace) and isinstance(head_document, Trace):
        ledgers = _of_traces(base_document, head_document)
        missing = f"{base} and {head}: no device is in both traces"
    elif isinstance(base_document, RunRecord) and isinstance(head_document, RunRecord):
        ledgers = ledgers_of_records(base_document, head_document)
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
    # A record is JSON, compressed or not; anything else is no document of ours.
    if not content.lstrip().startswith(b"{"):
        raise ProfileError(f"{path}: neither a trace of torch.profiler nor a record")
    return RunRecord.from_json(content, name=str(path))


def _of_traces(base: Trace, head: Trace) -> list[StepLedger]:
    steps_are = step_kind(base)
    # Steps that are recognised in different ways may have different lengths.
    if step_kind(head) is not steps_are:
        steps_are = StepKind.WHOLE
    base_devices = read_steps(base, steps_are)
    head_devices = read_steps(head, steps_are)
    ledgers: list[StepLedger] = []
    for base_times, head_times in _pairs_of_devices(base_devices, head_devices):
        title = f"GPU {base_times.device}"
        if base_times.device == HOST:
            title = "host"
        ledger = find_ledger(base_times, head_times, title=title)
        ledgers.append(ledger)
    return ledgers


def _pairs_of_devices(
    base_devices: list[StepTimes],
    head_devices: list[StepTimes],
) -> list[tuple[StepTimes, StepTimes]]:
    if len(base_devices) == len(head_devices) == 1:
        base_times = base_devices[0]
        head_times = head_devices[0]
        # Of single GPUs, the number may differ.
        is_base_host = base_times.device == HOST
        is_head_host = head_times.device == HOST
        if is_base_host == is_head_host:
            return [(base_times, head_times)]
    head_by_device = {times.device: times for times in head_devices}
    in_both = [times for times in base_devices if times.device in head_by_device]
    return [(times, head_by_device[times.device]) for times in in_both]


def to_tables(ledger: StepLedger) -> Iterator[Table | str]:
    """A table of the terms, one of the launches that changed most, one of the gaps,
    and sentences.
    """
    yield f"{ledger.title}: {what_a_step_is(ledger)}"
    term_cells = [_term_cells(term) for term in terms(ledger)]
    yield make_table(("", "base", "head", "change"), term_cells, left_column_count=1)
    rows = changed_rows(ledger)
    if rows:
        printed_rows = [_cells(row) for row in rows[:_MOST_ROWS]]
        yield make_table(
            _COLUMNS,
            printed_rows,
            title=f"added and removed, then what changed most ({len(printed_rows)} of {len(rows)})",
            left_column_count=3,
        )
    gap_cells = [_gap_cells(row) for row in _largest_gaps(ledger)]
    if gap_cells:
        yield make_table(
            ("gaps before", "place", "change of the step"), gap_cells, left_column_count=2
        )
    yield from sentences(ledger)


def to_html(ledgers: list[StepLedger], base: Path, head: Path) -> str:
    """Write the tables as one page."""
    lines = [f"# {messages.code(base.name)} → {messages.code(head.name)}", ""]
    for ledger in ledgers:
        lines += _html_lines(ledger)
    return page(f"{base.name} and {head.name}", "\n".join(lines))


def _html_lines(ledger: StepLedger) -> list[str]:
    term_rows = [_code_cells(_term_cells(term)) for term in terms(ledger)]
    rows = [_code_cells(_cells(row), limit=400) for row in changed_rows(ledger)]
    lines = [
        f"## {messages.code(ledger.title)}",
        "",
        what_a_step_is(ledger),
        "",
    ]
    lines += messages.table(("term", "base", "head", "change"), term_rows)
    lines += ["", *sentences(ledger), ""]
    if rows:
        lines += [*messages.table(_COLUMNS, rows), ""]
    return lines


def _code_cells(cells: Iterable[str | None], **options: int) -> list[str]:
    return [messages.code(cell or "", **options) for cell in cells]


def to_json(ledgers: list[StepLedger]) -> list[dict[str, Any]]:
    """Times are in ns: of a side, totals over its steps; of changes and rows, those of one step."""
    return [_ledger_to_json(ledger) for ledger in ledgers]


def _ledger_to_json(ledger: StepLedger) -> dict[str, Any]:
    # `to_json` has what the classes store and what they compute.
    computed = ("step_change_ns", "residual_ns", "is_explained")
    row_fields = (*LedgerRow.__dataclass_fields__, "change_ns")
    return {
        **_values(ledger, *StepLedger.__dataclass_fields__, *computed),
        "base": _side(ledger.base),
        "head": _side(ledger.head),
        "rows": [_values(row, *row_fields) for row in ledger.rows],
    }


def _side(times: StepTimes) -> dict[str, Any]:
    names = (
        "device",
        "steps_are",
        "step_count",
        "step_ns",
        "step_spread_ns",
        "launch_count",
        "busy_ns",
    )
    more = ("stream_busy_ns", "overlap_ns", "gap_ns", "gap_after_last_ns", "notes")
    return _values(times, *names, *more)


def _values(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _largest_gaps(ledger: StepLedger) -> list[LedgerRow]:
    rows = sorted(ledger.rows, key=lambda row: -abs(row.gap_change_ns))
    return [row for row in rows[:_MOST_GAPS] if row.gap_change_ns]


def _gap_cells(row: LedgerRow) -> tuple[str, ...]:
    # A launch that the head no longer has is named as in the base.
    names = row.head_names or row.base_names
    return short_name(names[0]), row.module_path, signed_ns(row.gap_change_ns)


def _term_cells(term: Term) -> tuple[str | None, ...]:
    base = text_or_none(format_ns, term.base_ns)
    head = text_or_none(format_ns, term.head_ns)
    return term.name, base, head, signed_ns(term.change_ns)


def _cells(row: LedgerRow) -> tuple[str, ...]:
    return (
        kernels_text(row),
        row.module_path,
        f"{row.base_launches:.4g} -> {row.head_launches:.4g}",
        format_ns(row.base_ns),
        format_ns(row.head_ns),
        signed_ns(row.change_ns),
    )
