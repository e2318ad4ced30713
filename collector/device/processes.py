"""Whose a process on the device is: the run's own, or somebody else's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

_MAX_GENERATIONS = 64


class OwnProcesses:
    """Tells the processes of a run: those that descend from its collector, and those that did when they were seen.

    Args:
        root_pid: The collector; this process if left out.
        parent_of: Process id of the parent; None of a process that is not there.
    """

    def __init__(self, root_pid: int | None = None, parent_of: Callable[[int], int | None] | None = None) -> None:
        self._parent_of = parent_of or parent_pid
        self._known = {root_pid or os.getpid()}

    def __contains__(self, pid: int) -> bool:
        line: list[int] = []
        ancestor: int | None = pid
        while ancestor is not None and ancestor > 1 and len(line) < _MAX_GENERATIONS:
            if ancestor in self._known:
                # the driver lists a worker for a moment after it has ended: what was the run's stays so
                self._known.update(line)
                return True
            line.append(ancestor)
            ancestor = self._parent_of(ancestor)
        return False


def foreign_process_count(pids: Sequence[int], is_own: Callable[[int], bool]) -> int | None:
    """How many processes on the device are not the run's; None where that cannot be told.

    In a container the driver may give the ids that processes have outside of it, or leave them out
    (NVIDIA/gpu-monitoring-tools#63, NVIDIA/open-gpu-kernel-modules#614). A list in which the run does not find itself,
    though it uses the device, is such a one; or it does not use the device yet.
    """
    seen = set(pids)
    own_count = sum(map(is_own, seen))
    return len(seen) - own_count if own_count else None


def parent_pid(pid: int) -> int | None:
    """Of a process of this machine, as /proc tells it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the name, in brackets, may hold anything: what follows the last bracket is the state, then the parent
    return int(status.rpartition(")")[2].split()[1])
