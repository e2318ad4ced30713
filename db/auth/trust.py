"""Trusted repositories: whose CI may send records of a project without a token of ours."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Engine, delete, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.auth.audit import add_entry
from roofwatch.db.auth.values import TrustedRepository
from roofwatch.db.errors import StoreError
from roofwatch.db.schema.access import TrustedRepositoryRow


def trust_repository(engine: Engine, repository: str, project: str, refs: Sequence[str], *, actor: str) -> None:
    """Let a repository's workflows send records of a project. Records of other refs are quarantined.

    Args:
        engine: Of the store.
        repository: `owner/name`, or GitHub's repository ID.
        project: Of the records.
        refs: Patterns such as `refs/heads/main`; they replace earlier ones.
        actor: For the audit trail.
    """
    row = {"repository": repository, "project": project, "refs": list(refs)}
    with Session(engine) as session, session.begin():
        new = upsert(TrustedRepositoryRow).values(row)
        session.execute(
            new.on_conflict_do_update(
                index_elements=[TrustedRepositoryRow.repository, TrustedRepositoryRow.project],
                set_={"refs": new.excluded.refs},
            )
        )
        refs_text = " ".join(refs)
        add_entry(session, actor=actor, action="repository.trust", project=project, subject=repository, after=refs_text)


def distrust_repository(engine: Engine, repository: str, project: str, *, actor: str) -> None:
    """Stop trusting a repository.

    Raises:
        StoreError: it was not trusted.
    """
    with Session(engine) as session, session.begin():
        gone = session.execute(
            delete(TrustedRepositoryRow)
            .where(TrustedRepositoryRow.repository == repository, TrustedRepositoryRow.project == project)
            .returning(TrustedRepositoryRow.repository)
        ).all()
        if not gone:
            raise StoreError(f"repository {repository}: not trusted for {project}")
        add_entry(session, actor=actor, action="repository.distrust", project=project, subject=repository)


def list_trusted(session: Session, names: Collection[str] | None = None) -> list[TrustedRepository]:
    """All trusted repositories, or those with some names."""
    query = select(TrustedRepositoryRow).order_by(TrustedRepositoryRow.repository, TrustedRepositoryRow.project)
    if names is not None:
        query = query.where(TrustedRepositoryRow.repository.in_(names))
    return [TrustedRepository(row.repository, row.project, tuple(row.refs)) for row in session.scalars(query)]
