"""Records wait until a server acknowledges them by name, whatever happens meanwhile."""

import errno
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.errors import RecordError, SpoolError
from roofwatch.collector.outbox.spool import Acknowledged, Answer, Backoff, Deferred, Refused, Spool, Unavailable
from roofwatch.collector.record.record import RunRecord
from tests.builders import make_record

ROOT = Path(__file__).parents[3]


def accept(record: RunRecord) -> Answer:
    return Acknowledged(record.run_id, record.content_hash)


def nothing_to_wait_for(_seconds: float) -> None:
    raise AssertionError("it waited")


class Server:
    """Answers as it is told, then accepts; keeps what it accepted."""

    def __init__(self, *answers: Answer | Callable[[RunRecord], Answer]) -> None:
        self.answers = list(answers)
        self.accepted: list[uuid.UUID] = []

    def __call__(self, record: RunRecord) -> Answer:
        answer = self.answers.pop(0) if self.answers else accept
        answer = answer(record) if callable(answer) else answer
        if isinstance(answer, Acknowledged):
            self.accepted.append(record.run_id)
        return answer


def test_a_record_waits_until_it_is_acknowledged_and_is_then_gone(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    record = make_record()
    path = spool.submit(record)
    assert RunRecord.read(path) == record

    delivery = spool.deliver(accept, sleep=nothing_to_wait_for)

    assert delivery.sent == (path.name,)
    assert (delivery.refused, delivery.left, spool.waiting) == ((), (), [])


def test_a_record_put_in_twice_is_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    record = make_record()
    assert spool.submit(record) == spool.submit(record)
    assert len(spool.waiting) == 1


def test_a_server_that_is_away_is_tried_again_with_growing_waits_and_loses_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.submit(make_record())
    waits: list[float] = []
    away = Server(*[Unavailable("no connection")] * 5)

    delivery = spool.deliver(away, backoff=Backoff(attempts=4, longest_s=3.0), sleep=waits.append, draw=lambda: 1.0)

    assert waits == [1.0, 2.0, 3.0]
    assert [reason for _, reason in delivery.left] == ["no connection"]
    assert len(spool.waiting) == 1
    assert len(spool.deliver(away, sleep=waits.append).sent) == 1


def test_waits_are_drawn_so_that_many_do_not_come_back_at_once() -> None:
    backoff = Backoff()
    assert backoff.wait_s(2, None, lambda: 0.0) == 0.0
    assert backoff.wait_s(2, None, lambda: 0.5) == 2.0
    assert backoff.wait_s(5, None, lambda: 0.5) is None


@pytest.mark.parametrize(("asked_s", "waited"), [(7.0, [7.5]), (3600.0, [])])
def test_a_server_that_asks_to_wait_is_left_alone_for_as_long(
    tmp_path: Path, asked_s: float, waited: list[float]
) -> None:
    spool = Spool(tmp_path)
    for number in range(3):
        spool.submit(make_record(number))
    waits: list[float] = []
    server = Server(Unavailable("too many", retry_after_s=asked_s))

    delivery = spool.deliver(server, sleep=waits.append, draw=lambda: 0.5)

    assert waits == waited
    assert len(server.accepted) == len(delivery.sent) == (3 if waited else 0)
    assert len(spool.waiting) == len(delivery.left) == (0 if waited else 3)


def test_a_record_that_fails_does_not_hold_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    records = [make_record(number) for number in range(3)]
    bad = min(spool.submit(record).name for record in records)

    def fails_on_the_first(record: RunRecord) -> Answer:
        return Unavailable("HTTP 500") if bad.startswith(str(record.run_id)) else accept(record)

    delivery = spool.deliver(fails_on_the_first, backoff=Backoff(attempts=2), sleep=lambda _: None)

    assert len(delivery.sent) == 2
    assert [name for name, _ in delivery.left] == [bad]


def test_a_record_for_which_a_server_asks_each_time_to_be_left_alone_does_not_hold_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    records = [make_record(number) for number in range(3)]
    bad = min(spool.submit(record).name for record in records)

    def asks_to_wait_for_the_first(record: RunRecord) -> Answer:
        return Unavailable("HTTP 503", 10.0) if bad.startswith(str(record.run_id)) else accept(record)

    delivery = spool.deliver(asks_to_wait_for_the_first, backoff=Backoff(attempts=2), sleep=lambda _: None)

    assert len(delivery.sent) == 2
    assert delivery.left == ((bad, "HTTP 503"),)


@pytest.mark.parametrize("is_of_project", [True, False])
def test_what_the_sender_may_not_send_is_asked_once_and_holds_no_other(tmp_path: Path, is_of_project: bool) -> None:
    spool = Spool(tmp_path)
    others = [spool.submit(make_record(number)).name for number in range(3)]
    theirs = [spool.submit(make_record(number, project="their/project")).name for number in range(3, 6)]
    asked: list[str] = []

    def server(record: RunRecord) -> Answer:
        asked.append(record.project)
        return Deferred("HTTP 403", is_of_project) if record.project == "their/project" else accept(record)

    delivery = spool.deliver(server, sleep=nothing_to_wait_for)

    assert delivery.sent == tuple(sorted(others))
    assert delivery.left == tuple((name, "HTTP 403") for name in sorted(theirs))
    assert asked.count("their/project") == (1 if is_of_project else 3)
    assert len(spool.deliver(accept, sleep=nothing_to_wait_for).sent) == 3


def test_a_record_that_is_refused_is_put_aside_with_the_reason_and_not_sent_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    record = make_record()
    name = spool.submit(record).name

    delivery = spool.deliver(Server(Refused("HTTP 422: no such project")), sleep=nothing_to_wait_for)

    assert delivery.refused == ((name, "HTTP 422: no such project"),)
    assert RunRecord.read(tmp_path / "refused" / name) == record
    assert (tmp_path / "refused" / f"{name}.reason.txt").read_text() == "HTTP 422: no such project\n"
    assert spool.deliver(Server(Refused("again")), sleep=nothing_to_wait_for).refused == ()


@pytest.mark.parametrize(
    "answer",
    [
        lambda record: Acknowledged(uuid.uuid4(), record.content_hash),
        lambda record: Acknowledged(record.run_id, "0" * 64),
    ],
    ids=["of another run", "of other content"],
)
def test_an_acknowledgement_of_something_else_removes_nothing(
    tmp_path: Path, answer: Callable[[RunRecord], Answer]
) -> None:
    spool = Spool(tmp_path)
    spool.submit(make_record())

    delivery = spool.deliver(answer, backoff=Backoff(attempts=1), sleep=nothing_to_wait_for)

    assert "acknowledged another record" in delivery.left[0][1]
    assert len(spool.waiting) == 1


def test_a_file_that_is_no_record_stays_and_the_others_are_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.submit(make_record())
    (tmp_path / "0.json.gz").write_bytes(b"\x1f\x8bgarbage")

    delivery = spool.deliver(accept, sleep=nothing_to_wait_for)

    assert len(delivery.sent) == 1
    ((name, reason),) = delivery.left
    assert name == "0.json.gz"
    assert "damaged or not whole" in reason
    assert (tmp_path / "0.json.gz").read_bytes() == b"\x1f\x8bgarbage"


def test_a_record_that_could_not_be_read_once_is_sent_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)
    path = spool.submit(make_record())

    def interrupted(path: Path) -> RunRecord:
        raise RecordError(f"{path}: cannot be read: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(RunRecord, "read", interrupted)
        first = spool.deliver(accept, sleep=nothing_to_wait_for)
    second = spool.deliver(accept, sleep=nothing_to_wait_for)

    assert first.left == ((path.name, f"{path}: cannot be read: Input/output error"),)
    assert (second.sent, second.left) == ((path.name,), ())


def test_what_can_never_be_sent_this_way_stays_where_it_is(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.submit(make_record())

    def unknown_token(_record: RunRecord) -> Answer:
        raise SpoolError("HTTP 401")

    with pytest.raises(SpoolError, match="401"):
        spool.deliver(unknown_token, sleep=nothing_to_wait_for)
    assert len(spool.waiting) == 1


def test_several_that_deliver_at_once_lose_none_and_send_none_at_the_same_time(tmp_path: Path) -> None:
    records = [make_record(number) for number in range(12)]
    for record in records:
        Spool(tmp_path).submit(record)
    being_sent: set[uuid.UUID] = set()
    accepted: list[uuid.UUID] = []

    def send(record: RunRecord) -> Answer:
        assert record.run_id not in being_sent
        being_sent.add(record.run_id)
        accepted.append(record.run_id)
        being_sent.remove(record.run_id)
        return accept(record)

    with ThreadPoolExecutor(4) as pool:
        deliveries = list(pool.map(lambda _: Spool(tmp_path).deliver(send, sleep=nothing_to_wait_for), range(4)))

    assert sorted(accepted) == sorted(record.run_id for record in records)
    assert sum(len(delivery.sent) for delivery in deliveries) == 12
    assert Spool(tmp_path).waiting == []


def test_a_process_that_is_killed_while_it_sends_leaves_the_record_and_no_lock(tmp_path: Path) -> None:
    record = make_record()
    Spool(tmp_path).submit(record)

    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False, env=os.environ.copy())
    assert done.returncode == -signal.SIGKILL

    server = Server()
    delivery = Spool(tmp_path).deliver(server, sleep=nothing_to_wait_for)

    assert server.accepted == [record.run_id]
    assert len(delivery.sent) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from roofwatch.collector.outbox.spool import Spool
Spool(Path(sys.argv[1])).deliver(lambda record: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    with pytest.raises(SpoolError, match="spool: cannot be read: Not a directory"):
        Spool(tmp_path / "spool").deliver(accept, sleep=nothing_to_wait_for)


@pytest.mark.parametrize(
    ("answer", "said"), [(accept, "sent"), (lambda _: Refused("HTTP 422: no"), "refused (HTTP 422: no)")]
)
def test_what_cannot_be_taken_out_of_the_spool_stays_and_does_not_hold_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[RunRecord], Answer], said: str
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
        delivery = spool.deliver(answer, sleep=nothing_to_wait_for)

    assert delivery.left == (
        (first.name, f"{said}, and cannot be taken out of the spool: no space left on the device"),
    )
    assert len(delivery.sent + delivery.refused) == 1
    assert spool.waiting == [first]
    assert spool.deliver(accept, sleep=nothing_to_wait_for).sent == (first.name,)


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(SpoolError, match="cannot be written: Not a directory"):
        Spool(tmp_path / "a-file" / "spool").submit(make_record())


def test_what_cannot_be_written_whole_leaves_nothing_half_in_the_spool(tmp_path: Path) -> None:
    make_record().write(tmp_path / "record.json.gz")

    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "spool", tmp_path / "record.json.gz"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.stdout == "refused\n", done.stderr
    assert Spool(tmp_path / "spool").waiting == []
    assert list((tmp_path / "spool").iterdir()) == []


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from roofwatch.collector.errors import SpoolError
from roofwatch.collector.outbox.spool import Spool
from roofwatch.collector.record.record import RunRecord
record = RunRecord.read(Path(sys.argv[2]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    Spool(Path(sys.argv[1])).submit(record)
except SpoolError:
    sys.stdout.write("refused\\n")
"""
