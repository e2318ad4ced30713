"""Analyse a project: read its history from the database, find what changed, and store the
regressions.

Most series never changed. They are screened by columns of numbers, with the same steps as a full
analysis. Only cases that changed, failed or were compiled differently are read with all their
evidence.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import ValidationError
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.acceptances import accepted_in
from roofwatch.ci.history.controls import controls_among
from roofwatch.ci.history.documents import from_case_analyses, to_case_analysis
from roofwatch.ci.history.history import SeriesAnalysis, analyse_series
from roofwatch.ci.history.steps import (
    ERROR,
    JUDGED_FACTS,
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
    count_analysed_runs,
    list_case_names,
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
from roofwatch.db.regressions.acceptances import list_acceptances, list_merged
from roofwatch.db.regressions.branch_line import note_unreachable
from roofwatch.db.regressions.case_analyses import (
    DueCases,
    list_due,
    read_case_analyses,
    write_case_analyses,
)
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import RegressionKey
from roofwatch.model.acceptance import AcceptedRegression
from roofwatch.model.case_analysis import CaseAnalysis
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.history import Regression, SeriesKey
from roofwatch.model.metrics import OPERATOR_METRICS, RATIO_TO_REFERENCE, TIME

JUDGED_METRICS = (
    # rates and utilisation follow from the median time
    TIME.key,
    *SECONDARY_METRICS,
    RATIO_TO_REFERENCE,
    ERROR,
    *JUDGED_FACTS,
    *OPERATOR_METRICS,
)
METHOD = "3"
"""Changes with the method, so that stored analyses of an older one are made again."""
_VALUES_AT_ONCE = 400_000
"""Values read together, some tens of MB."""


def analyse_project(
    engine: Engine,
    project: str,
    *,
    is_full: bool = False,
) -> list[Regression]:
    """Find the regressions in a project's history and replace the stored ones.

    Only cases with new values are analysed, unless `is_full`; what was found in the others is
    stored. Pairs count as runs of their two commits too, so a repeated measurement corrects a
    disturbed one.
    """
    with analysis_lock(engine, project):
        note_unreachable(engine, project)
        with reading_session(engine, sees_one_state=True) as session:
            cases = list_case_names(session, project)
            due = list_due(
                session=session,
                project=project,
                method=METHOD,
                row_ids=list(cases),
            )
        if is_full:
            due = replace(due, case_ids=list(cases))
        _analyse_due(
            engine=engine,
            project=project,
            due=due,
            cases=cases,
        )
        try:
            analysis = _read_analysis(engine, project)
        except ValidationError:
            # documents of another version of roofwatch
            _analyse_due(
                engine=engine,
                project=project,
                due=replace(due, case_ids=list(cases)),
                cases=cases,
            )
            analysis = _read_analysis(engine, project)
        regressions = analysis.regressions()
        accepted = _find_accepted(engine, project, regressions)
        replace_regressions(
            engine,
            project,
            regressions,
            accepted,
        )
    return regressions


def _find_accepted(
    engine: Engine,
    project: str,
    regressions: Sequence[Regression],
) -> dict[RegressionKey, AcceptedRegression]:
    """Find the regressions that were accepted in pull requests, by key."""
    with reading_session(engine) as session:
        acceptances = list_acceptances(session, project)
        # most projects accept nothing, and need not read their merges
        if not acceptances:
            return {}
        heads = {regression.commit.sha for regression in regressions}
        merged = list_merged(session, project, heads)
    accepted: dict[RegressionKey, AcceptedRegression] = {}
    for regression in regressions:
        acceptance = accepted_in(regression, acceptances, merged.get(regression.commit.sha, ()))
        if acceptance is not None:
            accepted[regression.key] = acceptance
    return accepted


def find_outdated_cases(engine: Engine, project: str) -> list[str]:
    """Analyse all cases again, without storing the result; return those whose stored analysis
    differs.

    Cases that wait for an analysis are left out.
    """
    with reading_session(engine, sees_one_state=True) as session:
        cases = list_case_names(session, project)
        # a case that waits differs for a good reason
        waiting = set(
            list_due(
                session=session,
                project=project,
                method=METHOD,
                row_ids=list(cases),
            ).case_ids
        )
        stored = {analysis.case_id: analysis for analysis in read_case_analyses(session, project)}
    differing = []
    current = [row_id for row_id in cases if row_id not in waiting]
    for part in _parts(engine, project, current):
        for row_id, analysis in _analyse_part(
            engine=engine,
            project=project,
            row_ids=part,
            cases=cases,
        ).items():
            if not _is_same(to_case_analysis(row_id, analysis), stored[row_id]):
                differing.append(cases[row_id])
    return differing


def _is_same(analysis: CaseAnalysis, stored: CaseAnalysis) -> bool:
    if orjson.loads(analysis.findings) != orjson.loads(stored.findings):
        return False
    if orjson.loads(analysis.series) != orjson.loads(stored.series):
        return False
    if analysis.days != stored.days:
        return False
    stored_controls = orjson.loads(stored.controls)
    has_same_controls: bool = orjson.loads(analysis.controls) == stored_controls
    return has_same_controls


def _analyse_due(
    engine: Engine,
    project: str,
    due: DueCases,
    cases: Mapping[int, str],
) -> None:
    """Analyse the cases that are due and store what was found, each part in a transaction."""
    for part in _parts(engine, project, due.case_ids):
        analyses = _analyse_part(
            engine=engine,
            project=project,
            row_ids=part,
            cases=cases,
        )
        stored = [to_case_analysis(row_id, analysis) for row_id, analysis in analyses.items()]
        # the changes stay noted until all parts are stored
        write_case_analyses(engine, replace(due, change_ids=()), stored)
    write_case_analyses(engine, due, ())


def _parts(
    engine: Engine,
    project: str,
    row_ids: Sequence[int],
) -> Iterator[Sequence[int]]:
    """Split cases so that the values of a part fit in memory."""
    with reading_session(engine) as session:
        run_count = count_analysed_runs(session, project)
    size = max(1, _VALUES_AT_ONCE // max(run_count, 1))
    for start in range(0, len(row_ids), size):
        yield row_ids[start : start + size]


def _read_analysis(engine: Engine, project: str) -> SeriesAnalysis:
    with reading_session(engine) as session:
        return from_case_analyses(read_case_analyses(session, project))


def _analyse_part(
    engine: Engine,
    project: str,
    row_ids: Sequence[int],
    cases: Mapping[int, str],
) -> dict[int, SeriesAnalysis]:
    """Screen the series of some cases, and analyse the cases that changed."""
    by_case = {cases[row_id]: SeriesAnalysis() for row_id in row_ids}
    with reading_session(engine) as session:
        imported = list_imported(session, row_ids)
        changed = imported | _changed_whatever_the_time(session, project, row_ids)
        times: dict[CaseKey, list[TimeColumns]] = defaultdict(list)
        for time in read_time_columns(
            session,
            project,
            row_ids,
            secondary=SECONDARY_METRICS,
        ):
            subject = time.key.case_key
            times[subject].append(time)
            if subject not in changed and (time.has_failures or _times_need_analysis(time)):
                changed.add(subject)
        controls = controls_among({*times, *imported})
        # an owner may mark further rows as controls
        controls |= list_marked_controls(session, row_ids)
        changed_cases = {case_id for case_id, _ in changed}
        # controls are evidence about the changed series of their case
        for control in controls & times.keys():
            case_id, _ = control
            if case_id in changed_cases:
                changed.add(control)
        for error in read_error_columns(session, project, row_ids):
            subject = error.key.case_key
            if subject not in changed and _errors_need_analysis(error):
                changed.add(subject)
        for subject in times.keys() - changed:
            case_id, _ = subject
            _count_unchanged(by_case[case_id], times[subject])
        if changed:
            analyses = _analyse_cases(
                session=session,
                project=project,
                row_ids=row_ids,
                subjects=changed,
                controls=controls,
            )
            for (case_id, _), analysis in analyses.items():
                by_case[case_id].add(analysis)
    return {row_id: by_case[cases[row_id]] for row_id in row_ids}


def _changed_whatever_the_time(
    session: Session,
    project: str,
    row_ids: Sequence[int],
) -> set[CaseKey]:
    """Subjects that are analysed however short or quiet their history is."""
    changed = list_failed_checks(session, project, row_ids)
    changed |= list_changed_code(session, project, row_ids)
    # a pair decides however short the history is
    changed |= list_paired(session, project, row_ids)
    # so does a commit that was measured with two drivers
    changed |= list_bridged(session, project, row_ids)
    return changed


def _count_unchanged(analysis: SeriesAnalysis, times: Iterable[TimeColumns]) -> None:
    """Add series without a change to the population, which says how many did not change."""
    days: dict[SeriesKey, set[date]] = defaultdict(set)
    for time in times:
        days[time.key].update(_first_days(time).tolist())
    for key, series_days in days.items():
        analysis.population.add(key)
        analysis.series_by_date.update(series_days)


def _analyse_cases(
    session: Session,
    project: str,
    row_ids: Sequence[int],
    subjects: Collection[CaseKey],
    controls: Collection[CaseKey],
) -> dict[CaseKey, SeriesAnalysis]:
    evidence = SupportingEvidence(
        list_pairs(session, project, row_ids=row_ids),
        counted=read_counted_runs(session, project, subjects),
        profiled=read_profiled_runs(session, project, subjects),
    )
    cases = {case_id for case_id, _ in subjects}
    keys = [
        key
        for key in list_series_keys(
            session,
            project,
            cases=cases,
            include_pairs=True,
        )
        if (key.metric in JUDGED_METRICS or is_judged_import(key)) and key.case_key in subjects
    ]
    stored = read_series(
        session,
        project,
        keys,
        include_pairs=True,
        include_conditions=True,
    )
    by_subject = group_by(stored, lambda series: series.key.case_key)
    return {
        subject: analyse_series(series, evidence, {subject}.intersection(controls))
        for subject, series in sorted(by_subject.items())
    }


# --- screening


def _times_need_analysis(times: TimeColumns) -> bool:
    """Whether the time steps or drifts, or one of its secondary metrics steps."""
    starts = _starts(times.places)
    values = _medians(times.medians_ns, starts)
    squares = (QUARTILES_TO_ERROR * times.relative_spreads) ** 2 / times.block_counts
    counts = np.diff([*starts, len(times.places)])
    sums_of_squares = np.add.reduceat(squares, starts)
    errors = np.sqrt(sums_of_squares) / counts
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
    parts = np.split(values, starts[1:])
    return np.array([np.median(part) for part in parts])


def _starts(places: NDArray[np.int64]) -> NDArray[np.intp]:
    """Positions at which another commit begins."""
    return np.flatnonzero(np.diff(places, prepend=-1))
