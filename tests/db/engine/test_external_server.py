"""A database that somebody else runs: over TCP with a password, over TLS, away for a while, backed up and restored."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, text
from sqlalchemy.orm import Session

from roofwatch.db.engine import session
from roofwatch.db.engine.client_programs import Client, Server, describe_server, find_client
from roofwatch.db.engine.migrate import upgrade
from roofwatch.db.engine.session import open_server, open_store, open_url
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.backup import restore_backup, write_backup
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.runs import list_projects
from tests import servers
from tests.builders import PROJECT, make_record
from tests.servers import make_certificate, make_server

# one server for all of them
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


def test_one_engine_reads_again_after_the_server_was_away(server: servers.Server) -> None:
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


def test_who_finds_no_free_connection_is_told_what_to_raise(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_POOL_WAIT_S", 0.01)

    with (
        pytest.raises(StoreError, match=r"all 1 connections of this process are in use.*raise database_connections"),
        open_store(text_of(server.url), connections=1) as engine,
        engine.connect(),
    ):
        engine.connect()


def test_the_password_is_in_no_command_line(server: servers.Server) -> None:
    with open_store(text_of(server.url)) as engine:
        described = describe_server(engine)

    assert described.password == server.url.password
    assert str(server.url.password) not in described.conninfo
    assert "password" not in described.conninfo


@pytest.mark.slow
def test_a_backup_goes_to_another_database_of_the_server_and_is_whole_there(
    server: servers.Server, tmp_path: Path
) -> None:
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


def test_a_role_that_may_not_make_databases_is_told_what_it_lacks(server: servers.Server, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    with open_store(text_of(server.url)) as engine:
        write_backup(engine, path)
        with engine.begin() as connection:
            connection.execute(text("CREATE ROLE modest LOGIN PASSWORD 'x'"))

    with (
        open_server(text_of(server.url.set(username="modest", password="x", database="template1"))) as engine,
        pytest.raises(StoreError, match=r"role 'modest' may not create databases.*ALTER ROLE modest CREATEDB"),
    ):
        restore_backup(engine, path, replaces=False, keeps_old=False, actor="a test")


def test_the_oldest_client_that_is_new_enough_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [Client(Path("/a"), 18, False), Client(Path("/b"), 15, True), Client(Path("/c"), 16, True)]
    monkeypatch.setattr("roofwatch.db.engine.client_programs._clients", lambda _: here)

    assert find_client("pg_dump", Server(15, "", None, is_encrypted=True)).major_version == 15
    assert find_client("pg_dump", Server(16, "", None, is_encrypted=False)).major_version == 16
    with pytest.raises(StoreError, match=r"no pg_dump with TLS of Postgres 17 .*install postgresql-client-17"):
        find_client("pg_dump", Server(17, "", None, is_encrypted=True))


def test_a_wrong_password_is_told_without_showing_it(server: servers.Server) -> None:
    with (
        pytest.raises(StoreError, match="password authentication failed") as caught,
        open_store(text_of(server.url.set(password="hunter2"))),
    ):
        pass

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_the_connection_is_encrypted_where_that_is_asked_for(with_tls: servers.Server, mode: str) -> None:
    with open_store(text_of(with_tls.url, sslmode=mode, sslrootcert=str(with_tls.authority))) as engine:
        assert describe_server(engine).is_encrypted


def test_a_backup_of_an_encrypted_connection_is_encrypted_too(with_tls: servers.Server, tmp_path: Path) -> None:
    with open_store(text_of(with_tls.url, sslmode="prefer")) as engine:
        described = describe_server(engine)
        write_backup(engine, tmp_path / "roofwatch.dump")

    assert "sslmode=require" in described.conninfo
    assert find_client("pg_dump", described).has_tls


def test_an_untrusted_certificate_is_refused(with_tls: servers.Server, tmp_path: Path) -> None:
    stranger = str(make_certificate(tmp_path, authority="another").authority)
    url = text_of(with_tls.url.set(host=servers.HOST), sslmode="verify-full", sslrootcert=stranger)

    with pytest.raises(StoreError, match="certificate verify failed; check sslmode and sslrootcert"), open_server(url):
        pass
