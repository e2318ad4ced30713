"""Whether the tables are sound in themselves: indexes, constraints, partitions, and what points where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Column, Connection, Select, Table, exists, func, select, text

from roofwatch.db.schema.every import Base
from roofwatch.db.schema.partitions import PARTITIONED, SCHEMA

_UNFIT_INDEXES = text(
    "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
    "WHERE relnamespace IN (to_regnamespace('public'), to_regnamespace(:partitions)) "
    "AND NOT (indisvalid AND indisready AND indislive) ORDER BY 1"
)
_UNCHECKED_CONSTRAINTS = text(
    "SELECT conname::text FROM pg_constraint "
    "WHERE connamespace IN (to_regnamespace('public'), to_regnamespace(:partitions)) AND NOT convalidated ORDER BY 1"
)
_INDEXES = text("SELECT indexname::text FROM pg_indexes WHERE schemaname = 'public'")
_MEASURED = ("run_number", "series_id", "measured_on")
_CHECKED = ("run_number", "case_id", "implementation", "measured_on")

# partitioned tables have no foreign keys; the day of a run says in which partition it is looked for
_POINTERS = (
    *((table, ("run_number", "measured_on"), "run", ("number", "measured_on")) for table in PARTITIONED),
    ("run", ("project_id", "commit_id"), "commit", ("project_id", "id")),
    ("measurement", ("series_id",), "series", ("id",)),
    ("sample_set", _MEASURED, "measurement", _MEASURED),
    ("accuracy", ("case_id",), "case", ("id",)),
    ("tensor_error", _CHECKED, "accuracy", _CHECKED),
    ("compilation", ("static_fact_id",), "static_fact", ("id",)),
    ("counters", ("case_id",), "case", ("id",)),
    ("profile", ("case_id",), "case", ("id",)),
    ("profile_row", _CHECKED, "profile", _CHECKED),
)


def find_unsound(connection: Connection) -> Iterator[str]:
    """A sentence for everything that is wrong with the tables, whatever the rows say; nothing where all is well.

    Args:
        connection: To a store with a current schema.
    """
    for name in connection.scalars(_UNFIT_INDEXES, {"partitions": SCHEMA}):
        yield f"index {name}: not fit for use; run in psql: REINDEX INDEX {name}"
    for name in connection.scalars(_UNCHECKED_CONSTRAINTS, {"partitions": SCHEMA}):
        yield f"constraint {name}: not checked for the rows that were there before it; validate it in psql"
    there = set(connection.scalars(_INDEXES))
    for table in Base.metadata.sorted_tables:
        for name in sorted(str(index.name) for index in table.indexes if index.name not in there):
            yield f"index {name} of table {table.name}: not there; restore a backup, or make it as in db/migrations"
    yield from _orphans(connection)


def _orphans(connection: Connection) -> Iterator[str]:
    for child in Base.metadata.sorted_tables:
        for key in sorted(child.foreign_key_constraints, key=lambda key: str(key.name)):
            parents = [element.column for element in key.elements]
            yield from _pointing_nowhere(connection, child, list(key.columns), parents)
    for table, names, parent, parent_names in _POINTERS:
        own, target = Base.metadata.tables[table], Base.metadata.tables[parent]
        columns = [own.c[name] for name in names]
        yield from _pointing_nowhere(connection, own, columns, [target.c[name] for name in parent_names])


def _pointing_nowhere(
    connection: Connection, table: Table, columns: Sequence[Column[object]], targets: Sequence[Column[object]]
) -> Iterator[str]:
    count = connection.scalar(_count_orphans(table, columns, targets))
    if count:
        names = ", ".join(column.name for column in columns)
        yield f"table {table.name}: {count} row(s) whose {names} point at no row of {targets[0].table.name}"


def _count_orphans(table: Table, columns: Sequence[Column[object]], targets: Sequence[Column[object]]) -> Select[int]:
    parent = targets[0].table.alias("parent")
    has_parent = exists().where(
        *(column == parent.c[target.name] for column, target in zip(columns, targets, strict=True))
    )
    is_set = (column.is_not(None) for column in columns)
    return select(func.count()).select_from(table).where(*is_set, ~has_parent)
