"""What the last analysis found in each case, and which cases changed since."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, Engine, Text, cast, delete, func, insert, literal, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.schema.analysis import CaseAnalysisRow, CaseChangeRow
from roofwatch.db.schema.run_filter import default_branch, project_id
from roofwatch.db.schema.runs import CaseRow
from roofwatch.model.case_analysis import CaseAnalysis


@dataclass(frozen=True)
class DueCases:
    """What a new analysis has to look at."""

    basis: str
    case_ids: Sequence[int]
    change_ids: Sequence[int]
    """The changes that this analysis covers."""


def note_changed_cases(connection: Connection, project: int, case_ids: Collection[int]) -> None:
    """Note that cases of a project (row ids) have other values now."""
    if not case_ids:  # a run may have no results
        return
    rows = select(literal(project), func.unnest(sorted(case_ids)))
    connection.execute(insert(CaseChangeRow).from_select(["project_id", "case_id"], rows))


def note_changed_project(connection: Connection, project: int) -> None:
    """Note that all cases of a project have to be analysed again."""
    connection.execute(insert(CaseChangeRow).values(project_id=project))


def list_due(session: Session, project: str, method: str, row_ids: Sequence[int]) -> DueCases:
    """List the cases, of all row ids, that changed since their analysis or were analysed on another
    basis: another method, or another default branch.
    """
    branch = session.scalar(select(default_branch(project)))
    basis = f"{method} {branch or ''}"
    query = select(CaseChangeRow.id, CaseChangeRow.case_id)
    changes = session.execute(query.where(CaseChangeRow.project_id == project_id(project))).all()
    changed_ids = {case_id for _, case_id in changes}
    analysed = (
        select(CaseAnalysisRow.case_id)
        .join(CaseRow, CaseRow.id == CaseAnalysisRow.case_id)
        .where(CaseRow.project_id == project_id(project), CaseAnalysisRow.basis == basis)
    )
    # a change without a case is one of the whole project
    if None in changed_ids:
        current = set()
    else:
        current = set(session.scalars(analysed)) - changed_ids
    due = [row_id for row_id in row_ids if row_id not in current]
    return DueCases(basis, due, [change_id for change_id, _ in changes])


def write_case_analyses(engine: Engine, due: DueCases, analyses: Iterable[CaseAnalysis]) -> None:
    """Store analyses and forget the changes that they cover, in one transaction."""
    # in one transaction with the removal of the changes: they stay if this fails
    with engine.begin() as connection:
        rows = [
            {
                "case_id": analysis.case_id,
                "basis": due.basis,
                "findings": orjson.loads(analysis.findings),
                "series": orjson.loads(analysis.series),
                "days": analysis.days,
                "controls": orjson.loads(analysis.controls),
            }
            for analysis in analyses
        ]
        if rows:
            new = upsert(CaseAnalysisRow)
            columns = ("basis", "findings", "series", "days", "controls")
            values = {name: getattr(new.excluded, name) for name in columns}
            connection.execute(
                new.on_conflict_do_update(index_elements=["case_id"], set_=values), rows
            )
        # changes noted meanwhile wait for the next analysis
        covered = CaseChangeRow.id.in_(due.change_ids)
        connection.execute(delete(CaseChangeRow).where(covered))


def read_case_analyses(session: Session, project: str) -> list[CaseAnalysis]:
    """Read the analyses of all cases of a project."""
    # as text: the analysis parses them, and most of them not at all
    row = CaseAnalysisRow
    query = (
        select(
            row.case_id,
            cast(row.findings, Text),
            cast(row.series, Text),
            row.days,
            cast(row.controls, Text),
        )
        .join(CaseRow, CaseRow.id == row.case_id)
        .where(CaseRow.project_id == project_id(project))
        .order_by(row.case_id)
    )
    return [
        CaseAnalysis(
            case_id=case_id,
            findings=findings.encode(),
            series=series.encode(),
            days=bytes(days),
            controls=controls.encode(),
        )
        for case_id, findings, series, days, controls in session.execute(query)
    ]
