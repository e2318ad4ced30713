"""The queue over HTTP: limits of a token, whose job it is, and what each entry is audited as."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from roofwatch.db.access import NewToken, create_token, list_entries
from roofwatch.model.history import Scope
from tests.api.conftest import NOW, RUNNER_CLASS, UNLIMITED, headers_of, make_app, new_token
from tests.builders import PROJECT

COMMAND = ["ab", "bench.py"]


@pytest.fixture
def anonymous(store: Engine) -> Iterator[TestClient]:
    with TestClient(make_app(store, UNLIMITED)) as client:
        yield client


def person(store: Engine, name: str, device_minutes: float | None = None) -> NewToken:
    return create_token(
        store,
        name=name,
        project=PROJECT,
        scopes={Scope.RUN},
        now=NOW,
        validity=timedelta(days=1),
        device_minutes=device_minutes,
        actor="test",
    )


def request(client: TestClient, token: NewToken, **changes: Any) -> Any:
    """Ask for a job and send its tree; the answer to the request."""
    asked = {"runner_class": RUNNER_CLASS, "command": COMMAND} | changes
    headers = headers_of(token)
    answer = client.post("/v1/queue/jobs", params={"project": PROJECT}, json=asked, headers=headers)
    if answer.status_code == 200:
        job_id = answer.json()["job"]["job_id"]
        sent = client.put(f"/v1/queue/jobs/{job_id}/tree", content=b"a tree", headers=headers)
        assert sent.status_code == 200
    return answer


def carry_out(client: TestClient, store: Engine, spent_s: float) -> str | None:
    """Take the next job as a runner, and finish it; its ID."""
    headers = headers_of(new_token(store, Scope.RUNNER))
    claim_id = str(uuid.uuid4())
    free = {"runner_class": RUNNER_CLASS, "claim_id": claim_id, "runner": "gpu-1"}
    job = client.post("/v1/queue/take", json=free, headers=headers).json()["job"]
    if job is None:
        return None
    job_id = str(job["job_id"])
    ended = client.put(
        f"/v1/queue/jobs/{job_id}/result",
        params={"claim_id": claim_id, "exit_status": 0, "spent_s": spent_s},
        content=b"a result",
        headers=headers,
    )
    assert ended.json() == {"outcome": "done"}
    return job_id


def spend_two_minutes(client: TestClient, store: Engine) -> NewToken:
    """Carry out a job of somebody who has two minutes; return the token."""
    alice = person(store, "alice", device_minutes=2.0)
    first = request(client, alice)
    assert carry_out(client, store, spent_s=150.0) == first.json()["job"]["job_id"]
    return alice


def test_a_token_has_its_minutes(anonymous: TestClient, store: Engine) -> None:
    alice = spend_two_minutes(anonymous, store)

    refused = request(anonymous, alice)

    assert refused.status_code == 429
    assert "has used 2 of its 2 device minutes" in refused.text


def test_the_forecast_says_what_is_before_a_job(anonymous: TestClient, store: Engine) -> None:
    spend_two_minutes(anonymous, store)

    bob = person(store, "bob", device_minutes=60.0)
    before = request(anonymous, bob).json()["forecast"]
    after = request(anonymous, bob).json()["forecast"]
    assert before == {"expected_s": 150.0, "ahead_count": 0, "ahead_s": 0}
    assert after == {"expected_s": 150.0, "ahead_count": 1, "ahead_s": 150.0}


def test_only_an_administrator_goes_before_others(anonymous: TestClient, store: Engine) -> None:
    alice = person(store, "alice")
    request(anonymous, alice)

    refused = request(anonymous, alice, priority="high")
    urgent = request(anonymous, new_token(store), priority="high")

    assert refused.status_code == 403
    assert "needs the scope admin" in refused.text
    assert carry_out(anonymous, store, spent_s=1.0) == urgent.json()["job"]["job_id"]


def test_a_job_is_cancelled_only_by_whom_it_belongs_to(
    anonymous: TestClient, store: Engine
) -> None:
    alice = person(store, "alice")
    job_id = request(anonymous, alice).json()["job"]["job_id"]
    cancel = f"/v1/queue/jobs/{job_id}/cancel"

    refused = anonymous.post(cancel, json={}, headers=headers_of(person(store, "bob")))
    cancelled = anonymous.post(cancel, json={"reason": "a typo"}, headers=headers_of(alice))

    assert (refused.status_code, cancelled.status_code) == (403, 200)
    assert carry_out(anonymous, store, spent_s=1.0) is None


def test_each_end_of_a_job_is_audited(anonymous: TestClient, store: Engine) -> None:
    alice = person(store, "alice")
    job_id = request(anonymous, alice).json()["job"]["job_id"]
    done_id = request(anonymous, alice).json()["job"]["job_id"]
    cancel = f"/v1/queue/jobs/{job_id}/cancel"
    anonymous.post(cancel, json={"reason": "a typo"}, headers=headers_of(alice))

    assert carry_out(anonymous, store, spent_s=1.0) == done_id

    with Session(store) as session:
        entries = list_entries(session, PROJECT)
    audited = {(entry.action, entry.subject) for entry in entries}
    assert {
        ("queue.request", job_id),
        ("queue.request", done_id),
        ("queue.cancel", job_id),
        ("queue.cancelled", job_id),
        ("queue.done", done_id),
    } <= audited


@pytest.mark.parametrize(
    "changes",
    [
        {"command": ["serve"]},
        {"command": ["token", "create"]},
        {"command": ["run", "x" * 2_001]},
        {"command": ["run", *["-k"] * 100]},
        {"folder": "../elsewhere"},
        {"folder": "/etc"},
    ],
)
def test_what_a_runner_does_not_carry_out_is_refused(
    changes: dict[str, Any], anonymous: TestClient, store: Engine
) -> None:
    assert request(anonymous, person(store, "alice"), **changes).status_code == 422
