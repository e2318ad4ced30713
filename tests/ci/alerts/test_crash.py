"""A process is killed at every step of an alert: nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.alerting import read_alerts
from roofwatch.ci.alerts.delivery import AlertSetup, deliver_waiting
from roofwatch.ci.alerts.evaluation import raise_alerts
from roofwatch.db.alerts.alerts import list_alerts
from roofwatch.db.alerts.outbox import list_deliveries
from roofwatch.db.alerts.values import DeliveryState
from roofwatch.settings import Settings
from tests.builders import NOON, PROJECT
from tests.ci.alerts.receivers import Hook
from tests.ci.github.stand_in import REPOSITORY, TOKEN, GitHubStandIn

A_MINUTE_S = 60.0
LATER = NOON + timedelta(hours=2)
CHANNELS = {
    "hook": '{ kind = "webhook", url_env = "TEST_HOOK" }',
    "issues": f'{{ kind = "github", repository = "{REPOSITORY}", token_env = "TEST_TOKEN" }}',
}
STEPS = {
    "before commit 1": 0,
    "after commit 1": 0,
    "before sending": 0,
    "after sending": 1,
    "before commit 2": 1,
    "after commit 2": 1,
}
"""Where a delivery is killed, and how many messages were sent by then."""


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch, hook: Hook, github: GitHubStandIn) -> None:
    monkeypatch.setenv("TEST_HOOK", hook.url)
    monkeypatch.setenv("TEST_TOKEN", TOKEN)
    monkeypatch.setenv("GITHUB_API_URL", github.url)


def write_rules(folder: Path, channel: str) -> Path:
    path = folder / "alerts.toml"
    path.write_text(
        f"[channels]\n{channel} = {CHANNELS[channel]}\n"
        f'[[rules]]\nname = "slower"\nkind = "regression"\nwithin_days = 9999\nchannels = ["{channel}"]\n'
    )
    return path


def configured(rules: Path) -> AlertSetup:
    return read_alerts(rules, Settings())


def run_until_killed(engine: Engine, rules: Path, doing: str, step: str) -> None:
    url, before = engine.url.render_as_string(hide_password=False), clients(engine)
    command = [sys.executable, "-m", "tests.ci.alerts.one_worker"]
    ended = subprocess.run(
        command, input="\n".join((url, str(rules), doing, step)), text=True, env=os.environ, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    # Postgres notices the closed connection a moment later, and keeps its locks until then
    deadline_s = time.monotonic() + A_MINUTE_S
    while not clients(engine) <= before:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def clients(engine: Engine) -> set[int]:
    """Backend processes of this database."""
    serving = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    with engine.connect() as connection:
        return set(connection.scalars(text(serving)))


@pytest.mark.slow
@pytest.mark.parametrize(("channel", "step"), [*(("hook", step) for step in STEPS), ("issues", "after sending")])
def test_a_killed_sender_loses_nothing_and_repeats_the_same_key(
    judged: Engine, tmp_path: Path, hook: Hook, github: GitHubStandIn, channel: str, step: str
) -> None:
    rules = write_rules(tmp_path, channel)
    raise_alerts(judged, configured(rules).plan, LATER)

    run_until_killed(judged, rules, "deliver", step)
    assert len(hook.keys + [issue["body"].splitlines()[0] for issue in github.issues.values()]) == STEPS[step]
    deliver_waiting(judged, configured(rules).channels, lambda: LATER)

    keys = hook.keys + [issue["body"].splitlines()[0] for issue in github.issues.values()]
    assert len(set(keys)) == 1
    repeats = channel != "issues" and step in {"after sending", "before commit 2"}
    assert len(keys) == (2 if repeats else 1)
    with Session(judged) as session:
        (delivery,) = list_deliveries(session)
    assert delivery.state is DeliveryState.SENT


@pytest.mark.parametrize("step", ["before commit 1", "after commit 1"])
def test_an_alert_and_its_notifications_are_stored_in_one_transaction(
    judged: Engine, tmp_path: Path, step: str
) -> None:
    rules = write_rules(tmp_path, "hook")

    run_until_killed(judged, rules, "raise", step)

    with Session(judged) as session:
        written = len(list_alerts(session, PROJECT)), len(list_deliveries(session, PROJECT))
    assert written == ((0, 0) if step == "before commit 1" else (1, 1))
    raise_alerts(judged, configured(rules).plan, LATER)
    with Session(judged) as session:
        assert len(list_deliveries(session, PROJECT)) == 1
