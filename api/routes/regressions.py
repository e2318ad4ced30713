"""Regressions: what was judged, and what people decide about it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from roofwatch.api.access import Reader, Triager
from roofwatch.api.documents import PROBLEMS
from roofwatch.api.paging import Cursor, Limit, Page, decode, json_response, page_of
from roofwatch.api.problems import not_found
from roofwatch.api.request_models import body_of, sent
from roofwatch.api.response_models import Decision, Project, TriagedRegression
from roofwatch.api.state import state_of
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.regressions.triage import set_triage
from roofwatch.db.values import Regression, RegressionState

router = APIRouter(tags=["regressions"])


@router.get(
    "/v1/regressions",
    summary="List regressions",
    response_model=Page[TriagedRegression],
    responses={**PROBLEMS},
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
    after = None if cursor is None else decode(cursor, (int, str, str, str))
    with state_of(request).reading() as session:
        states = None if state is None else {state}
        found = list_triaged(session, project, states, triage=triage, after=after, limit=limit + 1)
    items, following = page_of(_shown(found), limit, lambda one: list(one.regression.place))
    return json_response(Page[TriagedRegression](items=items, next=following).model_dump_json().encode())


@router.post(
    "/v1/regressions/{regression}/triage",
    summary="Decide about a regression",
    response_model=TriagedRegression,
    responses={**PROBLEMS},
    openapi_extra=body_of(Decision),
)
def post_triage(
    request: Request,
    triager: Triager,
    regression: UUID,
    project: Project,
    decision: Annotated[Decision, Depends(sent(Decision))],
) -> Response:
    """Set what people think of a regression. It outlives later judgements, and the audit trail keeps every change.

    With `expected`, it is refused if somebody else decided meanwhile, so that it can be sent again safely.
    """
    triager.check_project(project)
    shared = state_of(request)
    with shared.reading() as session:
        known = _shown(list_triaged(session, project))
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


def _shown(found: list[tuple[Regression, Triage]]) -> list[TriagedRegression]:
    return [
        TriagedRegression(regression_id=str(triage.regression_id), regression=one, triage=triage)
        for one, triage in found
    ]
