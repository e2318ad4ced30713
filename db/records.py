"""Put a stored run together again as the record that it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from collector.artefact import Artefact
from collector.machine import Ceiling, Environment
from collector.measurement import Measurement
from collector.record import RunRecord
from collector.results import Accuracy, Counters, StaticFacts, TensorError
from db.artefact_models import RunArtefactRow
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

_Row = Mapping[str, Any]
"""One row of a query, by column."""


def load_record(session: Session, run_id: UUID) -> RunRecord:
    """The record that was ingested, its times in UTC.

    What its commit says of itself is as the project knows it: the same in every record of the commit.

    Raises:
        StoreError: no such run.
    """
    parts = _read_together(
        session,
        {
            "ceilings": _listed(CeilingRow, run_id),
            "cases": _cases(run_id),
            "measurements": _results(MeasurementRow, run_id),
            "accuracies": _results(AccuracyRow, run_id),
            "tensors": _listed(TensorErrorRow, run_id),
            "static_facts": _results(StaticFactRow, run_id),
            "counters": _results(CountersRow, run_id),
            "artefacts": _listed(RunArtefactRow, run_id),
        },
        _run(run_id),
    )
    if parts is None:
        raise StoreError(f"run {run_id}: not in this database; ingest its record file first")
    (run, commit, environment, project), rows = parts
    document = {
        "schema_version": run.schema_version,
        "run_id": run.run_id,
        "project": record_name(project),
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
        "ceilings": [_fields(Ceiling, row) for row in rows["ceilings"]],
        "cases": rows["cases"],
        "measurements": [_of_case(Measurement, row) | {"blocks": _blocks(row)} for row in rows["measurements"]],
        "accuracies": _accuracies(rows["accuracies"], rows["tensors"]),
        "static_facts": [_of_case(StaticFacts, row) for row in rows["static_facts"]],
        "counters": [_of_case(Counters, row) for row in rows["counters"]],
        "telemetry": run.telemetry,
        "spent_ns": run.spent_ns,
        "artefacts": [_fields(Artefact, row) for row in rows["artefacts"]],
    }
    for path, value in run.unread_fields.items():
        _put_back(document, RunRecord, path.split("."), value)
    return RunRecord.model_validate(document)


def _run(run_id: UUID) -> Select[RunRow, CommitRow, EnvironmentRow, str]:
    return (
        select(RunRow, CommitRow, EnvironmentRow, ProjectRow.name)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(RunRow.run_id == run_id)
    )


def _read_together(
    session: Session, queries: Mapping[str, Select[Any]], run: Select[RunRow, CommitRow, EnvironmentRow, str]
) -> tuple[tuple[RunRow, CommitRow, EnvironmentRow, str], dict[str, list[_Row]]] | None:
    """A run with the rows of several queries about it, as JSON has them, in one statement: a page that shows a run
    waits once. None where there is no such run.
    """
    documents = []
    for name, query in queries.items():
        rows = query.subquery(name)
        documents.append(select(func.json_agg(func.row_to_json(rows.table_valued()))).scalar_subquery())
    found = session.execute(run.add_columns(*documents)).one_or_none()
    if found is None:
        return None
    row, commit, environment, project, *parts = found
    return (row, commit, environment, project), {name: part or [] for name, part in zip(queries, parts, strict=True)}


def _cases(run_id: UUID) -> Select[Any]:
    return (
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


def _listed(table: type[CeilingRow | TensorErrorRow | RunArtefactRow], run_id: UUID) -> Select[Any]:
    return select(table.__table__).where(table.run_id == run_id).order_by(table.position)


def _blocks(row: _Row) -> list[dict[str, Any]]:
    if row["samples_ns"] is None:
        return []
    bounds = pairwise(accumulate(row["block_lengths"], initial=0))
    # a run that was stored by an older version has no further facts
    facts = row["block_facts"] or [{}] * len(row["block_lengths"])
    return [
        {"started_at": time, "samples_ns": row["samples_ns"][begin:end], **fact}
        for time, (begin, end), fact in zip(row["block_started_at"], bounds, facts, strict=True)
    ]


def _accuracies(rows: Sequence[_Row], tensor_rows: Sequence[_Row]) -> list[dict[str, Any]]:
    tensors = defaultdict(list)
    for row in tensor_rows:
        tensors[row["case_id"], row["implementation"]].append(_fields(TensorError, row))
    return [_of_case(Accuracy, row) | {"tensors": tensors[row["case_id"], row["implementation"]]} for row in rows]


def _results(table: type[MeasurementRow | AccuracyRow | StaticFactRow | CountersRow], run_id: UUID) -> Select[Any]:
    return (
        select(table.__table__, CaseRow.name.label("case_name"))
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(table.run_id == run_id)
        .order_by(table.position)
    )


def _of_case(part: type[BaseModel], row: _Row) -> dict[str, Any]:
    """The same of a result, which calls its case by name."""
    return _fields(part, row) | {"case_id": row["case_name"]}


def _fields(part: type[BaseModel], row: _Row) -> dict[str, Any]:
    """The columns that are fields of the part."""
    return {name: row[name] for name in part.model_fields if name in row}


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
