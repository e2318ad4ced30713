"""Test every address that an interpreted kernel loads from or stores to, before the access.

A pointer carries the operand that it came from, through pointer arithmetic, broadcasts and block
pointers. An access outside the operand's storage is noted and left out, so memory is never
corrupted. Two programs that store different values to one element without synchronisation are a
race.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from roofwatch.collector.accuracy.address_space import AddressSpace
from roofwatch.model.memory_fault import Access, MemoryFault

_TRITON_FOLDER = str(Path(triton.__file__).parent)
_OWN_FOLDER = str(Path(__file__).parent)


class MemoryFaultError(Exception):
    """A kernel that nobody watches left the bounds of an operand, or has a race."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument of a launch."""

    name: str
    address: int
    """Of the first element."""
    begin: int
    """Of its storage, or of the part of it that may be accessed."""
    end: int


class OperandPointer(tl.pointer_type):  # type: ignore[misc]  triton has no types
    """A pointer type that knows its operand; the interpreter passes types on unchanged."""

    def __init__(self, plain: Any, operand: Operand) -> None:
        super().__init__(plain.element_ty, plain.address_space, plain.const)
        self.operand = operand


def operand_of(handle: Any) -> Operand | None:
    """The operand that a pointer came from; None for pointers made of integers."""
    return getattr(handle.dtype, "operand", None)


@dataclass
class _Launch:
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
        clock = self.lock_clocks.get(address, {}) | {}
        for other, epoch in self.clock.items():
            clock[other] = max(epoch, clock.get(other, 0))
        self.clock = dict(clock)
        clock[program] = self.epoch
        self.lock_clocks[address] = clock
        self._start_epoch()

    def is_ordered(self, epoch: int) -> bool:
        """Whether a store of another program precedes the current program's next access."""
        return epoch <= self.clock.get(self.epoch_programs[epoch], 0)

    def program_of(self, epoch: int) -> tuple[int, int, int]:
        return self.program_ids[self.epoch_programs[epoch]]

    def _start_epoch(self) -> None:
        self.epoch += 1
        self.epoch_programs.append(len(self.program_ids) - 1)


class MemoryWatch:
    """Faults of the kernels that ran while it was active, one for each place in the code."""

    def __init__(self) -> None:
        self._faults: dict[tuple[object, ...], MemoryFault] = {}
        self.unknown_pointer_count = 0
        """Accesses through pointers made of integers, whose operand is not known."""

    @property
    def faults(self) -> tuple[MemoryFault, ...]:
        return tuple(self._faults.values())

    def add(self, fault: MemoryFault) -> None:
        place = (fault.access, fault.file, fault.line, fault.operand, fault.is_race)
        first = self._faults.get(place)
        if first is not None:
            fault = first.model_copy(update={"count": first.count + fault.count})
        self._faults[place] = fault


class MemoryGuard:
    """Tests the accesses of the launch that is running in this process."""

    def __init__(self) -> None:
        self._launches: list[_Launch] = []
        self._watches: list[MemoryWatch] = []
        self._parts: Mapping[int, int] = {}
        self._memory = AddressSpace()

    @contextmanager
    def watching(self) -> Iterator[MemoryWatch]:
        """Collect faults, instead of raising an error at the first."""
        watch = MemoryWatch()
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)

    @contextmanager
    def launching(self, kernel: str) -> Iterator[None]:
        self._launches.append(_Launch(kernel))
        self._memory.forget()
        try:
            yield
        finally:
            self._launches.pop()

    def divide_storage(self, parts: Mapping[int, int]) -> None:
        """Declare parts of one storage, from first address to end, that are operands of their
        own.
        """
        self._parts = parts

    def operand(self, name: str, tensor: Any) -> Operand:
        address = tensor.data_ptr()
        for begin, end in self._parts.items():
            if begin <= address < end:
                return Operand(name, address, begin, end)
        storage = tensor.untyped_storage()
        begin = storage.data_ptr()
        return Operand(name, address, begin, begin + storage.nbytes())

    def start_program(self, program_id: tuple[int, int, int]) -> None:
        if self._launches:
            self._launches[-1].start_program(program_id)

    def synchronise(self, address: int) -> None:
        if self._launches:
            self._launches[-1].synchronise(address)

    def inside(
        self, pointers: Any, mask: NDArray[np.bool_] | None, access: Access
    ) -> NDArray[np.bool_] | None:
        """Note accesses that are out of bounds, and return the mask of the others.

        None is the mask of all elements, given and returned.
        """
        addresses = pointers.data
        itemsize = item_bytes(pointers)
        operand = operand_of(pointers)
        if operand is None:
            return self._inside_memory(addresses, mask, itemsize, access)
        # as unsigned numbers, addresses before the storage are far behind it
        last = operand.end - operand.begin - itemsize
        outside = addresses - np.uint64(operand.begin) > np.uint64(max(last, 0))
        if last < 0:
            outside[...] = True
        if mask is not None:
            outside &= mask
        if not outside.any():
            return mask
        self._add_out_of_bounds(operand, addresses[outside], itemsize, access)
        return ~outside if mask is None else mask & ~outside

    def note_store(self, pointers: Any, values: Any, mask: NDArray[np.bool_] | None) -> None:
        """Compare a store, before it is made, with those of other programs of the launch."""
        operand = operand_of(pointers)
        if operand is None or not self._launches:
            return
        launch = self._launches[-1]
        itemsize = item_bytes(pointers)
        key = (operand.begin, itemsize)
        if key not in launch.stored_at:
            length = -(-(operand.end - operand.begin) // itemsize)
            launch.stored_at[key] = np.zeros(length, np.int32)
        stored_at = launch.stored_at[key]
        addresses = pointers.data if mask is None else pointers.data[mask]
        places = (addresses - np.uint64(operand.begin)).astype(np.int64) // itemsize
        epochs = stored_at[places]
        is_shared = (epochs > 0) & (epochs < launch.first_epoch)
        if is_shared.any():
            new = values.data if mask is None else np.broadcast_to(values.data, mask.shape)[mask]
            self._add_races(launch, operand, addresses, epochs, is_shared, new, itemsize)
        stored_at[places] = launch.epoch

    def _add_races(
        self,
        launch: _Launch,
        operand: Operand,
        addresses: NDArray[np.uint64],
        epochs: NDArray[np.int32],
        is_shared: NDArray[np.bool_],
        new: NDArray[Any],
        itemsize: int,
    ) -> None:
        # programs that store the same value give the same result in every order
        racing = is_shared & (_read(addresses, itemsize) != _bits(new, itemsize))
        for epoch in np.unique(epochs[racing]).tolist():
            if launch.is_ordered(epoch):
                racing &= epochs != epoch
        if not racing.any():
            return
        first = int(np.argmax(racing))
        fault = self._fault(operand, int(addresses[first]), itemsize, "store")
        self._add(
            fault.model_copy(
                update={
                    "other_program": launch.program_of(int(epochs[first])),
                    "count": int(racing.sum()),
                }
            )
        )

    def _inside_memory(
        self,
        addresses: NDArray[np.uint64],
        mask: NDArray[np.bool_] | None,
        itemsize: int,
        access: Access,
    ) -> NDArray[np.bool_] | None:
        for watch in self._watches[-1:]:
            watch.unknown_pointer_count += 1
        used = addresses.reshape(-1) if mask is None else addresses[mask]
        if not used.size:
            return mask
        first, last = int(used.min()), int(used.max())
        if self._memory.is_mapped(first, last + itemsize):
            return mask
        outside = np.array(
            [not self._memory.is_mapped(address, address + itemsize) for address in used.tolist()]
        )
        if not outside.any():
            return mask
        wrong = used[outside]
        operand = Operand("a pointer made of an integer", int(wrong[0]), 0, 0)
        self._add_out_of_bounds(operand, wrong, itemsize, access)
        inside = np.ones(addresses.shape, bool) if mask is None else mask.copy()
        inside[inside] = ~outside
        return inside

    def _add_out_of_bounds(
        self, operand: Operand, addresses: NDArray[np.uint64], itemsize: int, access: Access
    ) -> None:
        fault = self._fault(operand, int(addresses[0]), itemsize, access)
        self._add(fault.model_copy(update={"count": addresses.size}))

    def _fault(self, operand: Operand, address: int, itemsize: int, access: Access) -> MemoryFault:
        launch = self._launches[-1] if self._launches else _Launch("a kernel")
        file, line = _place_in_code()
        return MemoryFault(
            access=access,
            kernel=launch.kernel,
            file=file,
            line=line,
            operand=operand.name,
            offset=(address - operand.address) // itemsize,
            length=(operand.end - operand.address) // itemsize,
            program=launch.program_ids[-1] if launch.program_ids else (0, 0, 0),
        )

    def _add(self, fault: MemoryFault) -> None:
        if not self._watches:
            raise MemoryFaultError(fault.message)
        self._watches[-1].add(fault)


GUARD = MemoryGuard()
"""That of this process, in which one launch runs at a time."""


def item_bytes(pointers: Any) -> int:
    bits: int = pointers.get_element_ty().primitive_bitwidth
    return max(1, bits // 8)


def _read(addresses: NDArray[np.uint64], itemsize: int) -> NDArray[Any]:
    """The bits of elements at tested addresses."""
    kind = np.dtype(f"u{itemsize}")
    mask = np.ones(addresses.shape, bool)
    stored: NDArray[Any] = triton.runtime.interpreter._interpreter.load(
        addresses, mask, np.zeros(addresses.shape, kind), kind
    )
    return stored


def _bits(values: NDArray[Any], itemsize: int) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(f"u{itemsize}")


def _place_in_code() -> tuple[str, int]:
    """File and line of the innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TRITON_FOLDER, _OWN_FOLDER, "<")):
            return short_path(file), frame.f_lineno
        frame = frame.f_back
    return "?", 0


def short_path(file: str) -> str:
    """A file's path below the folder that Python imports it from."""
    folders = [folder for folder in sys.path if folder and file.startswith(f"{folder}/")]
    longest = max(folders, key=len, default="")
    return file.removeprefix(f"{longest}/") if longest else Path(file).name
