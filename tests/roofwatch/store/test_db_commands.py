"""The commands that operate the database."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, text

from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import make_record
from tests.databases import text_of
from tests.roofwatch.command import Done, roofwatch

Command = Callable[..., Done]


@pytest.fixture
def db(database_url: URL, tmp_path: Path) -> Command:
    """`db("verify", "--json")` runs `roofwatch db verify --json` on the database of this test."""
    return partial(roofwatch, "db", cwd=tmp_path, ROOFWATCH_DATABASE_URL=text_of(database_url))


def old_history(store: Engine) -> None:
    for number in range(3):
        started_at = datetime.now(UTC) - timedelta(days=90 - number)
        finished_at = started_at + timedelta(minutes=1)
        ingest_record(store, make_record(number, started_at=started_at, finished_at=finished_at))


def test_a_database_goes_through_all_of_its_maintenance(
    store: Engine, db: Command, tmp_path: Path
) -> None:
    old_history(store)
    (tmp_path / "roofwatch.toml").write_text("[retention]\nsamples_days = 30\n")

    backed_up = db("backup", "store.dump")
    foretold = db("prune", "--dry-run", "--json")
    pruned = db("prune")
    verified = db("verify")
    refused = db("restore", "store.dump")
    restored = db("restore", "store.dump", "--replace")
    whole = db("verify", "--json")

    assert (backed_up.status, backed_up.error) == (0, "")
    assert [(part["part"], part["run_count"]) for part in foretold.parsed["parts"]] == [
        ("samples", 2)
    ]
    assert "│ samples" in pruned.output
    assert (
        verified.output
        == "3 run(s), 1 read back exactly as sent, 2 without pruned parts; no problem(s)\n"
    )
    assert refused.status == 2
    assert "use --replace" in refused.error
    assert restored.status == 0, restored.error
    assert (whole.parsed["run_count"], whole.parsed["proven_count"]) == (3, 3)


def test_damaged_data_is_named_with_status_1(store: Engine, db: Command, tmp_path: Path) -> None:
    record = make_record()
    ingest_record(store, record)
    with store.begin() as connection:
        connection.execute(text("UPDATE run SET harness_version = 'another'"))

    verified = db("verify")

    assert verified.status == 1
    assert f"run {record.run_id}: reads back with other content" in verified.error
    assert verified.output.endswith("; 1 problem(s)\n")


def test_without_a_retention_policy_nothing_is_pruned(db: Command, tmp_path: Path) -> None:
    pruned = db("prune")

    assert pruned.status == 2
    assert "no retention is configured: set days in [retention] of roofwatch.toml" in pruned.error


def test_an_export_is_a_folder_of_tables(store: Engine, db: Command, tmp_path: Path) -> None:
    old_history(store)

    exported = db("export", "--parquet", "out", "--json")
    again = db("export", "--parquet", "out")

    assert {table["name"]: table["row_count"] for table in exported.parsed}["run"] == 3
    assert (tmp_path / "out" / "run.parquet").is_file()
    assert again.status == 2
