"""The times of one case wherever it ran, with what was seen of the device, in one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.ingest.samples import unpack
from roofwatch.db.queries.conditions import Conditions, conditions_of
from roofwatch.db.queries.filters import Narrowing
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.schema.measurements import MeasurementRow, SampleSetRow, SeriesRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, ProjectRow, RunRow
from roofwatch.db.values import Series, SeriesKey, SeriesPoint


def read_case_history(
    session: Session,
    project: str,
    case_id: str,
    *,
    limit: int,
    include_pairs: bool = False,
    include_branches: bool = False,
    runner_classes: Collection[str] = (),
    branches: Collection[str] = (),
) -> list[Series]:
    """A series of times for each implementation and runner class, in the order of their keys.

    Args:
        session: Of the store.
        project: Its name.
        case_id: The case.
        limit: Points in all, the newest.
        include_pairs: Also runs that are one side of a pair.
        include_branches: Also runs of other branches than the project's own.
        runner_classes: Only on these; any where none is named.
        branches: Only runs of commits that were measured under the name of one of these; likewise.
    """
    of_runs = of_series(project, include_dirty=False, include_pairs=include_pairs, include_branches=include_branches)
    narrowing = Narrowing(project, runner_classes, branches)
    table, samples = MeasurementRow, SampleSetRow
    query = (
        select(
            *(RunRow.run_id, RunRow.started_at, CommitRow, SeriesRow.runner_class, SeriesRow.implementation),
            *(table.outcome, table.message, table.median_ns, table.q1_ns.label("low_ns"), table.q3_ns.label("high_ns")),
            samples.content,
        )
        .select_from(table)
        .join(SeriesRow, SeriesRow.id == table.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .join(RunRow, RunRow.number == table.run_number)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .outerjoin(
            samples,
            (samples.measured_on == table.measured_on)
            & (samples.run_number == table.run_number)
            & (samples.series_id == table.series_id),
        )
        .where(of_runs, CaseRow.name == case_id, narrowing.admits(RunRow, SeriesRow))
        .order_by(RunRow.started_at.desc(), RunRow.run_id)
        .limit(limit)
    )
    points: defaultdict[SeriesKey, list[SeriesPoint]] = defaultdict(list)
    for row in session.execute(query):
        key = SeriesKey(project, case_id, row.implementation, "median_ns", runner_class=row.runner_class)
        points[key].append(
            SeriesPoint(
                commit=row.CommitRow.to_ref(),
                run_id=str(row.run_id),
                measured_at=row.started_at,
                outcome=Outcome(row.outcome),
                message=row.message,
                value=row.median_ns,
                low=row.low_ns,
                high=row.high_ns,
                **_conditions(row.content),
            )
        )
    return [
        Series(key, tuple(sorted(points[key], key=lambda point: (point.commit, point.measured_at, point.run_id))))
        for key in sorted(points)
    ]


def _conditions(content: bytes | None) -> Conditions:
    """Of samples that have aged out nothing is known."""
    if content is None:
        return conditions_of((), ())
    samples = unpack(content)
    return conditions_of(samples.facts, samples.autotuning)
