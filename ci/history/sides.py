"""The two sides of a step among what is recorded now and then, counters and profiles of calls. Pure.

The last run of the old level is held against the first of the new one: both show the code as it stood there, if no
other step lies between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from roofwatch.db.values import CommitRef, SeriesKey


class _Recorded(Protocol):
    @property
    def commit(self) -> CommitRef: ...
    @property
    def runner_class(self) -> str: ...


_Run = TypeVar("_Run", bound=_Recorded)


class RecordedRuns(Generic[_Run]):
    """Runs of a history in the order of the branch, by case, implementation and runner class."""

    def __init__(self, runs: Iterable[_Run], subject_of: Callable[[_Run], tuple[str, str]]) -> None:
        """Keep them.

        Args:
            runs: In the order of the branch.
            subject_of: Case and implementation of one.
        """
        self._runs: dict[tuple[str, str, str], list[_Run]] = defaultdict(list)
        for run in runs:
            self._runs[*subject_of(run), run.runner_class].append(run)

    def beside(
        self, key: SeriesKey, before: Sequence[CommitRef], after: Sequence[CommitRef]
    ) -> tuple[_Run, _Run] | None:
        """The last run of the old level and the first of the new one; None where a level has none.

        Args:
            key: Of the series.
            before: First and last commit of the old level.
            after: The same of the new one.
        """
        runs = self._runs.get((key.case_id, key.implementation, key.runner_class), [])
        base = [run for run in runs if before[0] <= run.commit <= before[-1]]
        head = [run for run in runs if after[0] <= run.commit <= after[-1]]
        return (base[-1], head[0]) if base and head else None
