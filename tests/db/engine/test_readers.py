"""Read-only roles: all columns except secrets, no writes."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import URL, Engine, create_engine, inspect, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from roofwatch.api.worker import analyse_waiting
from roofwatch.db.access import list_entries
from roofwatch.db.engine.readers import SECRET_COLUMNS, grant_reader, grant_service
from roofwatch.db.engine.session import open_store
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.service_state import probe_disk
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions, request_analysis
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.triage import TriageState
from tests.api.conftest import headers_of, make_app, new_token
from tests.builders import PROJECT, make_record, make_regression
from tests.databases import ingest_all, reading_role, set_triage, text_of


@pytest.fixture
def reader_url(store: Engine) -> Iterator[URL]:
    with reading_role(store) as url:
        yield url


def test_reader_reads_all_columns_except_secrets(store: Engine, reader_url: URL) -> None:
    secret = {(table, column) for table, columns in SECRET_COLUMNS.items() for column in columns}

    with open_store(text_of(reader_url)) as engine:
        for table in inspect(store).get_table_names():
            for column in inspect(store).get_columns(table):
                with engine.connect() as connection:
                    query = text(f'SELECT "{column["name"]}" FROM "{table}"')
                    if (table, column["name"]) in secret:
                        with pytest.raises(Exception, match="permission denied"):
                            connection.execute(query)
                    else:
                        connection.execute(query)


def test_reader_cannot_write(reader_url: URL) -> None:
    engine = create_engine(reader_url)
    for statement in (
        "DELETE FROM run",
        "UPDATE project SET name = 'mine'",
        "INSERT INTO project (name) VALUES ('mine')",
        "TRUNCATE run CASCADE",
        "DROP TABLE run",
        "CREATE TABLE public.mine (name text)",
    ):
        with engine.connect() as connection:
            connection.execute(text("SET TRANSACTION READ WRITE"))
            with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
                connection.execute(text(statement))
    engine.dispose()


def test_role_with_triage_rights_writes_only_triage(store: Engine) -> None:
    ingest_all(store, *map(make_record, range(2)))
    replace_regressions(store, PROJECT, [make_regression(1)])

    with reading_role(store, writes_decisions=True) as url, open_store(text_of(url)) as engine:
        decision = {"person": "somebody", "reason": "it pays", "actor": "a test"}
        set_triage(
            engine, PROJECT, regression_id(make_regression(1)), TriageState.EXPECTED, **decision
        )
        for statement in (
            "DELETE FROM triage",
            "DELETE FROM audit_entry",
            "UPDATE audit_entry SET actor = 'somebody else'",
            "UPDATE project SET name = 'mine'",
            "INSERT INTO project (name) VALUES ('mine')",
            "UPDATE run SET branch = 'main'",
            "SELECT secret_sha256 FROM token",
        ):
            with (
                engine.connect() as connection,
                pytest.raises(ProgrammingError, match="permission denied"),
            ):
                connection.execute(text(statement))

    with Session(store) as session:
        assert [one.triage.state for one in list_triaged(session, PROJECT)] == [
            TriageState.EXPECTED
        ]
        assert list_entries(session, PROJECT)[0].action == "regression.triage"


def test_reader_reads_tables_created_later(store: Engine, reader_url: URL) -> None:
    with store.begin() as connection:
        connection.execute(text("CREATE TABLE later (name text)"))

    with open_store(text_of(reader_url)) as engine, engine.connect() as connection:
        assert connection.execute(text("SELECT * FROM later")).all() == []


def test_password_is_not_sent_to_the_server(store: Engine, reader_url: URL) -> None:
    driver = psycopg.connect(text_of(store.url.set(drivername="postgresql")))
    with driver, driver.cursor() as cursor:
        stored = cursor.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname = %s", [reader_url.username]
        ).fetchone()

    assert stored is not None
    assert stored[0].startswith("SCRAM-SHA-256$")
    with store.connect() as connection:
        assert (
            connection.scalar(
                text("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%p@ss%word%'")
            )
            == 1
        )


def test_role_with_write_access_is_refused(store: Engine) -> None:
    with pytest.raises(StoreError, match="it may write tables already"):
        grant_reader(store, "postgres", password=None, actor="a test")

    with Session(store) as session:
        assert list_entries(session, PROJECT) == []


@pytest.fixture
def service_url(store: Engine) -> Iterator[URL]:
    """The address of the database for a role that serves."""
    role, password = f"service_{uuid.uuid4().hex[:12]}", "a password"
    assert grant_service(store, role, password=password, actor="a test")
    yield store.url.set(username=role, password=password)
    with store.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}")
        connection.exec_driver_sql(f"DROP ROLE {role}")


def test_service_role_serves(service_url: URL) -> None:
    with open_store(text_of(service_url)) as engine:
        record = make_record()
        ingest_record(engine, record)
        request_analysis(engine, PROJECT)
        assert analyse_waiting(engine) == [PROJECT]
        with TestClient(make_app(engine), headers=headers_of(new_token(engine))) as client:
            assert client.get("/readyz").status_code == 200
            assert client.get("/metrics").status_code == 200
        with Session(engine) as session, session.begin():
            probe_disk(session)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE run",
        "CREATE TABLE public.mine (name text)",
        "ALTER TABLE run ADD COLUMN mine text",
        "UPDATE alembic_version SET version_num = '1'",
        "UPDATE audit_entry SET actor = 'another'",
        "DELETE FROM audit_entry",
    ],
)
def test_service_role_is_refused_what_rewrites_the_store(service_url: URL, statement: str) -> None:
    engine = create_engine(service_url)
    with (
        engine.connect() as connection,
        pytest.raises(ProgrammingError, match=r"permission denied|must be owner"),
    ):
        connection.execute(text(statement))
    engine.dispose()


def test_service_role_is_no_superuser(store: Engine) -> None:
    with pytest.raises(StoreError, match="it may do everything already; choose another"):
        grant_service(store, "postgres", password=None, actor="a test")
