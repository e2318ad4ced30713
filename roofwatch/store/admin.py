"""Administration of the database from the command line: tokens, retention, export, backup, verification."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.table import Table
from sqlalchemy import Engine

from roofwatch.collector.outbox.files import atomic_path, reason_of
from roofwatch.collector.record.metrics import format_bytes
from roofwatch.collector.run import Progress
from roofwatch.db.auth.tokens import create_token
from roofwatch.db.auth.values import NewToken, Scope, Token, TrustedRepository
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.backup import write_backup
from roofwatch.db.maintenance.parquet import ExportedTable, export_parquet
from roofwatch.db.maintenance.retention import Part, Pruned, prune
from roofwatch.db.maintenance.verify import Verification, verify_store
from roofwatch.settings import load_settings
from roofwatch.terminal import print_error, printable, progress

ACTOR = "command line"

_PROJECT = re.compile(r"[\w.][\w./-]{0,199}")
_PART_NAMES = {
    Part.SAMPLES: "raw samples",
    Part.TELEMETRY: "telemetry",
    Part.ARTEFACTS: "artefacts",
    Part.QUARANTINED: "quarantined runs",
}


def check_project_name(project: str) -> None:
    """Raise StoreError if no record can have this project name."""
    if not _PROJECT.fullmatch(project):
        raise StoreError(f"project {project!r}: a name has letters, digits, _ . / and -, 200 at most")


def create_project_token(
    engine: Engine,
    *,
    name: str,
    project: str | None,
    all_projects: bool,
    scopes: Collection[str],
    days: int,
    is_quarantined: bool,
) -> NewToken:
    """Create a token for one project or for all.

    Raises:
        StoreError: not exactly one of both is given, the project name is invalid, or a scope is unknown.
    """
    unknown = [scope for scope in scopes if scope not in set(Scope)]
    if unknown:
        raise StoreError(f"scope {unknown[0]!r}: unknown; use {', '.join(Scope)}, one --scope for each")
    if (project is None) != all_projects:
        raise StoreError("use either --project or --all-projects")
    if project is not None:
        check_project_name(project)
    return create_token(
        engine,
        name=name,
        project=project,
        scopes={Scope(scope) for scope in scopes},
        now=datetime.now(UTC),
        validity=timedelta(days=days),
        is_quarantined=is_quarantined,
        actor=ACTOR,
    )


def tokens_table(tokens: Sequence[Token]) -> Table:
    table = Table("id", "for", "project", "scopes", "ends", "last used", "state")
    now = datetime.now(UTC)
    for token in tokens:
        table.add_row(
            token.token_id,
            printable(token.name),
            printable(token.project or "all"),
            " ".join(token.scopes),
            f"{token.expires_at:%Y-%m-%d}",
            "never" if token.last_used_at is None else f"{token.last_used_at:%Y-%m-%d %H:%M}",
            _state(token, now),
        )
    return table


def repositories_table(trusted: Sequence[TrustedRepository]) -> Table:
    table = Table("repository", "project", "refs that count")
    for one in trusted:
        table.add_row(printable(one.repository), printable(one.project), printable(" ".join(one.refs)))
    return table


def _state(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at <= now:
        return "expired"
    return "quarantine" if token.is_quarantined else "good"


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
        StoreError: neither gives a number of days.
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
            "no retention is configured: set days in [retention] of roofwatch.toml, or use --samples-days and others"
        )
    with progress("pruning") as show:

        def on_progress(so_far: Pruned) -> None:
            show(Progress(so_far.run_count, 0, f"{_PART_NAMES[so_far.part]}: {so_far.run_count} runs"))

        return prune(engine, days, now=datetime.now(UTC), is_dry_run=is_dry_run, actor=ACTOR, on_progress=on_progress)


def pruned_table(pruned: Sequence[Pruned], *, is_dry_run: bool) -> Table:
    table = Table("what", "older than", "runs", title="would be removed" if is_dry_run else "removed")
    for one in pruned:
        table.add_row(_PART_NAMES[one.part], f"{one.older_than:%Y-%m-%d}", str(one.run_count))
    return table


def export_store(engine: Engine, folder: Path) -> list[ExportedTable]:
    """Write every table into a folder of Parquet files.

    Raises:
        StoreError: a file exists already, or cannot be written.
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
    """Write a backup that only this user may read, because it holds token hashes; return its size in bytes.

    Raises:
        StoreError: it cannot be written; no partial file is left.
    """
    try:
        with atomic_path(path, mode=0o600) as temporary:
            write_backup(engine, temporary)
        return path.stat().st_size
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {reason_of(error)}; nothing was left there") from None


def verify_with_progress(engine: Engine) -> Verification:
    with progress("verifying") as show:
        return verify_store(engine, on_progress=lambda done, total: show(Progress(done, total, "runs")))


def print_problems(verification: Verification) -> None:
    for problem in verification.problems:
        print_error(problem)


def verified_line(verification: Verification) -> str:
    line = f"{verification.run_count} run(s), {verification.proven_count} read back exactly as sent"
    if verification.aged_count:
        line += f", {verification.aged_count} without pruned parts"
    if verification.unproven_count:
        line += f", {verification.unproven_count} of another minor version of the record"
    return f"{line}; {len(verification.problems) or 'no'} problem(s)"
