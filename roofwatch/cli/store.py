"""Commands of whoever runs the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import EXIT_WRONG, AsJson

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()
db_app = typer.Typer(help="The database: its schema, what it keeps, copies of it.", no_args_is_help=True)
app.add_typer(db_app, name="db")

Days = Annotated[int | None, typer.Option(min=1, help="Days to keep them. Left out: the setting.", show_default=False)]


@db_app.command("upgrade")
def upgrade() -> None:
    """Bring the schema of the database up to date."""
    from roofwatch.arguments import open_configured_server
    from roofwatch.db.engine.migrate import head_revision
    from roofwatch.db.engine.migrate import upgrade as upgrade_schema
    from roofwatch.terminal import print_note

    with open_configured_server() as engine:
        upgrade_schema(engine)
    print_note(f"the schema is at revision {head_revision()}")


@db_app.command("status")
def status(*, as_json: AsJson = False) -> None:
    """Show where the database is, its schema, and what it holds."""
    from roofwatch import tables
    from roofwatch.arguments import open_configured_store
    from roofwatch.db.engine.migrate import read_status
    from roofwatch.terminal import print_json, print_table

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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove raw samples, telemetry and quarantined runs that are older than they have to be kept.

    What was found stays, and so does everything of the newest run of each series, and of runs that a regression rests
    on which nobody has settled.
    """
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.keeping import prune_store, pruned_table
    from roofwatch.terminal import print_json, print_table

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
    """Copy every table but those of tokens into Parquet files, for pandas, DuckDB and others."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.keeping import export_store, exported_table
    from roofwatch.terminal import print_json, print_table

    with open_configured_store() as engine:
        exported = export_store(engine, parquet)
    if as_json:
        print_json(exported)
    else:
        print_table(exported_table(exported))


@db_app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(help="To write, for example roofwatch.dump.", show_default=False)],
) -> None:
    """Write the whole database into one file with Postgres' pg_dump, tokens' hashes included."""
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.keeping import back_up
    from roofwatch.terminal import print_note

    with open_configured_store() as engine:
        size_bytes = back_up(engine, file)
    print_note(f"{file}: {size_bytes} bytes; roofwatch db restore puts it back")


@db_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="That a backup wrote: one of your own.", show_default=False)],
    *,
    replace: Annotated[bool, typer.Option("--replace", help="What the database holds now may go.")] = False,
    keep_old: Annotated[
        bool, typer.Option("--keep-old", help="Keep the database of before, under another name.")
    ] = False,
) -> None:
    """Put a backup in the place of the database, once it has been restored beside it and verified.

    Exit status 1: what was restored is not whole; the database is as it was.
    """
    from roofwatch.arguments import open_configured_server
    from roofwatch.db.maintenance.backup import restore_backup
    from roofwatch.store.access import ACTOR
    from roofwatch.store.keeping import print_problems, verified_line
    from roofwatch.terminal import print_note

    def show(step: str) -> None:
        print_note(f"{step} …")

    with open_configured_server() as engine:
        restored = restore_backup(engine, file, replaces=replace, keeps_old=keep_old, actor=ACTOR, on_step=show)
    if not restored.verification.is_whole:
        print_problems(restored.verification)
        print_note("the database is as it was")
        raise typer.Exit(EXIT_WRONG)
    print_note(f"restored: {verified_line(restored.verification)}")
    if restored.kept_as is not None:
        print_note(f"the database of before is kept as {restored.kept_as}")
    print_note("roles that only read are let in again by: roofwatch db grant-reader")


@db_app.command("verify")
def verify(*, as_json: AsJson = False) -> None:
    """Prove that the store is whole: every run reads back as it was sent, and all tables are sound.

    Exit status 1: something is not; it is named.
    """
    from roofwatch.arguments import open_configured_server
    from roofwatch.store.keeping import print_problems, verified_line, verify_with_progress
    from roofwatch.terminal import print_json, print_note

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
    role: Annotated[str, typer.Argument(help="Of Postgres; made if it is not there.", show_default=False)],
    *,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="It may also write down what people decide about regressions.")
    ] = False,
) -> None:
    """Let a role of Postgres read everything but what tokens are known by, and change nothing: for a dashboard.

    The dashboard that people sign in to needs --decisions; without it a role that had that loses it.
    One that is made, or is to have another password, gets that of the environment variable ROOFWATCH_READER_PASSWORD.
    """
    import os

    from roofwatch.arguments import open_configured_store
    from roofwatch.db.engine.readers import grant_reader as grant
    from roofwatch.store.access import ACTOR
    from roofwatch.terminal import print_note

    with open_configured_store() as engine:
        password = os.environ.get("ROOFWATCH_READER_PASSWORD") or None
        was_made = grant(engine, role, password=password, actor=ACTOR, writes_decisions=decisions)
    may = "may read, and write decisions" if decisions else "may read, and change nothing"
    print_note(f"role {role} {'was made and ' if was_made else ''}{may}")
