"""Prove that the store is whole: what was put in comes out again, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from roofwatch.collector.record.record import SCHEMA_VERSION
from roofwatch.db.engine.migrate import ensure_current
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.as_sent import load_as_sent, load_as_sent_without_measurements
from roofwatch.db.maintenance.soundness import find_unsound
from roofwatch.db.schema.runs import RunRow

_MOST_PROBLEMS = 1_000


@dataclass(frozen=True)
class Verification:
    run_count: int
    proven_count: int
    """Runs that read back with the content hash of what was sent."""
    aged_count: int
    """Runs of which parts were removed on purpose; what is left reads back."""
    unproven_count: int
    """Runs of another minor version of the record: they read back, without fields that this version does not know."""
    problems: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return not self.problems


@dataclass
class _Tally:
    runs: int = 0
    proven: int = 0
    aged: int = 0
    unproven: int = 0


def verify_store(engine: Engine, *, on_progress: Callable[[int, int], None] = lambda _done, _all: None) -> Verification:
    """Look at everything; ingest goes on meanwhile.

    Args:
        engine: Of a store, whatever its state.
        on_progress: Told how many runs are done, of how many.
    """
    tally = _Tally()
    problems: list[str] = []
    try:
        ensure_current(engine)
    except StoreError as error:
        return Verification(0, 0, 0, 0, problems=(str(error),))
    for problem in _find_problems(engine, tally, on_progress):
        problems.append(problem)
        if len(problems) == _MOST_PROBLEMS:
            problems.append(f"and more: only the first {_MOST_PROBLEMS} are listed")
            break
    return Verification(
        run_count=tally.runs,
        proven_count=tally.proven,
        aged_count=tally.aged,
        unproven_count=tally.unproven,
        problems=tuple(problems),
    )


def _find_problems(engine: Engine, tally: _Tally, on_progress: Callable[[int, int], None]) -> Iterator[str]:
    with _one_state(engine) as connection:
        yield from find_unsound(connection)
        run_ids = connection.scalars(select(RunRow.run_id).order_by(RunRow.started_at)).all()
    # given back by now: a process may have but one connection, and the runs of years take hours
    for run_id in run_ids:
        problem = _check_run(engine, run_id, tally)
        if problem is not None:
            yield problem
        tally.runs += 1
        on_progress(tally.runs, len(run_ids))


def _one_state(engine: Engine) -> Connection:
    return engine.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _check_run(engine: Engine, run_id: UUID, tally: _Tally) -> str | None:
    try:
        # a transaction for each: a page that cannot be read ends no more than its own
        with _one_state(engine) as connection, Session(connection) as session:
            run = session.get(RunRow, run_id)
            if run is None:
                return None  # it went since this began
            load = load_as_sent if run.samples_pruned_at is None else load_as_sent_without_measurements
            record = load(session, run_id)
    except (OperationalError, InterfaceError, PoolTimeoutError):
        raise  # the server is gone, or no connection to it is free
    except Exception as error:  # noqa: BLE001  whatever damage does to the reading, it is named and the others are read
        return f"run {run_id}: does not read back as a record: {_one_line(error)}"
    if record.content_hash == run.content_hash:
        tally.proven += 1
    elif run.samples_pruned_at is not None or run.telemetry_pruned_at is not None:
        tally.aged += 1
    elif run.schema_version != SCHEMA_VERSION:
        tally.unproven += 1
    else:
        return (
            f"run {run_id}: reads back with other content (sha256 {record.content_hash[:12]}…) than was stored "
            f"({run.content_hash[:12]}…)"
        )
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
