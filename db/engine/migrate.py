"""Bring a database to the schema of this version, or say why it is not there."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from roofwatch.db.errors import StoreError

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
# any number, the same in every version: what two upgrades at once queue for
_UPGRADE_LOCK = 7_340_581


def head_revision() -> str:
    """The revision that this version works with."""
    revision = _scripts().get_current_head()
    assert revision is not None, "a package without migrations"
    return revision


def current_revision(engine: Engine) -> str | None:
    """The revision that the database is at; None where it has no schema of ours."""
    with engine.connect() as connection:
        return _revision(connection)


def upgrade(engine: Engine) -> None:
    """Bring the schema up to date, all of it or nothing. Several processes may do so at once.

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
    """Check that the schema is the one that this version works with.

    Raises:
        StoreError: there is none, or it is older or newer.
    """
    revision = current_revision(engine)
    if revision == head_revision():
        return
    if revision is None:
        raise StoreError(f"{_where(engine)}: no roofwatch schema here yet; run: roofwatch db upgrade")
    if _is_known(revision):
        raise StoreError(
            f"{_where(engine)}: the schema is at revision {revision}, this roofwatch needs {head_revision()}; "
            "run: roofwatch db upgrade"
        )
    raise StoreError(_too_new(engine, revision))


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for its own commands, on one connection."""
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
    return f"database {engine.url.database!r} on {engine.url.host}:{engine.url.port or 5432}"


def _too_new(engine: Engine, revision: str) -> str:
    return (
        f"{_where(engine)}: the schema is at revision {revision}, which this roofwatch does not know (it goes up to "
        f"{head_revision()}); use the newer roofwatch that upgraded it"
    )
