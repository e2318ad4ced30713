"""Permission to triage, and the settings of sign-in."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from roofwatch.configuration.settings import Settings
from roofwatch.dashboard import access, data
from roofwatch.dashboard.access import (
    DashboardError,
    Person,
    may_triage,
    person_of,
    sign_in_secrets,
)
from roofwatch.db.access import list_entries
from roofwatch.db.regressions.deciding import DecisionKind, TriageDecision
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.regressions.triage import StaleTriageError
from tests.builders import PROJECT
from tests.dashboard.conftest import forget_everything
from tests.dashboard.history import store_history

ENGINEER = Person("1", "engineer@example.com")
SIGN_IN = Settings(
    dashboard_url="https://roofwatch.example.com/",
    sign_in_issuer="https://provider.example.com",
    sign_in_client_id="roofwatch",
    sign_in_client_secret=SecretStr("known to the provider"),
)


@pytest.mark.parametrize(
    "entry",
    [
        "engineer@example.com",
        "Engineer@Example.com",
        "@example.com",
        f"{PROJECT}=engineer@example.com",
    ],
)
def test_a_named_address_may_triage(entry: str) -> None:
    assert may_triage(ENGINEER, PROJECT, [entry])


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "@",
        "example.com",
        "@ample.com",
        "somebody@example.com",
        "another/project=engineer@example.com",
    ],
)
def test_another_address_may_not_triage(entry: str) -> None:
    assert not may_triage(ENGINEER, PROJECT, [entry])


@pytest.mark.parametrize("verified", [False, "false", None, 1, "yes"])
def test_an_unverified_address_is_ignored(verified: object) -> None:
    person = person_of({"sub": "1", "email": "engineer@example.com", "email_verified": verified})
    assert person.email == ""
    assert not may_triage(person, PROJECT, ["@example.com", "engineer@example.com", "", "@"])


TRIAGED = SIGN_IN.model_copy(update={"triagers": ["@example.com", "somebody@example.org"]})


def test_a_reader_may_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "load_settings", lambda: TRIAGED)
    monkeypatch.setattr(access, "person_here", lambda: Person("2", "reader@example.org"))
    signature, why_not = access.signature_here(PROJECT)
    assert signature is None
    assert "reader@example.org may read, but may not decide" in why_not


def test_a_decision_about_what_has_changed_meanwhile_is_refused(
    store: Engine, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(store)
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", database_url.render_as_string(hide_password=False))
    monkeypatch.setattr(access, "load_settings", lambda: TRIAGED)
    monkeypatch.setattr(access, "person_here", lambda: ENGINEER)
    forget_everything()
    signature, _ = access.signature_here(PROJECT)
    assert signature is not None
    with Session(store) as session:
        about = list_triaged(session, PROJECT)[-1]
    not_real = TriageDecision(kind=DecisionKind.NOT_REAL, reason="noise")
    assert data.decide(PROJECT, about, not_real, signature) == "set to invalid"
    with pytest.raises(StaleTriageError):
        data.decide(PROJECT, about, not_real, signature)
    forget_everything()
    with Session(store) as session:
        (entry,) = list_entries(session, PROJECT)
    assert (entry.person, entry.after, entry.reason) == ("engineer@example.com", "invalid", "noise")


def test_incomplete_sign_in_settings_are_refused_without_printing_secrets() -> None:
    assert sign_in_secrets(Settings()) == {}, "without a provider"
    partial = SIGN_IN.model_copy(update={"sign_in_client_id": None})
    with pytest.raises(DashboardError, match="sign_in_client_id") as refusal:
        sign_in_secrets(partial)
    assert "known to the provider" not in str(refusal.value)
    short = SIGN_IN.model_copy(update={"sign_in_cookie_secret": SecretStr("guess me")})
    with pytest.raises(DashboardError, match="32") as refusal:
        sign_in_secrets(short)
    assert "guess me" not in str(refusal.value)
