"""Runs whose samples have aged out, on their way out of one store and into another: what is left of them."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, select, update
from sqlalchemy.orm import Session

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.errors import IngestError
from roofwatch.db.ingest.measurements import SUMMARY_FIELDS, load_summaries
from roofwatch.db.ingest.run_key import RunKey
from roofwatch.db.ingest.series_rows import FLAGS, Identity, note_values, series_ids
from roofwatch.db.ingest.staging import sending
from roofwatch.db.maintenance.archive import AgedRun, Summary
from roofwatch.db.schema.records import CaseRow, CaseVersionRow, MeasurementRow, RunRow, SeriesRow


def read_summaries(session: Session, run: RunRow) -> list[Summary]:
    """What is left of the run's measurements, in the order of its record."""
    query = (
        select(
            MeasurementRow.series_id,
            CaseRow.name.label("case_id"),
            SeriesRow.implementation,
            SeriesRow.timer,
            SeriesRow.cache,
            *(getattr(MeasurementRow, name) for name in SUMMARY_FIELDS),
        )
        .join(SeriesRow, SeriesRow.id == MeasurementRow.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(MeasurementRow.measured_on == run.measured_on, MeasurementRow.run_number == run.number)
    )
    found = {row.series_id: row._asdict() for row in session.execute(query)}
    degraded = set(run.degraded_series_ids)
    return [
        Summary(
            **{name: value for name, value in found[series_id].items() if name != "series_id"},
            launch_count=launch_count,
            is_degraded=series_id in degraded,
        )
        for series_id, launch_count in zip(run.series_ids, run.launch_counts, strict=True)
    ]


def store_summaries(connection: Connection, record: RunRecord, line: AgedRun) -> None:
    """Give a run that was just stored without measurements what is left of them.

    Raises:
        IngestError: one is of a case that the record does not have.
    """
    positions = {case.case_id: position for position, case in enumerate(record.cases)}
    strangers = {one.case_id for one in line.summaries} - positions.keys()
    if strangers:
        raise IngestError(f"run {record.run_id}: a measurement of a case that is not listed: {min(strangers)}")
    is_the_run = RunRow.run_id == record.run_id
    chosen = select(RunRow.number, RunRow.measured_on, RunRow.case_version_ids).where(is_the_run)
    number, measured_on, version_ids = connection.execute(chosen).one()
    series: list[int] = []
    if line.summaries:
        words = MeasurementRow.outcome.type.words
        identities = [
            Identity(version_ids[positions[one.case_id]], one.implementation, one.timer, one.cache)
            for one in line.summaries
        ]
        series = series_ids(connection, identities, record.environment.runner_class)
        rows = [one.model_dump(mode="json") | {"outcome": words.index(one.outcome)} for one in line.summaries]
        columns = [[row.get(name) for row in rows] for name in SUMMARY_FIELDS]
        with sending(connection) as send:
            send(load_summaries(RunKey(number, measured_on), series, columns))
        are_there = {flag: [row.get(name) is not None for row in rows] for flag, name in FLAGS.items()}
        note_values(connection, series, are_there)
    kept = {
        "series_ids": series,
        "launch_counts": [one.launch_count for one in line.summaries],
        "degraded_series_ids": [
            series_id for series_id, one in zip(series, line.summaries, strict=True) if one.is_degraded
        ],
        "outcome_counts": dict(Counter(one.outcome.value for one in line.summaries)),
        "samples_pruned_at": line.samples_pruned_at,
        "unread_fields": line.unread_fields,
        # they are of a record without measurements
        "identity_sha256": None,
        "flags_sha256": None,
    }
    connection.execute(update(RunRow).where(is_the_run).values(kept))
