"""How amounts are written that no single metric has: rates of a ceiling, long times, energies, money."""

from __future__ import annotations

from roofwatch.collector.record.metrics import format_bytes, format_ns, metric

_NS_PER_MINUTE, _NS_PER_HOUR = 60e9, 3_600e9
_KILO, _MEGA = 1e3, 1e6
_THOUSAND = 1_000


def rate_text(resource: str, per_s: float) -> str:
    """`4.8 TB/s` of memory, `989 TFLOP/s` of arithmetic."""
    return metric("memory_bytes_per_s" if resource == "memory" else "flop_per_s").format(per_s)


def duration_text(ns: float) -> str:
    """`1.5 ms`, `4.2 min`, `3.1 h`: hours are what a device is paid by."""
    if ns >= _NS_PER_HOUR:
        return f"{ns / _NS_PER_HOUR:,.3g} h" if ns < 1_000 * _NS_PER_HOUR else f"{ns / _NS_PER_HOUR:,.0f} h"
    return f"{ns / _NS_PER_MINUTE:.3g} min" if ns >= _NS_PER_MINUTE else format_ns(ns)


def energy_text(joules: float) -> str:
    """`12 kJ`; below a kilojoule as the energy of a launch."""
    if joules >= _MEGA:
        return f"{joules / _MEGA:,.3g} MJ"
    return f"{joules / _KILO:.3g} kJ" if joules >= _KILO else metric("joules_per_launch").format(joules)


def counter_text(name: str, value: float) -> str:
    """A hardware counter in the unit that its name ends with: `130 MB`, `12.0%`, `4.1 µs`."""
    if name.endswith("_share"):
        return f"{value:.1%}"
    if name.endswith("_bytes_per_s"):
        return rate_text("memory", value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_ns"):
        return format_ns(value)
    return f"{value:,.0f}" if abs(value) >= _THOUSAND else f"{value:.4g}"


def money_text(amount: float, currency: str) -> str:
    """`3.20 USD`; what is less than a hundredth keeps two digits that say something."""
    return f"{amount:,.2f} {currency}" if amount >= 0.01 or amount == 0 else f"{amount:.2g} {currency}"
