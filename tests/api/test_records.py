"""The ingest endpoint."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest
from markdown_it import MarkdownIt
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from roofwatch.api.limits import Limits
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.project import list_commits, list_projects
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.runs import list_runs
from roofwatch.db.queries.series import read_series
from roofwatch.model.history import Scope
from roofwatch.model.record import RunRecord
from tests.api.conftest import MakeToken, headers_of, make_app
from tests.builders import (
    PROJECT,
    make_activity,
    make_case,
    make_commit,
    make_measurement,
    make_pair_of_records,
    make_profile,
    make_record,
)
from tests.databases import stored_record

PACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
}
POISON = (
    "'; DROP TABLE run; -- <script>alert(1)</script> [x](javascript:alert(1)) \u202e {{7*7}} %s $1"
)


def post(client: TestClient, record: RunRecord, encoding: str = "gzip", **more: Any) -> Any:
    """Send a record; further fields are those of the request."""
    headers = {"Content-Encoding": encoding} | more.pop("headers", {})
    return client.post(
        "/v1/records", content=PACK[encoding](record.to_json()), headers=headers, **more
    )


@pytest.mark.parametrize("encoding", PACK)
def test_record_is_stored_once(client: TestClient, store: Engine, encoding: str) -> None:
    record = make_record()

    answer, again = (post(client, record, encoding) for _ in range(2))

    assert (answer.status_code, again.status_code, again.json()["was_new"]) == (201, 200, False), (
        answer.text
    )
    assert stored_record(store, record.run_id) == record


@pytest.mark.parametrize("encoding", PACK)
def test_stored_record_is_acknowledged(client: TestClient, encoding: str) -> None:
    record = make_record()

    answer = post(client, record, encoding)

    assert answer.json() == {
        "run_id": str(record.run_id),
        "content_hash": record.content_hash,
        "project": PROJECT,
        "was_new": True,
        "is_quarantined": False,
        "lacking_artefacts": [],
    }


def test_other_content_under_a_known_id_is_refused(client: TestClient, store: Engine) -> None:
    first = make_record()
    post(client, first)

    answer = post(client, first.model_copy(update={"harness_version": "2"}))

    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:roofwatch:problem:other-content"
    assert "run_id" not in answer.json()
    assert stored_record(store, first.run_id) == first


def test_record_of_a_newer_minor_version_is_stored(client: TestClient, store: Engine) -> None:
    record = RunRecord.model_validate(
        make_record().model_dump(mode="json")
        | {"schema_version": "1.999", "moon_phase": {"name": "full"}}
    )

    assert post(client, record).status_code == 201
    assert stored_record(store, record.run_id).measurements == record.measurements
    verification = verify_store(store)
    assert (verification.is_whole, verification.unproven_count) == (True, 1)


@pytest.mark.parametrize(
    ("body", "headers", "status", "detail"),
    [
        (b"{", {}, 400, "not JSON"),
        (b"[]", {}, 422, "not a roofwatch record"),
        (
            b'{"schema_version": "9.0", "run_id": "x"}',
            {},
            422,
            "schema version 9.0 is not known here",
        ),
        (b'{"schema_version": "1.0", "run_id": "x"}', {}, 422, "problem(s) in all"),
        (b"{}", {"Content-Type": "text/html"}, 415, "application/json"),
        (b"{}", {"Content-Encoding": "br"}, 415, "gzip, identity"),
        (b"{}", {"Content-Encoding": "gzip"}, 400, "not complete gzip"),
        (gzip.compress(b"{}" * 99)[:-9], {"Content-Encoding": "gzip"}, 400, "not complete gzip"),
        (b"{}", {"Content-Encoding": "zstd"}, 415, "gzip, identity"),
    ],
)
def test_invalid_body_is_refused_with_the_reason(
    client: TestClient, body: bytes, headers: dict[str, str], status: int, detail: str
) -> None:
    answer = client.post("/v1/records", content=body, headers=headers)

    assert answer.status_code == status
    assert detail in answer.json()["detail"]
    assert answer.json()["instance"].startswith("urn:uuid:")


SMALL = Limits(
    body_bytes=20_000,
    document_bytes=100_000,
    depth=8,
    containers=1_000,
    values=10_000,
    entries=20,
    string_characters=5_000,
)
BOMB = b'{"a": "' + b"a" * 1_000_000 + b'"}'


@pytest.mark.parametrize(
    ("body", "encoding", "status", "kind"),
    [
        (b" " * 20_001, "identity", 413, "too-large"),
        (gzip.compress(BOMB), "gzip", 413, "too-large"),
        (gzip.compress(b"[" * 120_000), "gzip", 413, "too-large"),
        (b"[" * 9 + b"]" * 9, "identity", 422, "too-complex"),
        (b"[" + b"[]," * 1_000 + b"[]]", "identity", 422, "too-complex"),
        (gzip.compress(b"[" + b"1," * 10_001 + b"1]"), "gzip", 422, "too-complex"),
        (b'{"counters": [' + b"1," * 20 + b"1]}", "identity", 422, "too-complex"),
        (b'{"a": "' + b"a" * 5_001 + b'"}', "identity", 422, "too-complex"),
        (b'{"' + b"a" * 5_001 + b'": 1}', "identity", 422, "too-complex"),
    ],
)
def test_limits_of_documents(
    store: Engine, make_token: MakeToken, body: bytes, encoding: str, status: int, kind: str
) -> None:
    with TestClient(make_app(store, SMALL), headers=headers_of(make_token())) as client:
        answer = client.post("/v1/records", content=body, headers={"Content-Encoding": encoding})

    assert answer.status_code == status, answer.text
    assert answer.json()["type"] == f"urn:roofwatch:problem:{kind}"


@pytest.fixture
def poisoned(client: TestClient) -> RunRecord:
    """A stored record with hostile text in every name."""
    case_id = f"{POISON.replace('/', '|')}/n=1/float32/fwd"
    record = make_record(
        commit=make_commit(subject=POISON, author=POISON),
        measurements=[make_measurement(case_id, implementation=POISON)],
        profiles=[
            make_profile(case_id, make_activity(POISON, device=POISON), implementation=POISON)
        ],
    )
    record = record.model_copy(update={"cases": (make_case(case_id, family=POISON),)})
    assert post(client, record).status_code == 201
    return record


def test_untrusted_text_is_stored_as_it_is(
    client: TestClient, store: Engine, poisoned: RunRecord
) -> None:
    assert stored_record(store, poisoned.run_id) == poisoned
    answer = client.get(f"/v1/runs/{poisoned.run_id}")
    assert answer.json()["cases"][0]["implementation"] == POISON
    served = client.get(f"/v1/runs/{poisoned.run_id}/record").json()
    assert served["profiles"] == poisoned.model_dump(mode="json")["profiles"]


def test_no_browser_runs_untrusted_text_of_an_answer(
    client: TestClient, poisoned: RunRecord
) -> None:
    answer = client.get(f"/v1/runs/{poisoned.run_id}")

    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_untrusted_text_is_escaped_in_a_comment(client: TestClient, poisoned: RunRecord) -> None:
    markdown = client.get(
        "/v1/comparison",
        params={
            "project": PROJECT,
            "base": poisoned.commit.sha,
            "head": str(poisoned.run_id),
            "format": "markdown",
        },
    )

    assert markdown.status_code == 200
    assert markdown.headers["content-type"].startswith("text/markdown")
    # GitHub allows raw HTML too
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown.text)
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert 'href="javascript:' not in page


def test_quarantined_runs_are_listed_but_not_analysed(client: TestClient, store: Engine) -> None:
    good, foreign = make_record(0), make_record(1)
    pair = make_pair_of_records(0, 1)
    post(client, good)
    for record in (foreign, *pair):
        answer = post(client, record, params={"quarantine": "true"})
        assert answer.json()["is_quarantined"] is True

    with Session(store) as session:
        assert list_projects(session) == [PROJECT]
        assert [commit.sha for commit in list_commits(session, PROJECT)] == [good.commit.sha]
        assert list_pairs(session, PROJECT) == []
        points = [
            point
            for series in read_series(session, PROJECT, include_pairs=True)
            for point in series.points
        ]
        assert {point.run_id for point in points} == {str(good.run_id)}
    listed = client.get("/v1/runs", params={"project": PROJECT, "quarantined": "true"}).json()[
        "items"
    ]
    assert {run["run_id"] for run in listed} == {str(record.run_id) for record in (foreign, *pair)}
    assert all(run["is_quarantined"] and run["project"] == PROJECT for run in listed)
    assert client.get(f"/v1/runs/{foreign.run_id}/record").json()["project"] == PROJECT


def test_quarantined_record_defines_nothing_for_other_records(
    client: TestClient, store: Engine
) -> None:
    lying = make_record(commit=make_commit(first_parent_count=10**9, subject="mine"))
    lying = lying.model_copy(update={"cases": (make_case(shape={"n_rows": 1}),)})
    assert post(client, lying, params={"quarantine": "true"}).status_code == 201

    honest = make_record()
    assert post(client, honest).status_code == 201
    with Session(store) as session:
        assert (
            list_commits(session, PROJECT)[0].first_parent_count == honest.commit.first_parent_count
        )
        assert load_record(session, honest.run_id) == honest


def test_quarantined_token_sends_only_to_quarantine(store: Engine, make_token: MakeToken) -> None:
    token = make_token(Scope.INGEST, is_quarantined=True)
    with TestClient(make_app(store), headers=headers_of(token)) as client:
        answer = post(client, make_record(), params={"quarantine": "false"})

    assert answer.json()["is_quarantined"] is True


def test_released_run_counts(client: TestClient, store: Engine) -> None:
    record = make_record()
    post(client, record, params={"quarantine": "true"})
    vouching = {"person": "Example Engineer", "reason": "measured again: the same"}

    released = client.post(f"/v1/runs/{record.run_id}/release", json=vouching)
    again = client.post(f"/v1/runs/{record.run_id}/release", json=vouching)

    assert (released.status_code, again.status_code) == (200, 409)
    assert released.json()["is_quarantined"] is False
    assert post(client, record).json()["was_new"] is False
    with Session(store) as session:
        assert load_record(session, record.run_id) == record
        assert [run.run_id for run in list_runs(session, PROJECT)] == [str(record.run_id)]
    (entry,) = [
        one
        for one in client.get("/v1/audit", params={"project": PROJECT}).json()["items"]
        if one["action"] == "run.release"
    ]
    assert (entry["person"], entry["reason"], entry["subject"]) == (
        *vouching.values(),
        str(record.run_id),
    )
