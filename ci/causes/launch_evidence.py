"""Profiles as evidence of a cause: what the calls of a case launch otherwise since a time moved. Pure.

Which kernels a call launches, and how often, is chosen by code on the host: the same machine code of a kernel says
nothing of it, and a library chooses anew with each version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.launched import LaunchChange, LaunchMove, find_launch_moves, may_explain
from roofwatch.ci.history.sides import RecordedRuns
from roofwatch.db.queries.profiled_values import ProfiledRun
from roofwatch.db.values import CommitRef, SeriesKey

_TOLD = 2
"""Moves that are told in words."""
_MOST_WORDS = 120
"""Characters that are told of one: names of templates run to hundreds."""


@dataclass(frozen=True)
class LaunchedStep:
    """What was launched on both sides of a step."""

    base: CommitRef
    head: CommitRef
    moves: tuple[LaunchMove, ...]
    """What takes the largest share of its call first."""
    is_at_the_step: bool
    """No commit that was timed lies between the two profiles."""

    def may_explain(self, log_change: float) -> bool:
        """Whether what moved takes enough of the slower calls for such a change of their time."""
        return may_explain(self.moves, log_change)

    def in_words(self) -> str:
        """What moved, with shares of a call."""
        told = ", ".join(_in_words(move) for move in self.moves[:_TOLD])
        rest = len(self.moves) - _TOLD
        where = f"by profiles of {self.base.short_sha} and {self.head.short_sha} its calls launch something else"
        return f"{where}: {told}{f', and {rest} more' if rest > 0 else ''}"


class LaunchEvidence:
    """All profiles of a history, by what was profiled."""

    def __init__(self, runs: Iterable[ProfiledRun] = ()) -> None:
        self._runs = RecordedRuns(runs, lambda run: (run.profile.case_id, run.profile.implementation))

    def around(self, key: SeriesKey, before: Sequence[CommitRef], after: Sequence[CommitRef]) -> LaunchedStep | None:
        """What was launched on both sides of a step; None where a side has no profile.

        Args:
            key: Of the series.
            before: First and last commit of the old level.
            after: The same of the new one.
        """
        sides = self._runs.beside(key, before, after)
        if sides is None:
            return None
        old, new = sides
        return LaunchedStep(
            base=old.commit,
            head=new.commit,
            moves=find_launch_moves([old.profile], [new.profile]),
            is_at_the_step=(old.commit, new.commit) == (before[-1], after[0]),
        )


def _in_words(move: LaunchMove) -> str:
    said = str(move.remark)
    cut = said if len(said) <= _MOST_WORDS else f"{said[: _MOST_WORDS - 1]}…"
    where = "before" if move.change is LaunchChange.GONE else "after"
    return f"{cut} ({move.share:.0%} of a call {where})"
