"""What runs measured, a case and implementation at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from sqlalchemy import ARRAY, Integer, Select, SmallInteger, Text, any_, cast, func, select, type_coerce
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.queries.run_values import MeasuredCase
from roofwatch.db.queries.union_queries import Stacked
from roofwatch.db.schema.measurements import AccuracyRow, MeasurementRow, SeriesRow, TensorErrorRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, RunRow
from roofwatch.db.values import bound_of

Rows = Sequence[tuple[Any, ...]]


_BESIDE = ("host_ns", "peak_allocated_bytes")
_BETWEEN = "\x1f"
"""Unit separator: of the words between which it stands all but the first are ours."""


class RunPlace(NamedTuple):
    """Where the results of a run are, and of what they are.

    Who asks for them says the day as a value: so Postgres looks at one partition when it plans, not at all.
    """

    number: int
    measured_on: date
    series_ids: Sequence[int]


PLACE = (RunRow.number, RunRow.measured_on, RunRow.series_ids)
"""The columns that a `RunPlace` is made of."""


def list_cases_of_run(session: Session, run_id: UUID) -> tuple[MeasuredCase, ...]:
    """Those of the run with this id, which must be there."""
    places = [RunPlace._make(session.execute(select(*PLACE).where(RunRow.run_id == run_id)).one())]
    stacked = Stacked(queries_of_cases(places))
    return measured_cases(places, stacked.rows(session.execute(stacked.statement())))[0]


def queries_of_cases(places: Sequence[RunPlace]) -> dict[str, Select[*tuple[Any, ...]]]:
    """What `measured_cases` makes its values of: of what the measurements of all the runs are, looked up once, and what
    each run found.
    """
    parts = {"measured": _measured, "checks": _check_outcomes, "errors": _worst_errors}
    found = {f"{part}_{at}": ask(place) for at, place in enumerate(places) for part, ask in parts.items()}
    return {"subjects": _subjects(places), **found}


def measured_cases(places: Sequence[RunPlace], rows: Mapping[str, Rows]) -> list[tuple[MeasuredCase, ...]]:
    """Those of each run, in the order of its record; `rows` are those of `queries_of_cases`, by name."""
    subject_of = {
        series_id: (case_row_id, implementation, case_id, kernel, orjson.loads(shape), said.rsplit(_BETWEEN, 3), *more)
        for series_id, case_row_id, implementation, case_id, kernel, shape, said, *more in rows["subjects"]
    }
    return [
        _cases_of_run(place, subject_of, rows[f"measured_{at}"], rows[f"checks_{at}"], rows[f"errors_{at}"])
        for at, place in enumerate(places)
    ]


def _cases_of_run(
    place: RunPlace, subject_of: Mapping[int, tuple[Any, ...]], measured: Rows, checks: Rows, errors: Rows
) -> tuple[MeasuredCase, ...]:
    words = [Outcome(word) for word in MeasurementRow.outcome.type.words]
    value_of = {series_id: values for series_id, *values in measured}
    outcomes = {(case_row_id, implementation): Outcome(outcome) for case_row_id, implementation, outcome in checks}
    worst = {(case_row_id, implementation): rmse_ratio for case_row_id, implementation, rmse_ratio in errors}
    cases = []
    for series_id in place.series_ids:
        case_row_id, implementation, case_id, kernel, shape, said, family, flop_count, memory_bytes = subject_of[
            series_id
        ]
        dtype, direction, timer, cache = said
        outcome, message, median_ns, low_ns, high_ns, sample_count, is_memory_bound, utilisation, *beside = value_of[
            series_id
        ]
        cases.append(
            MeasuredCase(
                case_id=case_id,
                kernel=kernel,
                family=family,
                shape=shape,
                dtype=dtype,
                direction=direction,
                flop_count=flop_count,
                memory_bytes=memory_bytes,
                implementation=implementation,
                outcome=words[outcome],
                message=message,
                median_ns=median_ns,
                low_ns=low_ns,
                high_ns=high_ns,
                sample_count=sample_count or 0,
                bound=bound_of(is_memory_bound=is_memory_bound),
                utilisation=utilisation,
                rmse_ratio=worst.get((case_row_id, implementation)),
                accuracy_outcome=outcomes.get((case_row_id, implementation)),
                timer=timer,
                cache=cache,
                **dict(zip(_BESIDE, beside, strict=True)),
            )
        )
    return tuple(cases)


def _subjects(places: Sequence[RunPlace]) -> Select[*tuple[Any, ...]]:
    series_ids = ",".join(map(str, sorted(set().union(*(place.series_ids for place in places)))))
    # Postgres does not look into a list that a query gives: of one that it sees it looks at each of thousands when it
    # plans, and then reads large tables from end to end rather than to look up so many
    listed = select(func.unnest(cast(func.string_to_array(series_ids, ","), ARRAY(Integer)))).scalar_subquery()
    return (
        select(
            SeriesRow.id,
            CaseRow.id.label("case_row_id"),
            SeriesRow.implementation,
            CaseRow.name,
            CaseRow.kernel,
            cast(CaseRow.shape, Text).label("shape"),
            # in one column: each more is one more of every row of all queries that are asked together
            func.concat_ws(_BETWEEN, CaseRow.dtype, CaseRow.direction, SeriesRow.timer, SeriesRow.cache, type_=Text),
            CaseVersionRow.family,
            CaseVersionRow.flop_count,
            CaseVersionRow.memory_bytes,
        )
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(SeriesRow.id == any_(func.array(listed)))
    )


def _measured(place: RunPlace) -> Select[*tuple[Any, ...]]:
    table = MeasurementRow
    return select(
        table.series_id,
        type_coerce(table.outcome, SmallInteger).label("outcome"),
        table.message,
        table.median_ns,
        table.q1_ns.label("low_ns"),
        table.q3_ns.label("high_ns"),
        table.sample_count,
        table.is_memory_bound,
        table.utilisation,
        *(getattr(table, name) for name in _BESIDE),
    ).where(table.measured_on == place.measured_on, table.run_number == place.number)


def _check_outcomes(place: RunPlace) -> Select[int, str, str]:
    return select(AccuracyRow.case_id, AccuracyRow.implementation, AccuracyRow.outcome).where(
        AccuracyRow.measured_on == place.measured_on, AccuracyRow.run_number == place.number
    )


def _worst_errors(place: RunPlace) -> Select[int, str, float]:
    table = TensorErrorRow
    return (
        select(table.case_id, table.implementation, func.max(table.rmse_ratio).label("rmse_ratio"))
        .where(table.measured_on == place.measured_on, table.run_number == place.number)
        .group_by(table.case_id, table.implementation)
    )
