"""The runs of a project's branch in their order, for who reads values by the thousand beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import CTE, Integer, Row, Select, cast, func, select
from sqlalchemy.orm import Session

from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow

_ALONG = (CommitRow.first_parent_count, CommitRow.sha)
_IN_ORDER = (*_ALONG, RunRow.started_at, RunRow.run_id)


@dataclass(frozen=True)
class Branch:
    """The runs of a project's branch as they are at one moment: others come in while their values are read."""

    runs: Sequence[Row[Any]]
    """In the order of the branch and of time: `run_number`, `started_at`, `first_parent_count`, `sha`, and `place`, of
    the commit among those that have runs, from 0."""
    wanted: CTE
    """The numbers of such runs, as `run_number`, whenever it is asked for."""

    def in_order(self, run_numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Of values by the numbers of their runs, the places of these among `runs`, in order; and where in the values
        each lies. What came in since is left out.
        """
        found = self._place_by_number[np.clip(run_numbers.astype(np.int64) - self._first, 0, self._span)]
        order = np.argsort(found)
        order = order[np.searchsorted(found, 0, sorter=order) :]
        return found[order], order

    @cached_property
    def _first(self) -> int:
        """One less than the lowest number: an unknown one, as the one past the highest is."""
        return min((run.run_number for run in self.runs), default=0) - 1

    @cached_property
    def _span(self) -> int:
        return max((run.run_number for run in self.runs), default=0) - self._first + 1

    @cached_property
    def _place_by_number(self) -> NDArray[np.int64]:
        places = np.full(self._span + 1, -1, dtype=np.int64)
        places[[run.run_number - self._first for run in self.runs]] = np.arange(len(self.runs))
        return places


def read_branch(session: Session, project: str, *, include_pairs: bool) -> Branch:
    """The runs that count for the trends of a project."""
    wanted = _wanted(project, include_pairs=include_pairs)
    place = func.dense_rank().over(order_by=_ALONG) - 1
    query = wanted.add_columns(RunRow.started_at, *_ALONG, cast(place, Integer).label("place"))
    return Branch(session.execute(query.order_by(*_IN_ORDER)).all(), wanted.cte("wanted"))


def numbered_runs(project: str, *, include_pairs: bool) -> CTE:
    """The same as part of one statement: each `run_number` with its `number`, by which later ones are higher."""
    number = func.row_number().over(order_by=_IN_ORDER)
    return _wanted(project, include_pairs=include_pairs).add_columns(number.label("number")).cte("numbered")


def _wanted(project: str, *, include_pairs: bool) -> Select[int]:
    return (
        select(RunRow.number.label("run_number"))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(of_series(project, include_dirty=False, include_pairs=include_pairs, include_branches=False))
    )
