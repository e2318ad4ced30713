"""An online state as bytes, for a store that keeps a hundred thousand of them. Pure.

All numbers are kept to the last bit: a state that was stored goes on as if it never had been.
"""

from __future__ import annotations

import struct
from array import array

from ci.series.online import OnlineState

_VERSION = 1
_HEAD = struct.Struct("<BdIdHHH")
"""Version, smallest relative change, values seen, unit, and how many values, earlier values and residuals follow."""


def to_bytes(state: OnlineState) -> bytes:
    """Pack a state: 1 to 3 KiB."""
    head = _HEAD.pack(
        _VERSION,
        state.min_relative_change,
        state.seen,
        state.unit,
        len(state.values),
        len(state.earlier),
        len(state.residuals),
    )
    numbers = array("d", (*state.values, *state.earlier, *state.residuals))
    return head + numbers.tobytes() + array("I", state.positions).tobytes()


def from_bytes(packed: bytes) -> OnlineState:
    """Read what `to_bytes` packed.

    Raises:
        ValueError: of another version, or not whole.
    """
    if not packed or packed[0] != _VERSION:
        raise ValueError(f"an online state of version {packed[0] if packed else None}, not {_VERSION}")
    try:
        _, least, seen, unit, value_count, earlier_count, residual_count = _HEAD.unpack_from(packed)
        count = value_count + earlier_count + residual_count
        numbers, positions = array("d"), array("I")
        numbers.frombytes(packed[_HEAD.size : _HEAD.size + 8 * count])
        positions.frombytes(packed[_HEAD.size + 8 * count :])
    except (struct.error, ValueError) as error:
        raise ValueError(f"an online state of {len(packed)} bytes is not whole: {error}") from None
    if len(numbers) != count or len(positions) != value_count:
        raise ValueError(f"an online state of {len(packed)} bytes is not whole")
    values = tuple(numbers)
    return OnlineState(
        min_relative_change=least,
        seen=seen,
        unit=unit,
        values=values[:value_count],
        positions=tuple(positions),
        earlier=values[value_count : value_count + earlier_count],
        residuals=values[value_count + earlier_count :],
    )
