"""Regressions: what was judged, and what people decide about it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from api.access import Reader, Triager
from api.answers import Decision, Project, TriagedRegression
from api.caching import respond
from api.documents import NOT_MODIFIED, PROBLEMS
from api.paging import Cursor, Limit, Page, decode, page_of
from api.problems import not_found
from api.state import state_of
from db.access.values import TriageState
from db.judged.triage import read_triage, set_triage
from db.queries import list_regressions
from db.values import Regression, RegressionState

router = APIRouter(tags=["regressions"])


@router.get(
    "/v1/regressions",
    summary="List regressions",
    response_model=Page[TriagedRegression],
    responses={**NOT_MODIFIED, **PROBLEMS},
)
def get_regressions(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    state: Annotated[RegressionState | None, Query(description="Only in this state of judgement.")] = None,
    triage: Annotated[TriageState | None, Query(description="Only those that people left in this state.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """What was judged of a project, of the newest commit first. Improvements too: their verdict says so."""
    reader.check_project(project)
    with state_of(request).reading() as session:
        found = [one for one in _triaged(session, project, state) if triage in (None, one.triage.state)]
    if cursor is not None:
        after = decode(cursor, (int, str, str, str))
        found = [one for one in found if _key(one.regression) > after]
    found.sort(key=lambda one: _key(one.regression))
    items, following = page_of(found, limit, lambda one: list(_key(one.regression)))
    return respond(request, Page[TriagedRegression](items=items, next=following).model_dump_json().encode())


@router.post(
    "/v1/regressions/{regression}/triage",
    summary="Decide about a regression",
    response_model=TriagedRegression,
    responses=PROBLEMS,
)
def post_triage(request: Request, triager: Triager, regression: UUID, project: Project, decision: Decision) -> Response:
    """Set what people think of a regression. It outlives later judgements, and the audit trail keeps every change."""
    triager.check_project(project)
    shared = state_of(request)
    with shared.reading() as session:
        known = _triaged(session, project, None)
    one = next((one for one in known if one.triage.regression_id == regression), None)
    if one is None:
        raise not_found(f"regression {regression}", "GET /v1/regressions lists those of a project")
    triage = set_triage(
        shared.engine,
        project,
        regression,
        decision.state,
        expected=decision.expected,
        person=decision.person,
        reason=decision.reason,
        actor=triager.actor,
    )
    answer = one.model_copy(update={"triage": triage})
    return Response(answer.model_dump_json(), media_type="application/json")


def _triaged(session: Session, project: str, state: RegressionState | None) -> list[TriagedRegression]:
    decided = read_triage(session, project)
    return [
        TriagedRegression(regression_id=str(triage.regression_id), regression=one, triage=triage)
        for one in list_regressions(session, project, None if state is None else {state})
        for triage in (decided[one.key],)
    ]


def _key(regression: Regression) -> tuple[int, str, str, str]:
    commit = regression.commit
    return -commit.first_parent_count, commit.sha, regression.kernel, regression.verdict.value
