"""How far a result may lie from the reference: one table for all kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

BASELINE_FACTOR = 2.0
"""How many times the eager baseline's error is allowed. Source: the tests of flash-attention (Dao-AILab), which hold
the largest error of their kernels to twice that of plain torch in the same precision.
"""


@dataclass(frozen=True)
class Tolerance:
    """How far a result may lie from the high-precision reference.

    Two errors of a tensor are measured: the largest `|out - ref| / (|ref| + rms(ref))` of its elements, and
    `rms(out - ref) / rms(ref)` of the whole. Each may be `BASELINE_FACTOR` times the eager baseline's plus the floor,
    but never more than the cap. The root mean square in the first keeps elements near zero, which are sums that
    cancelled, from needing a precision that the dtype does not have. docs/explanation/accuracy.md gives the sources.

    Args:
        elementwise: Cap of the elements' error.
        rmse_ratio: Cap of the whole's.
        elementwise_floor: Allowed on top of the baseline's; left out, the cap alone decides.
        rmse_floor: The same for the whole.
    """

    elementwise: float
    rmse_ratio: float
    elementwise_floor: float = math.inf
    rmse_floor: float = math.inf

    def or_looser(self, other: Tolerance) -> Tolerance:
        """In each number the looser of the two."""
        return Tolerance(
            max(self.elementwise, other.elementwise),
            max(self.rmse_ratio, other.rmse_ratio),
            max(self.elementwise_floor, other.elementwise_floor),
            max(self.rmse_floor, other.rmse_floor),
        )


TOLERANCES: Mapping[str, Tolerance] = {
    "float64": Tolerance(elementwise=1e-9, rmse_ratio=1e-10, elementwise_floor=1e-12, rmse_floor=1e-13),
    # floors: a sum of thousands of terms in another order than torch's
    "float32": Tolerance(elementwise=1e-4, rmse_ratio=2e-5, elementwise_floor=2e-5, rmse_floor=4e-6),
    # floors: the neighbour of the nearest number, and one rounding
    "float16": Tolerance(elementwise=1e-2, rmse_ratio=2e-3, elementwise_floor=1e-3, rmse_floor=5e-4),
    "bfloat16": Tolerance(elementwise=4e-2, rmse_ratio=1e-2, elementwise_floor=8e-3, rmse_floor=4e-3),
    # three and two bits of mantissa: caps of one rounding, and two roundings of one number may land on neighbours, 1/8
    # and 1/4 apart
    "float8_e4m3fn": Tolerance(elementwise=0.14, rmse_ratio=4e-2, elementwise_floor=0.14, rmse_floor=1e-2),
    "float8_e5m2": Tolerance(elementwise=0.28, rmse_ratio=8e-2, elementwise_floor=0.28, rmse_floor=2e-2),
    # a quantised value may land on the neighbouring level
    "int8": Tolerance(elementwise=4e-2, rmse_ratio=1e-2, elementwise_floor=4e-2, rmse_floor=5e-3),
}

EXACT = Tolerance(elementwise=0.0, rmse_ratio=0.0)
"""For outputs that are indices, masks or packed bits: a number that is nearly right is another number."""

EXACT_DTYPES = frozenset({"bool", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})
