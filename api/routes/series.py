"""Series: one metric of one thing over the commits of a project."""

from __future__ import annotations

from dataclasses import astuple
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from api.access import Reader
from api.answers import Project, Word
from api.caching import respond
from api.documents import NOT_MODIFIED, PROBLEMS
from api.paging import Cursor, Limit, Page, decode, page_of
from api.state import state_of
from db.queries import list_series_keys, read_series
from db.values import Series, SeriesKey

router = APIRouter(tags=["series"])

Kernel = Annotated[Word | None, Query(description="Only of this kernel.", examples=["rms_norm"])]
Metric = Annotated[Word | None, Query(description="Only of this metric.", examples=["median_ns"])]
Case = Annotated[Word | None, Query(description="Only of the case with this id.")]
Pairs = Annotated[bool, Query(description="Also runs that are one side of a pair.")]
Dirty = Annotated[bool, Query(description="Also runs of a work tree that differed from its commit.")]


@router.get("/v1/series", summary="List series", response_model=Page[SeriesKey], responses={**NOT_MODIFIED, **PROBLEMS})
def get_series_keys(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    kernel: Kernel = None,
    metric: Metric = None,
    case: Case = None,
    include_pairs: Pairs = False,
    include_dirty: Dirty = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Which series a project has, in the order of their keys. Runs in quarantine are in none."""
    reader.check_project(project)
    with state_of(request).reading() as session:
        keys, following = _page_of_keys(
            session, project, kernel, metric, case, cursor, limit, pairs=include_pairs, dirty=include_dirty
        )
    return respond(request, Page[SeriesKey](items=keys, next=following).model_dump_json().encode())


@router.get(
    "/v1/series/points",
    summary="Read series",
    response_model=Page[Series],
    responses={**NOT_MODIFIED, **PROBLEMS},
)
def get_series(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    kernel: Kernel = None,
    metric: Metric = None,
    case: Case = None,
    include_pairs: Pairs = False,
    include_dirty: Dirty = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """The same series with their points, in the order of commits. A run that failed has a point without a value."""
    reader.check_project(project)
    with state_of(request).reading() as session:
        keys, following = _page_of_keys(
            session, project, kernel, metric, case, cursor, limit, pairs=include_pairs, dirty=include_dirty
        )
        found = read_series(
            session, project, keys=keys, kernel=kernel, include_pairs=include_pairs, include_dirty=include_dirty
        )
    return respond(request, Page[Series](items=found, next=following).model_dump_json().encode())


def _page_of_keys(
    session: Session,
    project: str,
    kernel: str | None,
    metric: str | None,
    case: str | None,
    cursor: str | None,
    limit: int,
    *,
    pairs: bool,
    dirty: bool,
) -> tuple[list[SeriesKey], str | None]:
    keys = list_series_keys(session, project, kernel=kernel, metric=metric, include_pairs=pairs, include_dirty=dirty)
    if case is not None:
        keys = [key for key in keys if key.case_id == case]
    if cursor is not None:
        after = SeriesKey(*decode(cursor, (str,) * 8))
        keys = [key for key in keys if key > after]
    return page_of(keys, limit, lambda key: list(astuple(key)))
