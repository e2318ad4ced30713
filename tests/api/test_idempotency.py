"""Requests that are sent again because their answer was lost: each route that changes something does it once."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from starlette.testclient import TestClient

from roofwatch.db.auth.idempotency import KEPT_FOR
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from tests.api.conftest import UNHURRIED, MakeToken, headers_of, make_app
from tests.builders import PROJECT, make_artefact, make_record, make_regression
from tests.docs.markdown import ROOT, table_under

KEY = {"Idempotency-Key": "5f0c1b1e-0f6e-4d38-9f6c-2f8f9d1d2a11"}
SAID = {"person": "Example Engineer", "reason": "because"}
TRIAGE = f"/v1/regressions/{regression_id(make_regression(1))}/triage"


@pytest.fixture
def judged(store: Engine) -> Engine:
    for number in range(2):
        ingest_record(store, make_record(number))
    replace_regressions(store, PROJECT, [make_regression(1)])
    return store


def decide(client: TestClient, key: dict[str, str], **decision: str) -> Any:
    return client.post(TRIAGE, params={"project": PROJECT}, json={"state": "expected"} | SAID | decision, headers=key)


def actions(client: TestClient) -> list[tuple[str, str, str]]:
    entries = client.get("/v1/audit", params={"project": PROJECT}).json()["items"]
    return [(one["action"], one["before"], one["after"]) for one in entries if one["action"] != "token.create"]


def test_a_decision_that_is_sent_again_is_made_once_and_undoes_nothing(client: TestClient, judged: Engine) -> None:
    first = decide(client, KEY, expected="new")
    assert decide(client, {}, state="fixed").status_code == 200
    again = decide(client, KEY, expected="new")

    assert (first.status_code, again.status_code) == (200, 200)
    assert [answer.json()["triage"]["state"] for answer in (first, again)] == ["expected", "fixed"]
    assert actions(client) == [("regression.triage", "expected", "fixed"), ("regression.triage", "new", "expected")]


def test_a_key_belongs_to_one_request_of_one_token(client: TestClient, judged: Engine, make_token: MakeToken) -> None:
    other = TestClient(make_app(judged, UNHURRIED), headers=headers_of(make_token()))
    assert decide(client, KEY).status_code == 200

    refused = decide(client, KEY, state="fixed")

    assert (refused.status_code, refused.json()["type"]) == (422, "urn:roofwatch:problem:other-request")
    assert "a new request needs a key of its own" in refused.json()["detail"]
    assert decide(other, KEY, state="invalid").json()["triage"]["state"] == "invalid"
    for wrong in ("", "two words", "x" * 201):
        assert decide(client, {"Idempotency-Key": wrong}).status_code == 422


def test_what_was_refused_was_not_done(client: TestClient, judged: Engine) -> None:
    assert decide(client, KEY, expected="fixed").status_code == 409
    assert decide(client, {}, state="fixed").status_code == 200

    assert decide(client, KEY, expected="fixed").status_code == 200
    assert actions(client)[0] == ("regression.triage", "fixed", "expected")


def test_the_same_request_twice_at_once_is_done_once(client: TestClient, judged: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: decide(client, KEY), range(4)))

    assert {answer.status_code for answer in answers} == {200}
    assert actions(client) == [("regression.triage", "new", "expected")]


def test_a_key_is_kept_for_some_days(client: TestClient, judged: Engine) -> None:
    decide(client, KEY)
    with judged.begin() as connection:
        connection.execute(text("UPDATE idempotency_key SET done_at = done_at - :age"), {"age": KEPT_FOR})
        connection.execute(text("UPDATE idempotency_key SET done_at = done_at - :age"), {"age": timedelta(seconds=1)})

    decide(client, {"Idempotency-Key": "another"}, state="fixed")

    with judged.connect() as connection:
        assert connection.scalars(text("SELECT key FROM idempotency_key")).all() == ["another"]


def test_a_release_that_is_sent_again_is_no_conflict(client: TestClient, store: Engine) -> None:
    record = make_record()
    ingest_record(store, record, is_quarantined=True)
    path = f"/v1/runs/{record.run_id}/release"

    answers = [client.post(path, json=SAID, headers=KEY) for _ in range(2)]
    by_others = [client.post(path, json=SAID, headers=headers) for headers in ({}, {"Idempotency-Key": "another"}) * 2]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()["is_quarantined"] is answers[1].json()["is_quarantined"] is False
    assert [answer.status_code for answer in by_others] == [409, 409, 409, 409]
    assert client.post(path, json=SAID | {"reason": "else"}, headers=KEY).status_code == 422
    assert actions(client) == [("run.release", "quarantined", "counted")]


def test_a_release_that_is_sent_again_lets_out_nothing_that_came_since(client: TestClient, store: Engine) -> None:
    record = make_record()
    ingest_record(store, record, is_quarantined=True)
    path = f"/v1/runs/{record.run_id}/release"
    assert client.post(path, json=SAID, headers=KEY).json()["is_quarantined"] is False
    with store.begin() as connection:
        connection.execute(text("DELETE FROM run"))
    ingest_record(store, make_record(run_id=record.run_id, harness_version="another"), is_quarantined=True)

    again = client.post(path, json=SAID, headers=KEY)

    assert (again.status_code, again.json()["is_quarantined"]) == (200, True)
    assert actions(client) == [("run.release", "quarantined", "counted")]
    assert client.post(path, json=SAID).json()["is_quarantined"] is False


def test_records_and_files_are_known_by_what_they_are(client: TestClient, store: Engine) -> None:
    record = make_record(artefacts=[make_artefact()])
    sent = [client.post("/v1/records", content=record.to_json()) for _ in range(2)]
    path = f"/v1/runs/{record.run_id}/artefacts/{make_artefact().sha256}"
    files = [client.put(path, content=io.BytesIO(b"a trace")) for _ in range(2)]

    assert [answer.status_code for answer in (*sent, *files)] == [201, 200, 201, 200]


def test_the_page_says_of_every_route_that_changes_something_what_it_is_known_by(client: TestClient) -> None:
    paths = client.get("/v1/openapi.json").json()["paths"]
    changing = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods if method != "get"}
    changing.remove("POST /v1/questions/{question}")  # what is asked is too long for an address; the session only reads

    said = {row[0]: row[1] for row in table_under(ROOT / "docs" / "api.md", "Sent again")}

    assert said.keys() == changing
    assert {route for route, known_by in said.items() if known_by == "Idempotency-Key"} == {
        "POST /v1/regressions/{regression}/triage",
        "POST /v1/runs/{run_id}/release",
    }
