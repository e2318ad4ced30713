"""A record stored as by an application that knows nothing but SQLAlchemy's mapped classes, and knows those well: it
looks up what runs share by lists of keys, once for each table, and adds an object for every row.

What Python makes of a record before (its hash, summaries, packed samples) is ours, and it is done; the rows that are
added are those that an ingest stored before, so that the tables hold the same afterwards.
"""

from __future__ import annotations

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from bench.finished_rows import Rows, make_objects
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.content import Content
from roofwatch.db.ingest.measurements import Measurements, load_samples
from roofwatch.db.ingest.run_key import RunKey
from roofwatch.db.ingest.run_row import run_values
from roofwatch.db.schema.records import CaseRow, CaseVersionRow, ProjectRow, RunRow, SeriesRow, StaticFactRow


def store_by_objects(engine: Engine, record: RunRecord, rows: Rows) -> None:
    """Do all that an ingest does; `rows` are those of the run, which is not there any more."""
    content = Content(record)
    with Session(engine) as session, session.begin():
        session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(str(record.run_id), 0))))
        assert session.scalar(select(RunRow.content_hash).where(RunRow.run_id == record.run_id)) is None
        series_ids = _look_up(session, record)
        key = RunKey(rows[RunRow][0]["number"], record.started_at.date())
        measurements = Measurements(record)
        for said in content.measurements():
            summaries = measurements.summaries(key, series_ids, said)
            assert summaries.row_count == load_samples(key, series_ids, said, said.pack()).row_count
        assert run_values(record)["run_id"] == rows[RunRow][0]["run_id"]
        assert content.hash == rows[RunRow][0]["content_hash"]
        for mapped, some in rows.items():
            session.add_all(make_objects(mapped, some))
            session.flush()


def _look_up(session: Session, record: RunRecord) -> list[int]:
    """What runs share, as objects; the ids of the series, in the order of the record."""
    project = session.scalars(select(ProjectRow).where(ProjectRow.name == record.project)).one()
    names = [case.case_id for case in record.cases]
    of_names = select(CaseRow).where(CaseRow.project_id == project.id, CaseRow.name.in_(names))
    cases = {case.name: case.id for case in session.scalars(of_names)}
    of_cases = select(CaseVersionRow).where(CaseVersionRow.case_id.in_(cases.values()))
    versions = {version.case_id: version.id for version in session.scalars(of_cases)}
    of_versions = select(SeriesRow).where(SeriesRow.case_version_id.in_(versions.values()))
    series = {(one.case_version_id, one.implementation): one.id for one in session.scalars(of_versions)}
    facts = select(StaticFactRow).where(StaticFactRow.case_id.in_(cases.values()))
    assert len(session.scalars(facts).all()) == len(record.static_facts)
    return [series[versions[cases[one.case_id]], one.implementation] for one in record.measurements]
