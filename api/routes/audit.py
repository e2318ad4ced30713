"""The audit trail."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from roofwatch.api.access import Administrator
from roofwatch.api.documents import PROBLEMS
from roofwatch.api.paging import Cursor, Limit, Page, decode, json_response, page_of
from roofwatch.api.response_models import Project, Word
from roofwatch.api.state import state_of
from roofwatch.db.auth.audit import list_entries
from roofwatch.db.auth.values import AuditEntry

router = APIRouter(tags=["audit"])

_LARGEST = 2**63 - 1


@router.get(
    "/v1/audit",
    summary="Who did what",
    response_model=Page[AuditEntry],
    responses={**PROBLEMS},
)
def get_audit(
    request: Request,
    administrator: Administrator,
    project: Project,
    *,
    subject: Annotated[Word | None, Query(description="Only what was done to this regression, run or token.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Every decision and every change of rights in a project, newest first."""
    administrator.check_project(project)
    (before_id,) = (None,) if cursor is None else decode(cursor, (_entry_id,))
    with state_of(request).reading() as session:
        found = list_entries(session, project, subject=subject, before_id=before_id, limit=limit + 1)
    items, following = page_of(found, limit, lambda entry: [entry.entry_id])
    return json_response(Page[AuditEntry](items=items, next=following).model_dump_json().encode())


def _entry_id(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError("not an entry")
    return value
