"""What Postgres knows of the tables when it plans: how many rows there are, and how often each value."""

from __future__ import annotations

from sqlalchemy import Engine, text

from roofwatch.db.schema.every import Base


def gather_statistics(engine: Engine) -> None:
    """Have Postgres look at samples of all tables, for who has just stored much at once.

    Autovacuum comes a minute later or more, and to partitions alone, never to the tables that these are of.

    Args:
        engine: Of a store with a current schema, as the owner of the tables.
    """
    quote = engine.dialect.identifier_preparer.quote_identifier
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # in one statement, each table is looked at in a transaction of its own; with its partitions, if it has some
        connection.execute(text(f"ANALYZE {', '.join(map(quote, sorted(Base.metadata.tables)))}"))
