"""Requests, claims, progress and results of bisections."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from roofwatch.db.bisections import (
    Bisection,
    Claim,
    begin_bisection,
    claim_bisection,
    read_bisection,
    request_bisection,
    update_bisection,
)
from roofwatch.db.errors import StoreError
from roofwatch.db.leases import ClaimLostError
from roofwatch.db.schema.regressions import BisectionRow
from roofwatch.model.triage import (
    Answer,
    BisectionCommit,
    BisectionProgress,
    BisectionRange,
    BisectionResult,
    BisectionState,
    BisectionStep,
    CommitStatus,
)
from tests.builders import NOON, PROJECT, make_commit_ref, sha_of

RANGE = BisectionRange(PROJECT, "total/n=500/float32/fwd", "torch", sha_of(0), sha_of(4), "H200")
PROGRESS = BisectionProgress(
    commits=(
        BisectionCommit(
            make_commit_ref(1), 0.0, CommitStatus.SAME, "nothing that it is made from changed"
        ),
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
RUNNING = BisectionResult(BisectionState.RUNNING, PROGRESS)
FOUND = BisectionResult(BisectionState.FOUND, PROGRESS, ANSWER, ("as expected",))


def request(
    store: Engine, wanted: BisectionRange = RANGE, *, requested_by: str = "rule: slow"
) -> UUID:
    with Session(store) as session, session.begin():
        return request_bisection(session, wanted, requested_by=requested_by)


def only(store: Engine) -> Bisection:
    with Session(store) as session:
        bisection_id = session.scalars(select(BisectionRow.bisection_id)).one()
        found = read_bisection(session, bisection_id)
    assert found is not None
    return found


def claim_of(store: Engine, runner_class: str = "H200") -> Claim:
    claim = claim_bisection(store, PROJECT, runner_class, uuid4())
    assert claim is not None
    return claim


@pytest.mark.parametrize("implementation", ["torch", None])
def test_identical_unfinished_request_is_reused(store: Engine, implementation: str | None) -> None:
    wanted = replace(RANGE, implementation=implementation)
    first = request(store, wanted)

    assert request(store, wanted, requested_by="somebody else") == first
    claim = claim_of(store)
    assert request(store, wanted) == first
    update_bisection(store, claim, BisectionResult(BisectionState.NO_CHANGE))
    assert request(store, wanted) != first


def test_concurrent_runners_get_different_requests(store: Engine) -> None:
    for number in range(5):
        request(store, replace(RANGE, bad_sha=sha_of(10 + number)))

    with ThreadPoolExecutor(8) as pool:
        claims = list(
            pool.map(lambda _: claim_bisection(store, PROJECT, "H200", uuid4()), range(8))
        )

    taken = [claim.bisection_id for claim in claims if claim is not None]
    assert len(taken) == len(set(taken)) == 5


def test_a_request_waits_for_a_runner(store: Engine) -> None:
    bisection_id = request(store)

    waiting = only(store)
    assert (waiting.bisection_id, waiting.state) == (bisection_id, BisectionState.REQUESTED)
    assert (waiting.case_id, waiting.implementation) == (RANGE.case_id, RANGE.implementation)


def test_a_runner_claims_only_requests_that_it_can_serve(store: Engine) -> None:
    for_one = request(store)
    for_any = request(store, replace(RANGE, runner_class=None))

    assert claim_of(store, "CPU").bisection_id == for_any
    assert claim_bisection(store, PROJECT, "CPU", uuid4()) is None
    assert claim_bisection(store, "another project", "H200", uuid4()) is None
    assert claim_of(store).bisection_id == for_one


def test_a_finished_bisection_reads_back_equal(store: Engine) -> None:
    bisection_id = request(store)
    claim = claim_of(store)

    update_bisection(store, claim, RUNNING)
    update_bisection(store, claim, RUNNING)
    update_bisection(store, claim, FOUND)

    bisection = only(store)
    assert bisection.bisection_id == bisection_id
    assert (bisection.progress, bisection.answer) == (PROGRESS, ANSWER)
    assert (bisection.state, bisection.note) == (BisectionState.FOUND, "as expected")
    assert bisection.finished_at is not None


def test_expired_claim_is_taken_over(store: Engine) -> None:
    request(store)
    dead = claim_of(store)
    with store.begin() as connection:
        connection.execute(text("UPDATE bisection SET leased_until = now() - interval '1 second'"))

    alive = claim_of(store)

    assert alive.bisection_id == dead.bisection_id
    with pytest.raises(ClaimLostError, match="another runner has taken it over"):
        update_bisection(store, dead, RUNNING)
    with pytest.raises(ClaimLostError, match="another runner has taken it over"):
        update_bisection(store, dead, BisectionResult(BisectionState.FAILED))
    update_bisection(store, alive, RUNNING)
    assert only(store).state is BisectionState.RUNNING


def test_released_bisection_can_be_claimed_again(store: Engine) -> None:
    request(store)
    stopped = claim_of(store)
    update_bisection(store, stopped, RUNNING)

    update_bisection(store, stopped, BisectionResult(BisectionState.REQUESTED))

    assert only(store).state is BisectionState.REQUESTED
    assert only(store).progress.measurement_count == 22
    assert claim_of(store).bisection_id == stopped.bisection_id


def test_only_its_runner_can_start_a_running_bisection_again(store: Engine) -> None:
    own = uuid4()
    claim = begin_bisection(store, RANGE, own, requested_by="command line")

    assert only(store).state is BisectionState.RUNNING
    assert begin_bisection(store, RANGE, own, requested_by="command line") == claim
    with pytest.raises(StoreError, match="another runner works on it"):
        begin_bisection(store, RANGE, uuid4(), requested_by="command line")
    update_bisection(store, claim, FOUND)
    assert (
        begin_bisection(store, RANGE, own, requested_by="command line").bisection_id
        != claim.bisection_id
    )
