"""A full disk of the database: clients keep their records and send them again."""

from pathlib import Path

from sqlalchemy import Engine, text

from roofwatch.collector.outbox.spool import Spool
from roofwatch.collector.outbox.upload import HttpSender
from roofwatch.db.auth.values import Scope
from roofwatch.db.maintenance.verify import verify_store
from tests.api.serving import served, token_of_today
from tests.builders import make_record


def test_record_stays_in_the_spool_until_the_database_has_space(store: Engine, tmp_path: Path) -> None:
    with store.begin() as connection:
        body = "BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END"
        connection.execute(text(f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"))
        connection.execute(text("CREATE TRIGGER full_disk BEFORE INSERT ON run FOR EACH ROW EXECUTE FUNCTION fail()"))
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
