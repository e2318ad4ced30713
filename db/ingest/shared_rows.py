"""Rows that runs share: project, environment, commit, cases, series and facts of machine code.

Every writer stores them in this order, and within a table in the order of its key, so writers
cannot deadlock. Known rows are only read.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import orjson
from sqlalchemy import Connection, TextClause, UniqueConstraint, case, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from roofwatch.db.errors import IngestError
from roofwatch.db.regressions.case_analyses import note_changed_project
from roofwatch.db.schema.measurements import SeriesRow, StaticFactRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow
from roofwatch.db.schema.table import Base
from roofwatch.model.machine import Environment
from roofwatch.model.record import Commit, RunRecord

_FACT_FIELDS = sorted(
    set(StaticFactRow.__table__.columns.keys()) - {"id", "case_id", "fingerprint"}
)
_MEANING = ("kernel", "shape", "dtype", "direction")
"""What a case ID stands for; it never changes."""
_COSTS = ("family", "flop_count", "memory_bytes", "bus_bytes", "token_count", "tags")
"""What another version of a case may change."""
_NEW_COMMIT = upsert(CommitRow)
_HAS_MORE_PARENTS = func.cardinality(_NEW_COMMIT.excluded.parents) > func.cardinality(
    CommitRow.parents
)
_STORE_COMMIT = _NEW_COMMIT.on_conflict_do_update(
    index_elements=[CommitRow.project_id, CommitRow.sha],
    set_={
        "first_parent_count": func.greatest(
            CommitRow.first_parent_count, _NEW_COMMIT.excluded.first_parent_count
        ),
        "parents": case((_HAS_MORE_PARENTS, _NEW_COMMIT.excluded.parents), else_=CommitRow.parents),
    },
)
_ADD_METRICS = text(
    """
    UPDATE series
    SET metrics = ARRAY(SELECT DISTINCT unnest(series.metrics || new.metrics) ORDER BY 1)
    FROM (
        SELECT noted.id, noted.metrics
        FROM json_to_recordset(CAST(:rows AS json)) AS noted (id int, metrics text[])
        JOIN series stored ON stored.id = noted.id
        WHERE NOT noted.metrics <@ stored.metrics ORDER BY stored.id FOR NO KEY UPDATE OF stored
    ) new
    WHERE series.id = new.id
    """
)


@dataclass(frozen=True)
class SharedIds:
    """Row IDs of what a run shares with others. Sequences are in the order of the record."""

    project: int
    environment: int
    commit: int
    cases: dict[str, int]
    """By case ID."""
    case_versions: Sequence[int]
    series: Sequence[int]
    """Series of each measurement."""
    static_facts: Sequence[int]


def store_shared(connection: Connection, record: RunRecord, project_name: str) -> SharedIds:
    """Find or insert the rows that a record shares with other runs.

    Raises:
        IngestError: earlier runs gave a case ID another meaning.
    """
    # in this order in every transaction, so that two writers cannot deadlock
    (project,) = ensure_rows(connection, ProjectRow, [{"name": project_name}])
    environment = _store_environment(connection, record.environment)
    commit = _store_commit(connection, project, record.commit)
    cases, versions = _store_cases(connection, project, record)
    version_of = dict(zip(cases, versions, strict=True))
    series = ensure_rows(
        connection,
        SeriesRow,
        [
            {
                "case_version_id": version_of[measurement.case_id],
                "implementation": measurement.implementation,
                "timer": measurement.timer,
                "cache": measurement.cache,
                "runner_class": record.environment.runner_class,
                "metrics": sorted(measurement.stored_values),
            }
            for measurement in record.measurements
        ],
    )
    fact_rows: list[dict[str, Any]] = []
    for facts in record.static_facts:
        columns = _fields(facts, _FACT_FIELDS)
        identity = dict(columns)
        # facts without an estimate are those that stores had before there were any
        if facts.estimate is None:
            del identity["estimate"]
        else:
            identity["estimate"] = facts.estimate.model_dump(mode="json", exclude_defaults=True)
        fact_rows.append(
            {"case_id": cases[facts.case_id], "fingerprint": _fingerprint(identity), **columns}
        )
    # facts of unchanged code are those of earlier runs
    static_facts = ensure_rows(
        connection,
        StaticFactRow,
        fact_rows,
    )
    return SharedIds(
        project=project,
        environment=environment,
        commit=commit,
        cases=cases,
        case_versions=versions,
        series=series,
        static_facts=static_facts,
    )


def ensure_rows(
    connection: Connection,
    table: type[Base],
    rows: Sequence[dict[str, Any]],
) -> list[int]:
    """Return the IDs of rows, in their order. Insert those whose unique key is not in the table."""
    if not rows:
        return []
    # the statements depend on the columns only, so they are made once
    key, find, insert = _statements(table, tuple(rows[0]))
    key_of = itemgetter(*key)
    keys_as_json = as_json([_keep(row, key) for row in rows])

    def read_ids() -> dict[Any, int]:
        stored = connection.execute(find, {"rows": keys_as_json}).mappings()
        return {key_of(row): row["id"] for row in stored}

    ids = read_ids()
    missing = [row for row in rows if key_of(row) not in ids]
    if missing:
        # a concurrent writer may insert them first: that is no conflict
        connection.execute(insert, {"rows": as_json(missing)})
        # read again, because an insert that did nothing returns no id
        ids = read_ids()
    return [ids[key_of(row)] for row in rows]


def _keep(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _fields(value: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def note_values(connection: Connection, record: RunRecord, series_ids: Sequence[int]) -> None:
    """Add to series the metrics that their measurements have for the first time.

    This locks rows of other runs, so it comes last in the transaction.
    """
    rows = [
        {"id": series_id, "metrics": sorted(measurement.stored_values)}
        for series_id, measurement in zip(series_ids, record.measurements, strict=True)
    ]
    connection.execute(_ADD_METRICS, {"rows": as_json(rows)})


def as_json(value: object) -> str:
    """JSON text; models in it become documents without their defaults."""
    return orjson.dumps(
        value, default=lambda model: model.model_dump(mode="json", exclude_defaults=True)
    ).decode()


@cache
def _statements(
    table: type[Base], columns: tuple[str, ...]
) -> tuple[tuple[str, ...], TextClause, TextClause]:
    """The columns of the unique key, and the statements that find and insert rows given as JSON."""
    constraints = table.__table__.constraints  # type: ignore[attr-defined]
    constraint = next(
        candidate for candidate in constraints if isinstance(candidate, UniqueConstraint)
    )
    key = tuple(constraint.columns.keys())
    name = f'"{table.__tablename__}"'
    keys = ", ".join(key)
    listed = ", ".join(columns)
    new_rows = f"json_populate_recordset(CAST(NULL AS {name}), CAST(:rows AS json)) AS given"
    stored_key = ", ".join(f"stored.{column}" for column in key)
    find = f"SELECT stored.id, {stored_key} FROM {new_rows} JOIN {name} stored USING ({keys})"
    insert = (
        f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {new_rows} ORDER BY {keys} ON "
        f"CONFLICT DO NOTHING"
    )
    return key, text(find), text(insert)


def _store_environment(connection: Connection, environment: Environment) -> int:
    values = {name: getattr(environment, name) for name in Environment.model_fields}
    row = values | {"fingerprint": _fingerprint(values), "runner_class": environment.runner_class}
    return ensure_rows(connection, EnvironmentRow, [row])[0]


def _store_commit(connection: Connection, project: int, commit: Commit) -> int:
    """Store a commit, or what this record knows better: a shallow clone counts too few commits and
    knows no parents.
    """
    find = select(
        CommitRow.id,
        CommitRow.first_parent_count,
        func.cardinality(CommitRow.parents).label("parent_count"),
    ).where(CommitRow.project_id == project, CommitRow.sha == commit.sha)
    stored = connection.execute(find).one_or_none()
    is_known_better = (
        stored is None
        or stored.first_parent_count < commit.first_parent_count
        or stored.parent_count < len(commit.parents)
    )
    if is_known_better:
        if stored is not None:
            # the order of the commits changes
            note_changed_project(connection, project)
        columns = CommitRow.__table__.columns
        row = _fields(commit, [name for name in Commit.model_fields if name in columns])
        row |= {"project_id": project, "parents": list(commit.parents)}
        connection.execute(_STORE_COMMIT, row)
        stored = connection.execute(find).one()
    assert stored is not None
    return int(stored.id)


def _store_cases(
    connection: Connection,
    project: int,
    record: RunRecord,
) -> tuple[dict[str, int], list[int]]:
    """IDs of cases by name, and of their versions in the order of the record."""
    case_rows: list[dict[str, Any]] = []
    for recorded in record.cases:
        meaning = _fields(recorded, _MEANING)
        case_rows.append({"project_id": project, "name": recorded.case_id, **meaning})
    ids = ensure_rows(connection, CaseRow, case_rows)
    _require_meaning(connection, record, ids)
    version_rows: list[dict[str, Any]] = []
    for recorded, row_id in zip(record.cases, ids, strict=True):
        costs = _fields(recorded, _COSTS)
        version_rows.append({"case_id": row_id, "fingerprint": _fingerprint(costs), **costs})
    versions = ensure_rows(connection, CaseVersionRow, version_rows)
    names = [case.case_id for case in record.cases]
    return dict(zip(names, ids, strict=True)), versions


def _require_meaning(connection: Connection, record: RunRecord, row_ids: Sequence[int]) -> None:
    """Check that the cases mean what earlier runs of the project meant by them.

    Raises:
        IngestError: a case has another meaning, so its history would mix two things.
    """
    columns = (getattr(CaseRow, name) for name in ("id", *_MEANING))
    rows = connection.execute(select(*columns).where(CaseRow.id == func.any(row_ids)))
    stored = {row.id: row for row in rows}
    for recorded, row_id in zip(record.cases, row_ids, strict=True):
        for field, value in _fields(recorded, _MEANING).items():
            stored_value = getattr(stored[row_id], field)
            if value != stored_value:
                raise IngestError(
                    f"run {record.run_id} of {record.project}: case {recorded.case_id!r} has "
                    f"{field} {value!r}, but earlier runs of the project gave it "
                    f"{stored_value!r}; a case ID keeps its meaning: give the new case another ID"
                )


def _fingerprint(values: dict[str, Any]) -> str:
    """Hash values as the rows that are stored already were hashed: it never changes."""
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()
