"""The results of a run: measurements, samples, checks, profiles, compilations and counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection

from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.copy import copy_rows
from roofwatch.db.ingest.run_row import RunKey, SharedIds
from roofwatch.db.ingest.samples import SampleSet, pack
from roofwatch.db.ingest.shared_rows import as_json, in_utc
from roofwatch.db.schema.measurements import MeasurementRow

_OF_RUN = ("run_number", "measured_on")
_OF_CASE = (*_OF_RUN, "case_id", "implementation", "position")
_MEASUREMENT = (
    *("outcome", "message", "median_ns", "q1_ns", "q3_ns", "sample_count", "block_count"),
    *("utilisation", "joules_per_launch", "is_memory_bound", "host_ns", "peak_allocated_bytes"),
)
_CHECK = ("executor", "outcome", "message")
_TENSOR = ("tensor", "max_abs_error", "rmse_ratio", "baseline_rmse_ratio", "passed")
_PROFILE = ("source", "call_count", "span_ns", "busy_ns", "launch_delay_ns", "left_out_count", "left_out_ns")
_ACTIVITY = (
    *("kind", "name", "device", "count", "total_ns", "max_ns", "bytes", "registers", "shared_bytes"),
    *("estimated_occupancy", "configuration_count", "grid", "block"),
)
_OUTCOME_CODES = {word: code for code, word in enumerate(MeasurementRow.outcome.type.words)}


def store_results(connection: Connection, record: RunRecord, key: RunKey, ids: SharedIds) -> None:
    """Store all that a run found, in the transaction that stored the run.

    Raises:
        psycopg.Error: a value cannot be stored, or the connection is lost.
    """
    measured = list(zip(ids.series, record.measurements, strict=True))
    columns = (*_OF_RUN, "series_id")
    copy_rows(
        connection,
        "measurement",
        (*columns, *_MEASUREMENT),
        ((*key, series, *_summary(one)) for series, one in measured),
    )
    copy_rows(
        connection,
        "sample_set",
        (*columns, "content"),
        ((*key, series, pack(_sample_set(one))) for series, one in measured if _has_samples(one)),
    )
    _store_parts(connection, "accuracy", _CHECK, record.accuracies, key, ids)
    _store_inner(connection, "tensor_error", _TENSOR, [(one, one.tensors) for one in record.accuracies], key, ids)
    _store_parts(connection, "profile", _PROFILE, record.profiles, key, ids)
    _store_inner(connection, "profile_row", _ACTIVITY, [(one, one.rows) for one in record.profiles], key, ids)
    copy_rows(
        connection,
        "compilation",
        (*_OF_RUN, "position", "static_fact_id", "compile_ns"),
        (
            (*key, position, fact_id, as_json(facts.compile_ns))
            for position, (fact_id, facts) in enumerate(zip(ids.static_facts, record.static_facts, strict=True))
        ),
    )
    copy_rows(
        connection,
        "counters",
        (*_OF_CASE, "function", "launch_index", "source", "values", "findings"),
        _counter_rows(record, key, ids),
    )


def _summary(one: Measurement) -> tuple[object, ...]:
    q1_ns, q3_ns = one.quartiles_ns or (None, None)
    # a launch that failed says nothing of what it takes
    memory = one.memory if one.blocks else None
    return (
        *(_OUTCOME_CODES[one.outcome], one.message, one.median_ns, q1_ns, q3_ns),
        *(len(one.samples_ns) or None, len(one.blocks) or None, one.utilisation, one.joules_per_launch),
        None if one.bound is None else one.bound == "memory",
        one.host_ns,
        None if memory is None else memory.peak_allocated_bytes,
    )


def _has_samples(one: Measurement) -> bool:
    """Whether something of the measurement is kept with its samples."""
    return bool(one.blocks or one.memory is not None or one.autotuning or one.launches_per_sample != 1)


def _sample_set(one: Measurement) -> SampleSet:
    return SampleSet(
        launches_per_sample=one.launches_per_sample,
        memory=None if one.memory is None else one.memory.model_dump(exclude_defaults=True),
        autotuning=[tuning.model_dump(exclude_defaults=True) for tuning in one.autotuning],
        started_at=[in_utc(block.started_at) for block in one.blocks],
        lengths=[len(block.samples_ns) for block in one.blocks],
        facts=[block.model_dump(exclude_defaults=True, exclude={"started_at", "samples_ns"}) for block in one.blocks],
        samples_ns=np.array(one.samples_ns, dtype=np.float64),
    )


def _store_parts(
    connection: Connection, table: str, fields: Sequence[str], parts: Sequence[Any], key: RunKey, ids: SharedIds
) -> None:
    """A row for each part, with its case and its place among its kind."""
    rows = (
        (*key, ids.cases[part.case_id], part.implementation, position, *_values(part, fields))
        for position, part in enumerate(parts)
    )
    copy_rows(connection, table, (*_OF_CASE, *fields), rows)


def _store_inner(
    connection: Connection,
    table: str,
    fields: Sequence[str],
    parts: Sequence[tuple[Any, Sequence[Any]]],
    key: RunKey,
    ids: SharedIds,
) -> None:
    """A row for each part of a part, with its place in that."""
    rows = (
        (*key, ids.cases[part.case_id], part.implementation, position, *_values(inner, fields))
        for part, inners in parts
        for position, inner in enumerate(inners)
    )
    copy_rows(connection, table, (*_OF_CASE, *fields), rows)


def _values(part: Any, fields: Sequence[str]) -> Iterator[object]:
    for name in fields:
        value = getattr(part, name)
        yield list(value) if isinstance(value, tuple) else value


def _counter_rows(record: RunRecord, key: RunKey, ids: SharedIds) -> Iterator[tuple[object, ...]]:
    for position, one in enumerate(record.counters):
        findings = [finding.model_dump(mode="json", exclude_defaults=True) for finding in one.findings]
        of_case = (*key, ids.cases[one.case_id], one.implementation, position)
        yield *of_case, one.function, one.launch_index, one.source, as_json(one.values), as_json(findings)
