"""The rows of one run: the run itself, and by COPY everything that it found."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import orjson
from sqlalchemy import Connection, insert

from roofwatch.db.engine.session import driver_connection
from roofwatch.db.ingest.shared_rows import SharedIds, as_json
from roofwatch.db.schema.measurements import (
    DOCUMENT_KINDS,
    AccuracyRow,
    CaseDocumentRow,
    CompilationRow,
    ImportedRow,
    MeasurementRow,
    SampleSetRow,
    TensorErrorRow,
)
from roofwatch.db.schema.runs import RunArtefactRow, RunRow
from roofwatch.db.schema.table import Base
from roofwatch.model.measurement import Measurement
from roofwatch.model.metrics import STORED
from roofwatch.model.record import RunRecord

DOCUMENT_FIELDS = {
    "ceilings",
    "commit",
    "host_digests",
    "implementation_digests",
    "is_isolated",
    "is_partial",
    "machine",
    "provenance",
    "requirements",
    "skipped",
    "source_digests",
    "source_lines",
    "spent_ns",
    "suite",
}
"""Fields of a record that `RunRow.document` holds, without defaults."""
_OF_CASE = ("run_number", "case_id", "implementation", "position")


def store_run(connection: Connection, record: RunRecord, content_hash: str, ids: SharedIds) -> None:
    """Insert a run with its results, in the caller's transaction.

    Raises:
        psycopg.Error: a value cannot be stored, or the connection is lost.
    """
    number = _insert_run(connection, record, content_hash, ids)
    measured = list(zip(ids.series, record.measurements, strict=True))

    def key(series: int) -> dict[str, object]:
        return {"run_number": number, "series_id": series}

    # one row at a time: those of all samples take more memory than the record
    _copy_rows(
        connection,
        MeasurementRow,
        (key(series) | _measurement_row(measurement) for series, measurement in measured),
    )
    _copy_rows(
        connection,
        SampleSetRow,
        (
            key(series) | _sample_row(measurement)
            for series, measurement in measured
            if _has_samples(measurement)
        ),
    )
    _copy(
        connection,
        CompilationRow,
        ("run_number", "position", "static_fact_id", "compile_ns"),
        (
            (number, position, fact_id, as_json(facts.compile_ns))
            for position, (fact_id, facts) in enumerate(
                zip(ids.static_facts, record.static_facts, strict=True)
            )
        ),
    )

    def copy_parts(table: type[Base], parts: Iterable[tuple[Any, int, Any]]) -> None:
        """Copy parts of results, each with its case, implementation and position."""
        names = [column.name for column in table.__table__.columns if column.name not in _OF_CASE]

        def rows() -> Iterator[tuple[object, ...]]:
            for owner, position, part in parts:
                values = [getattr(part, name) for name in names]
                yield number, ids.cases[owner.case_id], owner.implementation, position, *values

        _copy(connection, table, (*_OF_CASE, *names), rows())

    copy_parts(AccuracyRow, _each_as_its_own_owner(record.accuracies))
    copy_parts(
        TensorErrorRow,
        (
            (accuracy, position, tensor)
            for accuracy in record.accuracies
            for position, tensor in enumerate((*accuracy.tensors, *accuracy.regimes))
        ),
    )
    copy_parts(ImportedRow, _each_as_its_own_owner(record.imported))
    documents = {kind: getattr(record, kind) for kind in DOCUMENT_KINDS}
    _copy(
        connection,
        CaseDocumentRow,
        (*_OF_CASE, "kind", "document"),
        (
            (number, ids.cases[part.case_id], part.implementation, position, kind, as_json(part))
            for kind, parts in documents.items()
            for position, part in enumerate(parts)
        ),
    )


def _each_as_its_own_owner(results: Sequence[Any]) -> Iterator[tuple[Any, int, Any]]:
    for position, result in enumerate(results):
        yield result, position, result


def _insert_run(
    connection: Connection,
    record: RunRecord,
    content_hash: str,
    ids: SharedIds,
) -> int:
    # so that lists of runs need not count their measurements
    outcomes = Counter(measurement.outcome.value for measurement in record.measurements)
    outcomes.update(imported.outcome.value for imported in record.imported)
    telemetry = None
    if record.telemetry is not None:
        telemetry = record.telemetry.model_dump(mode="json", exclude_defaults=True)
    values = {
        "run_id": record.run_id,
        "project_id": ids.project,
        "commit_id": ids.commit,
        "environment_id": ids.environment,
        "content_hash": content_hash,
        "schema_version": record.schema_version,
        "harness_version": record.harness_version,
        "preset": record.preset,
        "branch": record.commit.branch,
        # code of another commit is no part of this commit's history either
        "is_dirty": record.commit.is_dirty or record.foreign_code is not None,
        "pair_id": record.pairing and record.pairing.pair_id,
        "pair_side": record.pairing and record.pairing.side.value,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "document": record.model_dump(mode="json", include=DOCUMENT_FIELDS, exclude_defaults=True),
        "telemetry": telemetry,
        "outcome_counts": dict(outcomes),
        "case_version_ids": list(ids.case_versions),
        "series_ids": list(ids.series),
    }
    # the number is shorter than the run's id, and part of every result's key
    number = connection.execute(insert(RunRow).values(values).returning(RunRow.number)).scalar_one()
    files = [
        {"run_id": record.run_id, "position": position, **artefact.model_dump()}
        for position, artefact in enumerate(record.artefacts)
    ]
    if files:
        connection.execute(insert(RunArtefactRow), files)
    return number


def _measurement_row(measurement: Measurement) -> dict[str, object]:
    """Columns of a measurement, without its key."""
    # None, not 0: a failed measurement has no samples
    q1_ns, q3_ns = measurement.quartiles_ns or (None, None)
    sample_count = len(measurement.samples_ns)
    is_degraded = any(
        block.device_state is not None and block.device_state.degraded_by
        for block in measurement.blocks
    )
    return {
        "outcome": measurement.outcome.value,
        "message": measurement.message,
        "median_ns": measurement.median_ns,
        "q1_ns": q1_ns,
        "q3_ns": q3_ns,
        "sample_count": sample_count or None,
        "block_count": len(measurement.blocks) or None,
        # a sample may be a group of launches
        "launch_count": sample_count * measurement.launches_per_sample,
        "is_memory_bound": None if measurement.bound is None else measurement.bound == "memory",
        "is_degraded": is_degraded,
        **{metric.key: getattr(measurement, metric.key) for metric in STORED},
    }


def _has_samples(measurement: Measurement) -> bool:
    """Whether a measurement has anything that is stored with its samples."""
    return bool(
        measurement.blocks
        or measurement.memory is not None
        or measurement.autotuning
        or measurement.launches_per_sample != 1
        or measurement.reference_ns is not None
    )


def _sample_row(measurement: Measurement) -> dict[str, object]:
    """Columns of a measurement's samples, without their key."""
    facts = measurement.model_dump(
        mode="json",
        exclude_defaults=True,
        include={"launches_per_sample", "memory", "autotuning", "reference_ns"},
    )
    facts["blocks"] = [
        block.model_dump(mode="json", exclude_defaults=True, exclude={"samples_ns"})
        for block in measurement.blocks
    ]
    return {
        "samples_ns": _array(measurement.samples_ns),
        "block_lengths": [len(block.samples_ns) for block in measurement.blocks],
        "facts": as_json(facts),
    }


def _array(numbers: Sequence[float]) -> str:
    """Write an array of Postgres; the driver's own way takes ten times as long."""
    return "{" + orjson.dumps(numbers)[1:-1].decode() + "}"


def _copy_rows(
    connection: Connection,
    table: type[Base],
    rows: Iterator[dict[str, object]],
) -> None:
    """Copy rows that all have the same columns."""
    first = next(rows, None)
    if first is not None:
        values = (tuple(row.values()) for row in chain([first], rows))
        _copy(connection, table, tuple(first), values)


def _copy(
    connection: Connection,
    table: type[Base],
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> None:
    names = ", ".join(f'"{name}"' for name in columns)
    statement = f"COPY {table.__tablename__} ({names}) FROM STDIN"
    with driver_connection(connection).cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for row in rows:
            copy.write_row(row)
