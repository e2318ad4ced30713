"""Sessions that only read."""

from __future__ import annotations

import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.orm import Session

from roofwatch.api.limits import Limits
from roofwatch.db.engine.session import open_store, reading_session
from roofwatch.db.errors import StoreError


def text_of(url: URL, **query: str) -> str:
    return url.update_query_dict(query).render_as_string(hide_password=False)


def test_reading_session_cannot_write_and_resets_the_connection(database_url: URL) -> None:
    replica_like = text_of(database_url, options="-c default_transaction_read_only=on")
    with open_store(replica_like, connections=1) as engine:
        with (
            pytest.raises(StoreError, match="only reads"),
            open_store(text_of(database_url), connections=1) as writer,
            reading_session(writer) as session,
        ):
            session.execute(text("DELETE FROM project"))
        with reading_session(engine) as session:
            assert session.scalar(text("SHOW transaction_isolation")) == "read committed"
        with Session(engine) as session:
            # a replica refuses read-write transactions
            assert session.scalar(text("SHOW transaction_read_only")) == "on"


def test_snapshot_and_statement_timeout(store: Engine) -> None:
    with reading_session(store, sees_one_state=True, timeout_s=Limits().query_s) as session:
        assert session.scalar(text("SHOW transaction_isolation")) == "repeatable read"
        assert session.scalar(text("SHOW statement_timeout")) == "30s"
    with reading_session(store) as session:
        assert session.scalar(text("SHOW statement_timeout")) == "0"


def test_no_prepared_statements(store: Engine) -> None:
    with reading_session(store) as session:
        for _ in range(10):
            session.scalar(text("SELECT :number + 1"), {"number": 1})

        assert session.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0
