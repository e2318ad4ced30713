"""An external Postgres server: TCP, TLS, restarts, backup and restore."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import URL, text
from sqlalchemy.orm import Session

from roofwatch.db.engine import session
from roofwatch.db.engine.embedded import Postgres, find_postgres
from roofwatch.db.engine.migrate import upgrade
from roofwatch.db.engine.session import open_server, open_store, open_url
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.backup import restore_backup, write_backup
from roofwatch.db.maintenance.pg_programs import describe_server
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.project import list_projects
from tests.builders import PROJECT, make_record
from tests.databases import text_of

HOST = "127.0.0.1"
_OPTIONS = "-c fsync=off -c max_connections=20 -c unix_socket_directories='' -c ssl={tls}"


class Server:
    """Can be stopped and started again; its data stays."""

    def __init__(self, folder: Path, postgres: Postgres, *, has_tls: bool) -> None:
        self._data = folder / "data"
        self._postgres = postgres
        self.has_tls = has_tls
        with socket.socket() as free:
            free.bind((HOST, 0))
            self._port = free.getsockname()[1]
        self.url = URL.create(
            "postgresql+psycopg",
            username="operator",
            password=secrets.token_urlsafe(8) + "'\\ %/@:",
            host=HOST,
            port=self._port,
            database="postgres",
            query={"connect_timeout": "20"},
        )
        password = folder / "password"
        password.write_text(str(self.url.password))
        self._data.mkdir()
        self._give(password)
        self._give(self._data)
        made = self._postgres.run(
            "initdb",
            f"--pgdata={self._data}",
            "--username=operator",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
        assert made.returncode == 0, made.stderr
        if has_tls:
            make_certificate(self.certificate, self._data / "server.key")
            self._give(self.certificate)
            self._give(self._data / "server.key")

    @property
    def certificate(self) -> Path:
        """Signed by itself, so clients trust it as an authority."""
        return self._data / "server.crt"

    def start(self) -> None:
        options = _OPTIONS.format(tls="on" if self.has_tls else "off")
        started = self._postgres.run(
            "pg_ctl",
            "start",
            "--wait",
            "--log=server.log",
            f"--options=-h {HOST} -p {self._port} {options}",
            data=self._data,
        )
        assert started.returncode == 0, started.stderr + (self._data / "server.log").read_text()

    def stop(self) -> None:
        self._postgres.run("pg_ctl", "stop", "--mode=fast", "--wait", data=self._data)

    def _give(self, path: Path) -> None:
        if self._postgres.owner is not None:
            os.chown(path, *self._postgres.owner)


def make_server(folder: Path) -> Server:
    """Make a server that is not started; the wheel's Postgres has no TLS."""
    folder.mkdir()
    postgres = find_postgres(folder / "data")
    for programs in _installations():
        if _has_tls(programs):
            return Server(folder, replace(postgres, programs=programs), has_tls=True)
    return Server(folder, postgres, has_tls=False)


def make_certificate(certificate: Path, key: Path) -> None:
    """Make a self-signed certificate of this machine, valid for two days."""
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            f"subjectAltName=DNS:localhost,IP:{HOST}",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)


def _installations() -> Iterator[Path]:
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("pg_ctl")
    if found is not None:
        yield Path(found).resolve().parent


def _has_tls(programs: Path) -> bool:
    if not (programs / "initdb").exists():
        return False
    linked = subprocess.run(
        ["ldd", programs / "postgres"], capture_output=True, text=True, check=False
    ).stdout
    return "libssl" in linked


# all tests share one server
pytestmark = pytest.mark.xdist_group("external_server")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = make_server(tmp_path_factory.mktemp("external") / "server")
    server.start()
    with open_server(text_of(server.url)) as engine:
        upgrade(engine)
    yield server
    server.stop()


@pytest.fixture
def with_tls(server: Server) -> Server:
    if not server.has_tls:
        pytest.skip("no Postgres with TLS on this machine: install postgresql")
    return server


def test_engine_reconnects_after_server_restart(server: Server) -> None:
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


def test_exhausted_connection_pool_is_reported(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_POOL_WAIT_S", 0.01)

    with (
        pytest.raises(
            StoreError,
            match=r"all 1 connections of this process are in use.*raise database_connections",
        ),
        open_store(text_of(server.url), connections=1) as engine,
        engine.connect(),
    ):
        engine.connect()


def test_password_is_not_on_command_lines(server: Server) -> None:
    with open_store(text_of(server.url)) as engine:
        described = describe_server(engine)

    assert described.password == server.url.password
    assert str(server.url.password) not in described.conninfo
    assert "password" not in described.conninfo


@pytest.mark.slow
def test_backup_restores_into_another_database(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "roofwatch.dump"
    record = make_record()
    with open_store(text_of(server.url)) as engine:
        ingest_record(engine, record)
        write_backup(engine, path)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("CREATE DATABASE elsewhere"))
        with open_url(engine.url.set(database="elsewhere")) as elsewhere:
            restored = restore_backup(elsewhere, path, replaces=False, actor="a test")
            with Session(elsewhere) as reading:
                projects = list_projects(reading)

            assert restored.is_whole
            assert verify_store(elsewhere).proven_count == 1
            assert projects == [PROJECT]


def test_authentication_error_hides_the_password(server: Server) -> None:
    with (
        pytest.raises(StoreError, match="password authentication failed") as caught,
        open_store(text_of(server.url.set(password="hunter2"))),
    ):
        pass

    assert "hunter2" not in str(caught.value)


def test_connection_is_encrypted(with_tls: Server) -> None:
    with open_store(
        text_of(with_tls.url, sslmode="verify-full", sslrootcert=str(with_tls.certificate))
    ) as engine:
        assert describe_server(engine).is_encrypted


def test_a_backup_over_tls_requires_tls(with_tls: Server, tmp_path: Path) -> None:
    with open_store(text_of(with_tls.url, sslmode="prefer")) as engine:
        described = describe_server(engine)
        write_backup(engine, tmp_path / "roofwatch.dump")

    assert "sslmode=require" in described.conninfo


def test_untrusted_certificate_is_refused(with_tls: Server, tmp_path: Path) -> None:
    stranger = tmp_path / "another.crt"
    make_certificate(stranger, tmp_path / "another.key")
    url = text_of(with_tls.url.set(host=HOST), sslmode="verify-full", sslrootcert=str(stranger))

    with pytest.raises(StoreError, match="certificate verify failed"), open_server(url):
        pass
