"""The page that a signed link in an alert opens."""

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.api.app import create_app
from roofwatch.ci.alerts.evaluation import AlertSetup, raise_alerts
from roofwatch.ci.alerts.links import AcknowledgeLinks
from roofwatch.ci.alerts.rules_file import parse_rules
from roofwatch.db.regressions.alerts import list_alerts, list_deliveries
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.alert import AlertState
from tests.builders import NOON, PROJECT, make_record, make_regression
from tests.databases import ingest_all

LINKS = AcknowledgeLinks("https://roofwatch.example.com", "a secret of a test")
RULES = """
[channels]
chat = { kind = "apprise", url_env = "CHAT" }
[[rules]]
name = "slower"
kind = "regression"
channels = ["chat"]
"""
SETUP = AlertSetup(parse_rules(RULES), links=LINKS)


@pytest.fixture
def firing(store: Engine) -> Engine:
    ingest_all(store, *map(make_record, range(3)))
    replace_regressions(store, PROJECT, [make_regression(1, is_confirmed=True, is_alert=True)])
    raise_alerts(store, SETUP, NOON + timedelta(days=1))
    return store


@pytest.fixture
def client(firing: Engine) -> TestClient:
    # without its lifespan, so that nothing is sent
    return TestClient(create_app(firing, version="1", alerts=SETUP))


def address_in_message(engine: Engine) -> str:
    with Session(engine) as session:
        (delivery,) = list_deliveries(session)
    (link,) = [link for link in delivery.alert.message.links if link.name == "Acknowledge"]
    parts = urlsplit(link.url)
    return f"{parts.path}?{parts.query}"


def state_of_alert(engine: Engine) -> tuple[AlertState, str | None]:
    with Session(engine) as session:
        (alert,) = list_alerts(session)
    return alert.state, alert.acknowledged_by


def test_a_preview_of_a_link_acknowledges_nothing(client: TestClient, firing: Engine) -> None:
    page = client.get(address_in_message(firing))

    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert state_of_alert(firing) == (AlertState.FIRING, None)


def test_a_link_acknowledges_once(client: TestClient, firing: Engine) -> None:
    path, _, token = address_in_message(firing).partition("?token=")
    form = {"token": token, "person": "A. <b>Engineer", "reason": "looking into it"}

    first = client.post(path, data=form)
    second = client.post(path, data=form)

    assert (first.status_code, second.status_code) == (200, 409)
    assert state_of_alert(firing) == (AlertState.ACKNOWLEDGED, "A. <b>Engineer")


def test_a_link_that_was_changed_does_nothing(client: TestClient, firing: Engine) -> None:
    path, _, token = address_in_message(firing).partition("?token=")
    subject, episode, signature = token.split(".")
    others = [f"{subject}.2.{signature}", f"{'0' * 32}.{episode}.{signature}", "", "<script>"]

    statuses = [
        client.post(path, data={"token": other, "person": "a", "reason": "b"}).status_code
        for other in others
    ]

    assert statuses == [404, 404, 404, 404]
    assert [client.get(path, params={"token": other}).status_code for other in others] == [404] * 4
    assert state_of_alert(firing) == (AlertState.FIRING, None)


def test_an_invalid_acknowledgement_does_nothing(client: TestClient, firing: Engine) -> None:
    path, _, token = address_in_message(firing).partition("?token=")

    nameless = client.post(path, data={"token": token, "person": " ", "reason": "b"})
    long = client.post(path, data={"token": token, "person": "a", "reason": "b" * 9_000})

    assert (nameless.status_code, long.status_code) == (400, 413)
    assert state_of_alert(firing) == (AlertState.FIRING, None)
