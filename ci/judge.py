"""Judge a project: read its history from the store, find what changed, and keep the findings there.

Cases are read a few hundred series at a time, by as many processes as are asked for. Of most cases the times alone are
read, as bare columns, and seen not to have moved; the rest are read whole. So the memory it takes does not grow with
the history, but with what there is to tell.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import partial

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.orm import Session

from ci.pairs.pair_evidence import PairEvidence
from ci.thresholds import Thresholds
from ci.trends.history import Gathered, gather, put_together
from ci.trends.screen import has_moved, nights_of
from db.judged.judgements import replace_regressions
from db.queries import list_pairs, read_series
from db.reading.time_columns import list_case_row_ids, list_restless, read_time_columns
from db.values import Pair, Regression, SeriesKey, TimeColumns

JUDGED_METRICS = (
    # other measured metrics are the median time over constants of the case: judged once, shown in all units
    *("median_ns", "rmse_ratio"),
    *("registers", "spilled_registers", "spill_store_count", "spill_load_count", "local_bytes", "shared_bytes"),
    "theoretical_occupancy",
)
_CASES_AT_ONCE = 50
"""Some hundred series: a few hundred thousand values, and few queries for many cases."""


def judge_project(
    engine: Engine, project: str, thresholds: Thresholds | None = None, *, worker_count: int = 1
) -> list[Regression]:
    """Judge all of a project's history anew and replace what was found before.

    Pairs count as runs of their two commits too: what was measured again corrects a point that a neighbour on the
    machine had spoilt.

    Args:
        engine: Of the store.
        project: Its name.
        thresholds: What is worth telling; the defaults if left out.
        worker_count: Processes to judge in; each has a connection of its own. 1 judges in this one.
    """
    limits = thresholds or Thresholds()
    with Session(engine) as session:
        row_ids = list_case_row_ids(session, project)
        pairs = list_pairs(session, project)
    gathered = Gathered()
    for part in _judge_parts(engine, _Work(project, limits, tuple(pairs)), row_ids, worker_count):
        gathered.add(part)
    found = put_together(gathered, limits)
    replace_regressions(engine, project, found)
    return found


@dataclass(frozen=True)
class _Work:
    """What every process needs to know."""

    project: str
    thresholds: Thresholds
    pairs: tuple[Pair, ...]


def _judge_parts(engine: Engine, work: _Work, row_ids: Sequence[int], worker_count: int) -> Iterator[Gathered]:
    parts = [tuple(row_ids[start : start + _CASES_AT_ONCE]) for start in range(0, len(row_ids), _CASES_AT_ONCE)]
    if worker_count <= 1 or len(parts) <= 1:
        evidence = PairEvidence(work.pairs, work.thresholds)
        yield from (_judge_cases(engine, work, evidence, part) for part in parts)
        return
    # a forked process would share this one's connections
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(worker_count, mp_context=context) as pool:
        shares = [parts[number::worker_count] for number in range(worker_count)]
        yield from pool.map(partial(_judge_share, engine.url, work), shares)


def _judge_share(url: URL, work: _Work, parts: Sequence[tuple[int, ...]]) -> Gathered:
    engine = create_engine(url)
    evidence = PairEvidence(work.pairs, work.thresholds)
    gathered = Gathered()
    for part in parts:
        gathered.add(_judge_cases(engine, work, evidence, part))
    engine.dispose()
    return gathered


def _judge_cases(engine: Engine, work: _Work, evidence: PairEvidence, row_ids: Sequence[int]) -> Gathered:
    """Look at some cases' times, and read whole what moved, failed or was compiled otherwise."""
    with Session(engine) as session:
        restless = list_restless(session, work.project, row_ids)
        quiet: list[TimeColumns] = []
        for columns in read_time_columns(session, work.project, row_ids, include_pairs=True):
            is_quiet = _subject(columns.key) not in restless and not columns.has_failures
            if is_quiet and not has_moved(columns, work.thresholds):
                quiet.append(columns)
            else:
                restless.add(_subject(columns.key))
        gathered = Gathered()
        if restless:
            series = read_series(
                session,
                work.project,
                subjects=restless,
                metrics=JUDGED_METRICS,
                include_pairs=True,
                include_conditions=True,
            )
            gathered = gather(series, evidence, work.thresholds)
    for columns in quiet:
        if _subject(columns.key) not in restless:
            gathered.time_series.append(columns.key)
            gathered.series_by_night.update(_nights(columns))
    return gathered


def _subject(key: SeriesKey) -> tuple[str, str]:
    return key.case_id, key.implementation


def _nights(columns: TimeColumns) -> Counter[date]:
    return Counter(nights_of(columns).tolist())
