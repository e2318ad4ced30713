"""Estimates the time of a compiled launch with the cycle model."""

from functools import lru_cache

from roofwatch.collector.compile.cycles.ir_region import IrRegion
from roofwatch.collector.compile.cycles.model import (
    ASSUMPTIONS,
    UNKNOWN_TRIPS,
    Assumptions,
    LaunchedCode,
    predict,
)
from roofwatch.collector.compile.cycles.rates import RATES
from roofwatch.collector.compile.cycles.regions import Region
from roofwatch.collector.compile.ir_work import ir_work
from roofwatch.collector.compile.launch import Compiled
from roofwatch.collector.compile.launch_arguments import LaunchShape
from roofwatch.collector.compile.ttir import parse_function
from roofwatch.model.results import CodeEstimate

_USUAL_BYTES = 4
"""Of an element, where no tensor says it."""


def estimate(
    compiled: Compiled,
    region: Region | None,
    target: str,
    *,
    resident_blocks: int,
    local_bytes: int,
) -> CodeEstimate | None:
    """Estimate one launch; None if its grid or the target's rates are not known."""
    shape = compiled.shape
    if region is None or shape is None:
        return None
    code = LaunchedCode(
        region=region,
        ir=_work_of_ir(compiled.ir, shape),
        rates=RATES[target],
        grid=shape.grid,
        threads=compiled.thread_count,
        resident_blocks=resident_blocks,
        local_bytes=local_bytes,
        operand_bytes=shape.tensor_bytes or None,
    )
    assumptions: tuple[Assumptions, ...] = ASSUMPTIONS
    # each number of trips gives another estimate, and together an interval
    if code.has_unknown_trips:
        assumptions += UNKNOWN_TRIPS
    predictions = [predict(code, assumed) for assumed in assumptions]
    prediction = predictions[0]
    elements = shape.largest_tensor
    # a kernel without tensors has no elements to divide by
    if not elements:
        elements = max(1, round(prediction.requested_bytes / _USUAL_BYTES))
    return CodeEstimate(
        predicted_ns=prediction.time_ns,
        variants_ns=tuple(item.time_ns for item in predictions),
        limit=max(prediction.bounds_ns, key=lambda name: prediction.bounds_ns[name]),
        bounds_ns=dict(prediction.bounds_ns),
        element_count=elements,
        instructions_per_element=prediction.instructions / elements,
        hot_instructions_per_element=prediction.hot_instructions / elements,
        requested_bytes=prediction.requested_bytes,
        sector_bytes=prediction.sector_bytes,
        atomics_per_element=prediction.atomics / elements,
        local_bytes_moved=prediction.local_bytes,
        has_unknown_trips=code.has_unknown_trips,
        has_trips_of_tiles=code.has_trips_of_tiles,
        has_unknown_strides=code.has_unknown_strides,
    )


def _work_of_ir(text: str | None, shape: LaunchShape) -> IrRegion | None:
    """Work of one program in Triton's IR; None without it."""
    if text is None:
        return None
    arguments = tuple(sorted(shape.arguments.items()))
    return _cached_work(
        text=text,
        names=shape.names,
        arguments=arguments,
        grid=shape.grid,
    )


@lru_cache(maxsize=64)  # the IR of one launch is the same for most targets
def _cached_work(
    text: str,
    names: tuple[str, ...],
    arguments: tuple[tuple[str, int], ...],
    grid: tuple[int, int, int],
) -> IrRegion | None:
    """Parse the IR, name its arguments as the launcher does, and count."""
    try:
        function = parse_function(text)
    except (ValueError, AssertionError):  # a form that the parser does not know
        return None
    if len(names) == len(function.arguments):
        for value, name in zip(function.arguments, names, strict=True):
            value.name = f"%{name}"
    return ir_work(function, dict(arguments), grid)
