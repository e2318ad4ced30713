"""What was seen of the device while a time was measured, and what the autotuner chose, as a measurement stores it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from roofwatch.db.values import TunedChoice


class Conditions(TypedDict):
    """Of one time; the fields of `SeriesPoint` that bear these names."""

    sm_clock_mhz: float | None
    temperature_c: float | None
    degraded_by: tuple[str, ...]
    choices: tuple[TunedChoice, ...]


def conditions_of(
    block_facts: Sequence[Mapping[str, Any]] | None, autotuning: Sequence[Mapping[str, Any]]
) -> Conditions:
    """Sum up a measurement's blocks and choices.

    Args:
        block_facts: A block's facts each, as they are stored; what equals its default is not there.
        autotuning: What the autotuner did, as it is stored.
    """
    states = [state for block in block_facts or () if (state := block.get("device_state"))]
    clocks = [clock for state in states if (clock := state.get("sm_clock_mhz"))]
    temperatures_c = [temperature_c for state in states if (temperature_c := state.get("temperature_c")) is not None]
    return Conditions(
        sm_clock_mhz=statistics.median(clocks) if clocks else None,
        temperature_c=max(temperatures_c, default=None),
        degraded_by=tuple(sorted({reason for state in states for reason in state.get("degraded_by", ())})),
        choices=tuple(
            TunedChoice(one["function"], one.get("key", ""), _in_words(one.get("chosen", {}))) for one in autotuning
        ),
    )


def _in_words(configuration: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(configuration.items()))
