"""Stored runs as records."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import ColumnElement, ScalarSelect, Select, func, select
from sqlalchemy.orm import Session, undefer

from roofwatch.db.errors import AgedError, NotStoredError
from roofwatch.db.projects import record_name
from roofwatch.db.queries.samples import split_blocks
from roofwatch.db.schema.measurements import (
    DOCUMENT_KINDS,
    AccuracyRow,
    CaseDocumentRow,
    CompilationRow,
    ImportedRow,
    MeasurementRow,
    SampleSetRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from roofwatch.db.schema.run_filter import compiled_by
from roofwatch.db.schema.runs import (
    CaseRow,
    CaseVersionRow,
    CommitRow,
    EnvironmentRow,
    ProjectRow,
    RunArtefactRow,
    RunRow,
)
from roofwatch.db.schema.subjects import RunId
from roofwatch.model.history import BOUNDS
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import Artefact, RunRecord
from roofwatch.model.results import Accuracy, ImportedValue, StaticFacts, TensorError

_Row = Mapping[str, Any]
"""One row of a query as JSON, by column."""


@dataclass(frozen=True)
class _Stored:
    """A run and its rows in other tables, by part of the record."""

    run: RunRow
    commit: CommitRow
    environment: EnvironmentRow
    project: str
    rows: Mapping[str, list[_Row]]


def load_record(session: Session, run_id: RunId) -> RunRecord:
    """Read the record that was ingested.

    Raises:
        AgedError: the samples are no longer kept.
        NotStoredError: there is no such run.
    """
    stored = _read_one(session, run_id, _PARTS | {"measurements": _measurements()})
    row_of_series = {row["series_id"]: row for row in stored.rows["measurements"]}
    # the run keeps the order of its record
    measurements: list[dict[str, Any]] = []
    for series_id in stored.run.series_ids:
        measurement = _measurement(stored.run, row_of_series[series_id])
        measurements.append(measurement)
    return _record(stored, measurements)


def load_without_measurements(session: Session, run_id: UUID) -> RunRecord:
    """Read a record without measurements, after its samples were removed.

    Raises:
        NotStoredError: there is no such run.
    """
    return _record(_read_one(session, run_id, _PARTS), [])


def load_cases(
    session: Session,
    runs: ColumnElement[bool],
    cases: ColumnElement[bool],
) -> list[RunRecord]:
    """Read some cases (a condition on `CaseRow`) from the records of some runs, newest first; the
    runs should be few.

    Measurements without samples are left out. A run that compiled nothing has the machine code of
    its commit.
    """
    own_cases = select(CaseVersionRow.case_id).where(
        CaseVersionRow.id == func.any(RunRow.case_version_ids)
    )
    compiled = _static_facts(compiled_by()).where(
        StaticFactRow.case_id.in_(own_cases.correlate(RunRow))
    )
    queries = _PARTS | {"measurements": _measurements(), "static_facts": compiled}
    chosen = (
        select(CaseRow.id)
        .where(CaseRow.project_id == CommitRow.project_id, cases)
        .correlate(CommitRow)
    )
    for name, case_id in _CASE_OF_PART.items():
        queries[name] = queries[name].where(case_id.in_(chosen))
    records: list[RunRecord] = []
    for stored in _read(session, runs, queries):
        row_of_series = {row["series_id"]: row for row in stored.rows["measurements"]}
        measurements: list[dict[str, Any]] = []
        for series_id in stored.run.series_ids:
            row = row_of_series.get(series_id)
            # a series of a case that was not chosen
            if row is None:
                continue
            # a failure has no samples, but its row says everything
            if row["facts"] is not None or row["outcome"] != Outcome.OK:
                measurements.append(_measurement(stored.run, row))
        record = _record(stored, measurements, is_whole=False)
        records.append(record)
    return records


def _read_one(session: Session, run_id: UUID, queries: Mapping[str, Select[Any]]) -> _Stored:
    runs = _read(session, RunRow.run_id == run_id, queries)
    if not runs:
        raise NotStoredError(f"run {run_id}: not in this database; ingest its record file first")
    return runs[0]


def _read(
    session: Session,
    runs: ColumnElement[bool],
    queries: Mapping[str, Select[Any]],
) -> list[_Stored]:
    """Read runs in one statement, with the rows of several queries about each."""
    documents = [_document(query, name) for name, query in queries.items()]
    whole = (
        undefer(RunRow.telemetry),
        undefer(RunRow.case_version_ids),
        undefer(RunRow.series_ids),
    )
    of_runs = (
        select(RunRow, CommitRow, EnvironmentRow, ProjectRow.name, *documents)
        .options(*whole)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(runs)
        .order_by(RunRow.started_at.desc(), RunRow.run_id)
    )
    stored: list[_Stored] = []
    for run, commit, environment, project, *parts in session.execute(of_runs):
        # no row of a part is NULL, not an empty array
        rows = {name: part or [] for name, part in zip(queries, parts, strict=True)}
        stored.append(
            _Stored(
                run=run,
                commit=commit,
                environment=environment,
                project=project,
                rows=rows,
            )
        )
    return stored


def _document(query: Select[Any], name: str) -> ScalarSelect[Any]:
    """Return the rows of a query about the outer run as one JSON column: a list of objects, or
    NULL.
    """
    rows = query.correlate(RunRow, CommitRow).subquery(name)
    return select(func.json_agg(func.row_to_json(rows.table_valued()))).scalar_subquery()


def _record(
    of: _Stored,
    measurements: Sequence[dict[str, Any]],
    *,
    is_whole: bool = True,
) -> RunRecord:
    run, rows = of.run, of.rows
    versions = run.case_version_ids
    # of a part of a record, only the chosen cases were read
    if not is_whole:
        versions = [row["id"] for row in rows["cases"]]
    pairing = None
    if run.pair_id is not None:
        pairing = {"pair_id": run.pair_id, "side": run.pair_side}
    document = {
        "schema_version": run.schema_version,
        "run_id": run.run_id,
        "project": record_name(of.project),
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "harness_version": run.harness_version,
        "preset": run.preset,
        "environment": of.environment.to_environment(),
        "pairing": pairing,
        "cases": _in_order(versions, rows["cases"]),
        "measurements": measurements,
        "accuracies": _accuracies(rows["accuracies"], rows["tensors"]),
        "static_facts": [_of_case(StaticFacts, row) for row in rows["static_facts"]],
        "imported": [_of_case(ImportedValue, row) for row in rows["imported"]],
        "telemetry": run.telemetry,
        "artefacts": [_fields(Artefact, row) for row in rows["artefacts"]],
    }
    for kind in DOCUMENT_KINDS:
        document[kind] = [row["document"] for row in rows[kind]]
    # what has no column of its own is stored as it came
    return RunRecord.model_validate(document | run.document)


def _accuracies(
    checks: Sequence[Mapping[str, Any]], errors: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Put the errors of tensors into their checks."""
    tensors: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    regimes: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in errors:
        # errors with other values than the case declares are a list of their own
        same_kind = tensors if row["regime"] is None else regimes
        same_kind[row["case_id"], row["implementation"]].append(_fields(TensorError, row))
    accuracies: list[dict[str, Any]] = []
    for row in checks:
        subject = row["case_id"], row["implementation"]
        of_tensors = {"tensors": tensors[subject], "regimes": regimes[subject]}
        accuracies.append(_of_case(Accuracy, row) | of_tensors)
    return accuracies


def _cases() -> Select[Any]:
    return (
        select(
            CaseVersionRow.id,
            CaseRow.name.label("case_id"),
            CaseRow.kernel,
            CaseRow.shape,
            CaseRow.dtype,
            CaseRow.direction,
            CaseVersionRow.family,
            CaseVersionRow.flop_count,
            CaseVersionRow.memory_bytes,
            CaseVersionRow.bus_bytes,
            CaseVersionRow.token_count,
            CaseVersionRow.tags,
        )
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(CaseVersionRow.id == func.any(RunRow.case_version_ids))
    )


def _in_order(version_ids: Sequence[int], rows: Sequence[_Row]) -> list[dict[str, Any]]:
    case_of_version = {row.pop("id"): row for row in map(dict, rows)}
    return [case_of_version[version_id] for version_id in version_ids]


def _measurements() -> Select[Any]:
    samples = SampleSetRow
    columns: list[Any] = [
        MeasurementRow.series_id,
        CaseRow.name.label("case_id"),
        SeriesRow.implementation,
        MeasurementRow.outcome,
        MeasurementRow.message,
        SeriesRow.timer,
        SeriesRow.cache,
        MeasurementRow.is_memory_bound,
        MeasurementRow.utilisation,
        samples.samples_ns,
        samples.block_lengths,
        samples.facts,
    ]
    return (
        select(*columns)
        .join(SeriesRow, SeriesRow.id == MeasurementRow.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .outerjoin(
            samples,
            (samples.run_number == MeasurementRow.run_number)
            & (samples.series_id == MeasurementRow.series_id),
        )
        .where(MeasurementRow.run_number == RunRow.number)
    )


def _measurement(run: RunRow, row: _Row) -> dict[str, Any]:
    fields = _fields(Measurement, row)
    fields["bound"] = BOUNDS[row["is_memory_bound"]]
    if row["facts"] is not None:
        blocks_ns = split_blocks(row["samples_ns"], row["block_lengths"])
        blocks = [
            facts | {"samples_ns": samples_ns}
            for facts, samples_ns in zip(row["facts"]["blocks"], blocks_ns, strict=True)
        ]
        fields |= row["facts"] | {"blocks": blocks}
    elif row["outcome"] == Outcome.OK:
        raise AgedError(
            f"run {run.run_id}: its samples are no longer kept; use its record file, or the "
            f"statistics that remain here"
        )
    return fields


def _static_facts(run_number: Any = RunRow.number) -> Select[Any]:
    return (
        select(StaticFactRow.__table__, CompilationRow.compile_ns, CaseRow.name.label("case_name"))
        .select_from(CompilationRow)
        .join(StaticFactRow, StaticFactRow.id == CompilationRow.static_fact_id)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(CompilationRow.run_number == run_number)
        .order_by(CompilationRow.position)
    )


def _results(table: type[AccuracyRow | CaseDocumentRow | ImportedRow]) -> Select[Any]:
    return (
        select(table.__table__, CaseRow.name.label("case_name"))
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(table.run_number == RunRow.number)
        .order_by(table.position)
    )


_PARTS = {
    "cases": _cases(),
    "accuracies": _results(AccuracyRow),
    "tensors": select(TensorErrorRow.__table__)
    .where(TensorErrorRow.run_number == RunRow.number)
    .order_by(TensorErrorRow.position),
    "static_facts": _static_facts(),
    **{
        kind: _results(CaseDocumentRow).where(CaseDocumentRow.kind == kind)
        for kind in DOCUMENT_KINDS
    },
    "artefacts": select(RunArtefactRow.__table__)
    .where(RunArtefactRow.run_id == RunRow.run_id)
    .order_by(RunArtefactRow.position),
    "imported": _results(ImportedRow),
}
"""Queries of all parts of a record except measurements."""
_CASE_OF_PART: Mapping[str, Any] = {
    "cases": CaseVersionRow.case_id,
    "measurements": CaseVersionRow.case_id,
    "accuracies": AccuracyRow.case_id,
    "tensors": TensorErrorRow.case_id,
    "static_facts": StaticFactRow.case_id,
    **dict.fromkeys(DOCUMENT_KINDS, CaseDocumentRow.case_id),
    "imported": ImportedRow.case_id,
}
"""The case row id in the query of each part."""


def _of_case(part: type[BaseModel], row: _Row) -> dict[str, Any]:
    """Return the fields of a result, with its case by name."""
    return _fields(part, row) | {"case_id": row["case_name"]}


def _fields(part: type[BaseModel], row: _Row) -> dict[str, Any]:
    """Return the columns that are fields of a model."""
    return {name: row[name] for name in part.model_fields if name in row}
