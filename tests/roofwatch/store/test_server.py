"""The client of the HTTP API: pages, errors, redirects and truncated answers."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from roofwatch.collector.outbox.http_client import ConnectionFailedError, HttpClient
from roofwatch.model.errors import SpoolError
from roofwatch.store.server import Server, server_to_read
from tests.http_server import TOKEN, Answers, FakeServer, answer, hang_up, hang_up_within

NAMES = TypeAdapter(list[str])


def server_of(server: FakeServer) -> Server:
    return Server(HttpClient(server.url, TOKEN))


def page(*items: str, following: str | None = None) -> Answers:
    return answer(200, json.dumps({"items": items, "next": following}).encode())


def problem(status: int, detail: str, **headers: str) -> Answers:
    return answer(status, json.dumps({"detail": detail}).encode(), **headers)


def test_pages_are_requested_when_needed(server: FakeServer) -> None:
    server.answers = [page("a", "b", following="after=b&"), page("c"), page("x", following="more")]

    assert list(
        server_of(server).pages("/v1/projects", {"project": "owner/kernels"}, NAMES, size=2)
    ) == ["a", "b", "c"]
    assert next(server_of(server).pages("/v1/projects", {}, NAMES, size=1)) == "x"

    asked = {"project": "owner/kernels", "limit": "2"}
    assert [request.query for request in server.requests] == [
        asked,
        asked | {"cursor": "after=b&"},
        {"limit": "1"},
    ]
    assert {request.headers["Authorization"] for request in server.requests} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            problem(401, "this needs a token"),
            "HTTP 401: this needs a token; the token is read from ROOFWATCH_TOKEN",
        ),
        (
            problem(403, "this token is for other/project"),
            "HTTP 403: this token is for other/project",
        ),
        (problem(404, "run 1: there is none here"), "HTTP 404: run 1: there is none here"),
        (
            problem(404, "Not Found; the routes are in"),
            "knows no /v1/runs: another server, or older than roof",
        ),
        (answer(404), "knows no /v1/runs: another server, or older than roofwatch"),
        (problem(429, "too often", Retry_After="3"), "HTTP 429: too often; after 3 s"),
        (
            answer(302, Location="https://elsewhere.example/x"),
            "redirects to https://elsewhere.example/x; the token",
        ),
        (answer(500, TOKEN.encode()), r"HTTP 500: \*\*\*"),
        (answer(200, b"<html>"), "does not answer as roofwatch api"),
        (answer(200, b'{"items": []}'), "does not answer as roofwatch api"),
        (answer(200, b'{"items": [1], "next": null}'), "does not answer as roofwatch api"),
    ],
)
def test_errors_are_one_line_with_advice(server: FakeServer, said: Answers, reason: str) -> None:
    server.answers = [said]

    with pytest.raises(SpoolError, match=reason) as raised:
        list(server_of(server).pages("/v1/runs", {}, NAMES, size=1))

    assert str(raised.value).startswith(server.url)
    assert TOKEN not in str(raised.value)
    assert len(server.requests) == 1


def test_an_endless_list_is_an_error(server: FakeServer) -> None:
    server.answers = [page("a", following="a"), page("b", following="a"), page("b", following="a")]

    with pytest.raises(SpoolError, match="does not answer as roofwatch api"):
        list(server_of(server).pages("/v1/projects", {}, NAMES, size=1))

    assert len(server.requests) == 2


@pytest.mark.parametrize("said", [hang_up, hang_up_within])
def test_a_truncated_answer_is_an_error(server: FakeServer, said: Answers) -> None:
    server.answers = [said]

    with pytest.raises(
        ConnectionFailedError, match="check that roofwatch api runs there, then try again"
    ):
        server_of(server).get("/v1/runs")


def test_a_configured_database_precedes_a_configured_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("DATABASE_URL", "SERVER_URL"):
        monkeypatch.delenv(f"ROOFWATCH_{variable}", raising=False)
    monkeypatch.setenv("ROOFWATCH_TOKEN", TOKEN)

    def address(url: str | None = None) -> str | None:
        server = server_to_read(url)
        return None if server is None else server.url

    assert address() is None
    monkeypatch.setenv("ROOFWATCH_SERVER_URL", "https://set.example")
    assert address() == "https://set.example"
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://host/name")
    assert address() is None
    assert address("https://said.example") == "https://said.example"
    with pytest.raises(SpoolError, match="plain http would expose records and token"):
        server_to_read("http://said.example")
