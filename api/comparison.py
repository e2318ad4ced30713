"""Two commits against each other, judged as a pull request is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from roofwatch.api.auth import Reader
from roofwatch.api.models import ComparedRuns, Comparison, Project, Word, as_json
from roofwatch.api.problems import PROBLEMS, ProblemError
from roofwatch.api.state import state_of
from roofwatch.ci.ab.noise_floor import stored_floor
from roofwatch.ci.gate import exit_code
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.db.queries.comparing import REVISION_PATTERN, UnknownRevisionError, resolve_revisions
from roofwatch.db.queries.pairs import list_newest_calibrations
from roofwatch.db.queries.records import load_record

router = APIRouter(tags=["comparison"], responses=PROBLEMS)

Side = Annotated[
    str,
    Query(
        pattern=REVISION_PATTERN,
        description="A commit's sha or its beginning, or the id of a run, which may be one in quarantine.",
    ),
]


@dataclass(frozen=True)
class TwoSides:
    """What is compared, as both routes are asked."""

    project: Project
    base: Side
    head: Side
    runner_class: Annotated[Word | None, Query(description="Only of runs on this one.")] = None

    def find(self, session: Session) -> tuple[UUID, UUID]:
        """Ids of the two runs.

        Raises:
            ProblemError: there is none for one of them.
        """
        try:
            return resolve_revisions(session, self.project, self.base, self.head, runner_class=self.runner_class)
        except UnknownRevisionError as error:
            raise ProblemError(404, "not-found", f"{error}; GET /v1/runs lists those of a project") from None


@router.get(
    "/v1/comparison",
    summary="Compare two commits",
    response_model=Comparison,
    responses={
        200: {
            "content": {
                "application/json": {},
                "text/markdown": {"schema": {"type": "string"}},
            }
        },
    },
)
def get_comparison(
    request: Request,
    reader: Reader,
    sides: Annotated[TwoSides, Depends()],
    *,
    noise_floor: Annotated[
        bool, Query(description="A change must exceed three times what the newest stored calibrations show as noise.")
    ] = True,
    format: Annotated[Literal["json", "markdown"], Query(description="markdown: the comment.")] = "json",
) -> Response:
    """Judge head against base from their stored records: those of the newest pair that measured just these two, else
    the run that speaks for each.
    """
    reader.check_project(sides.project)
    with state_of(request).reading() as session:
        base_id, head_id = sides.find(session)
        judgement = judge_pull_request(
            load_record(session, base_id),
            load_record(session, head_id),
            noise_floor=stored_floor(list_newest_calibrations(session, sides.project, head_id))
            if noise_floor
            else None,
        )
    if format == "markdown":
        return Response(to_markdown(judgement), media_type="text/markdown")
    document = {
        "base_run_id": str(base_id),
        "head_run_id": str(head_id),
        "exit_code": exit_code(judgement),
        "judgement": judgement,
    }
    content = orjson.dumps(document, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    return Response(content, media_type="application/json")


@router.get(
    "/v1/comparison/runs",
    summary="Which runs to compare",
    response_model=ComparedRuns,
)
def get_compared_runs(
    request: Request,
    reader: Reader,
    sides: Annotated[TwoSides, Depends()],
    *,
    noise_floor: Annotated[bool, Query(description="With the noise floor that it would take into account.")] = False,
) -> Response:
    """The two runs that `/v1/comparison` would judge, for who judges their records by itself."""
    reader.check_project(sides.project)
    with state_of(request).reading() as session:
        base_id, head_id = sides.find(session)
        calibrations = list_newest_calibrations(session, sides.project, head_id) if noise_floor else []
    floor = stored_floor(calibrations)
    return as_json(ComparedRuns(base_run_id=str(base_id), head_run_id=str(head_id), noise_floor=floor))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return dict(value)
