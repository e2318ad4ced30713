"""Commands that operate the database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import EXIT_WRONG, AsJson
from roofwatch.terminal import print_json, print_note, print_table

# Commands import what they need, to keep `roofwatch --help` quick.
app = typer.Typer()
db_app = typer.Typer(help="Operate the database: schema, retention, backup.", no_args_is_help=True)
app.add_typer(db_app, name="db")

Days = Annotated[int | None, typer.Option(min=1, help="Days to keep them. Default: the setting.", show_default=False)]


@db_app.command("upgrade")
def upgrade() -> None:
    """Upgrade the database schema."""
    from roofwatch.arguments import open_configured_server
    from roofwatch.db.engine.migrate import head_revision
    from roofwatch.db.engine.migrate import upgrade as upgrade_schema

    with open_configured_server() as engine:
        upgrade_schema(engine)
    print_note(f"the schema is at revision {head_revision()}")


@db_app.command("status")
def status(*, as_json: AsJson = False) -> None:
    """Show the server, schema revision, size and row counts."""
    from roofwatch import tables
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.engine.migrate import read_status

    with open_configured_store() as engine:
        found = read_status(engine)
    if as_json:
        print_json(found)
    else:
        print_table(tables.status(found))


@db_app.command("prune")
def prune(
    *,
    samples_days: Days = None,
    telemetry_days: Days = None,
    artefacts_days: Days = None,
    quarantined_days: Days = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete raw samples, telemetry, artefacts and quarantined runs past their retention.

    Findings stay, as do the newest run of each series and all runs behind an open regression.
    """
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.admin import prune_store, pruned_table

    with open_configured_store() as engine:
        pruned = prune_store(
            engine,
            samples_days=samples_days,
            telemetry_days=telemetry_days,
            artefacts_days=artefacts_days,
            quarantined_days=quarantined_days,
            is_dry_run=dry_run,
        )
    if as_json:
        print_json({"is_dry_run": dry_run, "parts": pruned})
    else:
        print_table(pruned_table(pruned, is_dry_run=dry_run))


@db_app.command("export")
def export(
    *,
    parquet: Annotated[
        Path, typer.Option("--parquet", metavar="DIR", help="Folder to write, one file per table.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Export all tables except tokens as Parquet files, for pandas, DuckDB and others."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.admin import export_store, exported_table

    with open_configured_store() as engine:
        exported = export_store(engine, parquet)
    if as_json:
        print_json(exported)
    else:
        print_table(exported_table(exported))


@db_app.command("backup")
def backup(file: Annotated[Path, typer.Argument(help="File to write, such as roofwatch.dump.")]) -> None:
    """Back up the whole database into one file with pg_dump, token hashes included."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.admin import back_up

    with open_configured_store() as engine:
        size_bytes = back_up(engine, file)
    print_note(f"{file}: {size_bytes} bytes; restore it with: roofwatch db restore {file}")


@db_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="A backup of your own.")],
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Allow replacing a database that holds data.")] = False,
    keep_old: Annotated[bool, typer.Option("--keep-old", help="Keep the old database under another name.")] = False,
) -> None:
    """Restore a backup into a second database, verify it, then replace the database with it.

    Exit status 1: the backup failed verification and nothing was replaced.
    """
    from roofwatch.arguments import open_configured_server
    from roofwatch.db.maintenance.backup import restore_backup
    from roofwatch.store.admin import ACTOR, print_problems, verified_line

    def show(step: str) -> None:
        print_note(f"{step} …")

    with open_configured_server() as engine:
        restored = restore_backup(engine, file, replaces=replace, keeps_old=keep_old, actor=ACTOR, on_step=show)
    if not restored.verification.is_whole:
        print_problems(restored.verification)
        print_note("the database was not changed")
        raise typer.Exit(EXIT_WRONG)
    print_note(f"restored: {verified_line(restored.verification)}")
    if restored.kept_as is not None:
        print_note(f"the old database is kept as {restored.kept_as}")
    print_note("grant read-only roles access again with: roofwatch db grant-reader")


@db_app.command("verify")
def verify(*, as_json: AsJson = False) -> None:
    """Verify that every stored run equals the record that was sent, and that all tables are consistent.

    Exit status 1: problems were found; each is named.
    """
    from roofwatch.arguments import open_configured_server
    from roofwatch.store.admin import print_problems, verified_line, verify_with_progress

    with open_configured_server() as engine:
        verification = verify_with_progress(engine)
    if as_json:
        print_json(verification)
    else:
        print_problems(verification)
        print_note(verified_line(verification))
    if not verification.is_whole:
        raise typer.Exit(EXIT_WRONG)


@db_app.command("grant-reader")
def grant_reader(
    role: Annotated[str, typer.Argument(help="Postgres role; created if missing.", show_default=False)],
    *,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Also allow triage, for a dashboard that people sign in to.")
    ] = False,
) -> None:
    """Let a Postgres role read everything except token hashes, for a dashboard.

    ROOFWATCH_READER_PASSWORD sets its password. Without --decisions the role loses the right to triage.
    """
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.engine.readers import grant_reader as grant
    from roofwatch.store.admin import ACTOR

    with open_configured_store() as engine:
        password = os.environ.get("ROOFWATCH_READER_PASSWORD") or None
        was_made = grant(engine, role, password=password, actor=ACTOR, writes_decisions=decisions)
    rights = "can read and triage" if decisions else "can read"
    print_note(f"role {role} {'was created and ' if was_made else ''}{rights}")
