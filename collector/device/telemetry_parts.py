"""Readings of the device as the columns of a record: what one process of a run saw, bit by bit, and what all of them
saw, joined in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from roofwatch.collector.device.telemetry import PERIOD_S, Reading
from roofwatch.collector.record.device_state import Telemetry
from roofwatch.collector.record.record import utc_now

MAX_STORED_READINGS = 24_000
"""Twenty minutes at 20 Hz; of a longer run every second reading is kept, or every fourth."""

_QUANTITIES = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "energy_j", "foreign_process_count")


class EnergyMeter:
    """Energy in J that was spent since the first reading that tells it. None from where the counter went back: what was
    spent around that is not known.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._is_lost = False

    def since_first(self, counter_j: float | None) -> float | None:
        """The same of the next reading."""
        if counter_j is None:
            return None
        self._is_lost = self._is_lost or counter_j < self._last
        self._first = counter_j if self._first is None else self._first
        self._last = counter_j
        return None if self._is_lost else counter_j - self._first


class TelemetryPart:
    """Turns the readings of one process into columns, as many at a time as there are.

    Args:
        started_at: When the first reading was taken.
    """

    def __init__(self, started_at: datetime) -> None:
        self._started_at = started_at
        self._first_ns: int | None = None
        self._energy = EnergyMeter()

    def columns(self, readings: Sequence[Reading], *, message: str | None = None) -> Telemetry:
        """The next readings, in order. A column that would hold nothing is left empty.

        Args:
            readings: Those after the ones that it was given before.
            message: Why there are not more.
        """
        if readings and self._first_ns is None:
            self._first_ns = readings[0].at_ns
        columns: dict[str, list[Any]] = {
            name: [getattr(reading, name) for reading in readings] for name in _QUANTITIES if name != "energy_j"
        }
        columns["energy_j"] = [self._energy.since_first(reading.energy_j) for reading in readings]
        reasons = [reading.clock_event_reasons for reading in readings]
        return Telemetry(
            status="ok" if readings else "unavailable",
            message=message,
            started_at=self._started_at,
            offset_ms=tuple((reading.at_ns - (self._first_ns or 0)) / 1e6 for reading in readings),
            clock_event_reasons=(
                tuple(reason or () for reason in reasons) if any(reason is not None for reason in reasons) else ()
            ),
            **{name: _unless_empty(values) for name, values in columns.items()},
        )


def no_telemetry(status: str, message: str) -> Telemetry:
    """What stands in a record where nothing could be read."""
    return Telemetry.model_validate({"status": status, "message": message, "started_at": utc_now()})


def joined(parts: Sequence[Telemetry]) -> Telemetry:
    """The telemetry of a run that several processes measured one after the other.

    Two processes share no clock that never goes back, for the machine may have been started anew between them: how far
    apart they lie is what their starting times say, and never less than nothing. `energy_j` goes on where the process
    before left it, without what the device spent in between. After the last reading of each but the last stands one of
    which nothing is known, so that nobody draws a line through the time in which nobody looked.

    Args:
        parts: In order, at least one; those with one `started_at` are of one process. Of very many readings only so
            many are kept.
    """
    told = [part for part in parts if part.offset_ms]
    messages = dict.fromkeys(message for part in parts if part.message for message in part.message.split("; "))
    if not told:
        return parts[-1].model_copy(update={"message": "; ".join(messages) or None})
    told = list(_with_gaps(told))
    kept = _kept(told)
    columns: dict[str, list[Any]] = {name: list(_column(told, name)) for name in _QUANTITIES if name != "energy_j"}
    columns["energy_j"] = list(_energy(told))
    columns["offset_ms"] = list(_offsets_ms(told))
    if any(part.clock_event_reasons for part in told):
        columns["clock_event_reasons"] = list(_column(told, "clock_event_reasons", ()))
    return Telemetry(
        status="ok",
        message="; ".join(messages) or None,
        started_at=told[0].started_at,
        **{name: _unless_empty([values[place] for place in kept]) for name, values in columns.items()},
    )


def _with_gaps(parts: Sequence[Telemetry]) -> Iterator[Telemetry]:
    for number, part in enumerate(parts):
        if number and part.started_at != parts[number - 1].started_at:
            before = parts[number - 1]
            yield Telemetry(
                status="ok", started_at=before.started_at, offset_ms=(before.offset_ms[-1] + PERIOD_S * 1e3,)
            )
        yield part


def _kept(parts: Sequence[Telemetry]) -> list[int]:
    """Places of the readings to keep: every so many, and all gaps."""
    is_gap = [not any(getattr(part, name) for name in _QUANTITIES) for part in parts for _ in part.offset_ms]
    step = _step(len(is_gap))
    return [place for place, gap in enumerate(is_gap) if gap or place % step == 0]


def _offsets_ms(parts: Sequence[Telemetry]) -> Iterator[float]:
    began_ms = last_ms = 0.0
    for number, part in enumerate(parts):
        if number and part.started_at != parts[number - 1].started_at:
            by_wall_clock_ms = (part.started_at - parts[0].started_at) / timedelta(milliseconds=1)
            began_ms = max(by_wall_clock_ms, last_ms + PERIOD_S * 1e3)
        for offset_ms in part.offset_ms:
            last_ms = began_ms + offset_ms
            yield last_ms


def _energy(parts: Sequence[Telemetry]) -> Iterator[float | None]:
    before_j = last_j = 0.0
    for number, part in enumerate(parts):
        if number and part.started_at != parts[number - 1].started_at:
            before_j = last_j
        for energy_j in part.energy_j or [None] * len(part.offset_ms):
            last_j = last_j if energy_j is None else before_j + energy_j
            yield None if energy_j is None else last_j


def _column(parts: Sequence[Telemetry], name: str, missing: object = None) -> Iterator[Any]:
    return chain.from_iterable(getattr(part, name) or [missing] * len(part.offset_ms) for part in parts)


def _unless_empty(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values) if any(value is not None for value in values) else ()


def _step(reading_count: int) -> int:
    step = 1
    while reading_count > MAX_STORED_READINGS * step:
        step *= 2
    return step
