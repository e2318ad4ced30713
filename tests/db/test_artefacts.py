"""Artefacts: stored once, read back equal, visible only to runs that sent them."""

import hashlib
import io

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.errors import IngestError, StoreError
from roofwatch.db.ingest.artefacts import (
    drop_unlinked,
    list_artefacts,
    read_artefact,
    store_artefact,
)
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.quarantine import release_run
from roofwatch.db.projects import delete_project
from roofwatch.db.queries.records import load_record
from roofwatch.model.record import RunRecord
from tests.builders import make_artefact, make_record

CONTENT = bytes(range(256)) * 10_000  # 2.4 MiB: three chunks


def ingest(
    store: Engine, *contents: bytes, number: int = 0, is_quarantined: bool = False
) -> RunRecord:
    artefacts = [
        make_artefact(content, name=f"file-{place}") for place, content in enumerate(contents)
    ]
    record = make_record(number, artefacts=artefacts)
    ingest_record(store, record, is_quarantined=is_quarantined)
    return record


def put(store: Engine, record: RunRecord, content: bytes) -> bool:
    return store_artefact(
        store, record.run_id, hashlib.sha256(content).hexdigest(), io.BytesIO(content)
    )


def read(store: Engine, record: RunRecord, content: bytes) -> bytes:
    return b"".join(read_artefact(store, record.run_id, hashlib.sha256(content).hexdigest()))


def count(store: Engine, table: str) -> int:
    with store.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


@pytest.mark.parametrize("content", [b"", CONTENT, CONTENT[: 2**20]], ids=len)
def test_content_reads_back_equal(store: Engine, content: bytes) -> None:
    record = ingest(store, content)

    assert put(store, record, content) is True
    assert read(store, record, content) == content


def test_equal_contents_are_stored_once_for_each_run_that_sent_them(store: Engine) -> None:
    first, second = ingest(store, CONTENT), ingest(store, CONTENT, number=1)

    assert [put(store, first, CONTENT) for _ in range(2)] == [True, False]
    with pytest.raises(StoreError, match="no content"):
        read(store, second, CONTENT)  # its sha256 alone does not give access
    assert put(store, second, CONTENT) is True

    assert (count(store, "artefact_content"), count(store, "artefact_chunk")) == (1, 3)
    assert read(store, second, CONTENT) == CONTENT


@pytest.mark.parametrize("sent", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x"], ids=len)
def test_wrong_content_is_refused(store: Engine, sent: bytes) -> None:
    record = ingest(store, CONTENT)

    with pytest.raises(IngestError, match="not the file with sha256"):
        store_artefact(store, record.run_id, record.artefacts[0].sha256, io.BytesIO(sent))

    assert count(store, "artefact_content") == count(store, "artefact_chunk") == 0


def test_only_unlinked_contents_are_dropped(store: Engine) -> None:
    kept = ingest(store, b"kept")
    kept_only = ingest(store, CONTENT)
    elsewhere = make_record(
        project="other/project",
        artefacts=[make_artefact(b"gone"), make_artefact(b"kept", name="b")],
    )
    ingest_record(store, elsewhere)
    for record, content in (
        (kept, b"kept"),
        (kept_only, CONTENT),
        (elsewhere, b"gone"),
        (elsewhere, b"kept"),
    ):
        put(store, record, content)
    delete_project(store, "other/project")

    with store.begin() as connection:
        assert drop_unlinked(connection) == 1

    assert read(store, kept, b"kept") == b"kept"
    assert read(store, kept_only, CONTENT) == CONTENT


def test_released_run_keeps_its_files(store: Engine) -> None:
    record = ingest(store, CONTENT, b"never sent", is_quarantined=True)
    put(store, record, CONTENT)

    release_run(
        store, record.run_id, actor="test", person="Example Engineer", reason="measured again"
    )

    assert read(store, record, CONTENT) == CONTENT
    with Session(store) as session:
        assert [one.is_stored for one in list_artefacts(session, record.run_id)] == [True, False]
        assert load_record(session, record.run_id) == record


def test_damaged_content_is_reported(store: Engine) -> None:
    record = ingest(store, CONTENT)
    put(store, record, CONTENT)
    with store.begin() as connection:
        connection.execute(text("DELETE FROM artefact_chunk WHERE position = 1"))

    with pytest.raises(StoreError, match="the stored content is damaged"):
        read(store, record, CONTENT)
