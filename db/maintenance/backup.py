"""Backup and restore with pg_dump and pg_restore. A backup includes the hashes of tokens."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.engine.migrate import upgrade
from roofwatch.db.engine.session import driver_connection, open_url
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.pg_programs import (
    Programs,
    describe_server,
    find_programs,
    load_archive,
    run_program,
)
from roofwatch.db.maintenance.service_state import BACKUP
from roofwatch.db.maintenance.verify import Verification, verify_store
from roofwatch.model.files import atomic_path, reason_of

# Postgres cuts longer names without an error
_NAME_BYTES = 63
# a dump without it is of another program
_ENTRY_OF_OURS = "TABLE DATA public alembic_version"


def write_backup(engine: Engine, path: Path) -> None:
    """Write a snapshot of the database to a file that only this user may read, because it holds
    token hashes.

    Raises:
        StoreError: pg_dump is missing or failed, or the file cannot be written; no partial file is
        left.
    """
    server = describe_server(engine)
    program = find_programs(server)[0].path("pg_dump")
    try:
        with atomic_path(path, mode=0o600) as temporary:
            options = [
                "--format=custom",
                "--no-owner",
                "--no-privileges",
                "--lock-wait-timeout=60s",
            ]
            run_program(program, [*options, f"--file={temporary}"], server)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written: {reason_of(error)}; nothing was left there"
        ) from None
    # the metrics show its age; a replica can be backed up too, but not written
    with suppress(DBAPIError), Session(engine) as session, session.begin():
        add_entry(
            session,
            actor="backup",
            action=BACKUP,
            project=None,
            subject=path.name,
        )


def restore_backup(
    engine: Engine,
    path: Path,
    *,
    replaces: bool,
    actor: str,
    on_step: Callable[[str], None] = lambda _text: None,
) -> Verification:
    """Restore a backup into a new database, verify it, and rename it to replace the current one.

    A backup can run code on the server: restore only your own. The current database may hold data
    only if `replaces`. `on_step` is called with the name of each step.

    Returns:
        The check of the restored database; if it has problems, nothing was replaced.

    Raises:
        StoreError: not a backup, the database is not empty, or a step failed; the database is
        unchanged.
    """
    server = describe_server(engine)
    suitable = find_programs(server)
    if not path.is_file():
        raise StoreError(f"{path}: no such file")
    programs, entries = _list_entries(suitable, path)
    if _ENTRY_OF_OURS not in entries:
        raise StoreError(f"{path}: not a backup of a roofwatch database")
    if not replaces:
        _refuse_to_replace(engine)
    database = str(engine.url.database)
    with _administering(engine) as admin, _new_database(admin, database) as new_name:
        with open_url(engine.url.set(database=new_name)) as restored:
            on_step("restoring")
            try:
                load_archive(programs, path, describe_server(restored))
            except StoreError as error:
                hint = (
                    "the file may be cut short or damaged: use another backup; the database is "
                    "unchanged"
                )
                raise StoreError(f"{path}: cannot be restored ({error}); {hint}") from None
            upgrade(restored)
            with restored.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("ANALYZE"))  # a backup holds no statistics
            on_step("verifying")
            verification = verify_store(restored)
            if not verification.is_whole:
                return verification
            with Session(restored) as session, session.begin():
                add_entry(
                    session,
                    actor=actor,
                    action="store.restore",
                    project=None,
                    subject=path.name,
                )
        on_step("replacing the database")
        engine.dispose()
        _run(admin, "DROP DATABASE {} WITH (FORCE)", _swap(admin, database, new_name))
    return verification


def _list_entries(suitable: Sequence[Programs], path: Path) -> tuple[Programs, str]:
    """List what a backup holds, and choose the programs that can read it: those of a newer version
    may have written it.
    """
    for programs in suitable:
        try:
            return programs, run_program(programs.path("pg_restore"), ["--list", str(path)], None)
        except StoreError as error:
            failure = error
    raise StoreError(f"{path}: not a whole backup ({failure}); use another one")


def _refuse_to_replace(engine: Engine) -> None:
    tables = text(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace "
        "AND relkind = 'r' AND relname NOT IN ('alembic_version', 'schema_compatibility') "
        "ORDER BY 1"
    )
    with engine.connect() as connection:
        for table in connection.scalars(tables).all():
            quoted = engine.dialect.identifier_preparer.quote_identifier(table)
            if connection.scalar(text(f"SELECT EXISTS (SELECT FROM {quoted})")):
                raise StoreError(
                    f"database {engine.url.database!r} is not empty (table {table}); back it up, "
                    f"then use --replace"
                )


@contextmanager
def _administering(engine: Engine) -> Iterator[Engine]:
    """Connect to another database of the server."""
    elsewhere = "postgres"
    if engine.url.database == "postgres":
        elsewhere = "template1"
    with open_url(engine.url.set(database=elsewhere)) as admin:
        yield admin.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def _new_database(admin: Engine, database: str) -> Iterator[str]:
    """Create an empty database, and drop it at the end unless it was renamed."""
    name = _unique_name(database, "restored")
    _run(admin, "CREATE DATABASE {} TEMPLATE template0", name)
    try:
        yield name
    finally:
        with suppress(StoreError):
            _run(admin, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _swap(admin: Engine, database: str, new_name: str) -> str:
    """Replace a database by another; return the new name of the replaced one."""
    before = _unique_name(database, "before")
    with admin.connect() as connection:
        driver = driver_connection(connection)
        try:
            # keep clients away until both are renamed
            _execute(driver, "ALTER DATABASE {} ALLOW_CONNECTIONS false", database)
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname "
                    "IN (:one, :other)"
                ),
                {"one": database, "other": new_name},
            )
            with driver.transaction():
                _execute(driver, "ALTER DATABASE {} RENAME TO {}", database, before)
                _execute(driver, "ALTER DATABASE {} RENAME TO {}", new_name, database)
        except psycopg.Error as error:
            with suppress(psycopg.Error):
                _execute(driver, "ALTER DATABASE {} ALLOW_CONNECTIONS true", database)
            raise StoreError(
                f"database {database!r} cannot be replaced: {error}; it is unchanged"
            ) from None
        _execute(driver, "ALTER DATABASE {} ALLOW_CONNECTIONS true", before)
    return before


def _unique_name(database: str, purpose: str) -> str:
    suffix = f"_{purpose}_{secrets.token_hex(4)}"
    return database.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore") + suffix


def _run(admin: Engine, statement: str, *names: str) -> None:
    try:
        with admin.connect() as connection:
            _execute(driver_connection(connection), statement, *names)
    except psycopg.Error as error:
        raise StoreError(
            f"{statement.replace('{}', names[0])}: {' '.join(str(error).split())}"
        ) from None


def _execute(driver: psycopg.Connection, statement: str, *names: str) -> None:
    # such statements take no parameters
    driver.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
