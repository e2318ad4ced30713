"""Series: one metric of one case and implementation over the commits of a project."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import AwareDatetime
from sqlalchemy.orm import Session

from roofwatch.api.auth import Reader
from roofwatch.api.models import Cursor, Limit, Page, Project, Word, as_json, cursor_after, page, read_cursor
from roofwatch.api.problems import PROBLEMS, ProblemError
from roofwatch.api.state import state_of
from roofwatch.db.queries.run_filter import IncludedRuns
from roofwatch.db.queries.series import count_series_runs, read_series
from roofwatch.db.queries.series_keys import list_series_page
from roofwatch.db.values import Series, SeriesKey

router = APIRouter(tags=["series"], responses=PROBLEMS)


@dataclass(frozen=True)
class Chosen:
    """Filters of both routes."""

    project: Project
    kernel: Annotated[Word | None, Query(description="Only of this kernel.", examples=["rms_norm"])] = None
    metric: Annotated[Word | None, Query(description="Only of this metric.", examples=["median_ns"])] = None
    case: Annotated[Word | None, Query(description="Only of this case ID.")] = None
    include_pairs: Annotated[bool, Query(description="Include runs that are part of a pair.")] = False
    include_dirty: Annotated[bool, Query(description="Include runs of a modified work tree.")] = False

    def list_keys(self, session: Session, cursor: str | None, limit: int) -> list[SeriesKey]:
        """The keys after a cursor."""
        after = None if cursor is None else read_cursor(cursor, SeriesKey)
        return list_series_page(
            session,
            self.project,
            after=after,
            limit=limit,
            case=self.case,
            kernel=self.kernel,
            metric=self.metric,
            **self.included,
        )

    @property
    def included(self) -> IncludedRuns:
        return {"include_pairs": self.include_pairs, "include_dirty": self.include_dirty}


@router.get(
    "/v1/series",
    summary="List series",
    response_model=Page[SeriesKey],
)
def get_series_keys(
    request: Request,
    reader: Reader,
    chosen: Annotated[Chosen, Depends()],
    *,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Keys of the series of a project, in order. Quarantined runs are left out."""
    reader.check_project(chosen.project)
    with state_of(request).reading() as session:
        keys = chosen.list_keys(session, cursor, limit + 1)
    return page(keys, limit, lambda key: key)


@router.get(
    "/v1/series/points",
    summary="Read series",
    response_model=Page[Series],
)
def get_series(
    request: Request,
    reader: Reader,
    chosen: Annotated[Chosen, Depends()],
    *,
    since: Annotated[AwareDatetime | None, Query(description="Only runs started at or after this time.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Only runs started before this time.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """Series with their points, in the order of commits. A failed run has a point without a value.

    A page may have fewer series than `limit`: the number of points is limited, and series without points are left out.
    """
    reader.check_project(chosen.project)
    state = state_of(request)
    with state.reading() as session:
        run_count = count_series_runs(session, chosen.project, since=since, until=until, **chosen.included)
        if run_count > state.limits.points:
            detail = f"a series may have {run_count} points, a page has at most {state.limits.points}"
            raise ProblemError(422, "too-large", f"{detail}: narrow the time with since and until")
        if run_count == 0:
            return as_json(Page[Series](items=[], next=None))
        limit = min(limit, state.limits.points // run_count)
        keys = chosen.list_keys(session, cursor, limit + 1)
        found = read_series(session, chosen.project, keys[:limit], since=since, until=until, **chosen.included)
    # from the keys, as series without points are left out
    following = cursor_after(keys[limit - 1]) if len(keys) > limit else None
    return as_json(Page[Series](items=found, next=following))
