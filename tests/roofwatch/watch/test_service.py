"""Two runners and a server: nothing is lost, and no job is done twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE
from roofwatch.db.queries.runs import list_runs
from roofwatch.model.agenda import Job, JobKind
from roofwatch.model.record import RunRecord
from roofwatch.watch.service import Service
from tests.api.conftest import new_token, served
from tests.builders import PROJECT, make_commit_ref, make_environment, make_record

RUNNER_CLASS = make_environment().runner_class
JOBS = [
    Job(kind=JobKind.NEW, reason="the newest commit", seconds=1.0, head=make_commit_ref(number))
    for number in (3, 2)
]


@pytest.fixture
def url(store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(TOKEN_VARIABLE, new_token(store, now=datetime.now(UTC)).text)
    monkeypatch.setenv("ROOFWATCH_DATA_DIR", str(tmp_path / "data"))
    with served(store) as (host, port):
        yield f"http://{host}:{port}"


def service(url: str, records: Path) -> Service:
    return Service(url=url, project=PROJECT, runner_class=RUNNER_CLASS, records=records)


def records_in(folder: Path) -> list[RunRecord]:
    return [RunRecord.read(file) for file in sorted(folder.glob("*.json*"))]


def stored_run_ids(store: Engine) -> set[str]:
    with Session(store) as session:
        return {run.run_id for run in list_runs(session, PROJECT, None)}


def test_the_records_of_one_runner_reach_the_other(store: Engine, url: str, tmp_path: Path) -> None:
    ours, theirs = service(url, tmp_path / "ours"), service(url, tmp_path / "theirs")
    record = make_record(0)
    record.write(tmp_path / "ours" / "run.json.gz")

    ours.exchange([record])
    theirs.exchange([])

    assert stored_run_ids(store) == {str(record.run_id)}
    assert records_in(tmp_path / "theirs") == [record]
    theirs.exchange(records_in(tmp_path / "theirs"))
    assert stored_run_ids(store) == {str(record.run_id)}


def test_a_runner_that_asks_again_leases_its_own_job_rather_than_that_of_another(
    url: str, tmp_path: Path
) -> None:
    ours, theirs = service(url, tmp_path / "ours"), service(url, tmp_path / "theirs")

    assert ours.take(JOBS) == JOBS[0]
    assert theirs.take(JOBS) == JOBS[1]
    assert service(url, tmp_path / "ours").take(JOBS) == JOBS[0]
    ours.finish(JOBS[0], 5.0)
    theirs.finish(JOBS[1], 5.0)
    assert ours.take(JOBS[1:]) is None


def test_a_server_that_was_away_gets_every_record_once_it_is_back(
    store: Engine, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = service("http://127.0.0.1:9", tmp_path / "ours")
    records = [make_record(number) for number in range(3)]

    away.exchange(records[:1])
    job = away.take(JOBS)
    away.send(records[1:2])
    away.finish(JOBS[0], 5.0)
    back = service(url, tmp_path / "ours")
    back.exchange(records)

    assert job == JOBS[0], "measured without a lease"
    assert "going on with the records of" in capsys.readouterr().err
    assert stored_run_ids(store) == {str(record.run_id) for record in records}
