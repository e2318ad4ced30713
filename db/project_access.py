"""Which projects are restricted, and who may read them.

A reader is `name@example.com`, `@example.com`, `group:NAME` of an identity provider, or
`role:NAME` of Postgres, which reads the views for other tools.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import record_name
from roofwatch.db.schema.access import ProjectAccessRow
from roofwatch.db.schema.subjects import ProjectNames

EVERY_PROJECT = "*"
"""Restricts each project that is not restricted by its own name."""

_READER = re.compile(r"(group|role):.+|[^@\s:]*@[^@\s]+")


@dataclass(frozen=True)
class ProjectAccess:
    """Who may read which project."""

    readers: Mapping[str, frozenset[str]]
    """By restricted project, or `EVERY_PROJECT`."""

    def may_read(self, project: str, reader_names: Collection[str]) -> bool:
        """Whether somebody may read a project, and its quarantine.

        Args:
            project: Name of the project.
            reader_names: Everything that a list of readers may call the person; empty for somebody
                who did not sign in.
        """
        readers = self.readers.get(record_name(project), self.readers.get(EVERY_PROJECT))
        return readers is None or not readers.isdisjoint(reader_names)


def read_project_access(session: Session) -> ProjectAccess:
    rows = session.scalars(select(ProjectAccessRow))
    return ProjectAccess({row.project: frozenset(row.readers) for row in rows})


def list_readable(
    session: Session,
    projects: ProjectNames,
    reader_names: tuple[str, ...],
) -> list[str]:
    """List those of some projects that somebody may read (`ProjectAccess.may_read`)."""
    access = read_project_access(session)
    return [project for project in projects if access.may_read(project, reader_names)]


def restrict_project(engine: Engine, project: str, readers: Sequence[str], *, actor: str) -> None:
    """Let only some readers read a project; they replace the readers that it had.

    Raises:
        StoreError: a reader of no known form.
    """
    names = [normalise_reader(reader) for reader in readers]
    with Session(engine) as session, session.begin():
        session.merge(ProjectAccessRow(project=project, readers=names))
        add_entry(
            session,
            actor=actor,
            action="project.restrict",
            project=project,
            subject=project,
            after=" ".join(names),
        )


def unrestrict_project(engine: Engine, project: str, *, actor: str) -> None:
    """Let everybody read a project.

    Raises:
        StoreError: it was not restricted.
    """
    with Session(engine) as session, session.begin():
        row = session.get(ProjectAccessRow, project)
        if row is None:
            raise StoreError(f"project {project!r}: not restricted; see: roofwatch db readers")
        session.delete(row)
        add_entry(
            session,
            actor=actor,
            action="project.unrestrict",
            project=project,
            subject=project,
        )


def normalise_reader(reader: str) -> str:
    """Write addresses in lower case, as people's names are.

    Raises:
        StoreError: no known form.
    """
    if not _READER.fullmatch(reader):
        raise StoreError(
            f"reader {reader!r}: use name@example.com, @example.com, group:NAME or role:NAME"
        )
    if reader.startswith(("group:", "role:")):
        return reader
    return reader.lower()
