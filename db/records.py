"""Put a stored run together again as the record that it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from collector.machine import Ceiling, Environment
from collector.measurement import Measurement
from collector.part import Outcome
from collector.record import RunRecord
from collector.results import Accuracy, Counters, StaticFacts, TensorError
from db.errors import AgedError, StoreError
from db.measurements import bound_of
from db.models import (
    AccuracyRow,
    CaseRow,
    CaseVersionRow,
    CeilingRow,
    CommitRow,
    CompilationRow,
    CountersRow,
    EnvironmentRow,
    MeasurementRow,
    ProjectRow,
    RunRow,
    SampleSetRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from db.projects import record_name
from db.samples import unpack


def load_record(session: Session, run_id: UUID) -> RunRecord:
    """The record that was ingested, its times in UTC.

    What its commit says of itself is as the project knows it: the same in every record of the commit.

    Raises:
        AgedError: its samples are no longer kept.
        StoreError: no such run.
    """
    run = _run(session, run_id)
    return _record(session, run, _measurements(session, run))


def load_without_measurements(session: Session, run_id: UUID) -> RunRecord:
    """The rest of a record, where its samples have aged out.

    Raises:
        StoreError: no such run.
    """
    return _record(session, _run(session, run_id), [])


def _run(session: Session, run_id: UUID) -> RunRow:
    run = session.get(RunRow, run_id)
    if run is None:
        raise StoreError(f"run {run_id}: not in this database; ingest its record file first")
    return run


def _record(session: Session, run: RunRow, measurements: Sequence[dict[str, Any]]) -> RunRecord:
    commit = session.get_one(CommitRow, run.commit_id)
    environment = session.get_one(EnvironmentRow, run.environment_id)
    document = {
        "schema_version": run.schema_version,
        "run_id": run.run_id,
        "project": record_name(session.get_one(ProjectRow, commit.project_id).name),
        "commit": {
            "sha": commit.sha,
            "parents": commit.parents,
            "first_parent_count": commit.first_parent_count,
            "committed_at": commit.committed_at,
            "author": commit.author,
            "subject": commit.subject,
            "branch": run.branch,
            "is_dirty": run.is_dirty,
        },
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "harness_version": run.harness_version,
        "environment": {name: getattr(environment, name) for name in Environment.model_fields},
        "pairing": None if run.pair_id is None else {"pair_id": run.pair_id, "side": run.pair_side},
        "ceilings": _ceilings(session, run.run_id),
        "cases": _cases(session, run),
        "measurements": measurements,
        "accuracies": _accuracies(session, run),
        "static_facts": _static_facts(session, run),
        "counters": _counters(session, run),
        "telemetry": run.telemetry,
        "spent_ns": run.spent_ns,
    }
    for path, value in run.unread_fields.items():
        if not measurements and path.startswith("measurements."):
            continue  # of measurements that are left out
        _put_back(document, RunRecord, path.split("."), value)
    return RunRecord.model_validate(document)


def _ceilings(session: Session, run_id: UUID) -> list[dict[str, Any]]:
    query = select(CeilingRow.__table__).where(CeilingRow.run_id == run_id).order_by(CeilingRow.position)
    return [_fields(Ceiling, row) for row in session.execute(query)]


def _cases(session: Session, run: RunRow) -> list[dict[str, Any]]:
    query = (
        select(
            CaseVersionRow.id,
            CaseRow.name.label("case_id"),
            CaseRow.kernel,
            CaseVersionRow.family,
            CaseRow.shape,
            CaseRow.dtype,
            CaseRow.direction,
            CaseVersionRow.flop_count,
            CaseVersionRow.memory_bytes,
            CaseVersionRow.bus_bytes,
            CaseVersionRow.tags,
        )
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(CaseVersionRow.id.in_(run.case_version_ids))
    )
    found = {row.id: dict(row._mapping) for row in session.execute(query)}
    cases = [found[version_id] for version_id in run.case_version_ids]
    for case in cases:
        del case["id"]
    return cases


def _measurements(session: Session, run: RunRow) -> list[dict[str, Any]]:
    query = (
        select(
            MeasurementRow.series_id,
            CaseRow.name.label("case_id"),
            SeriesRow.implementation,
            MeasurementRow.outcome,
            MeasurementRow.message,
            SeriesRow.timer,
            SeriesRow.cache,
            MeasurementRow.is_memory_bound,
            MeasurementRow.utilisation,
            SampleSetRow.content,
        )
        .join(SeriesRow, SeriesRow.id == MeasurementRow.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .outerjoin(
            SampleSetRow,
            (SampleSetRow.measured_on == run.measured_on)
            & (SampleSetRow.run_number == run.number)
            & (SampleSetRow.series_id == MeasurementRow.series_id),
        )
        .where(MeasurementRow.measured_on == run.measured_on, MeasurementRow.run_number == run.number)
    )
    found = {row.series_id: row for row in session.execute(query)}
    return [_measurement(run, found[series_id]) for series_id in run.series_ids]


def _measurement(run: RunRow, row: Row[*tuple[Any, ...]]) -> dict[str, Any]:
    fields = _fields(Measurement, row) | {"bound": bound_of(is_memory_bound=row.is_memory_bound)}
    if row.content is not None:
        samples = unpack(row.content)
        fields |= {
            "launches_per_sample": samples.launches_per_sample,
            "memory": samples.memory,
            "autotuning": samples.autotuning,
            "blocks": samples.blocks(),
        }
    elif row.outcome == Outcome.OK:
        raise AgedError(
            f"run {run.run_id}: its samples are no longer kept, so there is no whole record of it; its record file has "
            "them, and what was summed up of them is still here"
        )
    return fields


def _accuracies(session: Session, run: RunRow) -> list[dict[str, Any]]:
    tensors = defaultdict(list)
    query = (
        select(TensorErrorRow.__table__)
        .where(TensorErrorRow.measured_on == run.measured_on, TensorErrorRow.run_number == run.number)
        .order_by(TensorErrorRow.position)
    )
    for row in session.execute(query):
        tensors[row.case_id, row.implementation].append(_fields(TensorError, row))
    return [
        _fields(Accuracy, row) | {"case_id": row.case_name, "tensors": tensors[row.case_id, row.implementation]}
        for row in session.execute(_results(AccuracyRow, run))
    ]


def _static_facts(session: Session, run: RunRow) -> list[dict[str, Any]]:
    query = (
        select(StaticFactRow.__table__, CompilationRow.compile_ns, CaseRow.name.label("case_name"))
        .select_from(CompilationRow)
        .join(StaticFactRow, StaticFactRow.id == CompilationRow.static_fact_id)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(CompilationRow.measured_on == run.measured_on, CompilationRow.run_number == run.number)
        .order_by(CompilationRow.position)
    )
    return [_fields(StaticFacts, row) | {"case_id": row.case_name} for row in session.execute(query)]


def _counters(session: Session, run: RunRow) -> list[dict[str, Any]]:
    return [_fields(Counters, row) | {"case_id": row.case_name} for row in session.execute(_results(CountersRow, run))]


def _results(table: type[AccuracyRow | CountersRow], run: RunRow) -> Select[Any]:
    return (
        select(table.__table__, CaseRow.name.label("case_name"))
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(table.measured_on == run.measured_on, table.run_number == run.number)
        .order_by(table.position)
    )


def _fields(part: type[BaseModel], row: Row[Any]) -> dict[str, Any]:
    """The columns that are fields of the part."""
    columns = row._mapping
    return {name: columns[name] for name in part.model_fields if name in columns}


def _put_back(document: dict[str, Any], part: type[BaseModel], path: list[str], value: object) -> None:
    """Walk down the fields that we know; the rest of the path is the name of the one we don't."""
    name = path[0]
    below = document.get(name) if name in part.model_fields and len(path) > 1 else None
    if below is None:
        document[".".join(path)] = value
    elif isinstance(below, list):
        _put_back(below[int(path[1])], _part_of(part, name), path[2:], value)
    else:
        _put_back(below, _part_of(part, name), path[1:], value)


def _part_of(part: type[BaseModel], name: str) -> type[BaseModel]:
    """The model that a field holds: itself, optional, or many of it."""
    waiting = [part.model_fields[name].annotation]
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        waiting.extend(getattr(annotation, "__args__", ()))
    raise AssertionError(f"{part.__name__}.{name} holds no model")
