"""The embedded server: shared by processes, never root, recovers from kills, durable."""

import contextlib
import io
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import text

from roofwatch.db.engine import embedded, migrate
from roofwatch.db.engine.session import make_engine, open_server, reading_session
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.artefacts import list_artefacts, store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.records import load_record
from tests.builders import make_artefact, make_record
from tests.db.engine.conftest import answers, ask, kill_server, server_pid, using

FORK = """
import os, sys
from pathlib import Path
from roofwatch.db.engine.embedded import start
server = start(Path(sys.argv[1]))
url = server.url.render_as_string(hide_password=False)
child = os.fork()
if child == 0:
    sys.exit()  # runs the exit handlers
os.waitpid(child, 0)
waiting = os.fork()
if waiting == 0:
    # printed by the child: from here on it no longer holds its copy of the use
    print(url, flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_server_ignores_pg_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGDATA": "/nowhere",
        "PGHOST": "192.0.2.1",
        "PGPORT": "1",
        "PGUSER": "somebody",
        "PGPASSWORD": "wrong",
        "PGDATABASE": "other",
        "PGOPTIONS": "-c no_such_setting=1",
    }.items():
        monkeypatch.setenv(name, value)

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT current_database()") == "postgres"
        assert ask(server.url, "SHOW fsync") == "on"


def test_server_is_durable_for_its_owner_alone(folder: Path) -> None:
    settings = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "unix_socket_directories": ".",
        "max_connections": "50",
        "jit": "off",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
    }

    with embedded.start(folder) as server:
        assert {name: ask(server.url, f"SHOW {name}") for name in settings} == settings
        assert stat.S_IMODE((folder / "data").stat().st_mode) == 0o700


def test_missing_wheel_is_reported_with_both_fixes(
    new_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_WHEEL", "no_such_wheel")

    with pytest.raises(StoreError, match=r"ROOFWATCH_DATABASE_URL .*pip install"):
        embedded.start(new_folder)


def test_stale_pid_file_is_ignored(folder: Path) -> None:
    ours = f"{os.getpid()}\n{folder / 'data'}\n1700000000\n5432\n.\n\n 1 1\nready\n"
    (folder / "data" / "postmaster.pid").write_text(ours)
    (folder / "data" / ".s.PGSQL.5432.lock").write_text(ours)

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_leftovers_of_a_killed_creation_are_removed(new_folder: Path) -> None:
    with using(new_folder) as first:
        while not list(new_folder.glob("data.new.*")):
            assert first.process.poll() is None
        first.kill()
    leftover = new_folder / "data.new.left"
    leftover.mkdir()

    with embedded.start(new_folder) as server:
        assert ask(server.url, "SELECT 1") == 1
    assert not leftover.exists()


@pytest.mark.parametrize("name", ['a\'s $H "q" `i` \\ %4 ü', "-l", "x" * 180])
def test_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    with embedded.start(tmp_path / name) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_failed_start_reports_the_reason(folder: Path) -> None:
    (folder / "data" / "PG_VERSION").write_text("9\n")

    with pytest.raises(
        StoreError, match=f"{folder}: the embedded Postgres does not start: .*version 9"
    ):
        embedded.start(folder)


def test_a_full_disk_is_reported_with_the_way_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = subprocess.CompletedProcess(
        [], 1, "", "PANIC:  could not write to file: No space left on device"
    )
    monkeypatch.setattr(embedded.Postgres, "run", lambda *_, **__: full)

    with pytest.raises(
        StoreError, match="the disk is full; free space there, or choose another folder"
    ):
        embedded.start(folder)


@pytest.mark.slow
def test_an_open_store_restarts_a_killed_server(folder: Path) -> None:
    with open_server(folder=folder) as engine:
        os.kill(server_pid(folder), signal.SIGKILL)
        engine.dispose()  # a connection may outlive the killed process for a moment

        with engine.connect() as connection:
            assert connection.scalar(text("SELECT 1")) == 1


def test_a_shared_server_ends_with_its_last_process(folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        users = [stack.enter_context(using(folder)) for _ in range(3)]
        urls = {user.url() for user in users}
        assert len(urls) == 1
        for user in users:
            assert ask(next(iter(urls)), "SELECT 1") == 1
            assert user.end() == 0
    assert not answers(urls.pop())


def test_server_of_a_killed_process_is_taken_over(folder: Path) -> None:
    with using(folder) as owner:
        url = owner.url()
        owner.kill()
    assert answers(url)

    with embedded.start(folder) as server:
        assert server.url == url
    assert not answers(url)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGQUIT], ids=["SIGKILL", "SIGQUIT"])
def test_killed_server_is_restarted_with_committed_data(folder: Path, how: signal.Signals) -> None:
    with using(folder) as owner:
        ask(owner.url(), "CREATE TABLE kept AS SELECT 7 AS value")
        os.kill(server_pid(folder), how)

        with embedded.start(folder) as server:
            assert owner.end() == 0
            assert ask(server.url, "SELECT value FROM kept") == 7


def test_forked_child_does_not_hold_the_server(folder: Path) -> None:
    with using(folder, program=FORK) as parent:
        url = parent.url()
        assert ask(url, "SELECT 1") == 1

        parent.process.kill()
        parent.process.wait(timeout=120)
        with embedded.start(folder) as server:
            assert server.url == url
        # the child still runs: its input is open
        assert not answers(url)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_server_of_root_runs_as_another_user(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = [path.stat() for path in (closed, *closed.parents)]

    with embedded.start(closed / "store") as server:
        assert ask(server.url, "SELECT 1") == 1
        status = Path(f"/proc/{server_pid(closed / 'store')}/status").read_text().splitlines()

    fields = dict(line.split(":", 1) for line in status)
    assert set(fields["Uid"].split()) == {"65534"}
    dac_override = 1 << 1
    assert int(fields["CapEff"], 16) | dac_override == dac_override
    after = [path.stat() for path in (closed, *closed.parents)]
    assert [(now.st_mode, now.st_uid) for now in after] == [
        (then.st_mode, then.st_uid) for then in before
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_sent", [False, True], ids=["the record", "its file"])
def test_acknowledged_data_survives_a_crash(folder: Path, *, is_sent: bool) -> None:
    record = make_record(artefacts=[make_artefact()])
    with embedded.start(folder) as server:
        engine = make_engine(server.url)
        migrate.upgrade(engine)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            # commits do not wait for the WAL, which is flushed every 10 s
            for setting in ("synchronous_commit = off", "wal_writer_delay = '10s'"):
                connection.execute(text(f"ALTER SYSTEM SET {setting}"))
            connection.execute(text("SELECT pg_reload_conf()"))
        engine.dispose()
        while ask(server.url, "SHOW synchronous_commit") != "off":
            pass

        ingest_record(engine, record)
        if is_sent:
            store_artefact(engine, record.run_id, make_artefact().sha256, io.BytesIO(b"a trace"))
        kill_server(folder)
        engine.dispose()

        with embedded.start(folder) as again:
            engine = make_engine(again.url)
            with reading_session(engine) as session:
                assert load_record(session, record.run_id) == record
                assert [one.is_stored for one in list_artefacts(session, record.run_id)] == [
                    is_sent
                ]
            engine.dispose()
