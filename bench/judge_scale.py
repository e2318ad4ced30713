"""Judge made-up histories of growing size from a real database, and say how time and memory grow with them.

    python bench/judge_scale.py [SERIES_COUNT ...] [--commits N] [--workers N] [--keep FOLDER]

Each size gets an embedded database of its own in a temporary folder, or one that is kept for the next time: series of
times in noise of 2 %, one in fifty with a step, runs of one machine. Prints what judging all of it takes, by the clock
and of all CPUs, then what one run more takes, and the largest memory of any process. The time for 100,000 series of 500
points is extrapolated only from sizes between which the CPU time per point did not grow.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import tempfile
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine, insert, inspect, select, text
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine.session import open_store
from roofwatch.db.schema.partitions import ensure_partitions
from roofwatch.db.schema.results import MeasurementRow
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import Regression

_PROJECT = "scale"
_STARTED_AT = datetime(2025, 1, 1, tzinfo=UTC)
_IMPLEMENTATIONS = ("eager", "compile", "triton", "cudnn")
_STEPPED = 50
"""One series in so many steps, by 20 %."""
_TARGET_POINTS = 100_000 * 500
_TARGET_S = 300.0
_TIMES = text(
    """
    INSERT INTO measurement
        (median_ns, below_ns, above_ns, run_number, series_id, measured_on, sample_count, block_count, outcome)
    SELECT median_ns, median_ns * 0.01, median_ns * 0.01, number, series_id, measured_on, 25, 5, 0
    FROM (
        SELECT number, series_id, measured_on,
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
"""The implementations of a case beside each other, as ingest stores them."""
_LISTS = """
    UPDATE run SET case_version_ids = (SELECT array_agg(id ORDER BY id) FROM case_version),
        series_ids = (SELECT array_agg(id ORDER BY id) FROM series)
    """
_LINEAR = 1.15
"""Growth of the time per point that still counts as none."""


@dataclass(frozen=True)
class Result:
    series_count: int
    commit_count: int
    judged_s: float
    cpu_s: float
    """Of all processes, Postgres' own among them: what judging takes whatever else the machine does meanwhile."""

    @property
    def points(self) -> int:
        return self.series_count * self.commit_count

    @property
    def cpu_us_per_point(self) -> float:
        return self.cpu_s / self.points * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("series_counts", type=int, nargs="*", default=[2_000, 8_000])
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder of databases that stay, each filled once")
    arguments = parser.parse_args()
    results = [
        measure(count, arguments.commits, arguments.workers, arguments.keep) for count in arguments.series_counts
    ]
    first, last = results[0], results[-1]
    if len(results) > 1 and last.cpu_us_per_point <= first.cpu_us_per_point * _LINEAR:
        cpu_s = last.cpu_us_per_point * _TARGET_POINTS / 1e6
        free_s = cpu_s / arguments.workers
        print(
            f"linear so far; 100,000 series of 500 points: {cpu_s:.0f} CPU seconds, so {free_s:.0f} s "
            f"on {arguments.workers} cores that are free (target {_TARGET_S:.0f} s), extrapolated"
        )
    else:
        print("no extrapolation: give two sizes between which the time per point does not grow")


def measure(series_count: int, commit_count: int, worker_count: int, kept: Path | None) -> Result:
    """Fill a database, unless it is there, and judge it once."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if kept is None else kept / f"{series_count}x{commit_count}"
        folder.mkdir(parents=True, exist_ok=True)
        with open_store(folder=folder) as engine:
            started = time.monotonic()
            if not _is_filled(engine):
                fill(engine, series_count, commit_count)
            filled_s = time.monotonic() - started
            judged_s, cpu_s, regressions = _judge(engine, worker_count)
            result = Result(series_count, commit_count, judged_s, cpu_s)
            print(
                f"{series_count} series of {commit_count} points: filled in {filled_s:.0f} s, judged in "
                f"{judged_s:.1f} s and {cpu_s:.0f} CPU seconds ({cpu_s / series_count * 1e3:.2f} CPU ms a series), "
                f"{len(regressions)} regressions, largest process {_peak_mib():.0f} MiB",
                flush=True,
            )
    return result


def _judge(engine: Engine, worker_count: int) -> tuple[float, float, list[Regression]]:
    """Seconds by the clock, seconds of all CPUs, and what was found."""
    started, spent = time.monotonic(), _cpu_seconds(engine)
    found = analyse_project(engine, _PROJECT, worker_count=worker_count)
    return time.monotonic() - started, _cpu_seconds(engine) - spent, found


def _peak_mib() -> float:
    """The most memory that this process or one that it started has had so far; Postgres' not among them."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return max(usage.ru_maxrss for usage in usages) / 2**10


def _cpu_seconds(engine: Engine) -> float:
    """What this process, its children that are gone, and the server with all its processes have taken so far."""
    ours = sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
    with engine.connect() as connection:
        backend = connection.scalar(text("SELECT pg_backend_pid()"))
    processes = {int(path.name): _Process.read(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    server = processes[int(backend or 0)].parent
    ticks = processes[server].ticks + processes[server].ticks_of_gone_children
    ticks += sum(process.ticks for process in processes.values() if process.parent == server)
    return ours + ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class _Process:
    parent: int
    ticks: int
    ticks_of_gone_children: int

    @classmethod
    def read(cls, path: Path) -> _Process:
        try:
            numbers = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just gone
            return cls(0, 0, 0)
        return cls(int(numbers[1]), int(numbers[11]) + int(numbers[12]), int(numbers[13]) + int(numbers[14]))


def _is_filled(engine: Engine) -> bool:
    with Session(engine) as session:
        return session.scalar(select(ProjectRow.id).where(ProjectRow.name == _PROJECT)) is not None


def fill(engine: Engine, series_count: int, commit_count: int) -> None:
    """Store the history as ingest leaves it: run after run, by statements over sets, so that what this process holds
    does not grow with them, and the memory that is told is that of judging.
    """
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
        days = [(_STARTED_AT + timedelta(hours=number)).date() for number in range(commit_count)]
    for month in sorted({day.replace(day=1) for day in days}):
        ensure_partitions(engine, month)
    with engine.begin() as connection:
        _measure_all(connection, commit_count)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))  # as autovacuum has, in a database that grew over months


def _measure_all(connection: Connection, commit_count: int) -> None:
    """The times, as they would lie on disk: run after run. Indexes are built once all is there."""
    indexes = sorted(inspect(MeasurementRow).local_table.indexes, key=lambda index: str(index.name))
    for index in indexes:
        index.drop(connection)
    connection.execute(text("SELECT setseed(0)"))
    for number in connection.scalars(text("SELECT number FROM run ORDER BY started_at")).all():
        values = {"number": number, "stepped": _STEPPED, "last_step": commit_count - 100}
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
        "spent_ns": {},
    }


if __name__ == "__main__":
    main()
