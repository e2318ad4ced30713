"""What a launch has to do according to Triton's IR: trips of its loops, bytes, products, atomics.

Machine code does not say how often a loop runs, nor what a block loads with TMA; the IR does. A
trip count that depends on the program is averaged over programs of the grid.
"""

import math
import re
from collections.abc import Mapping, Sequence

from roofwatch.collector.compile.bounds import Launch, Ranges, TooComplexError
from roofwatch.collector.compile.cycles.ir_region import IrRegion
from roofwatch.collector.compile.interval import Interval
from roofwatch.collector.compile.loops import distance_between
from roofwatch.collector.compile.ttir import Function, IrBlock, Operation, Value
from roofwatch.collector.compile.value_ranges import ValueRanges

_PROGRAMS = 8
"""Sampled per launch: enough for a causal mask, whose trips grow linearly."""
_STRIDES = (1, 5, 3)
"""Which sample each axis of the grid takes, so that axes are not sampled along a diagonal only."""
_AXES = "xyz"
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([^<>,]+|!tt\.ptr<[^>]*>)")
_BITS = re.compile(r"(\d+)")
_DTYPES = {"i8": "int8", "f16": "float16", "bf16": "bfloat16", "f32": "tf32"}
_LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
_STORES = frozenset({"tt.store", "tt.descriptor_store", "tt.descriptor_scatter"})
_ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"})
_PRODUCTS = frozenset({"tt.dot", "tt.dot_scaled"})


def ir_work(
    function: Function, arguments: Mapping[str, int], grid: tuple[int, int, int]
) -> IrRegion:
    """Count the work of an average program of a launch."""
    root = IrRegion()
    loops: list[tuple[Operation, IrRegion]] = []
    _collect(function.body, root, loops)
    launch = Launch(arguments=arguments, grid=grid, ranges={})
    programs = [item for item in function.operations() if item.name == "tt.get_program_id"]
    counts: dict[int, list[float | None]] = {}
    # trips may depend on the program, so several are looked at
    for sample in range(_PROGRAMS if programs else 1):
        fixed = {
            operation.results[0]: _program(operation, grid, sample)
            for operation in programs
            if operation.results
        }
        ranges = ValueRanges(function, launch, fixed)
        for index, (operation, _) in enumerate(loops):
            counts.setdefault(index, []).append(_trips(ranges, operation))
    for index, (_, region) in enumerate(loops):
        certain = [count for count in counts[index] if count is not None]
        region.trips = None
        # one unknown count makes the mean unknown
        if len(certain) == len(counts[index]):
            region.trips = sum(certain) / len(certain)
    return root


def _program(operation: Operation, grid: tuple[int, int, int], sample: int) -> Interval:
    axis = _AXES.index(operation.text.strip()[0])
    position = (sample * _STRIDES[axis] % _PROGRAMS + 0.5) / _PROGRAMS
    program_count = grid[axis]
    last = max(program_count - 1, 0)
    number = min(int(position * program_count), last)
    return Interval(number, number)


def _trips(ranges: Ranges, loop: Operation) -> float | None:
    if loop.name != "scf.for":
        return None
    start, stop, step = loop.operands[:3]
    try:
        step_bounds = ranges.of(step)
        distance = distance_between(ranges, stop, start)
        if distance is None:
            start_bounds = ranges.of(start)
            stop_bounds = ranges.of(stop)
            if start_bounds.unknown is not None or stop_bounds.unknown is not None:
                return None
            low = stop_bounds.interval.low - start_bounds.interval.high
            high = stop_bounds.interval.high - start_bounds.interval.low
        elif distance.unknown is not None:
            return None
        else:
            low = distance.interval.low
            high = distance.interval.high
    except (TooComplexError, RecursionError):
        return None
    if step_bounds.unknown is not None or step_bounds.interval.low < 1:
        return None
    # the smaller of a tile and what remains is a whole tile nearly always
    low = high if low <= 0 else low
    # another bound that an outer loop changes is averaged over that loop
    step_size = (step_bounds.interval.low + step_bounds.interval.high) / 2
    fewest_trips = max(0, math.ceil(low / step_size))
    most_trips = max(0, math.ceil(high / step_size))
    return (fewest_trips + most_trips) / 2


def _collect(
    blocks: Sequence[IrBlock], region: IrRegion, loops: list[tuple[Operation, IrRegion]]
) -> None:
    for block in blocks:
        for operation in block.operations:
            if operation.name in {"scf.for", "scf.while"}:
                child = IrRegion()
                region.loops.append(child)
                loops.append((operation, child))
                for body in operation.regions:
                    _collect(body, child, loops)
                continue
            _count(operation, region)
            # a reduction's region combines two values: it is no work of its own
            if operation.name == "scf.if":
                for body in operation.regions:
                    _collect(body, region, loops)


def _count(operation: Operation, region: IrRegion) -> None:
    if operation.name in _LOADS:
        region.loaded_bytes += sum(map(_bytes, operation.results))
    elif operation.name in _STORES and len(operation.operands) > 1:
        region.stored_bytes += _bytes(operation.operands[1])
    elif operation.name in _ATOMICS and len(operation.operands) > 1:
        region.atomics += operation.operands[1].size
        region.stored_bytes += _bytes(operation.operands[1])
    elif operation.name in _PRODUCTS:
        region.flop += _flop(operation)
        region.dtype = region.dtype or _dtype(operation)


def _bytes(value: Value) -> float:
    element = value.element
    if element == "ptr":
        return 8.0 * value.size
    bits = _BITS.search(element)
    return value.size * int(bits[1] if bits else 32) / 8


def _flop(operation: Operation) -> float:
    shapes: list[list[int]] = []
    for lengths, _ in _TENSOR.findall(operation.text.rpartition(" : ")[2]):
        shapes.append([int(length) for length in lengths.split("x") if length])
    if len(shapes) < 2 or len(shapes[0]) < 2:
        return 0.0
    inner_length = shapes[0][-1]
    # of packed 4-bit operands, each element holds two
    if operation.name == "tt.dot_scaled" and "e2m1" in operation.text:
        inner_length *= 2
    return 2.0 * math.prod(shapes[-1]) * inner_length


def _dtype(operation: Operation) -> str:
    tensors = _TENSOR.findall(operation.text.rpartition(" : ")[2])
    element = tensors[0][1] if tensors else ""
    if element.startswith("f8") or operation.name == "tt.dot_scaled":
        return "float8_e4m3fn"
    return _DTYPES.get(element, "bfloat16")
