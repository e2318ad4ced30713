"""Access: every route with every scope, other projects, and invalid tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.api.limits import Limits
from roofwatch.db.access import NewToken, revoke_token
from roofwatch.db.project_access import restrict_project
from roofwatch.db.queue import request_queued_job, store_tree
from roofwatch.model.history import Scope
from roofwatch.model.queue import QueueRequest
from tests.api.conftest import (
    NOW,
    PARAMETERS,
    PEOPLES_SCOPES,
    RECORD,
    RUNNER_CLASS,
    SECOND_RUN_ID,
    UNLIMITED,
    MakeToken,
    headers_of,
    make_app,
)
from tests.builders import PROJECT, sha_of

OTHER = "other/project"
PUBLIC = {("get", "/healthz"), ("get", "/readyz")}
DESCRIPTION = ("get", "/v1/openapi.json")


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    scope: Scope
    query: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | bytes | None = None
    refusal_elsewhere: int | None = 403
    """Status for a token of another project; None if it is allowed."""
    refusal_of_strangers: int | None = None
    """Status for a token that did not make the subject, unless its scope is admin."""

    def ask(self, client: TestClient, headers: Any) -> Any:
        body: dict[str, Any] = {"content" if isinstance(self.body, bytes) else "json": self.body}
        return client.request(
            self.method, self.path.format(**PARAMETERS), params=self.query, headers=headers, **body
        )


DECISION = {"person": "Example Engineer", "reason": "because"}
OF_PROJECT = {"project": PROJECT}
CLAIM = {"runner_class": "GPU A", "claim_id": "7d1f2c58-6b0e-4d0a-9b57-3f6c1a9e2d44"}
OF_CLAIM = {"claim_id": CLAIM["claim_id"]}
FREE_RUNNER = CLAIM | {"runner": "gpu-1"}
ACCEPTANCE = {
    "pull_request": "#12",
    "comment_id": 7,
    "head_sha": sha_of(4),
    "person": "maintainer",
    "reason": "needed for accuracy",
    "accepted_at": "2026-03-01T12:00:00Z",
    "most": {"0123abcd": 0.25},
    "grain": "finding",
    "wrong_results": False,
}
ROUTES = [
    Route("post", "/v1/records", Scope.INGEST, body=RECORD.model_dump(mode="json")),
    Route("get", "/v1/runs/{run_id}/artefacts", Scope.READ, refusal_elsewhere=404),
    Route(
        "put",
        "/v1/runs/{run_id}/artefacts/{sha256}",
        Scope.INGEST,
        body=b"a trace",
        refusal_elsewhere=404,
    ),
    Route("get", "/v1/runs/{run_id}/artefacts/{sha256}", Scope.READ, refusal_elsewhere=404),
    Route("get", "/v1/projects", Scope.READ, refusal_elsewhere=None),
    Route("get", "/v1/runs", Scope.READ, OF_PROJECT),
    Route("get", "/v1/runs/{run_id}", Scope.READ, refusal_elsewhere=404),
    Route("get", "/v1/runs/{run_id}/status", Scope.READ, refusal_elsewhere=404),
    Route("get", "/v1/runs/{run_id}/record", Scope.READ, refusal_elsewhere=404),
    Route("post", "/v1/runs/{run_id}/release", Scope.ADMIN, body=DECISION, refusal_elsewhere=404),
    Route("get", "/v1/series", Scope.READ, OF_PROJECT),
    Route("get", "/v1/series/points", Scope.READ, OF_PROJECT),
    Route("get", "/v1/series/metrics", Scope.READ, OF_PROJECT),
    Route("get", "/v1/comparison", Scope.READ, OF_PROJECT | {"base": sha_of(0), "head": sha_of(1)}),
    Route(
        "get",
        "/v1/comparison/runs",
        Scope.READ,
        OF_PROJECT | {"base": sha_of(0), "head": sha_of(1)},
    ),
    Route("get", "/v1/regressions", Scope.READ, OF_PROJECT),
    Route(
        "post",
        "/v1/regressions/{regression}/triage",
        Scope.TRIAGE,
        OF_PROJECT,
        DECISION | {"decision": "expected"},
    ),
    Route("post", "/v1/questions/{question}", Scope.READ, body=OF_PROJECT),
    Route("get", "/v1/agenda", Scope.READ, OF_PROJECT),
    Route("post", "/v1/agenda/take", Scope.INGEST, OF_PROJECT, CLAIM | {"jobs": []}),
    Route(
        "post",
        "/v1/agenda/finish",
        Scope.INGEST,
        OF_PROJECT,
        CLAIM | {"key": "new", "spent_s": 1.0},
    ),
    Route(
        "post",
        "/v1/queue/jobs",
        Scope.RUN,
        OF_PROJECT,
        {"runner_class": "GPU A", "command": ["ab", "bench.py"]},
    ),
    Route("get", "/v1/queue/jobs", Scope.RUN, OF_PROJECT),
    Route("get", "/v1/queue/jobs/{job_id}", Scope.RUN, refusal_elsewhere=404),
    Route(
        "put",
        "/v1/queue/jobs/{job_id}/tree",
        Scope.RUN,
        body=b"a bundle",
        refusal_elsewhere=404,
        refusal_of_strangers=403,
    ),
    Route("get", "/v1/queue/jobs/{job_id}/result", Scope.RUN, refusal_elsewhere=404),
    Route(
        "post",
        "/v1/queue/jobs/{job_id}/cancel",
        Scope.RUN,
        body={},
        refusal_elsewhere=404,
        refusal_of_strangers=403,
    ),
    Route("post", "/v1/queue/take", Scope.RUNNER, body=FREE_RUNNER, refusal_elsewhere=None),
    Route(
        "get",
        "/v1/queue/jobs/{job_id}/tree",
        Scope.RUNNER,
        OF_CLAIM,
        refusal_elsewhere=404,
    ),
    Route(
        "post",
        "/v1/queue/jobs/{job_id}/progress",
        Scope.RUNNER,
        body=OF_CLAIM | {"lines": ["block 1"]},
        refusal_elsewhere=404,
    ),
    Route(
        "post",
        "/v1/queue/jobs/{job_id}/release",
        Scope.RUNNER,
        body=OF_CLAIM,
        refusal_elsewhere=404,
    ),
    Route(
        "put",
        "/v1/queue/jobs/{job_id}/result",
        Scope.RUNNER,
        OF_CLAIM | {"exit_status": "0", "spent_s": "1"},
        body=b"a result",
        refusal_elsewhere=404,
    ),
    Route("get", "/v1/acceptances", Scope.READ, OF_PROJECT),
    Route("post", "/v1/acceptances", Scope.TRIAGE, OF_PROJECT, ACCEPTANCE),
    Route("get", "/v1/audit", Scope.ADMIN, OF_PROJECT),
    Route("get", "/metrics", Scope.READ, refusal_elsewhere=None),
]


@pytest.fixture
def anonymous(filled: Engine) -> TestClient:
    return TestClient(make_app(filled, exports_series=True))


def routes_of(app: Any) -> Iterator[Any]:
    """All routes, including those outside the OpenAPI document."""
    for route in app.routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router)
        else:
            yield route


def described_routes(app: FastAPI) -> set[tuple[str, str]]:
    """Method and path of each route in the description."""
    return {
        (method, path) for path, methods in app.openapi()["paths"].items() for method in methods
    }


def test_every_route_is_tested(filled: Engine) -> None:
    tested = {(route.method, route.path) for route in ROUTES} | PUBLIC

    assert tested == described_routes(make_app(filled))


def test_every_route_is_documented(filled: Engine) -> None:
    app = make_app(filled)
    served = {
        (method.lower(), route.path)
        for route in routes_of(app)
        for method in route.methods
        if method != "HEAD"
    }

    assert served == described_routes(app) | {DESCRIPTION}


def test_scopes_open_their_routes(anonymous: TestClient, make_token: MakeToken) -> None:
    for scope in Scope:
        headers = headers_of(make_token(scope))
        for route in ROUTES:
            answer = route.ask(anonymous, headers)

            # a runner has a class, which only its own tokens name
            opening = {route.scope} if route.scope is Scope.RUNNER else {route.scope, Scope.ADMIN}
            if scope in opening and route.refusal_of_strangers and scope is not Scope.ADMIN:
                assert answer.status_code == route.refusal_of_strangers, (route, answer.text)
            elif scope in opening:
                assert answer.status_code < 300 or answer.status_code == 409, (
                    route,
                    scope,
                    answer.text,
                )
            else:
                assert answer.status_code == 403, (route, scope, answer.text)
                assert f'scope="{route.scope}"' in answer.headers["WWW-Authenticate"]


def test_token_of_another_project_is_refused(anonymous: TestClient, make_token: MakeToken) -> None:
    persons = headers_of(make_token(project=OTHER))
    runners = headers_of(make_token(Scope.RUNNER, project=OTHER))
    for route in ROUTES:
        answer = route.ask(anonymous, runners if route.scope is Scope.RUNNER else persons)

        assert answer.status_code == (route.refusal_elsewhere or 200), route
        assert PROJECT not in answer.text, route
        assert str(SECOND_RUN_ID) not in answer.text, route


def test_a_restricted_project_needs_a_token_of_its_own(
    filled: Engine, anonymous: TestClient, make_token: MakeToken
) -> None:
    every_scope_but_admin = [scope for scope in PEOPLES_SCOPES if scope is not Scope.ADMIN]
    of_all = headers_of(make_token(*every_scope_but_admin, project=None))
    reading = [route for route in ROUTES if route.scope in (Scope.READ, Scope.TRIAGE)]
    assert all(route.ask(anonymous, of_all).status_code < 300 for route in reading)

    # a list of readers names people, never tokens
    restrict_project(filled, PROJECT, ["@example.com"], actor="a test")

    for route in reading:
        answer = route.ask(anonymous, of_all)
        assert answer.status_code == (route.refusal_elsewhere or 200), route
        assert PROJECT not in answer.text, route
        assert str(SECOND_RUN_ID) not in answer.text, route
    for allowed in (make_token(*every_scope_but_admin), make_token(Scope.ADMIN, project=None)):
        for route in reading:
            answer = route.ask(anonymous, headers_of(allowed))
            assert answer.status_code < 300 or answer.status_code == 409, route
    sent = ROUTES[0].ask(anonymous, of_all)
    assert sent.status_code < 300, "sending is not reading"


def test_a_runner_of_all_projects_takes_no_job_of_a_restricted_one(
    filled: Engine, anonymous: TestClient, make_token: MakeToken
) -> None:
    queue_request = QueueRequest(runner_class=RUNNER_CLASS, command=("ab", "bench.py"))
    job_id = request_queued_job(
        filled, PROJECT, queue_request, actor="token a", device_minutes=None
    )
    store_tree(filled, job_id, b"a tree")
    restrict_project(filled, PROJECT, ["@example.com"], actor="a test")

    taken_ids = []
    for project in (None, PROJECT):
        token = make_token(Scope.RUNNER, project=project)
        answer = anonymous.post("/v1/queue/take", json=FREE_RUNNER, headers=headers_of(token))
        job = answer.json()["job"]
        taken_ids.append(job and job["job_id"])

    assert taken_ids == [None, str(job_id)]


def test_all_invalid_tokens_get_the_same_refusal(filled: Engine, make_token: MakeToken) -> None:
    anonymous = TestClient(make_app(filled, UNLIMITED))
    good, revoked, expired = make_token(), make_token(), make_token(days=1e-9)
    revoke_token(filled, revoked.token.token_id, now=NOW, actor="test")
    later = TestClient(make_app(filled, UNLIMITED, now=lambda: NOW + timedelta(seconds=1)))
    other_secret = good.text[:-1] + ("A" if good.text[-1] != "A" else "B")
    other_id = f"rw_{'0' * 12}_{good.text[16:]}"
    unknown = [revoked.text, other_secret, other_id, good.text + "x", "rw_", "garbage", "e.y.J"]
    no_bearer: list[dict[str, str]] = [
        {},
        {"Authorization": f"Basic {good.text}"},
        {"Authorization": good.text},
    ]

    for route in ROUTES:
        refused = [route.ask(anonymous, headers_of(text)) for text in unknown]
        refused.append(route.ask(later, headers_of(expired)))
        refused.append(route.ask(anonymous, {b"Authorization": b"Bearer \xff\xfe"}))
        unnamed = [route.ask(anonymous, headers) for headers in no_bearer]

        assert {answer.status_code for answer in refused + unnamed} == {401}, route
        assert len({answer.json()["detail"] for answer in refused}) == 1
        assert all(
            'error="invalid_token"' in answer.headers["WWW-Authenticate"] for answer in refused
        )
        assert all(
            answer.headers["WWW-Authenticate"] == 'Bearer realm="roofwatch"' for answer in unnamed
        )


def test_rate_limit_per_token(filled: Engine, make_token: MakeToken) -> None:
    busy, other = headers_of(make_token(Scope.READ)), headers_of(make_token(Scope.READ))
    client = TestClient(make_app(filled, Limits(requests="2 per 1 hour")))

    answers = [client.get("/v1/projects", headers=busy) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 3_590 < int(answers[-1].headers["Retry-After"]) <= 3_600
    assert client.get("/v1/projects", headers=other).status_code == 200


def test_rate_limit_of_wrong_tokens_per_address(filled: Engine, make_token: MakeToken) -> None:
    app = make_app(filled, Limits(failures="3 per 1 hour"))
    here, elsewhere = (TestClient(app, client=(host, 1)) for host in ("192.0.2.1", "192.0.2.2"))
    right = make_token(Scope.READ).text

    def ask(text: str, client: TestClient = here) -> Any:
        return client.get(
            "/v1/projects", headers=headers_of(text) | {"X-Forwarded-For": "192.0.2.9"}
        )

    wrong = right[:-1] + ("A" if right[-1] != "A" else "B")
    answers = [ask(wrong) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert "too many wrong tokens" in answers[-1].json()["detail"]
    assert ask(right).status_code == 200
    assert ask(wrong, elsewhere).status_code == 401
    assert here.get("/v1/projects").status_code == 401


@pytest.fixture
def log_of_requests(
    anonymous: TestClient, make_token: MakeToken, caplog: pytest.LogCaptureFixture
) -> tuple[NewToken, list[str]]:
    """A token, and what was logged of three requests with it, two of them with forged lines."""
    token = make_token()
    with caplog.at_level("DEBUG"):
        anonymous.get(
            "/v1/runs",
            params={"project": "a\nforged line", "token": token.text},
            headers=headers_of(token),
        )
        anonymous.get(f"/v1/{token.text}%0aforged", headers=headers_of(token))
        anonymous.get("/v1/projects", headers=headers_of(token.text + "x"))

    lines = [record.getMessage() for record in caplog.records if record.name == "roofwatch.api"]
    assert len(lines) == 3
    return token, lines


def test_log_names_tokens_without_their_secret(
    log_of_requests: tuple[NewToken, list[str]],
) -> None:
    token, lines = log_of_requests

    assert f"token {token.token.token_id}" in lines[0]
    assert all(token.text[16:] not in line for line in lines)


def test_log_has_no_text_of_clients(log_of_requests: tuple[NewToken, list[str]]) -> None:
    _, lines = log_of_requests

    assert all("forged" not in line and "\n" not in line for line in lines)
