"""Test every address that an interpreted kernel loads from or stores to, before the access.

A pointer carries the operand that it came from, through pointer arithmetic, broadcasts and block
pointers. An access outside the operand's storage is noted and left out, so memory is never
corrupted. Two programs that store different values to one element without synchronisation are a
race.
"""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofwatch.collector.accuracy.address_space import AddressSpace
from roofwatch.collector.accuracy.launch_order import Launch
from roofwatch.collector.user_code import current_place
from roofwatch.model.memory_fault import Access, MemoryFault


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

    def read(self, places: NDArray[np.int64], itemsize: int) -> NDArray[Any]:
        """Bits of elements, by their positions in the storage."""
        count = (self.end - self.begin) // itemsize
        memory = (ctypes.c_ubyte * (count * itemsize)).from_address(self.begin)
        elements: NDArray[Any] = np.ctypeslib.as_array(memory).view(f"u{itemsize}")[places]
        return elements


def operand_of(handle: Any) -> Operand | None:
    """The operand that a pointer came from; None for pointers made of integers."""
    return getattr(handle.dtype, "operand", None)


class MemoryWatch:
    """Faults of the kernels that ran while it was active, one for each place in the code."""

    def __init__(self) -> None:
        self._faults: dict[tuple[object, ...], MemoryFault] = {}
        self.launch_count = 0
        self.unknown_pointer_count = 0
        """Accesses through pointers made of integers, whose operand is not known."""

    @property
    def faults(self) -> tuple[MemoryFault, ...]:
        """Stores come first, because they corrupt what other code reads."""
        return tuple(sorted(self._faults.values(), key=_rank))

    def add(self, fault: MemoryFault) -> None:
        """Add a fault; equal ones of a line are one, with their count."""
        identity = (fault.access, fault.file, fault.line, fault.operand, fault.is_race)
        first = self._faults.get(identity)
        if first is not None:
            fault = first.model_copy(update={"count": first.count + fault.count})
        self._faults[identity] = fault


class MemoryGuard:
    """Tests the accesses of the launch that is running in this process."""

    def __init__(self) -> None:
        self._launches: list[Launch] = []
        self._watches: list[MemoryWatch] = []
        self._parts: Mapping[int, int] = {}
        self._memory = AddressSpace()

    @contextmanager
    def watching(self, watch: MemoryWatch) -> Iterator[None]:
        """Collect faults, instead of raising an error at the first."""
        self._watches.append(watch)
        try:
            yield
        finally:
            self._watches.remove(watch)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Raise an error after a call that left the bounds of an operand or has a race.

        Raises:
            MemoryFaultError: it did; also if it raised another error then.
        """
        watch = MemoryWatch()
        try:
            with self.watching(watch):
                yield
        finally:
            if watch.faults:
                raise MemoryFaultError(watch.faults[0].message)

    @contextmanager
    def launching(self, kernel: str) -> Iterator[None]:
        self._launches.append(Launch(kernel))
        self._memory.forget()
        for watch in self._watches[-1:]:
            watch.launch_count += 1
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
        # a part of a buffer may not be written past its own end
        for begin, end in self._parts.items():
            if begin <= address < end:
                return Operand(
                    name=name,
                    address=address,
                    begin=begin,
                    end=end,
                )
        storage = tensor.untyped_storage()
        begin = storage.data_ptr()
        return Operand(
            name=name,
            address=address,
            begin=begin,
            end=begin + storage.nbytes(),
        )

    def start_program(self, program_id: tuple[int, int, int]) -> None:
        if self._launches:
            self._launches[-1].start_program(program_id)

    def synchronise(self, address: int) -> None:
        if self._launches:
            self._launches[-1].synchronise(address)

    def inside(
        self,
        pointers: Any,
        mask: NDArray[np.bool_] | None,
        access: Access,
    ) -> NDArray[np.bool_] | None:
        """Note accesses that are out of bounds, and return the mask of the others.

        None is the mask of all elements, given and returned.
        """
        addresses = pointers.data
        itemsize = item_bytes(pointers)
        operand = operand_of(pointers)
        if operand is None:
            return self._inside_memory(
                addresses=addresses,
                mask=mask,
                itemsize=itemsize,
                access=access,
            )
        # as unsigned numbers, addresses before the storage are far behind it
        last = operand.end - operand.begin - itemsize
        distances = addresses - np.uint64(operand.begin)
        outside: NDArray[np.bool_] = distances > np.uint64(max(last, 0))
        if last < 0:
            outside[...] = True
        if mask is not None:
            outside &= mask
        if not outside.any():
            return mask
        self._add_out_of_bounds(
            operand=operand,
            addresses=addresses[outside],
            itemsize=itemsize,
            access=access,
        )
        np.logical_not(outside, out=outside)
        if mask is None:
            return outside
        return mask & outside

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
        if mask is None:
            addresses = pointers.data
        else:
            addresses = pointers.data[mask]
        places = (addresses - np.uint64(operand.begin)).astype(np.int64) // itemsize
        epochs = stored_at[places]
        is_shared = (epochs > 0) & (epochs < launch.first_epoch)
        if is_shared.any():
            if mask is None:
                new = values.data
            else:
                new = np.broadcast_to(values.data, mask.shape)[mask]
            # programs that store the same value give the same result in every order
            is_changed = operand.read(places, itemsize) != _bits(new, itemsize)
            self._add_races(
                operand=operand,
                addresses=addresses,
                epochs=epochs,
                is_changed=is_shared & is_changed,
                itemsize=itemsize,
            )
        stored_at[places] = launch.epoch

    def _add_races(
        self,
        operand: Operand,
        addresses: NDArray[np.uint64],
        epochs: NDArray[np.int32],
        is_changed: NDArray[np.bool_],
        itemsize: int,
    ) -> None:
        """Note stores to elements that an unordered program has stored another value to."""
        launch = self._launches[-1]
        racing = is_changed.copy()
        for epoch in np.unique(epochs[racing]).tolist():
            # what is ordered cannot race
            if launch.is_ordered(epoch):
                racing &= epochs != epoch
        if not racing.any():
            return
        first = int(np.argmax(racing))
        fault = self._fault(
            operand=operand,
            address=int(addresses.flat[first]),
            itemsize=itemsize,
            access="store",
        )
        other_program = launch.program_of(int(epochs.flat[first]))
        count = int(racing.sum())
        self._add(fault.model_copy(update={"other_program": other_program, "count": count}))

    def _inside_memory(
        self,
        addresses: NDArray[np.uint64],
        mask: NDArray[np.bool_] | None,
        itemsize: int,
        access: Access,
    ) -> NDArray[np.bool_] | None:
        """Mask of the elements that lie in mapped memory, for a pointer without an operand."""
        for watch in self._watches[-1:]:
            watch.unknown_pointer_count += 1
        if mask is None:
            used = addresses.reshape(-1)
        else:
            used = addresses[mask]
        if not used.size:
            return mask
        first = int(used.min())
        last = int(used.max())
        # most accesses lie within mapped memory, so one look is enough
        if self._memory.is_mapped(first, last + itemsize):
            return mask
        outside = np.array(
            [not self._memory.is_mapped(address, address + itemsize) for address in used.tolist()]
        )
        # mapped memory may have holes, and no address may lie in one
        if not outside.any():
            return mask
        wrong = used[outside]
        operand = Operand(
            name="a pointer made of an integer",
            address=int(wrong[0]),
            begin=0,
            end=0,
        )
        self._add_out_of_bounds(
            operand=operand,
            addresses=wrong,
            itemsize=itemsize,
            access=access,
        )
        if mask is None:
            inside = np.ones(addresses.shape, bool)
        else:
            inside = mask.copy()
        inside[inside] = ~outside
        return inside

    def _add_out_of_bounds(
        self,
        operand: Operand,
        addresses: NDArray[np.uint64],
        itemsize: int,
        access: Access,
    ) -> None:
        """Note one fault for all elements that an access has outside of an operand."""
        fault = self._fault(
            operand=operand,
            address=int(addresses[0]),
            itemsize=itemsize,
            access=access,
        )
        self._add(fault.model_copy(update={"count": addresses.size}))

    def _fault(
        self,
        operand: Operand,
        address: int,
        itemsize: int,
        access: Access,
    ) -> MemoryFault:
        """Describe an access by the line of the kernel that runs now."""
        if self._launches:
            launch = self._launches[-1]
        else:
            launch = Launch("a kernel")
        file, line = current_place()
        program = (0, 0, 0)
        if launch.program_ids:
            program = launch.program_ids[-1]
        return MemoryFault(
            access=access,
            kernel=launch.kernel,
            file=file,
            line=line,
            operand=operand.name,
            offset=(address - operand.address) // itemsize,
            length=(operand.end - operand.address) // itemsize,
            program=program,
        )

    def _add(self, fault: MemoryFault) -> None:
        if not self._watches:
            raise MemoryFaultError(fault.message)
        self._watches[-1].add(fault)


GUARD = MemoryGuard()
"""That of this process, in which one launch runs at a time."""


def _rank(fault: MemoryFault) -> int:
    if fault.is_race:
        return 2
    if fault.access == "load":
        return 1
    return 0


def item_bytes(pointers: Any) -> int:
    bits: int = pointers.get_element_ty().primitive_bitwidth
    return max(1, bits // 8)


def _bits(values: NDArray[Any], itemsize: int) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(f"u{itemsize}")
