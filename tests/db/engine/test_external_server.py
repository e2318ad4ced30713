"""An external Postgres server: TCP, TLS, restarts, backup and restore."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, text
from sqlalchemy.orm import Session

from roofwatch.db.engine import session
from roofwatch.db.engine.migrate import upgrade
from roofwatch.db.engine.session import open_server, open_store, open_url
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.backup import describe_server, restore_backup, write_backup
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.runs import list_projects
from tests import servers
from tests.builders import PROJECT, make_record
from tests.servers import make_certificate, make_server

# all tests share one server
pytestmark = pytest.mark.xdist_group("external_server")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    server = make_server(tmp_path_factory.mktemp("external") / "server")
    server.start()
    with open_server(text_of(server.url)) as engine:
        upgrade(engine)
    yield server
    server.stop()


@pytest.fixture
def with_tls(server: servers.Server) -> servers.Server:
    if not server.has_tls:
        pytest.skip("no Postgres with TLS on this machine: install postgresql")
    return server


def text_of(url: URL, **query: str) -> str:
    return url.update_query_dict(query).render_as_string(hide_password=False)


def test_engine_reconnects_after_server_restart(server: servers.Server) -> None:
    with open_store(text_of(server.url)) as engine:
        with Session(engine) as reading:
            before = list_projects(reading)
        server.stop()
        try:
            with pytest.raises(Exception, match="refused"), Session(engine) as reading:
                list_projects(reading)
        finally:
            server.start()
        with Session(engine) as reading:
            assert list_projects(reading) == before


def test_exhausted_connection_pool_is_reported(server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_POOL_WAIT_S", 0.01)

    with (
        pytest.raises(StoreError, match=r"all 1 connections of this process are in use.*raise database_connections"),
        open_store(text_of(server.url), connections=1) as engine,
        engine.connect(),
    ):
        engine.connect()


def test_password_is_not_on_command_lines(server: servers.Server) -> None:
    with open_store(text_of(server.url)) as engine:
        described = describe_server(engine)

    assert described.password == server.url.password
    assert str(server.url.password) not in described.conninfo
    assert "password" not in described.conninfo


@pytest.mark.slow
def test_backup_restores_into_another_database(server: servers.Server, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    record = make_record()
    with open_store(text_of(server.url)) as engine:
        ingest_record(engine, record)
        write_backup(engine, path)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("CREATE DATABASE elsewhere"))
        with open_url(engine.url.set(database="elsewhere")) as elsewhere:
            restored = restore_backup(elsewhere, path, replaces=False, keeps_old=False, actor="a test")
            with Session(elsewhere) as reading:
                projects = list_projects(reading)

            assert restored.verification.is_whole
            assert verify_store(elsewhere).proven_count == 1
            assert projects == [PROJECT]


def test_authentication_error_hides_the_password(server: servers.Server) -> None:
    with (
        pytest.raises(StoreError, match="password authentication failed") as caught,
        open_store(text_of(server.url.set(password="hunter2"))),
    ):
        pass

    assert "hunter2" not in str(caught.value)


def test_connection_is_encrypted(with_tls: servers.Server) -> None:
    with open_store(text_of(with_tls.url, sslmode="verify-full", sslrootcert=str(with_tls.certificate))) as engine:
        assert describe_server(engine).is_encrypted


def test_backup_over_tls_requires_tls(with_tls: servers.Server, tmp_path: Path) -> None:
    with open_store(text_of(with_tls.url, sslmode="prefer")) as engine:
        described = describe_server(engine)
        write_backup(engine, tmp_path / "roofwatch.dump")

    assert "sslmode=require" in described.conninfo


def test_untrusted_certificate_is_refused(with_tls: servers.Server, tmp_path: Path) -> None:
    stranger = tmp_path / "another.crt"
    make_certificate(stranger, tmp_path / "another.key")
    url = text_of(with_tls.url.set(host=servers.HOST), sslmode="verify-full", sslrootcert=str(stranger))

    with pytest.raises(StoreError, match="certificate verify failed"), open_server(url):
        pass
