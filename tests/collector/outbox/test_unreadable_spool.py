"""What cannot be read at the moment is kept, and does not hold the rest."""

from pathlib import Path

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.spool import Acknowledged, Deferred, Spool
from roofwatch.collector.outbox.upload import HttpSender
from tests.builders import make_record


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
