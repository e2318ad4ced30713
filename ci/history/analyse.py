"""Analyse a project: read its history from the store, find what changed, and store the regressions.

Series are read a few hundred at a time, by as many processes as are asked for. Most never changed and are screened by
bare columns (`roofwatch.ci.history.screen`); only what moved, failed or was compiled differently is read with all that
explains it. So memory grows neither with the history nor with the number of series.
"""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from roofwatch.ci.ab.pair_evidence import PairEvidence
from roofwatch.ci.causes.counter_evidence import CounterEvidence
from roofwatch.ci.causes.launch_evidence import LaunchEvidence
from roofwatch.ci.causes.runner_evidence import Calibrations
from roofwatch.ci.history.history import Gathered, gather, put_together
from roofwatch.ci.history.screen import ByCommit, has_changed_error, has_moved
from roofwatch.ci.history.secondary_change import BESIDE_TIME
from roofwatch.ci.history.supporting_series import Witnesses
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.engine.locks import analysis_lock
from roofwatch.db.engine.session import open_again, reading_session
from roofwatch.db.queries.codes import list_changed_code, list_failed_checks
from roofwatch.db.queries.columns import ErrorColumns, TimeColumns
from roofwatch.db.queries.counted import read_counted_runs
from roofwatch.db.queries.error_columns import read_error_columns
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.profiled import read_profiled_runs
from roofwatch.db.queries.runs import count_analysed_values
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.time_columns import list_case_row_ids, read_time_columns
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.reachability import note_unreachable
from roofwatch.db.values import Regression, SeriesKey

Subject = tuple[str, str]
"""Case id and implementation."""

JUDGED_METRICS = (
    # rates and utilisation are the median time over constants of the case: judged once, shown in all units
    *("median_ns", *BESIDE_TIME, "rmse_ratio"),
    *("registers", "spilled_registers", "spill_store_count", "spill_load_count", "local_bytes", "shared_bytes"),
    "theoretical_occupancy",
)
_VALUES_AT_ONCE = 400_000
"""Values read together: some tens of megabytes."""


def analyse_project(
    engine: Engine, project: str, thresholds: Thresholds | None = None, *, worker_count: int = 1
) -> list[Regression]:
    """Find the regressions in a project's history and replace those that were stored.

    Pairs count as runs of their two commits too: a repeated measurement corrects a point that a neighbour on the
    machine had disturbed.

    Args:
        engine: Of the store.
        project: Its name.
        thresholds: What is worth reporting; the defaults if left out.
        worker_count: Processes; each has a connection of its own. 1 works in this process.
    """
    limits = thresholds or Thresholds()
    with analysis_lock(engine, project):
        note_unreachable(engine, project)
        with reading_session(engine) as session:
            row_ids = list_case_row_ids(session, project)
            value_count = count_analysed_values(session, project)
        parts = _split(row_ids, -(-value_count // _VALUES_AT_ONCE), worker_count)
        gathered = Gathered()
        for part in _analyse_parts(engine, project, limits, parts, worker_count):
            gathered.add(part)
        found = put_together(gathered, limits)
        replace_regressions(engine, project, found)
    return found


def _split(row_ids: Sequence[int], count: int, worker_count: int) -> list[Sequence[int]]:
    """About so many parts of equal length, a multiple of the workers."""
    count = -(-count // worker_count) * worker_count
    size = -(-len(row_ids) // max(count, 1)) or 1
    return [row_ids[start : start + size] for start in range(0, len(row_ids), size)]


def _analyse_parts(
    engine: Engine, project: str, thresholds: Thresholds, parts: Sequence[Sequence[int]], worker_count: int
) -> list[Gathered]:
    if worker_count == 1 or len(parts) < 2:
        return [_analyse_part(engine, project, thresholds, part) for part in parts]
    # a forked process would share this one's connections
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(worker_count, len(parts)), mp_context=context) as pool:
        return list(pool.map(partial(_analyse_in_process, engine.url, project, thresholds), parts))


def _analyse_in_process(url: URL, project: str, thresholds: Thresholds, row_ids: Sequence[int]) -> Gathered:
    with open_again(url) as engine:
        return _analyse_part(engine, project, thresholds, row_ids)


@dataclass
class _Columns:
    """One case and implementation as bare columns."""

    times: list[TimeColumns]
    errors: list[ErrorColumns]


def _analyse_part(engine: Engine, project: str, thresholds: Thresholds, row_ids: Sequence[int]) -> Gathered:
    """Screen the series of some cases, and analyse those that changed."""
    gathered = Gathered()
    with reading_session(engine) as session:
        columns: dict[Subject, _Columns] = defaultdict(lambda: _Columns([], []))
        changed = list_failed_checks(session, project, row_ids) | list_changed_code(session, project, row_ids)
        for time in read_time_columns(session, project, row_ids, include_pairs=True, beside=BESIDE_TIME):
            columns[_subject(time.key)].times.append(time)
            if time.has_failures:
                changed.add(_subject(time.key))
        for error in read_error_columns(session, project, row_ids):
            columns[_subject(error.key)].errors.append(error)
        for subject, own in columns.items():
            if subject in changed:
                continue
            times = [ByCommit.of(one) for one in own.times]
            if any(has_moved(one, thresholds) for one in times) or any(
                has_changed_error(one, thresholds) for one in own.errors
            ):
                changed.add(subject)
            else:
                _count_unchanged(gathered, times)
        _analyse_changed(session, project, thresholds, row_ids, changed, gathered)
    return gathered


def _count_unchanged(gathered: Gathered, times: Sequence[ByCommit]) -> None:
    by_class = {one.columns.key.runner_class: one.columns.key for one in times}
    for runner_class, key in by_class.items():
        own = [one for one in times if one.columns.key.runner_class == runner_class]
        gathered.population.add(key)
        gathered.series_by_date.update({day for one in own for day in one.dates.tolist()})


def _analyse_changed(
    session: Session,
    project: str,
    thresholds: Thresholds,
    row_ids: Sequence[int],
    subjects: Collection[Subject],
    gathered: Gathered,
) -> None:
    if not subjects:
        return
    pairs = list_pairs(session, project, row_ids=row_ids)
    evidence = PairEvidence(pairs, thresholds)
    witnesses = Witnesses(
        CounterEvidence(read_counted_runs(session, project, subjects)),
        LaunchEvidence(read_profiled_runs(session, project, subjects)),
        Calibrations(pairs),
    )
    by_subject = defaultdict(list)
    for one in read_series(
        session, project, subjects=subjects, metrics=JUDGED_METRICS, include_pairs=True, include_conditions=True
    ):
        by_subject[_subject(one.key)].append(one)
    for _, series in sorted(by_subject.items()):
        gathered.add(gather(series, evidence, thresholds, witnesses))


def _subject(key: SeriesKey) -> Subject:
    return key.case_id, key.implementation
