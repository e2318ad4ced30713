"""Our names of Nsight Compute's metrics, and what its stall reasons mean.

Names differ by generation of GPU and by version. Source: Nsight Compute documentation, metrics
reference, and `ncu --query-metrics`.
"""

from collections.abc import Mapping


def _of_peak(*metrics: str) -> tuple[str, ...]:
    """Shares of a pipe's peak: while multiprocessors are active, or else of the whole time."""
    return tuple(
        f"sm__{metric}.avg.pct_of_peak_sustained_{period}"
        for period in ("active", "elapsed")
        for metric in metrics
    )


FACTS: Mapping[str, tuple[str, ...]] = {
    "duration_ns": ("Duration", "gpu__time_duration.sum"),
    "sm_clock_hz": (
        "SM Frequency",
        "gpc__cycles_elapsed.avg.per_second",
        "sm__cycles_elapsed.avg.per_second",
    ),
    "dram_bytes": ("dram__bytes.sum",),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "dram_write_bytes": ("dram__bytes_write.sum",),
    "l2_bytes": ("lts__t_bytes.sum",),
    "l1_bytes": ("l1tex__t_bytes.sum",),
    "dram_throughput_pct": (
        "DRAM Throughput",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "memory_throughput_pct": (
        "Memory Throughput",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_throughput_pct": (
        "L2 Cache Throughput",
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l1_throughput_pct": (
        "L1/TEX Cache Throughput",
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_hit_rate_pct": ("L2 Hit Rate", "lts__t_sector_hit_rate.pct"),
    "l1_hit_rate_pct": ("L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct"),
    "sm_throughput_pct": (
        "Compute (SM) Throughput",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "tensor_pipe_pct": (
        # Blackwell
        "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed",
        # Ampere and Hopper; Volta and Turing have one pipe per operand type
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "issue_slots_pct": (
        "Issue Slots Busy",
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "sm__issue_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "executed_ipc": ("Executed Ipc Active", "sm__inst_executed.avg.per_cycle_active"),
    "fma_pipe_pct": _of_peak("pipe_fma_cycles_active", "inst_executed_pipe_fma"),
    "alu_pipe_pct": _of_peak("pipe_alu_cycles_active", "inst_executed_pipe_alu"),
    "fp64_pipe_pct": _of_peak("pipe_fp64_cycles_active", "inst_executed_pipe_fp64"),
    "xu_pipe_pct": _of_peak("inst_executed_pipe_xu"),
    "lsu_pipe_pct": _of_peak("inst_executed_pipe_lsu"),
    # instructions of the tensor pipe: Ampere has HMMA and IMMA, Hopper adds GMMA
    "tensor_hmma_pct": _of_peak("inst_executed_pipe_tensor_op_hmma"),
    "tensor_gmma_pct": _of_peak("inst_executed_pipe_tensor_op_gmma"),
    "tensor_imma_pct": _of_peak("inst_executed_pipe_tensor_op_imma"),
    "tensor_dmma_pct": _of_peak("inst_executed_pipe_tensor_op_dmma"),
    "load_sectors_per_request": (
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    ),
    "store_sectors_per_request": (
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    ),
    "shared_bank_conflict_count": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "local_bytes": (),
    "executed_flop_count": (),
    "achieved_occupancy_pct": (
        "Achieved Occupancy",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    "theoretical_occupancy_pct": (
        "Theoretical Occupancy",
        "sm__maximum_warps_per_active_cycle_pct",
    ),
    "waves_per_multiprocessor": ("Waves Per SM", "launch__waves_per_multiprocessor"),
    "registers_per_thread": ("Registers Per Thread", "launch__registers_per_thread"),
    "static_shared_memory_per_block_bytes": (
        "Static Shared Memory Per Block",
        "launch__shared_mem_per_block_static",
    ),
    "dynamic_shared_memory_per_block_bytes": (
        "Dynamic Shared Memory Per Block",
        "launch__shared_mem_per_block_dynamic",
    ),
}
"""Our name of each fact, and its names on the details page and the raw page; the first with a
number counts. One without names is calculated.
"""
STALL_REASONS = {
    "long_scoreboard": "data from device memory, L2 or L1",
    "short_scoreboard": "data from shared memory or a special function unit",
    "lg_throttle": "a full queue of load and store instructions",
    "mio_throttle": "a full queue of shared-memory and special-function instructions",
    "tex_throttle": "a full queue of texture instructions",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "barrier": "other warps of the block at a barrier",
    "membar": "a memory fence",
    "wait": "the fixed latency of the previous instruction",
    "not_selected": "the scheduler, which selected another ready warp",
    "no_instruction": "instruction fetch",
    "no_instructions": "instruction fetch",
    "imc_miss": "a miss in the constant cache",
    "branch_resolving": "a branch target",
    "dispatch_stall": "the dispatcher",
    "drain": "memory writes before exit",
    "sleeping": "a sleep instruction",
    "gmma": "asynchronous tensor core instructions",
    "misc": "other reasons",
}
"""What warps wait for, by Nsight Compute's name. Source: its documentation, warp stall reasons."""
