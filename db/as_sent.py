"""A stored run exactly as it was sent: with what its own record said of a commit that others speak of too, and with its
times in the zone that they were written in.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from collector.measurement import Measurement
from collector.record import Commit, RunRecord
from db.models import RunRow
from db.records import load_record, load_without_measurements


def describe_as_sent(record: RunRecord) -> dict[str, Any]:
    """What `load_as_sent` needs beyond what the tables hold; kept with the run."""
    offset = record.started_at.utcoffset() or timedelta()
    return {"commit": record.commit.model_dump(mode="json"), "utc_offset_s": offset.total_seconds()}


def load_as_sent(session: Session, run_id: UUID) -> RunRecord:
    """The record with the content hash that is stored, unless a part of it was removed since.

    A run of before revision 0009 reads back as `load_record` has it, whose commit may be another record's.

    Raises:
        StoreError: no such run, or its samples were removed.
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
    return _in_zone(
        record.model_copy(update={"commit": Commit.model_validate(as_sent["commit"])}), as_sent["utc_offset_s"]
    )


def _in_zone(record: RunRecord, utc_offset_s: float) -> RunRecord:
    if not utc_offset_s:
        return record
    zone = timezone(timedelta(seconds=utc_offset_s))

    def moved(time: datetime) -> datetime:
        return time.astimezone(zone)

    def measured(measurement: Measurement) -> Measurement:
        blocks = tuple(block.model_copy(update={"started_at": moved(block.started_at)}) for block in measurement.blocks)
        return measurement.model_copy(update={"blocks": blocks})

    return record.model_copy(
        update={
            "started_at": moved(record.started_at),
            "finished_at": moved(record.finished_at),
            "measurements": tuple(measured(measurement) for measurement in record.measurements),
        }
    )
