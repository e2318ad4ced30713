"""The door of records: what is taken, once, and what is turned away."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zstandard
from markdown_it import MarkdownIt
from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from roofwatch.api.limits import Limits
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.auth.values import Scope
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.runs import list_commits, list_projects, list_runs
from roofwatch.db.queries.series import read_series
from roofwatch.db.schema.runs import RunRow
from tests.api.conftest import MakeToken, headers_of, make_app
from tests.builders import (
    CASE_ID,
    PROJECT,
    make_activity,
    make_case,
    make_commit,
    make_measurement,
    make_pair_of_records,
    make_profile,
    make_record,
)

PACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
POISON = "'; DROP TABLE run; -- <script>alert(1)</script> [x](javascript:alert(1)) \u202e {{7*7}} %s $1"


def post(client: TestClient, record: RunRecord, encoding: str = "gzip", **more: Any) -> Any:
    """Send a record; further fields are those of the request."""
    headers = {"Content-Encoding": encoding} | more.pop("headers", {})
    return client.post("/v1/records", content=PACK[encoding](record.to_json()), headers=headers, **more)


@pytest.mark.parametrize("encoding", PACK)
def test_a_record_is_stored_and_acknowledged_by_id_and_content(
    client: TestClient, store: Engine, encoding: str
) -> None:
    record = make_record()

    answer = post(client, record, encoding)

    assert answer.status_code == 201, answer.text
    assert answer.json() == {
        "run_id": str(record.run_id),
        "content_hash": record.content_hash,
        "project": PROJECT,
        "was_new": True,
        "is_quarantined": False,
        "lacking_artefacts": [],
    }
    with Session(store) as session:
        assert load_record(session, record.run_id) == record


def test_the_same_record_again_is_acknowledged_again_and_stored_once(client: TestClient, store: Engine) -> None:
    record = make_record()

    answers = [post(client, record) for _ in range(2)]

    assert [(answer.status_code, answer.json()["was_new"]) for answer in answers] == [(201, True), (200, False)]
    with Session(store) as session:
        assert len(list_runs(session, PROJECT)) == 1


def test_other_content_under_a_known_id_is_refused_and_not_acknowledged(client: TestClient, store: Engine) -> None:
    first = make_record()
    post(client, first)

    answer = post(client, first.model_copy(update={"harness_version": "2"}))

    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:roofwatch:problem:other-content"
    assert "run_id" not in answer.json(), "a client would take that for an acknowledgement"
    with Session(store) as session:
        assert load_record(session, first.run_id) == first


def test_of_another_project_s_run_nothing_is_told_but_that_its_id_is_taken(
    client: TestClient, store: Engine, make_token: MakeToken
) -> None:
    ours = make_record(project="other/project")
    theirs = ours.model_copy(update={"project": PROJECT})
    mine = ours.model_copy(update={"harness_version": "2"})
    others = headers_of(make_token(Scope.INGEST, project="other/project"))
    post(client, theirs)
    assert post(client, theirs, headers=others).status_code == 403

    of_another = post(client, ours, headers=others)

    assert of_another.status_code == 409
    assert theirs.content_hash[:12] not in of_another.text
    assert PROJECT not in of_another.text
    with Session(store) as session:
        session.execute(delete(RunRow).where(RunRow.run_id == theirs.run_id))
        session.commit()
    post(client, mine, headers=others)
    of_one_s_own = post(client, ours, headers=others)
    assert [answer.json() | {"instance": ""} for answer in (of_another, of_one_s_own)] == [
        of_another.json() | {"instance": ""}
    ] * 2


def test_many_clients_with_the_same_and_overlapping_records_store_each_once(
    store: Engine, make_token: MakeToken
) -> None:
    shared = [CASE_ID.replace("64", str(rows)) for rows in range(1, 6)]
    records = [
        make_record(number, measurements=[make_measurement(case_id) for case_id in shared[number % 2 :]])
        for number in range(4)
    ]
    headers = headers_of(make_token(Scope.INGEST))

    with TestClient(make_app(store)) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda record: post(client, record, headers=headers), records * 6))

    assert {answer.status_code for answer in answers} == {200, 201}
    assert sum(answer.json()["was_new"] for answer in answers) == len(records)
    with Session(store) as session:
        assert {run.run_id for run in list_runs(session, PROJECT)} == {str(record.run_id) for record in records}
        for record in records:
            assert load_record(session, record.run_id) == record


def test_a_record_of_a_newer_minor_version_is_stored_without_what_is_not_known(
    client: TestClient, store: Engine
) -> None:
    record = RunRecord.model_validate(
        make_record().model_dump(mode="json") | {"schema_version": "1.999", "moon_phase": {"name": "full"}}
    )

    assert post(client, record).status_code == 201
    with Session(store) as session:
        assert load_record(session, record.run_id).measurements == record.measurements
    verification = verify_store(store)
    assert (verification.is_whole, verification.unproven_count) == (True, 1)


@pytest.mark.parametrize(
    ("body", "headers", "status", "detail"),
    [
        (b"", {}, 400, "not JSON"),
        (b"{", {}, 400, "not JSON"),
        (b"[]", {}, 422, "not a roofwatch record"),
        (b'{"schema_version": "9.0", "run_id": "x"}', {}, 422, "schema version 9.0 is not known here"),
        (b'{"schema_version": "1.0", "run_id": "x"}', {}, 422, "problem(s) in all"),
        (b"{}", {"Content-Type": "text/html"}, 415, "application/json"),
        (b"{}", {"Content-Encoding": "br"}, 415, "gzip, zstd, identity"),
        (b"{}", {"Content-Encoding": "gzip"}, 400, "not complete gzip"),
        (gzip.compress(b"{}" * 99)[:-9], {"Content-Encoding": "gzip"}, 400, "not complete gzip"),
        (gzip.compress(b"{}") + b"rest", {"Content-Encoding": "gzip"}, 400, "not complete gzip"),
        (b"{}", {"Content-Encoding": "zstd"}, 400, "not complete zstd"),
    ],
)
def test_what_is_no_record_is_turned_away_with_the_way_out(
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
    keys=2_000,
    entries=20,
    cases=5,
    string_characters=5_000,
)
BOMB = b'{"a": "' + b"a" * 1_000_000 + b'"}'


@pytest.mark.parametrize(
    ("body", "encoding", "status", "kind"),
    [
        (b" " * 20_001, "identity", 413, "too-large"),
        (gzip.compress(BOMB), "gzip", 413, "too-large"),
        (gzip.compress(b"[" * 120_000), "gzip", 413, "too-large"),
        (zstandard.ZstdCompressor().compress(BOMB), "zstd", 413, "too-large"),
        (b"[" * 900 + b"]" * 900, "identity", 422, "too-complex"),
        (b"[" * 9 + b"]" * 9, "identity", 422, "too-complex"),
        (b"[" + b"[]," * 1_000 + b"[]]", "identity", 422, "too-complex"),
        (gzip.compress(b"[" + b"1," * 10_001 + b"1]"), "gzip", 422, "too-complex"),
        (gzip.compress(b"{" + b",".join(b'"%d":1' % key for key in range(2_001)) + b"}"), "gzip", 422, "too-complex"),
        (b'{"cases": [1, 2, 3, 4, 5, 6]}', "identity", 422, "too-complex"),
        (b'{"counters": [' + b"1," * 20 + b"1]}", "identity", 422, "too-complex"),
        (b'{"a": "' + b"a" * 5_001 + b'"}', "identity", 422, "too-complex"),
        (b'{"' + b"a" * 5_001 + b'": 1}', "identity", 422, "too-complex"),
    ],
)
def test_what_is_too_much_is_refused_by_the_first_limit_that_it_meets(
    store: Engine, make_token: MakeToken, body: bytes, encoding: str, status: int, kind: str
) -> None:
    with TestClient(make_app(store, SMALL), headers=headers_of(make_token())) as client:
        answer = client.post("/v1/records", content=body, headers={"Content-Encoding": encoding})

    assert answer.status_code == status, answer.text
    assert answer.json()["type"] == f"urn:roofwatch:problem:{kind}"


def test_text_that_would_be_code_elsewhere_is_stored_and_given_back_as_text(client: TestClient, store: Engine) -> None:
    case_id = f"{POISON.replace('/', '|')}/n=1/float32/fwd"
    record = make_record(
        commit=make_commit(subject=POISON, author=POISON),
        measurements=[make_measurement(case_id, implementation=POISON)],
        profiles=[make_profile(case_id, make_activity(POISON, device=POISON), implementation=POISON)],
    )
    record = record.model_copy(update={"cases": (make_case(case_id, family=POISON),)})

    assert post(client, record).status_code == 201

    with Session(store) as session:
        assert load_record(session, record.run_id) == record
    answer = client.get(f"/v1/runs/{record.run_id}")
    assert answer.json()["cases"][0]["implementation"] == POISON
    served = client.get(f"/v1/runs/{record.run_id}/record").json()
    assert served["profiles"] == record.model_dump(mode="json")["profiles"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    markdown = client.get(
        "/v1/comparison",
        params={"project": PROJECT, "base": record.commit.sha, "head": str(record.run_id), "format": "markdown"},
    )
    assert markdown.status_code == 200
    assert markdown.headers["content-type"].startswith("text/markdown")
    # with raw HTML allowed, as where comments are shown
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown.text)
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert 'href="javascript:' not in page


def test_what_lands_in_quarantine_is_shown_and_part_of_nothing(client: TestClient, store: Engine) -> None:
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
        points = [point for series in read_series(session, PROJECT, include_pairs=True) for point in series.points]
        assert {point.run_id for point in points} == {str(good.run_id)}
    listed = client.get("/v1/runs", params={"project": PROJECT, "quarantined": "true"}).json()["items"]
    assert {run["run_id"] for run in listed} == {str(record.run_id) for record in (foreign, *pair)}
    assert all(run["is_quarantined"] and run["project"] == PROJECT for run in listed)
    assert client.get(f"/v1/runs/{foreign.run_id}/record").json()["project"] == PROJECT


def test_a_record_in_quarantine_cannot_say_what_a_case_or_a_commit_is(client: TestClient, store: Engine) -> None:
    lying = make_record(commit=make_commit(first_parent_count=10**9, subject="mine"))
    lying = lying.model_copy(update={"cases": (make_case(shape={"n_rows": 1}),)})
    assert post(client, lying, params={"quarantine": "true"}).status_code == 201

    honest = make_record()
    assert post(client, honest).status_code == 201
    with Session(store) as session:
        assert list_commits(session, PROJECT)[0].first_parent_count == honest.commit.first_parent_count
        assert load_record(session, honest.run_id) == honest


def test_a_token_in_quarantine_can_send_nowhere_else(store: Engine, make_token: MakeToken) -> None:
    token = make_token(Scope.INGEST, is_quarantined=True)
    with TestClient(make_app(store), headers=headers_of(token)) as client:
        answer = post(client, make_record(), params={"quarantine": "false"})

    assert answer.json()["is_quarantined"] is True


def test_a_run_that_somebody_vouches_for_counts_from_then_on(client: TestClient, store: Engine) -> None:
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
    assert (entry["person"], entry["reason"], entry["subject"]) == (*vouching.values(), str(record.run_id))
