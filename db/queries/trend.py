"""Series for drawing: long ones become a median and a band, which the database computes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator
from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnElement,
    Double,
    Integer,
    Select,
    Subquery,
    and_,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    type_coerce,
)
from sqlalchemy.orm import Session, aliased

from roofwatch.db.queries.points import select_points
from roofwatch.db.queries.series import POINT_COLUMNS
from roofwatch.db.schema.run_filter import COMMIT_COLUMNS, is_in_series, project_id
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, RunRow
from roofwatch.db.schema.subjects import SubjectMark, Subjects
from roofwatch.model.history import OUTCOMES, BandPoint, CommitRef, Series, SeriesKey, SeriesPoint
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import is_metric
from roofwatch.model.run_setting import setting_of
from roofwatch.model.stored_results import Trend

MAX_POINTS = 600
"""Maximum of all series together that are drawn run by run."""
_MIN_POINTS = 200
"""A series of so few is always drawn run by run."""
BAND_QUANTILES = (0.05, 0.5, 0.95)
_LEAST_RUNS = 4
"""About the minimum runs of a stretch of a band."""
_MAX_KEYS = 2_000
_FURTHER_COLUMNS = ("number", "run_number", "series_id", "is_degraded")
_DEGRADED = ("throttled or shared",)
"""A measurement's row does not say which of the two."""


@dataclass(frozen=True)
class TrendQuestion:
    """Which points to read."""

    project: str
    keys: tuple[SeriesKey, ...]
    include_dirty: bool = False
    """Include runs of a modified work tree."""
    branches: tuple[str, ...] = ()
    """Only commits measured on one of these; empty for the project's default branch."""
    since: datetime | None = None
    """Only commits of this date or later."""
    until: datetime | None = None
    """Only commits of this date or earlier."""
    kept_commits: tuple[str, ...] = ()
    """Commits (sha) whose points are kept, with the point before each; for example of change
    points.
    """


def _check(trend: TrendQuestion) -> TrendQuestion:
    """Limit what a client may ask for."""
    if len(trend.keys) > _MAX_KEYS:
        raise ValueError(f"{len(trend.keys)} series, at most {_MAX_KEYS} may be asked for at once")
    if not all(is_metric(key.metric) for key in trend.keys):
        raise ValueError("unknown metric")
    return trend


def _subjects_of(trend: TrendQuestion) -> Subjects:
    return Subjects(projects=frozenset([trend.project, *(key.project for key in trend.keys)]))


CheckedTrend = Annotated[TrendQuestion, AfterValidator(_check), SubjectMark(_subjects_of)]


def read_trend(session: Session, trend: CheckedTrend) -> Trend:
    """Read series in one statement, without those that have no points in the window."""
    points = _points(trend)
    if points is None:
        return Trend(
            series=(),
            places={},
            commit_count=0,
            run_count=0,
        )
    thinned = _kept(points, trend)
    query = (
        select(
            *COMMIT_COLUMNS,
            thinned.c.number,
            thinned.c.place,
            thinned.c.run_count,
            thinned.c.quantiles,
            thinned.c.value_count,
            thinned.c.is_degraded,
            RunRow.run_id,
            RunRow.started_at,
            thinned.c.runner_class,
            thinned.c.environment_id,
            thinned.c.harness_version,
            EnvironmentRow,
            *(thinned.c[name] for name in POINT_COLUMNS),
        )
        .join(RunRow, RunRow.number == thinned.c.run_number)
        .join(CommitRow, CommitRow.id == thinned.c.commit_id)
        .outerjoin(
            EnvironmentRow,
            and_(thinned.c.is_other_setting, EnvironmentRow.id == thinned.c.environment_id),
        )
        .order_by(thinned.c.number, thinned.c.at)
    )
    return _trend(trend, session.execute(query).all())


def _points(trend: TrendQuestion) -> CTE | None:
    """Select each point with its run, and the position of its commit among those of all points,
    from 0.
    """
    points = select_points(trend.project, trend.keys)
    if points is None:
        return None
    # OFFSET 0 keeps this a lookup by number: as a join, Postgres without statistics would read all
    # points per run
    run = (
        select(RunRow.started_at, RunRow.harness_version, RunRow.environment_id, RunRow.commit_id)
        .where(RunRow.number == points.c.run_number, _runs(trend))
        .correlate(points)
        .offset(0)
        .lateral("of_point")
    )
    along = (CommitRow.first_parent_count, CommitRow.sha)
    return (
        select(
            *(points.c[name] for name in (*_FURTHER_COLUMNS, *POINT_COLUMNS)),
            run.c.harness_version,
            run.c.environment_id,
            run.c.commit_id,
            EnvironmentRow.runner_class,
            func.row_number()
            .over(order_by=(*along, run.c.started_at, points.c.run_number))
            .label("rank"),
            cast(func.dense_rank().over(order_by=along) - 1, Integer).label("place"),
        )
        .select_from(points)
        .join(run, true())
        .join(CommitRow, CommitRow.id == run.c.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == run.c.environment_id)
        .where(
            or_(points.c.runner_class == "", points.c.runner_class == EnvironmentRow.runner_class),
            *_dates(trend),
        )
        .cte("placed")
    )


def _dates(trend: TrendQuestion) -> Iterator[ColumnElement[bool]]:
    if trend.since is not None:
        yield CommitRow.committed_at >= trend.since
    if trend.until is not None:
        yield CommitRow.committed_at <= trend.until


def _runs(trend: TrendQuestion) -> ColumnElement[bool]:
    condition = is_in_series(
        trend.project,
        include_dirty=trend.include_dirty,
        include_branches=bool(trend.branches),
    )
    if not trend.branches:
        return condition
    branch_run = aliased(RunRow)
    # a run without a branch follows the other runs of its commit
    is_of_branches = or_(RunRow.branch.is_(None), RunRow.branch.in_(trend.branches))
    was_measured = exists().where(
        branch_run.commit_id == RunRow.commit_id,
        branch_run.branch.in_(trend.branches),
        branch_run.is_unreachable.is_(False),
    )
    return and_(condition, is_of_branches, was_measured)


def _commit_ids(trend: TrendQuestion, condition: ColumnElement[bool]) -> Select[int]:
    return select(CommitRow.id).where(CommitRow.project_id == project_id(trend.project), condition)


def _kept(points: CTE, trend: TrendQuestion) -> Subquery:
    """Thin each long series: of each stretch of runs keep the one in the middle, with quantiles of
    the stretch.

    Also keep the newest run, the first of each kind of failure, runs with another setting than the
    run before, and requested commits.
    """
    max_points = max(_MIN_POINTS, MAX_POINTS // len(trend.keys))
    point = points.c
    in_series: dict[str, Any] = {"partition_by": point.number, "order_by": point.rank}
    on_runner: dict[str, Any] = {"partition_by": point.runner_class, "order_by": point.rank}
    setting_changes = [
        func.lag(part).over(**on_runner).is_distinct_from(part)
        for part in (point.environment_id, point.harness_version)
    ]
    numbered = select(
        points,
        or_(*setting_changes).label("is_other_setting"),
        func.lag(point.series_id)
        .over(**in_series)
        .is_distinct_from(point.series_id)
        .label("is_other_timing"),
        (func.row_number().over(**in_series) - 1).label("at"),
        func.lead(point.commit_id).over(**in_series).label("next_commit_id"),
        func.count().over(partition_by=point.number).label("run_count"),
    ).subquery("numbered")
    stretch = numbered.c.at * (max_points // _LEAST_RUNS) // numbered.c.run_count
    stretched = select(numbered, stretch.label("stretch")).cte("stretched")
    run = stretched.c
    own_stretch = (run.number, run.stretch)
    quantiles = func.percentile_cont(literal(BAND_QUANTILES, ARRAY(Double))).within_group(run.value)
    band = (
        select(
            *own_stretch,
            type_coerce(quantiles, ARRAY(Double)).label("quantiles"),
            func.count(run.value).label("value_count"),
            ((func.min(run.at) + func.max(run.at)) // 2).label("middle_at"),
        )
        .where(run.run_count > max_points)
        .group_by(*own_stretch)
        .cte("band")
    )
    requested = _commit_ids(trend, CommitRow.sha.in_(trend.kept_commits))
    of_outcome = func.row_number().over(partition_by=(*own_stretch, run.outcome), order_by=run.at)
    marked = (
        select(
            stretched,
            band.c.quantiles,
            band.c.value_count,
            or_(
                run.run_count <= max_points,
                run.is_other_setting,
                run.is_other_timing,
                run.commit_id.in_(requested),
                run.next_commit_id.in_(requested),
                run.at == run.run_count - 1,
                band.c.middle_at.is_not(None),
                and_(run.outcome != Outcome.OK.value, of_outcome == 1),
            ).label("is_kept"),
        )
        .outerjoin_from(
            stretched,
            band,
            and_(
                band.c.number == run.number,
                band.c.stretch == run.stretch,
                band.c.middle_at == run.at,
            ),
        )
        .subquery("marked")
    )
    return select(marked).where(marked.c.is_kept).subquery("kept")


def _trend(trend: TrendQuestion, rows: Sequence[Any]) -> Trend:
    settings = {
        (row.environment_id, row.harness_version): setting_of(
            row.EnvironmentRow, row.harness_version
        )
        for row in rows
        if row.EnvironmentRow is not None
    }
    points: defaultdict[int, list[SeriesPoint]] = defaultdict(list)
    bands: defaultdict[int, list[BandPoint]] = defaultdict(list)
    places: dict[str, int] = {}
    for row in rows:
        run = CommitRef(*row[: len(COMMIT_COLUMNS)]), str(row.run_id), row.started_at
        outcome, *values = row[-len(POINT_COLUMNS) :]
        setting = settings[row.environment_id, row.harness_version]
        places[run[0].sha] = row.place
        measured = [*values, setting]
        point = SeriesPoint(*run, OUTCOMES[outcome], *measured)
        if row.is_degraded:
            point.degraded_by = _DEGRADED
        points[row.number].append(point)
        if row.value_count:
            low, median, high = row.quantiles
            bands[row.number].append(
                BandPoint(
                    commit=run[0],
                    low=low,
                    median=median,
                    high=high,
                    run_count=row.value_count,
                )
            )
    return Trend(
        series=tuple(
            Series(trend.keys[number], tuple(points[number]), tuple(bands[number]))
            for number in sorted(points)
        ),
        places=places,
        # the newest commit was kept
        commit_count=max((row.place + 1 for row in rows), default=0),
        run_count=max((row.run_count for row in rows), default=0),
    )
