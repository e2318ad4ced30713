"""How far the series of a project are judged. What a standing says is the judgement's own business: it is kept as it
comes, and lost whenever there is doubt, since the history says all of it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import Engine, delete, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.schema.judgements import JudgedHistoryRow, StandingRow
from roofwatch.db.schema.records import CaseRow, ProjectRow

Subject = tuple[str, str]
"""Case id and implementation."""

_WRITE = """
    INSERT INTO standing (case_id, implementation, runner_classes, states, findings)
    SELECT "case".id, kept.implementation, ARRAY(SELECT json_array_elements_text(kept.runner_classes::json)),
        kept.states, kept.findings::json
    FROM unnest(%(names)s::text[], %(implementations)s::text[], %(runner_classes)s::text[], %(states)b::bytea[],
        %(findings)s::text[]) kept (name, implementation, runner_classes, states, findings)
    JOIN project ON project.name = %(project)s
    JOIN "case" ON "case".project_id = project.id AND "case".name = kept.name
    ON CONFLICT (case_id, implementation) DO UPDATE
    SET runner_classes = excluded.runner_classes, states = excluded.states, findings = excluded.findings
    """
"""As the driver takes it: the states as they are, which as text take ten times as long."""
_MOVE_ON = """
    UPDATE standing SET states = moved.states
    FROM unnest(%(names)s::text[], %(implementations)s::text[], %(states)b::bytea[])
        moved (name, implementation, states)
    JOIN project ON project.name = %(project)s
    JOIN "case" ON "case".project_id = project.id AND "case".name = moved.name
    WHERE standing.case_id = "case".id AND standing.implementation = moved.implementation
    """


@dataclass(frozen=True)
class KeptStanding:
    """How one case and implementation stands."""

    subject: Subject
    runner_classes: tuple[str, ...]
    """Of its series of times."""
    states: bytes
    findings: list[Any]
    """Each as JSON."""


@dataclass(frozen=True)
class JudgedHistory:
    """What the standings of a project take in."""

    method: str
    run_numbers: tuple[int, ...]
    """In the order of the branch."""
    places: tuple[int, ...]
    """First-parent counts of their commits."""
    series_by_night: Counter[date]


def read_judged_history(session: Session, project: str) -> JudgedHistory | None:
    """What was judged last; None where nothing can be gone on from."""
    row = session.scalar(
        select(JudgedHistoryRow)
        .join(ProjectRow, ProjectRow.id == JudgedHistoryRow.project_id)
        .where(ProjectRow.name == project)
    )
    if row is None:
        return None
    nights = Counter({date.fromisoformat(night): count for night, count in row.nights.items()})
    return JudgedHistory(row.method, tuple(row.run_numbers), tuple(row.places), nights)


def begin_judgement(engine: Engine, project: str) -> None:
    """Trust no standing until `keep_judged_history` says so: whatever happens meanwhile, the next judgement knows."""
    with Session(engine) as session, session.begin():
        of_project = select(ProjectRow.id).where(ProjectRow.name == project)
        session.execute(delete(JudgedHistoryRow).where(JudgedHistoryRow.project_id.in_(of_project)))


def keep_judged_history(engine: Engine, project: str, judged: JudgedHistory) -> None:
    """From now on the standings that are stored take in these runs."""
    values = {
        "method": judged.method,
        "run_numbers": list(judged.run_numbers),
        "places": list(judged.places),
        "nights": {night.isoformat(): count for night, count in judged.series_by_night.items()},
    }
    with Session(engine) as session, session.begin():
        project_id = select(ProjectRow.id).where(ProjectRow.name == project).scalar_subquery()
        keeping = upsert(JudgedHistoryRow).values(project_id=project_id, **values)
        session.execute(keeping.on_conflict_do_update(index_elements=[JudgedHistoryRow.project_id], set_=values))


def forget_standings(engine: Engine, project: str) -> None:
    """Remove all standings of a project."""
    with Session(engine) as session, session.begin():
        of_project = (
            select(CaseRow.id).join(ProjectRow, ProjectRow.id == CaseRow.project_id).where(ProjectRow.name == project)
        )
        session.execute(delete(StandingRow).where(StandingRow.case_id.in_(of_project)))


def write_standings(session: Session, project: str, standings: Sequence[KeptStanding]) -> None:
    """Put these in the place of what was known of the same cases and implementations, in the session's transaction."""
    if not standings:
        return
    values = {
        "project": project,
        "names": [one.subject[0] for one in standings],
        "implementations": [one.subject[1] for one in standings],
        "runner_classes": [json.dumps(one.runner_classes) for one in standings],
        "states": [one.states for one in standings],
        "findings": [json.dumps(one.findings) if one.findings else None for one in standings],
    }
    session.connection().exec_driver_sql(_WRITE, values)


def write_states(session: Session, project: str, states: Mapping[Subject, bytes]) -> None:
    """Move standings on that are there, in the session's transaction: what they told stays."""
    if not states:
        return
    values = {
        "project": project,
        "names": [name for name, _ in states],
        "implementations": [implementation for _, implementation in states],
        "states": list(states.values()),
    }
    session.connection().exec_driver_sql(_MOVE_ON, values)


def read_states(session: Session, project: str, subjects: Collection[Subject]) -> dict[Subject, bytes]:
    """The states of some cases and implementations; those that have none are left out."""
    names = {name for name, _ in subjects}
    query = (
        select(CaseRow.name, StandingRow.implementation, StandingRow.states)
        .join(CaseRow, CaseRow.id == StandingRow.case_id)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .where(ProjectRow.name == project, CaseRow.name.in_(names))
    )
    wanted = set(subjects)
    return {(row.name, row.implementation): row.states for row in session.execute(query) if tuple(row[:2]) in wanted}


def read_told(session: Session, project: str) -> Iterator[tuple[Subject, list[str], list[Any]]]:
    """Of all cases and implementations of a project, the runner classes of its times and the findings of what was
    judged.
    """
    query = (
        select(CaseRow.name, StandingRow.implementation, StandingRow.runner_classes, StandingRow.findings)
        .join(CaseRow, CaseRow.id == StandingRow.case_id)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .where(ProjectRow.name == project)
        .order_by(CaseRow.id, StandingRow.implementation)
    )
    for row in session.execute(query.execution_options(yield_per=2_000)):
        yield (row.name, row.implementation), row.runner_classes, row.findings or []
