"""Questions that are narrowed to some runners, branches or cases, the filters that can be chosen,
and search.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.comparing import read_runs_by_runner
from roofwatch.db.queries.fleet import list_case_costs, list_fleet_runs, list_kernel_costs
from roofwatch.db.queries.project import list_commits, read_filter_options, search
from roofwatch.db.queries.runners import list_runner_coverage
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import CaseOption, FilterOptions, SearchResults
from tests.builders import (
    NOON,
    PROJECT,
    make_case,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_source_line,
    sha_of,
)
from tests.databases import Databases, ingest_all

MINE, SILENT = make_environment(), make_environment(device_name="Silent CPU")
SMALL, DEAR = "softmax/n=8/float16/fwd", "softmax/n=8/float32/fwd"


def record(number: int, branch: str | None = "main", **fields: Any) -> RunRecord:
    return make_record(
        number,
        commit=make_commit(number, branch=branch),
        measurements=[
            make_measurement(SMALL, median_ns=1_000.0),
            make_measurement(DEAR, median_ns=9_000.0),
        ],
        **fields,
    )


RECORDS = [
    record(0, environment=SILENT),
    record(1, "old"),
    record(2, environment=SILENT),
    *(record(number) for number in range(3, 7)),
    # a commit of the old branch that was measured again, nobody says on which branch
    record(1, None, started_at=make_commit(9).committed_at),
    record(6, environment=SILENT, started_at=make_commit(0).committed_at),
]


@pytest.fixture(scope="module")
def session(databases: Databases) -> Iterator[Session]:
    with databases.store() as engine, Session(engine) as opened:
        ingest_all(engine, *RECORDS)
        yield opened


def found(session: Session, **asked: Any) -> list[int]:
    """Which of the records, the newest first."""
    places = {str(one.run_id): at for at, one in enumerate(RECORDS)}
    return [places[run.run_id] for run in list_fleet_runs(session, PROJECT, **asked)]


def test_the_newest_runs_are_found_behind_newer_ones_that_do_not_fit(
    session: Session,
) -> None:
    silent, mine, oldest = (SILENT.runner_class,), (MINE.runner_class,), str(RECORDS[0].run_id)
    assert found(session, limit=2) == [7, 6]
    assert found(session, limit=2, branches=("old",)) == [7, 1]
    assert found(session, limit=1, branches=("old", "main")) == [7]
    assert found(session, limit=9, branches=("never",)) == []
    assert found(session, limit=1, runner_classes=silent) == [2]
    assert found(session, limit=9, runner_classes=silent, branches=("old",)) == []
    assert found(session, limit=1, or_run=oldest, runner_classes=silent) == [2, 0]
    assert found(session, limit=1, or_run=oldest, runner_classes=mine) == [7]
    assert found(session, limit=1, of_each_class=True) == [7, 2]
    assert found(session, limit=2, of_each_class=True) == [7, 6, 2, 0]
    assert found(session, limit=1, of_each_class=True, branches=("main",)) == [6, 2]


def test_of_the_commits_that_a_runner_class_measured_its_runs_are_read(session: Session) -> None:
    commits = list_commits(session, PROJECT, runner_classes=(SILENT.runner_class,))
    assert [commit.sha for commit in commits] == [sha_of(0), sha_of(2), sha_of(6)]

    (silent,) = read_runs_by_runner(
        session, PROJECT, sha_of(2), sha_of(6), runner_classes=(SILENT.runner_class,)
    )
    both = read_runs_by_runner(session, PROJECT, sha_of(2), sha_of(6))

    assert silent.base is not None
    assert silent.base.summary.commit.sha == sha_of(2)
    assert [one.runner_class for one in both] == [SILENT.runner_class, MINE.runner_class]
    # the other runner measured one of the two only
    assert both[1].base is None


def test_a_runner_stands_by_its_newest_run_of_a_branch(session: Session) -> None:
    def standing(**asked: Any) -> list[tuple[str, str | None]]:
        return [
            (one.runner_class, one.run_id)
            for one in list_runner_coverage(session, PROJECT, **asked)
        ]

    on_mine = (MINE.runner_class, str(RECORDS[6].run_id))
    assert standing(branches=("main",)) == [on_mine, (SILENT.runner_class, str(RECORDS[2].run_id))]
    assert standing(branches=("old",)) == [(MINE.runner_class, str(RECORDS[7].run_id))]
    assert standing(branches=("main",), runner_classes=(MINE.runner_class,)) == [on_mine]


def test_costs_are_those_of_some_cases(session: Session) -> None:
    run_ids, small, never = (
        (RECORDS[3].run_id,),
        frozenset({SMALL}),
        frozenset({"never/n=1/float16/fwd"}),
    )
    (every,) = list_kernel_costs(session, run_ids)
    (some,) = list_kernel_costs(session, run_ids, case_ids=small)
    assert (every.measurement_count, some.measurement_count) == (2, 1)
    assert some.timed_ns == pytest.approx(every.timed_ns / 10)
    assert list_kernel_costs(session, run_ids, case_ids=never) == []
    assert [one.case_id for one in list_case_costs(session, run_ids, limit=1)] == [DEAR]
    assert [one.case_id for one in list_case_costs(session, run_ids, limit=1, case_ids=small)] == [
        SMALL
    ]
    assert list_case_costs(session, run_ids, limit=1, case_ids=frozenset()) == []


SOFTMAX = "softmax/n=8/float16/fwd"


def read(store: Engine, project: str = PROJECT) -> FilterOptions:
    with Session(store) as session:
        return read_filter_options(session, project)


def test_a_case_is_described_by_the_newest_run_that_knows_it(store: Engine) -> None:
    for number, tags in enumerate((("smoke",), ("smoke", "full"))):
        case = make_case(SOFTMAX, family=f"family {number}", tags=tags, token_count=8 + number)
        ingest_record(store, make_record(number, measurements=[], cases=(case,)))
    (found,) = read(store).cases
    assert found == CaseOption(
        SOFTMAX, "softmax", "float16", "family 1", ("smoke", "full"), found.costs
    )
    assert found.costs["tokens_per_s"] == 9


def ingest_two_branches(store: Engine) -> None:
    """Two runs of a CPU and one of a GPU on main, and one of the CPU on a feature branch."""
    gpu = make_environment(device_kind="cuda", device_name="A GPU")
    for number, environment in enumerate((make_environment(), make_environment(), gpu)):
        ingest_record(store, make_record(number, environment=environment))
    ingest_record(store, make_record(commit=make_commit(3, branch="feature")))


def test_branches_have_their_commits(store: Engine) -> None:
    ingest_two_branches(store)

    options = read(store)

    assert options.commits_by_branch == {
        "main": set(map(sha_of, range(3))),
        "feature": {make_commit(3).sha},
    }
    assert options.commit_count == 4


def test_runner_classes_are_named_once(store: Engine) -> None:
    ingest_two_branches(store)

    options = read(store)

    cpu_class = make_environment().runner_class
    gpu_class = make_environment(device_kind="cuda", device_name="A GPU").runner_class
    assert options.runner_classes == (gpu_class, cpu_class)
    assert options.cpu_classes == {cpu_class}


def test_a_kernel_is_where_the_newest_run_that_knows_it_says(store: Engine) -> None:
    older, newer = (make_source_line(kernel="softmax", file=file) for file in ("old.py", "new.py"))
    for number, lines in enumerate([(older,), (newer,), ()]):
        ingest_record(store, make_record(number, source_lines=lines))

    assert read(store).source_files == {"softmax": "new.py"}


def test_a_kernel_is_where_triton_compiles_it_rather_than_where_it_is_launched(
    store: Engine,
) -> None:
    old, launcher, kernel = (
        make_source_line(kernel="softmax", file=file, is_jitted=file != "launcher.py")
        for file in ("old.py", "launcher.py", "kernel.py")
    )
    for number, lines in enumerate([(old,), (launcher, kernel), ()]):
        ingest_record(store, make_record(number, source_lines=lines))

    assert read(store).source_files == {"softmax": "kernel.py"}


def test_results_of_other_projects_are_no_options(store: Engine) -> None:
    ingest_record(store, make_record(project="another/project"))
    assert read(store) == FilterOptions((), {}, ())


WIDE, NARROW, GEMM = (
    "soft_max/n=16/float32/fwd",
    "soft_max/n=8/float32/fwd",
    "softmaxgemm/M=8/float32/fwd",
)
SUBJECTS = [
    "Start",
    "Tune 12 100% faster (#1310)",
    "Fix a typo (#131)",
    "Merge pull request #131 from a/b",
]


@pytest.fixture
def filled(store: Engine) -> Engine:
    measured = [make_measurement(case_id) for case_id in (WIDE, NARROW, GEMM)]
    for number, subject in enumerate(SUBJECTS):
        commit = make_commit(number, subject=subject)
        ingest_record(store, make_record(number, commit=commit, measurements=measured))
    ingest_record(store, make_record(0, project="other/project", measurements=measured))
    return store


def searched(engine: Engine, text: str, *, limit: int = 10) -> SearchResults:
    with Session(engine) as session:
        return search(session, PROJECT, text, limit=limit)


def test_every_word_of_a_search_must_occur_in_one_name(filled: Engine) -> None:
    assert (searched(filled, "SOFT").kernels, searched(filled, "soft float32").kernels) == (
        ("soft_max", "softmaxgemm"),
        (),
    )
    assert searched(filled, "soft_max fwd").cases == (WIDE, NARROW)  # `_` is no wildcard
    assert searched(filled, "soft fwd", limit=2).cases == (WIDE, NARROW)
    assert searched(filled, "  ") == searched(filled, "no such thing") == SearchResults((), (), ())


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
def test_a_commit_is_found_by_each_of_its_names(
    filled: Engine, text: str, numbers: list[int]
) -> None:
    assert [one.commit.sha for one in searched(filled, text).commits] == [
        sha_of(number) for number in numbers
    ]


def test_a_found_commit_names_its_newest_run(filled: Engine) -> None:
    later = NOON + timedelta(days=2)
    newest = make_record(2, started_at=later, finished_at=later)
    ingest_record(filled, newest)
    (one,) = searched(filled, sha_of(2)).commits
    assert one.run_id == str(newest.run_id)
