"""Processor time of this process and of a server on this machine: on one that others use too it tells more than the
clock does. From `/proc`, so on Linux alone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from sqlalchemy import Engine, text

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROCESSES = text("SELECT pid FROM pg_stat_activity WHERE pid != pg_backend_pid()")


class ProcessorTime:
    """What has been spent since the last look.

    Args:
        engine: Of the server.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._server_s: dict[int, float] = {}
        self._own_s = 0.0
        self.look()

    def look(self) -> float:
        """Seconds; those of the server to a hundredth."""
        own_s, before = time.process_time(), self._server_s
        # a connection of its own: what it costs to ask is not counted
        with self._engine.connect() as connection:
            pids = connection.scalars(_PROCESSES).all()
            own_pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]  # psycopg's
        self._server_s = {pid: _spent_s(pid) for pid in {*pids, own_pid}}
        spent_s = own_s - self._own_s + sum(spent - before.get(pid, 0.0) for pid, spent in self._server_s.items())
        self._own_s = time.process_time()
        return spent_s


def spent_ns(pid: int) -> int:
    """Of a process of one thread, as Postgres's are, since it began; to the nanosecond.

    Source: Linux, Documentation/scheduler/sched-stats.rst.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _spent_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / _TICKS_PER_S
