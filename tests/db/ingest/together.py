"""Records that are stored at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine, create_engine

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.ingest import IngestResult, OnConflict, ingest_record


def at_once(store: Engine, records: list[RunRecord], on_conflict: OnConflict = OnConflict.REFUSE) -> list[IngestResult]:
    """Ingest each record from a thread of its own, all let go together."""
    barrier = threading.Barrier(len(records))
    engine = create_engine(store.url, pool_size=len(records))

    def ingest(record: RunRecord) -> IngestResult:
        barrier.wait(timeout=60)
        return ingest_record(engine, record, on_conflict=on_conflict)

    with ThreadPoolExecutor(len(records)) as pool:
        results = list(pool.map(ingest, records))
    engine.dispose()
    return results
