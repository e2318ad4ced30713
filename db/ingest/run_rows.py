"""The rows of one run: the run itself, and by COPY everything that it found."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray
from sqlalchemy import Connection, insert

from roofwatch.db.engine.session import driver_connection
from roofwatch.db.ingest.shared_rows import SharedIds, as_json
from roofwatch.db.schema.measurements import (
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
from roofwatch.model.record import RunRecord

_MEASUREMENT = (
    "run_number",
    "series_id",
    "outcome",
    "message",
    "median_ns",
    "q1_ns",
    "q3_ns",
    "sample_count",
    "block_count",
    "utilisation",
    "joules_per_launch",
    "is_memory_bound",
    "host_ns",
    "peak_allocated_bytes",
    "launch_count",
    "is_degraded",
)
DOCUMENT_FIELDS = {"commit", "ceilings", "spent_ns", "suite", "source_lines", "skipped"}
"""Fields of a record that `RunRow.document` holds, without defaults."""
_OF_CASE = ("run_number", "case_id", "implementation", "position")
_HEAD_LENGTH_BYTES = 4
_DOUBLE_BYTES = 8


def store_run(connection: Connection, record: RunRecord, content_hash: str, ids: SharedIds) -> None:
    """Insert a run with its results, in the caller's transaction.

    Raises:
        psycopg.Error: a value cannot be stored, or the connection is lost.
    """
    number = _insert_run(connection, record, content_hash, ids)
    measured = list(zip(ids.series, record.measurements, strict=True))
    _copy(
        connection,
        MeasurementRow,
        _MEASUREMENT,
        ((number, series, *_summary(one)) for series, one in measured),
    )
    _copy(
        connection,
        SampleSetRow,
        ("run_number", "series_id", "content"),
        (
            (number, series, pack_samples(_sample_set(one)))
            for series, one in measured
            if _has_samples(one)
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
        names = [name for name in table.__table__.columns.keys() if name not in _OF_CASE]  # noqa: SIM118
        rows = (
            (
                number,
                ids.cases[owner.case_id],
                owner.implementation,
                position,
                *(getattr(part, name) for name in names),
            )
            for owner, position, part in parts
        )
        _copy(connection, table, (*_OF_CASE, *names), rows)

    copy_parts(AccuracyRow, ((one, at, one) for at, one in enumerate(record.accuracies)))
    copy_parts(
        TensorErrorRow,
        ((one, at, part) for one in record.accuracies for at, part in enumerate(one.tensors)),
    )
    copy_parts(ImportedRow, ((one, at, one) for at, one in enumerate(record.imported)))
    documents = {"counters": record.counters, "profiles": record.profiles}
    _copy(
        connection,
        CaseDocumentRow,
        (*_OF_CASE, "kind", "document"),
        (
            (number, ids.cases[one.case_id], one.implementation, position, kind, as_json(one))
            for kind, parts in documents.items()
            for position, one in enumerate(parts)
        ),
    )


def _insert_run(
    connection: Connection, record: RunRecord, content_hash: str, ids: SharedIds
) -> int:
    outcomes = [one.outcome for one in record.measurements] + [
        one.outcome for one in record.imported
    ]
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
        "is_dirty": record.commit.is_dirty,
        "pair_id": record.pairing and record.pairing.pair_id,
        "pair_side": record.pairing and record.pairing.side.value,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "document": record.model_dump(mode="json", include=DOCUMENT_FIELDS, exclude_defaults=True),
        "telemetry": None if record.telemetry is None else orjson.loads(as_json(record.telemetry)),
        "outcome_counts": dict(Counter(map(str, outcomes))),
        "case_version_ids": list(ids.case_versions),
        "series_ids": list(ids.series),
    }
    number = connection.execute(insert(RunRow).values(values).returning(RunRow.number)).scalar_one()
    files = [
        {"run_id": record.run_id, "position": position, **artefact.model_dump()}
        for position, artefact in enumerate(record.artefacts)
    ]
    if files:
        connection.execute(insert(RunArtefactRow), files)
    return number


def _summary(one: Measurement) -> tuple[object, ...]:
    """Values of a measurement's row, without samples."""
    q1_ns, q3_ns = one.quartiles_ns or (None, None)
    # a failed launch proves nothing about its memory
    memory = one.memory if one.blocks else None
    return (
        one.outcome.value,
        one.message,
        one.median_ns,
        q1_ns,
        q3_ns,
        len(one.samples_ns) or None,
        len(one.blocks) or None,
        one.utilisation,
        one.joules_per_launch,
        None if one.bound is None else one.bound == "memory",
        one.host_ns,
        None if memory is None else memory.peak_allocated_bytes,
        len(one.samples_ns) * one.launches_per_sample,
        any(
            block.device_state is not None and block.device_state.degraded_by
            for block in one.blocks
        ),
    )


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


# --- samples


@dataclass(frozen=True)
class SampleSet:
    """A measurement's samples and what was seen while they were taken, packed without losing a bit.

    The layout, inside one zstd frame: length of the head in 4 bytes, little-endian; the head, in
    JSON; the samples of all blocks as doubles, the first bytes of all of them, then the second
    bytes, and so on. Times of one kernel differ only in their last bytes, so equal bytes lie
    together and compress.
    """

    launches_per_sample: int
    memory: dict[str, Any] | None
    """Fields at their defaults are left out, as in all that follows."""
    autotuning: Sequence[dict[str, Any]]
    started_at: Sequence[datetime] | Sequence[str]
    """Start of each block, in UTC."""
    lengths: Sequence[int]
    """Samples of each block."""
    facts: Sequence[dict[str, Any]]
    """What else each block says."""
    samples_ns: NDArray[np.float64]
    """One block after the other."""

    def blocks_ns(self) -> tuple[tuple[float, ...], ...]:
        samples = self.samples_ns.tolist()
        bounds = pairwise(accumulate(self.lengths, initial=0))
        return tuple(tuple(samples[begin:end]) for begin, end in bounds)

    def blocks(self) -> list[dict[str, Any]]:
        """As a record has them."""
        return [
            {"started_at": started_at, "samples_ns": samples_ns, **facts}
            for started_at, samples_ns, facts in zip(
                self.started_at, self.blocks_ns(), self.facts, strict=True
            )
        ]


def _has_samples(one: Measurement) -> bool:
    """Whether a measurement has anything that is stored with its samples."""
    return bool(
        one.blocks or one.memory is not None or one.autotuning or one.launches_per_sample != 1
    )


def _sample_set(one: Measurement) -> SampleSet:
    return SampleSet(
        launches_per_sample=one.launches_per_sample,
        memory=None if one.memory is None else one.memory.model_dump(exclude_defaults=True),
        autotuning=[tuning.model_dump(exclude_defaults=True) for tuning in one.autotuning],
        started_at=[block.started_at for block in one.blocks],
        lengths=[len(block.samples_ns) for block in one.blocks],
        facts=[
            block.model_dump(exclude_defaults=True, exclude={"started_at", "samples_ns"})
            for block in one.blocks
        ],
        samples_ns=np.array(one.samples_ns, dtype=np.float64),
    )


def pack_samples(sample_set: SampleSet) -> bytes:
    fields = {name: value for name, value in vars(sample_set).items() if name != "samples_ns"}
    head = orjson.dumps(fields, option=orjson.OPT_UTC_Z)
    doubles = np.ascontiguousarray(sample_set.samples_ns, dtype="<f8").view(np.uint8)
    shuffled = doubles.reshape(-1, _DOUBLE_BYTES).T.tobytes()
    whole = len(head).to_bytes(_HEAD_LENGTH_BYTES, "little") + head + shuffled
    return zstandard.ZstdCompressor(level=1).compress(whole)


def unpack_samples(content: bytes) -> SampleSet:
    whole = zstandard.ZstdDecompressor().decompress(content)
    begin = _HEAD_LENGTH_BYTES + int.from_bytes(whole[:_HEAD_LENGTH_BYTES], "little")
    shuffled = np.frombuffer(whole, dtype=np.uint8, offset=begin).reshape(_DOUBLE_BYTES, -1)
    samples = np.ascontiguousarray(shuffled.T).view("<f8").reshape(-1)
    return SampleSet(**orjson.loads(whole[_HEAD_LENGTH_BYTES:begin]), samples_ns=samples)
