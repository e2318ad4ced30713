"""The commands of docker-compose.yml, run against a Postgres whose password needs escaping."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL, make_url

from roofwatch.db.engine.migrate import current_revision, head_revision
from roofwatch.db.engine.session import open_server
from tests.deploy.compose import ROOT, read_services

SERVICES = read_services()
IN_CONTAINER = re.compile(r"http://127\.0\.0\.1:\d+")
READER = SERVICES["reader"]["command"][2]
WRITER = SERVICES["writer"]["command"][2]
PASSWORD = """p@ss:/%w#rd ?&='"\\$x"""
READER_PASSWORD = PASSWORD[::-1]
SERVICE_PASSWORD = PASSWORD[2:]


@pytest.fixture
def owned_database(empty_database_url: URL) -> Iterator[URL]:
    """A database whose owner has that password, by a URL that is docker-compose.yml's but for the
    names in it.
    """
    # roles are the whole server's, which other tests share
    name = f"owner_{uuid.uuid4().hex}"
    owner = sql.Identifier(name)
    given = make_url(SERVICES["migrate"]["environment"]["ROOFWATCH_DATABASE_URL"]).set(
        username=name
    )
    superuser = empty_database_url.set(drivername="postgresql").render_as_string(
        hide_password=False
    )
    with psycopg.connect(superuser, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE ROLE {} LOGIN CREATEROLE PASSWORD {}").format(owner, PASSWORD)
        )
        try:
            database = sql.Identifier(str(empty_database_url.database))
            admin.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, owner))
            yield given.set(
                host=None, port=None, database=empty_database_url.database
            ).update_query_dict(dict(empty_database_url.query))
        finally:
            admin.execute(sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(owner))
            for role in (role_of(READER, name), role_of(WRITER, name), name):
                if (
                    admin.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
                    is not None
                ):
                    admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
                    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def role_of(service_role: str, owner: str) -> str:
    """What a role of docker-compose.yml is called in this test."""
    return f"{service_role}_{owner}"


def environment_of(service: dict[str, Any], database: URL, home: Path) -> dict[str, str]:
    """What the service's process sees, with the database of this test in place of the one of the
    network.
    """
    given: dict[str, str] = dict(service["environment"])
    passwords = {
        "postgres_password": PASSWORD,
        "reader_password": READER_PASSWORD,
        "service_password": SERVICE_PASSWORD,
    }
    for name, password in passwords.items():
        file = home / name
        file.write_text(f"{password}\n")
        given = {
            key: text.replace(f"/run/secrets/{name}", str(file)) for key, text in given.items()
        }
    role = make_url(given["ROOFWATCH_DATABASE_URL"]).username
    if role in {READER, WRITER}:
        database = database.set(username=role_of(str(role), str(database.username)))
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        **given,
        "ROOFWATCH_DATABASE_URL": database.render_as_string(hide_password=False),
    }


def run(service: str, database: URL, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_of(SERVICES[service], str(database.username)),
        env=environment_of(SERVICES[service], database, home),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


def command_of(service: dict[str, Any], owner: str) -> list[str]:
    arguments = [
        role_of(argument, owner) if argument in {READER, WRITER} else argument
        for argument in service["command"]
    ]
    return [sys.executable, "-c", "from roofwatch.cli.main import main; main()", *arguments]


def test_the_migration_accepts_any_password(
    owned_database: URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("migrate", owned_database, tmp_path)

    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with open_server(owned_database.render_as_string()) as engine:
        assert current_revision(engine) == head_revision()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "healthy"), [("dashboard", b"ok"), ("api", b'{"status":"ok"}')])
def test_the_health_check_passes_while_the_service_serves_and_fails_once_it_does_not(
    owned_database: URL, tmp_path: Path, name: str, healthy: bytes
) -> None:
    service = SERVICES[name]
    environment = environment_of(service, owned_database, tmp_path)
    for before in ("migrate", "reader", "writer"):
        run(before, owned_database, tmp_path).check_returncode()
    command = command_of(service, str(owned_database.username))
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as free:  # instead of the one that the container has to itself
        command[command.index("--port") + 1] = str(free.getsockname()[1])

    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = next(line for line in process.stdout if "http://" in line).split()[1]
            address = address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104  the command listens everywhere
            check: list[str] = (
                service["healthcheck"]["test"] if "healthcheck" in service else image_health_check()
            )
            while_serving, answer = health_check(check, address), health_answer(check, address)
        finally:
            process.terminate()

    assert while_serving == 0
    assert answer == healthy, "any other path of the dashboard gets a page too"
    assert health_check(check, address) != 0


def image_health_check() -> list[str]:
    """Of the Dockerfile, which is the API's."""
    command = re.search(r'CMD (\["python".*)', (ROOT / "Dockerfile").read_text())
    assert command is not None
    return ["CMD", *json.loads(command[1])]


def health_check(check: list[str], address: str) -> int:
    kind, program, *arguments = check
    assert (kind, program) == ("CMD", "python")
    arguments = [IN_CONTAINER.sub(address, argument) for argument in arguments]
    return subprocess.run([sys.executable, *arguments], capture_output=True, check=False).returncode


def health_answer(check: list[str], address: str) -> bytes:
    path = re.search(rf"{IN_CONTAINER.pattern}(/[^\"']*)", check[-1])
    assert path is not None
    with urllib.request.urlopen(address + path[1], timeout=30) as response:  # noqa: S310  our own http address
        body: bytes = response.read()
    return body
