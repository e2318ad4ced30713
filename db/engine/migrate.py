"""The schema of a database: upgrade it, check it, and show the status of the store."""

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
        StoreError: the schema is of another version of roofwatch.
    """
    if current_revision(engine) == head_revision():
        return
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        _refuse_unknown(engine, _revision(connection))
        command.upgrade(configuration(connection), "head")


def ensure_current(engine: Engine) -> None:
    """Check that the schema is that of this version.

    Raises:
        StoreError: the schema is missing, older or newer.
    """
    revision = current_revision(engine)
    if revision != head_revision():
        _refuse_unknown(engine, revision)
        found = (
            "no roofwatch schema"
            if revision is None
            else f"schema revision {revision}, not {head_revision()}"
        )
        raise StoreError(f"{database_name(engine.url)}: {found}; run: roofwatch db upgrade")


def read_status(engine: Engine) -> StoreStatus:
    with engine.connect() as connection:
        counts = {
            row.__tablename__: connection.execute(
                select(func.count()).select_from(row)
            ).scalar_one()
            for row in _COUNTED
        }
        # from the lists of the runs: the table may have a hundred million rows
        counted = func.coalesce(func.sum(func.cardinality(RunRow.series_ids)), 0)
        counts["measurement"] = connection.execute(select(counted)).scalar_one()
        size_bytes = connection.execute(
            text("SELECT pg_database_size(current_database())")
        ).scalar_one()
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


def database_name(url: URL) -> str:
    """Name and server of a database, for messages."""
    return f"database {url.database!r} on {server_name(url)}"


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


def _refuse_unknown(engine: Engine, revision: str | None) -> None:
    if revision is not None and revision not in {
        script.revision for script in _scripts().walk_revisions()
    }:
        raise StoreError(
            f"{database_name(engine.url)}: schema revision {revision} is of another version of "
            f"roofwatch; use that "
            "version, or an empty database or folder, and ingest the record files again"
        )
