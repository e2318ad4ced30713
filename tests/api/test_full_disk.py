"""The database's disk is full: everybody hears it, and what could not be stored then comes later."""

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy.orm import Session

from roofwatch.collector.outbox.spool import Backoff, Spool
from roofwatch.collector.outbox.upload import HttpSender
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.auth.values import Scope
from roofwatch.db.engine.migrate import upgrade
from roofwatch.db.engine.session import open_server, open_store
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.runs import list_runs
from tests.api.serving import served, token_of_today
from tests.builders import PROJECT, make_blocks, make_measurement, make_record
from tests.servers import Server, make_server

DISK_BYTES = 192 * 2**20
LOG_MB = 64
"""What Postgres keeps of its log if it can; it takes some more while much is written."""
ONCE = Backoff(attempts=1)


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A small disk."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may mount no small disk: run as root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("disk")) as folder:
        yield folder


@pytest.fixture(scope="module")
def log_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("log")) as folder:
        yield folder


@pytest.fixture(scope="module")
def server(disk: Path, log_disk: Path) -> Iterator[Server]:
    """Postgres with its log on one of them and all else on the other."""
    server = make_server(disk / "server")
    log, settings = disk / "server/data/pg_wal", disk / "server/data/postgresql.auto.conf"
    subprocess.run(["cp", "--archive", str(log), str(log_disk)], check=True)
    shutil.rmtree(log)
    log.symlink_to(log_disk / "pg_wal")
    with settings.open("a") as file:
        file.write(f"max_wal_size = {LOG_MB}MB\nmin_wal_size = {LOG_MB}MB\n")
    server.start()
    with open_server(url_of(server)) as engine:
        upgrade(engine)
    yield server
    server.stop()


def url_of(server: Server) -> str:
    return server.url.render_as_string(hide_password=False)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """To the last byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for piece in (2**20, 2**12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(piece))
    yield
    ballast.unlink()


def numbered(number: int) -> RunRecord:
    """Too much for the room that is left in the pages of the tables."""
    return make_record(number, measurements=[make_measurement(blocks=make_blocks(1_000.0 + n for n in range(2_000)))])


def asked(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url) as response:  # noqa: S310  our own address
            return response.status, orjson.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, orjson.loads(error.read())


def test_what_finds_no_room_stays_in_the_spool_and_arrives_once_there_is_some(
    server: Server, disk: Path, tmp_path: Path
) -> None:
    first, second = numbered(1), numbered(2)
    spool = Spool(tmp_path / "spool")
    with open_store(url_of(server)) as store, served(store) as (host, port):
        url = f"http://{host}:{port}"
        sender = HttpSender(url, token_of_today(store, Scope.INGEST))
        spool.submit(first)
        spool.deliver(sender, backoff=ONCE)

        spool.submit(second)
        with filled(disk):
            full = spool.deliver(sender, backoff=ONCE)
            alive_while_full = asked(f"{url}/healthz")
            with Session(store) as session:
                known_while_full = [run.run_id for run in list_runs(session, PROJECT)]

        after = spool.deliver(sender, backoff=ONCE)
        verification = verify_store(store)

    assert (len(full.left), len(full.sent), len(full.refused)) == (1, 0, 0)
    assert "HTTP 507" in full.left[0][1]
    assert "the disk of the database is full; nothing was stored" in full.left[0][1]
    assert alive_while_full[0] == 200
    assert known_while_full == [str(first.run_id)]
    assert len(after.sent) == 1
    assert (verification.run_count, verification.proven_count, verification.problems) == (2, 2, ())
