"""Series: one metric of one thing over the commits of a project."""

from __future__ import annotations

from dataclasses import astuple
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import AwareDatetime
from sqlalchemy.orm import Session

from api import examples
from api.access import Reader
from api.answers import Project, Word
from api.caching import respond
from api.documents import NOT_MODIFIED, PROBLEMS, shown
from api.paging import Cursor, Limit, Page, decode, page_of
from api.problems import ProblemError
from api.state import state_of
from db.queries import read_series
from db.reading.series import count_series_runs, list_series_page
from db.values import Series, SeriesKey

router = APIRouter(tags=["series"])

Kernel = Annotated[Word | None, Query(description="Only of this kernel.", examples=["rms_norm"])]
Metric = Annotated[Word | None, Query(description="Only of this metric.", examples=["median_ns"])]
Case = Annotated[Word | None, Query(description="Only of the case with this id.")]
Pairs = Annotated[bool, Query(description="Also runs that are one side of a pair.")]
Dirty = Annotated[bool, Query(description="Also runs of a work tree that differed from its commit.")]


@router.get(
    "/v1/series",
    summary="List series",
    response_model=Page[SeriesKey],
    responses={200: shown(examples.SERIES_KEYS), **NOT_MODIFIED, **PROBLEMS},
)
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
    responses={200: shown(examples.SERIES), **NOT_MODIFIED, **PROBLEMS},
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
    since: Annotated[AwareDatetime | None, Query(description="Only runs that began no earlier.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Only runs that began before.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """The same series with their points, in the order of commits. A run that failed has a point without a value.

    A page has fewer series than its `limit` where these would have too many points, and leaves out those that have
    none in the time that is asked for: only `next` tells whether there are more.
    """
    reader.check_project(project)
    state = state_of(request)
    with state.reading() as session:
        run_count = count_series_runs(
            session, project, include_pairs=include_pairs, include_dirty=include_dirty, since=since, until=until
        )
        if run_count > state.limits.points:
            detail = f"a series may have {run_count} points, a page has at most {state.limits.points}"
            raise ProblemError(422, "too-large", f"{detail}: narrow the time with since and until")
        if run_count == 0:
            return respond(request, Page[Series](items=[], next=None).model_dump_json().encode())
        limit = min(limit, state.limits.points // run_count)
        keys, following = _page_of_keys(
            session, project, kernel, metric, case, cursor, limit, pairs=include_pairs, dirty=include_dirty
        )
        found = read_series(
            session,
            project,
            keys=keys,
            kernel=kernel,
            include_pairs=include_pairs,
            include_dirty=include_dirty,
            since=since,
            until=until,
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
    after = None if cursor is None else SeriesKey(*decode(cursor, (str,) * 8))
    keys = list_series_page(
        session,
        project,
        after=after,
        limit=limit + 1,
        case=case,
        kernel=kernel,
        metric=metric,
        include_pairs=pairs,
        include_dirty=dirty,
    )
    return page_of(keys, limit, lambda key: list(astuple(key)))
