"""Table and lines of kernels that were submitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from roofwatch.console.terminal import make_table
from roofwatch.model.metrics import format_ns

if TYPE_CHECKING:  # they need numpy, and comparing files does not
    from roofwatch.measurement.submissions import Result


def submission_lines(result: Result) -> Iterator[str]:
    """The verdict on a candidate and its evidence, line by line."""
    yield f"{result.verdict}: {result.reason}"
    for evidence in result.evidence:
        yield f"  {evidence['test']} {evidence['case']}: {evidence['message']}"
    if result.evidence:
        yield f"  repeat: {result.evidence[0]['repeat']}"
    if result.effect is not None:
        low, high = result.effect["interval"]
        base = format_ns(result.effect["base_ns"])
        candidate = format_ns(result.effect["candidate_ns"])
        yield (
            f"speedup {result.effect['ratio']:.3f} [{low:.3f}, {high:.3f}] over "
            f"{result.spec['against']}, {base} -> {candidate}"
        )
    if result.roofline is not None:
        yield (
            f"roofline: {result.roofline['utilisation']:.0%} of the {result.roofline['bound']} roof"
        )
    missing = result.isolation.get("missing", {})
    if missing:
        yield "isolation lacks " + "; ".join(f"{layer} ({why})" for layer, why in missing.items())
    yield f"{result.budget['submissions_left']} confirmations of this spec left"


def submission_table(entries: Iterable[Mapping[str, Any]]) -> Table:
    rows: list[tuple[object, ...]] = []
    for entry in entries:
        speedup = None
        if entry["ratio"] is not None:
            speedup = f"{entry['ratio']:.3f}"
        rows.append(
            (
                entry["at"],
                entry["kernel"],
                entry["file"],
                # Twelve digits of a SHA-256 tell the files of one log apart.
                entry["hash"][:12],
                (entry["parent"] or "")[:12],
                entry["verdict"],
                speedup,
                entry["reason"],
            )
        )
    columns = ("submitted", "kernel", "file", "hash", "parent", "verdict", "speedup", "reason")
    return make_table(columns, rows, title="Submissions")
