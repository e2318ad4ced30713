"""Acknowledged data survives a crash of a server with asynchronous commits."""

import io
from pathlib import Path

import pytest
from sqlalchemy import text

from roofwatch.db.artefacts import list_artefacts, store_artefact
from roofwatch.db.engine import embedded, migrate
from roofwatch.db.engine.session import make_engine, reading_session
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.records import load_record
from tests.builders import make_artefact, make_record
from tests.db.engine.embedded_server import ask, kill_server


@pytest.mark.slow
@pytest.mark.parametrize("is_sent", [False, True], ids=["the record", "its file"])
def test_acknowledged_data_survives_a_crash(folder: Path, *, is_sent: bool) -> None:
    record = make_record(artefacts=[make_artefact()])
    with embedded.start(folder) as server:
        engine = make_engine(server.url)
        migrate.upgrade(engine)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            # commits do not wait for the WAL, which is flushed every 10 s
            for setting in ("synchronous_commit = off", "wal_writer_delay = '10s'"):
                connection.execute(text(f"ALTER SYSTEM SET {setting}"))
            connection.execute(text("SELECT pg_reload_conf()"))
        engine.dispose()
        while ask(server.url, "SHOW synchronous_commit") != "off":
            pass

        ingest_record(engine, record)
        if is_sent:
            store_artefact(engine, record.run_id, make_artefact().sha256, io.BytesIO(b"a trace"))
        kill_server(folder)
        engine.dispose()

        with embedded.start(folder) as again:
            engine = make_engine(again.url)
            with reading_session(engine) as session:
                assert load_record(session, record.run_id) == record
                assert [one.is_stored for one in list_artefacts(session, record.run_id)] == [is_sent]
            engine.dispose()
