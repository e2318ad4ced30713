"""A stored run exactly as it was sent: with what its own record said of a commit that others speak of too, and with its
times in the zone that they were written in.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from uuid import UUID

from sqlalchemy.orm import Session

from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import Commit, RunRecord
from roofwatch.db.queries.records import load_record, load_without_measurements
from roofwatch.db.schema.runs import RunRow


def load_as_sent(session: Session, run_id: UUID) -> RunRecord:
    """The record with the content hash that is stored, unless a part of it was removed since.

    A run of before revision 0009 reads back as `load_record` has it, whose commit may be another record's.

    Raises:
        AgedError: its samples are no longer kept.
        StoreError: no such run.
    """
    return _as_sent(session, run_id, load_record(session, run_id))


def load_as_sent_without_measurements(session: Session, run_id: UUID) -> RunRecord:
    """The rest of it, where its samples have aged out.

    Raises:
        StoreError: no such run.
    """
    return _as_sent(session, run_id, load_without_measurements(session, run_id))


def _as_sent(session: Session, run_id: UUID, record: RunRecord) -> RunRecord:
    as_sent = session.get_one(RunRow, run_id).as_sent
    if as_sent is None:
        return record
    said = record.model_copy(update={"commit": Commit.model_validate(as_sent["commit"])})
    offsets_s = as_sent["utc_offsets_s"]
    return _in_zones(said, offsets_s) if offsets_s else said


def _in_zones(record: RunRecord, offsets_s: Mapping[str, float]) -> RunRecord:
    def moved(time: datetime, name: str) -> datetime:
        return time.astimezone(timezone(timedelta(seconds=offsets_s.get(name, 0))))

    def measured(measurement: Measurement) -> Measurement:
        blocks = tuple(
            block.model_copy(update={"started_at": moved(block.started_at, "blocks")}) for block in measurement.blocks
        )
        return measurement.model_copy(update={"blocks": blocks})

    return record.model_copy(
        update={
            "started_at": moved(record.started_at, "started_at"),
            "finished_at": moved(record.finished_at, "finished_at"),
            "measurements": tuple(measured(measurement) for measurement in record.measurements),
        }
    )
