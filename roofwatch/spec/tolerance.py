"""Allowed errors of a result: one table for all kernels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

BASELINE_FACTOR = 2.0
"""Allowed multiple of the eager baseline's error. Source: tests of flash-attention (Dao-AILab)."""


@dataclass(frozen=True)
class Tolerance:
    """Limits of two errors: the largest `|out - ref| / (|ref| + rms(ref))`, and `rms(out - ref) /
    rms(ref)`.

    Each may be `BASELINE_FACTOR` times the eager baseline's plus the floor, but not more than the
    cap. The RMS in the first error covers elements near zero after cancellation.
    docs/explanation/accuracy.md gives the sources.

    Args:
        elementwise: Cap of the largest element's error.
        rmse_ratio: Cap of the RMS error.
        elementwise_floor: Added to the baseline's; default only the cap.
        rmse_floor: Likewise for the RMS error.
    """

    elementwise: float
    rmse_ratio: float
    elementwise_floor: float = math.inf
    rmse_floor: float = math.inf

    def or_looser(self, tolerance: "Tolerance") -> "Tolerance":
        """The looser of both in each number."""
        return Tolerance(
            elementwise=max(self.elementwise, tolerance.elementwise),
            rmse_ratio=max(self.rmse_ratio, tolerance.rmse_ratio),
            elementwise_floor=max(self.elementwise_floor, tolerance.elementwise_floor),
            rmse_floor=max(self.rmse_floor, tolerance.rmse_floor),
        )


TOLERANCES: Mapping[str, Tolerance] = {
    "float64": Tolerance(
        elementwise=1e-9,
        rmse_ratio=1e-10,
        elementwise_floor=1e-12,
        rmse_floor=1e-13,
    ),
    # floors: sums of thousands of terms in another order
    "float32": Tolerance(
        elementwise=1e-4,
        rmse_ratio=2e-5,
        elementwise_floor=2e-5,
        rmse_floor=4e-6,
    ),
    # floors: the number next to the nearest, and one rounding
    "float16": Tolerance(
        elementwise=1e-2,
        rmse_ratio=2e-3,
        elementwise_floor=1e-3,
        rmse_floor=5e-4,
    ),
    "bfloat16": Tolerance(
        elementwise=4e-2,
        rmse_ratio=1e-2,
        elementwise_floor=8e-3,
        rmse_floor=4e-3,
    ),
    # three and two bits of mantissa: roundings of one number may differ by 1/8 and 1/4
    "float8_e4m3fn": Tolerance(
        elementwise=0.14,
        rmse_ratio=4e-2,
        elementwise_floor=0.14,
        rmse_floor=1e-2,
    ),
    "float8_e5m2": Tolerance(
        elementwise=0.28,
        rmse_ratio=8e-2,
        elementwise_floor=0.28,
        rmse_floor=2e-2,
    ),
    # a quantised value may be at the next level
    "int8": Tolerance(
        elementwise=4e-2,
        rmse_ratio=1e-2,
        elementwise_floor=4e-2,
        rmse_floor=5e-3,
    ),
}

EXACT = Tolerance(elementwise=0.0, rmse_ratio=0.0)
"""For indices, masks and packed bits."""

EXACT_DTYPES = frozenset({"bool", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})
