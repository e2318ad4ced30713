"""What stands measured on each runner class: one statement, whose cost is that of the newest run of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Select, Subquery, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH, aggregate_order_by
from sqlalchemy.orm import Session

from collector.part import Outcome
from db.coverage_values import CaseStanding, RunnerStanding
from db.models import CaseRow, CommitRow, EnvironmentRow, MeasurementRow, ProjectRow, RunCaseRow, RunRow

_TIMES_KEPT = 51
"""Of results: fifty gaps between them say what is usual."""
_DEGRADED = "$[*].device_state.degraded_by[*]"


def list_runner_standings(session: Session, project: str) -> list[RunnerStanding]:
    """Every runner class that ever gave a result of the project, by name."""
    newest_first = aggregate_order_by(RunRow.run_id, RunRow.started_at.desc())
    is_whole = ~RunRow.is_dirty & RunRow.pair_id.is_(None)
    times = func.array_agg(aggregate_order_by(RunRow.started_at, RunRow.started_at.desc()))
    runner = (
        select(
            EnvironmentRow.runner_class,
            func.min(EnvironmentRow.device_name).label("device_name"),
            times.label("times"),
            func.array_agg(newest_first).filter(is_whole).label("run_ids"),
        )
        .select_from(RunRow)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(ProjectRow.name == project)
        .group_by(EnvironmentRow.runner_class)
        .order_by(EnvironmentRow.runner_class)
        .cte("runner")
    )
    run_id = runner.c.run_ids[1]
    cases = _cases_of(select(run_id))
    kept: Any = runner.c.times[1:_TIMES_KEPT]
    query = (
        select(runner.c.runner_class, runner.c.device_name, kept, run_id, cases.c.facts)
        .select_from(runner)
        .outerjoin(cases, cases.c.run_id == run_id)
        .order_by(runner.c.runner_class)
    )
    return [_standing(*row) for row in session.execute(query)]


def _cases_of(run_ids: Select[Any]) -> Subquery:
    """The cases of each run as a document, since there are thousands of them to a few runs."""
    degraded = func.jsonb_path_exists(cast(MeasurementRow.block_facts, JSONB), cast(_DEGRADED, JSONPATH))
    ended = func.array_agg(MeasurementRow.outcome.distinct()).filter(MeasurementRow.outcome.is_not(None))
    count = func.count(MeasurementRow.outcome)
    by_case = (
        select(
            RunCaseRow.run_id,
            CaseRow.name,
            ended.label("outcomes"),
            count.label("count"),
            count.filter(degraded).label("degraded"),
        )
        .select_from(RunCaseRow)
        .join(CaseRow, CaseRow.id == RunCaseRow.case_id)
        .outerjoin(
            MeasurementRow,
            (MeasurementRow.run_id == RunCaseRow.run_id) & (MeasurementRow.case_id == RunCaseRow.case_id),
        )
        .where(RunCaseRow.run_id.in_(run_ids))
        .group_by(RunCaseRow.run_id, CaseRow.name)
        .subquery()
    )
    facts = (by_case.c.name, by_case.c.outcomes, by_case.c.count, by_case.c.degraded)
    document = func.json_agg(func.json_build_array(*facts)).label("facts")
    return select(by_case.c.run_id, document).group_by(by_case.c.run_id).subquery()


def _standing(
    runner_class: str, device_name: str, times: list[datetime], run_id: object, cases: list[list[Any]] | None
) -> RunnerStanding:
    return RunnerStanding(
        runner_class=runner_class,
        device_name=device_name,
        result_times=tuple(times),
        run_id=None if run_id is None else str(run_id),
        cases=tuple(
            CaseStanding(case_id, frozenset(map(Outcome, outcomes or ())), count, degraded_count)
            for case_id, outcomes, count, degraded_count in cases or ()
        ),
    )
