"""Triage: what people decide about regressions, and who decided when and why.

A decision outlives the judgement that found the regression: a later one finds it by commit, kernel and verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID, uuid5

from sqlalchemy import Engine, func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from db.access import Triage, TriageState
from db.access_models import TriageRow
from db.audit import add_entry
from db.errors import StoreError
from db.models import ProjectRow
from db.values import Regression

_NAMESPACE = UUID("6f1b0f5e-5f0e-4a53-9f55-2f6d1b6f6a10")

Key = tuple[str, str, str, str]
"""Project, sha, kernel, verdict: `Regression.key`."""


class StaleTriageError(StoreError):
    """Somebody decided otherwise in the meantime."""


def regression_id(regression: Regression) -> UUID:
    """The same for the same regression in every judgement."""
    return uuid5(_NAMESPACE, "\n".join(regression.key))


def read_triage(session: Session, project: str) -> Mapping[Key, Triage]:
    """The last decision about each regression of a project that anybody decided about."""
    query = select(TriageRow).join(ProjectRow).where(ProjectRow.name == project)
    return {
        (project, row.sha, row.kernel, row.verdict): Triage(
            state=TriageState(row.state), person=row.person, reason=row.reason, changed_at=row.changed_at
        )
        for row in session.scalars(query)
    }


def set_triage(
    engine: Engine,
    regression: Regression,
    state: TriageState,
    *,
    expected: TriageState | None = None,
    person: str,
    reason: str,
    actor: str,
) -> Triage:
    """Decide about a regression, and note that in the audit trail.

    Args:
        engine: Of the store.
        regression: One that was judged.
        state: The decision.
        expected: What the person saw before; None to decide whatever was decided before.
        person: Who decides.
        reason: Why.
        actor: Who was let in.

    Raises:
        StaleTriageError: the state is no longer the expected one.
        StoreError: the project is not there.
    """
    with Session(engine) as session, session.begin():
        # decisions of a project follow each other, so that what was seen before is what is replaced
        lock = select(ProjectRow.id).where(ProjectRow.name == regression.project).with_for_update(key_share=True)
        project_id = session.scalar(lock)
        if project_id is None:
            raise StoreError(f"project {regression.project!r}: not in this database")
        before = read_triage(session, regression.project).get(regression.key, Triage()).state
        if expected is not None and before is not expected:
            raise StaleTriageError(f"the regression is {before}, not {expected}; look again, then decide")
        row = {
            "project_id": project_id,
            "sha": regression.commit.sha,
            "kernel": regression.kernel,
            "verdict": regression.verdict.value,
            "state": state.value,
            "person": person,
            "reason": reason,
        }
        changed = {"state": state.value, "person": person, "reason": reason, "changed_at": func.now()}
        keys = [TriageRow.project_id, TriageRow.sha, TriageRow.kernel, TriageRow.verdict]
        deciding = upsert(TriageRow).values(row).on_conflict_do_update(index_elements=keys, set_=changed)
        changed_at = session.scalars(deciding.returning(TriageRow.changed_at)).one()
        add_entry(
            session,
            actor=actor,
            person=person,
            action="regression.triage",
            project=regression.project,
            subject=str(regression_id(regression)),
            before=before.value,
            after=state.value,
            reason=reason,
        )
    return Triage(state, person, reason, changed_at)
