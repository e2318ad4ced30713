"""Tokens: storage, validity, revocation."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.access import check_token, create_token, list_entries, list_tokens, revoke_token
from roofwatch.db.errors import StoreError
from roofwatch.model.history import Scope
from tests.api.conftest import NOW
from tests.api.conftest import new_token as make_token
from tests.builders import PROJECT

MINUTE = timedelta(minutes=1)


def last_use(store: Engine) -> datetime | None:
    with Session(store) as session:
        return list_tokens(session)[0].last_used_at


def test_token_is_valid_until_it_expires(store: Engine) -> None:
    new = make_token(store, Scope.READ, Scope.INGEST)

    checked = check_token(store, new.text, NOW)

    assert checked is not None
    assert (checked.token_id, checked.scopes) == (new.token.token_id, (Scope.INGEST, Scope.READ))
    assert check_token(store, new.text, new.token.expires_at - MINUTE) is not None
    assert check_token(store, new.text, new.token.expires_at) is None


def test_secret_is_not_stored(store: Engine) -> None:
    new = make_token(store)
    secret = new.text.split("_", 2)[2]

    with store.connect() as connection:
        stored = connection.execute(
            text("SELECT t::text, encode(secret_sha256, 'escape') FROM token t")
        ).one()
        audited = connection.execute(text("SELECT a::text FROM audit_entry a")).scalars().all()

    assert len(secret) == 43, "256 bits"
    assert secret not in "".join([*stored, *audited, repr(new.token)])
    assert new.text.split("_")[1] == new.token.token_id


def test_last_use_is_recorded_once_per_minute(store: Engine) -> None:
    new = make_token(store)
    assert last_use(store) is None
    noted = []
    for seconds in (0, 59, 60, 61):
        check_token(store, new.text, NOW + timedelta(seconds=seconds))
        noted.append(last_use(store))

    assert noted == [NOW, NOW, NOW + MINUTE, NOW + MINUTE]


def test_revoked_token_is_refused(store: Engine) -> None:
    new = make_token(store)

    revoke_token(store, new.token.token_id, now=NOW, actor="test")

    assert check_token(store, new.text, NOW) is None


def test_token_is_listed_as_revoked_when_it_was_revoked_first(store: Engine) -> None:
    new = make_token(store)

    revoked = [
        revoke_token(store, new.token.token_id, now=NOW + MINUTE * n, actor="test") for n in (0, 1)
    ]

    assert [token.revoked_at for token in revoked] == [NOW, NOW]
    with Session(store) as session:
        assert [token.revoked_at for token in list_tokens(session)] == [NOW]
        actions = [entry.action for entry in list_entries(session, PROJECT)]
    assert actions == ["token.revoke", "token.create"]


@pytest.mark.parametrize("days", [0, 367])
def test_invalid_validity_is_refused(store: Engine, days: int) -> None:
    with pytest.raises(StoreError, match="1 to 366 days"):
        make_token(store, days=days)


def test_token_without_a_scope_is_refused(store: Engine) -> None:
    with pytest.raises(StoreError, match="ingest, read, triage, run, runner, admin"):
        create_token(
            store, name="", project=None, scopes=(), now=NOW, validity=MINUTE, actor="test"
        )


def test_a_scope_of_a_newer_server_is_no_scope_here(store: Engine) -> None:
    new = create_token(
        store,
        name="",
        project="kernels",
        scopes=(Scope.READ,),
        now=NOW,
        validity=MINUTE,
        actor="test",
    )
    with store.begin() as connection:
        connection.execute(text("ALTER TABLE token DROP CONSTRAINT ck_token_scopes"))
        connection.execute(text("UPDATE token SET scopes = '{read,orbit}'"))

    checked = check_token(store, new.text, NOW)
    assert checked is not None
    assert checked.scopes == (Scope.READ,)
