"""What the threads of a process and its descendants have done so far."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_STOPPED_STATES = frozenset("TZX")


@dataclass(frozen=True)
class ThreadActivity:
    """What the threads of a process and its descendants have done so far."""

    threads: frozenset[str]
    is_stopped: bool
    """All of them, or ended."""
    cpu_ns: int

    @classmethod
    def below(cls, leader: int) -> Self:
        """Read `/proc` for a process and its descendants."""
        threads: set[str] = set()
        is_stopped = True
        cpu_ns = 0
        processes = [str(leader)]
        while processes:
            for thread in Path("/proc", processes.pop()).glob("task/*"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    # the command's name, in brackets, may itself contain a bracket
                    _, _, numbers = (thread / "stat").read_text().rpartition(")")
                    state = numbers.split()[0]
                    is_stopped &= state in _STOPPED_STATES
                    threads.add(thread.name)
                    processes += (thread / "children").read_text().split()
                    busy_ns, *_ = (thread / "schedstat").read_text().split()
                    cpu_ns += int(busy_ns)
        return cls(frozenset(threads), is_stopped, cpu_ns)
