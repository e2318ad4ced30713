"""Judge a series value by value: small state in, small state out. Pure; online.

Each new value is weighed in the currency of `ci.detect`: what the last few values cost at the level the series had,
less what they cost at the best new level. The noise that sets the costs is learnt from what the series did before
(`ci.series.noise`), and a spell no longer than its bursts is none of its levels (`ci.series.bursts`). Nothing is
computed over the whole series, and a state holds at most 256 numbers.

Source of the test: the window-limited generalised likelihood ratio (Willsky and Jones 1976; Lai 1995), here under a
learnt, bounded density in place of the normal one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ci.series.bursts import Bursts
from ci.series.gains import CAUTION, gains_of_a_new_level, most_inflation
from ci.series.level_line import MIN_FOR_SLOPE, fit_slope, is_drifting, line_ahead, residuals_of
from ci.series.levels import fit_levels
from ci.series.noise import (
    MIN_FOR_SHAPE,
    OUTLIER,
    Noise,
    Values,
    estimate_noise,
    leftover_inflation,
    median,
    stickiness_of_differences,
    tick_of,
)

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
_MIN_FOR_AUTOCORRELATION = 30
"""Half of what the offline method asks for: here the residuals hold no step that could pass for autocorrelation."""


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
    """Distances of earlier values from their level, on the scale they are judged on; none while learning."""

    def to_json(self) -> str:
        """As a JSON object; `from_json` reads it back equal."""
        return json.dumps(asdict(self), allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> OnlineState:
        """Read what `to_json` wrote."""
        stored = json.loads(text)
        return cls(
            min_relative_change=stored["min_relative_change"],
            seen=stored["seen"],
            unit=stored["unit"],
            values=tuple(stored["values"]),
            positions=tuple(stored["positions"]),
            earlier=tuple(stored["earlier"]),
            residuals=tuple(stored["residuals"]),
        )


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
    values: Sequence[float] | Values, starts: Sequence[int], *, min_relative_change: float = 0.03
) -> OnlineState:
    """The state after a series whose levels the offline method has found: what comes next is judged from there.

    Args:
        values: All of the series; what is not finite is a gap.
        starts: Positions at which its levels begin, the first level's left out.
        min_relative_change: As for `start`.
    """
    given = np.asarray(values, dtype=np.float64).ravel()
    state = start(min_relative_change=min_relative_change)
    positions = np.flatnonzero(np.isfinite(given))
    raw = given[positions]
    if len(raw) < LEARNING:
        return replace(state, seen=len(given), values=tuple(raw.tolist()), positions=tuple(positions.tolist()))
    unit = 0.0 if raw.min() > 0 else float(np.median(np.abs(raw))) or float(np.max(np.abs(raw))) or 1.0
    scaled = raw / unit if unit else np.log(raw)
    edges = [0, *np.searchsorted(positions, starts).tolist(), len(raw)]
    begins = edges[-2]
    # the level may be a burst that ends, as long as it is young; a long one is noise but for its newest values
    is_young = begins > 0 and len(raw) - begins < _ACCEPTED + _GUARD
    kept = max(begins, len(raw) - _MAX_VALUES)
    known = edges[-3] if is_young else kept
    residuals = [
        distance
        for first, last in pairwise(edges)
        for distance in _rest(state, scaled[first:last])[: max(known - first, 0)]
    ]
    return replace(
        state,
        seen=len(given),
        unit=unit,
        values=tuple(raw[kept:].tolist()),
        positions=tuple(positions[kept:].tolist()),
        earlier=tuple(raw[edges[-3] : begins][-_MAX_VALUES:].tolist()) if is_young else (),
        residuals=tuple(residuals[-_MAX_RESIDUALS:]) or (0.0,),
    )


def update(state: OnlineState, value: float) -> tuple[OnlineState, Alarm | None]:
    """Take in the next value of a series.

    Args:
        state: As the value before left it, or as `start` gave it.
        value: What is not finite is a gap: it keeps its position and says nothing. So does what is 0 or below in a
            series whose first values were above.

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
        return replace(state, earlier=(), residuals=_with_earlier(state)), None
    return (_forget(state, scaled) if len(state.values) > _MAX_VALUES else state), None


def _scaled(values: tuple[float, ...], unit: float) -> Values:
    """The values on the scale they are judged on."""
    raw = np.array(values)
    return raw / unit if unit else np.log(raw)


def _floor(state: OnlineState) -> float:
    """Smallest noise believed: a third of the smallest step that is told."""
    return math.log1p(state.min_relative_change) / 3


def _end_learning(state: OnlineState) -> OnlineState:
    raw = np.array(state.values)
    unit = 0.0 if raw.min() > 0 else float(np.median(np.abs(raw))) or float(np.max(np.abs(raw))) or 1.0
    scaled = _scaled(state.values, unit)
    fit = fit_levels(scaled, floor=_floor(state), min_segment=3, caution=_LEARNING_CAUTION)
    begins = fit.starts[-1] if fit.starts else 0
    return replace(
        state,
        unit=unit,
        values=state.values[begins:],
        positions=state.positions[begins:],
        residuals=tuple((scaled - fit.fitted())[:begins].tolist()) or (0.0,),
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
    learnt = _learnt_of(state, settled)
    noise, known_count = learnt.noise, len(learnt.residuals)
    tail = scaled[count - window :]
    level = line_ahead(settled, learnt.slope, count)[count - window :]
    # the present level is known from so many values only, which blurs a step away from it as much as the new one's do
    gains = gains_of_a_new_level(tail, level, noise) * len(settled) / (len(settled) + np.arange(1, window + 1))
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
    is_relevant = abs(reached - left) >= math.log1p(state.min_relative_change)
    if not is_significant or not is_relevant or length < _values_needed(learnt, reached - left):
        return None
    return _Step(length, is_return=False)


@dataclass(frozen=True)
class _Learnt:
    """What a series has shown before its newest values."""

    residuals: Values
    noise: Noise
    slope: float
    """Of the present level, per value."""


def _learnt_of(state: OnlineState, settled: Values) -> _Learnt:
    """It stays for a block of values, so that it need not be learnt anew for each."""
    if state.earlier:
        earlier = tuple(_scaled(state.earlier, state.unit).tolist())
        return _learnt(earlier, state.residuals, _floor(state), is_before=True)
    held = tuple(settled[: max(len(settled) - state.seen % _BLOCK, 0)].tolist())
    return _learnt(held, state.residuals, _floor(state), is_before=False)


@lru_cache(maxsize=256)
def _learnt(held: tuple[float, ...], residuals: tuple[float, ...], floor: float, *, is_before: bool) -> _Learnt:
    """From a level, the present one or the one before, and what is remembered of others."""
    slope = _slope(held, residuals, floor)
    rest = residuals_of(np.array(held), slope)
    known = (*rest, *residuals) if is_before else (*residuals, *rest)
    return _Learnt(np.array(known), _learn(known, floor), 0.0 if is_before else slope)


@lru_cache(maxsize=256)
def _slope(held: tuple[float, ...], residuals: tuple[float, ...], floor: float) -> float:
    """How the level drifts, per value; 0 unless it must."""
    if len(held) < MIN_FOR_SLOPE:
        return 0.0
    settled = np.array(held)
    slope = fit_slope(settled, floor)
    left = residuals_of(settled, slope)
    return slope if is_drifting(slope, np.array(left), _learn((*residuals, *left), floor)) else 0.0


def _values_needed(learnt: _Learnt, step: float) -> float:
    """Values of a new level that bursts explain less often than is promised. Only those bursts count which went the
    same way and at least half as far.
    """
    reached = learnt.residuals * math.copysign(1.0, step)
    bursts = Bursts.of(reached > max(OUTLIER * learnt.noise.deviation, abs(step) / 2))
    return max(bursts.longest_at_rate(len(reached), _BURST_RATE), _MIN_NEW)


def _with_earlier(state: OnlineState) -> tuple[float, ...]:
    """What is remembered of the noise, the level before with it."""
    return (*state.residuals, *_rest(state, _scaled(state.earlier, state.unit)))[-_MAX_RESIDUALS:]


def _rest(state: OnlineState, settled: Values) -> list[float]:
    """Distances of values from their level, or from the line that it drifts along."""
    return residuals_of(settled, _slope(tuple(settled.tolist()), state.residuals, _floor(state)))


@lru_cache(maxsize=4096)
def _learn(residuals: tuple[float, ...], floor: float) -> Noise:
    known = np.array(residuals)
    stickiness = stickiness_of_differences(known, least=_MIN_FOR_AUTOCORRELATION)
    nothing = np.zeros(len(known), dtype=bool)
    noise = estimate_noise(known, [], nothing, is_sticky=stickiness > 0, floor=floor, tick=tick_of(known))
    if len(known) < MIN_FOR_SHAPE:
        # no shape of their own, but a dependence
        return replace(noise, inflation=leftover_inflation(np.clip(known / noise.deviation, -OUTLIER, OUTLIER)))
    if not noise.autocorrelation:
        return noise
    # the upper end of what so many values allow: too little of it raises false alarms, too much only waits
    error = math.sqrt((1 - noise.autocorrelation**2) / len(known))
    return replace(noise, autocorrelation=min(noise.autocorrelation + error, 0.95))


def _begin_level(state: OnlineState, length: int) -> OnlineState:
    residuals = _with_earlier(state) if state.earlier else state.residuals
    return replace(
        state,
        values=state.values[-length:],
        positions=state.positions[-length:],
        earlier=state.values[:-length],
        residuals=residuals,
    )


def _end_burst(state: OnlineState, length: int) -> OnlineState:
    """Back where it was: the values in between lie far from that level, which is learnt of them."""
    burst = _scaled(state.values[:-length], state.unit) - median(_scaled(state.earlier, state.unit))
    kept = state.earlier[-(_MAX_VALUES - length) :]
    # places of the values before the burst no longer matter: no step will be looked for among them
    return replace(
        state,
        values=(*kept, *state.values[-length:]),
        positions=(*([state.positions[0]] * len(kept)), *state.positions[-length:]),
        earlier=(),
        residuals=(*state.residuals, *burst.tolist())[-_MAX_RESIDUALS:],
    )


def _forget(state: OnlineState, scaled: Values) -> OnlineState:
    """Of a level that has gone on for long, the oldest values are kept as noise alone."""
    settled = scaled[: len(scaled) - _GUARD]
    return replace(
        state,
        values=state.values[_BLOCK:],
        positions=state.positions[_BLOCK:],
        residuals=(*state.residuals, *_rest(state, settled)[:_BLOCK])[-_MAX_RESIDUALS:],
    )
