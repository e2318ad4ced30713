"""`roofwatch artefact` and `roofwatch fetch` with a record, a database and a server."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.errors import SpoolError
from roofwatch.model.history import Scope
from roofwatch.model.record import RunRecord
from roofwatch.store.transfer import fetch_records
from tests.api.conftest import served, token_of_today
from tests.builders import PROJECT, make_commit, make_record, sha_of
from tests.databases import ingest_all
from tests.roofwatch.command import roofwatch


def recorded(folder: Path) -> RunRecord:
    make_record().write(folder / "record.json.gz")
    (folder / "kernel.sass").write_text("MOV R1, R2 // /home/somebody/kernel.py\n")
    added = roofwatch("artefact", "add", "record.json.gz", "kernel.sass", "--json", cwd=folder)
    assert added.status == 0, added.error
    record = RunRecord.read(folder / "record.json.gz")
    assert added.parsed["artefacts"][0]["sha256"] == record.artefacts[0].sha256
    return record


def test_an_artefact_that_is_stored_with_its_record_reads_back(
    database_url: URL, tmp_path: Path
) -> None:
    record = recorded(tmp_path)
    url = database_url.render_as_string(hide_password=False)
    run_id = str(record.run_id)
    settings = {"ROOFWATCH_DATABASE_URL": url}

    ingested = roofwatch("ingest", "record.json.gz", cwd=tmp_path, **settings)
    listed = roofwatch("artefact", "list", run_id, cwd=tmp_path, **settings)
    got = roofwatch("artefact", "get", run_id, "-o", "out", cwd=tmp_path, **settings)
    again = roofwatch("artefact", "get", run_id, "-o", "out", cwd=tmp_path, **settings)

    assert (ingested.status, ingested.error) == (0, "")
    assert "kernel.sass" in listed.output
    assert got.status == 0, got.error
    kept = ArtefactFolder.beside(tmp_path / "record.json.gz").find(record.artefacts[0])
    assert kept is not None
    assert (tmp_path / "out" / "kernel.sass").read_bytes() == kept.read_bytes()
    assert b"somebody" not in kept.read_bytes()
    assert again.status == 2
    assert "file exists" in again.error


def test_an_artefact_that_is_pushed_with_its_record_can_be_fetched(
    database_url: URL, store: Engine, tmp_path: Path
) -> None:
    record = recorded(tmp_path)
    made = roofwatch(
        "token",
        "create",
        "x",
        "--project",
        PROJECT,
        "--scope",
        "ingest",
        "--scope",
        "read",
        "--json",
        cwd=tmp_path,
        ROOFWATCH_DATABASE_URL=database_url.render_as_string(hide_password=False),
    )
    token = {"ROOFWATCH_TOKEN": made.parsed["text"]}
    run_id = str(record.run_id)
    with served(store) as (host, port):
        url = f"http://{host}:{port}"
        pushed = roofwatch(
            "push", "record.json.gz", "--url", url, "--spool", "spool", cwd=tmp_path, **token
        )
        listed = roofwatch(
            "artefact", "list", run_id, "--url", url, "--json", cwd=tmp_path, **token
        )
        got = roofwatch(
            "artefact",
            "get",
            run_id,
            "kernel.sass",
            "--url",
            url,
            "-o",
            "out",
            cwd=tmp_path,
            **token,
        )
        unknown = roofwatch("artefact", "get", run_id, "other", "--url", url, cwd=tmp_path, **token)

    assert pushed.status == 0, pushed.output + pushed.error
    assert [one["is_stored"] for one in listed.parsed["artefacts"]] == [True]
    assert got.status == 0, got.error
    assert "MOV R1, R2" in (tmp_path / "out" / "kernel.sass").read_text()
    assert unknown.status == 2
    assert "it has kernel.sass" in unknown.error


def test_the_latest_record_of_each_commit_is_fetched(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, head = make_record(1), make_record(2)
    ingest_all(store, make_record(1, started_at=base.started_at - timedelta(hours=1)), base, head)
    ingest_record(
        store, make_record(commit=make_commit(1, is_dirty=True), started_at=head.started_at)
    )
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
