"""`roofwatch push` as a user runs it, against a real server."""

from pathlib import Path

import pytest

from roofwatch.collector.outbox.spool import Spool
from tests.builders import make_record
from tests.http_server import TOKEN, FakeServer, acknowledge, answer
from tests.roofwatch.command import Done, roofwatch


def push(folder: Path, *arguments: str | Path, **environment: str) -> Done:
    return roofwatch(
        *("push", *arguments), cwd=folder, ROOFWATCH_DATA_DIR=str(folder / "data"), ROOFWATCH_TOKEN=TOKEN, **environment
    )


def test_sent_records_leave_the_spool(server: FakeServer, tmp_path: Path) -> None:
    for number in range(2):
        make_record(number).write(tmp_path / "records" / f"{number}.json.gz")
    server.answers = [acknowledge(), acknowledge(409)]

    done = push(tmp_path, "records", "--url", server.url)

    assert done.status == 0, done.error
    assert "2 record(s) sent and acknowledged" in done.output
    assert [request.headers["Authorization"] for request in server.requests] == [f"Bearer {TOKEN}"] * 2
    assert Spool(tmp_path / "data" / "spool").waiting == []
    assert len(list((tmp_path / "records").iterdir())) == 2


def test_the_next_push_sends_unacknowledged_records(server: FakeServer, tmp_path: Path) -> None:
    make_record().write(tmp_path / "record.json")
    server.answers = [answer(503, b"maintenance", Retry_After="86400"), acknowledge()]

    first = push(tmp_path, "record.json", ROOFWATCH_SERVER_URL=server.url)
    assert first.status == 2
    assert "kept for later" in first.output
    assert "HTTP 503: maintenance" in first.output

    second = push(tmp_path, "--json", ROOFWATCH_SERVER_URL=server.url)
    assert second.status == 0
    assert (len(second.parsed["sent"]), second.parsed["left"]) == (1, [])


def test_a_refused_record_is_named_with_the_reason_and_where_it_is(server: FakeServer, tmp_path: Path) -> None:
    make_record().write(tmp_path / "record.json")
    server.answers = [answer(422, b"no such project")]
    done = push(tmp_path, "record.json", "--url", server.url, "--spool", tmp_path / "elsewhere")
    assert done.status == 1
    assert f"refused: {tmp_path / 'elsewhere' / 'refused'}" in done.output
    assert "HTTP 422: no such project" in done.output


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ((), "no server: use --url"),
        (("--url", "http://roofwatch.example"), "plain http would expose records and token"),
    ],
)
def test_nothing_is_sent_to_an_untrusted_server(tmp_path: Path, url: tuple[str, ...], reason: str) -> None:
    done = push(tmp_path, *url)
    assert done.status == 2
    assert reason in done.error


def test_an_unknown_token_is_reported_without_showing_it(server: FakeServer, tmp_path: Path) -> None:
    make_record().write(tmp_path / "record.json")
    server.answers = [answer(401, f"unknown token {TOKEN}".encode())]
    done = push(tmp_path, "record.json", "--url", server.url)
    assert done.status == 2
    assert "accepts no records from here: HTTP 401: unknown token ***" in done.error
    assert TOKEN not in done.output + done.error
    assert len(Spool(tmp_path / "data" / "spool").waiting) == 1
