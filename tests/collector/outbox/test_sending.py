"""The sender against a real server that fails, hangs up, redirects, answers twice and talks
nonsense.
"""

from datetime import timedelta

import pytest

from roofwatch.collector.outbox.http_client import HttpSender
from roofwatch.collector.outbox.spool import Acknowledged, Refused, Unavailable
from roofwatch.model.errors import SpoolError
from roofwatch.model.record import RunRecord
from tests.builders import NOON, make_record
from tests.http_server import TOKEN, FakeServer, acknowledge, answer


class NewerRecord(RunRecord):
    """Of a minor version with one field more."""

    future: str | None = None


@pytest.mark.parametrize("future", [None, "said"])
def test_an_older_server_acknowledges_records_of_a_newer_runner(
    server: FakeServer, future: str | None
) -> None:
    record = NewerRecord.model_validate(
        make_record().model_dump() | {"schema_version": "1.99", "future": future}
    )
    server.answers = [acknowledge()]  # as the server finds it, which does not know the field

    assert server.sender().send(record) == Acknowledged(record.run_id, record.content_hash)


@pytest.mark.parametrize(
    ("retry_after", "expected_s"),
    [
        ("12", 12.0),
        (f"{NOON + timedelta(minutes=2):%a, %d %b %Y %H:%M:%S} GMT", 120.0),
        (f"{NOON - timedelta(minutes=2):%a, %d %b %Y %H:%M:%S} GMT", 0.0),
        ("soon", None),
    ],
)
def test_retry_after_may_be_seconds_or_a_date(
    server: FakeServer, retry_after: str, expected_s: float | None
) -> None:
    server.answers = [answer(429, Retry_After=retry_after)]
    found = server.sender().send(make_record())
    assert isinstance(found, Unavailable)
    assert found.retry_after_s == expected_s


def test_a_redirect_is_not_followed(server: FakeServer) -> None:
    server.answers = [answer(308, Location=f"{server.url}/elsewhere")]
    with pytest.raises(SpoolError, match=r"which redirects to http.*/elsewhere"):
        server.sender().send(make_record())
    assert len(server.requests) == 1


def test_the_reason_is_one_harmless_line_without_the_token_even_if_the_server_repeats_it(
    server: FakeServer,
) -> None:
    sender = server.sender()
    server.answers = [
        answer(status, f"bad\ntoken\x1b[31m {TOKEN}".encode()) for status in (422, 403, 401)
    ]

    refused = sender.send(make_record())
    stays = sender.send(make_record())
    with pytest.raises(SpoolError) as caught:
        sender.send(make_record())

    assert refused == Refused("HTTP 422: bad token [31m ***")
    assert TOKEN not in f"{stays} {caught.value} {sender}"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.org", "use https"),
        ("file:///etc/passwd", "must be https"),
        ("example.org", "must be https"),
        ("https://[::1", "must be https"),
        ("https://example.org/a b", "must be https"),
        ("https://me:hunter2@example.org", "no credentials"),
        ("https://example.org/?token=hunter2", "no credentials"),
    ],
)
def test_an_unsafe_url_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(SpoolError) as caught:
        HttpSender(url)
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_token_that_would_end_the_header_is_refused() -> None:
    with pytest.raises(SpoolError, match="ROOFWATCH_TOKEN is no token"):
        HttpSender("https://example.org", "token\r\nX-Other: 1")


def test_plain_http_to_this_machine_uses_no_proxy(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.answers = [acknowledge()]
    assert isinstance(server.sender().send(make_record()), Acknowledged)
