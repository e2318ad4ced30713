"""Every supported version of Postgres: schema, ingest, analysis, backup and restore.

15 is the oldest. Versions that this machine lacks are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine import migrate
from roofwatch.db.engine.embedded import all_wheel_programs, find_postgres
from roofwatch.db.engine.session import open_server, open_url
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.backup import restore_backup, write_backup
from roofwatch.db.maintenance.pg_programs import describe_server, find_programs, run_program
from roofwatch.db.maintenance.verify import verify_store
from tests.databases import text_of
from tests.db.engine.definitions import definitions
from tests.db.engine.test_external_server import Server
from tests.db.made_up_store import Shape, fill
from tests.db.queries.test_records import full_record

STORES = Path(__file__).parents[2] / "data" / "stores"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("versions")]


def installations() -> list[Path]:
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *all_wheel_programs()]
    return [folder for folder in folders if (folder / "initdb").exists()]


@pytest.fixture(scope="module", params=installations(), ids=lambda folder: folder.parent.name)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("version") / "server"
    folder.mkdir()
    postgres = replace(find_postgres(folder / "data"), programs=request.param)
    server = Server(folder, postgres, has_tls=False)
    server.start()
    with open_server(text_of(server.url)) as engine:
        migrate.upgrade(engine)
        ingest_record(engine, full_record())
        fill(engine, Shape("narrow", run_count=60, series_count=4, step_every=2), pair=1)
        yield engine
    server.stop()


def test_a_store_can_be_analysed(engine: Engine, store: Engine) -> None:
    analyse_project(engine, "narrow/1")

    assert sorted(definitions(engine) ^ definitions(store)) == []
    assert verify_store(engine).proven_count == 1


def test_a_backup_by_the_nearest_programs_can_be_restored(engine: Engine, tmp_path: Path) -> None:
    write_backup(engine, tmp_path / "store.dump")

    with other_database(engine) as other:
        restored = restore_backup(other, tmp_path / "store.dump", replaces=False, actor="a test")

    assert restored.proven_count == 1
    server = describe_server(engine)
    nearest = find_programs(server)[0]
    assert nearest.major_version == server.major_version
    run_program(nearest.path("pg_restore"), ["--list", str(tmp_path / "store.dump")], None)


def test_a_backup_of_a_newer_version_is_restored(engine: Engine) -> None:
    """Written by 18, with its programs: older servers do not know all that these send."""
    with other_database(engine) as other:
        restored = restore_backup(other, STORES / "0010.dump", replaces=False, actor="a test")

    assert restored.problems == ()
    assert restored.proven_count > 1


@contextmanager
def other_database(engine: Engine) -> Iterator[Engine]:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("DROP DATABASE IF EXISTS other WITH (FORCE)"))
        connection.execute(text("CREATE DATABASE other"))
    with open_url(engine.url.set(database="other")) as other:
        yield other
