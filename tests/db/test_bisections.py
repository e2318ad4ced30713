"""Bisections in the store: asked for once, claimed by one, written while they go on, read back equal."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from roofwatch.db.bisections import (
    Answer,
    Bisection,
    BisectionCommit,
    BisectionProgress,
    BisectionStep,
    Claim,
    ClaimLostError,
    CommitStatus,
    begin_bisection,
    claim_bisection,
    finish_bisection,
    note_progress,
    read_bisection,
    release_bisection,
    request_bisection,
)
from roofwatch.db.errors import StoreError
from roofwatch.db.schema.bisections import BisectionRow
from roofwatch.db.values import BisectionRange, BisectionState
from tests.builders import NOON, PROJECT, make_commit_ref, sha_of

ASKED = BisectionRange(PROJECT, "total/n=500/float32/fwd", "eager", sha_of(0), sha_of(4), "H200")
PROGRESS = BisectionProgress(
    commits=(
        BisectionCommit(make_commit_ref(1), 0.0, CommitStatus.SAME, "nothing that it is made from changed"),
        BisectionCommit(make_commit_ref(2), 0.0, CommitStatus.SKIPPED, "does not import"),
        BisectionCommit(make_commit_ref(3), 0.99, CommitStatus.MEASURED, "", 3, 0.05),
        BisectionCommit(make_commit_ref(4), 0.01, CommitStatus.OPEN),
    ),
    steps=(
        BisectionStep(sha_of(4), 8, 0.05, 1.0, "", NOON),
        BisectionStep(sha_of(2), 0, None, 1.0, "does not import", NOON),
    ),
    measurement_count=22,
)
ANSWER = Answer(make_commit_ref(3), make_commit_ref(3), 0.99, 0.05, (0.04, 0.06))


def ask(store: Engine, asked: BisectionRange = ASKED, *, requested_by: str = "rule: slow") -> UUID:
    with Session(store) as session, session.begin():
        return request_bisection(session, asked, requested_by=requested_by)


def only(store: Engine) -> Bisection:
    with Session(store) as session:
        bisection_id = session.scalars(select(BisectionRow.bisection_id)).one()
        found = read_bisection(session, bisection_id)
    assert found is not None
    return found


def claim_of(store: Engine, runner_class: str = "H200") -> Claim:
    claim = claim_bisection(store, PROJECT, runner_class)
    assert claim is not None
    return claim


def test_a_request_waits_until_a_runner_takes_it(store: Engine) -> None:
    bisection_id = ask(store)

    waiting = only(store)

    assert waiting.bisection_id == bisection_id
    assert waiting.state is BisectionState.REQUESTED
    assert (waiting.case_id, waiting.implementation) == (ASKED.case_id, ASKED.implementation)
    assert claim_of(store).bisection_id == bisection_id
    assert only(store).state is BisectionState.RUNNING
    assert claim_bisection(store, PROJECT, "H200") is None


@pytest.mark.parametrize("implementation", ["eager", None])
def test_asking_twice_for_what_is_not_over_gives_the_same_and_after_its_end_another(
    store: Engine, implementation: str | None
) -> None:
    asked = replace(ASKED, implementation=implementation)
    first = ask(store, asked)

    assert ask(store, asked, requested_by="somebody else") == first
    claim = claim_of(store)
    assert ask(store, asked) == first
    finish_bisection(store, claim, BisectionState.NO_CHANGE)
    assert ask(store, asked) != first


def test_each_of_many_runners_that_ask_at_once_gets_another_one(store: Engine) -> None:
    for number in range(5):
        ask(store, replace(ASKED, bad_sha=sha_of(10 + number)))

    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda _: claim_bisection(store, PROJECT, "H200"), range(8)))

    taken = [claim.bisection_id for claim in claims if claim is not None]
    assert len(taken) == len(set(taken)) == 5


def test_a_runner_takes_what_is_for_its_class_or_any(store: Engine) -> None:
    ask(store)
    for_any = ask(store, replace(ASKED, runner_class=None))

    assert claim_of(store, "CPU").bisection_id == for_any
    assert claim_bisection(store, PROJECT, "CPU") is None
    assert claim_bisection(store, "another project", "H200") is None


def test_what_is_known_so_far_and_how_it_ended_read_back_equal(store: Engine) -> None:
    bisection_id = ask(store)
    claim = claim_of(store)

    note_progress(store, claim, PROGRESS)
    note_progress(store, claim, PROGRESS)
    finish_bisection(store, claim, BisectionState.FOUND, progress=PROGRESS, answer=ANSWER, note="as expected")

    bisection = only(store)
    assert bisection.bisection_id == bisection_id
    assert (bisection.progress, bisection.answer) == (PROGRESS, ANSWER)
    assert (bisection.state, bisection.note) == (BisectionState.FOUND, "as expected")
    assert bisection.finished_at is not None


def test_a_runner_that_gives_no_sign_of_life_loses_it_to_another_and_cannot_write_any_more(store: Engine) -> None:
    ask(store)
    dead = claim_of(store)
    with store.begin() as connection:
        connection.execute(text("UPDATE bisection SET leased_until = now() - interval '1 second'"))

    alive = claim_of(store)

    assert alive.bisection_id == dead.bisection_id
    with pytest.raises(ClaimLostError, match="another runner has taken it over"):
        note_progress(store, dead, PROGRESS)
    with pytest.raises(ClaimLostError, match="another runner has taken it over"):
        finish_bisection(store, dead, BisectionState.FAILED)
    note_progress(store, alive, PROGRESS)
    assert only(store).state is BisectionState.RUNNING


def test_a_runner_that_is_stopped_gives_it_back_for_the_next(store: Engine) -> None:
    ask(store)
    stopped = claim_of(store)
    note_progress(store, stopped, PROGRESS)

    release_bisection(store, stopped)

    assert only(store).state is BisectionState.REQUESTED
    assert only(store).progress.measurement_count == 22
    assert claim_of(store).bisection_id == stopped.bisection_id


def test_what_nobody_asked_for_can_be_begun_and_what_runs_elsewhere_cannot(store: Engine) -> None:
    begin_bisection(store, ASKED, requested_by="command line")

    assert only(store).state is BisectionState.RUNNING
    with pytest.raises(StoreError, match="another runner works on it"):
        begin_bisection(store, ASKED, requested_by="command line")
