"""What whoever runs the database does with it: files of exports and backups, and what the terminal shows meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from rich.table import Table
from sqlalchemy import Engine

from roofwatch.ci.history.analyse import judge_project
from roofwatch.collector.outbox.atomic_write import reason_of, whole_path
from roofwatch.collector.record.metrics import format_bytes
from roofwatch.collector.run import Progress
from roofwatch.cycles import look_for_cycles_seldom
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.aged_parts import Part
from roofwatch.db.maintenance.arranging import Arranged, arrange
from roofwatch.db.maintenance.backup import write_backup
from roofwatch.db.maintenance.exporting import export_lines
from roofwatch.db.maintenance.importing import Imported, import_lines
from roofwatch.db.maintenance.retention import Pruned, prune
from roofwatch.db.maintenance.verify import Verification, verify_store
from roofwatch.settings import load_settings
from roofwatch.store.access import ACTOR
from roofwatch.store.archive_file import check_archive, read_archive, write_archive
from roofwatch.terminal import print_error, progress

_WORDS = {
    Part.SAMPLES: "raw samples",
    Part.TELEMETRY: "telemetry",
    Part.ARTEFACTS: "artefacts",
    Part.QUARANTINED: "quarantined runs",
}


@dataclass(frozen=True)
class Exported:
    counts: Mapping[str, int]
    """Lines by kind."""
    sha256: str
    """Of all lines, as the last of them says."""
    size_bytes: int
    """Of the file."""


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


def arrange_store(engine: Engine, *, is_dry_run: bool) -> list[Arranged]:
    """Arrange the months that have ended.

    Raises:
        StoreError: a month could not be exchanged; those before it are done.
    """
    with progress("arranging") as show:

        def on_progress(month: date) -> None:
            show(Progress(0, 0, f"{month:%Y-%m}"))

        return arrange(engine, now=datetime.now(UTC), is_dry_run=is_dry_run, on_progress=on_progress)


def arranged_table(arranged: Sequence[Arranged], *, is_dry_run: bool) -> Table:
    titles = ("month", "measurements", "pages of a series before", "after")
    table = Table(*titles, title="would be arranged" if is_dry_run else "arranged")
    for one in arranged:
        pages = (f"{one.pages_before:.1f}", f"{one.pages_after:.1f}")
        table.add_row(f"{one.month:%Y-%m}", str(one.row_count), *pages)
    return table


def export_store(engine: Engine, path: Path) -> Exported:
    """Write an export; the file is there once it is whole.

    Raises:
        StoreError: the store cannot be read, or the file not written.
    """
    with _counting("exporting", "runs") as on_progress:
        size_bytes = write_archive(path, export_lines(engine, now=datetime.now(UTC), on_progress=on_progress))
    manifest = check_archive(path)
    return Exported(manifest.counts, manifest.sha256, size_bytes)


def import_store(engine: Engine, path: Path, *, takes_trust: bool) -> Imported:
    """Store what an export holds, once the file has been read to its end, and judge its projects.

    Raises:
        StoreError: the file is not whole, or holds what cannot be stored.
        RecordError: it holds what is no record.
    """
    look_for_cycles_seldom()
    with _counting("checking", "bytes") as on_progress:
        manifest = check_archive(path, on_progress=on_progress)
    with _counting("importing", "bytes") as on_progress:
        lines = read_archive(path, on_progress=on_progress)
        imported = import_lines(engine, lines, takes_trust=takes_trust, actor=ACTOR, source_sha256=manifest.sha256)
    for project in sorted(imported.projects):
        judge_project(engine, project)
    return imported


def back_up(engine: Engine, path: Path) -> int:
    """Write a backup that this user alone may read, since tokens' hashes are in it; its size in bytes.

    Raises:
        StoreError: it cannot be made or written; nothing half-written is left.
    """
    try:
        with whole_path(path, mode=0o600) as temporary:
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
        said += f", {verification.unproven_count} of an older version whose commit cannot be compared"
    return f"{said}; {len(verification.problems) or 'no'} problem(s)"


def counts_line(counts: Mapping[str, int]) -> str:
    named = {kind: count for kind, count in sorted(counts.items()) if kind not in {"header", "manifest"}}
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in named.items()) or "nothing"


@contextmanager
def _counting(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    with progress(title) as show:
        yield lambda done, total: show(Progress(done, total, unit))
