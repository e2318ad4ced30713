"""What an operator sees: readiness, metrics, alert rules, and logs with few lines in an outage."""

from __future__ import annotations

import json
import logging
import math
import re
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import yaml
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from roofwatch.api import runs
from roofwatch.api.logs import JsonFormatter, Outage
from roofwatch.db.access import add_entry
from roofwatch.db.errors import FullDiskError
from roofwatch.db.maintenance.service_state import BACKUP
from roofwatch.db.regressions.judgements import request_analysis
from tests.api.conftest import MakeToken, headers_of, make_app
from tests.builders import PROJECT, make_record
from tests.databases import allow_connections

ROOT = Path(__file__).parents[2]


def value_of(text: str, name: str) -> float:
    (line,) = re.findall(rf"^roofwatch_{name} (\S+)$", text, re.MULTILINE)
    return float(line)


def test_metrics_show_the_state_of_the_whole_service(
    store: Engine, client: TestClient, make_token: MakeToken
) -> None:
    client.post("/v1/records", content=make_record().to_json())
    request_analysis(store, PROJECT)
    with Session(store) as session, session.begin():
        add_entry(session, actor="a test", action=BACKUP, project=None, subject="a.dump")
    make_token(days=2)

    text = client.get("/metrics").text

    assert value_of(text, "analysis_waiting") == 1
    assert value_of(text, "database_bytes") > 1e6
    assert value_of(text, "disk_free_bytes") > 0
    assert 0 < value_of(text, "database_connections") < value_of(text, "database_connections_max")
    assert value_of(text, "deliveries_waiting") == 0
    assert value_of(text, "disk_full") == 0
    assert "roofwatch_backup_age_seconds" in text
    assert math.isnan(value_of(text, "archive_age_seconds")), "nothing is archived here"
    # the token of this request, which is used; not the one that expires first, which is not
    assert value_of(text, "token_expiry_seconds") == timedelta(days=30).total_seconds()


def test_not_ready_while_the_disk_is_full(
    store: Engine, make_token: MakeToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FullDiskError("no space left")

    def fail_probe(session: Session) -> None:
        raise FullDiskError("no space left")

    with TestClient(make_app(store), headers=headers_of(make_token())) as client:
        with monkeypatch.context() as full:
            full.setattr(runs, "ingest_record", fail)
            full.setattr("roofwatch.api.app.probe_disk", fail_probe)
            pushed = client.post("/v1/records", content=make_record().to_json())
            while_full = client.get("/readyz")
            metrics = client.get("/metrics").text
        once_freed = client.get("/readyz")

    assert (pushed.status_code, while_full.status_code) == (507, 503)
    assert "disk is full" in while_full.json()["detail"]
    assert value_of(metrics, "disk_full") == 1
    assert once_freed.status_code == 200


@pytest.fixture
def log_of_outage(
    store: Engine, make_token: MakeToken, caplog: pytest.LogCaptureFixture
) -> list[logging.LogRecord]:
    """What is logged while the database is away for ten requests, and when it is back."""
    headers = headers_of(make_token())
    with TestClient(make_app(store), headers=headers) as client, caplog.at_level(logging.INFO):
        allow_connections(store.url, are_allowed=False)
        answers = [client.get("/v1/projects").status_code for _ in range(5)]
        answers += [client.get("/readyz").status_code for _ in range(5)]
        allow_connections(store.url, are_allowed=True)
        assert client.get("/readyz").status_code == 200
    assert answers == [503] * 10
    return list(caplog.records)


def test_an_outage_is_logged_once(log_of_outage: list[logging.LogRecord]) -> None:
    failures = [line for line in log_of_outage if line.levelno >= logging.WARNING]
    assert [line.getMessage().partition(" failed")[0] for line in failures] == ["the database"]


def test_the_end_of_an_outage_is_logged_once(log_of_outage: list[logging.LogRecord]) -> None:
    recoveries = [line for line in log_of_outage if "works again" in line.getMessage()]
    assert len(recoveries) == 1


def test_lines_of_json_have_the_id_of_the_answer(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        answer = client.get("/v1/nothing")

    (line,) = (record for record in caplog.records if hasattr(record, "request_id"))
    logged = json.loads(JsonFormatter().format(line))
    assert logged["request_id"] == answer.headers["x-request-id"]
    assert answer.json()["instance"] == f"urn:uuid:{logged['request_id']}"
    assert (logged["status"], logged["route"], logged["level"]) == (404, "unknown", "INFO")


def test_tracebacks_stay_on_one_line_of_json() -> None:
    error = psycopg.OperationalError("gone")
    error_info = (type(error), error, None)
    record = logging.LogRecord("a test", logging.ERROR, "", 0, "failed", (), error_info)

    text = JsonFormatter().format(record)

    assert "\n" not in text
    assert "OperationalError: gone" in json.loads(text)["traceback"]


def test_an_outage_that_ends_can_begin_again(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("a test"), "it")
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            outage.note_failure("why")
            outage.note_failure("why")
            outage.note_success()
            outage.note_success()

    assert [record.getMessage() for record in caplog.records] == [
        "it failed: why",
        "it works again",
    ] * 2


def test_shipped_monitoring_uses_metrics_that_exist(client: TestClient) -> None:
    served = set(re.findall(r"^# HELP (roofwatch_\w+)", client.get("/metrics").text, re.MULTILINE))
    rules = yaml.safe_load((ROOT / "prometheus" / "alerts.yml").read_text())
    board = json.loads((ROOT / "grafana" / "service.json").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in board["panels"] for target in panel["targets"]]

    named = {
        name.removesuffix("_bucket")
        for expression in expressions
        for name in re.findall(r"roofwatch_\w+", expression)
    }

    assert named - served == set()
    assert len(named) > 12
