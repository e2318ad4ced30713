"""Jobs of the queue: who gets which, and that each ends exactly once."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.access import list_entries
from roofwatch.db.agenda import list_jobs, request_job, take_job
from roofwatch.db.errors import ConflictError, NotStoredError
from roofwatch.db.leases import ClaimLostError
from roofwatch.db.queue import (
    MAX_ATTEMPTS,
    MAX_OPEN_JOBS,
    QueueFullError,
    cancel_queued_job,
    forecast_job,
    list_queued_jobs,
    read_lines,
    read_queued_job,
    read_result,
    request_queued_job,
    store_tree,
)
from roofwatch.db.queue_runners import (
    finish_queued_job,
    read_tree,
    release_queued_job,
    report_progress,
    take_queued_job,
)
from roofwatch.model.agenda import JobKind, PlannedJob, StoredJob
from roofwatch.model.queue import (
    MAX_JOB_S,
    AnsweredPair,
    JobOutcome,
    JobPriority,
    QueuedJob,
    QueueRequest,
    RequestedPair,
    TakenJob,
    WatchReport,
)
from tests.builders import PROJECT, sha_of

OURS, THEIRS = UUID(int=1), UUID(int=2)


def request(
    store: Engine,
    actor: str = "token a",
    *,
    priority: JobPriority = JobPriority.NORMAL,
    runner_class: str = "h100",
    device_minutes: float | None = None,
    has_tree: bool = True,
    command: str = "ab",
) -> UUID:
    asked = QueueRequest(
        runner_class=runner_class, command=(command, "bench.py"), priority=priority
    )
    job_id = request_queued_job(store, PROJECT, asked, actor=actor, device_minutes=device_minutes)
    if has_tree:
        store_tree(store, job_id, b"a tree")
    return job_id


def take(
    store: Engine,
    claim_id: UUID = OURS,
    *,
    runner_class: str = "h100",
    projects: tuple[str, ...] | None = None,
) -> TakenJob | None:
    return take_queued_job(store, runner_class, projects, claim_id=claim_id, runner="gpu-1")


def taken_id(store: Engine, claim_id: UUID = OURS) -> UUID | None:
    taken = take(store, claim_id)
    return None if taken is None else taken.job_id


def finish(
    store: Engine,
    job_id: UUID,
    claim_id: UUID = OURS,
    spent_s: float = 60.0,
    report: WatchReport | None = None,
) -> JobOutcome:
    return finish_queued_job(
        store,
        job_id,
        claim_id,
        exit_status=1,
        spent_s=spent_s,
        content=b"a result",
        actor="token r",
        report=report,
    )


def read(store: Engine, job_id: UUID) -> QueuedJob:
    with Session(store) as session:
        job = read_queued_job(session, job_id)
    assert job is not None
    return job


GPU = "GPU A, 80 GiB"
"""The runner class in the records of `h100`."""
PAIR = RequestedPair(base_sha=sha_of(1), head_sha=sha_of(2))
MEASURED = AnsweredPair(base_sha=PAIR.base_sha, head_sha=PAIR.head_sha, spent_s=12.0)


def ask_for_pair(store: Engine, runner_class: str = GPU) -> None:
    planned = PlannedJob(
        key=f"confirm:{PAIR.base_sha}:{PAIR.head_sha}",
        kind=JobKind.CONFIRM,
        reason="alice asked for it",
        expected_s=60.0,
        base_sha=PAIR.base_sha,
        head_sha=PAIR.head_sha,
    )
    with Session(store) as session, session.begin():
        request_job(session, PROJECT, runner_class, planned)


def finish_watch(store: Engine, *answered: AnsweredPair) -> tuple[RequestedPair, ...]:
    """Carry out a watch, and return the pairs that it was given."""
    job_id = request(store, command="watch")
    taken = take(store)
    assert taken is not None
    assert taken.job_id == job_id
    finish(store, job_id, report=WatchReport(runner_class=GPU, pairs=answered))
    return taken.pairs


def asked_pairs(store: Engine) -> list[StoredJob]:
    with Session(store) as session:
        return list_jobs(session, PROJECT)


def end_leases(store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(
            text(
                "UPDATE queued_job SET leased_until = now() - interval '1 s' WHERE leased_until > now()"
            )
        )


def test_a_job_goes_from_its_request_to_its_result(store: Engine) -> None:
    job_id = request(store)

    taken = take(store)
    assert taken == TakenJob(
        job_id=job_id, project=PROJECT, command=("ab", "bench.py"), folder="", limit_s=MAX_JOB_S
    )
    assert take(store, THEIRS) is None
    with Session(store) as session:
        assert read_tree(session, job_id, OURS) == b"a tree"
        with pytest.raises(ClaimLostError):
            read_tree(session, job_id, THEIRS)
    assert not report_progress(store, job_id, OURS, ["block 1", "x" * 5_000])
    assert not report_progress(store, job_id, OURS, ["block 2"])
    assert finish(store, job_id) is JobOutcome.DONE

    job = read(store, job_id)
    assert (job.state, job.exit_status, job.attempt_count, job.runner) == ("done", 1, 1, "gpu-1")
    with Session(store) as session:
        assert list(read_lines(session, job_id, after=0)) == ["block 1", "x" * 1_000, "block 2"]
        assert list(read_lines(session, job_id, after=2)) == ["block 2"]
        assert read_result(session, job_id) == b"a result"
        entries = list_entries(session, PROJECT)
    assert [entry.action for entry in entries] == ["queue.done", "queue.request"]
    assert {entry.subject for entry in entries} == {str(job_id)}


def test_a_runner_gets_jobs_of_its_class_alone(store: Engine) -> None:
    request(store, runner_class="b200")
    ours = request(store)

    assert taken_id(store) == ours
    assert take(store) is None


def test_a_runner_gets_jobs_of_its_projects_alone(store: Engine) -> None:
    ours = request(store)

    assert take(store, projects=("other",)) is None
    taken = take(store, projects=(PROJECT,))
    assert taken is not None
    assert taken.job_id == ours


def test_a_job_without_its_tree_waits(store: Engine) -> None:
    job_id = request(store, has_tree=False)
    assert take(store) is None

    store_tree(store, job_id, b"a tree")
    with pytest.raises(ConflictError, match="has a tree already"):
        store_tree(store, job_id, b"another")
    assert taken_id(store) == job_id


def test_a_job_whose_tree_never_came_is_cancelled(store: Engine) -> None:
    job_id = request(store, has_tree=False)
    with store.begin() as connection:
        connection.execute(text("UPDATE queued_job SET requested_at = now() - interval '2 hours'"))

    request(store)

    assert read(store, job_id).outcome is JobOutcome.CANCELLED


def test_priority_then_fewest_minutes_then_age_decide(store: Engine) -> None:
    first = request(store, "token busy")
    assert taken_id(store) == first
    finish(store, first, spent_s=600.0)
    older = request(store, "token busy")
    newer = request(store, "token idle")
    low = request(store, "token idle", priority=JobPriority.LOW)
    high = request(store, "token busy", priority=JobPriority.HIGH)

    assert [taken_id(store, uuid4()) for _ in range(5)] == [high, newer, older, low, None]


def test_a_job_that_its_runners_lose_too_often_is_lost(store: Engine) -> None:
    job_id = request(store)
    assert taken_id(store) == job_id
    for _ in range(MAX_ATTEMPTS - 1):
        end_leases(store)
        assert taken_id(store, THEIRS) == job_id

    end_leases(store)
    assert taken_id(store) is None

    assert read(store, job_id).outcome is JobOutcome.LOST
    with pytest.raises(ClaimLostError):
        finish(store, job_id, THEIRS)


def test_what_a_lost_runner_sends_late_is_refused(store: Engine) -> None:
    job_id = request(store)
    assert taken_id(store) == job_id
    end_leases(store)
    assert taken_id(store, THEIRS) == job_id

    for late in (lambda: report_progress(store, job_id, OURS, []), lambda: finish(store, job_id)):
        with pytest.raises(ClaimLostError, match="another runner has taken it over"):
            late()


def test_a_released_job_costs_no_attempt(store: Engine) -> None:
    job_id = request(store)
    take(store)

    release_queued_job(store, job_id, OURS)

    assert taken_id(store, THEIRS) == job_id
    assert read(store, job_id).attempt_count == 1


def test_a_released_job_cannot_be_released_again(store: Engine) -> None:
    job_id = request(store)
    take(store)
    release_queued_job(store, job_id, OURS)

    with pytest.raises(ClaimLostError):
        release_queued_job(store, job_id, OURS)


def test_a_waiting_job_is_cancelled_at_once(store: Engine) -> None:
    waiting = request(store)

    # a repetition changes nothing
    for _ in range(2):
        cancel_queued_job(store, read(store, waiting), actor="token a")

    assert read(store, waiting).outcome is JobOutcome.CANCELLED
    assert taken_id(store, THEIRS) is None


def test_a_running_job_is_cancelled_by_its_runner(store: Engine) -> None:
    running = request(store)
    take(store)

    cancel_queued_job(store, read(store, running), actor="token a")

    assert read(store, running).state == "running"
    assert report_progress(store, running, OURS, [])
    assert finish(store, running) is JobOutcome.CANCELLED
    assert taken_id(store, THEIRS) is None
    with Session(store) as session, pytest.raises(NotStoredError):
        read_result(session, running)


def test_minutes_of_a_token_are_limited(store: Engine) -> None:
    first = request(store, device_minutes=1.0)
    second = request(store, device_minutes=1.0)
    taken = take(store)
    assert taken is not None
    assert taken.limit_s == pytest.approx(60.0, abs=1.0)
    finish(store, first, spent_s=61.0)

    assert take(store) is None  # the minutes are used up
    with pytest.raises(QueueFullError, match="has used 1 of its 1 device minutes"):
        request(store, device_minutes=1.0)
    assert read(store, second).state == "waiting"
    with store.begin() as connection:
        connection.execute(text("UPDATE queued_job SET started_at = now() - interval '25 hours'"))
    assert taken_id(store) == second


def test_open_jobs_of_a_token_are_limited(store: Engine) -> None:
    job_id = request(store)
    with store.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO queued_job SELECT (q).* FROM (SELECT jsonb_populate_record(j, "
                "jsonb_build_object('job_id', gen_random_uuid())) AS q FROM queued_job j, "
                "generate_series(1, :count) WHERE job_id = :job_id) AS copies"
            ),
            {"count": MAX_OPEN_JOBS, "job_id": job_id},
        )

    with pytest.raises(QueueFullError, match="are not finished"):
        request(store)


def test_a_forecast_comes_from_earlier_jobs_of_the_command(store: Engine) -> None:
    for spent_s in (50.0, 60.0, 400.0):
        job_id = request(store)
        take(store)
        finish(store, job_id, spent_s=spent_s)
    request(store, "token b")
    newest = request(store)

    with Session(store) as session:
        forecast = forecast_job(session, read(store, newest))
        listed = list_queued_jobs(session, [PROJECT])
        assert list_queued_jobs(session, []) == []

    assert (forecast.expected_s, forecast.ahead_count, forecast.ahead_s) == (60.0, 1, 60.0)
    assert [job.state for job in listed] == ["waiting"] * 2 + ["done"] * 3


def test_no_forecast_without_earlier_jobs(store: Engine) -> None:
    request(store)
    newest = request(store)

    with Session(store) as session:
        forecast = forecast_job(session, read(store, newest))

    assert (forecast.expected_s, forecast.ahead_count, forecast.ahead_s) == (None, 1, None)


def test_each_of_many_jobs_ends_once_although_runners_are_lost(store: Engine) -> None:
    """Six clients, three runners; a lost runner reports nothing, and sends its result too late."""
    with ThreadPoolExecutor(6) as clients:
        jobs = list(clients.map(lambda number: request(store, f"token {number % 6}"), range(30)))
    ended: Counter[UUID] = Counter()

    def work(seed: int) -> list[UUID]:
        draw = random.Random(seed)
        done: list[UUID] = []
        while True:
            claim_id = uuid4()
            job_id = taken_id(store, claim_id)
            if job_id is None:
                return done
            if draw.random() < 0.2:
                with store.begin() as connection:
                    connection.execute(
                        text("UPDATE queued_job SET leased_until = now() WHERE claim_id = :claim"),
                        {"claim": claim_id},
                    )
            try:
                finish(store, job_id, claim_id)
            except ClaimLostError:
                continue
            done.append(job_id)

    with ThreadPoolExecutor(3) as runners:
        for done in runners.map(work, range(3)):
            ended.update(done)

    outcomes = {job_id: read(store, job_id).outcome for job_id in jobs}
    assert set(ended.values()) == {1}
    assert {job_id for job_id, outcome in outcomes.items() if outcome is JobOutcome.DONE} == set(
        ended
    )
    assert None not in outcomes.values()


# --- pairs that people asked for


def test_a_watch_gets_the_pair_that_its_kind_of_runner_measures(store: Engine) -> None:
    finish_watch(store)
    ask_for_pair(store)
    ask_for_pair(store, "GPU B, 40 GiB")

    assert finish_watch(store, MEASURED) == (PAIR,)

    answered = {job.runner_class: job.finished_at is not None for job in asked_pairs(store)}
    assert answered == {GPU: True, "GPU B, 40 GiB": False}
    assert finish_watch(store) == ()


def test_a_pair_is_given_to_no_second_watch_nor_runner_while_one_measures_it(store: Engine) -> None:
    finish_watch(store)
    ask_for_pair(store)
    first, second = request(store, command="watch"), request(store, command="watch")

    given = [taken.pairs for taken in (take(store, OURS), take(store, THEIRS)) if taken is not None]
    agenda = [
        PlannedJob(
            key=job.key,
            kind=job.kind,
            reason=job.reason,
            expected_s=job.expected_s,
            base_sha=job.base_sha,
            head_sha=job.head_sha,
        )
        for job in asked_pairs(store)
    ]

    assert given == [(PAIR,), ()]
    assert take_job(store, PROJECT, GPU, agenda, THEIRS) is None
    assert first != second


def test_a_pair_that_a_watch_did_not_reach_is_given_to_the_next(store: Engine) -> None:
    finish_watch(store)
    ask_for_pair(store)

    assert finish_watch(store) == (PAIR,)
    assert finish_watch(store, MEASURED) == (PAIR,)
    assert finish_watch(store) == ()


def test_the_pair_of_a_lost_watch_stays_with_it_until_its_next_runner(store: Engine) -> None:
    finish_watch(store)
    ask_for_pair(store)
    job_id = request(store, command="watch")
    take(store)
    end_leases(store)

    again = take(store, THEIRS)

    assert again is not None
    assert (again.job_id, again.pairs) == (job_id, (PAIR,))


def test_the_pair_of_a_cancelled_watch_is_free_again(store: Engine) -> None:
    finish_watch(store)
    ask_for_pair(store)
    job_id = request(store, command="watch")
    take(store)
    cancel_queued_job(store, read(store, job_id), actor="token a")
    finish(store, job_id, report=WatchReport(runner_class=GPU, pairs=(MEASURED,)))

    assert finish_watch(store) == (PAIR,)


def test_why_a_pair_could_not_be_measured_is_kept(store: Engine) -> None:
    finish_watch(store)
    ask_for_pair(store)

    finish_watch(store, MEASURED.model_copy(update={"note": "the base does not build"}))

    (job,) = asked_pairs(store)
    assert job.finished_at is not None
    assert job.note == "the base does not build"


def test_other_commands_get_no_pairs(store: Engine) -> None:
    finish_watch(store)
    ask_for_pair(store)
    request(store)

    taken = take(store)

    assert taken is not None
    assert taken.pairs == ()
