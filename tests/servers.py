"""An external Postgres server: TCP with a password, and TLS if a Postgres on this machine supports it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sqlalchemy import URL

from roofwatch.db.engine.embedded import Postgres, find_postgres

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
            *("initdb", f"--pgdata={self._data}", "--username=operator", f"--pwfile={password}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
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
            *("pg_ctl", "start", "--wait", "--log=server.log", f"--options=-h {HOST} -p {self._port} {options}"),
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
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName=DNS:localhost,IP:{HOST}"),
            *("-keyout", str(key), "-out", str(certificate)),
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
    linked = subprocess.run(["ldd", programs / "postgres"], capture_output=True, text=True, check=False).stdout
    return "libssl" in linked
