"""Series: one metric of one thing over the commits of a project. A handful of queries reads any number of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import collate, func, select, union_all
from sqlalchemy.orm import Session

from roofwatch.collector.record.metrics import Layer
from roofwatch.db.queries.accuracy_series import accuracy_keys, accuracy_points, accuracy_subjects
from roofwatch.db.queries.measured_series import measured_keys, measured_points, measured_subjects
from roofwatch.db.queries.series_filter import SeriesFilter, Subject, is_first_of_layer
from roofwatch.db.queries.series_runs import read_runs
from roofwatch.db.queries.static_series import static_keys, static_points, static_subjects
from roofwatch.db.schema.runs import CaseRow, ProjectRow, RunRow
from roofwatch.db.values import Series, SeriesKey, SeriesPoint

_LAYERS = {
    Layer.MEASURED: (measured_subjects, measured_keys),
    Layer.ACCURACY: (accuracy_subjects, accuracy_keys),
    Layer.STATIC: (static_subjects, static_keys),
}
"""How the series of each layer are listed: by a query, and by keys made of its rows."""
_CASES_AT_ONCE = 50
"""That a page of keys is looked for in at most."""


def list_series_keys(
    session: Session,
    project: str,
    *,
    kernel: str | None = None,
    metric: str | None = None,
    include_dirty: bool = False,
    include_pairs: bool = False,
    include_branches: bool = False,
    cases: Collection[str] | None = None,
) -> list[SeriesKey]:
    """The keys of the series that `read_series` finds with the same filters, in order; in one statement. Of some cases
    alone where these are given.
    """
    metrics = None if metric is None else {metric}
    wanted = SeriesFilter(
        *(project, None, kernel, metrics, include_dirty, include_pairs, include_branches),
        cases=None if cases is None else frozenset(cases),
    )
    queries = [subjects(wanted) for layer, (subjects, _) in _LAYERS.items() if wanted.metric_keys(layer)]
    found: defaultdict[str, list[Subject]] = defaultdict(list)
    for row in session.execute(union_all(*queries)) if queries else ():
        found[row.layer].append(Subject(*row))
    return sorted(key for layer, (_, keys) in _LAYERS.items() for key in keys(wanted, found[layer]))


def list_series_page(
    session: Session,
    project: str,
    *,
    after: SeriesKey | None,
    limit: int,
    case: str | None = None,
    kernel: str | None = None,
    **filters: Any,
) -> list[SeriesKey]:
    """The same keys, as many at least as fit into a page if there are as many. Looks at no more cases than it needs.

    Args:
        session: Of the store.
        project: Its name.
        after: Only what comes after it.
        limit: Of the page.
        case: Only of the case with this id.
        kernel: Only of this kernel.
        filters: Those of `list_series_keys`.
    """
    by_code_point = collate(CaseRow.name, "C")
    named = (
        select(CaseRow.name)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .where(ProjectRow.name == project)
        .order_by(by_code_point)
    )
    if case is not None:
        named = named.where(CaseRow.name == case)
    if kernel is not None:
        named = named.where(CaseRow.kernel == kernel)
    found: list[SeriesKey] = []
    # a case has a series at least, unless the filters leave it none
    at_once = min(limit, _CASES_AT_ONCE)
    following = named if after is None else named.where(by_code_point >= after.case_id)
    while len(found) < limit and (cases := session.scalars(following.limit(at_once)).all()):
        keys = list_series_keys(session, project, kernel=kernel, cases=cases, **filters)
        found += [key for key in keys if after is None or key > after]
        following = named.where(by_code_point > cases[-1])
        at_once = min(2 * at_once, _CASES_AT_ONCE)
    return found


def count_series_runs(
    session: Session,
    project: str,
    *,
    include_dirty: bool = False,
    include_pairs: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
) -> int:
    """How many runs `read_series` reads with the same filters: no series has more points."""
    wanted = SeriesFilter(
        project, None, None, None, include_dirty, include_pairs, include_branches=False, since=since, until=until
    )
    query = select(func.count()).select_from(RunRow).join(ProjectRow, ProjectRow.id == RunRow.project_id)
    return session.scalar(query.where(wanted.runs())) or 0


def read_series(
    session: Session,
    project: str,
    *,
    keys: Collection[SeriesKey] | None = None,
    kernel: str | None = None,
    subjects: Collection[tuple[str, str]] | None = None,
    metrics: Collection[str] | None = None,
    include_dirty: bool = False,
    include_pairs: bool = False,
    include_branches: bool = False,
    include_conditions: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Series]:
    """Series of a project, in the order of their keys.

    Where a run failed, its point has no value: an accuracy check that failed counts for all of its tensors. A
    thing that never gave a value has one series, of its layer's first metric; of keys within a time, each that has
    points there has one.

    Args:
        session: Of the store.
        project: Its name.
        keys: Only these; one that has no points is left out.
        kernel: Only of this kernel.
        subjects: Only of these cases, each with an implementation.
        metrics: Only of these metrics.
        include_dirty: Also runs of a work tree that differed from its commit.
        include_pairs: Also runs that are one side of a pair; they measure fewer cases, of commits that may never
            reach the branch.
        include_branches: Also runs of other branches than the project's own, which is `main`, `master`, `trunk` or the
            one with the most runs. A run whose branch is not known counts as its own.
        include_conditions: Also what was seen of the device during each time, and what the autotuner chose: much to
            read, so for few series.
        since: Only runs that began no earlier.
        until: Only runs that began before.
    """
    wanted = SeriesFilter(
        project,
        None if keys is None else frozenset(keys),
        kernel,
        None if metrics is None else frozenset(metrics),
        include_dirty,
        include_pairs,
        include_branches,
        include_conditions,
        None if subjects is None else frozenset(subjects),
        since,
        until,
    )
    # of a key that is asked for, a part of the time may have nothing but failures
    is_part = keys is not None and (since, until) != (None, None)
    runs = read_runs(session, wanted.runs())
    points: defaultdict[SeriesKey, list[SeriesPoint]] = defaultdict(list)
    for read in (measured_points, accuracy_points, static_points):
        for key, point in read(session, wanted, runs):
            if wanted.keys is None or key in wanted.keys:
                points[key].append(point)
    return [
        Series(key, tuple(sorted(points[key], key=lambda point: (point.commit, point.measured_at, point.run_id))))
        for key in sorted(points)
        if is_first_of_layer(key.metric) or is_part or any(point.value is not None for point in points[key])
    ]
