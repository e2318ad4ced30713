"""Artefacts over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.api.limits import Limits
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.http_client import HttpSender
from roofwatch.collector.outbox.spool import Spool
from roofwatch.model.history import Scope
from roofwatch.model.record import RunRecord
from tests.api.conftest import MakeToken, headers_of, make_app, served
from tests.api.test_reading import pages
from tests.builders import make_artefact, make_record

PAGE = b"<html><script>alert(1)</script></html>"
ARTEFACT = make_artefact(PAGE, name="report.html", kind="html")


@pytest.fixture
def record(client: TestClient) -> RunRecord:
    return posted(client, make_record(artefacts=[ARTEFACT]))


def posted(client: TestClient, record: RunRecord) -> RunRecord:
    answer = client.post("/v1/records", content=record.to_json())
    assert answer.status_code == 201, answer.text
    return record


def url(record: RunRecord, sha256: str = ARTEFACT.sha256) -> str:
    return f"/v1/runs/{record.run_id}/artefacts/{sha256}"


def test_file_is_sent_once(client: TestClient, record: RunRecord) -> None:
    lacking = client.post("/v1/records", content=record.to_json()).json()["lacking_artefacts"]
    sent = [client.put(url(record), content=PAGE) for _ in range(2)]
    lacking_later = client.post("/v1/records", content=record.to_json()).json()["lacking_artefacts"]

    assert (lacking, lacking_later) == ([ARTEFACT.sha256], [])
    assert [(answer.status_code, answer.json()["was_new"]) for answer in sent] == [
        (201, True),
        (200, False),
    ]


def test_file_is_downloaded_as_an_attachment_that_no_browser_runs(
    client: TestClient, record: RunRecord
) -> None:
    client.put(url(record), content=PAGE)

    downloaded = client.get(url(record))

    assert downloaded.content == PAGE
    headers = downloaded.headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == 'attachment; filename="report.html"'
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["content-length"] == str(len(PAGE))


def test_files_are_listed_in_pages(client: TestClient) -> None:
    artefacts = [make_artefact(bytes([number]), name=f"file-{number}") for number in range(3)]
    record = posted(client, make_record(artefacts=artefacts))
    client.put(url(record, artefacts[1].sha256), content=bytes([1]))

    listed = pages(client, f"/v1/runs/{record.run_id}/artefacts", limit=2)

    assert [[(one["name"], one["is_stored"]) for one in page] for page in listed] == [
        [("file-0", False), ("file-1", True)],
        [("file-2", False)],
    ]


def test_wrong_content_is_refused(client: TestClient, record: RunRecord) -> None:
    unannounced = iter([PAGE, b"x"])  # in chunks, without a length

    assert client.put(url(record), content=PAGE[:-1] + b"x").status_code == 422
    assert client.put(url(record), content=PAGE[:-1]).status_code == 422
    assert client.put(url(record), content=PAGE + b"x").status_code == 413
    assert client.put(url(record), content=unannounced).status_code == 413


@pytest.mark.parametrize(
    "limits",
    [Limits(artefact_bytes=10), Limits(run_artefact_bytes=10), Limits(artefacts=0)],
    ids=["one", "run", "count"],
)
def test_limits_of_files(store: Engine, make_token: MakeToken, limits: Limits) -> None:
    with TestClient(make_app(store, limits), headers=headers_of(make_token())) as client:
        record = make_record(artefacts=[ARTEFACT])
        stored = client.post("/v1/records", content=record.to_json())
        answer = stored if stored.status_code >= 300 else client.put(url(record), content=PAGE)

    assert answer.status_code in {413, 422}
    assert answer.json()["type"].split(":")[-1] in {"too-large", "too-complex"}


def test_spool_delivers_files(store: Engine, make_token: MakeToken, tmp_path: Path) -> None:
    folder = ArtefactFolder(tmp_path / "artefacts")
    (tmp_path / "trace.json").write_bytes(b"a" * 3_000_000)
    artefact = folder.add(tmp_path / "trace.json")
    missing = make_artefact(b"lost", name="lost.txt")
    record, spool = make_record(artefacts=[artefact, missing]), Spool(tmp_path / "spool")
    spool.submit(record, folder)
    folder.remove()
    token = make_token(Scope.INGEST, Scope.READ)
    with served(store) as (host, port):
        sender = HttpSender(f"http://{host}:{port}", token.text)
        delivery = spool.deliver(sender)

    with TestClient(make_app(store), headers=headers_of(token)) as client:
        assert client.get(url(record, artefact.sha256)).content == b"a" * 3_000_000
    assert len(delivery.sent) == 1
    ((_, reason),) = delivery.incomplete
    assert reason == "lost.txt: the file is missing"
    assert list(spool.folder.iterdir()) == []
