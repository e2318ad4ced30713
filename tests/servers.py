"""A Postgres that somebody else runs: another real server, over TCP with a password, and with TLS where it can."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import URL

from roofwatch.db.engine.embedded import Postgres, find_postgres

HOST = "127.0.0.1"
_OPTIONS = "-c fsync=off -c max_connections=20 -c unix_socket_directories='' -c ssl={tls}"


@dataclass(frozen=True)
class Certificate:
    """Of an authority of our own and of a server, signed by it."""

    authority: Path
    certificate: Path
    key: Path


class Server:
    """Started and stopped at will; what it holds stays."""

    def __init__(self, folder: Path, postgres: Postgres, certificate: Certificate | None) -> None:
        self._data = folder / "data"
        self._postgres = postgres
        self._certificate = certificate
        self.has_tls = certificate is not None
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
        self._initialise(folder)

    @property
    def authority(self) -> Path:
        """The file of the authority's certificate."""
        assert self._certificate is not None
        return self._certificate.authority

    def present(self, certificate: Certificate) -> None:
        """Show another certificate from the next reload on."""
        for source, name in ((certificate.certificate, "server.crt"), (certificate.key, "server.key")):
            shutil.copy(source, self._data / name)
            (self._data / name).chmod(0o600)
            self._give(self._data / name)

    def admit(self, line: str) -> None:
        """Put a line in front of all others of pg_hba.conf, from the next reload on."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"{line}\n{rules.read_text()}")

    def start(self) -> None:
        options = _OPTIONS.format(tls="on" if self.has_tls else "off")
        started = self._postgres.run(
            *("pg_ctl", "start", "--wait", "--log=server.log", f"--options=-h {HOST} -p {self._port} {options}"),
            data=self._data,
        )
        assert started.returncode == 0, started.stderr + (self._data / "server.log").read_text()

    def stop(self) -> None:
        self._postgres.run("pg_ctl", "stop", "--mode=fast", "--wait", data=self._data)

    def _initialise(self, folder: Path) -> None:
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
        if self._certificate is not None:
            self.present(self._certificate)

    def _give(self, path: Path) -> None:
        if self._postgres.owner is not None:
            os.chown(path, *self._postgres.owner)


def make_server(folder: Path) -> Server:
    """A server that is not started; with TLS if a Postgres on this machine can do that, which the wheel's cannot."""
    folder.mkdir()
    postgres = find_postgres(folder / "data")
    for programs in _installations():
        if _has_tls(programs):
            able = replace(postgres, programs=programs)
            return Server(folder, able, make_certificate(folder))
    return Server(folder, postgres, None)


def make_certificate(folder: Path, *, authority: str = "an authority", days: int = 2) -> Certificate:
    """Made anew for this machine, good from two days ago and for some days more."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    signer = _certificate(authority, authority_key, authority, authority_key, days=days)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(HOST))])
    certificate = _certificate("localhost", server_key, authority, authority_key, days=days, names=names)
    files = Certificate(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    files.authority.write_bytes(signer.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    days: int,
    names: x509.SubjectAlternativeName | None = None,
) -> x509.Certificate:
    begin = datetime.now(UTC) - timedelta(days=2)
    building = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=2 + days))
        .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
    )
    if names is not None:
        building = building.add_extension(names, critical=False)
    return building.sign(issuer_key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _installations() -> Iterator[Path]:
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("pg_ctl")
    if found is not None:
        yield Path(found).resolve().parent


def _has_tls(programs: Path) -> bool:
    if not (programs / "initdb").exists():
        return False
    said = subprocess.run(["ldd", programs / "postgres"], capture_output=True, text=True, check=False).stdout
    return "libssl" in said
