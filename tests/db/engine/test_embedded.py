"""The embedded server itself: what it keeps, where it listens, and who gets in."""

import socket
import stat
from pathlib import Path

import psycopg
import pytest

from roofwatch.db.engine import embedded, ports, postgres
from roofwatch.db.engine.ports import free_port, running_port
from roofwatch.db.errors import StoreError
from tests.db.engine.embedded_server import answers, ask, server_pid


def test_a_server_starts_answers_and_is_stopped_by_its_last_user(new_folder: Path) -> None:
    with embedded.start(new_folder) as server:
        assert ask(server.url, "SELECT 40 + 2") == 42

    assert not answers(server.url)
    assert not (new_folder / "data" / "postmaster.pid").exists()


def test_what_was_written_is_there_at_the_next_start(folder: Path) -> None:
    with embedded.start(folder) as server:
        ask(server.url, "CREATE TABLE kept AS SELECT 7 AS value")

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT value FROM kept") == 7


def test_the_server_is_durable_and_listens_on_the_loopback_alone(folder: Path) -> None:
    settings = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "50",
        "jit": "off",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
    }

    with embedded.start(folder) as server:
        assert {name: ask(server.url, f"SHOW {name}") for name in settings} == settings


def test_the_password_is_needed_and_not_shown(new_folder: Path) -> None:
    with embedded.start(new_folder) as server:
        password = (new_folder / "password").read_text()
        assert password not in f"{server.url} {server.url!r}"
        assert stat.S_IMODE((new_folder / "password").stat().st_mode) == 0o600
        assert stat.S_IMODE((new_folder / "data").stat().st_mode) == 0o700
        for wrong in (None, "", "guess"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(host=server.url.host, port=server.url.port, user="postgres", password=wrong)


def test_a_port_is_none_that_the_system_gives_to_whoever_asks_for_any() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 10_000 <= free_port() < first


def test_a_port_is_found_where_all_are_given_to_whoever_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_GIVEN_PORTS", tmp_path / "range")
    assert free_port() > 0


def test_a_port_that_is_taken_meanwhile_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free, of_the_last_one = ([taken.getsockname()[1]] for _ in range(2))
        monkeypatch.setattr(embedded, "free_port", lambda: free.pop() if free else free_port())
        monkeypatch.setattr(
            embedded,
            "running_port",
            lambda folder: of_the_last_one.pop() if of_the_last_one else running_port(folder),
        )

        with embedded.start(folder) as server:
            assert ask(server.url, "SELECT 1") == 1
            assert server.url.port != taken.getsockname()[1]
            assert (free, of_the_last_one) == ([], [])


def test_a_users_settings_for_another_postgres_are_not_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGDATA": "/nowhere",
        "PGHOST": "192.0.2.1",
        "PGHOSTADDR": "192.0.2.1",
        "PGPORT": "1",
        "PGUSER": "somebody",
        "PGPASSWORD": "wrong",
        "PGDATABASE": "other",
        "PGSSLMODE": "require",
        "PGOPTIONS": "-c no_such_setting=1",
    }.items():
        monkeypatch.setenv(name, value)

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT current_database()") == "postgres"


def test_the_server_holds_no_lock_but_its_own(folder: Path) -> None:
    with embedded.start(folder):
        opened = {str(entry.readlink()) for entry in Path(f"/proc/{server_pid(folder)}/fd").iterdir()}

    in_folder = {Path(path).name for path in opened if Path(path).parent == folder}
    assert in_folder == {"alive"}


def test_a_missing_wheel_is_named_with_both_ways_out(new_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_WHEEL", "no_such_wheel")

    with pytest.raises(StoreError, match=r"ROOFWATCH_DATABASE_URL .*pip install"):
        embedded.start(new_folder)
