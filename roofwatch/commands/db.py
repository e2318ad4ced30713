"""Commands that operate the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch.commands.options import ACTOR, AsJson
from roofwatch.console.terminal import (
    EXIT_WRONG,
    make_table,
    print_error,
    print_note,
    print_result,
    progress,
)

if TYPE_CHECKING:  # the core installs no SQLAlchemy
    from sqlalchemy import Engine

RestrictedProject = Annotated[
    str, typer.Argument(help="Name of a project, stored or not yet; or * for all others.")
]

app = typer.Typer()
db_app = typer.Typer(help="Operate the database: schema, retention, backup.", no_args_is_help=True)
app.add_typer(db_app, name="db")


@db_app.command("upgrade")
def upgrade(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    backup_dir: Annotated[
        Path | None,
        typer.Option(
            "--backup",
            metavar="DIR",
            help="Folder for a backup before the upgrade; of an embedded database, its own.",
        ),
    ] = None,
) -> None:
    """Upgrade the database schema, one transaction per revision: it can be interrupted.

    Also brings along databases of commit 305e961d and later.
    """
    from roofwatch.configuration.arguments import configured_url, open_configured_server
    from roofwatch.configuration.settings import load_settings
    from roofwatch.db.engine.migrate import (
        current_revision,
        head_revision,
        list_missing_metrics,
        list_pending,
    )
    from roofwatch.db.engine.migrate import upgrade as upgrade_schema
    from roofwatch.db.maintenance.backup import write_backup

    if backup_dir is None and configured_url() is None:
        backup_dir = load_settings().data_dir
    with open_configured_server() as engine:
        pending = list_pending(engine)
        for revision in pending:
            if revision.estimated_s:
                duration = f" (about {revision.estimated_s:.0f} s)"
            else:
                duration = ""
            print_note(f"revision {revision.name}: {revision.summary}{duration}")
        for metric in list_missing_metrics(engine):
            print_note(f"a column for the metric {metric}")
        stored_revision = current_revision(engine)
        if pending and stored_revision is not None and backup_dir is not None and not dry_run:
            path = backup_dir / f"before-{pending[-1].name}-from-{stored_revision}.dump"
            # an interrupted upgrade is continued: the first backup is the one to keep
            if not path.exists():
                write_backup(engine, path)
                print_note(f"{path}: the database before the upgrade")
        if not dry_run:
            upgrade_schema(engine, on_revision=lambda name: print_note(f"revision {name} is done"))
        print_note(f"the schema is at revision {current_revision(engine) or 'none'}")
    if dry_run and pending:
        print_note(f"the upgrade leads to revision {head_revision()}")


@db_app.command("status")
def status(*, as_json: AsJson = False) -> None:
    """Show the server, schema revision, size and row counts."""
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.engine.migrate import read_status
    from roofwatch.model.metrics import format_bytes

    with open_configured_store() as engine:
        store_status = read_status(engine)
    rows = [
        ("server", store_status.server),
        ("Postgres", store_status.server_version),
        ("schema revision", store_status.schema_revision or "none"),
        ("size", format_bytes(store_status.size_bytes)),
        *((f"rows of {name}", count) for name, count in store_status.row_counts.items()),
    ]
    print_result(store_status, make_table(("property", "value"), rows), as_json=as_json)


@db_app.command("prune")
def prune(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete raw samples, telemetry, artefacts and quarantined runs past the days of the settings.

    Findings stay, as do the newest run of each series and all runs behind an open regression.
    """
    from datetime import UTC, datetime

    from roofwatch.collector.runs.run_plan import Progress
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.configuration.settings import load_settings
    from roofwatch.db.errors import StoreError
    from roofwatch.db.maintenance.retention import Part
    from roofwatch.db.maintenance.retention import prune as prune_store
    from roofwatch.model.metrics import format_bytes

    policy = load_settings().retention
    limits = {part: days for part in Part if (days := getattr(policy, f"{part}_days")) is not None}
    # deleting by default would surprise somebody
    if not limits:
        raise StoreError("no retention is configured: set days in [retention] of roofwatch.toml")
    with open_configured_store() as engine, progress("pruning") as show:
        pruned = prune_store(
            engine,
            limits,
            now=datetime.now(UTC),
            is_dry_run=dry_run,
            actor=ACTOR,
            on_progress=lambda done: show(
                Progress(done.run_count, 0, f"{done.part}: {done.run_count} runs")
            ),
        )
    rows = [
        (part.part, f"{part.older_than:%Y-%m-%d}", part.run_count, format_bytes(part.size_bytes))
        for part in pruned
    ]
    table = make_table(
        ("what", "older than", "runs", "size"),
        rows,
        title="would be removed" if dry_run else "removed",
    )
    print_result({"is_dry_run": dry_run, "parts": pruned}, table, as_json=as_json)


@db_app.command("export")
def export(
    *,
    parquet: Annotated[
        Path, typer.Option("--parquet", metavar="DIR", help="Folder to write, one file per table.")
    ],
    as_json: AsJson = False,
) -> None:
    """Export all tables except tokens as Parquet files, for pandas, DuckDB and others."""
    from roofwatch.collector.runs.run_plan import Progress
    from roofwatch.configuration.arguments import open_configured_server
    from roofwatch.db.maintenance.parquet import export_parquet
    from roofwatch.model.metrics import format_bytes

    with open_configured_server() as engine, progress("exporting") as show:
        exported = export_parquet(
            engine,
            parquet,
            on_progress=lambda table, count: show(Progress(count, 0, f"{table}: {count} rows")),
        )
    rows = [
        (exported_table.name, exported_table.row_count, format_bytes(exported_table.size_bytes))
        for exported_table in exported
    ]
    print_result(exported, make_table(("table", "rows", "size"), rows), as_json=as_json)


@db_app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(help="File to write, such as roofwatch.dump.")],
) -> None:
    """Back up the whole database into one file with pg_dump, token hashes included."""
    from roofwatch.configuration.arguments import open_configured_server
    from roofwatch.db.maintenance.backup import write_backup

    with open_configured_server() as engine:
        write_backup(engine, file)
    print_note(f"{file}: {file.stat().st_size} bytes; restore it with: roofwatch db restore {file}")


@db_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="A backup of your own.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Allow replacing a database that holds data.")
    ] = False,
) -> None:
    """Restore a backup into a second database, verify it, then replace the database with it.

    Exit status 1: the backup failed verification and nothing was replaced.
    """
    from roofwatch.configuration.arguments import open_configured_server
    from roofwatch.db.maintenance.backup import restore_backup

    with open_configured_server() as engine:
        verification = restore_backup(
            engine,
            file,
            replaces=replace,
            actor=ACTOR,
            on_step=lambda step: print_note(f"{step} …"),
        )
    # the database in use is untouched
    if not verification.is_whole:
        for problem in verification.problems:
            print_error(problem)
        print_note("the database was not changed")
        raise typer.Exit(EXIT_WRONG)
    print_note(f"restored: {verification.in_words}")
    print_note("grant read-only roles access again with: roofwatch db grant-reader")


def _outdated_analyses(engine: Engine) -> Iterator[str]:
    """Yield the cases whose stored analysis differs from a new one."""
    from sqlalchemy.orm import Session

    from roofwatch.ci.history.analyse import find_outdated_cases
    from roofwatch.db.queries.project import list_projects

    with Session(engine) as session:
        projects = list_projects(session)
    for project in projects:
        for case_id in find_outdated_cases(engine, project):
            yield f"project {project}, case {case_id}: a new analysis finds something else"


@db_app.command("verify")
def verify(*, as_json: AsJson = False) -> None:
    """Verify that every stored run equals the record that was sent, that all tables are
    consistent, and that stored analyses equal new ones.

    Exit status 1: problems were found; each is named.
    """
    from roofwatch.collector.runs.run_plan import Progress
    from roofwatch.configuration.arguments import open_configured_server
    from roofwatch.db.maintenance.verify import verify_store

    with open_configured_server() as engine, progress("verifying") as show:
        verification = verify_store(
            engine, on_progress=lambda done, total: show(Progress(done, total, "runs"))
        )
        # analyses of damaged runs would differ too
        if verification.is_whole:
            verification.problems = tuple(_outdated_analyses(engine))
    if not as_json:
        for problem in verification.problems:
            print_error(problem)
    print_result(verification, verification.in_words, as_json=as_json)
    if not verification.is_whole:
        raise typer.Exit(EXIT_WRONG)


@db_app.command("grant-reader")
def grant_reader(
    role: Annotated[str, typer.Argument(help="Postgres role; created if missing.")],
    *,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions", help="Also allow triage, for a dashboard that people sign in to."
        ),
    ] = False,
    views: Annotated[
        bool,
        typer.Option("--views", help="Only the views for Grafana, which hide restricted projects."),
    ] = False,
) -> None:
    """Let a Postgres role read everything except token hashes, for a dashboard or Grafana.

    ROOFWATCH_READER_PASSWORD (or ..._FILE) sets its password. Without --decisions the role loses
    the right to triage.
    """
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.configuration.settings import from_environment
    from roofwatch.db.engine.readers import grant_reader as grant
    from roofwatch.db.errors import StoreError

    if decisions and views:
        raise StoreError("use either --decisions or --views: who decides reads tables")

    with open_configured_store() as engine:
        password = from_environment("ROOFWATCH_READER_PASSWORD") or None
        was_made = grant(
            engine,
            role,
            password=password,
            actor=ACTOR,
            writes_decisions=decisions,
            views_only=views,
        )
    rights = "can read the views" if views else "can read"
    if decisions:
        rights = "can read and triage"
    _print_rights(role, rights, was_made=was_made)


@db_app.command("grant-service")
def grant_service(
    role: Annotated[str, typer.Argument(help="Postgres role; created if missing.")],
) -> None:
    """Let a Postgres role do what the API and the workers do, and no more: it changes no schema.

    ROOFWATCH_SERVICE_PASSWORD (or ..._FILE) sets its password.
    """
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.configuration.settings import from_environment
    from roofwatch.db.engine.readers import grant_service as grant

    with open_configured_store() as engine:
        password = from_environment("ROOFWATCH_SERVICE_PASSWORD") or None
        was_made = grant(engine, role, password=password, actor=ACTOR)
    _print_rights(role, "can serve", was_made=was_made)


@db_app.command("restrict")
def restrict(
    project: RestrictedProject,
    *,
    reader: Annotated[
        list[str] | None,
        typer.Option(
            help="name@example.com, @example.com, group:NAME or role:NAME of Postgres; "
            "repeatable. They replace the readers of before."
        ),
    ] = None,
) -> None:
    """Let only some people read a project, after they sign in to the dashboard.

    Tokens for the project still read it. Use * for all projects that have no readers of their own.
    """
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.project_access import restrict_project

    with open_configured_store() as engine:
        restrict_project(engine, project, reader or [], actor=ACTOR)
    print_note(f"project {project} is restricted to: {', '.join(reader or ['nobody'])}")


@db_app.command("unrestrict")
def unrestrict(project: RestrictedProject) -> None:
    """Let everybody who reaches the dashboard read a project."""
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.project_access import unrestrict_project

    with open_configured_store() as engine:
        unrestrict_project(engine, project, actor=ACTOR)
    print_note(f"project {project} is no longer restricted")


@db_app.command("readers")
def readers(*, as_json: AsJson = False) -> None:
    """List restricted projects, and who may read them."""
    from sqlalchemy.orm import Session

    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.project_access import read_project_access

    with open_configured_store() as engine, Session(engine) as session:
        access = read_project_access(session)
    listed = {project: sorted(names) for project, names in sorted(access.readers.items())}
    rows = [(project, " ".join(names) or "nobody") for project, names in listed.items()]
    print_result(listed, make_table(("project", "readers"), rows), as_json=as_json)


def _print_rights(role: str, rights: str, *, was_made: bool) -> None:
    created = "was created and " if was_made else ""
    print_note(f"role {role} {created}{rights}")
