"""Whole projects."""

from __future__ import annotations

from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session

from db.models import ProjectRow


def delete_project(engine: Engine, name: str) -> None:
    """Remove a project with all its runs and judgements; does nothing if there is none of that name."""
    with Session(engine) as session, session.begin():
        session.execute(delete(ProjectRow).where(ProjectRow.name == name))  # the foreign keys take the rest along
