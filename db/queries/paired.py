"""Cases that were measured in pairs, or one commit with several drivers or toolchains."""

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from roofwatch.db.schema.measurements import SampleSetRow, SeriesRow
from roofwatch.db.schema.run_filter import is_in_series
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, EnvironmentRow, RunRow
from roofwatch.model.record import Side


def list_paired(session: Session, project: str, row_ids: Collection[int]) -> set[tuple[str, str]]:
    """List case id and implementation of the times that pairs of two commits measured, of some
    cases (by row id).
    """
    head = aliased(RunRow)
    query = (
        select(CaseRow.name, SeriesRow.implementation)
        .select_from(RunRow)
        .join(head, (head.pair_id == RunRow.pair_id) & (head.commit_id != RunRow.commit_id))
        .join(SampleSetRow, SampleSetRow.run_number == RunRow.number)
        .join(SeriesRow, SeriesRow.id == SampleSetRow.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(
            is_in_series(project, include_pairs=True),
            RunRow.pair_side == Side.BASE.value,
            CaseRow.id.in_(row_ids),
        )
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def list_bridged(session: Session, project: str, row_ids: Collection[int]) -> set[tuple[str, str]]:
    """List case id and implementation of the times that several drivers or toolchains measured at
    one commit, of some cases (by row id).
    """
    environment = EnvironmentRow
    software = func.concat_ws(
        " ",
        environment.driver_version,
        environment.torch_version,
        environment.triton_version,
        environment.cuda_version,
        environment.python_version,
    )
    query = (
        select(CaseRow.name, SeriesRow.implementation)
        .select_from(RunRow)
        .join(environment, environment.id == RunRow.environment_id)
        .join(SampleSetRow, SampleSetRow.run_number == RunRow.number)
        .join(SeriesRow, SeriesRow.id == SampleSetRow.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(is_in_series(project, include_pairs=True), CaseRow.id.in_(row_ids))
        .group_by(
            CaseRow.name,
            SeriesRow.implementation,
            SeriesRow.runner_class,
            RunRow.commit_id,
        )
        .having(func.count(func.distinct(software)) > 1)
    )
    return {(name, implementation) for name, implementation in session.execute(query)}
