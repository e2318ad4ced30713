"""Regressions, triage and the audit trail."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from roofwatch.api.auth import Administrator, Reader, Triager
from roofwatch.api.models import (
    Cursor,
    Decision,
    JsonBody,
    Limit,
    Page,
    Position,
    Project,
    Word,
    as_json,
    make_router,
    page,
    page_of,
    read_cursor,
)
from roofwatch.api.problems import not_found
from roofwatch.api.state import state_of
from roofwatch.db.access import AuditEntry, list_entries
from roofwatch.db.regressions.deciding import TriageDecision, apply_decision
from roofwatch.db.regressions.decisions import Signature
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.history import RegressionState
from roofwatch.model.triage import TriagedRegression, TriageState

router = make_router("regressions")


@router.get("/v1/regressions", summary="List regressions", response_model=Page[TriagedRegression])
def get_regressions(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    state: Annotated[RegressionState | None, Query(description="Only in this state.")] = None,
    triage: Annotated[
        TriageState | None, Query(description="Only in this state of triage.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Regressions and improvements of a project, the newest commit first."""
    reader.check_project(project)
    with state_of(request).reading() as session:
        regressions = list_triaged(
            session, project, None if state is None else {state}, triage=triage
        )
    return page_of(
        regressions,
        limit,
        cursor,
        lambda triaged: triaged.regression.place,
        tuple[int, str, str, str],
    )


@router.post(
    "/v1/regressions/{regression}/triage",
    summary="Triage a regression",
    response_model=TriagedRegression,
)
def post_triage(
    request: Request,
    triager: Triager,
    regression: UUID,
    project: Project,
    decision: Annotated[Decision, Depends(JsonBody(Decision))],
) -> Response:
    """Decide about a regression, as `roofwatch triage` does: set its state, assign it, link an
    issue, snooze it, ask for a confirmation, or undo the newest decision.

    Later analyses keep the decision, and the audit trail records it. With `expected`, a state is
    set only if nobody changed it meanwhile, which makes a retry safe.
    """
    triager.check_project(project)
    signature = Signature(person=decision.person, actor=triager.actor)
    triage_decision = TriageDecision(
        kind=decision.decision,
        value=decision.value,
        reason=decision.reason,
        expected=decision.expected,
    )
    with Session(state_of(request).engine) as session, session.begin():
        triaged = _find(session, project, regression)
        apply_decision(session, project, triaged, triage_decision, signature)
        session.flush()
        return as_json(_find(session, project, regression))


def _find(session: Session, project: str, regression: UUID) -> TriagedRegression:
    for triaged in list_triaged(session, project):
        if triaged.regression_id == str(regression):
            return triaged
    raise not_found(f"regression {regression}", "see GET /v1/regressions")


@router.get("/v1/audit", summary="Read the audit trail", response_model=Page[AuditEntry])
def get_audit(
    request: Request,
    administrator: Administrator,
    project: Project,
    *,
    subject: Annotated[
        Word | None, Query(description="Only this regression, run or token.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Decisions and changes of access in a project, newest first."""
    administrator.check_project(project)
    before_id = read_cursor(cursor, Position)
    with state_of(request).reading() as session:
        entries = list_entries(
            session,
            project,
            subject=subject,
            before_id=before_id,
            limit=limit + 1,
        )
    return page(entries, limit, lambda entry: entry.entry_id)
