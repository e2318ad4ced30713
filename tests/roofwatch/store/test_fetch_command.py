"""`roofwatch fetch` as a job without a database runs it."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from roofwatch.collector.errors import SpoolError
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.auth.values import Scope
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.store.transfer import fetch_records
from tests.api.serving import served, token_of_today
from tests.builders import PROJECT, make_commit, make_record, sha_of
from tests.roofwatch.command import roofwatch


def test_the_latest_record_of_each_commit_is_fetched(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, head = make_record(1), make_record(2)
    for record in (make_record(1, started_at=base.started_at - timedelta(hours=1)), base, head):
        ingest_record(store, record)
    ingest_record(store, make_record(commit=make_commit(1, is_dirty=True), started_at=head.started_at))
    token = token_of_today(store, Scope.READ)
    monkeypatch.setenv("ROOFWATCH_TOKEN", token)
    with served(store) as (host, port):
        url = f"http://{host}:{port}"
        asked = ("fetch", sha_of(2), sha_of(1)[:12], "--project", PROJECT, "-o", "out", "--json")
        fetched = roofwatch(*asked, cwd=tmp_path, ROOFWATCH_SERVER_URL=url, ROOFWATCH_TOKEN=token)
        with pytest.raises(SpoolError, match=f"has no run of {sha_of(9)}"):
            fetch_records(url, PROJECT, [sha_of(9)], tmp_path)
        with pytest.raises(SpoolError, match="HTTP 40"):
            fetch_records(url, "another/project", [sha_of(1)], tmp_path)

    assert fetched.status == 0, fetched.error
    files = [tmp_path / one["path"] for one in fetched.parsed["records"]]
    assert [RunRecord.read(file) for file in files] == [head, base]
