"""The files of a record wait with it; what cannot be read holds nothing else."""

from __future__ import annotations

from pathlib import Path

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.spool import Acknowledged, Answer, Backoff, Deferred, Refused, Spool, Unavailable
from roofwatch.collector.outbox.upload import HttpSender
from roofwatch.collector.record.record import Artefact, RunRecord
from tests.builders import make_record


def nothing_to_wait_for(_seconds: float) -> None:
    raise AssertionError("it waited")


def with_a_file(spool: Spool, folder: Path) -> RunRecord:
    """A record in the spool that names a file, which lies beside it."""
    artefacts = ArtefactFolder(folder / "artefacts")
    (folder / "trace.json").write_bytes(b"a trace")
    record = make_record(artefacts=[artefacts.add(folder / "trace.json")])
    spool.submit(record, artefacts)
    return record


def lack_all(record: RunRecord) -> Answer:
    return Acknowledged(record.run_id, record.content_hash, tuple(one.sha256 for one in record.artefacts))


def test_a_record_stays_until_the_server_has_its_files_too(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    record = with_a_file(spool, tmp_path)
    sent: list[bytes] = []

    def send_artefact(of: RunRecord, artefact: Artefact, file: Path) -> Unavailable | None:
        assert (of, artefact) == (record, record.artefacts[0])
        sent.append(file.read_bytes())
        return Unavailable("HTTP 503") if len(sent) == 1 else None

    first = spool.deliver(lack_all, send_artefact=send_artefact, backoff=Backoff(attempts=1))
    second = spool.deliver(lack_all, send_artefact=send_artefact, backoff=Backoff(attempts=1))

    assert [reason for _, reason in first.left] == ["HTTP 503"]
    assert (len(second.sent), second.left, second.incomplete) == (1, (), ())
    assert sent == [b"a trace"] * 2
    assert list(spool.folder.iterdir()) == []


def test_a_file_that_is_refused_for_good_does_not_hold_its_record(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    with_a_file(spool, tmp_path)

    delivery = spool.deliver(lack_all, send_artefact=lambda *_: Refused("HTTP 413"), sleep=nothing_to_wait_for)

    assert len(delivery.sent) == 1
    assert [reason for _, reason in delivery.incomplete] == ["trace.json: HTTP 413"]
    assert list(spool.folder.iterdir()) == []


def test_a_record_that_is_put_aside_takes_its_files_along(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    record = with_a_file(spool, tmp_path)

    spool.deliver(lambda _: Refused("HTTP 422"), sleep=nothing_to_wait_for)

    aside = spool.folder / "refused"
    assert len(list(aside.glob(f"*.artefacts/{record.artefacts[0].sha256}"))) == 1
    assert list(spool.folder.iterdir()) == [aside]


def test_a_file_of_the_spool_that_cannot_be_opened_does_not_hold_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    shut = tmp_path / "0-shut.json.gz"
    shut.symlink_to(shut.name)  # of another user it would be as little to be opened, but not by root
    sent = spool.submit(make_record())

    delivery = spool.deliver(lambda record: Acknowledged(record.run_id, record.content_hash))

    assert delivery.sent == (sent.name,)
    assert delivery.left == ((shut.name, "cannot be opened: Too many levels of symbolic links"),)


def test_a_file_of_a_record_that_cannot_be_read_keeps_the_record_with_it(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(b"a trace")
    artefact = ArtefactFolder(tmp_path / "artefacts").add(tmp_path / "trace.json")
    shut = tmp_path / "a folder"
    shut.mkdir()

    said = HttpSender("https://example.org").send_artefact(make_record(artefacts=[artefact]), artefact, shut)

    assert said == Deferred(f"{shut}: cannot be read: Is a directory")
