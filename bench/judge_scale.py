"""Judge made-up histories of growing size from a real database, and say how time and memory grow with them.

    python bench/judge_scale.py [SERIES_COUNT ...] [--commits N] [--workers N]

Each size gets an embedded database of its own in a temporary folder: series of times in noise of 2 %, one in fifty with
a step, runs of one machine. Prints what judging takes, per series and per point, and the largest memory of any process.
The time for 100,000 series of 500 points is extrapolated only from sizes between which the time per point did not grow.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import tempfile
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import psycopg
from sqlalchemy import Connection, Engine, insert, text

from ci.judge import judge_project
from db.server.session import open_store
from db.tables.partitions import ensure_partitions
from db.tables.records import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow, SeriesRow

_PROJECT = "scale"
_STARTED_AT = datetime(2025, 1, 1, tzinfo=UTC)
_IMPLEMENTATIONS = ("eager", "compile", "triton", "cudnn")
_STEPPED = 50
"""One series in so many steps, by 20 %."""
_TARGET_POINTS = 100_000 * 500
_TARGET_S = 300.0
_LINEAR = 1.15
"""Growth of the time per point that still counts as none."""


@dataclass(frozen=True)
class Result:
    series_count: int
    commit_count: int
    filled_s: float
    judged_s: float
    regression_count: int

    @property
    def points(self) -> int:
        return self.series_count * self.commit_count

    @property
    def us_per_point(self) -> float:
        return self.judged_s / self.points * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("series_counts", type=int, nargs="*", default=[2_000, 8_000])
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    results = [measure(count, arguments.commits, arguments.workers) for count in arguments.series_counts]
    first, last = results[0], results[-1]
    if len(results) > 1 and last.us_per_point <= first.us_per_point * _LINEAR:
        whole_s = last.us_per_point * _TARGET_POINTS / 1e6
        print(f"linear so far; 100,000 series of 500 points: {whole_s:.0f} s (target {_TARGET_S:.0f} s), extrapolated")
    else:
        print("no extrapolation: give two sizes between which the time per point does not grow")


def measure(series_count: int, commit_count: int, worker_count: int) -> Result:
    """Fill a database and judge it once."""
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        started = time.monotonic()
        fill(engine, series_count, commit_count)
        filled_s = time.monotonic() - started
        started = time.monotonic()
        regressions = judge_project(engine, _PROJECT, worker_count=worker_count)
        result = Result(series_count, commit_count, filled_s, time.monotonic() - started, len(regressions))
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(
        f"{series_count} series of {commit_count} points: filled in {filled_s:.0f} s, judged in {result.judged_s:.1f} "
        f"s ({result.judged_s / series_count * 1e3:.2f} ms a series, {result.us_per_point:.2f} µs a point), "
        f"{len(regressions)} regressions, largest process {peak / 2**10:.0f} MiB",
        flush=True,
    )
    return result


def fill(engine: Engine, series_count: int, commit_count: int) -> None:
    """Store the history as ingest would, by COPY."""
    rng = np.random.default_rng(0)
    with engine.begin() as connection:
        project_id = connection.scalar(insert(ProjectRow).values(name=_PROJECT).returning(ProjectRow.id))
        environment_id = connection.scalar(insert(EnvironmentRow).values(_environment()).returning(EnvironmentRow.id))
        connection.execute(insert(CommitRow), [_commit(project_id, number) for number in range(commit_count)])
        commit_ids = connection.scalars(text("SELECT id FROM commit ORDER BY first_parent_count")).all()
        version_ids, series_ids = _fill_series(connection, project_id, series_count)
        lists = {"case_version_ids": version_ids, "series_ids": series_ids, "outcome_counts": {"ok": series_count}}
        rows = [_run(commit_id, environment_id, number) | lists for number, commit_id in enumerate(commit_ids)]
        connection.execute(insert(RunRow), rows)
        run_numbers = connection.scalars(text("SELECT number FROM run ORDER BY started_at")).all()
    days = [(_STARTED_AT + timedelta(hours=number)).date() for number in range(commit_count)]
    for month in sorted({day.replace(day=1) for day in days}):
        ensure_partitions(engine, month)
    levels = np.exp(rng.uniform(np.log(1e4), np.log(1e7), series_count))
    steps = np.where(np.arange(series_count) % _STEPPED == 0, rng.integers(50, commit_count - 50, series_count), -1)
    raw = engine.raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, psycopg.Connection)
    with driver.cursor() as cursor:
        for number, (run_number, day) in enumerate(zip(run_numbers, days, strict=True)):
            values = levels * np.exp(rng.normal(0, 0.02, series_count))
            values[(steps >= 0) & (number >= steps)] *= 1.2
            _copy_run(cursor, run_number, day, series_ids, values)
    driver.commit()
    raw.close()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))  # as autovacuum has, in a database that grew over months


def _fill_series(connection: Connection, project_id: int | None, series_count: int) -> tuple[list[int], list[int]]:
    """Ids of what is said of the cases, and of the series: those of one case beside each other."""
    case_count = series_count // len(_IMPLEMENTATIONS)
    connection.execute(insert(CaseRow), [_case(project_id, number) for number in range(case_count)])
    case_ids = connection.scalars(text('SELECT id FROM "case" ORDER BY id')).all()
    said = {"fingerprint": "", "family": "normalisation", "flop_count": 1e6, "memory_bytes": 1e6, "tags": []}
    connection.execute(insert(CaseVersionRow), [{"case_id": case_id, **said} for case_id in case_ids])
    version_ids = list(connection.scalars(text("SELECT id FROM case_version ORDER BY id")))
    alike = {"timer": "perf_counter", "cache": "hot", "runner_class": "one machine"}
    alike |= {"has_utilisation": False, "has_energy": False}
    rows = [
        {"case_version_id": version_id, "implementation": implementation, **alike}
        for version_id in version_ids
        for implementation in _IMPLEMENTATIONS
    ]
    connection.execute(insert(SeriesRow), rows)
    return version_ids, list(connection.scalars(text("SELECT id FROM series ORDER BY id")))


def _copy_run(
    cursor: psycopg.Cursor[object], run_number: int, day: date, series_ids: list[int], values: np.ndarray
) -> None:
    columns = "median_ns, below_ns, above_ns, run_number, series_id, measured_on, sample_count, block_count, outcome"
    with cursor.copy(f"COPY measurement ({columns}) FROM STDIN") as copy:
        for series_id, value in zip(series_ids, values.tolist(), strict=True):
            copy.write_row((value, value * 0.01, value * 0.01, run_number, series_id, day, 25, 5, 0))


def _environment() -> dict[str, object]:
    return {
        "fingerprint": "0",
        "runner_class": "one machine",
        "device_kind": "cpu",
        "device_name": "Example CPU",
        "device_memory_bytes": 2**34,
        "device_count": 1,
        "cpu_name": "Example CPU",
        "core_count": 4,
        "thread_count": 4,
        "os": "Linux",
        "python_version": "3.11",
        "torch_version": "2.13",
        "compile_knobs": {},
        "clock_mode": "free",
    }


def _commit(project_id: int | None, number: int) -> dict[str, object]:
    return {
        "project_id": project_id,
        "sha": hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest(),
        "parents": [],
        "first_parent_count": number + 1,
        "committed_at": _STARTED_AT + timedelta(hours=number),
        "author": "",
        "subject": "",
    }


def _case(project_id: int | None, number: int) -> dict[str, object]:
    kernel = f"kernel_{number % 40}"
    return {
        "project_id": project_id,
        "name": f"{kernel}/n={number}/float32/fwd",
        "kernel": kernel,
        "shape": {"n": number},
        "dtype": "float32",
        "direction": "fwd",
    }


def _run(commit_id: int, environment_id: int | None, number: int) -> dict[str, object]:
    return {
        "run_id": uuid.UUID(int=number + 1),
        "commit_id": commit_id,
        "environment_id": environment_id,
        "content_hash": "",
        "schema_version": "1.2",
        "harness_version": "1",
        "is_dirty": False,
        "started_at": _STARTED_AT + timedelta(hours=number),
        "finished_at": _STARTED_AT + timedelta(hours=number, minutes=30),
        "unread_fields": {},
        "spent_ns": {},
    }


if __name__ == "__main__":
    main()
