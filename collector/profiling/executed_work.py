"""Work that a kernel really did, calculated from several of Nsight Compute's counters."""

import re
from collections import defaultdict
from collections.abc import Mapping

_SECTOR_BYTES = 32
_FLOP_OF_INSTRUCTION = {
    "fadd": 1,
    "fmul": 1,
    "ffma": 2,
    "dadd": 1,
    "dmul": 1,
    "dfma": 2,
    # two numbers in a register
    "hadd": 2,
    "hmul": 2,
    "hfma": 4,
}
"""By thread. Source: the roofline charts of Nsight Compute."""
_NEEDED = ("fadd", "fmul", "ffma")
_SOURCES = {
    "tf32": ("fp32",),
    "fp16": ("fp16", "fp32"),
    "bf16": ("fp32",),
    "fp8": ("fp16", "fp32"),
    "fp4_fp6": ("fp16", "fp32"),
}
_LOCAL_SECTORS = tuple(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum" for way in ("ld", "st"))
_TENSOR_OPERATIONS = re.compile(
    r"sm__ops_path_tensor_src_(?P<source>[a-z]+\d+(?:_fp6)?)"
    r"(?P<target>_dst_[a-z]+\d+)?(?P<sparsity>_sparsity_(?:on|off))?\.sum"
)

WORK_METRICS = (
    *(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in _FLOP_OF_INSTRUCTION),
    *(
        f"sm__ops_path_tensor_src_{source}_dst_{target}.sum"
        for source, targets in _SOURCES.items()
        for target in targets
    ),
    *(f"sm__ops_path_tensor_src_{source}.sum" for source in ("fp8", "fp64", "int8")),
    *_LOCAL_SECTORS,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
)
"""Counters of all generations; a GPU has some of them."""


def local_bytes(counts: Mapping[str, float]) -> float | None:
    """Bytes of spilled registers and local arrays through L1; None if not counted."""
    sectors = [counts[name] for name in _LOCAL_SECTORS if name in counts]
    if not sectors:
        return None
    return _SECTOR_BYTES * sum(sectors)


def executed_flop_count(counts: Mapping[str, float], *, uses_tensor_cores: bool) -> float | None:
    """Floating-point operations of all threads; integer products of tensor cores count too.

    None if an instruction that the kernel executes was not counted: the sum would hide work.
    """
    instructions: dict[str, float] = {}
    for name in _FLOP_OF_INSTRUCTION:
        for unit in ("smsp", "sm"):
            count = counts.get(f"{unit}__sass_thread_inst_executed_op_{name}_pred_on.sum")
            if count is not None:
                instructions[name] = count
    operations = _tensor_operations(counts)
    if any(name not in instructions for name in _NEEDED):
        return None
    if uses_tensor_cores and not operations:
        return None
    vector_flop_count = sum(
        _FLOP_OF_INSTRUCTION[name] * count for name, count in instructions.items()
    )
    return vector_flop_count + sum(operations.values())


def _tensor_operations(counts: Mapping[str, float]) -> dict[str, float]:
    """Operations of tensor cores by type of their operands.

    A type has counters for all results, for each type of result, and for dense and sparse operands:
    the same operations in each group.
    """
    groups: defaultdict[str, defaultdict[tuple[bool, bool], float]] = defaultdict(
        lambda: defaultdict(float)
    )
    for name, count in counts.items():
        match = _TENSOR_OPERATIONS.fullmatch(name)
        if match:
            group = (match["sparsity"] is not None, match["target"] is None)
            groups[match["source"]][group] += count
    return {
        source: counts_by_group[min(counts_by_group)] for source, counts_by_group in groups.items()
    }
