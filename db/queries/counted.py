"""Hardware counters over a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from roofwatch.collector.record.results import Counters
from roofwatch.db.queries.counted_values import CountedRun
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.schema.measurements import CountersRow
from roofwatch.db.schema.runs import CaseRow, CommitRow, EnvironmentRow, ProjectRow, RunRow


def read_counted_runs(session: Session, project: str, subjects: Collection[tuple[str, str]]) -> list[CountedRun]:
    """What was counted of some cases and implementations, in the order of the branch, then of time."""
    query = (
        select(CountersRow, CaseRow.name, EnvironmentRow.runner_class, CommitRow)
        .join(CaseRow, CaseRow.id == CountersRow.case_id)
        .join(RunRow, RunRow.number == CountersRow.run_number)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            of_series(project, include_dirty=False, include_pairs=True, include_branches=False),
            CaseRow.project_id == ProjectRow.id,
            tuple_(CaseRow.name, CountersRow.implementation).in_(subjects),
        )
        .order_by(CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at, RunRow.run_id, CountersRow.position)
    )
    commits: dict[tuple[int, str, str], tuple[str, CommitRow]] = {}
    counted: dict[tuple[int, str, str], list[Counters]] = defaultdict(list)
    for row, name, runner_class, commit in session.execute(query):
        key = row.run_number, name, row.implementation
        commits[key] = runner_class, commit
        counted[key].append(
            Counters(
                case_id=name,
                implementation=row.implementation,
                function=row.function,
                launch_index=row.launch_index,
                values=row.values,
            )
        )
    return [
        CountedRun(name, implementation, commits[key][0], commits[key][1].to_ref(), tuple(counters))
        for key, counters in counted.items()
        for _, name, implementation in [key]
    ]
