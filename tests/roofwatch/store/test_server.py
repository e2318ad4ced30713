"""A server is asked as a client should ask one that fails, redirects, talks nonsense, or has nothing new to say."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from roofwatch.collector.errors import SpoolError
from roofwatch.collector.outbox import http_client
from roofwatch.collector.outbox.http_client import ConnectionFailedError, HttpClient
from roofwatch.store.known_answers import KnownAnswers
from roofwatch.store.server import Server, server_to_read
from tests.door import TOKEN, Door, Say, answer, hang_up, hang_up_within, open_door

NAMES = TypeAdapter(list[str])


@pytest.fixture
def door() -> Iterator[Door]:
    with open_door() as door:
        door.is_read = True
        yield door


def server_of(door: Door, folder: Path | None = None) -> Server:
    return Server(HttpClient(door.url, TOKEN), None if folder is None else KnownAnswers(folder))


def page(*items: str, following: str | None = None) -> Say:
    return answer(200, json.dumps({"items": items, "next": following}).encode())


def problem(status: int, detail: str, **headers: str) -> Say:
    return answer(status, json.dumps({"detail": detail}).encode(), **headers)


def test_pages_are_asked_for_one_after_the_other_and_only_as_far_as_they_are_read(door: Door) -> None:
    door.answers = [page("a", "b", following="after=b&"), page("c"), page("x", following="more")]

    assert list(server_of(door).pages("/v1/projects", {"project": "owner/kernels"}, NAMES, size=2)) == ["a", "b", "c"]
    assert next(server_of(door).pages("/v1/projects", {}, NAMES, size=1)) == "x"

    assert [request.path for request in door.requests] == [
        "/v1/projects?project=owner%2Fkernels&limit=2",
        "/v1/projects?project=owner%2Fkernels&limit=2&cursor=after%3Db%26",
        "/v1/projects?limit=1",
    ]
    assert {request.headers["Authorization"] for request in door.requests} == {f"Bearer {TOKEN}"}


def test_what_was_answered_before_is_not_sent_again_unless_it_changed(door: Door, tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    door.answers = [
        *(answer(200, b"first", ETag='"1"'), answer(304), answer(200, b"second", ETag='"2"'), answer(304)),
        answer(200, b"of others", ETag='"2"'),
    ]

    got = [server_of(door, folder).get("/v1/runs", {"project": "p"}) for _ in range(4)]
    other = server_of(door, folder).get("/v1/runs", {"project": "q"})

    assert (got, other) == ([b"first", b"first", b"second", b"second"], b"of others")
    assert [request.headers.get("If-None-Match") for request in door.requests] == [None, '"1"', '"1"', '"2"', None]
    assert {oct(file.stat().st_mode & 0o777) for file in folder.iterdir()} == {"0o600"}


def test_a_refusal_is_told_though_the_answer_is_known(door: Door, tmp_path: Path) -> None:
    door.answers = [answer(200, b"seen", ETag='"1"'), problem(401, "this token is not known")]
    server = server_of(door, tmp_path)
    server.get("/v1/runs")

    with pytest.raises(SpoolError, match="this token is not known"):
        server.get("/v1/runs")


def test_what_is_kept_of_answers_has_an_end_and_a_damaged_one_is_asked_for_again(tmp_path: Path) -> None:
    known = KnownAnswers(tmp_path, most_bytes=60)
    for name in ("a", "b", "c", "d"):
        known.keep("https://host", name, '"1"', name.encode())

    kept = [name for name in ("a", "b", "c", "d") if known.find("https://host", name) is not None]

    assert kept[-1] == "d"
    assert len(kept) < 4
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 60
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:20])
    assert known.find("https://host", "d") is None


def test_where_nothing_can_be_kept_everything_is_asked_for(door: Door, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    door.answers = [answer(200, b"once", ETag='"1"'), answer(200, b"twice", ETag='"1"')]

    assert [server_of(door, tmp_path / "file").get("/v1/runs") for _ in range(2)] == [b"once", b"twice"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (problem(401, "this needs a token"), "HTTP 401: this needs a token; the token is read from ROOFWATCH_TOKEN"),
        (problem(403, "this token is for other/project"), "HTTP 403: this token is for other/project"),
        (problem(404, "run 1: there is none here"), "HTTP 404: run 1: there is none here"),
        (problem(404, "Not Found; the routes are in"), "knows no /v1/runs: it is another server, or older than roof"),
        (answer(404), "knows no /v1/runs: it is another server, or older than roofwatch"),
        (problem(429, "too often", Retry_After="3"), "HTTP 429: too often; after 3 s"),
        (
            answer(302, Location="https://elsewhere.example/x"),
            "sends on to https://elsewhere.example/x, where no token",
        ),
        (answer(500, TOKEN.encode()), r"HTTP 500: \*\*\*"),
        (answer(200, b"<html>"), "does not answer as roofwatch api"),
        (answer(200, b'{"items": []}'), "does not answer as roofwatch api"),
        (answer(200, b'{"items": [1], "next": null}'), "does not answer as roofwatch api"),
    ],
)
def test_what_went_wrong_is_one_line_with_the_way_out(door: Door, said: Say, reason: str) -> None:
    door.answers = [said]

    with pytest.raises(SpoolError, match=reason) as raised:
        list(server_of(door).pages("/v1/runs", {}, NAMES, size=1))

    assert str(raised.value).startswith(door.url)
    assert TOKEN not in str(raised.value)
    assert len(door.requests) == 1


def test_a_list_that_never_ends_is_given_up(door: Door) -> None:
    door.answers = [page("a", following="a"), page("b", following="a"), page("b", following="a")]

    with pytest.raises(SpoolError, match="does not answer as roofwatch api"):
        list(server_of(door).pages("/v1/projects", {}, NAMES, size=1))

    assert len(door.requests) == 2


@pytest.mark.parametrize("said", [hang_up, hang_up_within])
def test_half_an_answer_is_none(door: Door, said: Say, tmp_path: Path) -> None:
    door.answers = [said]

    with pytest.raises(ConnectionFailedError, match="see whether roofwatch api runs there, then ask again"):
        server_of(door, tmp_path / "answers").get("/v1/runs")

    assert not (tmp_path / "answers").exists()


def test_an_answer_without_an_end_is_not_held(door: Door) -> None:
    door.answers = [answer(200, bytes(3_000_000))]

    with pytest.raises(SpoolError, match="an answer of more than 1000 bytes"):
        server_of(door).get("/v1/runs", most_bytes=1_000)


def test_an_answer_comes_packed_from_another_machine_alone(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b'["a", "b"]')
    door.answers = [answer(200, b'["a"]'), answer(200, packed, Content_Encoding="gzip")]
    server = server_of(door)

    near = server.ask("/v1/questions/list_projects", b"{}", NAMES)
    monkeypatch.setattr(http_client, "_THIS_MACHINE", frozenset())
    far = server.ask("/v1/questions/list_projects", b"{}", NAMES)

    assert (near, far) == (["a"], ["a", "b"])
    assert [request.headers["Accept-Encoding"] for request in door.requests] == ["identity", "gzip"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (gzip.compress(b" " * 10**6), "an answer of more than 1000 bytes; ask for less"),
        (gzip.compress(b'["a"]')[:-9], "does not answer as roofwatch api"),
        (b"no gzip", "does not answer as roofwatch api"),
    ],
)
def test_a_packed_answer_is_whole_and_bounded(
    door: Door, monkeypatch: pytest.MonkeyPatch, body: bytes, reason: str
) -> None:
    monkeypatch.setattr("roofwatch.store.server._MAX_ANSWER_BYTES", 1_000)
    door.answers = [answer(200, body, Content_Encoding="gzip")]

    with pytest.raises(SpoolError, match=reason):
        server_of(door).ask("/v1/questions/list_projects", b"{}", NAMES)


def test_who_names_a_database_reads_it_and_who_names_only_a_server_reads_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("DATABASE_URL", "SERVER_URL"):
        monkeypatch.delenv(f"ROOFWATCH_{variable}", raising=False)
    monkeypatch.setenv("ROOFWATCH_TOKEN", TOKEN)

    def address(url: str | None = None) -> str | None:
        server = server_to_read(url)
        return None if server is None else server.line.url

    assert address() is None
    monkeypatch.setenv("ROOFWATCH_SERVER_URL", "https://set.example")
    assert address() == "https://set.example"
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://host/name")
    assert address() is None
    assert address("https://said.example") == "https://said.example"
    with pytest.raises(SpoolError, match="plain http would show records and token"):
        server_to_read("http://said.example")
