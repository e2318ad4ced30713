"""Store a record: all of it or nothing, once however often and by how many it is sent."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import compress
from uuid import UUID

import psycopg
from sqlalchemy import Connection, Engine, delete, select, text
from sqlalchemy.exc import DBAPIError

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.engine.durable import COMMITS_TO_DISK
from roofwatch.db.errors import ConflictError, FullDiskError, IngestError, StoreError
from roofwatch.db.ingest.alike import facts_sha256, flags_sha256, identity_sha256
from roofwatch.db.ingest.case_parts import part_loads
from roofwatch.db.ingest.case_rows import case_ids
from roofwatch.db.ingest.content import Content, name_run, refuse_nul
from roofwatch.db.ingest.counter_rows import load_counters
from roofwatch.db.ingest.found import find
from roofwatch.db.ingest.machine_code import fact_ids, load_compilations
from roofwatch.db.ingest.measurements import Measurements, load_samples
from roofwatch.db.ingest.result import IngestResult, OnConflict
from roofwatch.db.ingest.run_key import make_key, new_number
from roofwatch.db.ingest.run_row import complete_run, load_ceilings, load_run, run_values, store_artefacts
from roofwatch.db.ingest.said_measurements import SaidMeasurements
from roofwatch.db.ingest.series_rows import FLAGS, note_values, series_ids
from roofwatch.db.ingest.shared_rows import in_utc, store_commit, store_environment, store_project
from roofwatch.db.ingest.staging import sending
from roofwatch.db.projects import quarantine_name
from roofwatch.db.schema.partitions import ensure_partitions
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow

_REFUSED = ("22", "23", "54")
"""Classes of SQLSTATE that blame the data: a value, a constraint, a limit."""
_AHEAD = timedelta(days=1)
"""What clocks may differ by: a run that seems to begin later would be the newest of its project for ever."""
_LOCK_RUN = text(f"SELECT pg_advisory_xact_lock(hashtextextended(:run_id, 0)), {COMMITS_TO_DISK}")


class _LacksPartitionsError(Exception):
    """Partitions are to be made before the run is stored."""


def ingest_record(
    engine: Engine,
    record: RunRecord,
    *,
    is_quarantined: bool = False,
    on_conflict: OnConflict = OnConflict.REFUSE,
) -> IngestResult:
    """Store a record; one that is stored already changes nothing.

    Args:
        engine: Of a store with a current schema.
        record: Of which `load_record` will give an equal one, its times in UTC.
        is_quarantined: Nobody vouches for it: keep it beside the project, where nothing counts it.
        on_conflict: What to do where the project has the run with other content.

    Raises:
        ConflictError: the run is stored with other content, and is not to be replaced.
        IngestError: the record has a value that cannot be stored, or is of a run that has yet to begin.
        StoreError: the database failed. In every case nothing of the record was stored, or all of it.
    """
    content = Content(record)

    def store(*, needs_partitions: bool) -> IngestResult:
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            return store_record(
                connection,
                record,
                content,
                is_quarantined=is_quarantined,
                on_conflict=on_conflict,
                latest=_AHEAD,
                needs_partitions=needs_partitions,
            )

    try:
        try:
            result = store(needs_partitions=True)
        except _LacksPartitionsError:
            # with no connection in hand: where all are taken, nobody waits for a second one
            ensure_partitions(engine, in_utc(record.started_at).date())
            result = store(needs_partitions=False)
    except OverflowError as error:
        raise IngestError(f"{name_run(record)}: a time is out of range: {error}; measure again") from None
    except DBAPIError as error:
        raise _refusal(record, error.orig) from None
    except psycopg.Error as error:
        raise _refusal(record, error) from None
    return result


def store_record(
    connection: Connection,
    record: RunRecord,
    content: Content,
    *,
    is_quarantined: bool = False,
    on_conflict: OnConflict = OnConflict.REFUSE,
    latest: timedelta | None = None,
    needs_partitions: bool = False,
) -> IngestResult:
    """Store the record in a transaction of the caller's, which does so once; a record that is there changes nothing.

    Whoever stores a run waits first for all others that store it. Then comes what runs share, in one order
    (`shared_rows.py`), then what is the run's alone, and at the end what series learn of their measurements. A run that
    is new may begin so much `latest` after the time that the database's clock shows; whenever if None. One that
    `needs_partitions` is not stored before they are made; else its rows land in the default ones meanwhile.
    """
    lock_run(connection, record.run_id)
    name = quarantine_name(record.project) if is_quarantined else record.project
    identity = identity_sha256(record)
    code = facts_sha256(record)
    found = find(connection, record, name, identity, code)
    stored_hash = found.content_hash
    was_new = stored_hash is None
    if stored_hash is not None:
        if stored_hash == content.hash:
            return IngestResult(str(record.run_id), record.project, content.hash, was_new=False)
        if on_conflict is OnConflict.REFUSE:
            raise ConflictError(_conflict(record, content.hash))
        _remove_run(connection, record, name)
    if latest is not None and record.started_at - found.now > latest:
        raise IngestError(_from_ahead(record, found.now))
    if needs_partitions and found.lacks_partitions:
        raise _LacksPartitionsError
    project, environment, commit = found.project_id, found.environment_id, found.commit_id
    if project is None:
        project = store_project(connection, name)
    if environment is None:
        environment = store_environment(connection, record.environment)
    if commit is None or found.knows_less_than(record.commit):
        commit = store_commit(connection, project, record.commit)
    measurements = Measurements(record)
    if found.case_version_ids is not None and found.series_ids is not None:
        cases, versions, series = found.case_ids, found.case_version_ids, found.series_ids
    else:
        cases, versions = case_ids(connection, project, record)
        series = series_ids(connection, measurements.identities(versions), record.environment.runner_class)
    of_case = {case.case_id: case_id for case, case_id in zip(record.cases, cases, strict=True)}
    facts = found.fact_ids
    if len(facts) != len(record.static_facts):
        facts = fact_ids(connection, record, of_case)
    are_there: dict[str, list[bool]] = {flag: [] for flag in FLAGS}
    key = make_key(found.new_number or new_number(connection), record.started_at)
    with ThreadPoolExecutor(1) as beside, sending(connection) as send:

        def send_samples(said: SaidMeasurements, packed: Future[list[bytes]]) -> None:
            if said.heads:
                send(load_samples(key, series, said, packed.result()))

        values = run_values(record) | {
            "project_id": project,
            "commit_id": commit,
            "environment_id": environment,
            "case_version_ids": versions,
            "series_ids": series,
            "identity_sha256": identity,
            "facts_sha256": code,
        }
        # what takes long is done while Postgres has something to store; it packs the readings in the row of the run
        send(load_run(key, values))
        if record.ceilings:
            send(load_ceilings(record))
        for load in part_loads(record, key, of_case):
            send(load)
        if record.static_facts:
            send(load_compilations(record, key, facts))
        if record.counters:
            send(load_counters(record, key, of_case))
        launch_counts: list[int] = []
        degraded: list[int] = []
        packing: list[tuple[SaidMeasurements, Future[list[bytes]]]] = []
        for said in content.measurements():
            packing.append((said, beside.submit(said.pack)))
            launch_counts += measurements.launch_counts(said)
            for flag, of_each in measurements.are_there(said).items():
                are_there[flag] += of_each
            degraded += compress(series[said.begin : said.end], said.are_degraded)
            if said.counts:
                send(measurements.summaries(key, series, said))
            if len(packing) > 1:
                send_samples(*packing.pop(0))
        for some in packing:
            send_samples(*some)
    flags = flags_sha256(are_there)
    complete_run(
        connection,
        key,
        record,
        content,
        launch_counts=launch_counts,
        degraded_series_ids=degraded,
        flags_sha256=flags,
    )
    store_artefacts(connection, record)
    # last, for it locks rows of others: whoever waits for these holds none that we still need
    if flags != found.flags_sha256:
        note_values(connection, series, are_there)
    return IngestResult(str(record.run_id), record.project, content.hash, was_new=was_new, was_replaced=not was_new)


def lock_run(connection: Connection, run_id: UUID) -> None:
    """Wait for all others that store or move the run, until the end of the transaction; before any other lock. What is
    committed then is on disk.
    """
    connection.execute(_LOCK_RUN, {"run_id": str(run_id)})


def _remove_run(connection: Connection, record: RunRecord, project: str) -> None:
    """Make room for other content of the run."""
    stored_in = connection.scalar(
        select(ProjectRow.name)
        .join(CommitRow, CommitRow.project_id == ProjectRow.id)
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(RunRow.run_id == record.run_id)
    )
    if stored_in != project:
        raise ConflictError(
            f"{name_run(record)}: a run with this id is stored in {stored_in}, and only a run of the same project is "
            "replaced; the stored one was kept"
        )
    connection.execute(delete(RunRow).where(RunRow.run_id == record.run_id))


def _from_ahead(record: RunRecord, now: datetime) -> str:
    began_at, here = (time.isoformat(timespec="seconds") for time in (in_utc(record.started_at), in_utc(now)))
    return (
        f"{name_run(record)}: it says that it began at {began_at}, and by the clock of the database it is {here}: one "
        "of the two is wrong, and nothing of the run was stored. Set the clock of the runner right and measure again"
    )


def _conflict(record: RunRecord, content_hash: str) -> str:
    # the stored one may be of another project, of which this is all that is told
    return (
        f"{name_run(record)}: a run with this id is stored with other content than this (sha256 "
        f"{content_hash[:12]}…); the stored one was kept. Measure again for a run with an id of its own, or replace "
        "the stored one: roofwatch ingest --replace"
    )


def _refusal(record: RunRecord, cause: BaseException | None) -> StoreError:
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if isinstance(cause, psycopg.DataError) or (state is not None and state[:2] in _REFUSED):
        refuse_nul(record)
        return IngestError(f"{name_run(record)}: the database refuses a value: {reason}; nothing of the run was stored")
    if isinstance(cause, psycopg.errors.DiskFull):
        return FullDiskError(
            f"{name_run(record)}: the server's disk is full: {reason}; nothing of the run was stored: make room there, "
            "for example by `roofwatch db prune`, and ingest it again"
        )
    return StoreError(
        f"{name_run(record)}: the database failed: {reason}; keep the record file and ingest it again, which is safe"
    )
