"""What runs share: stored by the first run that speaks of it.

Everybody asks in one order (project, environment, commit, cases, what is said of them, series, machine code), and
within a table by its key, so that two at once may wait for each other but never both. Most of it is there already: it
is looked up first, which locks nothing and uses up no id.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Connection, case, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from roofwatch.collector.record.machine import Environment
from roofwatch.collector.record.record import Commit
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, ProjectRow

_NEW_COMMIT = upsert(CommitRow)
_KNOWS_MORE_PARENTS = func.cardinality(_NEW_COMMIT.excluded.parents) > func.cardinality(CommitRow.parents)
_STORE_COMMIT = _NEW_COMMIT.on_conflict_do_update(
    index_elements=[CommitRow.project_id, CommitRow.sha],
    set_={
        "first_parent_count": func.greatest(CommitRow.first_parent_count, _NEW_COMMIT.excluded.first_parent_count),
        "parents": case((_KNOWS_MORE_PARENTS, _NEW_COMMIT.excluded.parents), else_=CommitRow.parents),
    },
    where=(CommitRow.first_parent_count < _NEW_COMMIT.excluded.first_parent_count) | _KNOWS_MORE_PARENTS,
).returning(CommitRow.id)


def store_project(connection: Connection, name: str) -> int:
    """Its id, whoever stored it."""
    find = select(ProjectRow.id).where(ProjectRow.name == name)
    known = connection.execute(find).scalar_one_or_none()
    if known is not None:
        return known
    connection.execute(upsert(ProjectRow).values(name=name).on_conflict_do_nothing())
    return connection.execute(find).scalar_one()


def store_environment(connection: Connection, environment: Environment) -> int:
    """Its id, whoever stored it."""
    values = {name: getattr(environment, name) for name in Environment.model_fields}
    row = values | {"fingerprint": fingerprint(values), "runner_class": environment.runner_class}
    find = select(EnvironmentRow.id).where(EnvironmentRow.fingerprint == row["fingerprint"])
    known = connection.execute(find).scalar_one_or_none()
    if known is not None:
        return known
    connection.execute(upsert(EnvironmentRow).values(row).on_conflict_do_nothing())
    return connection.execute(find).scalar_one()


def store_commit(connection: Connection, project: int, commit: Commit) -> int:
    """Id of a commit, whose row takes what this record knows better: a shallow clone counts too few commits below its
    own and knows no parents of the last one that it has.
    """
    find = select(CommitRow.id, CommitRow.first_parent_count, func.cardinality(CommitRow.parents)).where(
        CommitRow.project_id == project, CommitRow.sha == commit.sha
    )
    known = connection.execute(find).one_or_none()
    if known is not None and known[1] >= commit.first_parent_count and known[2] >= len(commit.parents):
        return int(known[0])
    row = {
        "project_id": project,
        "sha": commit.sha,
        "parents": list(commit.parents),
        "first_parent_count": commit.first_parent_count,
        "committed_at": in_utc(commit.committed_at),
        "author": commit.author,
        "subject": commit.subject,
    }
    stored = connection.execute(_STORE_COMMIT, row).scalar_one_or_none()
    # another record may have told as much by now
    return int(connection.execute(find).one()[0]) if stored is None else stored


def fingerprint(values: dict[str, Any]) -> str:
    """sha256 of values by name."""
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()


def as_json(value: object) -> str:
    """A document; the quickest way, too, to give a statement a long list."""
    return orjson.dumps(value, option=orjson.OPT_UTC_Z).decode()


def in_utc(time: datetime) -> datetime:
    """Raises OverflowError for the few times at either end that have no year 1 to 9999 in UTC."""
    return time.astimezone(UTC)
