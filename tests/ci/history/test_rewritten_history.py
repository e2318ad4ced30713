"""A rewritten branch: its old commits stay stored, and are not analysed."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.ci.history.history import unconfirmed
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.retention import Part, prune
from roofwatch.db.queries.project import list_commits
from roofwatch.db.queries.runs import list_runs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.trend import TrendQuestion, read_trend
from roofwatch.db.schema.runs import CommitRow, RunRow
from roofwatch.model.machine import Outcome
from tests.builders import (
    NOON,
    PROJECT,
    make_accuracy,
    make_commit,
    make_measurement,
    make_record,
    make_series_key,
)
from tests.ci.values import stepped

KEY = make_series_key()


class Branch:
    """The branch `main` of a repository, with measurements."""

    def __init__(self, store: Engine) -> None:
        self.store = store
        self._line: list[str] = []
        self._numbers = count()

    def measured(self, median_ns: float, *, passes: bool = True) -> str:
        """Make and measure a commit."""
        parents, place = tuple(self._line[-1:]), len(self._line) + 1
        commit = make_commit(next(self._numbers), parents=parents, first_parent_count=place)
        began = commit.committed_at + timedelta(minutes=1)
        record = make_record(
            commit=commit,
            started_at=began,
            finished_at=began + timedelta(minutes=5),
            measurements=[make_measurement(median_ns=median_ns)],
            accuracies=[make_accuracy(outcome=Outcome.OK if passes else Outcome.INCORRECT)],
        )
        ingest_record(self.store, record)
        self._line.append(commit.sha)
        return commit.sha

    def rewind(self, sha: str) -> None:
        del self._line[self._line.index(sha) + 1 :]

    def trend(self) -> list[str]:
        """Return the shas of the points, which are the same for pages and for the analysis."""
        with Session(self.store) as session:
            (drawn,) = read_trend(session, TrendQuestion(PROJECT, (KEY,))).series
            (named,) = read_trend(
                session, TrendQuestion(PROJECT, (KEY,), branches=("main",))
            ).series
            (read,) = read_series(session, PROJECT, keys=[KEY])
        assert drawn.points == named.points
        assert [point.value for point in drawn.points] == [point.value for point in read.points]
        return [point.commit.sha for point in read.points]


def test_commits_of_a_rewritten_branch_are_ignored(store: Engine) -> None:
    branch = Branch(store)
    values = stepped(at=8, factor=1.4, count=14)
    shared = [branch.measured(value) for value in values[:8]]
    left = [branch.measured(value, passes=False) for value in values[8:]]
    slower = analyse_project(store, PROJECT)
    assert {found.commit.sha for found in slower} == {left[0]}
    assert branch.trend() == shared + left

    branch.rewind(shared[-1])
    new = [branch.measured(value) for value in stepped(factor=1.0, seed=5, count=6)]
    mixed = branch.trend()
    judged = analyse_project(store, PROJECT)

    # before the analysis, old and new commits alternate
    assert [sha in left for sha in mixed[8:]].count(True) == len(left)
    assert mixed[8:] != left + new
    assert judged == []
    assert unconfirmed(judged) == []
    assert branch.trend() == shared + new
    with Session(store) as session:
        runs = list_runs(session, PROJECT)
        assert {run.commit.sha for run in runs if run.is_unreachable} == set(left)
        commits = list_commits(session, PROJECT)
        assert [commit.sha for commit in commits] == left + shared + new
        assert {commit.sha for commit in commits if commit.is_unreachable} == set(left)
        every = read_series(session, PROJECT, keys=[KEY], include_branches=True)
    assert len(every[0].points) == len(shared + left + new)
    # only the newest run of the new branch keeps its samples
    prune(store, {Part.SAMPLES: 1}, now=NOON + timedelta(days=30), is_dry_run=False, actor="test")
    with Session(store) as session:
        whole = select(CommitRow.sha).join(RunRow).where(RunRow.samples_pruned_at.is_(None))
        assert session.scalars(whole).all() == [new[-1]]
