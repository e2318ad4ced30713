"""Questions about runs."""

import uuid
from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.queries.comparing import (
    find_runs_to_compare,
    read_runs_by_runner,
    read_runs_on,
)
from roofwatch.db.queries.project import list_commits, list_projects
from roofwatch.db.queries.runs import list_runs, read_run_detail
from roofwatch.model.history import MeasuredCommit
from roofwatch.model.machine import Outcome
from roofwatch.model.stored_results import StaticRow
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    code_hash_of,
    make_accuracy,
    make_ceiling,
    make_commit,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_profile,
    make_record,
    make_static_facts,
    make_tensor_error,
    sha_of,
)
from tests.dashboard.values import make_measured_case, make_run_detail
from tests.databases import ingest_all


def test_an_empty_store_is_read_without_an_error(store: Engine) -> None:
    with Session(store) as session:
        assert list_projects(session) == []
        assert list_runs(session, PROJECT) == []
        assert list_commits(session, PROJECT) == []
        assert find_runs_to_compare(session, PROJECT, make_commit().sha, make_commit(1).sha) == (
            None,
            None,
        )
        assert read_run_detail(session, uuid.uuid4()) is None


def test_commits_are_listed_along_the_branch_whatever_the_order_they_came_in(store: Engine) -> None:
    ingest_all(
        store,
        make_record(2),
        make_record(0),
        make_record(1),
        make_record(0),
        make_record(9, project="other"),
    )

    with Session(store) as session:
        commits = list_commits(session, PROJECT)
    assert commits == [MeasuredCommit(**asdict(make_commit_ref(number))) for number in range(3)]


def test_a_run_is_summed_up(store: Engine) -> None:
    record = make_record(
        4,
        measurements=[
            make_measurement(),
            make_measurement(implementation="compile"),
            make_measurement(implementation="triton", outcome=Outcome.UNSUPPORTED),
        ],
        commit=make_commit(4, is_dirty=True),
        harness_version="7",
    )
    ingest_all(store, record)

    with Session(store) as session:
        (found,) = list_runs(session, PROJECT)
    assert found == replace(
        make_run_detail(4).summary,
        run_id=str(record.run_id),
        started_at=record.started_at,
        finished_at=record.finished_at,
        harness_version="7",
        is_dirty=True,
        outcome_counts={"ok": 2, "unsupported": 1},
    )


def test_the_newest_clean_whole_run_speaks_for_a_commit(store: Engine) -> None:
    older, whole = make_record(started_at=NOON - timedelta(days=1)), make_record(started_at=NOON)
    dirty = make_record(commit=make_commit(is_dirty=True), started_at=NOON + timedelta(days=1))
    paired, _ = make_pair_of_records(started_at=NOON + timedelta(days=2))
    ingest_all(store, whole, older, dirty, paired)

    with Session(store) as session:
        found = find_runs_to_compare(session, PROJECT, whole.commit.sha, sha_of(8))

    assert found == (whole.run_id, None)


def test_a_run_is_found_by_its_runner_class(store: Engine) -> None:
    other = make_record(environment=make_environment(thread_count=64))
    ingest_all(store, make_record(started_at=NOON + timedelta(days=1)), other)
    commits = (PROJECT, other.commit.sha, other.commit.sha)

    with Session(store) as session:
        found = find_runs_to_compare(session, *commits, runner_class=other.environment.runner_class)
        nothing = find_runs_to_compare(session, *commits, runner_class="no such class")

    assert found == (other.run_id, other.run_id)
    assert nothing == (None, None)


def test_two_commits_are_read_on_every_runner_that_measured_both(store: Engine) -> None:
    many = make_environment(thread_count=64)
    base, head = make_record(0), make_record(1)
    base_of_many, head_of_many = make_record(0, environment=many), make_record(1, environment=many)
    ingest_all(store, base, head, base_of_many, head_of_many)

    with Session(store) as session:
        both = read_runs_by_runner(session, PROJECT, sha_of(0), sha_of(1))

    ids = {
        (runs.base.summary.run_id, runs.head.summary.run_id)
        for runs in both
        if runs.base and runs.head
    }
    assert len(both) == 2
    assert ids == {
        (str(base.run_id), str(head.run_id)),
        (str(base_of_many.run_id), str(head_of_many.run_id)),
    }


def test_a_runner_that_measured_one_of_two_commits_comes_last_without_runs(store: Engine) -> None:
    lone = make_environment(thread_count=1)
    ingest_all(store, make_record(0), make_record(1), make_record(1, environment=lone))

    with Session(store) as session:
        _, one_sided = read_runs_by_runner(session, PROJECT, sha_of(0), sha_of(1))

    assert (one_sided.runner_class, one_sided.base, one_sided.head) == (
        lone.runner_class,
        None,
        None,
    )


def test_a_pair_of_two_commits_is_read_before_newer_separate_runs(store: Engine) -> None:
    base, head = make_pair_of_records()
    tomorrow = NOON + timedelta(days=1)
    separate = [make_record(number, started_at=tomorrow) for number in (0, 1)]
    ingest_all(store, base, head, *separate)

    with Session(store) as session:
        (one,) = read_runs_by_runner(session, PROJECT, base.commit.sha, head.commit.sha)

    assert one.base is not None
    assert one.head is not None
    assert [one.base.summary.run_id, one.head.summary.run_id] == [
        str(base.run_id),
        str(head.run_id),
    ]


def test_each_side_may_be_read_on_a_runner_of_its_own(store: Engine) -> None:
    other = make_environment(thread_count=64)
    base, head = make_record(0), make_record(1, environment=other)
    ingest_all(store, base, head)
    runners = base.environment.runner_class, other.runner_class

    with Session(store) as session:
        details = read_runs_on(session, PROJECT, sha_of(0), sha_of(1), *runners)
        with pytest.raises(StoreError, match="no run on"):
            read_runs_on(session, PROJECT, sha_of(1), sha_of(0), *runners)

    assert [one.summary.run_id for one in details] == [str(base.run_id), str(head.run_id)]


def test_the_detail_of_a_run_tells_everything_in_the_order_of_the_record(store: Engine) -> None:
    backward = "swiglu/B=2,N=3/float32/bwd"
    record = make_record(
        measurements=[
            make_measurement(backward, outcome=Outcome.TIMED_OUT, message="60 s"),
            make_measurement(median_ns=10_000),
        ],
        accuracies=[
            make_accuracy(
                tensors=[
                    make_tensor_error(rmse_ratio=1e-8),
                    make_tensor_error(tensor="grad_x", rmse_ratio=3e-7),
                ]
            ),
        ],
        static_facts=[
            make_static_facts(target="sm_90", code="a"),
            make_static_facts(target="gfx942", code="b"),
        ],
        profiles=(make_profile(implementation="torch"),),
        ceilings=(
            make_ceiling(),
            make_ceiling(resource="compute", level=None, dtype="float32", per_s=1e11),
            make_ceiling(per_s=2e10, source="datasheet"),
        ),
    )
    other = make_record(accuracies=[make_accuracy(rmse_ratio=0.1)])
    ingest_all(store, other, record)

    with Session(store) as session:
        detail, of_other = (read_run_detail(session, one.run_id) for one in (record, other))

    assert detail is not None
    assert of_other is not None
    # which compiled nothing of its own
    assert of_other.static_rows == detail.static_rows
    assert detail.summary.run_id == str(record.run_id)
    assert detail.ceilings == record.ceilings[:2]
    failed, measured = detail.cases
    assert (failed.case_id, failed.outcome, failed.message) == (backward, Outcome.TIMED_OUT, "60 s")
    assert (failed.median_ns, failed.sample_count, failed.accuracy_outcome, failed.rmse_ratio) == (
        None,
        0,
        None,
        None,
    )
    assert list(failed.shape) == ["B", "N"]
    assert measured == make_measured_case(
        flop_count=32_768,
        memory_bytes=65_536,
        median_ns=10_000,
        low_ns=9_925,
        high_ns=10_075,
        sample_count=6,
        utilisation=0.5,
        rmse_ratio=3e-7,
        timer="perf_counter",
        is_profiled=True,
    )
    assert [row.target for row in detail.static_rows] == ["sm_90", "gfx942"]
    assert detail.static_rows[0] == StaticRow(
        case_id=CASE_ID,
        implementation="triton",
        function="_rms_norm_kernel",
        target="sm_90",
        outcome=Outcome.OK,
        message=None,
        configuration={"BLOCK": 128, "num_warps": 4},
        registers=32,
        spilled_registers=None,
        local_bytes=0,
        shared_bytes=1_024,
        code_bytes=2_048,
        code_hash=code_hash_of("a"),
    )
