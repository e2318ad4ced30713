"""Whole projects. Records that nobody vouches for are kept in a project of their own beside the one that they speak of,
its quarantine: they share no commit or case with it, so nothing that they say can move or block what is trusted.
"""

from __future__ import annotations

from sqlalchemy import Engine, delete, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.schema.runs import ProjectRow

QUARANTINE = "?quarantine"
"""How the name of every quarantine ends; no project of a record can have such a name."""


def delete_project(engine: Engine, name: str) -> None:
    """Remove a project with all its runs and judgements and its quarantine; does nothing if there is none."""
    with Session(engine) as session, session.begin():
        both = ProjectRow.name.in_([name, quarantine_name(name)])
        session.execute(delete(ProjectRow).where(both))  # the foreign keys take the rest along


def ensure_project(session: Session, name: str) -> int:
    """The number of a project's row, which is made if it is not there, and is there until the transaction ends."""
    session.execute(upsert(ProjectRow).values(name=name).on_conflict_do_nothing())
    lock = select(ProjectRow.id).where(ProjectRow.name == name).with_for_update(key_share=True)
    return session.scalars(lock).one()


def quarantine_name(project: str) -> str:
    """What a project's quarantine is called in the database."""
    return project + QUARANTINE


def is_quarantine(name: str) -> bool:
    return name.endswith(QUARANTINE)


def record_name(name: str) -> str:
    """The project that records speak of: for a quarantine that of which it is."""
    return name.removesuffix(QUARANTINE)
