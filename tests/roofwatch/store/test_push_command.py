"""`roofwatch push` as a user runs it, and each answer of a server."""

import os
from pathlib import Path

import pytest

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.spool import Spool, SpoolDelivery
from roofwatch.console.terminal import EXIT_CANNOT
from roofwatch.model.errors import SpoolError
from roofwatch.model.record import RunRecord
from roofwatch.store.transfer import exit_status
from tests.builders import make_record
from tests.http_server import TOKEN, FakeServer, acknowledge, answer, hang_up, hang_up_within
from tests.roofwatch.command import Done, roofwatch


def push(folder: Path, *arguments: str | Path, **environment: str) -> Done:
    return roofwatch(
        "push",
        *arguments,
        cwd=folder,
        ROOFWATCH_DATA_DIR=str(folder / "data"),
        ROOFWATCH_TOKEN=TOKEN,
        **environment,
    )


def test_the_next_push_sends_only_what_is_left_in_the_spool(
    server: FakeServer, tmp_path: Path
) -> None:
    for number in range(2):
        make_record(number).write(tmp_path / "records" / f"{number}.json.gz")
    server.answers = [
        acknowledge(),
        answer(503, b"maintenance", Retry_After="86400"),
        acknowledge(409),
    ]

    first = push(tmp_path, "records", ROOFWATCH_SERVER_URL=server.url)
    assert first.status == 2
    assert "1 record(s) sent and acknowledged" in first.output
    assert "kept for later" in first.output
    assert "HTTP 503: maintenance" in first.output
    assert len(Spool(tmp_path / "data" / "spool").waiting) == 1

    second = push(tmp_path, "--json", ROOFWATCH_SERVER_URL=server.url)
    assert second.status == 0, second.error
    assert (len(second.parsed["sent"]), second.parsed["left"]) == (1, [])
    assert [request.headers["Authorization"] for request in server.requests] == [
        f"Bearer {TOKEN}"
    ] * 3
    assert Spool(tmp_path / "data" / "spool").waiting == []
    assert len(list((tmp_path / "records").iterdir())) == 2


def test_a_refused_record_is_named_with_the_reason_for_it(
    server: FakeServer, tmp_path: Path
) -> None:
    make_record().write(tmp_path / "record.json")
    server.answers = [answer(422, b"no such project")]
    done = push(tmp_path, "record.json", "--url", server.url, "--spool", tmp_path / "elsewhere")
    assert done.status == 1
    assert f"refused: {tmp_path / 'elsewhere' / 'refused'}" in done.output
    assert "HTTP 422: no such project" in done.output


def test_without_a_server_nothing_is_sent(tmp_path: Path) -> None:
    done = push(tmp_path)
    assert done.status == 2
    assert "no server: use --url" in done.error


SENT, RETRIED = ("gone", "no", 0), ("stays", "in this push", 2)
KEPT, REFUSED = ("stays", "by the next push", 2), ("aside", "no", 1)
FILE_REFUSED = ("gone", "no", 1)
NO_SCOPE = answer(
    403, WWW_Authenticate='Bearer realm="roofwatch", error="insufficient_scope", scope="ingest"'
)
LATER = [hang_up, *map(answer, (408, 425, 429, 500, 503))]
WRONG_SENDER = [*(answer(status, Location="/login") for status in (301, 307, 401, 407)), NO_SCOPE]
NEVER = [answer(status) for status in (400, 410, 413, 422, 451)]

TO_THE_RECORD = {
    SENT: [acknowledge(status) for status in (200, 201, 409)],
    RETRIED: [
        *LATER,
        acknowledge(content_hash="0" * 64),
        acknowledge(run_id="00000000-0000-0000-0000-000000000007"),
        answer(202),
        answer(200, b"<html>welcome</html>"),
        hang_up_within,
    ],
    KEPT: [*WRONG_SENDER, *map(answer, (403, 404, 405))],
    REFUSED: [*NEVER, answer(409)],
}
TO_ITS_FILE = {
    SENT: [answer(status) for status in (200, 201, 204)],
    RETRIED: LATER,
    KEPT: [*WRONG_SENDER, *map(answer, (403, 404, 405))],
    FILE_REFUSED: NEVER,
}


def place_of(spool: Spool, record: RunRecord) -> str:
    """Return where the record is, after checking that its file is with it."""
    for place, folder in {"stays": spool.folder, "aside": spool.folder / "refused"}.items():
        for path in folder.glob("*.json.gz"):
            assert RunRecord.read(path) == record
            assert (
                path.with_name(f"{path.name}.artefacts") / record.artefacts[0].sha256
            ).read_bytes() == b"a trace"
            return place
    return "gone"


@pytest.mark.parametrize("is_file", [False, True], ids=["record", "file"])
def test_each_answer_decides_what_happens_to_the_record(
    is_file: bool, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    artefacts = ArtefactFolder(tmp_path / "artefacts")
    (tmp_path / "trace.json").write_bytes(b"a trace")
    record = make_record(artefacts=[artefacts.add(tmp_path / "trace.json")])
    before = [acknowledge(lacking_artefacts=[record.artefacts[0].sha256])] if is_file else []
    for expected, answers in (TO_ITS_FILE if is_file else TO_THE_RECORD).items():
        for number, say in enumerate(answers):
            spool = Spool(tmp_path / " ".join(map(str, expected)) / str(number))
            spool.submit(record, artefacts)
            waits: list[float] = []
            server.answers = [*before, say] * 2
            try:
                delivery = spool.deliver(server.sender(), attempts=2, sleep=waits.append)
                status = exit_status(delivery)
            except SpoolError:
                delivery, status = SpoolDelivery(), EXIT_CANNOT
            place = place_of(spool, record)
            again = "in this push" if waits else "by the next push" if place == "stays" else "no"
            assert (place, again, status) == expected, (number, delivery)
