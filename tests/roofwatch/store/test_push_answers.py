"""What happens to a record in the spool for each answer of a server."""

import gzip
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.errors import SpoolError
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.spool import Backoff, Delivery, Spool
from roofwatch.collector.record.record import RunRecord
from roofwatch.options import EXIT_CANNOT
from roofwatch.store.transfer import exit_status
from tests.builders import make_record
from tests.door import Door, Say, acknowledge, answer, hang_up, hang_up_within, open_door, speak_another_protocol

EXPECTED = {
    "200, 201 or 409 that names its `run_id` and content hash": ("gone", "no", "0"),
    "200, 201 or 409 that names another run or content": ("stays", "in this push", "2"),
    "any other of 200 to 299, or half an answer": ("stays", "in this push", "2"),
    "none: no connection, one that breaks, silence": ("stays", "in this push", "2"),
    "408, 425, 429, 500 and above": ("stays", "in this push", "2"),
    "403: the token is not for its project": ("stays", "by the next push", "2"),
    "401, 404, 405, 407, a redirect, 403 for want of the scope: a wrong address or token": (
        *("stays", "by the next push"),
        "2",
    ),
    "200 to 299": ("gone", "no", "0"),
    "none, 408, 425, 429, 500 and above": ("stays", "in this push", "2"),
    "403, 404, 405: the server does not take it for this run": ("stays", "by the next push", "2"),
    "401, 407, a redirect, 403 for want of the scope: a wrong address or token": ("stays", "by the next push", "2"),
}
REFUSED = "any other of 400 to 499"
"""A record is put aside; a file is given up and its record sent. Exit status 1."""


def acknowledge_with(status: int = 201, **said: object) -> Say:
    """Acknowledges what it was sent, and says this in place of that or beside it."""

    def say(handler: Any, body: bytes) -> None:
        record = RunRecord.from_json(gzip.decompress(body), name="request")
        known = {"run_id": str(record.run_id), "content_hash": record.content_hash}
        handler.say(status, json.dumps(known | said).encode())

    return say


FORBIDDEN = b'{"type": "urn:roofwatch:problem:forbidden", "status": 403}'
NO_ANSWER: list[Say] = [hang_up, speak_another_protocol]
LATER = [answer(status) for status in (408, 425, 429, 500, 502, 503, 504, 507)]
NO_SCOPE = answer(403, WWW_Authenticate='Bearer realm="roofwatch", error="insufficient_scope", scope="ingest"')
WRONG_SENDER = [*(answer(status, Location="/login") for status in (301, 302, 303, 307, 308, 401, 407)), NO_SCOPE]
NEVER = [answer(status) for status in (400, 402, 406, 409, 410, 411, 413, 414, 415, 418, 422, 426, 428, 431, 451)]

ANSWERS: dict[str, dict[str, list[Say]]] = {
    "answer to the record": {
        "200, 201 or 409 that names its `run_id` and content hash": [acknowledge(status) for status in (200, 201, 409)],
        "200, 201 or 409 that names another run or content": [
            acknowledge_with(status, **other)
            for status in (200, 201, 409)
            for other in ({"content_hash": "0" * 64}, {"run_id": str(uuid.UUID(int=7))})
        ],
        "any other of 200 to 299, or half an answer": [
            *(answer(status) for status in (200, 201, 202, 206)),
            answer(200, b"<html>welcome</html>"),
            hang_up_within,
        ],
        "none: no connection, one that breaks, silence": NO_ANSWER,
        "408, 425, 429, 500 and above": LATER,
        "403: the token is not for its project": [answer(403), answer(403, FORBIDDEN)],
        "401, 404, 405, 407, a redirect, 403 for want of the scope: a wrong address or token": [
            *WRONG_SENDER,
            answer(404),
            answer(405),
        ],
        "any other of 400 to 499": NEVER,
    },
    "answer to a file that the server said it lacks": {
        "200 to 299": [answer(status) for status in (200, 201, 204)],
        "none, 408, 425, 429, 500 and above": [*NO_ANSWER, *LATER],
        "403, 404, 405: the server does not take it for this run": [answer(status) for status in (403, 404, 405)],
        "401, 407, a redirect, 403 for want of the scope: a wrong address or token": WRONG_SENDER,
        "any other of 400 to 499": NEVER,
    },
}
FILE = "answer to a file that the server said it lacks"


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as door:
        yield door


def became(spool: Spool, record: RunRecord) -> str:
    """Where the record is, and that its file is with it."""
    places = {
        "stays": list(spool.folder.glob("*.json.gz")),
        "aside": list((spool.folder / "refused").glob("*.json.gz")),
    }
    found = [place for place, paths in places.items() if paths]
    for place in found:
        (path,) = places[place]
        assert RunRecord.read(path) == record
        assert (path.with_name(f"{path.name}.artefacts") / record.artefacts[0].sha256).read_bytes() == b"a trace"
    return " ".join(found) or "gone"


@pytest.mark.parametrize("what", ANSWERS)
def test_each_answer_does_with_a_record_what_the_table_says(
    what: str, door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nothing here is to outlive the machine
    artefacts = ArtefactFolder(tmp_path / "artefacts")
    (tmp_path / "trace.json").write_bytes(b"a trace")
    record = make_record(artefacts=[artefacts.add(tmp_path / "trace.json")])
    lacks_it = acknowledge_with(lacking_artefacts=[record.artefacts[0].sha256])
    table = EXPECTED | {REFUSED: ("gone" if what == FILE else "aside", "no", "1")}
    for row, answers in ANSWERS[what].items():
        for number, say in enumerate(answers):
            spool = Spool(tmp_path / row[:40].replace("/", " ") / str(number))
            spool.submit(record, artefacts)
            before = [lacks_it] if what == FILE else []
            waits: list[float] = []
            door.answers = [*before, say] * 2
            sender = door.sender()
            try:
                delivery = spool.deliver(
                    sender, send_artefact=sender.send_artefact, backoff=Backoff(attempts=2), sleep=waits.append
                )
                status = exit_status(delivery)
            except SpoolError:
                delivery, status = Delivery(), EXIT_CANNOT
            place = became(spool, record)
            again = "in this push" if waits else "by the next push" if place == "stays" else "no"

            assert (place, again, str(status)) == table[row], (row, number, delivery)
