"""Judge a series value by value: small state in, small state out. Pure; online.

Each new value is weighed as in `roofwatch.ci.changepoint.detect`: what the last few values cost at the level the series
had, less what they cost at the best new level. The noise that sets the costs is learnt from what the series did before,
and a spell no longer than its bursts is none of its levels. A state holds at most 256 values.

Source of the test: the window-limited generalised likelihood ratio (Willsky and Jones 1976; Lai 1995), here under a
learnt, bounded density in place of the normal one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from roofwatch.ci.changepoint.baseline import (
    CAUTION,
    Baseline,
    Held,
    gains_of_a_new_level,
    known_errors,
    learn_baseline,
    level_ahead,
    level_residuals,
    most_inflation,
)
from roofwatch.ci.changepoint.levels import Bursts, fit_levels
from roofwatch.ci.changepoint.noise import OUTLIER, Certainty, Values, median

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

_LARGEST_ERROR = 1e30
"""So that its square is a number: what is known no better than this is not known at all."""


@dataclass(frozen=True)
class OnlineState:
    """All that is known of a series."""

    min_relative_change: float = 0.03
    seen: int = 0
    """Values so far, gaps included: the position of the next one."""
    unit: float = 0.0
    """What values are divided by where one of the first was 0 or below; 0 where logarithms are judged."""
    values: tuple[float, ...] = ()
    """Newest values of the present level, in time order."""
    errors: tuple[float, ...] = ()
    """Standard error of each of `values` as a fraction of it; 0 where it is not known."""
    positions: tuple[int, ...] = ()
    """Where `values` stand in the series."""
    earlier: tuple[float, ...] = ()
    """Newest values of the level before, as long as the present one may be a burst."""
    earlier_errors: tuple[float, ...] = ()
    residuals: tuple[float, ...] = ()
    """Distances of earlier values from their level, on the scale they are judged on, less by what a value was less
    certain than most; none while learning."""

    @property
    def floor(self) -> float:
        """Smallest noise believed: a third of the smallest step that is reported."""
        return math.log1p(self.min_relative_change) / 3

    def scaled(self, values: Sequence[float] | Values) -> Values:
        """Values on the scale they are judged on."""
        raw = np.array(values)
        return raw / self.unit if self.unit else np.log(raw)

    def scaled_errors(self, errors: tuple[float, ...], scaled: Values) -> Values:
        """Errors on that scale, NaN where they are not known."""
        known = known_errors(errors)
        return known * np.abs(scaled) if self.unit else known

    def widths(self, scaled: Values, errors: tuple[float, ...]) -> Values | None:
        """How much wider each value spreads than most of these do."""
        on_scale = self.scaled_errors(errors, scaled)
        certainty = Certainty.of(scaled, on_scale, floor=self.floor)
        return None if certainty is None else certainty.widths(on_scale)


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
    positions = np.flatnonzero(np.isfinite(given))
    raw = given[positions]
    every = np.zeros(len(given)) if relative_errors is None else np.asarray(relative_errors, dtype=np.float64)
    errors = tuple(_kept_error(error) for error in every[positions].tolist())
    state = replace(start(min_relative_change=min_relative_change), seen=len(given))
    if len(raw) < LEARNING:
        return replace(state, values=tuple(raw.tolist()), positions=tuple(positions.tolist()), errors=errors)
    state = replace(state, unit=_unit_of(raw))
    scaled = state.scaled(raw)
    edges = [0, *np.searchsorted(positions, starts).tolist(), len(raw)]
    begins = edges[-2]
    # the level may be a burst that ends, as long as it is young; a long one is noise but for its newest values
    is_young = begins > 0 and len(raw) - begins < _ACCEPTED + _GUARD
    kept = max(begins, len(raw) - _MAX_VALUES)
    known = edges[-3] if is_young else kept
    widths = state.widths(scaled, errors)
    residuals: list[float] = []
    for first, last in reversed(list(pairwise(edges))):
        if first < known and len(residuals) < _MAX_RESIDUALS:
            own_widths = None if widths is None else widths[first:last]
            _, own = level_residuals((), scaled[first:last], state.floor, own_widths)
            residuals = own[: known - first].tolist() + residuals
    earlier = slice(max(edges[-3], begins - _MAX_VALUES), begins) if is_young else slice(0, 0)
    return replace(
        state,
        values=tuple(raw[kept:].tolist()),
        errors=errors[kept:],
        positions=tuple(positions[kept:].tolist()),
        earlier=tuple(raw[earlier].tolist()),
        earlier_errors=errors[earlier],
        residuals=tuple(residuals[-_MAX_RESIDUALS:]) or (0.0,),
    )


def update(state: OnlineState, value: float, relative_error: float = math.nan) -> tuple[OnlineState, Alarm | None]:
    """Take in the next value of a series.

    Args:
        state: As the value before left it, or as `start` gave it.
        value: What is not finite is a gap: it keeps its position and says nothing. So does what is 0 or below in a
            series whose first values were above.
        relative_error: Standard error of the value as a fraction of it; 0 and what is not finite is not known.

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
        errors=(*state.errors, _kept_error(relative_error)),
        positions=(*state.positions, state.seen),
    )
    if is_learning:
        return (_end_learning(state) if len(state.values) >= LEARNING else state), None
    scaled = state.scaled(state.values)
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


def _kept_error(error: float) -> float:
    return min(abs(error), _LARGEST_ERROR) if math.isfinite(error) else 0.0


def _unit_of(raw: Values) -> float:
    return 0.0 if raw.min() > 0 else float(np.median(np.abs(raw))) or float(np.max(np.abs(raw))) or 1.0


def _end_learning(state: OnlineState) -> OnlineState:
    state = replace(state, unit=_unit_of(np.array(state.values)))
    scaled = state.scaled(state.values)
    widths = state.widths(scaled, state.errors)
    fit = fit_levels(scaled, floor=state.floor, min_segment=3, widths=widths, caution=_LEARNING_CAUTION)
    begins = fit.starts[-1] if fit.starts else 0
    residuals = (scaled - fit.fitted()) / (1.0 if widths is None else widths)
    return replace(
        state,
        values=state.values[begins:],
        errors=state.errors[begins:],
        positions=state.positions[begins:],
        residuals=tuple(residuals[:begins].tolist()) or (0.0,),
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
    errors = state.scaled_errors(state.errors, scaled)
    baseline = learn_baseline(_held(state, settled, errors))
    level = level_ahead(settled, 0.0 if state.earlier else baseline.slope, count)[count - window :]
    noise, known_count = baseline.noise, len(baseline.residuals)
    # the present level is known from so many values only, which blurs a step away from it as much as the new one's do
    widths = None if baseline.certainty is None else baseline.certainty.widths(errors[count - window :])
    gains = gains_of_a_new_level(tail, level, noise, widths) * len(settled) / (len(settled) + np.arange(1, window + 1))
    # and the noise from so many: Student's t in place of the normal
    gains = known_count * np.log1p(np.maximum(gains, 0.0) / known_count)
    inflations = most_inflation(noise, known_count, window)
    length = int((gains / inflations).argmax()) + 1
    gain, reached, left = float(gains[length - 1]), median(tail[window - length :]), float(level[-1])
    if state.earlier:
        before = median(state.scaled(state.earlier))
        if length >= 2 and gain >= _RETURN_THRESHOLD and abs(reached - before) < abs(left - before) / 2:
            return _Step(length, is_return=True)
    is_significant = gain >= _THRESHOLD * inflations[length - 1] and count - length >= _MIN_LEVEL
    is_relevant = abs(reached - left) >= math.log1p(state.min_relative_change)
    if not is_significant or not is_relevant or length < _values_needed(baseline, reached - left):
        return None
    return _Step(length, is_return=False)


def _held(state: OnlineState, settled: Values, errors: Values) -> Held:
    """It stays for a block of values, so that it need not be learnt anew for each."""
    if state.earlier:
        held = state.scaled(state.earlier)
        errors = state.scaled_errors(state.earlier_errors, held)
    else:
        held = settled[: max(len(settled) - state.seen % _BLOCK, 0)]
    own = tuple(np.nan_to_num(errors[: len(held)]).tolist())
    return Held(tuple(held.tolist()), own, state.residuals, state.floor, bool(state.earlier))


def _values_needed(baseline: Baseline, step: float) -> float:
    """Values of a new level that bursts explain less often than is promised. Only those bursts count which went the
    same way and at least half as far.
    """
    reached = baseline.residuals * math.copysign(1.0, step)
    bursts = Bursts.of(reached > max(OUTLIER * baseline.noise.deviation, abs(step) / 2))
    return max(bursts.longest_at_rate(len(reached), _BURST_RATE), _MIN_NEW)


def _with_earlier(state: OnlineState) -> tuple[float, ...]:
    """What is remembered of the noise, the level before with it."""
    earlier = state.scaled(state.earlier)
    widths = state.widths(earlier, state.earlier_errors)
    _, residuals = level_residuals(state.residuals, earlier, state.floor, widths)
    return (*state.residuals, *residuals.tolist())[-_MAX_RESIDUALS:]


def _begin_level(state: OnlineState, length: int) -> OnlineState:
    return replace(
        state,
        values=state.values[-length:],
        errors=state.errors[-length:],
        positions=state.positions[-length:],
        earlier=state.values[:-length],
        earlier_errors=state.errors[:-length],
        residuals=_with_earlier(state) if state.earlier else state.residuals,
    )


def _end_burst(state: OnlineState, length: int) -> OnlineState:
    """Back where it was: the values in between lie far from that level, which is learnt of them."""
    burst = state.scaled(state.values[:-length]) - median(state.scaled(state.earlier))
    kept = slice(-(_MAX_VALUES - length), None)
    earlier = state.earlier[kept]
    # places of the values before the burst no longer matter: no step will be looked for among them
    return replace(
        state,
        values=(*earlier, *state.values[-length:]),
        errors=(*state.earlier_errors[kept], *state.errors[-length:]),
        positions=(*([state.positions[0]] * len(earlier)), *state.positions[-length:]),
        earlier=(),
        earlier_errors=(),
        residuals=(*state.residuals, *burst.tolist())[-_MAX_RESIDUALS:],
    )


def _forget(state: OnlineState, scaled: Values) -> OnlineState:
    """Of a level that has gone on for long, the oldest values are kept as noise alone."""
    settled = scaled[: len(scaled) - _GUARD]
    widths = state.widths(settled, state.errors[: len(settled)])
    _, residuals = level_residuals(state.residuals, settled, state.floor, widths)
    return replace(
        state,
        values=state.values[_BLOCK:],
        errors=state.errors[_BLOCK:],
        positions=state.positions[_BLOCK:],
        residuals=(*state.residuals, *residuals[:_BLOCK].tolist())[-_MAX_RESIDUALS:],
    )
