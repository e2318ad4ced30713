"""Hardware counters as evidence of a cause: which of them moved with a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.counters import CounterMove, rank_moves
from roofwatch.ci.history.sides import RecordedRuns
from roofwatch.db.queries.counted_values import CountedRun
from roofwatch.db.values import CommitRef, SeriesKey

_TOLD = 3
"""Counters that are named."""
_TIMES = ("duration", "cycles", "clock", "frequency")
"""What begins with these is time again, read under a profiler: it explains nothing."""


@dataclass(frozen=True)
class CountedStep:
    """Counters on both sides of a step."""

    base: CommitRef
    head: CommitRef
    moves: tuple[CounterMove, ...]
    """Those that moved, the most first; each once, of the launch where it moved most."""

    def in_words(self) -> str:
        where = f"counters read at {self.base.short_sha} and {self.head.short_sha}"
        if not self.moves:
            return f"{where} are the same within 2 %"
        told = ", ".join(_in_words(move) for move in self.moves[:_TOLD])
        rest = len(self.moves) - _TOLD
        return f"{where}: {told}{f', and {rest} more' if rest > 0 else ''}"


class CounterEvidence:
    """All counters of a history, by what was counted."""

    def __init__(self, runs: Iterable[CountedRun] = ()) -> None:
        self._runs = RecordedRuns(runs, lambda run: (run.case_id, run.implementation))

    def around(self, key: SeriesKey, before: Sequence[CommitRef], after: Sequence[CommitRef]) -> CountedStep | None:
        """The counters on both sides of a step; None where a side has none.

        Args:
            key: Of the series.
            before: First and last commit of the old level.
            after: The same of the new one.
        """
        sides = self._runs.beside(key, before, after)
        if sides is None:
            return None
        old, new = sides
        moves: dict[str, CounterMove] = {}
        for move in rank_moves(old.counters, new.counters):
            if not move.name.startswith(_TIMES):
                moves.setdefault(move.name, move)
        return CountedStep(old.commit, new.commit, tuple(moves.values()))


def _in_words(move: CounterMove) -> str:
    name = move.name.removesuffix("_share").removesuffix("_count").replace("_", " ")
    if move.name.endswith("_share") or not move.base:
        sides = (f"{side:.0%}" if move.name.endswith("_share") else f"{side:g}" for side in (move.base, move.head))
        return f"{name} {' to '.join(sides)}"
    return f"{name} {move.relative_change:+.0%}"
