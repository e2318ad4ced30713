"""Comparison of two commits, judged as a pull request."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from roofwatch.api.auth import Reader
from roofwatch.api.models import ComparedCommits, Project, Word, as_json, make_router
from roofwatch.api.state import state_of
from roofwatch.ci.ab.noise_floor import ComparedRuns, stored_floor
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.db.queries.comparing import REVISION_PATTERN, resolve_revisions
from roofwatch.db.queries.evidence import list_step_shares
from roofwatch.db.queries.pairs import list_newest_calibrations
from roofwatch.db.queries.records import load_record

router = make_router("comparison")

Side = Annotated[
    str,
    Query(
        pattern=REVISION_PATTERN, description="SHA of a commit or its beginning, or ID of a run."
    ),
]


@dataclass(frozen=True)
class TwoSides:
    """Parameters of both routes and of `resolve_revisions`."""

    project: Project
    base: Side
    head: Side
    runner_class: Annotated[Word | None, Query(description="Only runs on this runner class.")] = (
        None
    )


@router.get(
    "/v1/comparison",
    summary="Compare two commits",
    response_model=ComparedCommits,
    responses={
        200: {"content": {"application/json": {}, "text/markdown": {"schema": {"type": "string"}}}}
    },
)
def get_comparison(
    request: Request,
    reader: Reader,
    sides: Annotated[TwoSides, Depends()],
    *,
    noise_floor: Annotated[
        bool, Query(description="Apply the noise floor of the newest calibrations.")
    ] = True,
    format: Annotated[
        Literal["json", "markdown"], Query(description="markdown: the comment of a pull request.")
    ] = "json",
) -> Response:
    """Judge head against base: by their newest pair, else by one run of each."""
    reader.check_project(sides.project)
    with state_of(request).reading() as session:
        base_id, head_id = resolve_revisions(session, **vars(sides))
        base, head = load_record(session, base_id), load_record(session, head_id)
        floor = None
        # a caller may want the plain threshold
        if noise_floor:
            floor = stored_floor(list_newest_calibrations(session, sides.project, head_id))
        judgement = judge_pull_request(
            base,
            head,
            noise_floor=floor,
            steps=list_step_shares(session, sides.project, head.environment.runner_class),
        )
    if format == "markdown":
        return Response(to_markdown(judgement), media_type="text/markdown")
    document = {
        "base_run_id": str(base_id),
        "head_run_id": str(head_id),
        "exit_code": judgement.exit_code,
    }
    return as_json(document | {"judgement": judgement})


@router.get(
    "/v1/comparison/runs",
    summary="Find the runs of a comparison",
    response_model=ComparedRuns,
)
def get_compared_runs(
    request: Request,
    reader: Reader,
    sides: Annotated[TwoSides, Depends()],
    *,
    noise_floor: Annotated[bool, Query(description="Include the noise floor.")] = False,
) -> Response:
    """The runs that `/v1/comparison` would judge, for clients that judge by themselves."""
    reader.check_project(sides.project)
    with state_of(request).reading() as session:
        base_id, head_id = resolve_revisions(session, **vars(sides))
        calibrations = (
            list_newest_calibrations(session, sides.project, head_id) if noise_floor else []
        )
    floor = stored_floor(calibrations)
    return as_json(ComparedRuns(base_run_id=base_id, head_run_id=head_id, noise_floor=floor))
