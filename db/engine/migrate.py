"""The schema of a database: upgrade it, check it, and show the status of the store."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import URL, Connection, Engine, func, inspect, select, text, update

from roofwatch.db.engine import metric_columns
from roofwatch.db.errors import StoreError
from roofwatch.db.schema.compatibility import SchemaCompatibilityRow
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


@dataclass(frozen=True)
class Revision:
    """A change of the schema that a database waits for."""

    name: str
    summary: str
    estimated_s: float
    """About how long the change takes; 0 for less than a second."""


def head_revision() -> str:
    """The revision of this version."""
    revision = _scripts().get_current_head()
    assert revision is not None, "a package without migrations"
    return revision


def current_revision(engine: Engine) -> str | None:
    """The revision of a database; None without a schema."""
    with engine.connect() as connection:
        return _revision(connection)


def list_pending(engine: Engine) -> list[Revision]:
    """The revisions that an upgrade would apply, in this order.

    Raises:
        StoreError: as `upgrade`.
    """
    pending: list[Revision] = []
    with engine.connect() as connection:
        for script in _pending(engine, connection):
            # only the first can be estimated: the others need its tables
            estimate_s = getattr(script.module, "estimate_s", None)
            is_first = not pending and _revision(connection) is not None
            estimated_s = 0.0
            if estimate_s is not None and is_first:
                estimated_s = estimate_s(connection)
            pending.append(Revision(script.revision, script.doc.rstrip("."), estimated_s))
    return pending


def list_missing_metrics(engine: Engine) -> list[str]:
    """The metrics that an upgrade adds a column for, without a revision."""
    with engine.connect() as connection:
        # revisions that are pending may add some of them
        if _revision(connection) != head_revision():
            return []
        return metric_columns.list_missing(connection)


def upgrade(engine: Engine, on_revision: Callable[[str], None] = lambda _name: None) -> None:
    """Upgrade the schema, in one transaction per revision. Several processes may do so at once.

    An interrupted upgrade continues with the next call. A newer schema on which this version works
    is left alone. `on_revision` is called after each revision.

    Raises:
        StoreError: the schema is of another version of roofwatch.
    """
    # once per revision: an interruption loses one revision only
    while not _is_at_revision(engine):
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
            pending = _pending(engine, connection)
            if not pending:
                break
            command.upgrade(configuration(connection), pending[0].revision)
            _write_compatibility(connection, pending[0].module.oldest_code)
        on_revision(pending[0].revision)
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        # a newer schema has the metrics of its own version
        if _revision(connection) == head_revision():
            metric_columns.add_missing(connection)


def upgrade_to(engine: Engine, revision: str) -> None:
    """Upgrade to an older revision, for tests of what follows it."""
    while current_revision(engine) != revision:
        with engine.begin() as connection:
            script = _pending(engine, connection)[0]
            command.upgrade(configuration(connection), script.revision)
            _write_compatibility(connection, script.module.oldest_code)


def is_current(engine: Engine) -> bool:
    """Whether this version works on the schema: its own, or a newer one that only adds to it."""
    if not _is_at_revision(engine):
        return False
    with engine.connect() as connection:
        return not metric_columns.list_missing(connection)


def _is_at_revision(engine: Engine) -> bool:
    with engine.connect() as connection:
        revision = _revision(connection)
        return revision == head_revision() or _is_compatible(connection, revision)


def ensure_current(engine: Engine) -> None:
    """Check that this version works on the schema.

    Raises:
        StoreError: the schema is missing, older, or too new.
    """
    if is_current(engine):
        return
    with engine.connect() as connection:
        revision = _revision(connection)
        _refuse_unknown(engine, revision)
        # a process that began before an upgrade may still lack columns of new metrics
        missing = metric_columns.list_missing(connection)
    problem = f"schema revision {revision}, not {head_revision()}"
    if revision is None:
        problem = "no roofwatch schema"
    elif revision == head_revision():
        problem = f"no columns for the metrics {', '.join(missing)}"
    raise StoreError(f"{database_name(engine.url)}: {problem}; run: roofwatch db upgrade")


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


def _pending(engine: Engine, connection: Connection) -> list[Script]:
    """The revisions after that of a database, the oldest first."""
    revision = _revision(connection)
    if _is_compatible(connection, revision):
        return []
    _refuse_unknown(engine, revision)
    newest_first = list(_scripts().iterate_revisions("head", revision or "base"))
    return newest_first[::-1]


def _is_known(revision: str) -> bool:
    return revision in {script.revision for script in _scripts().walk_revisions()}


def _is_compatible(connection: Connection, revision: str | None) -> bool:
    """Whether a newer version of roofwatch says that this one works on its schema."""
    if revision is None or _is_known(revision):
        return False
    if not inspect(connection).has_table(SchemaCompatibilityRow.__tablename__):
        return False
    oldest_code = connection.scalar(select(SchemaCompatibilityRow.oldest_code))
    return oldest_code is not None and _is_known(oldest_code)


def _write_compatibility(connection: Connection, oldest_code: str) -> None:
    # the first revision has no such table
    if inspect(connection).has_table(SchemaCompatibilityRow.__tablename__):
        connection.execute(update(SchemaCompatibilityRow).values(oldest_code=oldest_code))


def _refuse_unknown(engine: Engine, revision: str | None) -> None:
    if revision is not None and not _is_known(revision):
        raise StoreError(
            f"{database_name(engine.url)}: schema revision {revision} is of another version of "
            "roofwatch; use that version, or a newer one"
        )
