"""OIDC tokens of GitHub Actions, with real RSA keys and a local issuer."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from jwt.algorithms import RSAAlgorithm
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.api.auth import Workflows
from roofwatch.db.access import distrust_repository, trust_repository
from tests.api.conftest import headers_of, make_app
from tests.builders import PROJECT, make_record
from tests.http_server import Answer, Request, serve

AUDIENCE = "https://roofwatch.example"
REPOSITORY = "example/kernels"
MAIN = "refs/heads/main"


@dataclass
class Issuer:
    url: str = ""
    keys: dict[str, RSAPrivateKey] = field(default_factory=dict)
    fetches: int = 0

    def add_key(self, kid: str) -> None:
        self.keys[kid] = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    def to_jwks(self) -> bytes:
        public = [
            RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
            | {"kid": kid, "use": "sig", "alg": "RS256"}
            for kid, key in self.keys.items()
        ]
        return json.dumps({"keys": public}).encode()

    def token(
        self, kid: str = "first", *, key: Any = None, algorithm: str = "RS256", **claims: Any
    ) -> str:
        """A token of a push to main; a claim of None is left out."""
        now = datetime.now(UTC)
        usual = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": f"repo:{REPOSITORY}:ref:{MAIN}",
            "iat": now,
            "nbf": now,
            "exp": now + timedelta(minutes=5),
            "repository": REPOSITORY,
            "repository_id": "4711",
            "ref": MAIN,
            "event_name": "push",
        }
        chosen = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(
            chosen,
            self.keys[kid] if key is None else key,
            algorithm=algorithm,
            headers={"kid": kid},
        )


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.add_key("first")

    def answer(request: Request) -> Answer:
        issuer.fetches += 1
        return Answer(body=issuer.to_jwks() if request.path == "/.well-known/jwks" else b"{}")

    with serve(answer) as issuer.url:
        yield issuer


@pytest.fixture
def client(store: Engine, issuer: Issuer) -> TestClient:
    trust_repository(store, REPOSITORY, PROJECT, [MAIN, "refs/heads/release/*"], actor="test")
    return TestClient(make_app(store, audience=AUDIENCE, issuer=issuer.url))


def send(client: TestClient, token: str, project: str = PROJECT) -> Any:
    return client.post(
        "/v1/records", content=make_record(project=project).to_json(), headers=headers_of(token)
    )


@pytest.mark.parametrize(
    ("claims", "is_trusted"),
    [
        ({"ref": MAIN}, True),
        ({"ref": "refs/heads/release/2.1"}, True),
        ({"event_name": "pull_request", "ref": "refs/pull/7/merge"}, False),
        ({"event_name": "pull_request_target", "ref": MAIN}, False),
        ({"ref": "refs/heads/anything"}, False),
        ({"ref": "refs/tags/refs/heads/main"}, False),
    ],
)
def test_only_pushes_to_trusted_refs_are_not_quarantined(
    client: TestClient, issuer: Issuer, claims: dict[str, str], *, is_trusted: bool
) -> None:
    answer = send(client, issuer.token(**claims))

    assert (answer.status_code, answer.json()["is_quarantined"]) == (201, not is_trusted)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://elsewhere.example"},
        {"iss": "https://token.actions.githubusercontent.com"},
        {"exp": datetime(2020, 1, 1, tzinfo=UTC)},
        {"nbf": datetime(2999, 1, 1, tzinfo=UTC)},
        {"repository": "example/other", "repository_id": "1"},
        {"repository": ["example/kernels"]},
        {"repository_id": "\ud800"},
        {"ref": f"{MAIN}\nforged"},
    ],
)
def test_wrong_claims_are_refused(
    client: TestClient, issuer: Issuer, claims: dict[str, Any]
) -> None:
    assert send(client, issuer.token(**claims)).status_code == 401


def test_forged_tokens_are_refused(client: TestClient, issuer: Issuer) -> None:
    stranger = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    good = issuer.token()
    head, _, signature = good.split(".")
    public = issuer.to_jwks().decode()
    forged = [
        issuer.token(key=stranger),
        issuer.token(key=public * 2, algorithm="HS256"),
        issuer.token(key="", algorithm="none"),
        f"{head}.{issuer.token(repository='example/other').split('.')[1]}.{signature}",
        f"{good[:-4]}AAAA",
        "ey.ey.ey",
        f"ey{'a' * 20_000}.a.a",
    ]

    assert [send(client, token).status_code for token in forged] == [401] * len(forged)


def test_workflow_may_only_send_records(client: TestClient, issuer: Issuer) -> None:
    headers = headers_of(issuer.token())

    assert client.get("/v1/projects", headers=headers).status_code == 403
    assert send(client, issuer.token(), project="other/project").status_code == 403


def test_repository_is_trusted_by_id_until_removed(
    store: Engine, client: TestClient, issuer: Issuer
) -> None:
    trust_repository(store, "4711", "by/number", [MAIN], actor="test")
    assert send(client, issuer.token(repository="renamed/kernels"), "by/number").status_code == 201

    distrust_repository(store, "4711", "by/number", actor="test")
    assert send(client, issuer.token(repository="renamed/kernels"), "by/number").status_code == 401


def test_keys_are_cached(client: TestClient, issuer: Issuer) -> None:
    before = issuer.fetches
    for _ in range(5):
        assert send(client, issuer.token()).status_code == 201
    assert issuer.fetches == before + 1

    unknown = issuer.token(key=issuer.keys["first"], kid="second")
    assert [send(client, unknown).status_code for _ in range(5)] == [401] * 5
    assert issuer.fetches == before + 1


def test_unreachable_issuer_is_reported(store: Engine, issuer: Issuer) -> None:
    trust_repository(store, REPOSITORY, PROJECT, [MAIN], actor="test")
    nobody = "http://127.0.0.1:1"
    client = TestClient(make_app(store, audience=AUDIENCE, issuer=nobody))

    answer = send(client, issuer.token(iss=nobody))

    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0


def test_forged_tokens_do_not_wait_for_an_issuer_that_hangs(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roofwatch.api.issuer._READ_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # accepts, and never answers
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        stranger = Issuer(url)
        stranger.add_key("forged")
        client = TestClient(make_app(store, audience=AUDIENCE, issuer=url))
        tokens = [
            stranger.token(key=stranger.keys["forged"], kid=f"forged-{number}")
            for number in range(20)
        ]
        statuses = [send(client, token).status_code for token in tokens]
        hanging.setblocking(False)
        connection, _ = hanging.accept()
        connection.close()
        with pytest.raises(BlockingIOError):
            hanging.accept()

    assert statuses == [503] * 20


def test_an_issuer_that_sends_a_byte_at_a_time_is_given_up(
    store: Engine, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roofwatch.api.issuer._DEADLINE_S", 0.05)
    token = issuer.token()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        stopping = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                # until the client closes
                with contextlib.suppress(OSError):
                    while not stopping.wait(0.01):
                        connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            answer = TestClient(make_app(store, audience=AUDIENCE, issuer=url)).post(
                "/v1/records",
                content=make_record().to_json(),
                headers=headers_of(token.replace(issuer.url, url)),
            )
        finally:
            stopping.set()
            thread.join()

    assert answer.status_code in {401, 503}


def test_without_an_audience_no_workflow_is_authenticated(store: Engine, issuer: Issuer) -> None:
    trust_repository(store, REPOSITORY, PROJECT, [MAIN], actor="test")

    assert send(TestClient(make_app(store)), issuer.token()).status_code == 401


def test_an_issuer_without_https_is_refused(store: Engine) -> None:
    with pytest.raises(ValueError, match="must be https"):
        Workflows(store, AUDIENCE, "http://issuer.example")
