"""The schema of a database: upgrade it, check it, and show the status of the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, func, select, text

from roofwatch.db.errors import StoreError
from roofwatch.db.schema.measurements import AccuracyRow, StaticFactRow
from roofwatch.db.schema.regressions import RegressionRow
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_UPGRADE_LOCK = 7_340_581
"""Key of the advisory lock of an upgrade."""
_COUNTED = (ProjectRow, CommitRow, RunRow, AccuracyRow, StaticFactRow, RegressionRow)


@dataclass(frozen=True)
class StoreStatus:
    server: str
    """Host and database, without the password."""
    server_version: str
    schema_revision: str | None
    size_bytes: int
    row_counts: dict[str, int]


def head_revision() -> str:
    """The revision of this version."""
    revision = _scripts().get_current_head()
    assert revision is not None, "a package without migrations"
    return revision


def current_revision(engine: Engine) -> str | None:
    """The revision of a database; None without a schema."""
    with engine.connect() as connection:
        return _revision(connection)


def upgrade(engine: Engine) -> None:
    """Upgrade the schema in one transaction. Several processes may do so at once.

    Raises:
        StoreError: the schema is of a newer roofwatch.
    """
    if current_revision(engine) == head_revision():
        return
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        revision = _revision(connection)
        if revision is not None and not _is_known(revision):
            raise StoreError(_too_new(engine, revision))
        command.upgrade(configuration(connection), "head")


def ensure_current(engine: Engine) -> None:
    """Check that the schema is that of this version.

    Raises:
        StoreError: the schema is missing, older or newer.
    """
    revision = current_revision(engine)
    if revision == head_revision():
        return
    if revision is None:
        raise StoreError(f"{_where(engine)}: no roofwatch schema; run: roofwatch db upgrade")
    if _is_known(revision):
        raise StoreError(
            f"{_where(engine)}: the schema is at revision {revision}, this roofwatch needs {head_revision()}; "
            "run: roofwatch db upgrade"
        )
    raise StoreError(_too_new(engine, revision))


def read_status(engine: Engine) -> StoreStatus:
    with engine.connect() as connection:
        counts = {
            row.__tablename__: connection.execute(select(func.count()).select_from(row)).scalar_one()
            for row in _COUNTED
        }
        # from the lists of the runs: the table may have a hundred million rows
        counted = func.coalesce(func.sum(func.cardinality(RunRow.series_ids)), 0)
        counts["measurement"] = connection.execute(select(counted)).scalar_one()
        size_bytes = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
        version = connection.execute(text("SHOW server_version")).scalar_one()
    return StoreStatus(
        server=f"{server_name(engine.url)}/{engine.url.database}",
        server_version=version,
        schema_revision=current_revision(engine),
        size_bytes=size_bytes,
        row_counts=counts,
    )


def server_name(url: URL) -> str:
    """Host and port, or the folder of the socket."""
    return f"{url.host or url.query.get('host')}:{url.port or url.query.get('port', 5432)}"


def configuration(connection: Connection) -> Config:
    """Alembic's configuration, on one connection."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_MIGRATIONS))


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _is_known(revision: str) -> bool:
    return revision in {script.revision for script in _scripts().walk_revisions()}


def _where(engine: Engine) -> str:
    return f"database {engine.url.database!r} on {server_name(engine.url)}"


def _too_new(engine: Engine, revision: str) -> str:
    return (
        f"{_where(engine)}: the schema is at revision {revision}, newer than this roofwatch "
        f"({head_revision()}); use the roofwatch that upgraded it"
    )
