"""Series: one metric of one case and implementation over the commits of a project."""

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Text,
    and_,
    any_,
    cast,
    false,
    func,
    literal,
    null,
    select,
)
from sqlalchemy.orm import Session

from roofwatch.db.queries.points import select_points
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.schema.measurements import SampleSetRow
from roofwatch.db.schema.run_filter import COMMIT_COLUMNS, Words, is_in_series, is_on
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, RunRow
from roofwatch.db.schema.subjects import ProjectName
from roofwatch.model.history import (
    OUTCOMES,
    CommitRef,
    RunSetting,
    Series,
    SeriesKey,
    SeriesPoint,
    TunedChoice,
)
from roofwatch.model.run_setting import setting_of
from roofwatch.model.series_filter import IncludedRuns, Word

POINT_COLUMNS = ("outcome", "value", "low", "high", "code_hash", "message", "block_count", "timing")
"""Columns of `select_points` that a `SeriesPoint` has after its run, in its order."""
_KEYS_PER_STATEMENT = 500
_HISTORY_RUNS = 2_000


def count_series_runs(
    session: Session,
    project: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    **included: Unpack[IncludedRuns],
) -> int:
    """Count the runs that `read_series` reads with the same filters: the maximum points of a
    series.
    """
    runs = is_in_series(project, **included)
    query = select(func.count()).select_from(RunRow)
    return session.scalar(query.where(runs, *_within(since, until))) or 0


def list_counted_runs(session: Session, project: ProjectName) -> list[tuple[str, datetime]]:
    """List id and start of the runs that `read_series` reads of a project, the oldest first."""
    query = (
        select(cast(RunRow.run_id, Text), RunRow.started_at)
        .where(is_in_series(project))
        .order_by(RunRow.started_at, RunRow.run_id)
    )
    return [(run_id, started_at) for run_id, started_at in session.execute(query)]


def read_series(
    session: Session,
    project: str,
    keys: Collection[SeriesKey] | None = None,
    *,
    include_conditions: bool = False,
    branches: Collection[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    **included: Unpack[IncludedRuns],
) -> list[Series]:
    """Read series of a project in the order of their keys, without those that have no points; all
    without keys.

    A failed run has a point without a value. A failed accuracy check counts for all tensors.
    Conditions are clocks, temperatures and autotuning, which are slow to read for many series.
    Given branches, only commits measured on one of them count. Runs start at `since` or later and
    before `until`; see `is_in_series` for which are included.
    """
    if keys is None:
        keys = list_series_keys(session, project, **included)
    condition = and_(
        is_in_series(project, **included), is_on(project, (), branches), *_within(since, until)
    )
    runs = _read_runs(session, condition)
    in_order = sorted(keys)
    all_series: list[Series] = []
    for start in range(0, len(in_order), _KEYS_PER_STATEMENT):
        some = in_order[start : start + _KEYS_PER_STATEMENT]
        points: defaultdict[int, list[SeriesPoint]] = defaultdict(list)
        rows = session.connection().execute(
            _select(project, some, runs, include_conditions=include_conditions)
        )
        for number, runner_class, run_number, facts, outcome, *values in rows.all():
            run, setting, runner_of_run = runs[run_number]
            if runner_class in ("", runner_of_run):
                if facts is None:
                    conditions = {}
                else:
                    conditions = _conditions(facts)
                measured = [*values, setting]
                points[number].append(
                    SeriesPoint(
                        *run,
                        OUTCOMES[outcome],
                        *measured,
                        **conditions,
                    )
                )
        all_series += [Series(some[number], _in_order(points[number])) for number in sorted(points)]
    return all_series


def read_case_history(
    session: Session,
    project: ProjectName,
    case_id: Word,
    *,
    with_every_run: bool = False,
    runner_classes: Words = (),
    branches: Words = (),
) -> list[Series]:
    """Read the times of one case in the newest 2,000 runs, with the conditions of each measurement.

    With every run, sides of pairs and other branches count too. Given runner classes and branches,
    only runs on one of these, of commits measured on one of these, count.
    """
    included: IncludedRuns = {"include_pairs": with_every_run, "include_branches": with_every_run}
    keys = list_series_keys(
        session,
        project,
        cases=[case_id],
        metric="median_ns",
        **included,
    )
    start_of_newest = (
        select(RunRow.started_at)
        .where(is_in_series(project, **included), is_on(project, (), branches))
        .order_by(RunRow.started_at.desc())
        .offset(_HISTORY_RUNS - 1)
        .limit(1)
    )
    return read_series(
        session,
        project,
        [key for key in keys if not runner_classes or key.runner_class in runner_classes],
        **included,
        include_conditions=True,
        branches=branches,
        since=session.scalar(start_of_newest),
    )


def _within(since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    return [
        *([] if since is None else [RunRow.started_at >= since]),
        *([] if until is None else [RunRow.started_at < until]),
    ]


def _read_runs(
    session: Session, condition: ColumnElement[bool]
) -> dict[int, tuple[tuple[CommitRef, str, datetime], RunSetting, str]]:
    """Read by number: what a point says about its run, the setting and the runner class."""
    query = (
        select(
            RunRow.number,
            cast(RunRow.run_id, Text),
            RunRow.started_at,
            RunRow.environment_id,
            RunRow.harness_version,
            *COMMIT_COLUMNS,
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .where(condition)
    )
    rows = session.connection().execute(query).all()
    used = select(EnvironmentRow).where(EnvironmentRow.id.in_({row.environment_id for row in rows}))
    environments = {environment.id: environment for environment in session.scalars(used)}
    distinct_settings = {(row.environment_id, row.harness_version) for row in rows}
    settings = {key: setting_of(environments[key[0]], key[1]) for key in distinct_settings}
    return {
        number: (
            (CommitRef(*commit), run_id, started_at),
            settings[environment_id, harness_version],
            environments[environment_id].runner_class,
        )
        for number, run_id, started_at, environment_id, harness_version, *commit in rows
    }


def _select(
    project: str,
    keys: Collection[SeriesKey],
    run_numbers: Iterable[int],
    *,
    include_conditions: bool,
) -> Any:
    points = select_points(project, list(keys))
    assert points is not None  # there is a key at least
    samples = SampleSetRow
    # a scalar subquery keeps this a lookup by key
    facts = select(samples.facts).where(
        samples.run_number == points.c.run_number, samples.series_id == points.c.series_id
    )
    # `coalesce` hides the index by run: Postgres without statistics would read all results of these
    # runs
    is_included = points.c.run_number == any_(literal(list(run_numbers), ARRAY(Integer)))
    return select(
        points.c.number,
        points.c.runner_class,
        points.c.run_number,
        (facts.scalar_subquery() if include_conditions else null()).label("facts"),
        *(points.c[name] for name in POINT_COLUMNS),
    ).where(func.coalesce(is_included, false()))


def _in_order(points: Collection[SeriesPoint]) -> tuple[SeriesPoint, ...]:
    return tuple(sorted(points, key=lambda point: (point.commit, point.measured_at, point.run_id)))


def _conditions(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise the device's state during a measurement, and what the autotuner chose."""
    states = [state for block in facts["blocks"] if (state := block.get("device_state"))]
    clocks = [clock for state in states if (clock := state.get("sm_clock_mhz"))]
    temperatures_c = [
        temperature_c
        for state in states
        if (temperature_c := state.get("temperature_c")) is not None
    ]
    return {
        "sm_clock_mhz": statistics.median(clocks) if clocks else None,
        "temperature_c": max(temperatures_c, default=None),
        "degraded_by": tuple(
            sorted({reason for state in states for reason in state.get("degraded_by", ())})
        ),
        "choices": tuple(map(_tuned_choice, facts.get("autotuning", ()))),
    }


def _tuned_choice(choice: Mapping[str, Any]) -> TunedChoice:
    chosen = sorted(choice.get("chosen", {}).items())
    text = ", ".join(f"{name}={value}" for name, value in chosen)
    return TunedChoice(choice["function"], choice.get("key", ""), text)
