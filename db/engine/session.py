"""Open the store, by a URL or as the embedded server of a folder, and sessions on it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import psycopg
from sqlalchemy import URL, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from roofwatch.db.engine import embedded, migrate
from roofwatch.db.errors import FullDiskError, StoreError

CONNECTIONS = 15
"""Default maximum of connections per process."""
WAIT_FOR_DISK = "set_config('synchronous_commit', 'on', true)"
"""SQL to select in a transaction whose commit must wait for the disk."""

_DEFAULTS = {
    "client_encoding": "utf8",
    "connect_timeout": "5",
    # detect a lost network within a minute; TCP's own defaults take hours
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Parameters of libpq unless the URL sets them."""
# for a free connection, before the client has to come back
_POOL_WAIT_S = 10
_DRIVER = "postgresql+psycopg"
NO_TIMEOUTS = text(
    """
    SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN
        ('statement_timeout', 'lock_timeout',
         'idle_in_transaction_session_timeout', 'transaction_timeout')
    """
)
ANALYSIS = 7_001_003
"""First key of the advisory lock of an analysis; the second is the project."""


@contextmanager
def open_store(
    url: str | None = None,
    *,
    folder: Path | None = None,
    connections: int = CONNECTIONS,
) -> Iterator[Engine]:
    """Open the store at the URL of a Postgres server, else the embedded one of a folder, with a
    current schema.

    The embedded server is created, started and upgraded as needed, and stopped after its last use.

    Raises:
        StoreError: the database cannot be reached, has another schema, or failed inside the block.
    """
    with open_server(url, folder=folder, connections=connections) as engine:
        # a server's schema is its operator's to upgrade
        if url is None:
            migrate.upgrade(engine)
        else:
            migrate.ensure_current(engine)
        yield engine


@contextmanager
def open_server(
    url: str | None = None,
    *,
    folder: Path | None = None,
    connections: int = CONNECTIONS,
) -> Iterator[Engine]:
    """Open the store with any schema, to upgrade or replace it.

    Raises:
        StoreError: as `open_store`, but for the schema.
    """
    if url is not None:
        with open_url(parse_url(url), connections) as engine:
            yield engine
    elif folder is not None:
        with embedded.start(folder) as server, open_url(server.url, connections) as engine:
            _restart_if_lost(engine, server)
            yield engine
    else:
        raise StoreError(
            "no database: give its URL, postgresql://user:password@host/name, or a folder for the "
            "embedded one"
        )


@contextmanager
def open_url(url: URL, connections: int = CONNECTIONS) -> Iterator[Engine]:
    """Open a database by an engine's URL, with any schema.

    Raises:
        StoreError: as `open_server`.
    """
    engine = make_engine(
        url,
        pool_pre_ping=True,  # a dashboard outlives restarts of the server
        pool_size=connections,
        max_overflow=0,
        pool_timeout=_POOL_WAIT_S,
    )
    where = migrate.database_name(url)
    try:
        try:
            with engine.connect() as connection:
                encoding = driver_connection(connection).info.parameter_status("server_encoding")
        except (OperationalError, InterfaceError) as error:
            hint = "start the server, or correct the database URL"
            raise StoreError(
                f"{where}: cannot be reached: {first_line(error.orig)}; {hint}"
            ) from None
        # other encodings cannot store what records may hold
        if encoding not in {"UTF8", None}:
            raise StoreError(
                f"{where}: has encoding {encoding}; create the database with ENCODING 'UTF8'"
            )
        try:
            yield engine
        except (DBAPIError, PoolTimeoutError) as error:
            failure = _describe_failure(error, connections)
            if failure is None:
                raise
            raise StoreError(f"{where}: {failure}") from None
    finally:
        engine.dispose()


def make_engine(url: URL, **options: Any) -> Engine:
    """Create an engine; `options` are those of `create_engine`."""
    # no prepared statements: PgBouncer may give each transaction another connection
    arguments = {"prepare_threshold": None, "cursor_factory": _BinaryCursor}
    engine = create_engine(
        url,
        connect_args=arguments,
        json_deserializer=orjson.loads,
        **options,
    )
    event.listen(engine, "connect", _use_utc)
    event.listen(engine, "checkin", _forget_mode)
    return engine


def _restart_if_lost(engine: Engine, server: embedded.ServerHandle) -> None:
    """Restart the embedded server when a connection fails, for example after it was killed."""

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: object, arguments: Any, parameters: Any) -> Any:
        try:
            return dialect.connect(*arguments, **parameters)
        except psycopg.OperationalError:
            # the second attempt says what is wrong
            with suppress(StoreError):
                server.restart_if_lost()
            return dialect.connect(*arguments, **parameters)


@contextmanager
def reading_session(
    engine: Engine,
    *,
    sees_one_state: bool = False,
    timeout_s: float | None = None,
) -> Iterator[Session]:
    """A read-only session, with a maximum time per statement if given; with `sees_one_state` all
    see one snapshot.
    """
    modes: dict[str, Any] = {"postgresql_readonly": True}
    if sees_one_state:
        modes["isolation_level"] = "REPEATABLE READ"
    with engine.connect().execution_options(**modes) as connection, connection.begin():
        if timeout_s is not None:
            connection.execute(text(f"SET LOCAL statement_timeout = {round(timeout_s * 1_000)}"))
        with Session(connection) as session:
            yield session


class _BinaryCursor(psycopg.Cursor[Any]):
    """Receives values in binary, which is several times faster for numbers and times."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.format = psycopg.pq.Format.BINARY


@contextmanager
def analysis_lock(engine: Engine, project: str) -> Iterator[None]:
    """Let only one process at a time analyse a project.

    A transaction on its own connection holds the lock: it works behind PgBouncer, and ends if the
    process is killed.
    """
    # on a connection of its own, which the pool cannot hand out meanwhile
    lone = make_engine(engine.url, poolclass=NullPool, isolation_level="READ COMMITTED")
    with lone.connect() as holder, holder.begin():
        holder.execute(NO_TIMEOUTS)
        key = {"lock": ANALYSIS, "project": project}
        holder.execute(text("SELECT pg_advisory_xact_lock(:lock, hashtext(:project))"), key)
        # this statement has no snapshot, which would hold back vacuum
        holder.execute(text("SET LOCAL statement_timeout = 0"))
        yield


def connections_of(engine: Engine) -> int:
    """Maximum of connections of an engine."""
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.size()


def driver_connection(connection: Any) -> psycopg.Connection:
    """The psycopg connection behind one of SQLAlchemy's."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def parse_url(url: str) -> URL:
    """Parse a database URL.

    Raises:
        StoreError: not a Postgres URL; the message does not quote it.
    """
    hint = (
        "write postgresql://user:password@host:5432/name (a password's special characters "
        "%-encoded)"
    )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"the database URL cannot be read; {hint}") from None
    # other dialects parse, but nothing of ours works on them
    if parsed.drivername not in {"postgres", "postgresql", _DRIVER}:
        raise StoreError(
            f"the database URL starts with {parsed.drivername}://, which is not Postgres; {hint}"
        )
    return parsed.set(drivername=_DRIVER, query=_DEFAULTS | dict(parsed.query))


def is_full(error: BaseException) -> bool:
    """Whether the server's disk is full."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, (FullDiskError, psycopg.errors.DiskFull))


def first_line(error: BaseException | None) -> str:
    """Return the first line of a message, else the type of the error."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _describe_failure(error: DBAPIError | PoolTimeoutError, connections: int) -> str | None:
    """What happened and what to do; None for a bug of ours."""
    if isinstance(error, PoolTimeoutError):
        return (
            f"all {connections} connections of this process are in use; raise database_connections"
        )
    if is_full(error):
        hint = "the server's disk is full; free space there, for example with `roofwatch db prune`"
    elif isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
        hint = (
            "grant a reader access with `roofwatch db grant-reader`; use the owner of the "
            "tables to write"
        )
    elif isinstance(error.orig, psycopg.errors.ReadOnlySqlTransaction):
        hint = "this role or server only reads: use the owner of the tables"
    elif isinstance(error, (OperationalError, InterfaceError)):
        hint = "the connection was lost; the transaction was rolled back: try again"
    else:
        return None
    return f"{first_line(error.orig)}; {hint}"


def _use_utc(connection: psycopg.Connection, _: object) -> None:
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()


def _forget_mode(connection: psycopg.Connection | None, _: object) -> None:
    # the next user may need the other mode; a replica refuses transactions that ask to write
    if connection is not None and not connection.closed:
        connection.read_only = None
