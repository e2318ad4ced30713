"""A job of an agenda is leased to one runner at a time, and survives that runner."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.agenda import finish_job, list_jobs, take_job
from roofwatch.model.agenda import JobKind, PlannedJob, StoredJob
from tests.builders import PROJECT, sha_of

GPU = "GPU A, 80 GiB"
OURS, THEIRS = UUID(int=1), UUID(int=2)


def job(number: int) -> PlannedJob:
    return PlannedJob(
        key=f"new::{sha_of(number)}",
        kind=JobKind.NEW,
        reason="the newest commit",
        expected_s=60.0,
        base_sha=None,
        head_sha=sha_of(number),
    )


AGENDA = [job(0), job(1), job(2)]


def listed(store: Engine) -> list[StoredJob]:
    with Session(store) as session:
        return list_jobs(session, PROJECT)


def test_two_runners_of_a_class_get_different_jobs(store: Engine) -> None:
    assert take_job(store, PROJECT, GPU, AGENDA, OURS) == AGENDA[0].key
    assert take_job(store, PROJECT, GPU, AGENDA, THEIRS) == AGENDA[1].key
    assert take_job(store, PROJECT, "GPU B", AGENDA, THEIRS) == AGENDA[0].key


def test_runners_that_ask_at_once_get_different_jobs(store: Engine) -> None:
    take_job(store, PROJECT, GPU, [], OURS)
    with ThreadPoolExecutor(3) as pool:
        keys = list(pool.map(lambda _: take_job(store, PROJECT, GPU, AGENDA, uuid4()), range(3)))

    taken = [key for key in keys if key is not None]
    assert len(set(taken)) == len(taken) >= 1


def test_a_runner_that_comes_back_gets_its_job_again(store: Engine) -> None:
    first = take_job(store, PROJECT, GPU, AGENDA, OURS)

    assert take_job(store, PROJECT, GPU, AGENDA, OURS) == first


def test_the_job_of_a_runner_that_is_gone_is_free_after_its_lease(store: Engine) -> None:
    take_job(store, PROJECT, GPU, AGENDA, OURS)
    with store.begin() as connection:
        connection.execute(
            text(
                "UPDATE agenda_job SET leased_until = now() - interval '1 second' WHERE leased_until IS NOT NULL"
            )
        )

    assert take_job(store, PROJECT, GPU, AGENDA, THEIRS) == AGENDA[0].key


def test_a_job_that_another_runner_just_finished_is_not_done_again(store: Engine) -> None:
    take_job(store, PROJECT, GPU, AGENDA, OURS)

    assert finish_job(store, PROJECT, GPU, AGENDA[0].key, OURS, 42.0)
    assert not finish_job(store, PROJECT, GPU, AGENDA[0].key, OURS, 42.0)
    assert take_job(store, PROJECT, GPU, AGENDA, THEIRS) == AGENDA[1].key


def test_a_new_plan_keeps_what_was_done(store: Engine) -> None:
    take_job(store, PROJECT, GPU, AGENDA, OURS)
    finish_job(store, PROJECT, GPU, AGENDA[0].key, OURS, 42.0)

    take_job(store, PROJECT, GPU, [job(5)], OURS)

    planned, done = listed(store)
    assert (planned.head_sha, planned.spent_s) == (sha_of(5), None)
    assert (done.head_sha, done.spent_s) == (sha_of(0), 42.0)


def test_nothing_is_leased_if_all_is_taken(store: Engine) -> None:
    take_job(store, PROJECT, GPU, AGENDA[:1], OURS)

    assert take_job(store, PROJECT, GPU, AGENDA[:1], THEIRS) is None
