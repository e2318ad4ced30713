"""The server on real sockets, with the real client and an unavailable database."""

from __future__ import annotations

import random
import socket
import urllib.request
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.orm import Session

from roofwatch.api.limits import Limits
from roofwatch.collector.outbox.http_client import HttpSender
from roofwatch.collector.outbox.spool import Spool
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.runs import list_runs
from roofwatch.model.errors import SpoolError
from roofwatch.model.history import Scope
from roofwatch.model.measurement import Block
from tests.api.chaos import VICTIMS, run_chaos
from tests.api.conftest import MakeToken, served, token_of_today
from tests.builders import NOON, PROJECT, make_measurement, make_record
from tests.databases import allow_connections
from tests.roofwatch.command import roofwatch


def test_token_commands(database_url: URL, tmp_path: Path) -> None:
    url = database_url.render_as_string(hide_password=False)

    def token(*arguments: str) -> tuple[int, str, str]:
        done = roofwatch("token", *arguments, cwd=tmp_path, ROOFWATCH_DATABASE_URL=url)
        return done.status, done.output, done.error

    status, made, _ = token(
        "create",
        "for [red]a runner[/red]",
        "--all-projects",
        "--scope",
        "read",
        "--scope",
        "ingest",
    )
    text = made.split()[0]
    token_id = text.split("_")[1]
    assert status == 0
    assert token("trust", "example/kernels", "--project", PROJECT)[0] == 0
    listed = token("list")[1]
    assert token_id in listed
    assert "for [red]a runner[/red]" in listed
    assert "ingest read" in listed
    assert "refs/heads/*" in listed
    assert text[16:] not in listed
    assert token("revoke", token_id)[0] == 0
    assert "revoked" in token("list")[1]


def test_record_stays_in_the_spool_while_the_database_is_down(
    database_url: URL, make_token: MakeToken, tmp_path: Path
) -> None:
    token = make_token(Scope.INGEST).text
    spool, record = Spool(tmp_path / "spool"), make_record()
    spool.submit(record)
    engine = create_engine(database_url, pool_pre_ping=True)
    with served(engine) as (host, port):
        sender = HttpSender(f"http://{host}:{port}", token)
        allow_connections(database_url, are_allowed=False)
        down = spool.deliver(sender, attempts=1)
        ready_while_down = status_of(f"{sender.url}/readyz")
        alive_while_down = status_of(f"{sender.url}/healthz")
        allow_connections(database_url, are_allowed=True)
        up = spool.deliver(sender, attempts=1)
        ready_again = status_of(f"{sender.url}/readyz")

    assert (len(down.left), len(down.sent), len(down.refused)) == (1, 0, 0)
    assert "HTTP 503" in down.left[0][1]
    assert (ready_while_down, alive_while_down, ready_again) == (
        (503, "10"),
        (200, None),
        (200, None),
    )
    assert len(up.sent) == 1
    with Session(engine) as session:
        assert [run.run_id for run in list_runs(session, PROJECT)] == [str(record.run_id)]
    engine.dispose()


def test_a_record_above_the_limit_is_put_aside_with_the_reason(
    store: Engine, make_token: MakeToken, tmp_path: Path
) -> None:
    token = token_of_today(store, Scope.INGEST)
    spool = Spool(tmp_path / "spool")
    # more than the buffers of a socket hold
    draw = random.Random(0)
    noise = tuple(draw.random() + 1.0 for _ in range(1_000_000))
    block = Block(started_at=NOON, samples_ns=noise)
    spool.submit(make_record(measurements=[make_measurement(blocks=[block])]))
    with served(store, Limits(body_bytes=100_000)) as (host, port):
        delivery = spool.deliver(HttpSender(f"http://{host}:{port}", token), attempts=2)

    ((name, reason),) = delivery.refused
    assert spool.waiting == []
    assert "HTTP 413" in reason
    assert "a body has at most 100000 bytes here; compress it, or measure fewer cases" in reason
    assert (tmp_path / "spool" / "refused" / name).exists()


def status_of(url: str) -> tuple[int, str | None]:
    """Status and Retry-After."""
    try:
        with urllib.request.urlopen(url) as response:  # noqa: S310  our own address
            return response.status, response.headers.get("Retry-After")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("Retry-After")


IMPATIENT = Limits(head_s=0.05, silence_s=0.05, body_s=0.2)


def test_incomplete_head_times_out(store: Engine) -> None:
    with served(store, IMPATIENT) as address, socket.create_connection(address) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        answer = line.recv(100)

    assert answer == b""


def test_incomplete_body_times_out(store: Engine, make_token: MakeToken) -> None:
    head = (
        f"POST /v1/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        f"{make_token(Scope.INGEST).text}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    with served(store, IMPATIENT) as address, socket.create_connection(address) as line:
        line.sendall(head.encode())
        with line.makefile("rb") as answer:
            whole = answer.read()

    assert whole.startswith(b"HTTP/1.1 408")
    assert b"urn:roofwatch:problem:timed-out" in whole


def test_request_smuggling_is_refused(store: Engine, make_token: MakeToken) -> None:
    sent = (
        f"POST /v1/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        f"{make_token(Scope.INGEST).text}\r\n"
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    with served(store) as address, socket.create_connection(address) as line:
        line.sendall(sent.encode())
        with line.makefile("rb") as answer:
            whole = answer.read()

    assert whole.startswith(b"HTTP/1.1 400")
    assert b"exclude each other" in whole
    assert whole.count(b"HTTP/1.1") == 1


def test_refused_project_does_not_block_others(
    store: Engine, make_token: MakeToken, tmp_path: Path
) -> None:
    spool = Spool(tmp_path)
    ours = [spool.submit(make_record(number)).name for number in range(2)]
    theirs = [
        spool.submit(make_record(number, project="their/project")).name for number in range(2)
    ]
    ingests = make_token(Scope.INGEST)
    with served(store) as (host, port):
        done = roofwatch(
            "push",
            "--spool",
            str(tmp_path),
            "--url",
            f"http://{host}:{port}",
            ROOFWATCH_TOKEN=ingests.text,
        )
        only_reads = make_token(Scope.READ, project="their/project")
        with pytest.raises(
            SpoolError, match=r"accepts no records from here: HTTP 403.*this needs the scope ingest"
        ):
            spool.deliver(HttpSender(f"http://{host}:{port}", only_reads.text))
        again = spool.deliver(
            HttpSender(f"http://{host}:{port}", make_token(project="their/project").text)
        )

    assert done.status == 2
    assert f"{len(ours)} record(s) sent and acknowledged" in done.output
    for name in theirs:
        assert (
            f"kept for later: {tmp_path / name}: the token may not send records of project "
            f"their/project" in done.output
        )
    assert "roofwatch token create NAME --project their/project --scope ingest" in done.output
    assert f"this token is for {PROJECT}" in done.output
    assert again.sent == sorted(theirs)


def test_record_stays_in_the_spool_until_the_database_has_space(
    store: Engine, tmp_path: Path
) -> None:
    with store.begin() as connection:
        body = "BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END"
        connection.execute(
            text(f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        )
        connection.execute(
            text(
                "CREATE TRIGGER full_disk BEFORE INSERT ON run FOR EACH ROW EXECUTE FUNCTION fail()"
            )
        )
    spool = Spool(tmp_path)
    spool.submit(make_record())
    with served(store) as (host, port):
        sender = HttpSender(f"http://{host}:{port}", token_of_today(store, Scope.INGEST))
        full = spool.deliver(sender, attempts=1)
        with store.begin() as connection:
            connection.execute(text("DROP TRIGGER full_disk ON run"))
        after = spool.deliver(sender, attempts=1)

    assert (len(full.left), len(full.sent), len(full.refused)) == (1, 0, 0)
    assert "HTTP 507" in full.left[0][1]
    assert "the disk of the database is full; nothing was stored" in full.left[0][1]
    assert len(after.sent) == 1
    assert verify_store(store).proven_count == 1


@pytest.mark.slow
def test_killing_any_process_leaves_each_record_stored_once(
    tmp_path: Path,
) -> None:
    real = make_record(measurements=[make_measurement()])

    tally = run_chaos(real, tmp_path, kills=4, seed=7)

    assert tally.is_clean, tally
    assert tally.faults == dict.fromkeys(VICTIMS[:4], 1)
    assert tally.sent == 10
