"""A backup: the whole database as Postgres' own programs write it, tokens' hashes included, and put back."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.auth.audit import add_entry
from roofwatch.db.engine.client_programs import describe_server, find_client, run_client
from roofwatch.db.engine.migrate import upgrade
from roofwatch.db.engine.session import driver_connection, open_url
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.verify import Verification, verify_store

_NAME_BYTES = 63
_ENTRY_OF_OURS = "TABLE DATA public alembic_version"

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class Restored:
    verification: Verification
    """Of what was restored; with problems, the database is as it was before."""
    kept_as: str | None
    """What the database of before is called now; None where it is gone, or was empty."""


def write_backup(engine: Engine, path: Path) -> None:
    """Write one state of the database; whoever reads or writes it meanwhile goes on.

    Args:
        engine: Of a store with a current schema.
        path: Of the file to write.

    Raises:
        StoreError: there is no program for it, or it failed; what is in the file is then no backup.
    """
    server = describe_server(engine)
    client = find_client("pg_dump", server)
    # a file, not a pipe: what each part's place is, by which one that is cut off is known, is written at the end
    options = ["--format=custom", "--no-owner", "--no-privileges", "--lock-wait-timeout=60s", f"--file={path}"]
    run_client(client, "pg_dump", options, server)


def restore_backup(
    engine: Engine, path: Path, *, replaces: bool, keeps_old: bool, actor: str, on_step: OnStep = lambda _text: None
) -> Restored:
    """Put a backup in the place of a database: beside it first, and there verified.

    A backup is a program that the server runs: restore only those of your own.

    Args:
        engine: Of the server and database that `roofwatch` is set up with, whatever its schema.
        path: Of the backup.
        replaces: Whether what the database holds now may go.
        keeps_old: Whether it is kept under another name.
        actor: Who does it, for the audit trail.
        on_step: Told what is being done.

    Raises:
        StoreError: it is no backup, the database holds something, or a step failed; the database is as it was.
    """
    server = describe_server(engine)
    client = find_client("pg_restore", server)
    if not path.is_file():
        raise StoreError(f"{path}: no such file")
    if _ENTRY_OF_OURS not in run_client(client, "pg_restore", ["--list", str(path)], None):
        raise StoreError(f"{path}: a backup, but of no roofwatch database")
    if not replaces:
        _refuse_to_replace(engine)
    database = str(engine.url.database)
    with _administering(engine) as admin, _new_database(admin, database) as beside:
        with open_url(engine.url.set(database=beside)) as restored:
            on_step("restoring beside the database")
            options = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", str(path)]
            run_client(client, "pg_restore", options, describe_server(restored))
            upgrade(restored)
            with restored.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("ANALYZE"))  # a backup holds no statistics
            on_step("verifying")
            verification = verify_store(restored)
            if not verification.is_whole:
                return Restored(verification, kept_as=None)
            with Session(restored) as session, session.begin():
                add_entry(session, actor=actor, action="store.restore", project=None, subject=path.name)
        on_step("putting it in place")
        engine.dispose()
        before = _swap(admin, database, beside)
        if keeps_old:
            return Restored(verification, kept_as=before)
        _run(admin, "DROP DATABASE {} WITH (FORCE)", before)
    return Restored(verification, kept_as=None)


def _refuse_to_replace(engine: Engine) -> None:
    holding = text(
        "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace "
        "AND c.relkind = 'r' AND NOT c.relispartition AND c.relname <> 'alembic_version' ORDER BY 1"
    )
    with engine.connect() as connection:
        for table in connection.scalars(holding).all():
            quoted = engine.dialect.identifier_preparer.quote_identifier(table)
            if connection.scalar(text(f"SELECT EXISTS (SELECT FROM {quoted})")):
                raise StoreError(
                    f"database {engine.url.database!r} is not empty (table {table}); "
                    "back it up, then say --replace to have the backup in its place"
                )


@contextmanager
def _administering(engine: Engine) -> Iterator[Engine]:
    """A connection to the server that is to no database of ours.

    Raises:
        StoreError: the role may not make databases.
    """
    query = text("SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user")
    with engine.connect() as connection:
        if not connection.scalar(query):
            user = connection.scalar(text("SELECT current_user"))
            raise StoreError(
                f"role {user!r} may not make databases, and a backup is restored beside the one that is there: "
                f"run in psql as an administrator: ALTER ROLE {user} CREATEDB"
            )
    elsewhere = "template1" if engine.url.database == "postgres" else "postgres"
    with open_url(engine.url.set(database=elsewhere)) as admin:
        yield admin.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def _new_database(admin: Engine, database: str) -> Iterator[str]:
    """An empty database, which is gone again unless it was given another name."""
    name = _beside(database, "restored")
    _run(admin, "CREATE DATABASE {} TEMPLATE template0", name)
    try:
        yield name
    finally:
        with suppress(StoreError):
            _run(admin, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _swap(admin: Engine, database: str, beside: str) -> str:
    """Give a database the name of another; what the other is called from now on."""
    before = _beside(database, "before")
    with admin.connect() as connection:
        driver = driver_connection(connection)
        try:
            # nobody connects in between: both names change at once, or neither
            _execute(driver, "ALTER DATABASE {} ALLOW_CONNECTIONS false", database)
            connection.execute(
                text("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname IN (:one, :other)"),
                {"one": database, "other": beside},
            )
            with driver.transaction():
                _execute(driver, "ALTER DATABASE {} RENAME TO {}", database, before)
                _execute(driver, "ALTER DATABASE {} RENAME TO {}", beside, database)
        except psycopg.Error as error:
            with suppress(psycopg.Error):
                _execute(driver, "ALTER DATABASE {} ALLOW_CONNECTIONS true", database)
            raise StoreError(f"database {database!r} cannot be replaced: {error}; it is as it was") from None
        _execute(driver, "ALTER DATABASE {} ALLOW_CONNECTIONS true", before)
    return before


def _beside(database: str, what: str) -> str:
    suffix = f"_{what}_{secrets.token_hex(4)}"
    return database.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore") + suffix


def _run(admin: Engine, statement: str, *names: str) -> None:
    try:
        with admin.connect() as connection:
            _execute(driver_connection(connection), statement, *names)
    except psycopg.Error as error:
        raise StoreError(f"{statement.replace('{}', names[0])}: {' '.join(str(error).split())}") from None


def _execute(driver: psycopg.Connection, statement: str, *names: str) -> None:
    # names cannot be parameters of such statements: the driver quotes them
    driver.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
