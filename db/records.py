"""Put a stored run together again as the record that it was."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate, pairwise
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from collector.machine import Ceiling, Environment
from collector.measurement import Measurement
from collector.record import RunRecord
from collector.results import Accuracy, Counters, StaticFacts, TensorError
from db.errors import StoreError
from db.models import (
    AccuracyRow,
    CaseRow,
    CeilingRow,
    CommitRow,
    CountersRow,
    EnvironmentRow,
    MeasurementRow,
    ProjectRow,
    RunCaseRow,
    RunRow,
    StaticFactRow,
    TensorErrorRow,
)
from db.projects import record_name


def load_record(session: Session, run_id: UUID) -> RunRecord:
    """The record that was ingested, its times in UTC.

    What its commit says of itself is as the project knows it: the same in every record of the commit.

    Raises:
        StoreError: no such run.
    """
    run = session.get(RunRow, run_id)
    if run is None:
        raise StoreError(f"run {run_id}: not in this database; ingest its record file first")
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
        "ceilings": _ceilings(session, run_id),
        "cases": _cases(session, run_id),
        "measurements": _measurements(session, run_id),
        "accuracies": _accuracies(session, run_id),
        "static_facts": _static_facts(session, run_id),
        "counters": _counters(session, run_id),
        "telemetry": run.telemetry,
        "spent_ns": run.spent_ns,
    }
    for path, value in run.unread_fields.items():
        _put_back(document, RunRecord, path.split("."), value)
    return RunRecord.model_validate(document)


def _ceilings(session: Session, run_id: UUID) -> list[dict[str, Any]]:
    query = select(CeilingRow.__table__).where(CeilingRow.run_id == run_id).order_by(CeilingRow.position)
    return [_fields(Ceiling, row) for row in session.execute(query)]


def _cases(session: Session, run_id: UUID) -> list[dict[str, Any]]:
    query = (
        select(
            CaseRow.name.label("case_id"),
            CaseRow.kernel,
            RunCaseRow.family,
            CaseRow.shape,
            CaseRow.dtype,
            CaseRow.direction,
            RunCaseRow.flop_count,
            RunCaseRow.memory_bytes,
            RunCaseRow.bus_bytes,
            RunCaseRow.tags,
        )
        .join(CaseRow, CaseRow.id == RunCaseRow.case_id)
        .where(RunCaseRow.run_id == run_id)
        .order_by(RunCaseRow.position)
    )
    return [dict(row._mapping) for row in session.execute(query)]


def _measurements(session: Session, run_id: UUID) -> list[dict[str, Any]]:
    return [
        _fields(Measurement, row) | {"case_id": row.case_name, "blocks": _blocks(row)}
        for row in session.execute(_results(MeasurementRow, run_id))
    ]


def _blocks(row: Row[Any]) -> list[dict[str, Any]]:
    if row.samples_ns is None:
        return []
    bounds = pairwise(accumulate(row.block_lengths, initial=0))
    # a run that was stored by an older version has no further facts
    facts = row.block_facts or [{}] * len(row.block_lengths)
    return [
        {"started_at": time, "samples_ns": row.samples_ns[begin:end], **fact}
        for time, (begin, end), fact in zip(row.block_started_at, bounds, facts, strict=True)
    ]


def _accuracies(session: Session, run_id: UUID) -> list[dict[str, Any]]:
    tensors = defaultdict(list)
    query = select(TensorErrorRow.__table__).where(TensorErrorRow.run_id == run_id).order_by(TensorErrorRow.position)
    for row in session.execute(query):
        tensors[row.case_id, row.implementation].append(_fields(TensorError, row))
    return [
        _fields(Accuracy, row) | {"case_id": row.case_name, "tensors": tensors[row.case_id, row.implementation]}
        for row in session.execute(_results(AccuracyRow, run_id))
    ]


def _static_facts(session: Session, run_id: UUID) -> list[dict[str, Any]]:
    return [
        _fields(StaticFacts, row) | {"case_id": row.case_name}
        for row in session.execute(_results(StaticFactRow, run_id))
    ]


def _counters(session: Session, run_id: UUID) -> list[dict[str, Any]]:
    return [
        _fields(Counters, row) | {"case_id": row.case_name} for row in session.execute(_results(CountersRow, run_id))
    ]


def _results(table: type[MeasurementRow | AccuracyRow | StaticFactRow | CountersRow], run_id: UUID) -> Select[Any]:
    return (
        select(table.__table__, CaseRow.name.label("case_name"))
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(table.run_id == run_id)
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
