"""The alert commands, and alerts of the service."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from roofwatch.alerting import configured_ownership, read_alerts
from roofwatch.api.app import create_app
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.settings import Settings
from tests.builders import PROJECT, make_commit, make_record, make_regression
from tests.ci.alerts.conftest import Hook
from tests.ci.github.stand_in import TOKEN, GitHubStandIn
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
    variables = {"ROOFWATCH_DATABASE_URL": url, "ROOFWATCH_ALERT_RULES": "alerts.toml", "TEST_HOOK": hook.url}
    return lambda *arguments: roofwatch("alert", *arguments, cwd=folder, **variables)


def test_rules_are_checked_and_nothing_is_sent_or_stored(command: Callable[..., Done], hook: Hook) -> None:
    checked = command("check", "--json")

    assert checked.status == 0, checked.error
    titles = {one["rule"]: one["conditions"][0]["message"]["title"] for one in checked.parsed["checks"]}
    assert titles["slower"] == "rms_norm became 20 % slower on 1 series on Example CPU"
    assert titles["silent"].startswith("no results from ")
    assert hook.documents == []
    assert command("list", "--json").parsed == {"alerts": [], "deliveries": []}


def test_a_rule_that_matches_nothing_is_a_fault(command: Callable[..., Done], folder: Path) -> None:
    rules = RULES.replace('kind = "regression"', 'kind = "regression"\nkernels = ["flashattn_*"]')
    (folder / "alerts.toml").write_text(rules)

    checked = command("check")

    assert checked.status == 1
    assert "rule 'slower': matches 0 of 1 kernel: rms_norm" in checked.error


def test_alerts_are_raised_sent_listed_and_acknowledged(command: Callable[..., Done], hook: Hook) -> None:
    first, second = command("run"), command("run")
    listed = command("list", "--json").parsed["alerts"]
    (slower,) = [one for one in listed if one["alert"]["rules"] == ["slower"]]
    acknowledged = command("acknowledge", slower["alert_id"], "--person", "A Person", "--reason", "at it")

    assert (first.status, second.status, acknowledged.status) == (0, 0, 0), first.error + acknowledged.error
    assert sorted(document["rules"][0] for document in hook.documents) == ["silent", "silent", "slower"]
    assert "nothing changed" in second.output
    assert "acknowledged by A Person" in command("list").output


def test_a_failed_message_waits_and_the_exit_status_is_1(command: Callable[..., Done], hook: Hook) -> None:
    hook.status = 500

    ran = command("run", "--json")

    assert ran.status == 1
    assert {(one["state"], one["error"]) for one in ran.parsed["deliveries"]} == {("waiting", "HTTP 500")}
    assert "HTTP 500" in command("list").output


def test_a_test_message_is_sent_and_an_unknown_channel_refused(command: Callable[..., Done], hook: Hook) -> None:
    assert command("test", "filed").status == 0
    unknown = command("test", "pigeon")

    assert hook.documents[0]["title"] == "test of the channel filed: nothing is wrong"
    assert (unknown.status, "the rules have hook, filed" in unknown.error) == (2, True)


def test_the_service_sends_alerts_after_analysis(
    judged: Engine, folder: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_HOOK", hook.url)
    alerts = read_alerts(folder / "alerts.toml", Settings())
    now = datetime.now(UTC)
    ingest_record(judged, make_record(5, commit=make_commit(5, committed_at=now - timedelta(hours=1))))
    replace_regressions(judged, PROJECT, [make_regression(1, is_confirmed=True, is_alert=True)])

    with TestClient(create_app(judged, version="0", analyses=False, alerts=alerts)):
        hook.arrived.wait(timeout=30)

    assert hook.documents


def test_codeowners_are_read_from_a_repository_on_github(
    folder: Path, github: GitHubStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "alerts.toml").write_text('codeowners_repository = "example/project"')
    github.files["CODEOWNERS"] = "/kernels/ @owner"
    monkeypatch.setenv("GITHUB_API_URL", github.url)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)

    ownership = configured_ownership(Settings(alert_rules=folder / "alerts.toml"))

    assert replace(ownership, source_paths={"rms_norm": "kernels/rms_norm.py"}).owners_of(["rms_norm"]) == ("@owner",)
