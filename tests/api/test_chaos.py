"""Kills at random points of an ingest, a few of those that `bench/chaos.py` makes; and that a loss would show there."""

import io
from pathlib import Path

from sqlalchemy import Engine, delete

from bench.chaos import VICTIMS, run_chaos
from bench.ledger import Tally, check_count, check_record, list_missing
from bench.shipment import Shipment
from roofwatch.collector.outbox.spool import Refused
from roofwatch.db.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import quarantine_name
from roofwatch.db.schema.runs import RunRow
from tests.builders import make_artefact, make_measurement, make_record


def test_a_kill_of_client_server_or_database_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    real = make_record(measurements=[make_measurement()])

    tally = run_chaos(real, tmp_path, kills=3, seed=7, outage=None, full_disks=0)

    assert tally.is_clean, tally
    assert tally.faults == dict.fromkeys(VICTIMS[:3], 1)
    assert tally.sent == 8


def test_of_a_record_that_is_missing_it_is_told_where_it_is_and_what_its_pushes_said(
    store: Engine, tmp_path: Path
) -> None:
    waiting, refused = make_record(0), make_record(1)
    shipment = Shipment(tmp_path, waiting, refused, [tmp_path / "push-0000.txt"])
    shipment.words[0].write_text("kept for later: HTTP 503\nended by SIGTERM after 2.0 s, status 143\n")
    shipment.spool.submit(refused)
    shipment.spool.deliver(lambda _: Refused("HTTP 422: no"))
    path = shipment.spool.submit(waiting)
    ingest_record(store, refused, is_quarantined=True)

    assert list_missing(store, shipment.records) == [waiting]
    assert shipment.whereabouts(store, waiting).splitlines()[1:] == [
        "  stored: no",
        f"  in the spool: {path.name}, whole",
        "  put aside: no",
        "  pushes: 1",
        "    push-0000.txt: kept for later: HTTP 503 | ended by SIGTERM after 2.0 s, status 143",
    ]
    path.write_bytes(b"\x1f\x8bgarbage")
    assert "in the spool: no" not in shipment.whereabouts(store, waiting)
    assert "damaged or incomplete" in shipment.whereabouts(store, waiting)
    assert shipment.whereabouts(store, refused).splitlines()[1:5] == [
        f"  stored: in {quarantine_name(refused.project)}, whole",
        "  in the spool: no",
        f"  put aside: {refused.run_id}-{refused.content_hash[:12]}.json.gz, whole",
        "    HTTP 422: no",
    ]


def test_what_is_lost_changed_or_too_much_is_counted(store: Engine) -> None:
    whole = make_record(0, artefacts=[make_artefact(b"stored")])
    without_file = make_record(1, artefacts=[make_artefact(b"never sent")])
    changed, lost, unknown = make_record(2), make_record(3), make_record(4)
    for record in (whole, without_file, changed, lost, unknown):
        ingest_record(store, record)
    store_artefact(store, whole.run_id, whole.artefacts[0].sha256, io.BytesIO(b"stored"))
    with store.begin() as connection:
        connection.execute(delete(RunRow).where(RunRow.run_id == lost.run_id))
    tally = Tally(sent=3)

    for record in (whole, without_file, changed.model_copy(update={"harness_version": "other"}), lost):
        check_record(store, record, tally)
    check_count(store, tally)

    assert (tally.never_arrived, tally.other_content, tally.files_lost, tally.doubled) == (1, 1, 1, 1)
    assert not tally.is_clean
