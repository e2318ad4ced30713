"""Concurrent ingest of records."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine, create_engine

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.ingest import IngestResult, ingest_record


def ingest_concurrently(store: Engine, records: list[RunRecord]) -> list[IngestResult]:
    """Ingest each record in its own thread, all at the same time."""
    barrier = threading.Barrier(len(records))
    engine = create_engine(store.url, pool_size=len(records))

    def ingest(record: RunRecord) -> IngestResult:
        barrier.wait(timeout=60)
        return ingest_record(engine, record)

    with ThreadPoolExecutor(len(records)) as pool:
        results = list(pool.map(ingest, records))
    engine.dispose()
    return results
