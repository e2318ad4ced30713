"""Regressions are stored per analysis, and replaced as a whole."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.model.history import Cause, Regression, RegressionState, Suspect
from roofwatch.model.verdict import Verdict
from tests.builders import (
    PROJECT,
    make_change_point,
    make_commit_ref,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)


@pytest.fixture
def history(store: Engine) -> Engine:
    """Three commits of the project, each with a run."""
    for number in range(3):
        ingest_record(store, make_record(number))
    return store


def stored(store: Engine) -> list[Regression]:
    with Session(store) as session:
        return [one.regression for one in list_triaged(session, PROJECT)]


def test_regressions_read_back_newest_first_until_replaced(history: Engine) -> None:
    regressions = [
        make_regression(1),
        make_regression(
            2,
            kernel="softmax",
            verdict=Verdict.IMPROVED,
            cause=Cause.TOOLCHAIN,
            state=RegressionState.DISMISSED,
            is_confirmed=True,
            suspects=(
                Suspect(Cause.TOOLCHAIN, 0.9, "triton 3.6.0 → 3.7.1"),
                Suspect(Cause.UNKNOWN, 0.1, "nothing"),
            ),
            family="all 4 bfloat16 series of softmax",
            typical_change=-0.08,
            change_spread=0.01,
            is_alert=True,
            recovered_at=make_commit_ref(2),
            change_points=(
                make_change_point(
                    2,
                    series=make_series_key(
                        "registers", runner_class="", function="f", target="sm_90"
                    ),
                ),
                make_change_point(
                    2, series=make_series_key("rmse_ratio", tensor="out"), before=None, after=0.25
                ),
                make_change_point(1, after=None, verdict=Verdict.INCONCLUSIVE),
            ),
        ),
        make_regression(2, change_points=()),
    ]

    replace_regressions(history, PROJECT, regressions)

    assert stored(history) == regressions[::-1]
    replace_regressions(history, PROJECT, [make_regression(2, summary="analysed again")])
    assert stored(history) == [make_regression(2, summary="analysed again")]


def test_concurrent_analyses_do_not_mix(history: Engine) -> None:
    whole = [
        [make_regression(1, summary=f"judge {judge}"), make_regression(2)] for judge in range(6)
    ]
    engine = create_engine(history.url, pool_size=len(whole))
    barrier = threading.Barrier(len(whole))

    def judge(regressions: list[Regression]) -> None:
        barrier.wait(timeout=60)
        replace_regressions(engine, PROJECT, regressions)

    with ThreadPoolExecutor(len(whole)) as pool:
        list(pool.map(judge, whole))
    engine.dispose()

    assert stored(history) in [regressions[::-1] for regressions in whole]


def test_regression_at_an_unknown_commit_is_refused(history: Engine) -> None:
    replace_regressions(history, PROJECT, [make_regression(1)])

    with pytest.raises(StoreError, match=f"commit {min(sha_of(9), sha_of(8))}: not in project"):
        replace_regressions(history, PROJECT, [make_regression(9)])

    assert stored(history) == [make_regression(1)]


def test_what_had_an_alert_stays_in_the_list_with_the_commit_where_it_was_no_longer_found(
    history: Engine,
) -> None:
    replace_regressions(history, PROJECT, [make_regression(1, is_alert=True), make_regression(2)])

    replace_regressions(history, PROJECT, [])
    (gone,) = stored(history)
    ingest_record(history, make_record(3))
    replace_regressions(history, PROJECT, [])

    newest = make_commit_ref(2)
    assert gone.ended == f"no longer found at {newest.short_sha} ({newest.committed_at:%Y-%m-%d})"
    assert stored(history) == [gone]
    replace_regressions(history, PROJECT, [make_regression(1, summary="found again")])
    assert stored(history) == [make_regression(1, summary="found again")]
