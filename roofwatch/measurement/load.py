"""How loaded this machine is, which widens all times."""

import os

BUSY_LOAD = 1.0
"""Load per processor from which processes wait for each other."""


def load_per_processor() -> float:
    """Processes that ran or waited in the last minute / processors."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def busy_sentence(load: float) -> str:
    """Say that times are uncertain; empty if the machine was not busy."""
    if load <= BUSY_LOAD:
        return ""
    return f"The machine was busy (load {load:.1f} per processor), so all times are uncertain."
