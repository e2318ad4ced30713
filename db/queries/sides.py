"""Which runs the two sides of a comparison name: by a commit, the beginning of its sha, or a run's id."""

from __future__ import annotations

import re
from uuid import UUID

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.queries.comparing import find_runs_to_compare
from roofwatch.db.regressions.analysis_requests import read_run_state
from roofwatch.db.schema.runs import CommitRow, ProjectRow

SIDE_PATTERN = r"^([0-9a-f]{4,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"
"""What can name a side."""

_MOST_NAMED = 3
_WHOLE = (40, 64)
"""Lengths of shas."""


class NoSideError(StoreError):
    """A side names no run of the project, or several commits."""


def find_sides(
    session: Session, project: str, base: str, head: str, *, runner_class: str | None = None
) -> tuple[UUID, UUID]:
    """Run ids of base and head, those of commits as `find_runs_to_compare` has them. A run may be one in quarantine.

    Args:
        session: Of the store.
        project: Its name.
        base: What to compare against.
        head: What is new.
        runner_class: Only where a commit was measured by itself on this one.

    Raises:
        NoSideError: one of them cannot be told.
    """
    shas = [side if _is_run(side) else _whole_sha(session, project, side) for side in (base, head)]
    by_commit = find_runs_to_compare(session, project, *shas, runner_class=runner_class)
    found = []
    for side, run_id in zip((base, head), by_commit, strict=True):
        chosen = _run_of(session, project, side) if _is_run(side) else run_id
        if chosen is None:
            where = "" if runner_class is None or _is_run(side) else f" on {runner_class}"
            raise NoSideError(f"a run of {side}{where}: there is none in project {project}")
        found.append(chosen)
    return found[0], found[1]


def _is_run(side: str) -> bool:
    return "-" in side


def _run_of(session: Session, project: str, side: str) -> UUID | None:
    known = read_run_state(session, UUID(side))
    return UUID(side) if known is not None and known.project == project else None


def _whole_sha(session: Session, project: str, beginning: str) -> str:
    """The only commit that it begins; itself where it is whole, or begins none."""
    if not re.fullmatch(SIDE_PATTERN, beginning):
        raise NoSideError(f"{beginning[:80]!r}: write a commit's sha, four digits of it at least, or the id of a run")
    if len(beginning) in _WHOLE:
        return beginning
    # "g" comes after every digit: a range, which the index of a project's shas has
    begins_so = and_(CommitRow.sha >= beginning, CommitRow.sha < beginning + "g")
    query = (
        select(CommitRow.sha)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(ProjectRow.name == project, begins_so)
        .order_by(CommitRow.sha)
        .limit(_MOST_NAMED)
    )
    shas = session.scalars(query).all()
    if len(shas) > 1:
        named = ", ".join(sha[:16] for sha in shas)
        raise NoSideError(f"{beginning}: several commits of project {project} begin so: {named}; write more of it")
    return shas[0] if shas else beginning
