"""How one case and implementation stands after its newest run: what a new value is judged by, without its history.
Pure.

A new run moves a standing on if there is nothing to tell: its times raise no alarm online
(`roofwatch.ci.changepoint.online`), its
errors and what is measured beside its times stay within what their levels have shown, its machine code is the newest
known, and all worked, now as before. In every other case `advanced` says None: then the whole history is read again and
judged offline. So it is

- if a run was timed by another timer or cache state, came late, out of order or again, as a side of a pair or with
  hardware counters or a profile: it changes what was judged already, or what explains it;
- while a series is too young for the online method to be as sure as the offline one; and as its newest level grows, at
  twice the values each time: then what was told of it may still move;
- when a series has grown by a tenth. What the online method cannot see, a slow drift or a step within the noise, is
  found then, and each value is read ten times in all, however long the history. Series take their turns: which values
  are whose is spread by what they are called.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.changepoint import online
from roofwatch.ci.changepoint.online_state import OnlineState
from roofwatch.ci.history.dates import Nights
from roofwatch.ci.history.relative_error import relative_error
from roofwatch.db.queries.run_results_values import JudgedRun, NewError, News, NewTime

Place = tuple[int, str]
"""Of a commit on the branch: its first-parent count and sha."""

_GROWTH = math.log(1.1)
_ENOUGH = 64
"""Values of which the noise is known, below which the online method needs nearly twice the evidence or more."""
_YOUNG = 32
"""Values of the newest level after which it is no burst any more, and its place and size stay."""


@dataclass(frozen=True)
class TimeStanding:
    """One series of times, by the timer and cache state that were used last."""

    runner_class: str
    timing: str
    """As in `cupti, cold`."""
    last: Place
    """The newest commit with a time."""
    state: OnlineState
    looked_at: int
    """Commits with a time when the whole series was judged last."""
    level_count: int
    """Of these, in its newest level."""
    nights: Nights

    @property
    def commit_count(self) -> int:
        return self.state.seen

    def is_due(self, name: str) -> bool:
        """Whether the whole series is to be judged again."""
        grown = self.level_count + self.commit_count - self.looked_at
        if self.level_count < _YOUNG and grown >= 2 * self.level_count:
            return True
        return _is_turn(f"{name} {self.runner_class}", self.looked_at, self.commit_count)


@dataclass(frozen=True)
class ErrorStanding:
    """The errors of one tensor: what its newest level has shown, as far as that is settled."""

    runner_class: str
    tensor: str
    low: float
    high: float
    looked_at: int
    """Runs when the whole series was judged last."""
    run_count: int


@dataclass(frozen=True)
class BesideStanding:
    """What is measured beside the times of one series: the range of its newest level, as far as that is settled. Its
    turn to be judged whole is that of the times.
    """

    runner_class: str
    timing: str
    metric: str
    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """All that a new run of one case and implementation is held against."""

    times: tuple[TimeStanding, ...] = ()
    errors: tuple[ErrorStanding, ...] = ()
    code: str = ""
    """Fingerprint of the newest machine code; empty where there is none."""
    is_failing: bool = False
    """Something did not work at the newest commit."""
    beside: tuple[BesideStanding, ...] = ()


def advanced(name: str, standing: Standing, news: News, runs: Mapping[int, JudgedRun]) -> Standing | None:
    """The standing after new runs; None if the history has to be read.

    Args:
        name: Of the case and implementation.
        standing: As it was.
        news: What the new runs brought.
        runs: The new runs, by number.
    """
    if standing.is_failing or news.has_witnesses or (news.code is not None and news.code != standing.code):
        return None
    numbers = {time.run_number for time in news.times} | {error.run_number for error in news.errors}
    if any(runs[number].is_pair for number in numbers):
        return None
    if not _are_as_before(standing.beside, news.times):
        return None
    errors = _advanced_errors(name, standing.errors, news.errors, runs)
    if errors is None:
        return None
    times = {one.runner_class: one for one in standing.times}
    by_class: dict[str, list[NewTime]] = defaultdict(list)
    for time in news.times:
        by_class[time.runner_class].append(time)
    for runner_class, new in by_class.items():
        known = times.get(runner_class)
        moved_on = None if known is None else _advanced_times(name, known, new, runs)
        if moved_on is None:
            return None
        times[runner_class] = moved_on
    return replace(standing, times=tuple(times.values()), errors=errors)


def _are_as_before(standings: Sequence[BesideStanding], new: Sequence[NewTime]) -> bool:
    """Whether what was measured beside the times lies in the range of its level."""
    known = {(one.runner_class, one.timing, one.metric): one for one in standings}
    for time in new:
        for metric, value in time.beside.items():
            one = known.get((time.runner_class, time.timing, metric))
            if one is None or not one.low <= value <= one.high:
                return False
    return True


def _advanced_times(
    name: str, standing: TimeStanding, new: Sequence[NewTime], runs: Mapping[int, JudgedRun]
) -> TimeStanding | None:
    by_commit: dict[Place, list[NewTime]] = defaultdict(list)
    for time in new:
        by_commit[runs[time.run_number].place, runs[time.run_number].sha].append(time)
    state, nights = standing.state, standing.nights
    if not state.residuals or len(state.values) + len(state.earlier) + len(state.residuals) < _ENOUGH:
        return None
    for commit, own in sorted(by_commit.items()):
        medians_ns = [time.median_ns for time in own if time.median_ns is not None]
        error = relative_error((time.relative_spread, time.block_count) for time in own)
        if commit <= standing.last or len(medians_ns) < len(own) or any(one.timing != standing.timing for one in own):
            return None
        state, alarm = online.update(state, statistics.median(medians_ns), error)
        if alarm is not None:
            return None
        nights = nights.with_night(min(runs[time.run_number].measured_on for time in own))
    moved_on = replace(standing, last=max(by_commit), state=state, nights=nights)
    return None if moved_on.is_due(name) else moved_on


def _advanced_errors(
    name: str, standings: Sequence[ErrorStanding], new: Sequence[NewError], runs: Mapping[int, JudgedRun]
) -> tuple[ErrorStanding, ...] | None:
    known = {(one.runner_class, one.tensor): one for one in standings}
    for error in new:
        if not error.is_ok:
            return None
        if error.tensor is None or error.rmse_ratio is None:
            continue  # it passed, and nothing was compared
        key = runs[error.run_number].runner_class, error.tensor
        one = known.get(key)
        if one is None or not one.low <= error.rmse_ratio <= one.high:
            return None
        known[key] = replace(one, run_count=one.run_count + 1)
        if _is_turn(f"{name} {key}", one.looked_at, one.run_count + 1):
            return None
    return tuple(known.values())


def _is_turn(name: str, looked_at: int, count: int) -> bool:
    """Whether a series has grown by a tenth, counted from a number of its own."""
    own = zlib.crc32(name.encode()) / 2**32
    before, now = (math.floor(math.log(max(values, 1)) / _GROWTH + own) for values in (looked_at, count))
    return now > before
