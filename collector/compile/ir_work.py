"""What a launch has to do according to Triton's IR: trips of its loops, bytes, products, atomics.

Machine code does not say how often a loop runs, nor what a block loads with TMA; the IR does. A
trip count that depends on the program is averaged over programs of the grid.
"""

import math
import re
from collections.abc import Mapping, Sequence

from roofwatch.collector.compile.bounds import Launch, Ranges, TooComplexError
from roofwatch.collector.compile.cycles.ir_region import IrRegion, TileAccess
from roofwatch.collector.compile.cycles.sectors import Strides
from roofwatch.collector.compile.interval import Interval
from roofwatch.collector.compile.ir import Function, IrBlock, Operation, Value
from roofwatch.collector.compile.loops import distance_between
from roofwatch.collector.compile.pointers import base_of
from roofwatch.collector.compile.strides import TileStrides
from roofwatch.collector.compile.value_ranges import ValueRanges

_PROGRAMS = 8
"""Sampled per launch: enough for a causal mask, whose trips grow linearly."""
_STRIDES = (1, 5, 3)
"""Which sample each axis of the grid takes, so that axes are not sampled along a diagonal only."""
_AXES = "xyz"
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([^<>,]+|!tt\.ptr<[^>]*>)")
_BITS = re.compile(r"(\d+)")
_DTYPES = {
    "i8": "int8",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "tf32",
}
_LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
_STORES = frozenset({"tt.store", "tt.descriptor_store", "tt.descriptor_scatter"})
_ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"})
_SAME_ELEMENTS = frozenset(
    {"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "ttg.convert_layout"}
)
"""Operations that repeat or move the elements of their operand, each as often as the others."""
_PRODUCTS = frozenset({"tt.dot", "tt.dot_scaled"})
_DIVISIONS = frozenset({"arith.divsi", "arith.divui", "arith.ceildivsi"})


def ir_work(
    function: Function,
    arguments: Mapping[str, int],
    grid: tuple[int, int, int],
) -> IrRegion:
    """Count the work of an average program of a launch."""
    root = IrRegion()
    launch = Launch(
        arguments=arguments,
        grid=grid,
        ranges={},
    )
    ranges_of_programs = [
        ValueRanges(function, launch, program) for program in _sampled_programs(function, grid)
    ]
    # programs differ in where their tiles begin
    strides = TileStrides(ranges_of_programs[0])
    _collect(function.body, root, ranges_of_programs, strides)
    return root


def _sampled_programs(
    function: Function, grid: tuple[int, int, int]
) -> list[dict[Value, Interval]]:
    """Choose programs of the grid, each as the value of every program ID in the function."""
    operations = [
        operation
        for operation in function.operations()
        if operation.name == "tt.get_program_id" and operation.results
    ]
    # without a program ID all programs are equal
    sample_count = _PROGRAMS if operations else 1
    programs: list[dict[Value, Interval]] = []
    for sample in range(sample_count):
        program_ids: dict[Value, Interval] = {}
        for operation in operations:
            program_ids[operation.results[0]] = _program_id(operation, grid, sample)
        programs.append(program_ids)
    return programs


def _program_id(operation: Operation, grid: tuple[int, int, int], sample: int) -> Interval:
    """The ID of a sampled program, spread evenly over each axis of the grid."""
    axis = _AXES.index(operation.text.strip()[0])
    program_count = grid[axis]
    # the middle of one of equal parts of the axis
    part = sample * _STRIDES[axis] % _PROGRAMS
    position = (part + 0.5) / _PROGRAMS
    last = max(program_count - 1, 0)
    number = min(int(position * program_count), last)
    return Interval(number, number)


def _mean_trips(loop: Operation, ranges_of_programs: Sequence[Ranges]) -> float | None:
    """Mean trips of a loop over the sampled programs; None if one is unknown."""
    counts: list[float] = []
    for ranges in ranges_of_programs:
        trips = _trips(ranges, loop)
        # one unknown count makes the mean unknown
        if trips is None:
            return None
        counts.append(trips)
    return sum(counts) / len(counts)


def _trips(ranges: Ranges, loop: Operation) -> float | None:
    """Trips of a loop in one program; None if the IR does not tell, as for `while`."""
    if loop.name != "scf.for":
        return None
    start, stop, step = loop.operands[:3]
    try:
        step_bounds = ranges.of(step)
        distance = _distance(ranges, start, stop)
    except (TooComplexError, RecursionError):
        return None
    if distance is None or step_bounds.unknown is not None:
        return None
    # a step that may be 0 or negative bounds nothing
    if step_bounds.interval.low < 1:
        return None
    shortest = distance.low
    # the smaller of a tile and what remains is a whole tile nearly always
    if shortest <= 0:
        shortest = distance.high
    # another bound that an outer loop changes is averaged over that loop
    step_size = (step_bounds.interval.low + step_bounds.interval.high) / 2
    fewest_trips = max(0, math.ceil(shortest / step_size))
    most_trips = max(0, math.ceil(distance.high / step_size))
    return (fewest_trips + most_trips) / 2


def _step(loop: Operation, ranges: Ranges) -> float:
    """How far an iteration gets in the length that the loop goes through; 1 if not known."""
    if loop.name != "scf.for":
        return 1.0
    _, stop, step = loop.operands[:3]
    step_size = _constant(ranges, step)
    if step_size is not None and step_size > 1:
        return step_size
    # a loop over tiles counts by 1, up to a length over the length of a tile
    division = stop.operation
    if division is not None and division.name in _DIVISIONS:
        tile_length = _constant(ranges, division.operands[1])
        return max(1.0, tile_length or 1.0)
    return 1.0


def _constant(ranges: Ranges, value: Value) -> float | None:
    """The one number that a value can be; None if there are several."""
    try:
        bounds = ranges.of(value)
    except (TooComplexError, RecursionError):
        return None
    if bounds.unknown is not None or not bounds.interval.is_one:
        return None
    return float(bounds.interval.low)


def _distance(ranges: Ranges, start: Value, stop: Value) -> Interval | None:
    """Bound how far a loop's counter goes; None if one of its ends is unknown."""
    # ends that share a term, such as the program's first row, have a narrower distance
    distance = distance_between(ranges, stop, start)
    if distance is None:
        start_bounds = ranges.of(start)
        stop_bounds = ranges.of(stop)
        if start_bounds.unknown is not None or stop_bounds.unknown is not None:
            return None
        return stop_bounds.interval.minus(start_bounds.interval)
    if distance.unknown is not None:
        return None
    return distance.interval


def _collect(
    blocks: Sequence[IrBlock],
    region: IrRegion,
    ranges_of_programs: Sequence[ValueRanges],
    strides: TileStrides,
) -> None:
    """Add the work of blocks to a region, and their loops as regions of their own."""
    for block in blocks:
        for operation in block.operations:
            if operation.name in {"scf.for", "scf.while"}:
                child = IrRegion(trips=_mean_trips(operation, ranges_of_programs))
                if child.trips is None:
                    child.step = _step(operation, ranges_of_programs[0])
                region.loops.append(child)
                for body in operation.regions:
                    _collect(body, child, ranges_of_programs, strides)
                continue
            _count(operation, region, ranges_of_programs, strides)
            # a reduction's region combines two values: it is no work of its own
            if operation.name == "scf.if":
                for body in operation.regions:
                    _collect(body, region, ranges_of_programs, strides)


def _count(
    operation: Operation,
    region: IrRegion,
    ranges_of_programs: Sequence[ValueRanges],
    strides: TileStrides,
) -> None:
    """Add what one operation moves and computes, as a mean over the sampled programs."""
    if operation.name in _LOADS:
        share = _accessed_share(operation, 1, ranges_of_programs)
        loaded_bytes = share * sum(map(_bytes, operation.results))
        region.loaded_bytes += loaded_bytes
        if operation.name == "tt.load":
            _add_access(region, operation, operation.results[0], loaded_bytes, strides)
    elif operation.name in _STORES and len(operation.operands) > 1:
        share = _accessed_share(operation, 2, ranges_of_programs)
        stored_bytes = share * _bytes(operation.operands[1])
        region.stored_bytes += stored_bytes
        if operation.name == "tt.store":
            _add_access(region, operation, operation.operands[1], stored_bytes, strides)
    elif operation.name in _ATOMICS and len(operation.operands) > 1:
        region.atomics += operation.operands[1].size
        region.stored_bytes += _bytes(operation.operands[1])
    elif operation.name in _PRODUCTS:
        region.flop += _flop(operation)
        region.dtype = region.dtype or _dtype(operation)


def _add_access(
    region: IrRegion,
    operation: Operation,
    tile: Value,
    requested_bytes: float,
    strides: TileStrides,
) -> None:
    """Add where the elements of a loaded or stored tile lie."""
    # a single element is read by all threads at once, and a neighbour is the next program's
    if not tile.shape or not requested_bytes:
        return
    pointers = operation.operands[0]
    tensor = base_of(pointers)
    tensor_name = ""
    if tensor is not None:
        tensor_name = tensor.name
    region.accesses.append(
        TileAccess(
            tensor=tensor_name,
            lengths=tile.shape,
            strides=_strides_of(pointers, tile, strides),
            element_bytes=_bytes(tile) / tile.size,
            requested_bytes=requested_bytes,
        )
    )


def _strides_of(pointers: Value, tile: Value, strides: TileStrides) -> Strides:
    """Return the distances between neighbours of a tile, in elements."""
    unknown = (None,) * len(tile.shape)
    try:
        distances = strides.of(pointers)
    except (TooComplexError, RecursionError):
        return unknown
    # a pointer to a whole tile has no axes of its own
    if len(distances) != len(tile.shape):
        return unknown
    return distances


def _accessed_share(
    operation: Operation, mask_index: int, ranges_of_programs: Sequence[ValueRanges]
) -> float:
    """Return the part of a tile's elements that the mask of a load or store lets through."""
    has_mask = operation.name in {"tt.load", "tt.store"} and len(operation.operands) > mask_index
    if not has_mask:
        return 1.0
    mask = operation.operands[mask_index]
    shares = [_true_share(ranges, mask) for ranges in ranges_of_programs]
    return sum(shares) / len(shares)


def _true_share(ranges: Ranges, condition: Value) -> float:
    """Return the part of a condition's elements that are true; 1 where the IR does not tell."""
    operation = condition.operation
    if operation is None:
        return 1.0
    if operation.name in _SAME_ELEMENTS:
        return _true_share(ranges, operation.operands[0])
    # the parts of a mask limit different axes
    if operation.name == "arith.andi":
        return math.prod(_true_share(ranges, part) for part in operation.operands)
    if operation.name != "arith.cmpi":
        return 1.0
    predicate = operation.text.strip().partition(",")[0]
    smaller, limit = operation.operands[:2]
    if predicate in {"sgt", "sge"}:
        smaller, limit = limit, smaller
        predicate = predicate.replace("g", "l")
    if predicate not in {"slt", "sle"}:
        return 1.0
    try:
        smaller_bounds = ranges.of(smaller)
        limit_bounds = ranges.of(limit)
    except (TooComplexError, RecursionError):
        return 1.0
    is_unknown = smaller_bounds.unknown is not None or limit_bounds.unknown is not None
    if is_unknown or limit_bounds.interval.low != limit_bounds.interval.high:
        return 1.0
    first_refused = limit_bounds.interval.low
    if predicate == "sle":
        first_refused += 1
    values = smaller_bounds.interval
    value_count = values.high - values.low + 1
    true_count = min(max(first_refused - values.low, 0), value_count)
    return true_count / value_count


def _bytes(value: Value) -> float:
    """Bytes of a tensor or scalar; an address has 8."""
    element = value.element
    bit_count = 32
    if element == "ptr":
        bit_count = 64
    elif bits := _BITS.search(element):
        bit_count = int(bits[1])
    return value.size * bit_count / 8


def _types_of(operation: Operation) -> str:
    return operation.text.rpartition(" : ")[2]


def _flop(operation: Operation) -> float:
    """FLOP of a product of blocks [.., M, K] and [.., K, N]: 2 M N K."""
    shapes: list[list[int]] = []
    for lengths, _ in _TENSOR.findall(_types_of(operation)):
        # the text is `128x64x`: the piece after the last x is empty
        shapes.append([int(length) for length in lengths.split("x") if length])
    if len(shapes) < 2 or len(shapes[0]) < 2:
        return 0.0
    inner_length = shapes[0][-1]
    # of packed 4-bit operands, each element holds two
    if operation.name == "tt.dot_scaled" and "e2m1" in operation.text:
        inner_length *= 2
    return 2.0 * math.prod(shapes[-1]) * inner_length


def _dtype(operation: Operation) -> str:
    """The operands' dtype, which decides the rate of the tensor cores."""
    tensors = _TENSOR.findall(_types_of(operation))
    element = ""
    if tensors:
        element = tensors[0][1]
    if element.startswith("f8") or operation.name == "tt.dot_scaled":
        return "float8_e4m3fn"
    return _DTYPES.get(element, "bfloat16")
