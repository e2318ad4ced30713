"""Search of a project."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.project import search
from roofwatch.db.queries.results import SearchResults
from tests.builders import NOON, PROJECT, make_commit, make_measurement, make_record, sha_of

WIDE, NARROW, GEMM = "soft_max/n=16/float32/fwd", "soft_max/n=8/float32/fwd", "softmaxgemm/M=8/float32/fwd"
SUBJECTS = ["Start", "Tune 12 100% faster (#1310)", "Fix a typo (#131)", "Merge pull request #131 from a/b"]


@pytest.fixture
def filled(store: Engine) -> Engine:
    measured = [make_measurement(case_id) for case_id in (WIDE, NARROW, GEMM)]
    for number, subject in enumerate(SUBJECTS):
        commit = make_commit(number).model_copy(update={"subject": subject})
        ingest_record(store, make_record(number, commit=commit, measurements=measured))
    ingest_record(store, make_record(0, project="other/project", measurements=measured))
    return store


def found(engine: Engine, text: str, *, limit: int = 10) -> SearchResults:
    with Session(engine) as session:
        return search(session, PROJECT, text, limit=limit)


def test_every_word_must_occur_in_the_name_of_a_kernel_or_case(filled: Engine) -> None:
    assert (found(filled, "SOFT").kernels, found(filled, "soft float32").kernels) == (("soft_max", "softmaxgemm"), ())
    assert found(filled, "soft_max fwd").cases == (WIDE, NARROW)  # `_` is no wildcard
    assert found(filled, "soft fwd", limit=2).cases == (WIDE, NARROW)
    assert found(filled, "  ") == found(filled, "no such thing") == SearchResults((), (), ())


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("#131", [3, 2]),
        ("1310", [1]),
        ("typo FIX", [2]),
        ("100%", [1]),
        (sha_of(1)[:9].upper(), [1]),
        ("%", [1]),
    ],
)
def test_a_commit_is_found_by_sha_subject_and_pull_request(filled: Engine, text: str, numbers: list[int]) -> None:
    assert [one.commit.sha for one in found(filled, text).commits] == [sha_of(number) for number in numbers]


def test_a_found_commit_names_its_newest_run(filled: Engine) -> None:
    later = NOON + timedelta(days=2)
    newest = make_record(2, started_at=later, finished_at=later)
    ingest_record(filled, newest)
    (one,) = found(filled, sha_of(2)).commits
    assert one.run_id == str(newest.run_id)
