"""Verify the store: every run reads back with its content hash, every reference resolves."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from sqlalchemy import Column, Engine, exists, func, select, text
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from roofwatch.db.engine.migrate import ensure_current
from roofwatch.db.engine.session import reading_session
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.records import load_record, load_without_measurements
from roofwatch.db.schema import Base
from roofwatch.db.schema.runs import RunRow
from roofwatch.model.record import SCHEMA_VERSION

# a damaged store may have millions
_MAX_PROBLEMS = 1_000
_MEASURED = ("run_number", "series_id")
_CHECKED = ("run_number", "case_id", "implementation")
_REFERENCES = (
    ("run", ("project_id", "commit_id"), "commit", ("project_id", "id")),
    ("measurement", ("series_id",), "series", ("id",)),
    ("sample_set", _MEASURED, "measurement", _MEASURED),
    ("accuracy", ("case_id",), "case", ("id",)),
    ("tensor_error", _CHECKED, "accuracy", _CHECKED),
    ("compilation", ("static_fact_id",), "static_fact", ("id",)),
    ("case_document", ("case_id",), "case", ("id",)),
    ("imported", ("case_id",), "case", ("id",)),
)
"""References without a foreign key."""
_INVALID_INDEXES = text(
    "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid ORDER BY 1"
)


@dataclass
class Verification:
    run_count: int = 0
    proven_count: int = 0
    """Runs that read back with the content hash of their record."""
    aged_count: int = 0
    """Pruned runs; the rest of each reads back."""
    unproven_count: int = 0
    """Runs with another minor version of the record: fields that this version does not know are not
    stored.
    """
    problems: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.problems

    @property
    def in_words(self) -> str:
        line = f"{self.run_count} run(s), {self.proven_count} read back exactly as sent"
        if self.aged_count:
            line += f", {self.aged_count} without pruned parts"
        if self.unproven_count:
            line += f", {self.unproven_count} of another minor version of the record"
        return f"{line}; {len(self.problems) or 'no'} problem(s)"


def verify_store(
    engine: Engine, *, on_progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Verification:
    """Check every table and read every run, while ingest may go on; `on_progress` gets the runs
    done and all runs.
    """
    verification = Verification()
    try:
        ensure_current(engine)
    except StoreError as error:
        return Verification(problems=(str(error),))
    problems = _find_problems(engine, verification, on_progress)
    verification.problems = tuple(islice(problems, _MAX_PROBLEMS))
    return verification


def _find_problems(
    engine: Engine,
    verification: Verification,
    on_progress: Callable[[int, int], None],
) -> Iterator[str]:
    with reading_session(engine, sees_one_state=True) as session:
        for name in session.scalars(_INVALID_INDEXES):
            yield f"index {name}: invalid; run in psql: REINDEX INDEX {name}"
        yield from _find_orphans(session)
        run_ids = session.scalars(select(RunRow.run_id).order_by(RunRow.started_at)).all()
    # a transaction per run: reading all runs can take hours
    for run_id in run_ids:
        problem = _check_run(engine, run_id, verification)
        if problem is not None:
            yield problem
        verification.run_count += 1
        on_progress(verification.run_count, len(run_ids))


def _check_run(engine: Engine, run_id: UUID, verification: Verification) -> str | None:
    try:
        with reading_session(engine, sees_one_state=True) as session:
            run = session.get(RunRow, run_id)
            if run is None:
                return None  # deleted meanwhile
            load = load_without_measurements
            if run.samples_pruned_at is None:
                load = load_record
            record = load(session, run_id)
    except (OperationalError, InterfaceError, PoolTimeoutError):
        raise  # the server is gone, or no connection is free
    except Exception as error:  # noqa: BLE001  damage can fail anywhere; report it and go on
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        return f"run {run_id}: does not read back as a record: {reason}"
    # the hash covers all that a record holds, so nothing else needs a comparison
    if record.content_hash == run.content_hash:
        verification.proven_count += 1
    elif run.samples_pruned_at is not None or run.telemetry_pruned_at is not None:
        verification.aged_count += 1
    elif run.schema_version != SCHEMA_VERSION:
        verification.unproven_count += 1
    else:
        hashes = f"sha256 {record.content_hash[:12]}…, stored {run.content_hash[:12]}…"
        return f"run {run_id}: reads back with other content ({hashes})"
    return None


def _find_orphans(session: Session) -> Iterator[str]:
    """Rows whose reference points at no row."""
    for child in Base.metadata.sorted_tables:
        for key in sorted(child.foreign_key_constraints, key=lambda key: str(key.name)):
            yield from _check_reference(
                session, list(key.columns), [element.column for element in key.elements]
            )
    for name, columns, parent_name, targets in _REFERENCES:
        table = Base.metadata.tables[name]
        parent = Base.metadata.tables[parent_name]
        yield from _check_reference(
            session,
            [table.c[column] for column in columns],
            [parent.c[target] for target in targets],
        )


def _check_reference(
    session: Session,
    columns: Sequence[Column[object]],
    targets: Sequence[Column[object]],
) -> Iterator[str]:
    table = columns[0].table
    parent = targets[0].table.alias("parent")
    pairs = zip(columns, targets, strict=True)
    has_parent = exists().where(*(column == parent.c[target.name] for column, target in pairs))
    is_set = (column.is_not(None) for column in columns)
    count = session.scalar(select(func.count()).select_from(table).where(*is_set, ~has_parent))
    if count:
        names = ", ".join(column.name for column in columns)
        yield (
            f"table {table.name}: {count} row(s) whose {names} point at no row of "
            f"{targets[0].table.name}"
        )
