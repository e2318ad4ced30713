"""Series: one metric of one case and implementation over the commits of a project."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Enum, Gauge
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import AwareDatetime
from sqlalchemy.orm import Session

from roofwatch.api.auth import Reader
from roofwatch.api.models import (
    Cursor,
    Limit,
    Page,
    Project,
    Word,
    as_json,
    cursor_after,
    make_router,
    page_of,
    read_cursor,
)
from roofwatch.api.problems import PROBLEMS, ProblemError, not_found
from roofwatch.api.state import state_of
from roofwatch.db.queries.series import count_series_runs, read_series
from roofwatch.db.queries.series_keys import list_filtered_keys
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.history import RegressionState, Series, SeriesKey
from roofwatch.model.series_filter import SeriesFilter
from roofwatch.model.verdict import Verdict

_LABELS = (
    "project",
    "case",
    "implementation",
    "metric",
    "runner_class",
    "function",
    "target",
    "tensor",
)
_MAX_SERIES = 10_000

router = make_router("series")


@router.get("/v1/series", summary="List series", response_model=Page[SeriesKey])
def get_series_keys(
    request: Request,
    reader: Reader,
    chosen: Annotated[SeriesFilter, Depends()],
    *,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Keys of the series of a project, in order. Quarantined runs are left out."""
    reader.check_project(chosen.project)
    with state_of(request).reading() as session:
        keys = list_filtered_keys(session, chosen)
    return page_of(keys, limit, cursor, lambda key: key, SeriesKey)


@router.get("/v1/series/points", summary="Read series", response_model=Page[Series])
def get_series(
    request: Request,
    reader: Reader,
    chosen: Annotated[SeriesFilter, Depends()],
    *,
    since: Annotated[
        AwareDatetime | None, Query(description="Only runs started at or after this time.")
    ] = None,
    until: Annotated[
        AwareDatetime | None, Query(description="Only runs started before this time.")
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """Series with their points, in the order of commits. A failed run has a point without a value.

    A page may have fewer series than `limit`: series of many points fill a page, and those without
    are left out.
    """
    reader.check_project(chosen.project)
    state = state_of(request)
    with state.reading() as session:
        run_count = count_series_runs(
            session, chosen.project, since=since, until=until, **chosen.included
        )
        limit = min(limit, max(1, state.limits.points // max(1, run_count)))
        after = read_cursor(cursor, SeriesKey)
        keys = [key for key in list_filtered_keys(session, chosen) if after is None or key > after]
        series = read_series(
            session, chosen.project, keys[:limit], since=since, until=until, **chosen.included
        )
    # from the keys, as series without points are left out
    following = cursor_after(keys[limit - 1]) if len(keys) > limit else None
    return as_json(Page[Series](items=series, next=following))


@router.get(
    "/v1/series/metrics",
    summary="Export series",
    response_class=Response,
    responses={
        200: {"content": {"application/openmetrics-text": {"schema": {"type": "string"}}}},
        **PROBLEMS,
    },
)
def get_series_metrics(
    request: Request,
    reader: Reader,
    project: Project,
    *,
    kernel: Annotated[
        Word | None, Query(description="Only of this kernel.", examples=["rms_norm"])
    ] = None,
    metric: Annotated[
        Word, Query(description="Which metric.", examples=["utilisation"])
    ] = "median_ns",
    days: Annotated[
        int, Query(ge=1, le=366, description="Only series that were measured in these days.")
    ] = 30,
) -> Response:
    """Newest value, quartiles and verdict of each series in OpenMetrics' text format, if the server
    exports series.
    """
    reader.check_project(project)
    state, chosen = state_of(request), SeriesFilter(project, kernel, metric)
    if not state.exports_series:
        raise not_found("/v1/series/metrics", "start the server with --series-metrics")
    since = state.now() - timedelta(days=days)
    with state.reading() as session:
        run_count = count_series_runs(session, project, since=since, **chosen.included)
        keys = list_filtered_keys(session, chosen)
        if len(keys) > _MAX_SERIES or run_count * len(keys) > state.limits.points:
            raise ProblemError(422, "too-large", "too many series: name a kernel, or fewer days")
        series = read_series(session, project, keys, since=since, **chosen.included)
        changed = _changes(session, project)
    registry = _export(series, changed)
    text = generate_latest(registry)  # type: ignore[no-untyped-call]  # the library has no types
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _changes(session: Session, project: str) -> dict[SeriesKey, Verdict]:
    """Return the verdict of the newest change of each series that has not recovered."""
    newest_first = list_triaged(session, project, {RegressionState.OPEN})
    changes: dict[SeriesKey, Verdict] = {}
    for triaged in newest_first:
        regression = triaged.regression
        for point in regression.change_points:
            verdict = Verdict.UNCHANGED if regression.recovered_at is not None else point.verdict
            changes.setdefault(point.series, verdict)
    return changes


def _export(series: Sequence[Series], changes: Mapping[SeriesKey, Verdict]) -> CollectorRegistry:
    """Return the newest value, quartiles and verdict of series as families of OpenMetrics."""
    registry = CollectorRegistry()
    value = Gauge(
        "roofwatch_series_value", "Newest value, in the metric's unit.", _LABELS, registry=registry
    )
    low = Gauge(
        "roofwatch_series_low", "First quartile of its samples.", _LABELS, registry=registry
    )
    high = Gauge(
        "roofwatch_series_high", "Third quartile of its samples.", _LABELS, registry=registry
    )
    states = [Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.UNCHANGED.value]
    verdict = Enum(
        "roofwatch_series_verdict",
        "Newest change.",
        _LABELS,
        states=states,
        registry=registry,
    )
    for values in series:
        newest = next((point for point in reversed(values.points) if point.value is not None), None)
        # a series whose runs all failed has no value to export
        if newest is None:
            continue
        labels = astuple(values.key)
        for gauge, number in ((value, newest.value), (low, newest.low), (high, newest.high)):
            # values of other tools have no quartiles
            if number is not None:
                gauge.labels(*labels).set(number)
        verdict.labels(*labels).state(str(changes.get(values.key, Verdict.UNCHANGED)))
    return registry
