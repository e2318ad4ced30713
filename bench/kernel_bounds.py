"""What limits each bundled Triton kernel according to its compiled code, and the share of the roof
it can reach.

    python -m bench.kernel_bounds [KERNEL ...] [--json]

No GPU is needed. Memory-bound: by Little's law a multiprocessor must have bandwidth times latency
in flight. What a kernel can have in flight is the shared memory of its resident blocks if it copies
asynchronously, else the bytes of all loads of all resident threads. Compute-bound: which
tensor-core instruction it uses. Each share is an upper bound: it ignores spills, barriers, tails,
caches and whether a loop keeps its buffers full.
"""

import argparse
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from roofwatch.collector.compile.instructions import widths
from roofwatch.collector.compile.static import compile_case
from roofwatch.collector.compile.targets import LIMITS
from roofwatch.collector.device.datasheets import datasheet_of
from roofwatch.kernels.registry import single_kernels
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.spec import Case, KernelSpec

_DEVICES = {"sm_90": "NVIDIA H100 80GB HBM3", "sm_100": "NVIDIA B200"}
_LATENCY_S = 0.7e-6
"""From a load to its data from memory, in a loaded system; an assumption, to be replaced by what a
GPU shows.
"""
_FULL_RATE = {"sm_90": re.compile(r"[A-Z]GMMA"), "sm_100": re.compile(r"UTC[A-Z]+MMA")}
_OLDER_INSTRUCTION_SHARE = 0.6
"""Of the rate of the newest instruction, what mma.sync reaches on Hopper; less on Blackwell."""


@dataclass(frozen=True)
class Bound:
    """One compiled function."""

    case_id: str
    function: str
    target: str
    roof: str
    """`memory` or `compute`."""
    loads: str
    """`tma`, `cp.async` or `registers`: where loads from memory go."""
    in_flight_bytes: int
    """Most bytes in flight per multiprocessor."""
    needed_bytes: int
    tensor: str
    """Tensor-core instructions."""
    occupancy: float
    spilled_bytes: int
    """Local memory per thread."""
    predicted: float
    """Highest share of the roof, which is the bandwidth of a copy or the rate of the vendor's
    matmul.
    """


def bound_of(spec: KernelSpec, case: Case, facts: StaticFacts) -> Bound:
    """Judge one function; the case says whether memory or the tensor cores are its roof."""
    sheet = datasheet_of(_DEVICES[facts.target])
    assert sheet is not None
    threads = facts.thread_count or 1
    limits = LIMITS[facts.target]
    threads = facts.thread_count or 1
    occupancy = facts.theoretical_occupancy or 0.0
    warps_per_block = math.ceil(threads / limits.warp_threads)
    resident_blocks = round(occupancy * limits.max_warps / warps_per_block)
    loads = _where_loads_go(facts)
    # Copies go to shared memory; other loads wait in the registers of each thread.
    bytes_per_block = facts.shared_bytes or 0
    if loads == "registers":
        load_widths = widths(facts.instructions, "global_load")
        bytes_per_thread = sum(bits // 8 * count for bits, count in load_widths)
        bytes_per_block = threads * bytes_per_thread
    in_flight_bytes = resident_blocks * bytes_per_block
    needed_bytes = round(sheet.bytes_per_s * _LATENCY_S / sheet.multiprocessors)
    # Types that tensor cores do not know are computed by the cores that bfloat16 is quick on.
    rated_dtype = case.dtype if case.dtype in sheet.teraflops else "bfloat16"
    compute_s = spec.flop_count(case) / sheet.flop_per_s(rated_dtype)
    memory_s = spec.memory_bytes(case) / sheet.bytes_per_s
    tensor = [
        kind.removeprefix("tensor.") for kind in facts.instructions if kind.startswith("tensor.")
    ]
    if not tensor or compute_s < memory_s:
        roof = "memory"
        predicted = min(1.0, in_flight_bytes / needed_bytes)
    else:
        roof = "compute"
        full_rate = _FULL_RATE[facts.target]
        is_full_rate = any(full_rate.fullmatch(kind) for kind in tensor)
        predicted = 1.0 if is_full_rate else _OLDER_INSTRUCTION_SHARE
    return Bound(
        case_id=facts.case_id,
        function=facts.function,
        target=facts.target,
        roof=roof,
        loads=loads,
        in_flight_bytes=in_flight_bytes,
        needed_bytes=needed_bytes,
        tensor=" ".join(tensor),
        occupancy=occupancy,
        spilled_bytes=facts.local_bytes or 0,
        predicted=predicted,
    )


def _where_loads_go(facts: StaticFacts) -> str:
    kinds = {kind.partition(".")[0] for kind in facts.instructions}
    if "tma" in kinds:
        return "tma"
    if "async_copy" in kinds:
        return "cp.async"
    return "registers"


def bounds(names: Sequence[str]) -> Iterator[Bound]:
    """Compile the first quick case of each kernel, dtype and direction for Hopper and Blackwell."""
    for spec in single_kernels():
        implementation = spec.implementations.get("triton")
        if implementation is None or (names and spec.name not in names):
            continue
        first: dict[tuple[str, str], Case] = {}
        for case in spec.cases:
            if "quick" in case.tags and case.direction in implementation.directions:
                first.setdefault((case.dtype, case.direction), case)
        for case in first.values():
            for facts in compile_case(
                spec=spec,
                implementation=implementation,
                case=case,
                targets=list(_DEVICES),
            ):
                if facts.outcome is Outcome.OK:
                    yield bound_of(spec, case, facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", help="default: all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    compiled_bounds = list(bounds(options.kernels))
    if options.json:
        print(json.dumps([asdict(bound) for bound in compiled_bounds], indent=1))
        return
    print(
        "| case | function | GPU | roof | loads to | in flight / needed, KiB | tensor | occupancy "
        "| spilled | at most |"
    )
    print("|---|---|---|---|---|--:|---|--:|--:|--:|")
    for bound in compiled_bounds:
        in_flight_kib = bound.in_flight_bytes / 1024
        needed_kib = bound.needed_bytes / 1024
        cells = [
            bound.case_id,
            bound.function,
            bound.target,
            bound.roof,
            bound.loads,
            f"{in_flight_kib:.0f} / {needed_kib:.0f}",
            bound.tensor,
            f"{bound.occupancy:.2f}",
            str(bound.spilled_bytes),
            f"{bound.predicted:.2f}",
        ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
