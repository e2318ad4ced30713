"""Every revision leads to the schema of the models, keeps the data, and can be interrupted.

`tests/data/stores/` has a backup of a small store of each released revision whose layout differs.
"""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import URL, Engine, create_engine, event, inspect, text
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.access import list_tokens
from roofwatch.db.engine import migrate
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.backup import restore_backup, write_backup
from roofwatch.db.maintenance.parquet import export_parquet
from roofwatch.db.maintenance.pg_programs import describe_server, find_programs, load_archive
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.schema import Base
from roofwatch.model.triage import TriageState
from tests.builders import PROJECT
from tests.databases import stored_record, text_of
from tests.db.engine.definitions import definitions
from tests.db.queries.test_records import full_record

STORES = Path(__file__).parents[2] / "data" / "stores"
RUN_COUNT = 41
# more than the largest revision has, so that some process gets through it
_STATEMENT_COUNT = 60
REVISIONS = [script.revision for script in migrate._scripts().walk_revisions()][::-1]


@pytest.fixture
def blank(empty_database_url: URL) -> Iterator[Engine]:
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def first_release(blank: Engine) -> Engine:
    """A store that the first released version filled: 41 runs, a regression that was triaged, a
    token and a file.
    """
    load(blank, STORES / "0010.dump")
    return blank


def load(engine: Engine, dump: Path) -> None:
    """Load a backup without upgrading it."""
    server = describe_server(engine)
    load_archive(find_programs(server)[-1], dump, server)
    engine.dispose()


def row_counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {
            table: connection.execute(text(f'SELECT count(*) FROM "{table}"')).scalar_one()
            for table in inspect(engine).get_table_names()
        }


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_store_of_each_revision_is_upgraded_with_its_data(
    first_release: Engine, store: Engine, revision: str
) -> None:
    migrate.upgrade_to(first_release, revision)
    counts = row_counts(first_release)

    migrate.upgrade(first_release)

    assert sorted(definitions(first_release) ^ definitions(store)) == []
    verification = verify_store(first_release)
    assert verification.problems == ()
    assert verification.proven_count == RUN_COUNT
    upgraded = row_counts(first_release)
    assert {table: upgraded[table] for table in counts} == counts


def test_a_fresh_store_has_the_schema_of_the_models(store: Engine, blank: Engine) -> None:
    Base.metadata.create_all(blank)

    migrated = definitions(store)

    assert sorted(migrated ^ definitions(blank)) == []
    checks = {name for kind, _, name, *_ in migrated if name.startswith("ck_")}
    assert len(checks) > 30


def test_a_new_metric_gets_its_column_without_a_revision(store: Engine) -> None:
    current = definitions(store)
    with store.begin() as connection:
        # a store of a version that did not have the metric
        connection.execute(text("ALTER TABLE measurement DROP COLUMN host_ns"))
        connection.execute(
            text(
                "ALTER TABLE measurement ADD CONSTRAINT ck_measurement_values_only_if_ok "
                "CHECK (outcome = 'ok' OR num_nonnulls(utilisation, joules_per_launch) = 0)"
            )
        )
    with pytest.raises(StoreError, match="no columns for the metrics host_ns; run: roofwatch db"):
        migrate.ensure_current(store)
    assert migrate.list_missing_metrics(store) == ["host_ns"]

    migrate.upgrade(store)

    migrate.ensure_current(store)
    assert migrate.list_missing_metrics(store) == []
    assert sorted(definitions(store) ^ current) == []


def test_what_people_decided_outlives_an_upgrade(first_release: Engine) -> None:
    migrate.upgrade(first_release)

    analyse_project(first_release, PROJECT)

    with Session(first_release) as session:
        (triaged,) = list_triaged(session, PROJECT)
        (token,) = list_tokens(session, PROJECT)
    assert triaged.triage.state is TriageState.EXPECTED
    assert triaged.triage.person == "Ada"
    assert token.name == "runner"


def test_samples_of_the_first_release_read_back(first_release: Engine) -> None:
    migrate.upgrade(first_release)

    record = full_record()
    with first_release.connect() as connection:
        run_id = connection.execute(
            text("SELECT run_id FROM run ORDER BY started_at LIMIT 1")
        ).scalar_one()
    assert stored_record(first_release, run_id).measurements == record.measurements


def test_a_store_of_the_first_revision_with_the_layout_of_the_second_is_upgraded(
    blank: Engine,
) -> None:
    migrate.upgrade_to(blank, "0011")
    with blank.begin() as connection:
        for table in set(inspect(connection).get_table_names()) - tables_of_revision("0010"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0010'"))

    migrate.upgrade(blank)

    migrate.ensure_current(blank)
    assert verify_store(blank).is_whole


def test_series_that_differ_by_the_driver_are_joined(first_release: Engine) -> None:
    migrate.upgrade_to(first_release, "0012")
    with first_release.begin() as connection:
        series_count, value_count = (
            connection.scalar(text(f"SELECT count(*) FROM {table}"))
            for table in ("series", "measurement")
        )
        for statement in (
            "UPDATE series SET runner_class = 'H100, 80 GiB, 700 W, driver 570'",
            """
            INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, metrics)
            SELECT case_version_id, implementation, timer, cache,
                'H100, 80 GiB, 700 W, driver 580', metrics
            FROM series
            """,
            """
            UPDATE measurement SET series_id = later.id
            FROM series earlier JOIN series later
                USING (case_version_id, implementation, timer, cache)
            WHERE earlier.id = series_id AND later.id > earlier.id AND run_number % 2 = 0
            """,
        ):
            connection.execute(text(statement))

    migrate.upgrade(first_release)

    with first_release.connect() as connection:
        rows = connection.execute(text("SELECT DISTINCT runner_class FROM series")).all()
        assert rows == [("H100, 80 GiB, 700 W",)]
        assert connection.scalar(text("SELECT count(*) FROM series")) == series_count
        query = "SELECT count(*) FROM measurement JOIN series ON series.id = series_id"
        assert connection.scalar(text(query)) == value_count


def tables_of_revision(revision: str) -> set[str]:
    assert revision == "0010"
    source = Path(migrate._MIGRATIONS) / "versions" / "r0010_initial.sql"
    lines = source.read_text().splitlines()
    named = [line.split()[2].strip('"') for line in lines if line.startswith("CREATE TABLE")]
    return {*named, "alembic_version"}


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_store_of_every_revision_can_be_saved(
    first_release: Engine, tmp_path: Path, revision: str
) -> None:
    migrate.upgrade_to(first_release, revision)

    write_backup(first_release, tmp_path / "store.dump")
    export_parquet(first_release, tmp_path / "tables")
    restored = restore_backup(first_release, tmp_path / "store.dump", replaces=True, actor="a test")

    assert pq.read_table(tmp_path / "tables" / "run.parquet").num_rows == RUN_COUNT
    assert restored.proven_count == RUN_COUNT
    assert migrate.current_revision(first_release) == migrate.head_revision()


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_upgrade_is_continued(first_release: Engine, store: Engine, seed: int) -> None:
    draw = random.Random(seed)
    kill_count = 0
    url = text_of(first_release.url)
    while upgrade_until_killed(url, draw.randint(1, _STATEMENT_COUNT)) == -signal.SIGKILL:
        kill_count += 1
        assert migrate.current_revision(first_release) in REVISIONS

    assert kill_count > 1
    assert sorted(definitions(first_release) ^ definitions(store)) == []
    verification = verify_store(first_release)
    assert (verification.problems, verification.proven_count) == ((), RUN_COUNT)


def upgrade_until_killed(url: str, last_statement: int) -> int | None:
    """Upgrade in a process that is killed after a number of statements; return its exit code."""

    def work() -> None:
        engine = create_engine(url)
        statement_count = 0

        def count(*_: object) -> None:
            nonlocal statement_count
            statement_count += 1
            if statement_count == last_statement:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(engine, "after_cursor_execute", count)
        migrate.upgrade(engine)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


def test_an_upgrade_that_fails_leaves_whole_revisions(first_release: Engine) -> None:
    with first_release.begin() as connection:
        connection.execute(text("CREATE TABLE schema_compatibility (id int)"))

    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(first_release)

    assert migrate.current_revision(first_release) == "0010"
    columns = {column["name"] for column in inspect(first_release).get_columns("series")}
    assert "has_energy" in columns


def test_code_works_on_a_newer_schema_that_only_adds_to_its_own(store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    migrate.ensure_current(store)
    migrate.upgrade(store)

    assert migrate.list_pending(store) == []
    assert migrate.current_revision(store) == "9999"


def test_code_refuses_a_newer_schema_that_removed_something(store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("UPDATE schema_compatibility SET oldest_code = '9999'"))

    for refuse in (migrate.ensure_current, migrate.upgrade):
        with pytest.raises(StoreError, match="revision 9999 is of another version of roofwatch"):
            refuse(store)


@pytest.mark.slow
def test_the_command_upgrades_as_planned_after_a_backup(
    first_release: Engine, tmp_path: Path
) -> None:
    environment = {"ROOFWATCH_DATABASE_URL": text_of(first_release.url), "PATH": "/usr/bin:/bin"}

    def upgrade(*options: str) -> str:
        command = [sys.executable, "-m", "roofwatch", "db", "upgrade", *options]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr

    planned = upgrade("--dry-run")
    assert migrate.current_revision(first_release) == "0010"
    done = upgrade("--backup", str(tmp_path))

    assert "revision 0011: List the metrics of each series" in planned
    assert "revision 0011 is done" in done
    assert migrate.current_revision(first_release) == migrate.head_revision()
    backup = tmp_path / f"before-{migrate.head_revision()}-from-0010.dump"
    assert restore_backup(first_release, backup, replaces=True, actor="a test").is_whole
