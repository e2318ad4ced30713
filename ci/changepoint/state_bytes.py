"""An online state as bytes, for a store that keeps a hundred thousand of them. Pure.

All numbers are kept to the last bit: a state that was stored goes on as if it never had been.
"""

from __future__ import annotations

import struct
from array import array

from roofwatch.ci.changepoint.online_state import OnlineState

_VERSION = 2
_HEAD = struct.Struct("<BdIdHHHHH")
"""Version, smallest relative change, values seen, unit, and how many values, earlier values, residuals, errors and
errors of earlier values follow."""


def to_bytes(state: OnlineState) -> bytes:
    """Pack a state: 1 to 3.5 KiB."""
    head = _HEAD.pack(
        _VERSION,
        state.min_relative_change,
        state.seen,
        state.unit,
        len(state.values),
        len(state.earlier),
        len(state.residuals),
        len(state.errors),
        len(state.earlier_errors),
    )
    numbers = array("d", (*state.values, *state.earlier, *state.residuals))
    errors = array("f", (*state.errors, *state.earlier_errors))
    return head + numbers.tobytes() + errors.tobytes() + array("I", state.positions).tobytes()


def from_bytes(packed: bytes) -> OnlineState:
    """Read what `to_bytes` packed.

    Raises:
        ValueError: of another version, or not whole.
    """
    if not packed or packed[0] != _VERSION:
        raise ValueError(f"an online state of version {packed[0] if packed else None}, not {_VERSION}")
    try:
        _, least, seen, unit, *counts = _HEAD.unpack_from(packed)
        value_count, earlier_count, residual_count, *error_counts = counts
        count, error_count = value_count + earlier_count + residual_count, sum(error_counts)
        numbers, errors, positions = array("d"), array("f"), array("I")
        numbers_end = _HEAD.size + numbers.itemsize * count
        errors_end = numbers_end + errors.itemsize * error_count
        numbers.frombytes(packed[_HEAD.size : numbers_end])
        errors.frombytes(packed[numbers_end:errors_end])
        positions.frombytes(packed[errors_end:])
    except (struct.error, ValueError) as error:
        raise ValueError(f"an online state of {len(packed)} bytes is not whole: {error}") from None
    if (len(numbers), len(errors), len(positions)) != (count, error_count, value_count):
        raise ValueError(f"an online state of {len(packed)} bytes is not whole")
    values, all_errors = tuple(numbers), tuple(errors)
    return OnlineState(
        min_relative_change=least,
        seen=seen,
        unit=unit,
        values=values[:value_count],
        positions=tuple(positions),
        earlier=values[value_count : value_count + earlier_count],
        residuals=values[value_count + earlier_count :],
        errors=all_errors[: error_counts[0]],
        earlier_errors=all_errors[error_counts[0] :],
    )
