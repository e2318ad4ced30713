"""Two commits against each other, judged as a pull request is."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from api.access import Principal, Reader
from api.answers import Comparison, Project, Word
from api.caching import respond
from api.documents import NOT_MODIFIED, PROBLEMS
from api.problems import not_found
from api.state import state_of
from ci.gate import exit_code
from ci.pull_request import judge_pull_request
from ci.report.comment import to_markdown
from db.judged.judging import read_run_state
from db.queries import load_record
from db.reading.comparing import find_runs_to_compare

router = APIRouter(tags=["comparison"])

Side = Annotated[
    str,
    Query(
        pattern=r"^([0-9a-f]{40}([0-9a-f]{24})?|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$",
        description="A commit's whole sha, or the id of a run, which may be one in quarantine.",
    ),
]


@router.get(
    "/v1/comparison",
    summary="Compare two commits",
    response_model=Comparison,
    responses={
        200: {"content": {"text/markdown": {"schema": {"type": "string"}}}},
        **NOT_MODIFIED,
        **PROBLEMS,
    },
)
def get_comparison(
    request: Request,
    reader: Reader,
    project: Project,
    base: Side,
    head: Side,
    *,
    runner_class: Annotated[Word | None, Query(description="Only of runs on this one.")] = None,
    format: Annotated[Literal["json", "markdown"], Query(description="markdown: the comment.")] = "json",
) -> Response:
    """Judge head against base from their stored records: those of the newest pair that measured just these two, else
    the run that speaks for each.
    """
    reader.check_project(project)
    with state_of(request).reading() as session:
        base_id, head_id = _runs(session, reader, project, base, head, runner_class)
        judgement = judge_pull_request(load_record(session, base_id), load_record(session, head_id))
    if format == "markdown":
        return respond(request, to_markdown(judgement).encode(), media_type="text/markdown")
    document = {
        "base_run_id": str(base_id),
        "head_run_id": str(head_id),
        "exit_code": exit_code(judgement),
        "judgement": judgement,
    }
    return respond(request, orjson.dumps(document, default=_plain, option=orjson.OPT_NON_STR_KEYS))


def _runs(
    session: Session, reader: Principal, project: str, base: str, head: str, runner_class: str | None
) -> tuple[UUID, UUID]:
    by_commit = find_runs_to_compare(session, project, base, head, runner_class=runner_class)
    found = []
    for side, run_id in zip((base, head), by_commit, strict=True):
        if "-" in side:
            known = read_run_state(session, UUID(side))
            is_there = known is not None and known.project == project and reader.may_see(project)
            chosen = UUID(side) if is_there else None
        else:
            chosen = run_id
        if chosen is None:
            raise not_found(f"a run of {side}", "GET /v1/runs lists those of a project")
        found.append(chosen)
    return found[0], found[1]


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return dict(value)
