"""Files of runs over HTTP: sent as what the record names and nothing else, downloaded as what no browser runs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from starlette.testclient import TestClient

from roofwatch.api.limits import Limits
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.spool import Spool
from roofwatch.collector.outbox.upload import HttpSender
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.auth.values import Scope
from tests.api.conftest import MakeToken, headers_of, make_app
from tests.api.serving import served
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


def test_a_file_is_asked_for_sent_once_and_downloaded_equal(client: TestClient, record: RunRecord) -> None:
    asked = client.post("/v1/records", content=record.to_json()).json()["lacking_artefacts"]
    sent = [client.put(url(record), content=PAGE) for _ in range(2)]
    asked_later = client.post("/v1/records", content=record.to_json()).json()["lacking_artefacts"]

    assert (asked, asked_later) == ([ARTEFACT.sha256], [])
    assert [(answer.status_code, answer.json()["was_new"]) for answer in sent] == [(201, True), (200, False)]
    assert client.get(url(record)).content == PAGE


def test_a_download_is_nothing_that_a_browser_runs_or_shows(client: TestClient, record: RunRecord) -> None:
    client.put(url(record), content=PAGE)

    headers = client.get(url(record)).headers

    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == 'attachment; filename="report.html"'
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["content-length"] == str(len(PAGE))


def test_files_are_listed_in_pages_and_with_whether_they_are_there(client: TestClient) -> None:
    artefacts = [make_artefact(bytes([number]), name=f"file-{number}") for number in range(3)]
    record = posted(client, make_record(artefacts=artefacts))
    client.put(url(record, artefacts[1].sha256), content=bytes([1]))

    listed: list[Any] = []
    cursor: str | None = None
    while cursor is not None or not listed:
        query = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        page = client.get(f"/v1/runs/{record.run_id}/artefacts", params=query).json()
        listed += page["items"]
        cursor = page["next"]

    assert [(one["name"], one["is_stored"]) for one in listed] == [
        ("file-0", False),
        ("file-1", True),
        ("file-2", False),
    ]


@pytest.mark.parametrize("body", [PAGE[:-1], PAGE[:-1] + b"x", b""], ids=["short", "other", "empty"])
def test_what_the_record_does_not_name_is_refused_and_leaves_nothing(
    client: TestClient, store: Engine, record: RunRecord, body: bytes
) -> None:
    answer = client.put(url(record), content=body)

    assert answer.status_code == 422
    with store.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM artefact_content")) == 0


def test_a_body_that_is_longer_than_what_is_named_is_refused(client: TestClient, record: RunRecord) -> None:
    unannounced = iter([PAGE, b"x"])  # in chunks, without a length

    assert client.put(url(record), content=PAGE + b"x").status_code == 413
    assert client.put(url(record), content=unannounced).status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/runs/{uuid.UUID(int=0)}/artefacts/{ARTEFACT.sha256}",
        "/v1/runs/{run_id}/artefacts/" + "0" * 64,
    ],
    ids=["no such run", "not named"],
)
def test_there_is_nothing_at_other_addresses(client: TestClient, record: RunRecord, path: str) -> None:
    for method in ("GET", "PUT"):
        assert client.request(method, path.format(run_id=record.run_id)).status_code == 404
    assert client.get(url(record)).status_code == 404, "named, and sent by nobody"


@pytest.mark.parametrize("name", ["../etc/passwd", 'a"; filename="b.exe', "a\r\nX-A: b", ".", "-rf", "a b", "é", ""])
def test_a_record_with_a_name_that_is_no_plain_file_name_is_refused(client: TestClient, name: str) -> None:
    document = make_record(artefacts=[ARTEFACT]).model_dump(mode="json")
    document["artefacts"][0]["name"] = name

    assert client.post("/v1/records", json=document).status_code == 422


@pytest.mark.parametrize(
    "limits",
    [Limits(artefact_bytes=10), Limits(run_artefact_bytes=10), Limits(artefacts=0)],
    ids=["one", "run", "count"],
)
def test_what_is_too_much_is_refused(store: Engine, make_token: MakeToken, limits: Limits) -> None:
    with TestClient(make_app(store, limits), headers=headers_of(make_token())) as client:
        record = make_record(artefacts=[ARTEFACT])
        stored = client.post("/v1/records", content=record.to_json())
        answer = stored if stored.status_code >= 300 else client.put(url(record), content=PAGE)

    assert answer.status_code in {413, 422}
    assert answer.json()["type"].split(":")[-1] in {"too-large", "too-complex"}


def test_the_spool_carries_a_record_s_files_to_the_server(store: Engine, make_token: MakeToken, tmp_path: Path) -> None:
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
        delivery = spool.deliver(sender, send_artefact=sender.send_artefact)

    with TestClient(make_app(store), headers=headers_of(token)) as client:
        assert client.get(url(record, artefact.sha256)).content == b"a" * 3_000_000
    assert len(delivery.sent) == 1
    ((_, reason),) = delivery.incomplete
    assert reason == "lost.txt: the file is missing"
    assert list(spool.folder.iterdir()) == []
