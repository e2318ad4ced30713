"""A backfill in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from roofwatch.backfill.measuring import Backfill, Filled
from roofwatch.terminal import one_line, printable


def order_table(backfill: Backfill) -> Table:
    """What is to be measured, the most informative first."""
    shown = Table("#", "commit", "subject", "why", header_style="bold")
    for number, one in enumerate(backfill.todo, start=1):
        shown.add_row(
            str(number), one.commit.short_sha, printable(one.commit.subject[:60]), printable(one.choice.reason)
        )
    return shown


def sentences(backfill: Backfill, done: Sequence[Filled]) -> Iterator[str]:
    """What was skipped and why, what was measured, and what is left."""
    for one in backfill.skipped:
        yield f"skipped: {one.commit.short_sha} {one_line(one.commit.subject[:60])}: {one_line(one.reason)}"
    for filled in done:
        what = f"record: {filled.file}" if filled.file is not None else f"not measured: {one_line(filled.trouble)}"
        yield f"{filled.commit.short_sha} {what}"
        yield from (f"  {one_line(failure)}" for failure in filled.failures)
    left = len(backfill.todo) - len(done)
    yield f"{len(backfill.measured)} were measured before, {len(done)} now, {left} are left"


def as_json_document(backfill: Backfill, done: Sequence[Filled]) -> dict[str, Any]:
    """The whole of it for machines."""
    return {
        "measured_before": [commit.sha for commit in backfill.measured],
        "skipped": [{"sha": one.commit.sha, "reason": one.reason} for one in backfill.skipped],
        "order": [{"sha": one.commit.sha, "aim": one.choice.aim, "reason": one.choice.reason} for one in backfill.todo],
        "done": [
            {
                "sha": one.commit.sha,
                "record": None if one.file is None else str(one.file),
                "trouble": one.trouble,
                "failures": one.failures,
            }
            for one in done
        ],
    }
