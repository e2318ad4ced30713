"""Judge a project: read from the store what is new, find what changed, and keep there what was found.

Every case and implementation has a standing (`roofwatch.ci.history.standing`), and most of a new run moves standings on
without a
look at any history. What the standings cannot say is read again, a few hundred series at a time, by as many processes
as are asked for: first the times and errors alone, as bare columns, and only what moved, failed or was compiled
otherwise with all that explains it. So the memory it takes grows neither with the history nor with the number of
series, but with what there is to tell.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from roofwatch.ci.ab.pair_evidence import PairEvidence
from roofwatch.ci.causes.counter_evidence import CounterEvidence
from roofwatch.ci.causes.launch_evidence import LaunchEvidence
from roofwatch.ci.causes.runner_evidence import Calibrations
from roofwatch.ci.history.dates import Nights
from roofwatch.ci.history.full_analysis import WholeLook, look_at_columns, look_at_series
from roofwatch.ci.history.history import Gathered, put_together
from roofwatch.ci.history.method import method_of
from roofwatch.ci.history.secondary_change import BESIDE_TIME
from roofwatch.ci.history.standing import Standing, advanced
from roofwatch.ci.history.standing_bytes import findings_from_json, findings_to_json, from_bytes, to_bytes
from roofwatch.ci.history.supporting_series import Witnesses
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.engine.locks import judging_alone
from roofwatch.db.engine.session import open_again, reading_session
from roofwatch.db.queries.codes import list_failed_checks, read_codes
from roofwatch.db.queries.columns import ErrorColumns, TimeColumns
from roofwatch.db.queries.counted import read_counted_runs
from roofwatch.db.queries.error_columns import read_error_columns
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.profiled import read_profiled_runs
from roofwatch.db.queries.run_results import list_judged_runs, read_news
from roofwatch.db.queries.run_results_values import JudgedRun
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.time_columns import list_case_row_ids, read_time_columns
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.reachability import note_unreachable
from roofwatch.db.regressions.standings import (
    JudgedHistory,
    KeptStanding,
    Subject,
    begin_judgement,
    forget_standings,
    keep_judged_history,
    read_judged_history,
    read_states,
    read_told,
    write_standings,
    write_states,
)
from roofwatch.db.values import Regression, Series, SeriesKey

_Share = TypeVar("_Share")

JUDGED_METRICS = (
    # rates and utilisation are the median time over constants of the case: judged once, shown in all units
    *("median_ns", *BESIDE_TIME, "rmse_ratio"),
    *("registers", "spilled_registers", "spill_store_count", "spill_load_count", "local_bytes", "shared_bytes"),
    "theoretical_occupancy",
)
_VALUES_AT_ONCE = 400_000
"""That are read whole together: some tens of megabytes, and few questions for many cases."""
_STATES_AT_ONCE = 2_000
"""Of cases and implementations: some megabytes."""
_NEW_AT_ONCE = 8_000
"""New values that are held together, some ten megabytes: for each lot Postgres goes through all values of the runs."""
_STATES_FOR_A_PROCESS = 10_000
"""Values that one process judges online in about the time that another takes to start."""
_NEW_SHARE = 0.1
"""Share of the runs from which on new ones are not gone through one by one: as many as move a series' turn."""
_MOST_NEW_SERIES = 500_000
"""The same, of series in several new runs together: to look at them whole takes no longer."""


def judge_project(
    engine: Engine,
    project: str,
    thresholds: Thresholds | None = None,
    *,
    worker_count: int = 1,
    is_whole: bool = False,
) -> list[Regression]:
    """Judge a project after what was stored since the last time, and replace what was found before.

    Pairs count as runs of their two commits too: what was measured again corrects a point that a neighbour on the
    machine had spoilt.

    Args:
        engine: Of the store.
        project: Its name.
        thresholds: What is worth telling; the defaults if left out.
        worker_count: Processes to judge in; each has a connection of its own. 1 judges in this one.
        is_whole: Judge all of the history anew, whatever is known of it. So it is without being asked for where it
            did not merely grow by a few runs, or was judged by other code or thresholds.
    """
    limits = thresholds or Thresholds()
    with judging_alone(engine, project):
        note_unreachable(engine, project)
        with reading_session(engine) as session:
            runs = list_judged_runs(session, project)
            row_ids = list_case_row_ids(session, project)
            before = read_judged_history(session, project)
        work = _Work(project, limits, _cases_at_once(runs, len(row_ids), _VALUES_AT_ONCE))
        method = method_of(limits)
        new = None
        if before is not None and before.method == method and not is_whole:
            new = _new_runs(before, runs)
        begin_judgement(engine, project)
        if before is None or new is None:
            forget_standings(engine, project)
            nights = _spread(engine, work, _look_at_parts, _shares_of_all(work, row_ids, worker_count))
        else:
            nights = before.series_by_night
            nights.update(_spread(engine, work, _move_on, _shares_of_new(row_ids, new, worker_count)))
        found = put_together(_gather(engine, project, nights), limits)
        replace_regressions(engine, project, found)
        numbers, places = tuple(run.number for run in runs), tuple(run.place for run in runs)
        keep_judged_history(engine, project, JudgedHistory(method, numbers, places, +nights))
    return found


@dataclass(frozen=True)
class _Work:
    """What every process needs to know."""

    project: str
    thresholds: Thresholds
    cases_at_once: int
    """That are read whole together."""


def _cases_at_once(runs: Sequence[JudgedRun], case_count: int, value_count: int) -> int:
    """As many as have about so many values, by what some runs measured."""
    values = sum(run.series_count for run in runs)
    return max(1, min(case_count, value_count * case_count // max(values, 1)))


@dataclass(frozen=True)
class _Part:
    """What is read at once."""

    row_ids: tuple[int, ...]
    """Of cases."""
    subjects: frozenset[Subject] | None = None
    """Only these; None for all of the cases."""


def _new_runs(before: JudgedHistory, runs: Sequence[JudgedRun]) -> list[JudgedRun] | None:
    """The runs that came to those that were judged; None where others went or moved, or many came."""
    known = set(before.run_numbers)
    kept = [(run.number, run.place) for run in runs if run.number in known]
    new = [run for run in runs if run.number not in known]
    is_same = kept == list(zip(before.run_numbers, before.places, strict=True))
    is_much = len(new) > len(runs) * _NEW_SHARE or sum(run.series_count for run in new) > _MOST_NEW_SERIES
    return None if not is_same or (len(new) > 1 and is_much) else new


def _gather(engine: Engine, project: str, nights: Counter[date]) -> Gathered:
    """What all standings tell."""
    gathered = Gathered(series_by_night=nights)
    shared: dict[Any, Any] = {}
    with reading_session(engine) as session:
        for (case_id, implementation), runner_classes, findings in read_told(session, project):
            gathered.findings += findings_from_json(findings, shared)
            for one in runner_classes:
                gathered.population.add(SeriesKey(project, case_id, implementation, "median_ns", runner_class=one))
    return gathered


def _spread(
    engine: Engine, work: _Work, task: Callable[[Engine, _Work, _Share], Counter[date]], shares: Sequence[_Share]
) -> Counter[date]:
    """Do a task for each share, in a process of its own if there are several; by how much the nights' counts change."""
    nights: Counter[date] = Counter()
    if len(shares) == 1:
        nights.update(task(engine, work, shares[0]))
    elif shares:
        # a forked process would share this one's connections
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(shares), mp_context=context) as pool:
            for change in pool.map(partial(_elsewhere, engine.url, work, task), shares):
                nights.update(change)
    return nights


def _elsewhere(
    url: URL, work: _Work, task: Callable[[Engine, _Work, _Share], Counter[date]], share: _Share
) -> Counter[date]:
    with open_again(url) as engine:
        return task(engine, work, share)


# --- what a few runs brought


@dataclass(frozen=True)
class _New:
    """What a few runs brought of some cases."""

    runs: tuple[JudgedRun, ...]
    parts: tuple[range, ...]
    """Row ids of the cases: what is read at once."""


def _shares_of_new(row_ids: Sequence[int], new: Sequence[JudgedRun], worker_count: int) -> list[_New]:
    if not new:
        return []
    count = min(worker_count, 1 + sum(run.series_count for run in new) // _STATES_FOR_A_PROCESS)
    at_once = _cases_at_once(new, len(row_ids), _NEW_AT_ONCE)
    return [
        _New(tuple(new), tuple(range(part[0], part[-1] + 1) for part in _split(own, -(-len(own) // at_once))))
        for own in _split(row_ids, count)
    ]


def _move_on(engine: Engine, work: _Work, new: _New) -> Counter[date]:
    """Move the standings on by new runs, and judge anew what cannot be."""
    nights: Counter[date] = Counter()
    for row_ids in new.parts:
        nights.update(_move_part_on(engine, work, new.runs, row_ids))
    return nights


def _move_part_on(engine: Engine, work: _Work, new_runs: Sequence[JudgedRun], row_ids: range) -> Counter[date]:
    nights: Counter[date] = Counter()
    restless: list[tuple[int, Subject]] = []
    runs = {run.number: run for run in new_runs}
    with reading_session(engine) as session:
        news = read_news(session, work.project, new_runs, row_ids, beside=BESIDE_TIME)
    ordered = sorted(news, key=lambda subject: (news[subject].row_id, subject))
    for start in range(0, len(ordered), _STATES_AT_ONCE):
        subjects = ordered[start : start + _STATES_AT_ONCE]
        moved: dict[Subject, bytes] = {}
        with Session(engine) as session, session.begin():
            states = read_states(session, work.project, subjects)
            for subject in subjects:
                before = from_bytes(states[subject]) if subject in states else None
                after = None if before is None else advanced(" ".join(subject), before, news[subject], runs)
                if before is None or after is None:
                    restless.append((news[subject].row_id, subject))
                else:
                    moved[subject] = to_bytes(after)
                    nights.update(_more_nights(before, after))
            write_states(session, work.project, moved)
    nights.update(_look_at_parts(engine, work, _parts_of(restless, work.cases_at_once)))
    return nights


def _parts_of(restless: Sequence[tuple[int, Subject]], cases_at_once: int) -> list[_Part]:
    by_case: dict[int, set[Subject]] = defaultdict(set)
    for row_id, subject in restless:
        by_case[row_id].add(subject)
    row_ids = sorted(by_case)
    return [
        _Part(tuple(own), frozenset().union(*(by_case[one] for one in own)))
        for own in _split(row_ids, -(-len(row_ids) // cases_at_once))
    ]


def _more_nights(before: Standing, after: Standing) -> Counter[date]:
    """In which nights more of its series were measured than known, and in which fewer."""
    known = {one.runner_class: one.nights for one in before.times}
    change: Counter[date] = Counter()
    for one in after.times:
        old = known.pop(one.runner_class, Nights())
        change.update(one.nights.without(old))
        change.subtract(old.without(one.nights))
    for gone in known.values():
        change.subtract(gone)
    return change


# --- whole histories


def _shares_of_all(work: _Work, row_ids: Sequence[int], worker_count: int) -> list[tuple[_Part, ...]]:
    count = -(-len(row_ids) // work.cases_at_once)
    if count > 1:
        count = -(-count // worker_count) * worker_count  # as many for each process
    parts = [_Part(tuple(own)) for own in _split(row_ids, count)]
    return [share for number in range(worker_count) if (share := tuple(parts[number::worker_count]))]


def _split(row_ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """At most so many parts, about as long as each other."""
    size = -(-len(row_ids) // max(count, 1)) or 1
    return [row_ids[start : start + size] for start in range(0, len(row_ids), size)]


def _look_at_parts(engine: Engine, work: _Work, parts: Sequence[_Part]) -> Counter[date]:
    """Judge the histories of some cases anew and keep how they stand."""
    nights: Counter[date] = Counter()
    for part in parts:
        nights.update(_look_at_part(engine, work, part))
    return nights


def _look_at_part(engine: Engine, work: _Work, part: _Part) -> Counter[date]:
    nights: Counter[date] = Counter()
    with Session(engine) as session, session.begin():
        looks = _looks(session, work, part)
        known = read_states(session, work.project, list(looks))
        for subject, look in looks.items():
            before = from_bytes(known[subject]) if subject in known else Standing()
            nights.update(_more_nights(before, look.standing))
        write_standings(session, work.project, [_kept(subject, look) for subject, look in looks.items()])
    return nights


def _kept(subject: Subject, look: WholeLook) -> KeptStanding:
    return KeptStanding(subject, look.runner_classes, to_bytes(look.standing), findings_to_json(look.findings))


def _looks(session: Session, work: _Work, part: _Part) -> dict[Subject, WholeLook]:
    """See by bare columns what did not move, and read whole what moved, failed or was compiled otherwise."""
    codes = read_codes(session, work.project, row_ids=part.row_ids)
    restless = list_failed_checks(session, work.project, part.row_ids)
    restless |= {subject for subject, code in codes.items() if code.has_changed}
    times: dict[Subject, list[TimeColumns]] = defaultdict(list)
    for time in read_time_columns(session, work.project, part.row_ids, include_pairs=True, beside=BESIDE_TIME):
        times[_subject(time.key)].append(time)
        if time.has_failures:
            restless.add(_subject(time.key))
    errors: dict[Subject, list[ErrorColumns]] = defaultdict(list)
    for error in read_error_columns(session, work.project, part.row_ids):
        errors[_subject(error.key)].append(error)
    looks: dict[Subject, WholeLook] = {}
    for subject in {*codes, *times, *errors, *restless}:
        if part.subjects is not None and subject not in part.subjects:
            restless.discard(subject)
        elif subject not in restless:
            code = codes[subject].newest if subject in codes else ""
            look = look_at_columns(times[subject], errors[subject], code, work.thresholds)
            if look is None:
                restless.add(subject)
            else:
                looks[subject] = look
    newest = {subject: code.newest for subject, code in codes.items()}
    return looks | _looks_at_everything(session, work, part.row_ids, restless, newest)


def _looks_at_everything(
    session: Session, work: _Work, row_ids: Sequence[int], subjects: Collection[Subject], codes: dict[Subject, str]
) -> dict[Subject, WholeLook]:
    if not subjects:
        return {}
    pairs = list_pairs(session, work.project, row_ids=row_ids)
    evidence = PairEvidence(pairs, work.thresholds)
    witnesses = Witnesses(
        CounterEvidence(read_counted_runs(session, work.project, subjects)),
        LaunchEvidence(read_profiled_runs(session, work.project, subjects)),
        Calibrations(pairs),
    )
    by_subject: dict[Subject, list[Series]] = defaultdict(list)
    for one in read_series(
        session,
        work.project,
        subjects=subjects,
        metrics=JUDGED_METRICS,
        include_pairs=True,
        include_conditions=True,
    ):
        by_subject[_subject(one.key)].append(one)
    return {
        subject: look_at_series(series, codes.get(subject, ""), evidence, work.thresholds, witnesses)
        for subject, series in by_subject.items()
    }


def _subject(key: SeriesKey) -> Subject:
    return key.case_id, key.implementation
