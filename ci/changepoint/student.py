"""Student's t distribution for whole degrees of freedom. Pure, without numpy."""

import math


def two_sided_p(t: float, degrees: int) -> float:
    """Compute the probability that |T| exceeds |t|; below about 1e-16 it is 0.

    Source: the finite series of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3
    and 26.7.4.

    Raises:
        ValueError: `degrees` is below 1.
    """
    if degrees < 1:
        raise ValueError(f"degrees={degrees}: Student's t needs at least 1 degree of freedom")
    if math.isinf(t):
        return 0.0
    angle = math.atan(abs(t) / math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    is_odd = degrees % 2 == 1
    term = 1.0
    first_k = 2
    # the series begins with other terms for odd degrees
    if is_odd:
        term = math.cos(angle)
        first_k = 3
    total = term
    if degrees == 1:
        total = 0.0
    for k in range(first_k, degrees, 2):
        term *= cosine_squared * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    if is_odd:
        inside = 2 / math.pi * (angle + math.sin(angle) * total)
    return min(max(1 - inside, 0.0), 1.0)


def critical_t(degrees: int, confidence: float) -> float:
    """Find the t that |T| stays below with probability `confidence`, by bisection."""
    low, high = 0.0, 1.0
    # the interval doubles until it contains the answer
    while two_sided_p(high, degrees) > 1 - confidence:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if two_sided_p(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high
