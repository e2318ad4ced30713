"""From records to messages: analysed, notified, bisected, resolved."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from roofwatch.api.app import analyse_waiting
from roofwatch.ci.alerts.channels import open_channel
from roofwatch.ci.alerts.delivery import deliver_waiting
from roofwatch.ci.alerts.evaluation import AlertSetup, raise_alerts
from roofwatch.ci.alerts.rules import parse_rules
from roofwatch.db.auth.values import TriageState
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import list_triaged, request_analysis
from roofwatch.db.schema.regressions import BisectionRow
from roofwatch.db.values import BisectionState, Verdict
from tests.builders import NOON, PROJECT, make_commit, make_measurement, make_record, sha_of
from tests.ci.alerts.conftest import Hook

RULES = parse_rules(
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


def test_a_slowdown_on_main_is_reported_once_bisected_and_resolved(
    store: Engine, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    monkeypatch.setenv("HOOK", hook.url)
    channels = {name: open_channel(one, Path(), api_url="") for name, one in RULES.channels.items()}

    def measure(first: int, count: int, level_ns: float, branch: str = "main") -> None:
        """Measure one commit per hour, then analyse and notify as the service does."""
        for number in range(first, first + count):
            measured = make_measurement(median_ns=level_ns * (1 + 0.005 * rng.standard_normal()))
            commit = make_commit(number, branch=branch)
            ingest_record(store, make_record(number, commit=commit, measurements=[measured]))
        request_analysis(store, PROJECT)
        assert analyse_waiting(store) == [PROJECT]
        now = NOON + timedelta(hours=first + count)
        raise_alerts(store, AlertSetup(RULES), now)
        deliver_waiting(store, channels, lambda: now)

    measure(0, 20, 10_000.0)
    assert hook.documents == []
    measure(20, 12, 12_000.0)
    measure(32, 4, 12_000.0)
    assert [document["event"] for document in hook.documents] == ["fired"]
    assert {"name": "Since", "text": since(20)} in hook.documents[0]["facts"]
    with Session(store) as session:
        (bisection,) = session.scalars(select(BisectionRow))
    assert bisection.state is BisectionState.REQUESTED

    measure(36, 14, 10_000.0)

    assert [document["event"] for document in hook.documents] == ["fired", "resolved"]
    with Session(store) as session:
        states = [(one.regression.verdict, one.triage.state) for one in list_triaged(session, PROJECT)]
    assert (Verdict.REGRESSED, TriageState.FIXED) in states


def since(number: int) -> str:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(hours=number)
    return f"{sha_of(number)[:8]} Change number {number} (Test Author, {at:%Y-%m-%d})"
