"""What runs share: found by what it means, or stored by the first run that speaks of it.

Everybody asks in one order (project, environment, commit, cases, what is said of them, series, machine code), and
within a table by its key, so that two at once may wait for each other but never both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Connection, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from collector.case_record import CaseRecord
from collector.machine import Environment
from collector.record import Commit, RunRecord
from db.errors import IngestError
from db.storing.staging import Stage, stage_rows
from db.tables.records import CommitRow, EnvironmentRow, ProjectRow

_CASES = Stage(
    "staged_case",
    {
        "position": "int4",
        "name": "text",
        "kernel": "text",
        "shape": "text",
        "dtype": "text",
        "direction": "text",
        "fingerprint": "text",
        "family": "text",
        "flop_count": "float8",
        "memory_bytes": "float8",
        "bus_bytes": "float8",
        "tags": "text[]",
    },
)
_MEANING = ("kernel", "shape", "dtype", "direction")

# what is stored already is left alone before a conflict could use up an id
_NEW_CASES = text(
    """
    INSERT INTO "case" (project_id, name, kernel, shape, dtype, direction)
    SELECT :project_id, name, kernel, shape::json, dtype, direction FROM staged_case
    WHERE NOT EXISTS (SELECT FROM "case" known WHERE known.project_id = :project_id AND known.name = staged_case.name)
    ORDER BY name
    ON CONFLICT DO NOTHING
    """
)
_STRANGE_CASES = text(
    """
    SELECT staged.name, known.kernel, known.shape, known.dtype, known.direction, staged.position
    FROM staged_case staged JOIN "case" known ON known.project_id = :project_id AND known.name = staged.name
    WHERE (staged.kernel, staged.shape::jsonb, staged.dtype, staged.direction)
        IS DISTINCT FROM (known.kernel, known.shape::jsonb, known.dtype, known.direction)
    ORDER BY staged.position
    """
)
_NEW_CASE_VERSIONS = text(
    """
    INSERT INTO case_version (case_id, fingerprint, family, flop_count, memory_bytes, bus_bytes, tags)
    SELECT known.id, fingerprint, family, flop_count, memory_bytes, bus_bytes, tags
    FROM staged_case staged JOIN "case" known ON known.project_id = :project_id AND known.name = staged.name
    WHERE NOT EXISTS (
        SELECT FROM case_version version
        WHERE version.case_id = known.id AND version.fingerprint = staged.fingerprint
    )
    ORDER BY known.id
    ON CONFLICT DO NOTHING
    """
)
_CASE_IDS = text(
    """
    SELECT known.id AS case_id, version.id AS version_id
    FROM staged_case staged
    JOIN "case" known ON known.project_id = :project_id AND known.name = staged.name
    JOIN case_version version ON version.case_id = known.id AND version.fingerprint = staged.fingerprint
    ORDER BY staged.position
    """
)
# staged_measurement is of `measurements.py`; put together first, so that Postgres looks series up by case too
_STAGED = """
    WITH staged AS MATERIALIZED (
        SELECT position, version.id AS version_id, implementation, timer, cache, utilisation, joules_per_launch
        FROM staged_measurement
        JOIN unnest(CAST(:version_ids AS int[])) WITH ORDINALITY version (id, number) ON number = case_position + 1
    )
"""
_IS_STAGED = """
    series.case_version_id = staged.version_id AND series.implementation = staged.implementation
    AND series.timer = staged.timer AND series.cache = staged.cache AND series.runner_class = :runner_class
"""
_NEW_SERIES = text(
    f"""
    {_STAGED}
    INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, has_utilisation, has_energy)
    SELECT version_id, implementation, timer, cache, :runner_class,
        utilisation IS NOT NULL, joules_per_launch IS NOT NULL
    FROM staged
    WHERE NOT EXISTS (SELECT FROM series WHERE {_IS_STAGED})
    ORDER BY version_id, implementation, timer, cache
    ON CONFLICT DO NOTHING
    """
)
_LOCK_SERIES_WITH_MORE = text(
    f"""
    {_STAGED}
    SELECT series.id FROM staged JOIN series ON {_IS_STAGED}
    WHERE staged.utilisation IS NOT NULL AND NOT series.has_utilisation
        OR staged.joules_per_launch IS NOT NULL AND NOT series.has_energy
    ORDER BY series.id
    FOR NO KEY UPDATE OF series
    """
)
_NOTE_MORE = text(
    f"""
    {_STAGED}
    UPDATE series SET
        has_utilisation = series.has_utilisation OR staged.utilisation IS NOT NULL,
        has_energy = series.has_energy OR staged.joules_per_launch IS NOT NULL
    FROM staged
    WHERE {_IS_STAGED} AND series.id = ANY(:ids)
    """
)
_SERIES_IDS = text(f"{_STAGED} SELECT series.id FROM staged JOIN series ON {_IS_STAGED} ORDER BY staged.position")


def project_id(connection: Connection, name: str) -> int:
    connection.execute(upsert(ProjectRow).values(name=name).on_conflict_do_nothing())
    return connection.execute(select(ProjectRow.id).where(ProjectRow.name == name)).scalar_one()


def environment_id(connection: Connection, environment: Environment) -> int:
    values = {name: getattr(environment, name) for name in Environment.model_fields}
    row = values | {"fingerprint": fingerprint(values), "runner_class": environment.runner_class}
    connection.execute(upsert(EnvironmentRow).values(row).on_conflict_do_nothing())
    found = select(EnvironmentRow.id).where(EnvironmentRow.fingerprint == row["fingerprint"])
    return connection.execute(found).scalar_one()


def commit_id(connection: Connection, project: int, commit: Commit) -> int:
    row = {
        "project_id": project,
        "sha": commit.sha,
        "parents": list(commit.parents),
        "first_parent_count": commit.first_parent_count,
        "committed_at": in_utc(commit.committed_at),
        "author": commit.author,
        "subject": commit.subject,
    }
    new = upsert(CommitRow).values(row)
    larger = func.greatest(CommitRow.first_parent_count, new.excluded.first_parent_count)
    connection.execute(
        new.on_conflict_do_update(
            index_elements=[CommitRow.project_id, CommitRow.sha],
            set_={"first_parent_count": larger},
            where=CommitRow.first_parent_count < new.excluded.first_parent_count,
        )
    )
    found = select(CommitRow.id).where(CommitRow.project_id == project, CommitRow.sha == commit.sha)
    return connection.execute(found).scalar_one()


def case_ids(connection: Connection, project: int, record: RunRecord) -> tuple[list[int], list[int]]:
    """Ids of cases and of what is said of them, in the order of the record.

    Raises:
        IngestError: a case id meant something else in earlier runs.
    """
    if not record.cases:
        return [], []
    rows = ((position, *_case_values(case)) for position, case in enumerate(record.cases))
    stage_rows(connection, _CASES, rows)
    parameters = {"project_id": project}
    connection.execute(_NEW_CASES, parameters)
    for strange in connection.execute(_STRANGE_CASES, parameters):
        _refuse_new_meaning(record, record.cases[strange.position], strange._asdict())
    connection.execute(_NEW_CASE_VERSIONS, parameters)
    found = connection.execute(_CASE_IDS, parameters).all()
    return [row.case_id for row in found], [row.version_id for row in found]


def series_ids(connection: Connection, version_ids: Sequence[int], runner_class: str) -> list[int]:
    """Ids of the series of all staged measurements, in the order of the record."""
    parameters = {"version_ids": list(version_ids), "runner_class": runner_class}
    connection.execute(_NEW_SERIES, parameters)
    more = connection.scalars(_LOCK_SERIES_WITH_MORE, parameters).all()
    if more:
        connection.execute(_NOTE_MORE, parameters | {"ids": list(more)})
    return list(connection.scalars(_SERIES_IDS, parameters))


def fingerprint(values: dict[str, Any]) -> str:
    """sha256 of values by name."""
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()


def in_utc(time: datetime) -> datetime:
    """Raises OverflowError for the few times at either end that have no year 1 to 9999 in UTC."""
    return time.astimezone(UTC)


def _case_values(case: CaseRecord) -> tuple[object, ...]:
    said = {
        "family": case.family,
        "flop_count": case.flop_count,
        "memory_bytes": case.memory_bytes,
        "bus_bytes": case.bus_bytes,
        "tags": list(case.tags),
    }
    shape = orjson.dumps(case.shape).decode()
    return case.case_id, case.kernel, shape, case.dtype, case.direction, fingerprint(said), *said.values()


def _refuse_new_meaning(record: RunRecord, case: CaseRecord, known: dict[str, Any]) -> None:
    for field in _MEANING:
        value = getattr(case, field)
        if value != known[field]:
            raise IngestError(
                f"run {record.run_id} of {record.project}: case {case.case_id!r} has {field} {value!r}, but earlier "
                f"runs of the project gave it {known[field]!r}; a case id means one thing for ever: give the new case "
                "an id of its own"
            )
