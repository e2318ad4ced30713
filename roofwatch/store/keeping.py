"""What whoever runs the database does with it: files of exports and backups, and what the terminal shows meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table
from sqlalchemy import Engine

from roofwatch.collector.outbox.files import atomic_path, reason_of
from roofwatch.collector.record.metrics import format_bytes
from roofwatch.collector.run import Progress
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.backup import write_backup
from roofwatch.db.maintenance.parquet import ExportedTable, export_parquet
from roofwatch.db.maintenance.retention import Part, Pruned, prune
from roofwatch.db.maintenance.verify import Verification, verify_store
from roofwatch.settings import load_settings
from roofwatch.store.access import ACTOR
from roofwatch.terminal import print_error, progress

_WORDS = {
    Part.SAMPLES: "raw samples",
    Part.TELEMETRY: "telemetry",
    Part.ARTEFACTS: "artefacts",
    Part.QUARANTINED: "quarantined runs",
}


def prune_store(
    engine: Engine,
    *,
    samples_days: int | None,
    telemetry_days: int | None,
    artefacts_days: int | None,
    quarantined_days: int | None,
    is_dry_run: bool,
) -> list[Pruned]:
    """Prune by arguments, else by the settings.

    Raises:
        StoreError: neither says anything.
    """
    policy = load_settings().retention
    wanted = {
        Part.SAMPLES: samples_days or policy.samples_days,
        Part.TELEMETRY: telemetry_days or policy.telemetry_days,
        Part.ARTEFACTS: artefacts_days or policy.artefacts_days,
        Part.QUARANTINED: quarantined_days or policy.quarantined_days,
    }
    days = {part: kept_days for part, kept_days in wanted.items() if kept_days is not None}
    if not days:
        raise StoreError(
            "everything is kept for ever: say in [retention] of roofwatch.toml for how many days, or by --samples-days"
        )
    with progress("pruning") as show:

        def on_progress(so_far: Pruned) -> None:
            show(Progress(so_far.run_count, 0, f"{_WORDS[so_far.part]}: {so_far.row_count} rows"))

        return prune(engine, days, now=datetime.now(UTC), is_dry_run=is_dry_run, actor=ACTOR, on_progress=on_progress)


def pruned_table(pruned: Sequence[Pruned], *, is_dry_run: bool) -> Table:
    table = Table("what", "older than", "runs", "rows", "size", title="would go" if is_dry_run else "gone")
    for one in pruned:
        counts = (str(one.run_count), str(one.row_count), format_bytes(one.size_bytes))
        table.add_row(_WORDS[one.part], f"{one.older_than:%Y-%m-%d}", *counts)
    return table


def export_store(engine: Engine, folder: Path) -> list[ExportedTable]:
    """Write every table into a folder of Parquet files.

    Raises:
        StoreError: a file is there already, or cannot be written.
    """
    with progress("exporting") as show:
        return export_parquet(
            engine, folder, on_progress=lambda table, rows: show(Progress(rows, 0, f"{table}: {rows} rows"))
        )


def exported_table(exported: Sequence[ExportedTable]) -> Table:
    table = Table("table", "rows", "size")
    for one in exported:
        table.add_row(one.name, str(one.row_count), format_bytes(one.size_bytes))
    return table


def back_up(engine: Engine, path: Path) -> int:
    """Write a backup that this user alone may read, since tokens' hashes are in it; its size in bytes.

    Raises:
        StoreError: it cannot be made or written; nothing half-written is left.
    """
    try:
        with atomic_path(path, mode=0o600) as temporary:
            write_backup(engine, temporary)
        return path.stat().st_size
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {reason_of(error)}; nothing was left there") from None


def verify_with_progress(engine: Engine) -> Verification:
    with _counting("verifying", "runs") as on_progress:
        return verify_store(engine, on_progress=on_progress)


def print_problems(verification: Verification) -> None:
    for problem in verification.problems:
        print_error(problem)


def verified_line(verification: Verification) -> str:
    said = f"{verification.run_count} run(s), {verification.proven_count} read back exactly as sent"
    if verification.aged_count:
        said += f", {verification.aged_count} without what was pruned"
    if verification.unproven_count:
        said += f", {verification.unproven_count} of another minor version of the record"
    return f"{said}; {len(verification.problems) or 'no'} problem(s)"


@contextmanager
def _counting(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    with progress(title) as show:
        yield lambda done, total: show(Progress(done, total, unit))
