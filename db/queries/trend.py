"""Series as a reader looks at them: of long ones as many points as draw the same line, chosen by the database.

Of each stretch of runs stay its first and last, its lowest and highest value, the first of each way to fail, every run
that was measured with something else than the run before, and the commits that are asked for.

Source: Jugel, Jerzak, Hackenbroich, Markl, M4: A Visualization-Oriented Time Series Data Aggregation (VLDB 2014): the
first, last, lowest and highest value of every stretch draw the same line as all of its values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import CTE, ColumnElement, Integer, Select, Subquery, and_, cast, exists, func, or_, select, true
from sqlalchemy.orm import Session, aliased

from roofwatch.db.queries.series_runs import SeriesRun, of_series, on_branch, setting_of
from roofwatch.db.queries.trend_points import points_of
from roofwatch.db.queries.trend_values import Trend, WindowEnd
from roofwatch.db.schema.measurements import SeriesRow
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import CommitRef, Series, SeriesKey, SeriesPoint, timing_of

MOST_POINTS = 600
"""Of one series that are handed out, about: one for every two pixels of a row of a wide screen."""
_LEAST_POINTS = 200
_MOST_POINTS_IN_ALL = 1_800
_KEPT_OF_A_STRETCH = 4
_RUN_COLUMNS = ("started_at", "harness_version", "environment_id", "commit_id")
_COMMIT_FIELDS = tuple(field.name for field in fields(CommitRef))


@dataclass(frozen=True)
class TrendQuestion:
    """Which points are asked for."""

    project: str
    keys: tuple[SeriesKey, ...]
    include_dirty: bool = False
    """Also runs of a work tree that differed from its commit."""
    branches: tuple[str, ...] = ()
    """Only commits that were measured under one of these names; without any, the project's own branch."""
    length: int | None = None
    """Only so many commits."""
    end: str | None = None
    """Sha of the last of them; without one, the newest."""
    kept_commits: tuple[str, ...] = ()
    """Shas whose points stay whatever they say, such as those of change points; and what lies just before."""


def read_trend(session: Session, question: TrendQuestion) -> Trend:
    """The series of a question, in one statement. One that has no points in the window is left out."""
    points = _points(question)
    if points is None:
        return Trend((), {}, 0, 0)
    kept = _kept(_within_window(points, question), question)
    query = (
        select(
            *(kept, RunRow.run_id, RunRow.started_at, SeriesRow.timer, SeriesRow.cache, EnvironmentRow),
            *(getattr(CommitRow, name) for name in _COMMIT_FIELDS),
        )
        .join(RunRow, RunRow.number == kept.c.run_number)
        .join(CommitRow, CommitRow.id == kept.c.commit_id)
        .outerjoin(SeriesRow, SeriesRow.id == kept.c.series_id)
        .outerjoin(EnvironmentRow, and_(kept.c.is_other_setting, EnvironmentRow.id == kept.c.environment_id))
        .order_by(kept.c.number, kept.c.at)
    )
    return _trend(question, session.execute(query).all())


def list_window_ends(session: Session, question: TrendQuestion, *, limit: int = 200) -> list[WindowEnd]:
    """Commits that a window of the length of the question may end with, the newest first; so many, evenly spread, and
    the end that the question has.
    """
    points = _points(question)
    if points is None or question.length is None:
        return []
    count = func.max(points.c.place).over() + 1
    commits = (
        select(points.c.place, points.c.commit_id, count.label("count"))
        .group_by(points.c.place, points.c.commit_id)
        .subquery("commits")
    )
    step = func.greatest(1, (commits.c.count - question.length + limit - 1) // limit)
    query = (
        select(CommitRow.sha, CommitRow.committed_at)
        .join(commits, commits.c.commit_id == CommitRow.id)
        .where(
            or_(
                and_(commits.c.place >= question.length - 1, (commits.c.count - 1 - commits.c.place) % step == 0),
                CommitRow.sha == question.end,
            )
        )
        .order_by(commits.c.place.desc())
    )
    return [WindowEnd(*row) for row in session.execute(query)]


def _points(question: TrendQuestion) -> CTE | None:
    """Each point with its run and the place of its commit among those of all points, from 0."""
    points = points_of(question.project, question.keys)
    if points is None:
        return None
    # each looked up by its number: of a plain join, Postgres without statistics reads all points for each run
    run = (
        select(*(getattr(RunRow, name) for name in _RUN_COLUMNS))
        .where(RunRow.number == points.c.run_number, RunRow.project_id == ProjectRow.id, _runs(question))
        .correlate(points, ProjectRow)
        .offset(0)
        .lateral("of_point")
    )
    along = (CommitRow.first_parent_count, CommitRow.sha)
    # narrow, as what many rows carry along is sorted with them
    return (
        select(
            *(one for name, one in points.c.items() if name != "runner_class"),
            *(run.c.harness_version, run.c.environment_id, run.c.commit_id, EnvironmentRow.runner_class),
            func.row_number().over(order_by=(*along, run.c.started_at, points.c.run_number)).label("rank"),
            cast(func.dense_rank().over(order_by=along) - 1, Integer).label("place"),
        )
        .select_from(points)
        .join(ProjectRow, ProjectRow.name == question.project)
        .join(run, true())
        .join(CommitRow, CommitRow.id == run.c.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == run.c.environment_id)
        .where(or_(points.c.runner_class == "", points.c.runner_class == EnvironmentRow.runner_class))
        .cte("placed")
    )


def _runs(question: TrendQuestion) -> ColumnElement[bool]:
    condition = of_series(
        question.project,
        include_dirty=question.include_dirty,
        include_pairs=False,
        include_branches=bool(question.branches),
    )
    if not question.branches:
        return condition
    other = aliased(RunRow)
    # a run whose branch is not known goes along with those of its commit
    of_branches = or_(RunRow.branch.is_(None), RunRow.branch.in_(question.branches))
    was_measured = exists().where(
        other.commit_id == RunRow.commit_id, other.branch.in_(question.branches), on_branch(other)
    )
    return and_(condition, of_branches, was_measured)


def _within_window(points: CTE, question: TrendQuestion) -> CTE:
    if question.length is None:
        return points
    newest = select(func.max(points.c.place)).scalar_subquery()
    asked = (
        select(func.max(points.c.place))
        .where(points.c.commit_id.in_(_commit_ids(question, CommitRow.sha == question.end)))
        .scalar_subquery()
    )
    last = func.greatest(func.coalesce(asked, newest), question.length - 1)
    place = points.c.place - func.greatest(0, last - question.length + 1)
    others = [one for name, one in points.c.items() if name != "place"]
    within = and_(points.c.place > last - question.length, points.c.place <= last)
    return select(*others, place.label("place")).where(within).cte("within")


def _commit_ids(question: TrendQuestion, condition: ColumnElement[bool]) -> Select[int]:
    own = select(ProjectRow.id).where(ProjectRow.name == question.project).scalar_subquery()
    return select(CommitRow.id).where(CommitRow.project_id == own, condition)


def _kept(points: CTE, question: TrendQuestion) -> Subquery:
    """The points that tell each stretch."""
    most = max(_LEAST_POINTS, min(MOST_POINTS, _MOST_POINTS_IN_ALL // len(question.keys)))
    one = points.c
    changes = [
        func.lag(each).over(partition_by=one.runner_class, order_by=one.rank).is_distinct_from(each)
        for each in (one.environment_id, one.harness_version)
    ]
    numbered = select(
        points,
        or_(*changes).label("is_other_setting"),
        func.lag(one.series_id)
        .over(partition_by=one.number, order_by=one.rank)
        .is_distinct_from(one.series_id)
        .label("is_otherwise_timed"),
        (func.row_number().over(partition_by=one.number, order_by=one.rank) - 1).label("at"),
        func.lead(one.commit_id).over(partition_by=one.number, order_by=one.rank).label("next_commit_id"),
        func.count().over(partition_by=one.number).label("run_count"),
    ).subquery("numbered")
    stretch = numbered.c.at * (most // _KEPT_OF_A_STRETCH) // numbered.c.run_count
    stretched = select(numbered, stretch.label("stretch")).subquery("stretched")
    one = stretched.c
    own = (one.number, one.stretch)
    asked_for = _commit_ids(question, CommitRow.sha.in_(question.kept_commits))
    # a run that failed has no value: of those that ended alike the first comes first
    lowest_first, highest_first = (one.value, one.at), (one.value.desc().nulls_last(), one.at)
    telling = select(
        stretched,
        or_(
            one.run_count <= most,
            one.is_other_setting,
            one.is_otherwise_timed,
            one.commit_id.in_(asked_for),
            one.next_commit_id.in_(asked_for),
            one.at == func.min(one.at).over(partition_by=own),
            one.at == func.max(one.at).over(partition_by=own),
            func.row_number().over(partition_by=(*own, one.outcome), order_by=lowest_first) == 1,
            func.row_number().over(partition_by=(*own, one.outcome), order_by=highest_first) == 1,
        ).label("is_telling"),
    ).subquery("telling")
    return select(telling).where(telling.c.is_telling).subquery("kept")


def _trend(question: TrendQuestion, rows: Sequence[Any]) -> Trend:
    settings = {
        (row.environment_id, row.harness_version): setting_of(row.EnvironmentRow, row.harness_version)
        for row in rows
        if row.EnvironmentRow is not None
    }
    commits: dict[int, CommitRef] = {}
    points: defaultdict[int, list[SeriesPoint]] = defaultdict(list)
    for row in rows:
        if row.commit_id not in commits:
            commits[row.commit_id] = CommitRef(*row[-len(_COMMIT_FIELDS) :])
        setting = settings[row.environment_id, row.harness_version]
        run = SeriesRun(str(row.run_id), commits[row.commit_id], row.started_at, row.runner_class, setting)
        points[row.number].append(
            run.point(
                *(row.outcome, row.message, row.value),
                low=row.low,
                high=row.high,
                code_hash=row.code_hash,
                timing="" if row.series_id is None else timing_of(row.timer, row.cache),
            )
        )
    return Trend(
        series=tuple(Series(question.keys[number], tuple(points[number])) for number in sorted(points)),
        places={commits[row.commit_id].sha: row.place for row in rows},
        # the newest commit is the end of a stretch
        commit_count=max((row.place + 1 for row in rows), default=0),
        run_count=max((row.run_count for row in rows), default=0),
    )
