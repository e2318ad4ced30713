"""List the metrics of each series, and store samples as arrays of doubles.

Revision: 0011, after 0010
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import psycopg
import zstandard
from alembic import op
from sqlalchemy import Connection, inspect, text

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
oldest_code = "0011"

_BATCH_ROWS = 500
_ROWS_PER_S = 4_000
_HEAD_LENGTH_BYTES = 4
_DOUBLE_BYTES = 8

_COMPATIBILITY = (
    """
    CREATE TABLE schema_compatibility (
        id INTEGER NOT NULL,
        oldest_code TEXT NOT NULL,
        CONSTRAINT pk_schema_compatibility PRIMARY KEY (id),
        CONSTRAINT ck_schema_compatibility_one_row CHECK (id = 1)
    )
    """,
    "INSERT INTO schema_compatibility (id, oldest_code) VALUES (1, '0011')",
)
_METRICS = (
    "ALTER TABLE series ADD COLUMN metrics TEXT[]",
    """
    UPDATE series SET metrics = array_remove(ARRAY[
        CASE WHEN has_host_time THEN 'host_ns' END,
        CASE WHEN has_energy THEN 'joules_per_launch' END,
        CASE WHEN has_memory THEN 'peak_allocated_bytes' END,
        CASE WHEN has_utilisation THEN 'utilisation' END
    ], NULL)
    """,
    """
    ALTER TABLE series
        ALTER COLUMN metrics SET NOT NULL,
        DROP COLUMN has_utilisation,
        DROP COLUMN has_energy,
        DROP COLUMN has_host_time,
        DROP COLUMN has_memory
    """,
    """
    ALTER TABLE measurement
        ADD CONSTRAINT ck_measurement_utilisation_not_negative CHECK (utilisation >= 0),
        ADD CONSTRAINT ck_measurement_joules_per_launch_not_negative CHECK (joules_per_launch >= 0)
    """,
)
_NEW_SAMPLES = """
    CREATE TABLE unpacked_sample_set (
        run_number INTEGER NOT NULL,
        series_id INTEGER NOT NULL,
        samples_ns DOUBLE PRECISION[] NOT NULL,
        block_lengths INTEGER[] NOT NULL,
        facts JSON NOT NULL
    )
    """
_REPLACE_SAMPLES = (
    "DROP TABLE sample_set",
    "ALTER TABLE unpacked_sample_set RENAME TO sample_set",
    """
    ALTER TABLE sample_set
        ADD CONSTRAINT pk_sample_set PRIMARY KEY (run_number, series_id),
        ADD CONSTRAINT fk_sample_set_run_number FOREIGN KEY (run_number)
            REFERENCES run (number) ON DELETE CASCADE
    """,
)


def estimate_s(connection: Connection) -> float:
    """About how long the upgrade takes, from the number of rows to convert."""
    if _is_converted(connection):
        return 0.0
    row_count: int = connection.execute(text("SELECT count(*) FROM sample_set")).scalar_one()
    return row_count / _ROWS_PER_S


def upgrade() -> None:
    connection = op.get_bind()
    _execute(connection, _COMPATIBILITY)
    # some stores of revision 0010 were created with this layout
    if _is_converted(connection):
        return
    _execute(connection, _METRICS)
    connection.exec_driver_sql(_NEW_SAMPLES)
    _copy_samples(connection)
    _execute(connection, _REPLACE_SAMPLES)
    # the analysis has changed too
    connection.exec_driver_sql("UPDATE project SET analysis_requested_at = clock_timestamp()")


def _is_converted(connection: Connection) -> bool:
    columns = inspect(connection).get_columns("series")
    return "metrics" in {column["name"] for column in columns}


def _execute(connection: Connection, statements: Sequence[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


def _copy_samples(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    columns = "run_number, series_id, samples_ns, block_lengths, facts"
    into = f"COPY unpacked_sample_set ({columns}) FROM STDIN"
    # a cursor on the server: all rows at once would not fit in memory
    with psycopg.ServerCursor(driver, "packed_samples") as packed:
        packed.execute("SELECT run_number, series_id, content FROM sample_set")
        while batch := packed.fetchmany(_BATCH_ROWS):
            with psycopg.Cursor(driver) as cursor, cursor.copy(into) as copy:
                for run_number, series_id, content in batch:
                    head, samples_ns = _unpack(content)
                    facts = orjson.dumps(_facts(head)).decode()
                    copy.write_row((run_number, series_id, samples_ns, head["lengths"], facts))


def _unpack(content: bytes) -> tuple[dict[str, Any], list[float]]:
    """Unpack a row of revision 0010: its head, and the samples of all blocks.

    The layout, inside one zstd frame: length of the head in 4 bytes; the head, in JSON; the first
    bytes of all samples, then the second bytes, and so on.
    """
    whole = zstandard.ZstdDecompressor().decompress(content)
    head_end = _HEAD_LENGTH_BYTES + int.from_bytes(whole[:_HEAD_LENGTH_BYTES], "little")
    head = orjson.loads(whole[_HEAD_LENGTH_BYTES:head_end])
    shuffled = np.frombuffer(whole, dtype=np.uint8, offset=head_end).reshape(_DOUBLE_BYTES, -1)
    samples_ns = np.ascontiguousarray(shuffled.T).view("<f8").reshape(-1).tolist()
    return head, samples_ns


def _facts(head: dict[str, Any]) -> dict[str, Any]:
    """Arrange the head as fields of the record's measurement and blocks, without defaults."""
    facts: dict[str, Any] = {}
    if head["launches_per_sample"] != 1:
        facts["launches_per_sample"] = head["launches_per_sample"]
    for name in ("memory", "autotuning"):
        if head[name]:
            facts[name] = head[name]
    facts["blocks"] = [
        {"started_at": started_at, **block}
        for started_at, block in zip(head["started_at"], head["facts"], strict=True)
    ]
    return facts
