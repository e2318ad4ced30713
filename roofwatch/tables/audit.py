"""What rows of tuned tables compile to, as a table."""

from collections import Counter

from rich.table import Table

from roofwatch.ci.messages import count_of
from roofwatch.console.terminal import make_table
from roofwatch.measurement.audit import Audit
from roofwatch.model.metrics import format_bytes, format_ns
from roofwatch.model.optional import map_optional
from roofwatch.model.tuning import AuditedRow, Loss
from roofwatch.tables.tune import in_words, result_in_words

_COLUMNS = ("table", "row", "target", "result", "configuration", "registers", "shared", "predicted")
_STATES = {
    Loss.NOT_COMPILED: "do not compile",
    Loss.DOES_NOT_FIT: "do not fit",
    Loss.SPILLS: "spill",
    Loss.UNKNOWN: "have nothing to compile",
}


def headline(audit: Audit) -> str:
    """How many rows fit, and how many do not."""
    counts = Counter(_state(row) for row in audit.rows)
    parts = [f"{count} {state}" for state, count in counts.items()]
    stale_count = sum(bool(row.stale) for row in audit.rows)
    if stale_count:
        parts.append(f"{stale_count} stale")
    rows = count_of(len(audit.rows), "row")
    return f"{rows} compiled with {audit.case_id}: {', '.join(parts)}"


def table(audit: Audit) -> Table:
    """One row per row and target, what does not fit first."""
    order = sorted(audit.rows, key=lambda row: (row.compiled.loss is None, not row.stale))
    return make_table(_COLUMNS, map(_cells, order), left_column_count=5, omit_empty=True)


def _state(audited: AuditedRow) -> str:
    loss = audited.compiled.loss
    if loss is None:
        return "fit"
    return _STATES[loss]


def _cells(audited: AuditedRow) -> tuple[object, ...]:
    compiled = audited.compiled
    result = "fits" if compiled.loss is None else result_in_words(compiled)
    return (
        audited.row.file,
        audited.row.label,
        audited.target,
        "; ".join([result, *audited.stale]),
        in_words(compiled.configuration),
        compiled.registers,
        map_optional(format_bytes, compiled.shared_bytes),
        map_optional(format_ns, compiled.predicted_ns),
    )
