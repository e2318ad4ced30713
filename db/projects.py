"""Projects and their quarantines.

Records from untrusted sources are stored in a quarantine: a project of its own, which shares no
commit or case with the trusted one.
"""

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.schema.runs import ProjectRow

QUARANTINE = "?quarantine"
"""Suffix of a quarantine's name; a record's project cannot contain it."""


def delete_project(engine: Engine, name: str) -> None:
    """Delete a project and its quarantine with everything that refers to them."""
    with Session(engine) as session, session.begin():
        session.execute(
            delete(ProjectRow).where(ProjectRow.name.in_([name, quarantine_name(name)]))
        )


def lock_project(session: Session, name: str) -> int:
    """Lock a project until the transaction ends, and return its row ID. Ingest goes on meanwhile.

    Raises:
        StoreError: the project is not there.
    """
    lock = select(ProjectRow.id).where(ProjectRow.name == name).with_for_update(key_share=True)
    project_id = session.scalar(lock)
    if project_id is None:
        raise StoreError(f"project {name!r}: not in this database; ingest a record of it first")
    return project_id


def quarantine_name(project: str) -> str:
    return project + QUARANTINE


def is_quarantine(name: str) -> bool:
    return name.endswith(QUARANTINE)


def record_name(name: str) -> str:
    """The project that records name, also for its quarantine."""
    return name.removesuffix(QUARANTINE)
