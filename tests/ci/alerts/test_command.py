"""The alert commands, alerts of the service, and an episode from slowdown to resolution."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from roofwatch.api.app import create_app
from roofwatch.api.worker import analyse_waiting
from roofwatch.ci.alerts.channels import open_channel
from roofwatch.ci.alerts.evaluation import AlertSetup, deliver_waiting, raise_alerts
from roofwatch.ci.alerts.rules_file import parse_rules
from roofwatch.configuration.settings import Settings
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions, request_analysis
from roofwatch.db.schema.regressions import BisectionRow
from roofwatch.model.triage import BisectionState, TriageState
from roofwatch.model.verdict import Verdict
from roofwatch.regressions.alerting import configured_ownership, read_alerts
from tests.builders import (
    NOON,
    PROJECT,
    make_commit,
    make_measurement,
    make_record,
    make_regression,
    sha_of,
)
from tests.ci.alerts.conftest import Hook
from tests.roofwatch.command import Done, roofwatch

RULES = """
codeowners = "."
[channels]
hook = { kind = "webhook", url_env = "TEST_HOOK" }
filed = { kind = "webhook", url_file = "hook.url" }
[[rules]]
name = "slower"
kind = "regression"
within_days = 9999
channels = ["hook"]
[[rules]]
name = "silent"
kind = "silence"
after_hours = 1
within_days = 9999
severity = "critical"
channels = ["hook", "filed"]
"""


@pytest.fixture
def folder(tmp_path: Path, hook: Hook) -> Path:
    (tmp_path / "alerts.toml").write_text(RULES)
    (tmp_path / "hook.url").write_text(f"{hook.url}\n")
    (tmp_path / "CODEOWNERS").write_text("* @owner\n")
    return tmp_path


@pytest.fixture
def command(judged: Engine, hook: Hook, folder: Path) -> Callable[..., Done]:
    url = judged.url.render_as_string(hide_password=False)
    variables = {
        "ROOFWATCH_DATABASE_URL": url,
        "ROOFWATCH_ALERT_RULES": "alerts.toml",
        "TEST_HOOK": hook.url,
    }
    return lambda *arguments: roofwatch("alert", *arguments, cwd=folder, **variables)


def test_a_check_shows_what_rules_report_without_sending_it(
    command: Callable[..., Done], hook: Hook
) -> None:
    checked = command("check", "--json")

    assert checked.status == 0, checked.error
    titles = {
        check["rule"]: check["conditions"][0]["message"]["title"]
        for check in checked.parsed["checks"]
    }
    assert titles["slower"] == "rms_norm became 20 % slower on 1 series on Example CPU"
    assert titles["silent"].startswith("no results from ")
    assert hook.documents == []
    listed = command("list", "--json").parsed
    assert (listed["alerts"], listed["deliveries"]) == ([], [])


def test_a_check_fails_with_a_rule_that_matches_nothing(
    command: Callable[..., Done], folder: Path
) -> None:
    rules = RULES.replace('kind = "regression"', 'kind = "regression"\nkernels = ["flashattn_*"]')
    (folder / "alerts.toml").write_text(rules)

    idle = command("check")

    assert idle.status == 1
    assert "rule 'slower': matches 0 of 1 kernel: rms_norm" in idle.error


@pytest.mark.parametrize(
    ("against", "status", "reason"),
    [("14 dayz", 2, "'14 dayz' is no time"), ("14dayz", 1, "rule 'slower' can never fire")],
)
def test_a_comparison_with_nothing_is_refused(
    command: Callable[..., Done], folder: Path, against: str, status: int, reason: str
) -> None:
    """It was accepted, and never fired."""
    level = f'kind = "level"\nmetric = "median_ns"\ngrows_by = "5%"\nagainst = "{against}"'
    (folder / "alerts.toml").write_text(RULES.replace('kind = "regression"', level))

    done = command("check")

    assert done.status == status
    assert reason in done.error


def test_an_alert_lives_from_its_message_to_its_acknowledgement(
    command: Callable[..., Done], hook: Hook
) -> None:
    first, second = command("run"), command("run")
    listed = command("list", "--json").parsed["alerts"]
    (slower,) = [one for one in listed if one["alert"]["rules"] == ["slower"]]
    acknowledged = command(
        "acknowledge", slower["alert_id"], "--person", "A Person", "--reason", "at it"
    )

    assert (first.status, second.status, acknowledged.status) == (0, 0, 0), (
        first.error + acknowledged.error
    )
    assert sorted(document["rules"][0] for document in hook.documents) == [
        "silent",
        "silent",
        "slower",
    ]
    assert "nothing changed" in second.output
    # a table wraps its cells, so words of other cells are between these
    words = command("list").output.split()
    assert "acknowledged" in words
    assert "Person" in words
    listed = command("list", "--json").parsed["alerts"]
    (slower,) = [one for one in listed if one["alert"]["rules"] == ["slower"]]
    assert slower["alert"]["acknowledged_by"] == "A Person"


def test_a_failed_message_waits_with_exit_status_1(
    command: Callable[..., Done], hook: Hook
) -> None:
    hook.status = 500

    ran = command("run", "--json")

    assert ran.status == 1
    assert {(one["state"], one["error"]) for one in ran.parsed["deliveries"]} == {
        ("waiting", "HTTP 500")
    }
    assert "HTTP 500" in command("list").output


def test_a_test_message_is_sent(command: Callable[..., Done], hook: Hook) -> None:
    assert command("test", "filed").status == 0

    assert hook.documents[0]["title"] == "the channel filed works"


def test_a_test_of_an_unknown_channel_is_refused(command: Callable[..., Done], hook: Hook) -> None:
    unknown = command("test", "pigeon")

    assert unknown.status == 2
    assert "the rules have hook, filed" in unknown.error
    assert hook.documents == []


def test_the_service_sends_alerts_after_analysis(
    judged: Engine, folder: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_HOOK", hook.url)
    alerts = read_alerts(folder / "alerts.toml", Settings())
    now = datetime.now(UTC)
    ingest_record(
        judged, make_record(5, commit=make_commit(5, committed_at=now - timedelta(hours=1)))
    )
    replace_regressions(judged, PROJECT, [make_regression(1, is_confirmed=True, is_alert=True)])

    with TestClient(create_app(judged, version="0", alerts=alerts)):
        hook.arrived.wait(timeout=30)

    assert hook.documents


def test_codeowners_are_read_from_a_checkout(folder: Path) -> None:
    ownership = configured_ownership(Settings(alert_rules=folder / "alerts.toml"))

    assert replace(ownership, source_paths={"rms_norm": "kernels/rms_norm.py"}).owners_of(
        ["rms_norm"]
    ) == ("@owner",)


EPISODE_RULES = parse_rules(
    """
    [channels]
    hook = { kind = "webhook", url_env = "HOOK" }
    [[rules]]
    name = "slower"
    kind = "regression"
    channels = ["hook"]
    bisects = true
    """
)


def test_a_slowdown_on_main_goes_through_one_whole_episode(
    store: Engine, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    monkeypatch.setenv("HOOK", hook.url)
    channels = {
        name: open_channel(one, Path(), api_url="") for name, one in EPISODE_RULES.channels.items()
    }

    def measure(first: int, count: int, level_ns: float) -> None:
        """Measure one commit per hour, then analyse and notify as the service does."""
        for number in range(first, first + count):
            measured = make_measurement(median_ns=level_ns * (1 + 0.005 * rng.standard_normal()))
            ingest_record(store, make_record(number, measurements=[measured]))
        request_analysis(store, PROJECT)
        assert analyse_waiting(store) == [PROJECT]
        now = NOON + timedelta(hours=first + count)
        raise_alerts(store, AlertSetup(EPISODE_RULES), now)
        deliver_waiting(store, channels, lambda: now)

    measure(0, 20, 10_000.0)
    assert hook.documents == []
    measure(20, 12, 12_000.0)
    measure(32, 8, 12_000.0)
    assert [document["event"] for document in hook.documents] == ["fired"]
    assert {"name": "Since", "text": since(20)} in hook.documents[0]["facts"]
    with Session(store) as session:
        (bisection,) = session.scalars(select(BisectionRow))
    assert bisection.state is BisectionState.REQUESTED

    measure(40, 14, 10_000.0)

    assert [document["event"] for document in hook.documents] == ["fired", "resolved"]
    with Session(store) as session:
        states = [
            (one.regression.verdict, one.triage.state) for one in list_triaged(session, PROJECT)
        ]
    assert (Verdict.REGRESSED, TriageState.FIXED) in states


def since(number: int) -> str:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(hours=number)
    return f"{sha_of(number)[:8]} Change number {number} (Test Author, {at:%Y-%m-%d})"
