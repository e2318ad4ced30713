"""The spool: records and their files wait until a server acknowledges them, wherever a push is
stopped.
"""

import contextlib
import errno
import hashlib
import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.http_client import HttpSender
from roofwatch.collector.outbox.spool import Acknowledged, Answer, Refused, Spool, Unavailable
from roofwatch.model.errors import SpoolError
from roofwatch.model.record import Artefact, RunRecord
from tests.builders import make_record


def no_wait(_seconds: float) -> None:
    raise AssertionError("it waited")


class Server:
    """Gives the answers in turn, and accepts a record if the answer is None or there is
    none left.
    """

    def __init__(
        self, *answers: Answer | None, to_artefacts: tuple[Refused | Unavailable, ...] = ()
    ) -> None:
        self.answers = list(answers)
        self._to_artefacts = list(to_artefacts)
        self.asked: list[RunRecord] = []
        self.accepted: list[uuid.UUID] = []
        self.files: set[str] = set()

    def send(self, record: RunRecord) -> Answer:
        self.asked.append(record)
        if self.answers and (answer := self.answers.pop(0)) is not None:
            return answer
        self.accepted.append(record.run_id)
        missing = tuple(one.sha256 for one in record.artefacts if one.sha256 not in self.files)
        return Acknowledged(record.run_id, record.content_hash, missing)

    def send_artefact(
        self, record: RunRecord, artefact: Artefact, file: Path
    ) -> Refused | Unavailable | None:
        assert artefact in record.artefacts
        if self._to_artefacts:
            return self._to_artefacts.pop(0)
        self.files.add(hashlib.sha256(file.read_bytes()).hexdigest())
        return None


def record_with_artefact(artefacts: ArtefactFolder, folder: Path) -> RunRecord:
    (folder / "trace.json").write_bytes(b"a trace")
    return make_record(artefacts=[artefacts.add(folder / "trace.json")])


def test_an_unavailable_server_is_tried_again_with_growing_waits(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.submit(make_record())
    waits: list[float] = []
    server = Server(*[Unavailable("no connection")] * 8)

    delivery = spool.deliver(server, attempts=8, sleep=waits.append, draw=lambda: 1.0)

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert [reason for _, reason in delivery.left] == ["no connection"]
    assert len(spool.waiting) == 1
    assert len(spool.deliver(server, sleep=no_wait).sent) == 1


@pytest.mark.parametrize(("retry_after_s", "waited"), [(7.0, [7.5]), (3600.0, [])])
def test_a_server_may_ask_for_a_wait(
    tmp_path: Path, retry_after_s: float, waited: list[float]
) -> None:
    spool = Spool(tmp_path)
    for number in range(3):
        spool.submit(make_record(number))
    waits: list[float] = []
    server = Server(Unavailable("too many", retry_after_s=retry_after_s))

    delivery = spool.deliver(server, sleep=waits.append, draw=lambda: 0.5)

    assert waits == waited
    assert len(server.accepted) == len(delivery.sent) == (3 if waited else 0)
    assert len(spool.waiting) == len(delivery.left) == (0 if waited else 3)


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        (Unavailable("HTTP 500"), 2),
        (Unavailable("HTTP 503", 10.0), 2),
        (Unavailable("HTTP 403", is_retried=False), 1),
    ],
)
def test_a_record_that_fails_does_not_hold_up_the_others(
    tmp_path: Path, answer: Unavailable, count: int
) -> None:
    spool = Spool(tmp_path)
    bad = min(spool.submit(make_record(number)).name for number in range(3))
    server = Server(answer, None, None, answer)

    delivery = spool.deliver(server, attempts=2, sleep=lambda _: None)

    assert len(delivery.sent) == 2
    assert delivery.left == [(bad, answer.reason)]
    assert len(server.asked) == 2 + count
    assert spool.deliver(Server(), sleep=no_wait).sent == [bad]


def test_a_refused_record_is_put_aside_with_the_reason(tmp_path: Path) -> None:
    spool, artefacts = Spool(tmp_path / "spool"), ArtefactFolder(tmp_path / "artefacts")
    record = record_with_artefact(artefacts, tmp_path)
    name = spool.submit(record, artefacts).name

    delivery = spool.deliver(Server(Refused("HTTP 422: no such project")), sleep=no_wait)

    aside = spool.folder / "refused"
    assert delivery.refused == [(name, "HTTP 422: no such project")]
    assert RunRecord.read(aside / name) == record
    assert (aside / f"{name}.reason.txt").read_text() == "HTTP 422: no such project\n"
    assert (aside / f"{name}.artefacts" / record.artefacts[0].sha256).read_bytes() == b"a trace"
    assert list(spool.folder.iterdir()) == [aside]


def test_an_unreadable_file_does_not_hold_back_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    sent = spool.submit(make_record())
    (tmp_path / "0.json.gz").write_bytes(b"\x1f\x8bgarbage")
    (tmp_path / "1.json.gz").symlink_to("1.json.gz")

    delivery = spool.deliver(Server(), sleep=no_wait)

    assert delivery.sent == [sent.name]
    assert [name for name, _ in delivery.left] == ["0.json.gz", "1.json.gz"]
    assert "damaged or incomplete" in delivery.left[0][1]
    assert "Too many levels of symbolic links" in delivery.left[1][1]
    assert (tmp_path / "0.json.gz").read_bytes() == b"\x1f\x8bgarbage"


def test_parallel_deliveries_send_each_record_once(tmp_path: Path) -> None:
    records = [make_record(number) for number in range(12)]
    for record in records:
        path = Spool(tmp_path).submit(record)
        assert Spool(tmp_path).submit(record) == path
    server = Server()

    with ThreadPoolExecutor(4) as pool:
        deliveries = list(
            pool.map(lambda _: Spool(tmp_path).deliver(server, sleep=no_wait), range(4))
        )

    assert sorted(server.accepted) == sorted(record.run_id for record in records)
    assert sum(len(delivery.sent) for delivery in deliveries) == 12
    assert Spool(tmp_path).waiting == []


@pytest.mark.parametrize("answers", [(), (Refused("HTTP 422: no"),) * 2])
def test_a_record_that_cannot_be_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[Refused, ...]
) -> None:
    spool = Spool(tmp_path)
    first = min(spool.submit(make_record(number)) for number in range(2))

    def full_for_the_first(change: Callable[..., Any]) -> Callable[..., Any]:
        def changing(path: Path, *arguments: Any, **options: Any) -> Any:
            if path == first:
                raise OSError(errno.ENOSPC, "No space left on device")
            return change(path, *arguments, **options)

        return changing

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, full_for_the_first(getattr(Path, name)))
        delivery = spool.deliver(Server(*answers), sleep=no_wait)

    assert delivery.left == [
        (first.name, "cannot be opened or removed: no space left on the device")
    ]
    assert len(delivery.sent + delivery.refused) == 1
    assert spool.deliver(Server(), sleep=no_wait).sent == [first.name]


def test_a_spool_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpoolError, match=r"cannot be written: (Not a directory|File exists)"):
        Spool(tmp_path / "file" / "spool").submit(make_record())
    with pytest.raises(SpoolError, match="file: cannot be read: Not a directory"):
        Spool(tmp_path / "file").deliver(Server(), sleep=no_wait)


def test_an_unreadable_artefact_keeps_its_record_in_the_spool(tmp_path: Path) -> None:
    record = record_with_artefact(ArtefactFolder(tmp_path / "artefacts"), tmp_path)
    answer = HttpSender("https://example.org").send_artefact(record, record.artefacts[0], tmp_path)

    assert answer == Unavailable(f"{tmp_path}: cannot be read: Is a directory", is_retried=False)


# --- a push that is stopped between any two changes of the disk


_CHANGES = ("open", "mkdir", "replace", "unlink", "rmdir", "fsync")
"""Functions of `os` that all of the spool's changes go through, and some that change nothing."""


class Stopped(BaseException):
    """As SystemExit of a signal does, it goes through every handler of errors."""


class Stop:
    """Stops before the change of this number.

    Args:
        number: From 1.
        is_kill: No change is made any more, as by SIGKILL or a power cut; else what cleans up is
            let do so.
    """

    def __init__(self, number: int, *, is_kill: bool) -> None:
        self.left = number
        self._is_kill = is_kill

    def before(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def stopping(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.left < 0 and self._is_kill):
                raise Stopped
            return change(*arguments, **options)

        return stopping


def run_until(stop: Stop, monkeypatch: pytest.MonkeyPatch, run: Callable[[], None]) -> None:
    with monkeypatch.context() as patch, contextlib.suppress(Stopped):
        for name in _CHANGES:
            patch.setattr(os, name, stop.before(getattr(os, name)))
        run()


def is_aside(spool: Spool, record: RunRecord) -> bool:
    """Whether the record lies there, and all its files."""
    found = list((spool.folder / "refused").glob(f"{record.run_id}-*.json.gz"))
    files = [spool.folder / "refused" / f"{path.name}.artefacts" for path in found]
    return [RunRecord.read(path) for path in found] == [record] and all(
        (folder / one.sha256).read_bytes() == b"a trace"
        for folder in files
        for one in record.artefacts
    )


@pytest.mark.parametrize("is_kill", [True, False], ids=["killed", "ended"])
@pytest.mark.parametrize("answer", [None, Refused("HTTP 422: no")], ids=["taken", "refused"])
def test_a_push_stopped_anywhere_leaves_each_record_complete_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answer: Refused | None, is_kill: bool
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nothing here is to outlive the machine
    artefacts = ArtefactFolder(tmp_path / "artefacts")
    waiting, new = record_with_artefact(artefacts, tmp_path), make_record(1)
    places = []
    for number in count(1):
        stop, server, spool = (
            Stop(number, is_kill=is_kill),
            Server(answer, answer),
            Spool(tmp_path / str(number)),
        )
        spool.submit(waiting, artefacts)

        def push(spool: Spool = spool, server: Server = server) -> None:
            spool.submit(new)
            spool.submit(waiting, artefacts)
            spool.deliver(server, attempts=1)

        run_until(stop, monkeypatch, push)

        if is_aside(spool, waiting):
            places.append("aside")
            assert waiting not in map(RunRecord.read, spool.waiting)
        else:
            places.append("taken" if waiting.run_id in server.accepted else "in the spool")
            server.answers.clear()  # as by another token
            later = spool.deliver(server, attempts=1)
            assert (later.left, later.incomplete) == ([], [])
            assert waiting.run_id in server.accepted
            assert server.files == {waiting.artefacts[0].sha256}
        if stop.left > 0:
            break
    assert sorted(set(places)) == sorted({"in the spool", "aside" if answer else "taken"})
