"""How quickly full records are stored, beside the quickest and the usual way to bring the same rows into the tables.

    python bench/ingest.py [--cases N] [--rounds N] [--json]

A record has three implementations of each case, in five blocks of twenty samples each with the state of the device, a
check of each with two tensors, and machine code for two targets. Each round stores a record of a run that is new, then
takes its rows out of the tables again and puts the very same back twice: by binary COPY, a statement for each table,
and by SQLAlchemy's bulk insert of the mapped classes. What counts is all that the caller waits for: for a record also
hashing it, summing up its samples and packing them. Foreign keys, indexes and constraints are those of the store.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psycopg
from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from bench.made_up_store import settle
from collector.case_record import CaseRecord
from collector.device_state import DeviceState
from collector.machine import Ceiling, Environment
from collector.measurement import Block, CacheState, Measurement, Timer
from collector.part import Outcome
from collector.record import Commit, RunRecord
from collector.results import Accuracy, StaticFacts, TensorError
from db.server.session import open_store
from db.storing.ingest import ingest_record
from db.tables.records import (
    AccuracyRow,
    Base,
    CompilationRow,
    MeasurementRow,
    RunRow,
    SampleSetRow,
    TensorErrorRow,
)

_TABLES: tuple[type[Base], ...] = (MeasurementRow, SampleSetRow, AccuracyRow, TensorErrorRow, CompilationRow)
_IMPLEMENTATIONS = ("eager", "compile", "triton")
_TARGETS = ("sm_90", "sm_100")
_STARTED_AT = datetime(2026, 3, 1, tzinfo=UTC)
_COPY_TARGET = 0.5
_BULK_TARGET = 10.0

Rows = dict[type[Base], list[dict[str, Any]]]


@dataclass(frozen=True)
class Result:
    row_count: int
    """Of one record, without what runs share."""
    record_bytes: int
    ingest_rows_per_s: float
    copy_rows_per_s: float
    bulk_insert_rows_per_s: float

    @property
    def of_copy(self) -> float:
        return self.ingest_rows_per_s / self.copy_rows_per_s

    @property
    def of_bulk_insert(self) -> float:
        return self.ingest_rows_per_s / self.bulk_insert_rows_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=700)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        result = measure(engine, arguments.cases, arguments.rounds)
    if arguments.json:
        ratios = {"of_copy": result.of_copy, "of_bulk_insert": result.of_bulk_insert}
        print(orjson.dumps(asdict(result) | ratios, option=orjson.OPT_INDENT_2).decode())
        return
    print(f"{result.row_count} rows of one record, {result.record_bytes / 1e6:.1f} MB of JSON")
    print(f"{'way':<28} rows per second   ratio of ingest to it")
    print(f"{'ingest of the record':<28} {result.ingest_rows_per_s:>15,.0f}")
    print(f"{'binary COPY':<28} {result.copy_rows_per_s:>15,.0f}   {result.of_copy:.2f} (target {_COPY_TARGET})")
    print(
        f"{'bulk insert of SQLAlchemy':<28} {result.bulk_insert_rows_per_s:>15,.0f}   {result.of_bulk_insert:.2f} "
        f"(target {_BULK_TARGET:.0f})"
    )


def measure(engine: Engine, case_count: int, round_count: int) -> Result:
    """Median of the rounds, after one that warms up."""
    times: dict[str, list[float]] = {"ingest": [], "copy": [], "insert": []}
    row_count, size = 0, 0
    for number in range(round_count + 1):
        record = make_record(number, case_count)
        size = len(record.to_json())
        spent = {"ingest": _timed(lambda record=record: ingest_record(engine, record))}
        rows = _take_out(engine, record.run_id)
        row_count = sum(len(some) for some in rows.values())
        as_stored = _as_stored(rows)
        spent["copy"] = _timed(lambda as_stored=as_stored: _copy(engine, as_stored))
        _take_out(engine, record.run_id)
        spent["insert"] = _timed(lambda rows=rows: _bulk_insert(engine, rows))
        if not number:
            settle(engine)
        else:
            for way, seconds in spent.items():
                times[way].append(seconds)
    per_s = {way: row_count / statistics.median(seconds) for way, seconds in times.items()}
    return Result(row_count, size, per_s["ingest"], per_s["copy"], per_s["insert"])


def make_record(number: int, case_count: int) -> RunRecord:
    """The numbered run: the same cases and machine code in each, new times."""
    rng = np.random.default_rng(number)
    started_at = _STARTED_AT + timedelta(minutes=number)
    case_ids = [f"kernel_{case % 40}/n={case}/float32/fwd" for case in range(case_count)]
    subjects = [(case_id, implementation) for case_id in case_ids for implementation in _IMPLEMENTATIONS]
    return RunRecord(
        run_id=uuid.UUID(int=number + 1),
        project="bench/ingest",
        commit=Commit(
            sha=hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest(),
            parents=(),
            first_parent_count=number + 1,
            committed_at=started_at,
            author="Author",
            subject=f"Change {number}",
            branch="main",
            is_dirty=False,
        ),
        started_at=started_at,
        finished_at=started_at,
        harness_version="1",
        environment=Environment(
            device_kind="cpu",
            device_name="CPU",
            device_memory_bytes=2**34,
            cpu_name="CPU",
            core_count=4,
            thread_count=4,
            os="Linux",
            python_version="3.11",
            torch_version="2.13",
        ),
        ceilings=(Ceiling(resource="memory", level="dram", per_s=1e10, method="best of 5"),),
        cases=tuple(_case(case_id) for case_id in case_ids),
        measurements=tuple(_measurement(rng, started_at, *subject) for subject in subjects),
        accuracies=tuple(_accuracy(*subject) for subject in subjects),
        static_facts=tuple(_static_facts(case_id, target) for case_id in case_ids for target in _TARGETS),
    )


def _case(case_id: str) -> CaseRecord:
    kernel, shape, dtype, direction = case_id.split("/")
    return CaseRecord(
        case_id=case_id,
        kernel=kernel,
        shape={"n": int(shape.removeprefix("n="))},
        dtype=dtype,
        direction="fwd" if direction == "fwd" else "bwd",
        flop_count=1e6,
        memory_bytes=1e6,
    )


def _measurement(rng: np.random.Generator, at: datetime, case_id: str, implementation: str) -> Measurement:
    times = np.round(rng.normal(312_500, 400, size=(5, 20))) * 32  # as a clock of 32 ns tells them
    state = DeviceState(reading_count=3, sm_clock_mhz=1_980.0, power_w=412.5, temperature_c=61.0)
    return Measurement(
        case_id=case_id,
        implementation=implementation,
        outcome=Outcome.OK,
        timer=Timer.CUPTI,
        cache=CacheState.COLD,
        blocks=tuple(
            Block(started_at=at, samples_ns=tuple(row), kernel_count=1, stopped_by="samples", device_state=state)
            for row in times.tolist()
        ),
        bound="memory",
        utilisation=0.5,
    )


def _accuracy(case_id: str, implementation: str) -> Accuracy:
    errors = tuple(
        TensorError(tensor=tensor, max_abs_error=1e-6, rmse_ratio=1e-7, passed=True) for tensor in ("out", "grad_x")
    )
    return Accuracy(
        case_id=case_id, implementation=implementation, executor="device", outcome=Outcome.OK, tensors=errors
    )


def _static_facts(case_id: str, target: str) -> StaticFacts:
    return StaticFacts(
        case_id=case_id,
        implementation="triton",
        function="_body",
        target=target,
        outcome=Outcome.OK,
        configuration={"BLOCK": 128, "num_warps": 4},
        toolchain={"triton": "3.7.1", "ptxas": "13.0"},
        registers=32,
        shared_bytes=1_024,
        instructions={"global_load.128": 4, "tensor.HGMMA": 32},
        compile_ns={"ttir": 10_000_000, "ptx": 20_000_000, "cubin": 30_000_000},
        code_hash=hashlib.sha256(f"{case_id} {target}".encode()).hexdigest(),
    )


def _timed(action: Any) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _take_out(engine: Engine, run_id: uuid.UUID) -> Rows:
    """The rows of a run, which then are no longer there; the run itself stays."""
    rows: Rows = {}
    with Session(engine) as session, session.begin():
        run = session.scalars(select(RunRow).where(RunRow.run_id == run_id)).one()
        for table in _TABLES:
            of_run = table.__table__.c.run_number == run.number
            rows[table] = [dict(row._mapping) for row in session.execute(select(table.__table__).where(of_run))]
            session.execute(delete(table).where(of_run))
    return rows


def _as_stored(rows: Rows) -> Rows:
    """With codes in the place of words, as COPY needs them."""
    kind = MeasurementRow.__table__.c.outcome.type
    coded = [
        row | {"outcome": kind.process_bind_param(row["outcome"], postgresql.dialect())} for row in rows[MeasurementRow]
    ]
    return rows | {MeasurementRow: coded}


def _copy(engine: Engine, rows: Rows) -> None:
    raw = engine.raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, psycopg.Connection)
    for table, some in rows.items():
        _copy_table(driver, table, some)
    driver.commit()
    raw.close()


def _copy_table(driver: psycopg.Connection[Any], table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    columns = [column.name for column in table.__table__.columns]
    with driver.cursor() as cursor:
        types = dict(
            cursor.execute(
                "SELECT attname, atttypid FROM pg_attribute WHERE attrelid = %s::regclass", (table.__tablename__,)
            ).fetchall()
        )
        statement = f"COPY {table.__tablename__} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(statement.encode()) as copy:
            copy.set_types([types[column] for column in columns])
            for row in rows:
                copy.write_row([row[column] for column in columns])


def _bulk_insert(engine: Engine, rows: Rows) -> None:
    with Session(engine) as session, session.begin():
        for table, some in rows.items():
            session.execute(insert(table), some)


if __name__ == "__main__":
    main()
