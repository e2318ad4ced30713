"""A bisection in the database while it runs."""

from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.bisection.job import StoredBisection
from roofwatch.db.bisections import BisectionProgress, ClaimLostError, begin_bisection, read_bisection
from roofwatch.db.values import BisectionRange, BisectionState
from tests.builders import PROJECT, sha_of
from tests.db.test_bisections import PROGRESS

COMMIT_RANGE = BisectionRange(PROJECT, "total/n=500/float32/fwd", None, sha_of(0), sha_of(4))


@pytest.fixture
def stored(store: Engine) -> StoredBisection:
    claim = begin_bisection(store, COMMIT_RANGE, uuid4(), requested_by="command line")
    return StoredBisection(store.url.render_as_string(hide_password=False), claim)


def test_secrets_in_errors_are_not_stored(
    store: Engine, stored: StoredBisection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_TOKEN", "q8Zr2kP0vL6tXw4m")
    broken = replace(PROGRESS.commits[1], reason="KeyError: q8Zr2kP0vL6tXw4m")

    stored.note(BisectionProgress((broken, *PROGRESS.commits[2:]), (), 0))

    with Session(store) as session:
        bisection = read_bisection(session, stored.claim.bisection_id)
    assert bisection is not None
    assert bisection.progress.commits[0].reason.startswith("KeyError: ")
    assert "q8Zr2kP0vL6tXw4m" not in bisection.progress.commits[0].reason


def test_a_lost_database_does_not_stop_measuring(stored: StoredBisection, capsys: pytest.CaptureFixture[str]) -> None:
    stored = replace(stored, url="postgresql://nobody@127.0.0.1:1/gone")

    stored.note(PROGRESS)

    assert "the bisection continues without it" in capsys.readouterr().err


def test_a_lost_claim_ends_the_bisection(store: Engine, stored: StoredBisection) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE bisection SET claim_id = gen_random_uuid()"))

    with pytest.raises(ClaimLostError):
        stored.note(PROGRESS)

    with Session(store) as session:
        bisection = read_bisection(session, stored.claim.bisection_id)
    assert bisection is not None
    assert bisection.state is BisectionState.RUNNING
