"""Moves rows between the tables before and after revision 0008, a run at a time: the memory of one run is enough.

Written out, not imported from the packages: a migration stays what it was when it ran.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import orjson
import psycopg
import zstandard
from psycopg.rows import dict_row, namedtuple_row
from sqlalchemy import Connection

_OUTCOMES = (
    *("ok", "incorrect", "compile_error", "out_of_memory"),
    *("crashed", "timed_out", "unsupported", "invalid"),
)
_PARTITIONED = ("measurement", "sample_set", "accuracy", "tensor_error", "compilation", "counters")
_FIRST_MONTH = date(2007, 1, 1)
_FACTS = (
    *("implementation", "function", "target", "outcome", "message", "configuration", "toolchain", "thread_count"),
    *("registers", "accumulation_registers", "scalar_registers", "spilled_registers", "spill_store_count"),
    *("spill_load_count", "local_bytes", "shared_bytes", "static_shared_bytes", "tensor_memory_columns"),
    *("theoretical_occupancy", "occupancy_limits", "instruction_count", "instructions", "code_bytes", "code_hash"),
)
_DOCUMENTS = ("configuration", "toolchain", "instructions")


def move_up(connection: Connection) -> None:
    """From the tables in schema `old` to those that are there now."""
    driver = _driver(connection)
    _partition(driver)
    _move_case_versions(driver)
    driver.execute(
        """
        INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, has_utilisation, has_energy)
        SELECT version.id, implementation, timer, cache, runner_class,
            bool_or(utilisation IS NOT NULL), bool_or(joules_per_launch IS NOT NULL)
        FROM old.measurement JOIN old_case USING (run_id, case_id) JOIN case_version version ON version.id = version_id
        JOIN run USING (run_id) JOIN environment ON environment.id = environment_id
        GROUP BY version.id, implementation, timer, cache, runner_class
        ORDER BY version.id, implementation, timer, cache, runner_class
        """
    )
    runs = driver.execute("SELECT run_id, number, measured_on FROM run ORDER BY started_at, run_id").fetchall()
    for run_id, number, measured_on in runs:
        _move_measurements_up(driver, run_id, number, measured_on)
        _move_static_facts_up(driver, run_id, number, measured_on)
    for statement in _THE_REST_UP:
        driver.execute(statement)
    driver.execute("DROP TABLE old_case")


def move_down(connection: Connection) -> None:
    """From the tables in schema `new` to those that were there before."""
    driver = _driver(connection)
    for statement in _FIRST_DOWN:
        driver.execute(statement)
    for (number,) in driver.execute("SELECT number FROM run ORDER BY number").fetchall():
        _move_measurements_down(driver, number)


def _driver(connection: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _partition(driver: psycopg.Connection[tuple[Any, ...]]) -> None:
    """A partition for each month with runs, and the two to come."""
    today = datetime.now(UTC).date()
    last = today + timedelta(days=400)
    query = "SELECT DISTINCT date_trunc('month', measured_on)::date FROM run WHERE measured_on BETWEEN %s AND %s"
    months = {month for (month,) in driver.execute(query, (_FIRST_MONTH, last))}
    months |= {today.replace(day=1), _next_month(today)}
    for month in sorted(months):
        for table in _PARTITIONED:
            driver.execute(
                f"CREATE TABLE partitions.{table}_{month:%Y_%m} PARTITION OF {table} "
                f"FOR VALUES FROM ('{month}') TO ('{_next_month(month)}')".encode()
            )


def _next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _move_case_versions(driver: psycopg.Connection[tuple[Any, ...]]) -> None:
    """And remember in `old_case` which run meant which."""
    said = driver.cursor(row_factory=dict_row).execute(
        "SELECT DISTINCT case_id, family, flop_count, memory_bytes, bus_bytes, tags FROM old.run_case ORDER BY case_id"
    )
    rows = [{**row, "fingerprint": _fingerprint({k: v for k, v in row.items() if k != "case_id"})} for row in said]
    driver.cursor().executemany(
        "INSERT INTO case_version (case_id, fingerprint, family, flop_count, memory_bytes, bus_bytes, tags) VALUES "
        "(%(case_id)s, %(fingerprint)s, %(family)s, %(flop_count)s, %(memory_bytes)s, %(bus_bytes)s, %(tags)s)",
        rows,
    )
    driver.execute(
        """
        CREATE TEMPORARY TABLE old_case AS
        SELECT run_id, old.case_id, position, version.id AS version_id
        FROM old.run_case old JOIN case_version version ON version.case_id = old.case_id
            AND (version.family, version.flop_count, version.memory_bytes, version.tags)
                = (old.family, old.flop_count, old.memory_bytes, old.tags)
            AND version.bus_bytes IS NOT DISTINCT FROM old.bus_bytes
        """
    )
    driver.execute("CREATE UNIQUE INDEX ON old_case (run_id, case_id)")


def _move_measurements_up(
    driver: psycopg.Connection[tuple[Any, ...]], run_id: object, number: int, measured_on: date
) -> None:
    cursor = driver.cursor(row_factory=namedtuple_row)
    query = """
        SELECT measurement.*, series.id AS series_id
        FROM old.measurement JOIN old_case USING (run_id, case_id)
        JOIN run USING (run_id) JOIN environment ON environment.id = environment_id
        JOIN series ON (series.case_version_id, series.implementation, series.timer, series.cache, series.runner_class)
            = (version_id, measurement.implementation, measurement.timer, measurement.cache, environment.runner_class)
        WHERE run_id = %s ORDER BY measurement.position
    """
    rows: list[Any] = cursor.execute(query, (run_id,)).fetchall()
    columns = (
        "median_ns, utilisation, joules_per_launch, below_ns, above_ns, run_number, series_id, measured_on, "
        "sample_count, block_count, outcome, is_memory_bound, message"
    )
    _copy(driver, f"measurement ({columns})", (_narrow(row, number, measured_on) for row in rows))
    packed = ((number, row.series_id, measured_on, _pack(row)) for row in rows if _has_more(row))
    _copy(driver, "sample_set (run_number, series_id, measured_on, content)", packed)
    driver.execute(
        "UPDATE run SET series_ids = %s, launch_counts = %s, degraded_series_ids = %s, outcome_counts = %s::json "
        "WHERE run_id = %s",
        (
            [row.series_id for row in rows],
            [len(row.samples_ns or ()) * row.launches_per_sample for row in rows],
            [row.series_id for row in rows if _is_degraded(row)],
            orjson.dumps(_counts(row.outcome for row in rows)).decode(),
            run_id,
        ),
    )


def _is_degraded(row: Any) -> bool:
    return any((block.get("device_state") or {}).get("degraded_by") for block in row.block_facts or ())


def _counts(outcomes: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts


def _narrow(row: Any, number: int, measured_on: date) -> tuple[object, ...]:
    below, above, sample_count, block_count = None, None, None, None
    if row.median_ns is not None:
        below = _towards_zero(min(row.median_ns - row.q1_ns, float(np.nextafter(row.median_ns, 0))))
        above = _towards_zero(max(row.q3_ns - row.median_ns, 0.0))
        sample_count, block_count = len(row.samples_ns), len(row.block_lengths)
    return (
        row.median_ns,
        row.utilisation,
        row.joules_per_launch,
        below,
        above,
        number,
        row.series_id,
        measured_on,
        sample_count,
        block_count,
        _OUTCOMES.index(row.outcome),
        None if row.bound is None else row.bound == "memory",
        row.message,
    )


def _towards_zero(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.float32(value)
        return float(np.nextafter(rounded, np.float32(0)) if rounded > value else rounded)


def _has_more(row: Any) -> bool:
    return bool(row.samples_ns or row.memory is not None or row.autotuning or row.launches_per_sample != 1)


def _pack(row: Any) -> bytes:
    started_at = [time.astimezone(UTC).isoformat() for time in row.block_started_at or ()]
    head = orjson.dumps(
        {
            "launches_per_sample": row.launches_per_sample,
            "memory": row.memory,
            "autotuning": row.autotuning,
            "started_at": started_at,
            "lengths": row.block_lengths or [],
            # a run that was stored by a version before 0003 has no further facts
            "facts": row.block_facts or [{}] * len(started_at),
        }
    )
    doubles = np.array(row.samples_ns or [], dtype="<f8")
    shuffled = doubles.view(np.uint8).reshape(-1, 8).T.tobytes()
    return zstandard.ZstdCompressor(level=1).compress(len(head).to_bytes(4, "little") + head + shuffled)


def _unpack(content: bytes) -> tuple[dict[str, Any], list[float]]:
    whole = zstandard.ZstdDecompressor().decompress(content)
    begin = 4 + int.from_bytes(whole[:4], "little")
    shuffled = np.frombuffer(whole, dtype=np.uint8, offset=begin).reshape(8, -1)
    return orjson.loads(whole[4:begin]), np.ascontiguousarray(shuffled.T).view("<f8").reshape(-1).tolist()


def _move_static_facts_up(
    driver: psycopg.Connection[tuple[Any, ...]], run_id: object, number: int, measured_on: date
) -> None:
    rows = driver.cursor(row_factory=dict_row).execute(
        "SELECT * FROM old.static_fact WHERE run_id = %s ORDER BY case_id, position", (run_id,)
    )
    for row in rows.fetchall():
        said = {name: row[name] for name in _FACTS}
        said |= {name: orjson.dumps(said[name]).decode() for name in _DOCUMENTS}
        keys = {"case_id": row["case_id"], "fingerprint": _fingerprint(said)}
        driver.execute(
            f"INSERT INTO static_fact (case_id, fingerprint, {', '.join(_FACTS)}) "
            f"VALUES (%(case_id)s, %(fingerprint)s, {', '.join(f'%({name})s' for name in _FACTS)}) "
            "ON CONFLICT DO NOTHING".encode(),
            keys | said,
        )
        driver.execute(
            "INSERT INTO compilation (run_number, position, measured_on, static_fact_id, compile_ns) "
            "SELECT %(number)s, %(position)s, %(measured_on)s, id, %(compile_ns)s FROM static_fact "
            "WHERE case_id = %(case_id)s AND fingerprint = %(fingerprint)s",
            keys
            | {"number": number, "position": row["position"], "measured_on": measured_on}
            | {"compile_ns": orjson.dumps(row["compile_ns"]).decode()},
        )


_THE_REST_UP = (
    """
    UPDATE run SET case_version_ids = ids FROM (
        SELECT run_id, array_agg(version_id ORDER BY position) AS ids FROM old_case GROUP BY run_id
    ) lists WHERE lists.run_id = run.run_id
    """,
    """
    INSERT INTO accuracy (run_number, case_id, implementation, measured_on, position, executor, outcome, message)
    SELECT number, case_id, implementation, measured_on, position, executor, outcome, message
    FROM old.accuracy JOIN run USING (run_id)
    """,
    """
    INSERT INTO tensor_error (run_number, case_id, implementation, position, measured_on, tensor, max_abs_error,
        rmse_ratio, baseline_rmse_ratio, passed)
    SELECT number, case_id, implementation, position, measured_on, tensor, max_abs_error,
        rmse_ratio, baseline_rmse_ratio, passed
    FROM old.tensor_error JOIN run USING (run_id)
    """,
    """
    INSERT INTO counters
        (run_number, case_id, implementation, function, launch_index, measured_on, position, source, values, findings)
    SELECT number, case_id, implementation, function, launch_index, measured_on, position, source, values, findings
    FROM old.counters JOIN run USING (run_id)
    """,
)
_FIRST_DOWN = (
    """
    INSERT INTO run_case (run_id, case_id, position, family, flop_count, memory_bytes, bus_bytes, tags)
    SELECT run_id, case_id, place - 1, family, flop_count, memory_bytes, bus_bytes, tags
    FROM run, unnest(case_version_ids) WITH ORDINALITY listed (version_id, place)
    JOIN new.case_version version ON version.id = version_id
    """,
    """
    INSERT INTO accuracy (run_id, case_id, implementation, position, executor, outcome, message)
    SELECT run_id, case_id, implementation, position, executor, outcome, message
    FROM new.accuracy JOIN run ON number = run_number
    """,
    """
    INSERT INTO tensor_error (run_id, case_id, implementation, position, tensor, max_abs_error, rmse_ratio,
        baseline_rmse_ratio, passed)
    SELECT run_id, case_id, implementation, position, tensor, max_abs_error, rmse_ratio, baseline_rmse_ratio, passed
    FROM new.tensor_error JOIN run ON number = run_number
    """,
    """
    INSERT INTO counters (run_id, case_id, implementation, function, launch_index, position, source, values, findings)
    SELECT run_id, case_id, implementation, function, launch_index, position, source, values, findings
    FROM new.counters JOIN run ON number = run_number
    """,
    f"""
    INSERT INTO static_fact (run_id, case_id, position, compile_ns, {", ".join(_FACTS)})
    SELECT run_id, case_id, position, compile_ns, {", ".join(_FACTS)}
    FROM new.compilation JOIN new.static_fact known ON known.id = static_fact_id JOIN run ON number = run_number
    """,
)


def _move_measurements_down(driver: psycopg.Connection[tuple[Any, ...]], number: int) -> None:
    query = """
        SELECT run_id, version.case_id, implementation, place - 1 AS position, outcome, message, timer, cache,
            median_ns, flop_count, memory_bytes, bus_bytes, utilisation, joules_per_launch, is_memory_bound, content
        FROM run CROSS JOIN unnest(series_ids) WITH ORDINALITY listed (series_id, place)
        JOIN new.series ON series.id = listed.series_id
        JOIN new.case_version version ON version.id = case_version_id
        JOIN new.measurement ON measurement.measured_on = run.measured_on
            AND measurement.run_number = run.number AND measurement.series_id = series.id
        LEFT JOIN new.sample_set samples ON samples.measured_on = run.measured_on
            AND samples.run_number = run.number AND samples.series_id = series.id
        WHERE run.number = %s ORDER BY place
    """
    rows = driver.cursor(row_factory=dict_row).execute(query, (number,)).fetchall()
    columns = (
        "run_id, case_id, implementation, position, outcome, message, timer, cache, launches_per_sample, samples_ns, "
        "block_lengths, block_started_at, median_ns, q1_ns, q3_ns, flop_per_s, memory_bytes_per_s, bus_bytes_per_s, "
        "utilisation, joules_per_launch, bound, block_facts, memory, autotuning"
    )
    _copy(driver, f"measurement ({columns})", _wide(rows))


def _wide(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        head: dict[str, Any] = {"launches_per_sample": 1, "memory": None, "autotuning": []}
        samples: list[float] = []
        if row["content"] is not None:
            head, samples = _unpack(row["content"])
        blocks: tuple[object, ...] = (None, None, None, None, None, None)
        if samples:
            times = [datetime.fromisoformat(text) for text in head["started_at"]]
            blocks = (samples, head["lengths"], times, row["median_ns"], *_quartiles(samples))
        per_s = [
            row[cost] / row["median_ns"] * 1e9 if row["median_ns"] and row[cost] else None
            for cost in ("flop_count", "memory_bytes", "bus_bytes")
        ]
        bound = {None: None, True: "memory", False: "compute"}[row["is_memory_bound"]]
        yield (
            *(row[name] for name in ("run_id", "case_id", "implementation", "position")),
            *(_OUTCOMES[row["outcome"]], row["message"], row["timer"], row["cache"], head["launches_per_sample"]),
            *(*blocks, *per_s, row["utilisation"], row["joules_per_launch"], bound),
            orjson.dumps(head["facts"]).decode() if samples else None,
            None if head["memory"] is None else orjson.dumps(head["memory"]).decode(),
            orjson.dumps(head["autotuning"]).decode(),
        )


def _quartiles(samples: list[float]) -> tuple[float, float]:
    if len(samples) == 1:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def _copy(driver: psycopg.Connection[tuple[Any, ...]], table: str, rows: Iterable[tuple[object, ...]]) -> None:
    with driver.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _fingerprint(values: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()
