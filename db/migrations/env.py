"""Alembic's entry point; it runs on the connection of `roofwatch.db.engine.migrate`."""

from alembic import context
from sqlalchemy import Connection


def run_on(connection: Connection) -> None:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


run_on(context.config.attributes["connection"])
