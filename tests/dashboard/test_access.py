"""Permission to triage, and the settings of sign-in."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from roofwatch.dashboard import data
from roofwatch.dashboard.access import (
    DashboardError,
    NotAllowedError,
    Person,
    may_triage,
    person_of,
    sign_in_secrets,
)
from roofwatch.db.access import list_entries
from roofwatch.db.regressions.triage import StaleTriageError, regression_id
from roofwatch.model.triage import TriageState
from roofwatch.settings import Settings
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


def test_an_address_or_domain_may_triage_and_nothing_else_does() -> None:
    for entry in (
        "engineer@example.com",
        "Engineer@Example.com",
        "@example.com",
        f"{PROJECT}=engineer@example.com",
    ):
        assert may_triage(ENGINEER, PROJECT, [entry]), entry
    others = (
        "",
        "@",
        "example.com",
        "@ample.com",
        "somebody@example.com",
        "another/project=engineer@example.com",
    )
    for entry in others:
        assert not may_triage(ENGINEER, PROJECT, [entry]), entry


@pytest.mark.parametrize("verified", [False, "false", None, 1, "yes"])
def test_an_unverified_address_is_ignored(verified: object) -> None:
    person = person_of({"sub": "1", "email": "engineer@example.com", "email_verified": verified})
    assert person.email == ""
    assert not may_triage(person, PROJECT, ["@example.com", "engineer@example.com", "", "@"])


def test_a_decision_without_triage_rights_is_refused(
    store: Engine, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    regression = store_history(store)[0]
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", database_url.render_as_string(hide_password=False))
    monkeypatch.setenv("ROOFWATCH_TRIAGERS", "@example.com, somebody@example.org")
    forget_everything()
    about = (PROJECT, regression_id(regression), TriageState.INVALID)
    with pytest.raises(NotAllowedError, match=r"reader@example\.org may not"):
        data.decide(
            *about, seen=TriageState.NEW, person=Person("2", "reader@example.org"), reason="mine"
        )
    with pytest.raises(StaleTriageError):
        data.decide(*about, seen=TriageState.FIXED, person=ENGINEER, reason="seen too late")
    data.decide(*about, seen=TriageState.NEW, person=ENGINEER, reason="noise")
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
