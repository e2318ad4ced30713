"""Judge a series value by value: small state in, small state out. Pure; online.

Each new value is weighed in the currency of `roofwatch.ci.changepoint.detect`: what the last few values cost at the
level the
series had,
less what they cost at the best new level. The noise that sets the costs is learnt from what the series did before
(`roofwatch.ci.changepoint.noise`), and a spell no longer than its bursts is none of its levels
(`roofwatch.ci.changepoint.levels`). Nothing is
computed over the whole series, and a state holds at most 256 values. One that is less certain than most weighs less,
as offline (`roofwatch.ci.changepoint.noise`).

Source of the test: the window-limited generalised likelihood ratio (Willsky and Jones 1976; Lai 1995), here under a
learnt, bounded density in place of the normal one.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from roofwatch.ci.changepoint.baseline import (
    CAUTION,
    Held,
    Learnt,
    gains_of_a_new_level,
    learnt_from,
    level_of,
    line_ahead,
    most_inflation,
    rest_of,
)
from roofwatch.ci.changepoint.levels import Bursts, fit_levels
from roofwatch.ci.changepoint.noise import OUTLIER, Certainty, Values, joined_errors, kept_errors, known_errors, median

_MAX_VALUES = 128
"""Of a level that are remembered."""
_MAX_RESIDUALS = 96
"""Distances from earlier levels that are remembered: what the noise is learnt from."""
LEARNING = 30
"""Values before the first judgement, which the offline method cuts into levels."""
_WINDOW = 24
"""Values over which a step is looked for: one that does not show in so many is left to the offline method."""
_GUARD = 12
"""Newest values that say nothing of the present level and its noise, because they may belong to the next one."""
_MIN_LEVEL = 8
"""Values that a level needs before a step away from it can be seen."""
_MIN_NEW = 5
"""Values that a new level needs: what ends sooner is a burst, before the series has shown how long its bursts are."""
_ACCEPTED = 20
"""Values after which a new level is no burst that may yet end."""
_BLOCK = 8
"""Values between two looks at the noise."""
_THRESHOLD = 8.0 + 2 * math.log(_WINDOW)
"""Twice the log likelihood ratio that a step takes: the penalty of the offline method over the window."""
_LEARNING_CAUTION = (1 + CAUTION / math.sqrt(LEARNING)) / (1 - CAUTION / math.sqrt(LEARNING))
"""Factor on the penalty of steps among the first values, by which a level varies more in noise so dependent: a step
that is taken for noise there only waits, noise that is taken for a step makes the rest look quieter than it is."""
_RETURN_THRESHOLD = 8.0
"""The same to be back at the level before: no place is looked for, and bursts end."""
_BURST_RATE = 1.2e-3
"""False alarms per value that bursts alone may cause; what they do not reach the threshold with, they do not cause."""


def start(*, min_relative_change: float = 0.03) -> OnlineState:
    """A series of which nothing is known.

    Raises:
        ValueError: `min_relative_change` is not above 0.
    """
    if not min_relative_change > 0:
        raise ValueError(f"min_relative_change={min_relative_change}: give a fraction above 0, such as 0.03")
    return OnlineState(min_relative_change=min_relative_change)


def resume(
    values: Sequence[float] | Values,
    starts: Sequence[int],
    *,
    min_relative_change: float = 0.03,
    relative_errors: Sequence[float] | Values | None = None,
) -> OnlineState:
    """The state after a series whose levels the offline method has found: what comes next is judged from there.

    Args:
        values: All of the series; what is not finite is a gap.
        starts: Positions at which its levels begin, the first level's left out.
        min_relative_change: As for `start`.
        relative_errors: Standard error of each value, as for `update`.
    """
    given = np.asarray(values, dtype=np.float64).ravel()
    state = start(min_relative_change=min_relative_change)
    positions = np.flatnonzero(np.isfinite(given))
    raw = given[positions]
    errors = () if relative_errors is None else kept_errors(np.asarray(relative_errors, dtype=np.float64)[positions])
    if len(raw) < LEARNING:
        return replace(
            state, seen=len(given), values=tuple(raw.tolist()), positions=tuple(positions.tolist()), errors=errors
        )
    unit = 0.0 if raw.min() > 0 else float(np.median(np.abs(raw))) or float(np.max(np.abs(raw))) or 1.0
    scaled = raw / unit if unit else np.log(raw)
    edges = [0, *np.searchsorted(positions, starts).tolist(), len(raw)]
    begins = edges[-2]
    # the level may be a burst that ends, as long as it is young; a long one is noise but for its newest values
    is_young = begins > 0 and len(raw) - begins < _ACCEPTED + _GUARD
    kept = max(begins, len(raw) - _MAX_VALUES)
    known = edges[-3] if is_young else kept
    widths = _widths_among(scaled, _on_scale(errors, scaled, unit), _floor(state))
    residuals: list[float] = []
    for first, last in reversed(list(pairwise(edges))):
        if first < known and len(residuals) < _MAX_RESIDUALS:
            own = rest_of((), scaled[first:last], _floor(state), None if widths is None else widths[first:last])
            residuals = own[: known - first] + residuals
    return replace(
        state,
        seen=len(given),
        unit=unit,
        values=tuple(raw[kept:].tolist()),
        positions=tuple(positions[kept:].tolist()),
        earlier=tuple(raw[edges[-3] : begins][-_MAX_VALUES:].tolist()) if is_young else (),
        residuals=tuple(residuals[-_MAX_RESIDUALS:]) or (0.0,),
        errors=errors[kept:],
        earlier_errors=errors[edges[-3] : begins][-_MAX_VALUES:] if is_young else (),
    )


def update(state: OnlineState, value: float, relative_error: float = math.nan) -> tuple[OnlineState, Alarm | None]:
    """Take in the next value of a series.

    Args:
        state: As the value before left it, or as `start` gave it.
        value: What is not finite is a gap: it keeps its position and says nothing. So does what is 0 or below in a
            series whose first values were above.
        relative_error: Standard error of the value as a fraction of it, as
        `roofwatch.ci.changepoint.detect.find_change_points`
        takes them;
            0 and what is not finite is not known.

    Returns:
        The state from now on, and the new level if one has just come into sight.
    """
    is_learning = not state.residuals
    if not math.isfinite(value) or (value <= 0 and not state.unit and not is_learning):
        return replace(state, seen=state.seen + 1), None
    state = replace(
        state,
        seen=state.seen + 1,
        values=(*state.values, float(value)),
        positions=(*state.positions, state.seen),
        errors=joined_errors((state.errors, len(state.values)), (kept_errors([relative_error]), 1)),
    )
    if is_learning:
        return (_end_learning(state) if len(state.values) >= LEARNING else state), None
    scaled = _scaled(state.values, state.unit)
    step = _find_step(state, scaled)
    if step is not None:
        alarm = Alarm(
            index=state.positions[-step.length],
            before=float(np.median(state.values[: -step.length])),
            after=float(np.median(state.values[-step.length :])),
            count_after=step.length,
            is_return=step.is_return,
        )
        return (_end_burst if step.is_return else _begin_level)(state, step.length), alarm
    if state.earlier and len(state.values) >= _ACCEPTED + _GUARD:
        return replace(state, earlier=(), residuals=_with_earlier(state), earlier_errors=()), None
    return (_forget(state, scaled) if len(state.values) > _MAX_VALUES else state), None


def _scaled(values: tuple[float, ...], unit: float) -> Values:
    """The values on the scale they are judged on."""
    raw = np.array(values)
    return raw / unit if unit else np.log(raw)


def _on_scale(kept: tuple[float, ...], scaled: Values, unit: float) -> Values | None:
    """Standard errors of values on the scale they are judged on; None where none is known."""
    errors = known_errors(kept)
    return errors if errors is None or not unit else errors * np.abs(scaled)


def _widths_among(scaled: Values, errors: Values | None, floor: float) -> Values | None:
    """How much wider each value spreads than most of these do."""
    certainty = None if errors is None else Certainty.of(scaled, errors, floor=floor)
    return None if certainty is None or errors is None else certainty.widths(errors)


def _floor(state: OnlineState) -> float:
    """Smallest noise believed: a third of the smallest step that is told."""
    return math.log1p(state.min_relative_change) / 3


def _end_learning(state: OnlineState) -> OnlineState:
    raw = np.array(state.values)
    unit = 0.0 if raw.min() > 0 else float(np.median(np.abs(raw))) or float(np.max(np.abs(raw))) or 1.0
    scaled = _scaled(state.values, unit)
    widths = _widths_among(scaled, _on_scale(state.errors, scaled, unit), _floor(state))
    fit = fit_levels(scaled, floor=_floor(state), min_segment=3, widths=widths, caution=_LEARNING_CAUTION)
    begins = fit.starts[-1] if fit.starts else 0
    residuals = scaled - fit.fitted() if widths is None else (scaled - fit.fitted()) / widths
    return replace(
        state,
        unit=unit,
        values=state.values[begins:],
        positions=state.positions[begins:],
        residuals=tuple(residuals[:begins].tolist()) or (0.0,),
        errors=state.errors[begins:],
    )


@dataclass(frozen=True)
class _Step:
    length: int
    """Values of the new level."""
    is_return: bool


def _find_step(state: OnlineState, scaled: Values) -> _Step | None:
    """The step that the newest values show, if they show one."""
    count = len(scaled)
    least = _MIN_NEW if state.earlier else _MIN_LEVEL
    window, guard = min(_WINDOW, count - least), min(_GUARD, count - least)
    if window < 2:
        return None
    settled = scaled[: count - guard]
    tail = scaled[count - window :]
    errors = _on_scale(state.errors, scaled, state.unit)
    held = _held(state, settled, errors)
    level = line_ahead(settled, 0.0 if held.is_before else level_of(held).slope, count)[count - window :]
    least_change = math.log1p(state.min_relative_change)
    if not state.earlier and not _reaches(least_change, tail, float(level[-1])):
        return None
    learnt = learnt_from(held)
    noise, known_count = learnt.noise, len(learnt.residuals)
    # the present level is known from so many values only, which blurs a step away from it as much as the new one's do
    widths = None if errors is None or learnt.certainty is None else learnt.certainty.widths(errors[count - window :])
    gains = gains_of_a_new_level(tail, level, noise, widths) * len(settled) / (len(settled) + np.arange(1, window + 1))
    # and the noise from so many: Student's t in place of the normal
    gains = known_count * np.log1p(np.maximum(gains, 0.0) / known_count)
    inflations = most_inflation(noise, known_count, window)
    length = int((gains / inflations).argmax()) + 1
    gain, reached, left = float(gains[length - 1]), median(tail[window - length :]), float(level[-1])
    if state.earlier:
        before = median(_scaled(state.earlier, state.unit))
        if length >= 2 and gain >= _RETURN_THRESHOLD and abs(reached - before) < abs(left - before) / 2:
            return _Step(length, is_return=True)
    is_significant = gain >= _THRESHOLD * inflations[length - 1] and count - length >= _MIN_LEVEL
    is_relevant = abs(reached - left) >= least_change
    if not is_significant or not is_relevant or length < _values_needed(learnt, reached - left):
        return None
    return _Step(length, is_return=False)


def _reaches(least_change: float, tail: Values, level: float) -> bool:
    """Whether the newest values lie far enough from a level, for any number of them that is told. Seldom: so most new
    values are done with before the noise is learnt.

    Args:
        least_change: Smallest step that is told.
        tail: The newest values, shape [values].
        level: The present level at the newest of them.
    """
    ordered: list[float] = []
    for count, value in enumerate(reversed(tail.tolist()), start=1):
        insort(ordered, value)
        if count >= _MIN_NEW:
            middle = ordered[count // 2] if count % 2 else (ordered[count // 2 - 1] + ordered[count // 2]) / 2
            if abs(middle - level) >= least_change:
                return True
    return False


def _held(state: OnlineState, settled: Values, errors: Values | None) -> Held:
    """It stays for a block of values, so that it need not be learnt anew for each."""
    if state.earlier:
        held = _scaled(state.earlier, state.unit)
        errors = _on_scale(state.earlier_errors, held, state.unit)
    else:
        held = settled[: max(len(settled) - state.seen % _BLOCK, 0)]
    own = () if errors is None else tuple(np.nan_to_num(errors[: len(held)]).tolist())
    return Held(tuple(held.tolist()), own, state.residuals, _floor(state), bool(state.earlier))


def _values_needed(learnt: Learnt, step: float) -> float:
    """Values of a new level that bursts explain less often than is promised. Only those bursts count which went the
    same way and at least half as far.
    """
    reached = learnt.residuals * math.copysign(1.0, step)
    bursts = Bursts.of(reached > max(OUTLIER * learnt.noise.deviation, abs(step) / 2))
    return max(bursts.longest_at_rate(len(reached), _BURST_RATE), _MIN_NEW)


def _with_earlier(state: OnlineState) -> tuple[float, ...]:
    """What is remembered of the noise, the level before with it."""
    earlier = _scaled(state.earlier, state.unit)
    widths = _widths_among(earlier, _on_scale(state.earlier_errors, earlier, state.unit), _floor(state))
    return (*state.residuals, *rest_of(state.residuals, earlier, _floor(state), widths))[-_MAX_RESIDUALS:]


def _begin_level(state: OnlineState, length: int) -> OnlineState:
    residuals = _with_earlier(state) if state.earlier else state.residuals
    return replace(
        state,
        values=state.values[-length:],
        positions=state.positions[-length:],
        earlier=state.values[:-length],
        residuals=residuals,
        errors=state.errors[-length:],
        earlier_errors=state.errors[:-length],
    )


def _end_burst(state: OnlineState, length: int) -> OnlineState:
    """Back where it was: the values in between lie far from that level, which is learnt of them."""
    burst = _scaled(state.values[:-length], state.unit) - median(_scaled(state.earlier, state.unit))
    kept = state.earlier[-(_MAX_VALUES - length) :]
    kept_too = state.earlier_errors[-(_MAX_VALUES - length) :]
    # places of the values before the burst no longer matter: no step will be looked for among them
    return replace(
        state,
        values=(*kept, *state.values[-length:]),
        positions=(*([state.positions[0]] * len(kept)), *state.positions[-length:]),
        earlier=(),
        residuals=(*state.residuals, *burst.tolist())[-_MAX_RESIDUALS:],
        errors=joined_errors((kept_too, len(kept)), (state.errors[-length:], length)),
        earlier_errors=(),
    )


def _forget(state: OnlineState, scaled: Values) -> OnlineState:
    """Of a level that has gone on for long, the oldest values are kept as noise alone."""
    count = len(scaled) - _GUARD
    settled, errors = scaled[:count], _on_scale(state.errors, scaled, state.unit)
    widths = _widths_among(settled, None if errors is None else errors[:count], _floor(state))
    return replace(
        state,
        values=state.values[_BLOCK:],
        positions=state.positions[_BLOCK:],
        residuals=(*state.residuals, *rest_of(state.residuals, settled, _floor(state), widths)[:_BLOCK])[
            -_MAX_RESIDUALS:
        ],
        errors=state.errors[_BLOCK:],
    )


@dataclass(frozen=True)
class OnlineState:
    """All that is known of a series, small enough to store beside it."""

    min_relative_change: float = 0.03
    seen: int = 0
    """Values so far, gaps included: the position of the next one."""
    unit: float = 0.0
    """What values are divided by where one of the first was 0 or below; 0 where logarithms are judged."""
    values: tuple[float, ...] = ()
    """Newest values of the present level, in time order."""
    positions: tuple[int, ...] = ()
    """Where they stand in the series."""
    earlier: tuple[float, ...] = ()
    """Newest values of the level before, as long as the present one may be a burst."""
    residuals: tuple[float, ...] = ()
    """Distances of earlier values from their level, on the scale they are judged on, less by what a value was less
    certain than most; none while learning."""
    errors: tuple[float, ...] = ()
    """Standard error of each of `values` as a fraction of it, to 32 bits; 0 where it is not known, none if none is."""
    earlier_errors: tuple[float, ...] = ()
    """Likewise of `earlier`."""


@dataclass(frozen=True)
class Alarm:
    """A new level, as far as it can be seen from the values up to now."""

    index: int
    """Position of its first value."""
    before: float
    after: float
    count_after: int
    """Values of the new level that were needed to see it."""
    is_return: bool
    """Whether the series is back at the level before the last alarm, which was a burst then."""
