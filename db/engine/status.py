"""What the database is and what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from roofwatch.db.engine.migrate import current_revision
from roofwatch.db.schema.judgements import RegressionRow
from roofwatch.db.schema.results import AccuracyRow, StaticFactRow
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


@dataclass(frozen=True)
class StoreStatus:
    server: str
    """Host and database, without the password."""
    server_version: str
    schema_revision: str | None
    size_bytes: int
    row_counts: dict[str, int]


def read_status(engine: Engine) -> StoreStatus:
    """Ask the server."""
    tables = (ProjectRow, CommitRow, RunRow, AccuracyRow, StaticFactRow, RegressionRow)
    with Session(engine) as session:
        counts = {
            row.__tablename__: session.execute(select(func.count()).select_from(row)).scalar_one() for row in tables
        }
        # counted where a run lists them: the table itself may have a hundred million rows
        counted = func.coalesce(func.sum(func.cardinality(RunRow.series_ids)), 0)
        counts["measurement"] = session.execute(select(counted)).scalar_one()
        size_bytes = session.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
        version = session.execute(text("SHOW server_version")).scalar_one()
    return StoreStatus(
        server=f"{engine.url.host}:{engine.url.port or 5432}/{engine.url.database}",
        server_version=version,
        schema_revision=current_revision(engine),
        size_bytes=size_bytes,
        row_counts=counts,
    )
