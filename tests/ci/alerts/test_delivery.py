"""Delivery of messages, and retries."""

import hmac
import logging
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.channels import open_channel
from roofwatch.ci.alerts.evaluation import (
    MAX_ATTEMPTS,
    AlertSetup,
    Send,
    deliver_waiting,
    raise_alerts,
)
from roofwatch.ci.alerts.rules_file import parse_rules
from roofwatch.ci.messages import AlertError
from roofwatch.db.regressions import decisions
from roofwatch.db.regressions.alerts import CLAIMED_FOR, acknowledge, list_alerts, list_deliveries
from roofwatch.db.regressions.decisions import Signature
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.db.schema.regressions import AlertRow, DeliveryRow
from roofwatch.model.alert import AlertState, Delivery, DeliveryState
from roofwatch.model.triage import Snooze, TriageState
from tests.builders import NOON, PROJECT, make_commit_ref, make_regression, make_series_key, sha_of
from tests.ci.alerts.conftest import Hook
from tests.ci.forges.stand_in import TOKEN, GitHubStandIn

LATER = NOON + timedelta(hours=2)
HOUR = timedelta(hours=1)
RULES = """
[channels]
hook = { kind = "webhook", url_env = "HOOK" }
chat = { kind = "apprise", url_env = "CHAT" }
issues = { kind = "github", repository = "example/project", token_env = "TOKEN", labels = ["performance"] }
[[rules]]
name = "slower"
kind = "regression"
channels = ["%s"]
escalate_after_hours = 4
escalate_to = ["chat"]
"""


class Service:
    """Raises alerts and delivers messages as the service does."""

    def __init__(self, engine: Engine, channel: str, api_url: str = "") -> None:
        self.engine = engine
        self.plan = AlertSetup(parse_rules(RULES % channel))
        named = {
            name: one for name, one in self.plan.rules.channels.items() if name in {channel, "chat"}
        }
        self.channels: dict[str, Send | str] = {
            name: open_channel(one, Path(), api_url=api_url) for name, one in named.items()
        }

    def at(self, now: datetime) -> list[Delivery]:
        raise_alerts(self.engine, self.plan, now)
        return deliver_waiting(self.engine, self.channels, lambda: now)


@pytest.fixture(autouse=True)
def _addresses(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", hook.url)
    monkeypatch.setenv("CHAT", hook.url.replace("http://", "json://"))
    monkeypatch.setenv("TOKEN", TOKEN)


def recover(engine: Engine) -> None:
    recovered = make_regression(
        1, is_confirmed=True, is_alert=True, recovered_at=make_commit_ref(2)
    )
    replace_regressions(engine, PROJECT, [recovered])


def test_a_webhook_gets_a_document_with_a_key(judged: Engine, hook: Hook) -> None:
    Service(judged, "hook").at(LATER)

    (document,) = hook.documents
    assert (document["event"], document["rules"], document["project"]) == (
        "fired",
        ["slower"],
        PROJECT,
    )
    assert (document["base_sha"], document["head_sha"]) == (
        make_commit_ref(0).sha,
        make_commit_ref(1).sha,
    )
    change = document["changes"][0]
    assert (change["kernel"], change["before"], change["after"]) == ("rms_norm", 10_000.0, 12_000.0)
    with Session(judged) as session:
        assert hook.keys == [str(one.key) for one in list_deliveries(session)]


def test_resolved_names_the_new_value_with_its_commit(judged: Engine, hook: Hook) -> None:
    service = Service(judged, "hook")
    service.at(LATER)
    recover(judged)

    service.at(LATER + HOUR)

    fact = hook.documents[-1]["facts"][0]
    recovered = make_commit_ref(2)
    assert (hook.documents[-1]["event"], fact["name"]) == ("resolved", "Resolved")
    assert fact["text"] == (
        f"recovered at {recovered.short_sha} ({recovered.subject}, {recovered.author}); "
        f"{make_series_key().label}: 10 µs at {recovered.short_sha}, was 12 µs"
    )


def test_a_webhook_is_signed_with_its_secret(
    judged: Engine, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "correct horse battery staple")
    rules = parse_rules(
        RULES.replace('url_env = "HOOK"', 'url_env = "HOOK", secret_env = "SECRET"') % "hook"
    )
    raise_alerts(judged, AlertSetup(rules), LATER)

    channels: dict[str, Send | str] = {
        "hook": open_channel(rules.channels["hook"], Path(), api_url="")
    }
    deliver_waiting(judged, channels, lambda: LATER)

    expected = hmac.new(b"correct horse battery staple", hook.bodies[0], "sha256").hexdigest()
    assert hook.signatures == [f"sha256={expected}"]
    assert hook.documents[0]["key"] == hook.keys[0]


def test_a_missing_secret_is_refused(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    monkeypatch.delenv("SECRET", raising=False)
    rules = parse_rules(
        RULES.replace('url_env = "HOOK"', 'url_env = "HOOK", secret_env = "SECRET"') % "hook"
    )

    with pytest.raises(AlertError, match="SECRET must have 16 characters"):
        open_channel(rules.channels["hook"], Path(), api_url="")


def test_apprise_services_are_notified(judged: Engine, hook: Hook) -> None:
    Service(judged, "chat").at(LATER)

    (document,) = hook.documents
    assert (
        document["title"]
        == "[example/project] warning: rms_norm became 20 % slower on 1 series on Example CPU"
    )
    assert document["type"] == "failure"


def test_an_issue_follows_its_episode_to_the_end(judged: Engine, github: GitHubStandIn) -> None:
    service = Service(judged, "issues", github.url)

    service.at(LATER)
    recover(judged)
    service.at(LATER + HOUR)
    replace_regressions(judged, PROJECT, [make_regression(1, is_confirmed=True, is_alert=True)])
    service.at(LATER + 30 * HOUR)

    first, second = github.issues.values()
    assert [issue["state"] for issue in (first, second)] == ["closed", "open"]
    assert {label["name"] for label in first["labels"]} == {"roofwatch", "performance"}
    assert len(github.comments) == 1


@pytest.mark.usefixtures("waits_s")
@pytest.mark.parametrize("is_carried_out", [True, False])
def test_an_issue_with_an_unknown_outcome_is_opened_once(
    judged: Engine, github: GitHubStandIn, is_carried_out: bool
) -> None:
    github.break_connection("create_issue", is_carried_out=is_carried_out)
    service = Service(judged, "issues", github.url)

    service.at(LATER)
    service.at(LATER + HOUR)

    assert len(github.issues) == 1


def test_a_channel_that_is_down_gets_its_messages_in_order_when_it_is_up_again(
    judged: Engine, hook: Hook
) -> None:
    service = Service(judged, "hook")
    hook.status, hook.is_deaf = 503, True
    (failed,) = service.at(LATER)
    recover(judged)
    assert service.at(LATER + timedelta(seconds=30)) == [], "order is kept"
    hook.status, hook.is_deaf = 204, False

    service.at(LATER + 2 * HOUR)

    assert (failed.state, failed.error) == (DeliveryState.WAITING, "HTTP 503")
    assert [document["event"] for document in hook.documents] == ["fired", "resolved"]


def test_a_busy_webhook_is_left_alone_for_as_long_as_it_asks(judged: Engine, hook: Hook) -> None:
    service = Service(judged, "hook")
    hook.status, hook.headers = 429, {"Retry-After": "1800"}

    service.at(LATER)

    assert service.at(LATER + timedelta(minutes=29)) == []
    assert len(service.at(LATER + timedelta(minutes=31))) == 1


def test_after_the_last_attempt_a_message_is_marked_failed(judged: Engine, hook: Hook) -> None:
    service = Service(judged, "hook")
    hook.status = 500

    tries = [
        len(service.at(LATER + number * timedelta(hours=6))) for number in range(MAX_ATTEMPTS + 3)
    ]

    with Session(judged) as session:
        delivery = next(one for one in list_deliveries(session) if one.channel == "hook")
    assert sum(tries) >= MAX_ATTEMPTS
    assert len(set(filter(None, hook.keys))) == 1
    assert (delivery.state, delivery.attempt_count, delivery.error) == (
        DeliveryState.FAILED,
        MAX_ATTEMPTS,
        "HTTP 500",
    )


def _broken(delivery: Delivery) -> None:
    """A channel with a bug."""
    raise ZeroDivisionError(f"{delivery.alert.rules} {delivery.key}")


def test_an_unexpected_error_does_not_block_other_messages(judged: Engine) -> None:
    service = Service(judged, "hook")
    service.channels["hook"] = _broken

    (broken,) = service.at(LATER)
    later = service.at(LATER + 5 * HOUR)

    assert broken.error == "unexpected ZeroDivisionError"
    assert {one.channel: one.state for one in later} == {
        "hook": DeliveryState.WAITING,
        "chat": DeliveryState.SENT,
    }


DYING = """
import os, signal, sys
from datetime import datetime
from sqlalchemy import create_engine
from roofwatch.ci.alerts.channels import open_webhook
from roofwatch.ci.alerts.evaluation import deliver_waiting

def die(delivery):
    if sys.argv[3] == "True":
        open_webhook(sys.argv[2])(delivery)
    os.kill(os.getpid(), signal.SIGKILL)

deliver_waiting(create_engine(sys.argv[1]), {"hook": die}, lambda: datetime.fromisoformat(sys.argv[4]))
"""


@pytest.mark.parametrize("is_sent", [False, True])
def test_the_message_of_a_killed_process_is_sent_again_with_the_same_key(
    judged: Engine, hook: Hook, is_sent: bool
) -> None:
    service = Service(judged, "hook")
    raise_alerts(judged, service.plan, LATER)
    arguments = [
        judged.url.render_as_string(hide_password=False),
        hook.url,
        str(is_sent),
        LATER.isoformat(),
    ]

    killed = subprocess.run([sys.executable, "-c", DYING, *arguments], check=False)
    assert deliver_waiting(judged, service.channels, lambda: LATER) == [], (
        "another process may still be sending it"
    )
    (delivery,) = deliver_waiting(judged, service.channels, lambda: LATER + CLAIMED_FOR)

    assert killed.returncode == -signal.SIGKILL
    assert (delivery.state, delivery.is_uncertain) == (DeliveryState.SENT, True)
    assert (len(hook.keys), len(set(hook.keys))) == (2 if is_sent else 1, 1)


def test_many_workers_send_each_message_once(judged: Engine, hook: Hook) -> None:
    service = Service(judged, "hook")
    raise_alerts(judged, service.plan, LATER)
    with judged.begin() as connection:
        copy = (
            "INSERT INTO delivery SELECT (jsonb_populate_record(d, jsonb_build_object('id', 100 + "
            "n, 'episode', 1 + n, "
            "'channel', 'hook', 'key', gen_random_uuid()))).* FROM delivery d, generate_series(1, "
            "11) n"
        )
        connection.execute(text("ALTER TABLE delivery ALTER id SET GENERATED BY DEFAULT"))
        connection.execute(text(copy))

    with ThreadPoolExecutor(4) as pool:
        done = list(
            pool.map(lambda _: deliver_waiting(judged, service.channels, lambda: LATER), range(4))
        )
    done.append(deliver_waiting(judged, service.channels, lambda: LATER))

    assert len(hook.keys) == len(set(hook.keys)) == 12
    assert sum(map(len, done)) == 12


def acknowledge_only_alert(judged: Engine, service: Service) -> None:
    """Raise the alert of the only regression, and acknowledge it."""
    service.at(LATER)
    with Session(judged) as session:
        (alert,) = list_alerts(session)
    acknowledge(judged, alert.alert_id, person="A Person", reason="at it", actor="test", now=LATER)


def test_acknowledging_an_alert_acknowledges_its_regression(judged: Engine, hook: Hook) -> None:
    service = Service(judged, "hook")
    acknowledge_only_alert(judged, service)

    service.at(LATER + 10 * HOUR)

    with Session(judged) as session:
        (alert,), (triaged,) = list_alerts(session), list_triaged(session, PROJECT)
    assert alert.state is AlertState.ACKNOWLEDGED
    assert (triaged.triage.state, triaged.triage.person) == (TriageState.ACKNOWLEDGED, "A Person")


def test_acknowledging_an_alert_stops_escalation(judged: Engine, hook: Hook) -> None:
    service = Service(judged, "hook")
    acknowledge_only_alert(judged, service)

    service.at(LATER + 10 * HOUR)

    assert len(hook.documents) == 1


def snooze(judged: Engine, until: Snooze) -> None:
    signature = Signature(person="wen@example.com", actor="test")
    with Session(judged) as session, session.begin():
        (triaged,) = list_triaged(session, PROJECT)
        decisions.snooze(session, PROJECT, triaged.triage.regression_id, until, signature)


@pytest.mark.parametrize(
    "until",
    [Snooze(until=datetime(2_999, 1, 1, tzinfo=UTC)), Snooze(until_sha=sha_of(77))],
    ids=["time", "commit"],
)
def test_a_snoozed_regression_sends_nothing(judged: Engine, hook: Hook, until: Snooze) -> None:
    snooze(judged, until)

    Service(judged, "hook").at(LATER + HOUR)

    assert hook.documents == []


def test_the_end_of_a_snooze_that_was_shortened_asks_again(judged: Engine, hook: Hook) -> None:
    """Also about a regression that is too old for a first message."""
    service = Service(judged, "hook")
    snooze(judged, Snooze(until=datetime(2_999, 1, 1, tzinfo=UTC)))
    service.at(LATER + HOUR)
    snooze(judged, Snooze(until_sha=sha_of(77)))
    service.at(LATER + 2 * HOUR)
    assert hook.documents == []

    snooze(judged, Snooze(until=NOON))
    service.at(LATER + 100 * 24 * HOUR)

    assert [document["event"] for document in hook.documents] == ["fired"]


@pytest.mark.parametrize(
    ("channel", "address"),
    [
        ("hook", "https://127.0.0.1:1/services/SECRET-path?key=SECRET-query"),
        ("chat", "json://SECRET-user:SECRET-word@127.0.0.1:1/SECRET-path"),
    ],
)
def test_addresses_are_written_nowhere(
    judged: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    channel: str,
    address: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    name = {"hook": "HOOK", "chat": "CHAT"}[channel]
    monkeypatch.setenv(name, address)
    service = Service(judged, channel)

    (delivery,) = service.at(LATER)

    assert delivery.error is not None
    assert "SECRET" not in delivery.error + caplog.text + repr(service.channels)
    with judged.connect() as connection:
        rows = (
            connection.execute(select(AlertRow)).all(),
            connection.execute(select(DeliveryRow)).all(),
        )
    assert "SECRET" not in str(rows)


@pytest.mark.parametrize(
    ("kind", "address", "message"),
    [
        ("webhook", "http://example.com/x", "must be an https"),
        ("webhook", "", "is missing or empty"),
        ("webhook", "https://a https://b", "has several"),
        ("apprise", "no-such-service://x", "no form that apprise supports"),
    ],
)
def test_an_invalid_address_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, address: str, message: str
) -> None:
    rules = parse_rules(f'[channels]\none = {{ kind = "{kind}", url_env = "ONE" }}\n')
    monkeypatch.setenv("ONE", address)

    with pytest.raises(AlertError, match=message) as caught:
        open_channel(rules.channels["one"], Path(), api_url="")

    assert not address or address not in str(caught.value)
