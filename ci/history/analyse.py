"""Analyse a project: read its history from the database, find what changed, and store the
regressions.

Most series never changed. They are screened by columns of numbers, with the same steps as a full
analysis. Only cases that changed, failed or were compiled differently are read with all their
evidence.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.controls import controls_among
from roofwatch.ci.history.history import SeriesAnalysis, analyse_series
from roofwatch.ci.history.steps import (
    QUARTILES_TO_ERROR,
    SECONDARY_METRICS,
    find_slow_drift,
    find_time_steps,
    find_value_steps,
    is_judged_import,
)
from roofwatch.db.engine.session import analysis_lock, reading_session
from roofwatch.db.queries.columns import (
    ErrorColumns,
    TimeColumns,
    count_analysed_values,
    list_case_row_ids,
    read_error_columns,
    read_time_columns,
)
from roofwatch.db.queries.evidence import (
    list_changed_code,
    list_failed_checks,
    list_imported,
    list_marked_controls,
    read_counted_runs,
    read_profiled_runs,
)
from roofwatch.db.queries.paired import list_bridged, list_paired
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.branch_line import note_unreachable
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.history import Regression, SeriesKey
from roofwatch.model.metrics import RATIO_TO_REFERENCE

Subject = tuple[str, str]
"""Case id and implementation."""

JUDGED_METRICS = (
    # rates and utilisation follow from the median time
    "median_ns",
    *SECONDARY_METRICS,
    RATIO_TO_REFERENCE,
    "rmse_ratio",
    "registers",
    "spilled_registers",
    "spill_store_count",
    "spill_load_count",
    "local_bytes",
    "shared_bytes",
    "theoretical_occupancy",
)
_VALUES_AT_ONCE = 400_000
"""Values read together, some tens of MB."""


def analyse_project(engine: Engine, project: str) -> list[Regression]:
    """Find the regressions in a project's history and replace the stored ones.

    Pairs count as runs of their two commits too, so a repeated measurement corrects a disturbed
    one.
    """
    with analysis_lock(engine, project):
        note_unreachable(engine, project)
        with reading_session(engine) as session:
            row_ids = list_case_row_ids(session, project)
            part_count = -(-count_analysed_values(session, project) // _VALUES_AT_ONCE)
        size = max(1, -(-len(row_ids) // max(part_count, 1)))
        analysis = SeriesAnalysis()
        for start in range(0, len(row_ids), size):
            analysis.add(_analyse_part(engine, project, row_ids[start : start + size]))
        found = analysis.regressions()
        replace_regressions(engine, project, found)
    return found


def _analyse_part(engine: Engine, project: str, row_ids: Sequence[int]) -> SeriesAnalysis:
    """Screen the series of some cases, and analyse the cases that changed."""
    found = SeriesAnalysis()
    with reading_session(engine) as session:
        times: dict[Subject, list[TimeColumns]] = defaultdict(list)
        changed = list_failed_checks(session, project, row_ids) | list_changed_code(
            session, project, row_ids
        )
        imported = list_imported(session, row_ids)
        changed |= imported
        # a pair decides however short the history is
        changed |= list_paired(session, project, row_ids)
        # so does a commit that was measured with two drivers
        changed |= list_bridged(session, project, row_ids)
        for time in read_time_columns(session, project, row_ids, secondary=SECONDARY_METRICS):
            subject = _subject(time.key)
            times[subject].append(time)
            if subject not in changed and (time.has_failures or _times_need_analysis(time)):
                changed.add(subject)
        controls = controls_among({*times, *imported}) | list_marked_controls(session, row_ids)
        changed_cases = {case_id for case_id, _ in changed}
        # controls are evidence about the changed series of their case
        changed |= {one for one in controls if one in times and one[0] in changed_cases}
        for error in read_error_columns(session, project, row_ids):
            if _subject(error.key) not in changed and _errors_need_analysis(error):
                changed.add(_subject(error.key))
        for subject in times.keys() - changed:
            days: dict[SeriesKey, set[date]] = defaultdict(set)
            for time in times[subject]:
                days[time.key].update(_first_days(time).tolist())
            for key, own in days.items():
                found.population.add(key)
                found.series_by_date.update(own)
        if changed:
            found.add(_analyse_cases(session, project, row_ids, changed, controls))
    return found


def _analyse_cases(
    session: Session,
    project: str,
    row_ids: Sequence[int],
    subjects: Collection[Subject],
    controls: Collection[Subject],
) -> SeriesAnalysis:
    evidence = SupportingEvidence(
        list_pairs(session, project, row_ids=row_ids),
        counted=read_counted_runs(session, project, subjects),
        profiled=read_profiled_runs(session, project, subjects),
    )
    by_subject = defaultdict(list)
    cases = {case_id for case_id, _ in subjects}
    keys = [
        key
        for key in list_series_keys(session, project, cases=cases, include_pairs=True)
        if (key.metric in JUDGED_METRICS or is_judged_import(key)) and _subject(key) in subjects
    ]
    for one in read_series(session, project, keys, include_pairs=True, include_conditions=True):
        by_subject[_subject(one.key)].append(one)
    found = SeriesAnalysis()
    for subject, series in sorted(by_subject.items()):
        found.add(analyse_series(series, evidence, {subject}.intersection(controls)))
    return found


def _subject(key: SeriesKey) -> Subject:
    return key.case_id, key.implementation


# --- screening


def _times_need_analysis(times: TimeColumns) -> bool:
    """Whether the time steps or drifts, or one of its secondary metrics steps."""
    starts = _starts(times.places)
    values = _medians(times.medians_ns, starts)
    squares = (QUARTILES_TO_ERROR * times.relative_spreads) ** 2 / times.block_counts
    counts = np.diff([*starts, len(times.places)])
    errors = np.sqrt(np.add.reduceat(squares, starts)) / counts
    if find_time_steps(values, errors) or find_slow_drift(values, _first_days(times)) is not None:
        return True
    for metric, measured in times.secondary.items():
        is_known = ~np.isnan(measured)
        medians = _medians(measured[is_known], _starts(times.places[is_known]))
        if find_value_steps(replace(times.key, metric=metric), medians):
            return True
    return False


def _errors_need_analysis(errors: ErrorColumns) -> bool:
    medians = _medians(errors.rmse_ratios, _starts(errors.places))
    return bool(find_value_steps(errors.key, medians))


def _first_days(times: TimeColumns) -> NDArray[np.datetime64]:
    """Date of the first measurement of each commit."""
    return np.minimum.reduceat(times.days, _starts(times.places))


def _medians(values: NDArray[np.float64], starts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Median of the values from each start to the next."""
    if len(starts) == len(values):
        return values
    return np.array([np.median(own) for own in np.split(values, starts[1:])])


def _starts(places: NDArray[np.int64]) -> NDArray[np.intp]:
    """Positions at which another commit begins."""
    return np.flatnonzero(np.diff(places, prepend=-1))
