"""Student's t distribution for whole degrees of freedom."""

from __future__ import annotations

import math


def two_sided_p(t: float, degrees: int) -> float:
    """Probability that |T| exceeds |t|.

    Source: the finite series of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4; what
    is below about 1e-16 comes out as 0.
    """
    if degrees < 1:
        raise ValueError(f"degrees={degrees}: Student's t needs at least 1 degree of freedom")
    if math.isinf(t):
        return 0.0
    angle = math.atan(abs(t) / math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    is_odd = degrees % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0 if degrees == 1 else term
    for k in range(3 if is_odd else 2, degrees, 2):
        term *= cosine_squared * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if is_odd else math.sin(angle) * total
    return min(max(1 - inside, 0.0), 1.0)


def critical_t(degrees: int, confidence: float) -> float:
    """The t that |T| stays below with probability `confidence`, by bisection."""
    low, high = 0.0, 1.0
    while two_sided_p(high, degrees) > 1 - confidence:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if two_sided_p(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high
