"""Measurements of a record on their way into the store: the summary of each, and its samples, packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from collector.measurement import Measurement, measured_values
from collector.part import Outcome
from collector.record import RunRecord
from db.storing.samples import SamplePacker, SampleSet
from db.storing.shared_rows import in_utc
from db.storing.staging import Stage, stage_rows
from db.tables.records import MeasurementRow

_MEASUREMENTS = Stage(
    "staged_measurement",
    {
        "position": "int4",
        "case_position": "int4",
        "implementation": "text",
        "timer": "text",
        "cache": "text",
        "outcome": "int2",
        "message": "text",
        "median_ns": "float8",
        "below_ns": "float4",
        "above_ns": "float4",
        "sample_count": "int4",
        "block_count": "int2",
        "utilisation": "float8",
        "joules_per_launch": "float8",
        "is_memory_bound": "bool",
        "content": "bytea",
    },
)
_MORE = {"blocks", "memory", "autotuning", "launches_per_sample"}
"""Fields that are packed, where they are not at their defaults."""
_OF_STAGED = """
    FROM staged_measurement staged
    JOIN unnest(CAST(:series_ids AS int[])) WITH ORDINALITY series (id, number) ON number = staged.position + 1
"""
_STORE = text(
    f"""
    INSERT INTO measurement (median_ns, utilisation, joules_per_launch, below_ns, above_ns, run_number, series_id,
        measured_on, sample_count, block_count, outcome, is_memory_bound, message)
    SELECT median_ns, utilisation, joules_per_launch, below_ns, above_ns, :run_number, series.id,
        :measured_on, sample_count, block_count, outcome, is_memory_bound, message
    {_OF_STAGED}
    ORDER BY staged.position
    """
)
_STORE_SAMPLES = text(
    f"""
    INSERT INTO sample_set (run_number, series_id, measured_on, content)
    SELECT :run_number, series.id, :measured_on, content
    {_OF_STAGED}
    WHERE content IS NOT NULL
    ORDER BY staged.position
    """
)


def stage_measurements(connection: Connection, record: RunRecord, said: Mapping[str, Any]) -> None:
    """Send them, for `shared_rows.series_ids` to look at and `store_measurements` to store; `said` is what the record
    says of itself.
    """
    stage_rows(connection, _MEASUREMENTS, _rows(record, said))


def stage_summaries(connection: Connection, rows: Iterable[Mapping[str, object]]) -> None:
    """Send what is left of measurements whose samples have aged out: values by the names of the columns."""
    stage_rows(connection, _MEASUREMENTS, ([row.get(name) for name in _MEASUREMENTS.columns] for row in rows))


def store_measurements(connection: Connection, run_number: int, measured_on: date, series_ids: Sequence[int]) -> None:
    """Store what was staged."""
    parameters = {"run_number": run_number, "measured_on": measured_on, "series_ids": list(series_ids)}
    connection.execute(_STORE, parameters)
    connection.execute(_STORE_SAMPLES, parameters)


def towards_zero(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """In single precision, none larger than it was."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
        return np.where(rounded > values, np.nextafter(rounded, np.float32(0)), rounded)


def bound_of(*, is_memory_bound: bool | None) -> Literal["memory", "compute"] | None:
    """The word for what is stored."""
    if is_memory_bound is None:
        return None
    return "memory" if is_memory_bound else "compute"


def _rows(record: RunRecord, said: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    measurements = record.measurements
    cases = {case.case_id: case for case in record.cases}
    case_positions = {case.case_id: position for position, case in enumerate(record.cases)}
    values = [measured_values(one, cases[one.case_id]) for one in measurements]
    quartiles = [one.quartiles_ns or (0.0, 0.0) for one in measurements]
    medians = np.array([one.get("median_ns", 0.0) for one in values])
    # a quartile so small that the difference is the median itself is still above zero
    below = towards_zero(np.minimum(medians - [low for low, _ in quartiles], np.nextafter(medians, 0))).tolist()
    above = towards_zero([high for _, high in quartiles] - medians).tolist()
    codes = {outcome: MeasurementRow.outcome.type.words.index(outcome) for outcome in Outcome}
    packer = SamplePacker()
    for position, (one, document) in enumerate(zip(measurements, said["measurements"], strict=True)):
        is_ok = one.outcome is Outcome.OK
        sample_set = _sample_set(one, document)
        yield (
            position,
            case_positions[one.case_id],
            one.implementation,
            one.timer.value,
            one.cache.value,
            codes[one.outcome],
            one.message,
            values[position].get("median_ns"),
            below[position] if is_ok else None,
            above[position] if is_ok else None,
            len(sample_set.samples_ns) if is_ok else None,
            len(sample_set.lengths) if is_ok else None,
            values[position].get("utilisation"),
            values[position].get("joules_per_launch"),
            None if one.bound is None else one.bound == "memory",
            packer.pack(sample_set) if _MORE & document.keys() else None,
        )


def _sample_set(measurement: Measurement, document: Mapping[str, Any]) -> SampleSet:
    blocks = measurement.blocks
    # of what the document says of a block, all but what is kept beside the facts
    facts = [block.copy() for block in document.get("blocks", ())]
    samples: list[float] = []
    for fact in facts:
        del fact["started_at"]
        samples += fact.pop("samples_ns")
    return SampleSet(
        launches_per_sample=measurement.launches_per_sample,
        memory=document.get("memory"),
        autotuning=document.get("autotuning", []),
        started_at=[in_utc(block.started_at).isoformat() for block in blocks],
        lengths=[len(block.samples_ns) for block in blocks],
        facts=facts,
        samples_ns=np.array(samples, dtype=np.float64),
    )
