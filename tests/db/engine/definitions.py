"""The schema of a database as Postgres prints it, to compare two."""

import re

from sqlalchemy import Engine, text

# a restored check has the casts in other places; since Postgres 18 NOT NULL is a constraint with a
# name, which means nothing: the columns are compared
_CASTS = re.compile(r"::(character varying|text)(\[\])?|[() ]")
_QUERIES = {
    "constraint": """
        SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
    """,
    "index": """
        SELECT tablename::text, indexname::text, indexdef FROM pg_indexes
        WHERE schemaname = 'public'
    """,
    "column": """
        SELECT table_name::text, column_name::text, data_type::text, udt_name::text,
            is_nullable::text, coalesce(column_default, ''), is_identity::text
        FROM information_schema.columns NATURAL JOIN information_schema.tables
        WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
    """,
}


def definitions(engine: Engine) -> set[tuple[str, ...]]:
    """Constraints, indexes and columns."""
    parts: set[tuple[str, ...]] = set()
    with engine.connect() as connection:
        for kind, query in _QUERIES.items():
            for row in connection.execute(text(query)):
                if "alembic_version" not in row[0]:
                    parts.add((kind, *(_CASTS.sub("", part) for part in row)))
    return parts
