"""Errors so small that nobody needs to be told of their moves. Pure."""

from __future__ import annotations

_SINGLE_SPACING, _DOUBLE_SPACING = 2.0**-23, 2.0**-52
"""Between 1 and the next number, of float32 and float64. Kernels add up in float32, whatever they read and write."""


def error_floor(case_id: str) -> float:
    """RMS of the error / RMS of the reference up to which a result is as right as its arithmetic: a few roundings leave
    that much, and in another order another part of it.

    Args:
        case_id: As in the record; it names the dtype.
    """
    return _DOUBLE_SPACING if "/float64/" in case_id else _SINGLE_SPACING
