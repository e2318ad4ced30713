"""Roles that only read, for dashboards and SQL tools. The role of a dashboard with sign-in may also
write triage.
"""

from psycopg import sql
from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.engine.session import driver_connection
from roofwatch.db.errors import StoreError

SECRET_COLUMNS = {"token": {"secret_sha256"}, "queued_content": {"content"}}
"""Columns that readers cannot see, by table."""

VIEWS = "series_point, regression_point"
"""The views for other tools."""

_DECISIONS = (
    "GRANT UPDATE ON triage TO {}",
    "GRANT INSERT ON audit_entry TO {}",
    # a decision may be to measure again
    "GRANT INSERT, UPDATE ON agenda_job TO {}",
    # locking a row needs the right to update some column
    "GRANT UPDATE (id) ON project TO {}",
)
_SERVICE = (
    "GRANT USAGE ON SCHEMA public TO {}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}",
    "REVOKE UPDATE, DELETE ON audit_entry FROM {}",
    "REVOKE INSERT, UPDATE, DELETE ON alembic_version, schema_compatibility, project_access "
    "FROM {}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public "
    "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {}",
)
_IS_SUPERUSER = text("SELECT rolsuper FROM pg_roles WHERE rolname = :role")
# Postgres cuts longer names without an error
_NAME_BYTES = 63
_COLUMNS = text(
    "SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'public' AND "
    "table_name = :table"
)


def grant_reader(
    engine: Engine,
    role: str,
    *,
    password: str | None,
    actor: str,
    writes_decisions: bool = False,
    views_only: bool = False,
) -> bool:
    """Let a role read all tables, also those of later versions, except `SECRET_COLUMNS`; or with
    `views_only` nothing but the views, which hide restricted projects. Return whether it was
    created.

    Without a password a role keeps its own. Without `writes_decisions` it loses the right to write
    triage.

    Raises:
        StoreError: a missing role without a password, or a role that may write tables.
    """
    if not role or "\0" in role or len(role.encode()) > _NAME_BYTES:
        raise StoreError(f"role {role!r}: a name has 1 to {_NAME_BYTES} bytes")
    with Session(engine) as session, session.begin():
        connection = session.connection()
        was_made = _ensure_role(connection, role, password)
        _refuse_a_writer(connection, role)
        _grant(connection, role, views_only=views_only)
        rights = "reads views" if views_only else "reads"
        if writes_decisions:
            rights = "reads, writes decisions"
            for grant in _DECISIONS:
                _execute(connection, grant, sql.Identifier(role))
        reads_only = sql.SQL("off" if writes_decisions else "on")
        statement = "ALTER ROLE {} SET default_transaction_read_only = {}"
        _execute(connection, statement, sql.Identifier(role), reads_only)
        add_entry(
            session,
            actor=actor,
            action="reader.grant",
            project=None,
            subject=role,
            after=rights,
        )
    return was_made


def grant_service(engine: Engine, role: str, *, password: str | None, actor: str) -> bool:
    """Let a role do what the API and the workers do: read and write rows of all tables, also those
    of later versions, but change no schema; return whether it was created.

    The audit trail can only be added to, and what migrations write only read.

    Raises:
        StoreError: a missing role without a password, or a superuser.
    """
    with Session(engine) as session, session.begin():
        connection = session.connection()
        was_made = _ensure_role(connection, role, password)
        if connection.scalar(_IS_SUPERUSER, {"role": role}):
            raise StoreError(f"role {role!r}: it may do everything already; choose another")
        name = sql.Identifier(role)
        database = sql.Identifier(str(connection.engine.url.database))
        _execute(connection, "GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}", database, name)
        for grant in _SERVICE:
            _execute(connection, grant, name)
        add_entry(
            session,
            actor=actor,
            action="service.grant",
            project=None,
            subject=role,
            after="writes",
        )
    return was_made


def _ensure_role(connection: Connection, role: str, password: str | None) -> bool:
    is_there = (
        connection.scalar(text("SELECT true FROM pg_roles WHERE rolname = :role"), {"role": role})
        is not None
    )
    if password is None:
        if not is_there:
            raise StoreError(f"role {role!r}: does not exist; give a password to create it")
        return False
    verb = "ALTER" if is_there else "CREATE"
    # hashed here, so the password is in no statement and no log of the server
    verifier = driver_connection(connection).pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    )
    _execute(
        connection,
        f"{verb} ROLE {{}} LOGIN PASSWORD {{}}",
        sql.Identifier(role),
        sql.Literal(verifier.decode()),
    )
    return not is_there


def _refuse_a_writer(connection: Connection, role: str) -> None:
    query = text(
        "SELECT rolsuper OR pg_has_role(:role, 'pg_write_all_data', 'member') OR EXISTS ("
        "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', "
        "'p') "
        "AND pg_has_role(:role, relowner, 'member')) FROM pg_roles WHERE rolname = :role"
    )
    if connection.scalar(query, {"role": role}):
        raise StoreError(f"role {role!r}: it may write tables already; choose another")


def _grant(connection: Connection, role: str, *, views_only: bool) -> None:
    name = sql.Identifier(role)
    schema = sql.SQL("SCHEMA public")
    database = sql.Identifier(str(connection.engine.url.database))
    _execute(connection, "GRANT CONNECT ON DATABASE {} TO {}", database, name)
    _execute(connection, "REVOKE ALL ON ALL TABLES IN {} FROM {}", schema, name)
    _execute(connection, "GRANT USAGE ON {} TO {}", schema, name)
    if views_only:
        # a role that could read tables before had a right to later ones too
        later = "ALTER DEFAULT PRIVILEGES IN {} REVOKE SELECT ON TABLES FROM {}"
        _execute(connection, later, schema, name)
        _execute(connection, f"GRANT SELECT ON {VIEWS} TO {{}}", name)
        return
    _execute(connection, "GRANT SELECT ON ALL TABLES IN {} TO {}", schema, name)
    for table, hidden in SECRET_COLUMNS.items():
        columns = connection.scalars(_COLUMNS, {"table": table})
        readable_columns = [sql.Identifier(column) for column in columns if column not in hidden]
        _execute(connection, "REVOKE SELECT ON {} FROM {}", sql.Identifier(table), name)
        _execute(
            connection,
            "GRANT SELECT ({}) ON {} TO {}",
            sql.SQL(", ").join(readable_columns),
            sql.Identifier(table),
            name,
        )
    _execute(
        connection,
        "ALTER DEFAULT PRIVILEGES IN {} GRANT SELECT ON TABLES TO {}",
        schema,
        name,
    )


def _execute(connection: Connection, statement: str, *parts: sql.Composable) -> None:
    # such statements take no parameters
    connection.exec_driver_sql(
        sql.SQL(statement).format(*parts).as_string(driver_connection(connection))
    )
