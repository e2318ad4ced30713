"""What may hold a GPU's clock down, as NVML names it: the one table of bits, and which of them are faults."""

from __future__ import annotations

SW_POWER_CAP = "sw_power_cap"
GPU_IDLE = "gpu_idle"

EVENT_REASONS: dict[int, str] = {
    0x1: GPU_IDLE,
    0x2: "applications_clocks_setting",
    0x4: SW_POWER_CAP,
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""By bit. NVML's `nvmlClocksEventReason…`; the last two have their older `nvmlClocksThrottleReason…` names alone."""

FAULTS = frozenset({"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"})
"""A device that is held down by these is not itself: too hot, or short of power. `sw_power_cap` is none of them: at
its power limit is where a busy GPU works, and a kernel that needs less of it is the faster for that.
"""

THERMAL = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown"})
"""Those faults that pass by themselves if one waits."""


def reason_names(bits: int) -> tuple[str, ...]:
    """The names of all set bits, the lowest first; a bit of a newer driver as its number."""
    set_bits = (1 << position for position in range(bits.bit_length()) if bits >> position & 1)
    return tuple(EVENT_REASONS.get(bit, f"unknown_{bit:#x}") for bit in set_bits)
