"""Which stores of a launch's programs are ordered, though the interpreter runs them one by one."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Launch:
    """One launch of a kernel, whose programs run one after another.

    Time is counted in epochs: each program starts one, and each of its synchronising atomics. The
    order that atomics establish is tracked with vector clocks (Lamport 1978; FastTrack, Flanagan
    and Freund 2009).
    """

    kernel: str
    epoch: int = 0
    first_epoch: int = 1
    """Of the current program."""
    program_ids: list[tuple[int, int, int]] = field(default_factory=list)
    epoch_programs: list[int] = field(default_factory=lambda: [-1])
    """Number of the program, by epoch; epoch 0 is before the launch."""
    stored_at: dict[tuple[int, int], NDArray[np.int32]] = field(default_factory=dict)
    """Epoch of the last store to each element, by storage and element size."""
    clock: dict[int, int] = field(default_factory=dict)
    """Epoch up to which another program's stores precede the current program's next access."""
    lock_clocks: dict[int, dict[int, int]] = field(default_factory=dict)
    """What is ordered by an atomic on an address, likewise."""

    def start_program(self, program_id: tuple[int, int, int]) -> None:
        self.program_ids.append(program_id)
        self.clock = {}
        self._start_epoch()
        self.first_epoch = self.epoch

    def synchronise(self, address: int) -> None:
        """Note an atomic with acquire and release semantics on one address."""
        program = self.epoch_programs[self.epoch]
        # An acquire: what the last holder of the lock has seen precedes us now.
        clock = self.lock_clocks.get(address, {}) | {}
        for earlier_program, epoch in self.clock.items():
            clock[earlier_program] = max(epoch, clock.get(earlier_program, 0))
        self.clock = dict(clock)
        # A release: our stores so far precede who takes the lock next.
        clock[program] = self.epoch
        self.lock_clocks[address] = clock
        self._start_epoch()

    def is_ordered(self, epoch: int) -> bool:
        """Whether a store of another program precedes the current program's next access."""
        program = self.epoch_programs[epoch]
        return epoch <= self.clock.get(program, 0)

    def program_of(self, epoch: int) -> tuple[int, int, int]:
        number = self.epoch_programs[epoch]
        return self.program_ids[number]

    def _start_epoch(self) -> None:
        self.epoch += 1
        self.epoch_programs.append(len(self.program_ids) - 1)
