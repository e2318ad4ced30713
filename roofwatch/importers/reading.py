"""Which importer reads a file, and what a person adds to it: controls and directions."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from pathlib import Path

from roofwatch.importers import (
    FileImportError,
    ImportedRow,
    ImportedRun,
    Importer,
    read_bytes,
)
from roofwatch.importers.histories import HISTORIES
from roofwatch.importers.nvbench import NVBENCH
from roofwatch.importers.presets import PRESETS
from roofwatch.importers.programs import PROGRAMS
from roofwatch.importers.pytorch_database import PYTORCH
from roofwatch.importers.serving import SERVING
from roofwatch.importers.table_map import TableMap
from roofwatch.importers.tables import TableImporter
from roofwatch.importers.tritonbench import TRITONBENCH, TRITONBENCH_TABLE
from roofwatch.model.metrics import Better

_MAX_VALUES = 2_000_000
_HEAD_BYTES = 2**16
_GROUP = "roofwatch.importers"
_KERNELS: Mapping[str, Importer] = {
    "nvbench": NVBENCH,
    "tritonbench": TRITONBENCH,
    "tritonbench-table": TRITONBENCH_TABLE,
    "pytorch": PYTORCH,
}
_RATE_UNIT = re.compile(
    r".*(/ ?(ns|us|µs|ms|s|sec|second|min|h)|per sec(ond)?|\bHz|flops)", re.IGNORECASE
)


def importers() -> dict[str, Importer]:
    """List all importers by format, those of other packages first; of those equally likely, the
    first reads a file.
    """
    plug_ins = {point.name: point.load() for point in entry_points(group=_GROUP)}
    return {
        **plug_ins,
        **HISTORIES,
        **_KERNELS,
        **SERVING,
        **PROGRAMS,
        **PRESETS,
    }


def import_file(
    path: Path,
    format_name: str | None = None,
    *,
    table: TableMap | None = None,
    presets: Mapping[str, TableMap] | None = None,
) -> tuple[str, ImportedRun]:
    """Read a file by the importer that recognises it, or by the named one; returns the format's
    name too.

    Args:
        path: The file.
        format_name: `table` reads the columns that `table` maps.
        table: Map of the columns.
        presets: Further maps by format.

    Raises:
        FileImportError: no importer knows the file, or it is damaged.
    """
    by_format = importers()
    for preset, columns in (presets or {}).items():
        by_format[preset] = TableImporter(columns, preset)
    # `--as table` with `--map` wins over presets of the same name
    if table is not None:
        by_format["table"] = TableImporter(table, "table")
    name = format_name or _recognised(path, by_format)
    if name is None:
        raise FileImportError(
            f"{path}: of no known format; name it with --as: {', '.join(by_format)}, or map its "
            f"columns with --as table --map"
        )
    if name not in by_format:
        raise FileImportError(f"--as {name}: unknown; choose one: {', '.join(by_format)}")
    try:
        run = by_format[name].read(path)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # importers raise what damaged documents make them raise
        kind = type(error).__name__
        raise FileImportError(
            f"{path}: not a complete {name} file ({kind}: {error}); copy it again"
        ) from None
    # an empty record would look like a measurement
    if not run.rows:
        reasons = "".join(f"; {note}" for note in run.notes)
        raise FileImportError(f"{path}: the {name} file holds no results{reasons}")
    if len(run.rows) > _MAX_VALUES:
        raise FileImportError(
            f"{path}: {len(run.rows)} values; at most {_MAX_VALUES} are imported from a file"
        )
    return name, replace(run, rows=tuple(_with_plausible_direction(row) for row in run.rows))


def _with_plausible_direction(row: ImportedRow) -> ImportedRow:
    """Take the direction from a row where tool and unit disagree, such as jmh's `ops/s`, for which
    a history says that lower is better.
    """
    is_wrong = row.better is Better.LOWER and _RATE_UNIT.fullmatch(row.unit)
    if is_wrong:
        return replace(row, better=Better.UNKNOWN)
    return row


def files_within(paths: Sequence[Path]) -> Iterator[Path]:
    """List the files, and those of each folder that an importer knows."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = [file for file in sorted(path.rglob("*")) if file.is_file() and _is_result(file)]
        if not inside:
            raise FileImportError(f"{path}: contains no file of a known format")
        yield from inside


def _is_result(path: Path) -> bool:
    is_index_of_asv = path.name.endswith("benchmarks.json")
    return not is_index_of_asv and _recognised(path, importers()) is not None


def _recognised(path: Path, by_format: Mapping[str, Importer]) -> str | None:
    head = read_bytes(path)[:_HEAD_BYTES]
    certainties = {name: importer.sniff(head, path.name) for name, importer in by_format.items()}
    best = max(certainties, key=lambda name: certainties[name])
    if certainties[best] > 0:
        return best
    return None


def with_controls(run: ImportedRun, patterns: Collection[str]) -> ImportedRun:
    """Mark the rows whose implementation matches a pattern as rows of a library."""
    if not patterns:
        return run
    rows: list[ImportedRow] = []
    for row in run.rows:
        is_named = any(fnmatchcase(row.implementation, pattern) for pattern in patterns)
        rows.append(replace(row, is_control=True) if is_named else row)
    return replace(run, rows=tuple(rows))


def with_directions(run: ImportedRun, words: Iterable[str]) -> ImportedRun:
    """Set the directions that a person gives, as `metric=lower` or `metric=higher`.

    Raises:
        FileImportError: one has another form, or the file has no such metric.
    """
    directions: dict[str, Better] = {}
    for word in words:
        metric, _, better = word.rpartition("=")
        if not metric or better not in ("lower", "higher"):
            raise FileImportError(f"--direction {word}: write metric=lower or metric=higher")
        directions[metric] = Better(better)
    if not directions:
        return run
    metrics = {row.metric for row in run.rows}
    # a misspelt metric would silently keep its direction
    unknown = directions.keys() - metrics
    if unknown:
        listed = ", ".join(sorted(metrics)[:50])
        raise FileImportError(f"--direction {min(unknown)}: no such metric; the file has {listed}")
    rows = [replace(row, better=directions.get(row.metric, row.better)) for row in run.rows]
    return replace(run, rows=tuple(rows))
