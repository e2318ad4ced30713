"""Time the analysis of synthetic projects, from a real database.

    PYTHONPATH=. python bench/judge_scale.py [SERIES_COUNT ...] [--commits N] [--step-every N] [--keep FOLDER]

Series have 2 % noise; by default one in fifty has a step of 20 %. Targets: 2,000 series within 10 s,
100,000 series of 500 points within 600 s.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine, insert, inspect, select, text
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine.session import open_store
from roofwatch.db.schema.measurements import MeasurementRow
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, ProjectRow, RunRow

_PROJECT = "scale"
_STARTED_AT = datetime(2025, 1, 1, tzinfo=UTC)
_IMPLEMENTATIONS = ("eager", "compile", "triton", "cudnn")
_STEP_EVERY = 50
_TIMES = text(
    """
    INSERT INTO measurement
        (median_ns, q1_ns, q3_ns, run_number, series_id, sample_count, block_count, outcome)
    SELECT median_ns, median_ns * 0.99, median_ns * 1.01, number, series_id, 25, 5, 'ok'
    FROM (
        SELECT number, series_id,
            1e4 * 1000 ^ ((series_id * 7919 % 1000) / 1000.0) * exp(random_normal(0, 0.02))
            * CASE WHEN series_id % :stepped = 0 AND number > 50 + series_id / :stepped * 37 % :last_step THEN 1.2
                ELSE 1 END
            AS median_ns
        FROM run, unnest(series_ids) series_id WHERE number = :number
        OFFSET 0
    ) made_up
    """
)
_CASES = (
    """
    INSERT INTO "case" (project_id, name, kernel, shape, dtype, direction)
    SELECT :project_id, format('kernel_%s/n=%s/float32/fwd', number % 40, number), format('kernel_%s', number % 40),
        json_build_object('n', number), 'float32', 'fwd'
    FROM generate_series(0, :case_count - 1) number
    """,
    """
    INSERT INTO case_version (case_id, fingerprint, family, flop_count, memory_bytes, tags)
    SELECT id, '', 'normalisation', 1e6, 1e6, '{}' FROM "case" ORDER BY id
    """,
    """
    INSERT INTO series (case_version_id, implementation, timer, cache, runner_class,
        has_utilisation, has_energy, has_host_time, has_memory)
    SELECT id, implementation, 'perf_counter', 'hot', 'one machine', false, false, false, false
    FROM case_version, unnest(:implementations ::text[]) WITH ORDINALITY kept (implementation, place)
    ORDER BY id, place
    """,
)
_LISTS = """
    UPDATE run SET case_version_ids = (SELECT array_agg(id ORDER BY id) FROM case_version),
        series_ids = (SELECT array_agg(id ORDER BY id) FROM series)
    """


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("series_counts", type=int, nargs="*", default=[2_000])
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--step-every", type=int, default=_STEP_EVERY, help="one series in this many has a step")
    parser.add_argument("--keep", type=Path, help="keep the databases here")
    arguments = parser.parse_args()
    for series_count in arguments.series_counts:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (arguments.keep or Path(temporary)) / f"{series_count}x{arguments.commits}"
            folder.mkdir(parents=True, exist_ok=True)
            with open_store(folder=folder) as engine:
                if not _is_filled(engine):
                    fill(engine, series_count, arguments.commits, arguments.step_every)
                started = time.monotonic()
                regressions = analyse_project(engine, _PROJECT)
                print(
                    f"{series_count} series of {arguments.commits} points: analysed in "
                    f"{time.monotonic() - started:.1f} s, {len(regressions)} regressions, largest process "
                    f"{_peak_mib():.0f} MiB",
                    flush=True,
                )


def _peak_mib() -> float:
    """Peak memory of this process and its children, without Postgres."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return max(usage.ru_maxrss for usage in usages) / 2**10


def _is_filled(engine: Engine) -> bool:
    with Session(engine) as session:
        return session.scalar(select(ProjectRow.id).where(ProjectRow.name == _PROJECT)) is not None


def fill(engine: Engine, series_count: int, commit_count: int, step_every: int) -> None:
    """Store the history as ingest would, with SQL statements over sets: this process stays small."""
    with engine.begin() as connection:
        project_id = connection.scalar(insert(ProjectRow).values(name=_PROJECT).returning(ProjectRow.id))
        environment_id = connection.scalar(insert(EnvironmentRow).values(_environment()).returning(EnvironmentRow.id))
        connection.execute(insert(CommitRow), [_commit(project_id, number) for number in range(commit_count)])
        commit_ids = connection.scalars(text("SELECT id FROM commit ORDER BY first_parent_count")).all()
        values = {
            "project_id": project_id,
            "case_count": series_count // len(_IMPLEMENTATIONS),
            "implementations": list(_IMPLEMENTATIONS),
        }
        for statement in _CASES:
            connection.execute(text(statement), values)
        alike = {
            "project_id": project_id,
            "case_version_ids": [],
            "series_ids": [],
            "outcome_counts": {"ok": series_count},
            "launch_counts": [],
            "degraded_series_ids": [],
        }
        rows = [_run(commit_id, environment_id, number) | alike for number, commit_id in enumerate(commit_ids)]
        connection.execute(insert(RunRow), rows)
        connection.execute(text(_LISTS))
    with engine.begin() as connection:
        _measure_all(connection, commit_count, step_every)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))  # as autovacuum has, in a database that grew over months


def _measure_all(connection: Connection, commit_count: int, step_every: int) -> None:
    """Insert the times run by run; indexes are built at the end."""
    indexes = sorted(inspect(MeasurementRow).local_table.indexes, key=lambda index: str(index.name))
    for index in indexes:
        index.drop(connection)
    connection.execute(text("SELECT setseed(0)"))
    for number in connection.scalars(text("SELECT number FROM run ORDER BY started_at")).all():
        values = {"number": number, "stepped": step_every, "last_step": commit_count - 100}
        connection.execute(_TIMES, values)
    for index in indexes:
        index.create(connection)


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
        "commit_as_recorded": {},
        "spent_ns": {},
    }


if __name__ == "__main__":
    main()
