"""What each number of a file becomes, as `import --dry-run` prints it."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from roofwatch.console.terminal import make_table
from roofwatch.importers import ImportedRow, ImportedRun
from roofwatch.model.metrics import Better

_MEDIAN = "median"


def mapping(format_name: str, run: ImportedRun) -> dict[str, Any]:
    """Return what `--dry-run --json` prints: one row for every number."""
    return {
        "format": format_name,
        "tool_version": run.tool_version,
        "commit": run.commit.sha,
        "dirty": run.commit.is_dirty,
        "notes": run.notes,
        "rows": [_mapped(row) for row in run.rows],
    }


def _mapped(row: ImportedRow) -> dict[str, Any]:
    return {
        "case": row.case,
        "parameters": _parameters(row),
        "metric": row.metric,
        "unit": row.unit,
        "direction": row.better,
        "statistic": row.statistic,
        "value": row.value,
        "sample_count": row.sample_count,
        "outcome": row.outcome,
    }


def _parameters(row: ImportedRow) -> dict[str, Any]:
    """Return the parameters, and what else tells the row from others."""
    others = {
        "implementation": row.implementation,
        "definition": row.definition,
        "commit": row.commit and row.commit.sha,
        "device": row.device,
    }
    return {**row.parameters, **{name: value for name, value in others.items() if value}}


def mapping_table(file: Path, format_name: str, run: ImportedRun) -> Table:
    """Make a table with one row per judged number of a case; samples of one kind share a row, and
    what is only stored is named in the last column.
    """
    lines: list[tuple[str, ...]] = []
    for _, group in groupby(run.rows, _case_of):
        lines += _lines_of_case(list(group))
    commit = run.commit.sha or "not named"
    if run.commit.is_dirty:
        commit += ", dirty"
    version = run.tool_version or "of unknown version"
    columns = (
        "case",
        "parameters",
        "metric",
        "statistic",
        "value",
        "unit",
        "better",
        "outcome",
        "also stored",
    )
    title = f"{file}: {format_name} ({run.tool} {version}), commit {commit}"
    return make_table(columns, lines, title=title, omit_empty=True)


def _lines_of_case(rows: Sequence[ImportedRow]) -> Iterator[tuple[str, ...]]:
    with_median = {row.metric for row in rows if row.statistic == _MEDIAN}
    judged: list[ImportedRow] = []
    stored: list[str] = []
    for row in rows:
        is_beside_median = row.metric in with_median and row.statistic != _MEDIAN
        if is_beside_median or row.better is Better.UNKNOWN:
            stored.append(row.metric if row.statistic == "value" else row.statistic)
        else:
            judged.append(row)
    # a file without directions has nothing that is judged
    if not judged:
        judged, stored = list(rows), []
    also_stored = ", ".join(dict.fromkeys(stored))
    for _, group in groupby(judged, _kind):
        yield *_line(list(group)), also_stored
        also_stored = ""


def _case_of(row: ImportedRow) -> tuple[str, dict[str, Any]]:
    return row.case, dict(row.parameters)


def _kind(row: ImportedRow) -> tuple[Any, ...]:
    return row.case, dict(row.parameters), row.metric, row.unit, row.statistic


def _line(rows: Sequence[ImportedRow]) -> tuple[str, ...]:
    first = rows[0]
    value = ""
    if len(rows) > 1:
        value = f"{len(rows)} values"
    elif first.value is not None:
        value = f"{first.value:g}"
    return (
        first.case,
        " ".join(f"{key}={text}" for key, text in first.parameters.items()),
        first.metric,
        first.statistic,
        value,
        first.unit,
        str(first.better),
        " ".join(dict.fromkeys(str(row.outcome) for row in rows)),
    )
