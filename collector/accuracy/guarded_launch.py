"""Make Triton's interpreter ask the memory guard before each access."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import TensorWrapper

from roofwatch.collector.accuracy.memory_guard import GUARD, Operand, operand_of

_Builder = interpreter.InterpreterBuilder
_RELAXED = interpreter._ir.MEM_SEMANTIC.RELAXED


class OperandPointer(tl.pointer_type):  # type: ignore[misc]  # triton has no types
    """A pointer type that knows its operand; the interpreter passes types on unchanged."""

    def __init__(self, plain: Any, operand: Operand) -> None:
        super().__init__(plain.element_ty, plain.address_space, plain.const)
        self.operand = operand


class _GuardedExecutor(interpreter.GridExecutor):  # type: ignore[misc]  # triton has no types
    """Runs the programs of a launch, with named operands."""

    def _init_args_hst(self, args_dev: Any, kwargs: Any) -> Any:
        arguments, keywords = super()._init_args_hst(args_dev, kwargs)
        for name, argument in (*zip(self.arg_names, arguments, strict=False), *keywords.items()):
            _name_operands(name, argument)
        return arguments, keywords

    def __call__(self, *args_dev: Any, **kwargs: Any) -> Any:
        with GUARD.launching(self.fn.__name__):
            tensors = [_as_tensor(argument) for argument in args_dev]
            named_tensors = {name: _as_tensor(argument) for name, argument in kwargs.items()}
            return super().__call__(*tensors, **named_tensors)


def _as_tensor(argument: Any) -> Any:
    """Replace an object that says no more than its address by a tensor there.

    Packages have such objects for strides that torch does not allow.
    """
    is_known = isinstance(argument, (torch.Tensor, TensorWrapper))
    if is_known or not hasattr(argument, "data_ptr"):
        return argument
    address = argument.data_ptr()
    for held in vars(argument).values():
        if not isinstance(held, torch.Tensor):
            continue
        storage = held.untyped_storage()
        distance = address - storage.data_ptr()
        item_bytes = argument.dtype.itemsize
        # only an address inside the tensor is one of its elements
        if 0 <= distance < max(storage.nbytes(), 1) and distance % item_bytes == 0:
            length = (storage.nbytes() - distance) // item_bytes
            return torch.empty(0, dtype=argument.dtype).set_(
                storage, distance // item_bytes, (length,), (1,)
            )
    return argument


def guard_memory() -> None:
    """Test the accesses of all launches in this process."""
    interpreter.GridExecutor = _GuardedExecutor
    _Builder.set_grid_idx = _starting_program(_Builder.set_grid_idx)
    _Builder.create_masked_load = _guarded_load(_Builder.create_masked_load)
    _Builder.create_masked_store = _guarded_store(_Builder.create_masked_store)
    _Builder.create_atomic_rmw = _guarded_update(_Builder.create_atomic_rmw)
    _Builder.create_atomic_cas = _guarded_exchange(_Builder.create_atomic_cas)
    _Builder.create_select = _selecting_pointers(_Builder.create_select)
    _Builder.create_bitcast = _casting_pointers(_Builder.create_bitcast)


def with_operand(argument: Any, converted: Any) -> Any:
    """Give the pointer of a tensor argument its operand."""
    if not hasattr(argument, "data_ptr"):
        return converted
    tensor = interpreter._unwrap_tensor(argument)
    operand = GUARD.operand(getattr(argument, "operand_name", "an operand"), tensor)
    kind = OperandPointer(converted.type, operand)
    return tl.tensor(interpreter.TensorHandle(converted.handle.data, kind), kind)


def _name_operands(name: str, argument: Any) -> None:
    """Note the parameter's name on each tensor, for the message about a fault."""
    if isinstance(argument, tuple):
        for position, part in enumerate(argument):
            _name_operands(f"{name}[{position}]", part)
    elif isinstance(argument, interpreter.TensorDescriptor):
        _name_operands(name, argument.base)
    elif hasattr(argument, "data_ptr"):
        argument.operand_name = name


def _starting_program(set_grid_idx: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the guard which program of the grid the interpreter runs next."""

    @functools.wraps(set_grid_idx)
    def start(
        builder: Any,
        x: int,
        y: int,
        z: int,
    ) -> None:
        set_grid_idx(builder, x, y, z)
        GUARD.start_program((x, y, z))

    return start


def _guarded_load(load: Callable[..., Any]) -> Callable[..., Any]:
    """Mask out elements of a load that lie outside of their operand."""

    @functools.wraps(load)
    def guarded(builder: Any, pointers: Any, mask: Any, *options: Any, **keywords: Any) -> Any:
        mask = _boolean(mask)
        inside = GUARD.inside(pointers, mask.data, "load")
        return load(builder, pointers, _as_mask(inside, mask), *options, **keywords)

    return guarded


def _guarded_store(store: Callable[..., Any]) -> Callable[..., Any]:
    """Mask out elements of a store outside of their operand, and note the others."""

    @functools.wraps(store)
    def guarded(
        builder: Any,
        pointers: Any,
        values: Any,
        mask: Any,
        *options: Any,
    ) -> Any:
        mask = _boolean(mask)
        inside = GUARD.inside(pointers, mask.data, "store")
        GUARD.note_store(pointers, values, inside)
        return store(builder, pointers, values, _as_mask(inside, mask), *options)

    return guarded


def _guarded_update(update: Callable[..., Any]) -> Callable[..., Any]:
    """Mask out elements of an atomic outside of their operand."""

    @functools.wraps(update)
    def guarded(
        builder: Any,
        operation: Any,
        pointers: Any,
        values: Any,
        mask: Any,
        order: Any,
        scope: Any,
    ) -> Any:
        mask = _boolean(mask)
        inside = GUARD.inside(pointers, mask.data, "atomic")
        _synchronise(pointers, order)
        return update(builder, operation, pointers, values, _as_mask(inside, mask), order, scope)

    return guarded


def _guarded_exchange(exchange: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out a compare-and-swap outside of its operand."""

    @functools.wraps(exchange)
    def guarded(
        builder: Any,
        pointers: Any,
        expected: Any,
        values: Any,
        order: Any,
        scope: Any,
    ) -> Any:
        inside = GUARD.inside(pointers, None, "atomic")
        if inside is not None and not inside.all():
            # as if it had succeeded, because kernels repeat it until it does
            return expected
        _synchronise(pointers, order)
        return exchange(builder, pointers, expected, values, order, scope)

    return guarded


def _synchronise(pointers: Any, order: Any) -> None:
    """Locks and counters are single elements; atomics on blocks add up results."""
    if pointers.data.size == 1 and order != _RELAXED:
        GUARD.synchronise(int(pointers.data.reshape(-1)[0]))


def _boolean(mask: Any) -> Any:
    # block pointers pass an array; conditions that were computed with integers are integers
    data = mask
    if not isinstance(mask, np.ndarray):
        data = mask.data
    if data is not mask and data.dtype == np.bool_:
        return mask
    return interpreter.TensorHandle(data.astype(np.bool_), tl.int1)


def _as_mask(inside: Any, mask: Any) -> Any:
    if inside is mask.data:
        return mask
    return interpreter.TensorHandle(inside, tl.int1)


def _selecting_pointers(select: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(select)
    def selected(
        builder: Any,
        condition: Any,
        if_true: Any,
        if_false: Any,
    ) -> Any:
        result = select(builder, condition, if_true, if_false)
        if operand_of(if_true) != operand_of(if_false):
            # elements of both operands, so the operand of an element is not known
            plain = tl.pointer_type(result.dtype.element_ty, result.dtype.address_space)
            return interpreter.TensorHandle(result.data, plain)
        return result

    return selected


def _casting_pointers(cast: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(cast)
    def converted(builder: Any, source: Any, kind: Any) -> Any:
        result = cast(builder, source, kind)
        operand = operand_of(source)
        if operand is None or not isinstance(result.dtype, tl.pointer_type):
            return result
        return interpreter.TensorHandle(
            np.asarray(result.data), OperandPointer(result.dtype, operand)
        )

    return converted
